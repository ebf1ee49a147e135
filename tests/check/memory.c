/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "memory.h"

#ifdef _WIN32
#define __USE_MINGW_SETJMP_NON_SEH /* the way back unwinds no frame */
#include <windows.h>
#else
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define NO_ACCESS 65536 /* bytes at either end: further than a kernel could stray by a vector or a run */

#ifdef _WIN32
static size_t page_size(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwPageSize;
}

static unsigned char *reserve(size_t bytes)
{
    void *p = VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_NOACCESS);
    if (!p) {
        fprintf(stderr, "VirtualAlloc: error %lu\n", GetLastError());
        exit(1);
    }
    return p;
}

static void make_usable(unsigned char *p, size_t bytes)
{
    DWORD before;
    if (!VirtualProtect(p, bytes, PAGE_READWRITE, &before)) {
        fprintf(stderr, "VirtualProtect: error %lu\n", GetLastError());
        exit(1);
    }
}
#else
static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static unsigned char *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

static void make_usable(unsigned char *p, size_t bytes)
{
    if (mprotect(p, bytes, PROT_READ | PROT_WRITE) != 0) {
        perror("mprotect");
        exit(1);
    }
}
#endif

static size_t whole_pages(size_t bytes)
{
    const size_t page = page_size();
    return (bytes + page - 1) / page * page;
}

struct arena arena_new(size_t bytes)
{
    const size_t usable = whole_pages(bytes), outside = whole_pages(NO_ACCESS);
    unsigned char *const begin = reserve(usable + 2 * outside) + outside;
    make_usable(begin, usable);
    return (struct arena){begin, begin + usable};
}

unsigned char *arena_place(const struct arena *arena, size_t extent, bool at_end, size_t offset)
{
    if (extent + offset > (size_t)(arena->end - arena->begin)) {
        fprintf(stderr, "check: %zu bytes do not fit an arena\n", extent + offset);
        exit(1);
    }
    return at_end ? arena->end - extent - offset : arena->begin + offset;
}

bool arena_holds(const struct arena *arena, const void *p)
{
    const uintptr_t address = (uintptr_t)p, outside = whole_pages(NO_ACCESS);
    return address >= (uintptr_t)arena->begin - outside && address < (uintptr_t)arena->end + outside;
}

struct islands islands_new(size_t count)
{
    const size_t page = whole_pages(1), outside = whole_pages(NO_ACCESS);
    unsigned char *const begin = reserve(2 * outside + 2 * count * page) + outside;
    for (size_t i = 0; i < count; i++)
        make_usable(begin + 2 * i * page, page);
    return (struct islands){begin, count, page, (ptrdiff_t)(2 * page)};
}

static const void *volatile address;

#ifdef _WIN32
static jmp_buf way_back;
static volatile bool armed;

__attribute__((noreturn)) static void go_back(void) { longjmp(way_back, 1); }

/* The thread goes on in go_back, with the stack as after a call. */
static LONG CALLBACK on_fault(EXCEPTION_POINTERS *fault)
{
    if (!armed || fault->ExceptionRecord->ExceptionCode != EXCEPTION_ACCESS_VIOLATION)
        return EXCEPTION_CONTINUE_SEARCH;
    armed = false;
    address = (const void *)fault->ExceptionRecord->ExceptionInformation[1];
    fault->ContextRecord->Rip = (DWORD64)(uintptr_t)go_back;
    fault->ContextRecord->Rsp = (fault->ContextRecord->Rsp - 256) / 16 * 16 - 8;
    return EXCEPTION_CONTINUE_EXECUTION;
}

void fault_init(void) { AddVectoredExceptionHandler(1, on_fault); }

bool survives(void (*f)(void *), void *argument)
{
    if (setjmp(way_back) != 0)
        return false;
    armed = true;
    f(argument);
    armed = false;
    return true;
}
#else
static sigjmp_buf way_back;
static volatile sig_atomic_t armed;

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    if (!armed) {
        signal(signal_number, SIG_DFL); /* the instruction is tried again, and the program ends */
        return;
    }
    armed = 0;
    address = info->si_addr;
    siglongjmp(way_back, 1);
}

/* The signal stays unblocked in its handler, so that neither end of the jump has to ask the system for the mask. */
void fault_init(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

bool survives(void (*f)(void *), void *argument)
{
    if (sigsetjmp(way_back, 0) != 0)
        return false;
    armed = 1;
    f(argument);
    armed = 0;
    return true;
}
#endif

const void *fault_address(void) { return address; }
