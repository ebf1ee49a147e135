/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Ranges are a lock-free list, because the handler reads them in any thread at any moment. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS, SA_ONSTACK, process_vm_readv */
#endif

#include "files/bus_errors.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* It stays allocated and serves for another map later. */
struct bus_range {
    struct bus_range *next;
    atomic_uintptr_t begin, end; /* addresses; begin is 0: unused, RESERVED: not filled in yet */
    atomic_bool missing;         /* some pages have been replaced with zeros */
};

#define RESERVED UINTPTR_MAX

static _Atomic(struct bus_range *) ranges;
static struct sigaction previous_action;
static uintptr_t page_size;
static atomic_flag is_installed = ATOMIC_FLAG_INIT;
static atomic_bool is_handled;

/* ---- The handler ------------------------------------------------------------------------------------------------- */

/* Replaces the page at `at` and all pages after it with zeros: after a missing page, the rest is missing, too. mmap
 * is a plain system call on these systems, so a handler may call it. */
static bool map_zeros(struct bus_range *r, uintptr_t at)
{
    const uintptr_t page = at & ~(page_size - 1), end = (atomic_load(&r->end) + page_size - 1) & ~(page_size - 1);
    atomic_store(&r->missing, true);
    return mmap((void *)page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void forward_signal(int number, siginfo_t *info, void *context)
{
    if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
        previous_action.sa_sigaction(number, info, context);
    } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
        previous_action.sa_handler(number);
    } else {
        signal(number, SIG_DFL); /* the faulting instruction runs again and ends the program */
        if (info->si_code <= 0)
            raise(number);
    }
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (struct bus_range *r = info->si_code > 0 ? atomic_load(&ranges) : NULL; r; r = r->next)
        if (at >= atomic_load(&r->begin) && at < atomic_load(&r->end) && map_zeros(r, at)) {
            errno = error;
            return;
        }
    forward_signal(number, info, context);
    errno = error;
}

int bus_errors_handle(struct fail *f)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (atomic_flag_test_and_set(&is_installed))
        return QOBS_OK;
    sigemptyset(&action.sa_mask);
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (sigaction(SIGBUS, &action, &previous_action) != 0)
        return SYSTEM_FAILURE(f, "cannot handle bus errors: %s", strerror(errno));
    atomic_store(&is_handled, true);
    return QOBS_OK;
}

/* ---- Copies ------------------------------------------------------------------------------------------------------ */

bool bus_errors_are_handled(void) { return atomic_load(&is_handled); }

bool bus_errors_copy(void *out, const void *from, size_t size)
{
#ifdef __linux__
    char *to = out;
    uintptr_t at = (uintptr_t)from;
    for (size_t left = bus_errors_are_handled() ? 0 : size; left > 0;) {
        const struct iovec local = {to + (size - left), left}, remote = {(void *)(at + (size - left)), left};
        const ssize_t done = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (done < 0 && errno == EFAULT) /* a page behind the end of the file */
            return false;
        if (done <= 0) /* some sandboxes lack the call or forbid it */
            break;
        left -= (size_t)done;
        if (left == 0)
            return true;
    }
#endif
    memcpy(out, from, size);
    return true;
}

/* ---- Ranges ------------------------------------------------------------------------------------------------------ */

/* Returns a range that is reserved for the caller; NULL: no memory. */
static struct bus_range *reserve(void)
{
    for (struct bus_range *r = atomic_load(&ranges); r; r = r->next) {
        uintptr_t unused = 0;
        if (atomic_compare_exchange_strong(&r->begin, &unused, RESERVED))
            return r;
    }
    struct bus_range *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    atomic_store(&r->begin, RESERVED);
    r->next = atomic_load(&ranges);
    while (!atomic_compare_exchange_weak(&ranges, &r->next, r))
        continue;
    return r;
}

bool bus_errors_add(struct bus_range **range, const void *data, size_t size)
{
    *range = NULL;
    if (!atomic_load(&is_handled))
        return true;
    struct bus_range *r = *range = reserve();
    if (!r)
        return false;
    atomic_store(&r->missing, false);
    atomic_store(&r->end, (uintptr_t)data + size);
    atomic_store(&r->begin, (uintptr_t)data);
    return true;
}

bool bus_errors_found(const struct bus_range *range) { return range && atomic_load(&range->missing); }

void bus_errors_remove(struct bus_range *range)
{
    if (!range)
        return;
    atomic_store(&range->end, 0);
    atomic_store(&range->begin, 0);
}
