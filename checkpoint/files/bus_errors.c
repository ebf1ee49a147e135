/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Ranges are a lock-free list, because the handler reads them in any thread at any moment. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS, SA_ONSTACK, mremap, process_vm_readv */
#endif

#include "files/bus_errors.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "files/deferred.h"
#include "files/text.h"

/* Addresses of whole pages. */
struct pages {
    uintptr_t begin, end;
};

/* It stays allocated and serves for another map later. */
struct bus_range {
    struct bus_range *next;
    atomic_uintptr_t begin, end; /* addresses; begin is 0: unused, RESERVED: not filled in yet */
    atomic_bool missing;         /* some pages have been replaced with zeros */
    const void *source;          /* the same bytes in a map that no thread reads in place; NULL: nothing is held */
    pthread_mutex_t lock;        /* for `held` */
    struct pages *held;
    size_t held_count;
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
    pthread_mutex_init(&r->lock, NULL);
    atomic_store(&r->begin, RESERVED);
    r->next = atomic_load(&ranges);
    while (!atomic_compare_exchange_weak(&ranges, &r->next, r))
        continue;
    return r;
}

bool bus_errors_add(struct bus_range **range, const void *data, size_t size, const void *source)
{
    struct bus_range *r = *range = reserve();
    if (!r)
        return false;
    r->source = source;
    atomic_store(&r->missing, false);
    atomic_store(&r->end, (uintptr_t)data + size);
    atomic_store(&r->begin, (uintptr_t)data);
    return true;
}

bool bus_errors_found(const struct bus_range *range) { return range && atomic_load(&range->missing); }

/* Returns the range of an address; NULL: there is none. */
static struct bus_range *range_at(uintptr_t at)
{
    struct bus_range *r = atomic_load(&ranges);
    while (r && (at < atomic_load(&r->begin) || at >= atomic_load(&r->end)))
        r = r->next;
    return r;
}

void bus_errors_remove(struct bus_range *range)
{
    if (!range)
        return;
    free(range->held);
    range->held = NULL;
    range->held_count = 0;
    atomic_store(&range->end, 0);
    atomic_store(&range->begin, 0);
}

/* ---- Copies ------------------------------------------------------------------------------------------------------ */

bool bus_errors_are_handled(void) { return atomic_load(&is_handled); }

/* How far the system has copied; a page behind the end of the file is missing. */
enum copied { COPIED, MISSING, REFUSED };

static enum copied copy_by_system(void *out, const void *from, size_t size)
{
#ifdef __linux__
    for (size_t done = 0; done < size;) {
        const struct iovec local = {(char *)out + done, size - done};
        const struct iovec remote = {(void *)((uintptr_t)from + done), size - done};
        const ssize_t step = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (step < 0 && errno == EFAULT) {
            memset((char *)out + done, 0, size - done);
            return MISSING;
        }
        if (step <= 0) /* some sandboxes lack the call or forbid it */
            return REFUSED;
        done += (size_t)step;
    }
    return COPIED;
#else
    (void)out, (void)from, (void)size;
    return REFUSED;
#endif
}

bool bus_errors_copy(void *out, const void *from, size_t size)
{
    const bool held = deferred_hold(from, size, READ_OFTEN, NULL) == QOBS_OK;
    const enum copied copied = bus_errors_are_handled() ? REFUSED : copy_by_system(out, from, size);
    struct bus_range *r = copied == MISSING ? range_at((uintptr_t)from) : NULL;
    if (r)
        atomic_store(&r->missing, true);
    if (copied == REFUSED)
        memcpy(out, from, size);
    if (held)
        deferred_release(from, size);
    return held && copied != MISSING;
}

/* ---- Bytes that are held ----------------------------------------------------------------------------------------- */

/* Returns the pages of bytes. */
static struct pages pages_of(const void *at, size_t size)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)at;
    return (struct pages){begin & ~(page - 1), (begin + size + page - 1) & ~(page - 1)};
}

/* Takes pages from the beginning of *left that are all held, or none of them. Returns true if they are not held. */
static bool next_pages(const struct bus_range *r, struct pages *left, struct pages *next)
{
    bool held = false;
    *next = *left;
    for (size_t i = 0; i < r->held_count; i++) {
        const struct pages h = r->held[i];
        if (h.begin <= left->begin && h.end > left->begin) {
            next->end = held && next->end > h.end ? next->end : h.end;
            held = true;
        } else if (!held && h.begin > left->begin && h.begin < next->end) {
            next->end = h.begin;
        }
    }
    next->end = next->end < left->end ? next->end : left->end;
    left->begin = next->end;
    return !held;
}

#ifdef __linux__
static const void *source_of(const struct bus_range *r, uintptr_t at)
{
    return (const char *)r->source + (at - atomic_load(&r->begin));
}

/* Puts a copy in the place of pages. Other threads find the one or the other. Returns false if there is no memory. */
static bool put_copy(struct bus_range *r, struct pages p)
{
    const uintptr_t end = atomic_load(&r->end) < p.end ? atomic_load(&r->end) : p.end;
    const size_t size = p.end - p.begin;
    void *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return false;
    const enum copied copied = copy_by_system(copy, source_of(r, p.begin), end - p.begin);
    if (copied == MISSING)
        atomic_store(&r->missing, true);
    if (copied != REFUSED && mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)p.begin) != MAP_FAILED)
        return true;
    munmap(copy, size);
    return copied == REFUSED;
}

/* Puts the pages of the file back: a length of 0 makes another map of them. If it fails, the copy stays. */
static void put_back(const struct bus_range *r, struct pages p)
{
    const void *source = source_of(r, p.begin);
    (void)!mremap((void *)(uintptr_t)source, 0, p.end - p.begin, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)p.begin);
}
#else
static bool put_copy(struct bus_range *r, struct pages p) { return (void)r, (void)p, true; }
static void put_back(const struct bus_range *r, struct pages p) { (void)r, (void)p; }
#endif

bool bus_errors_hold(const void *at, size_t size)
{
    struct bus_range *r = bus_errors_are_handled() || size == 0 ? NULL : range_at((uintptr_t)at);
    const struct pages whole = pages_of(at, size);
    bool good = true;
    if (!r || !r->source)
        return true;
    pthread_mutex_lock(&r->lock);
    for (struct pages left = whole, next; good && left.begin < left.end;)
        good = !next_pages(r, &left, &next) || put_copy(r, next);
    good = good && list_append(&r->held, &r->held_count, sizeof whole, &whole);
    pthread_mutex_unlock(&r->lock);
    return good;
}

void bus_errors_release(const void *at, size_t size)
{
    struct bus_range *r = size == 0 ? NULL : range_at((uintptr_t)at);
    const struct pages whole = pages_of(at, size);
    if (!r || !r->source)
        return;
    pthread_mutex_lock(&r->lock);
    for (size_t i = r->held_count; i > 0; i--)
        if (r->held[i - 1].begin == whole.begin && r->held[i - 1].end == whole.end) {
            r->held[i - 1] = r->held[--r->held_count];
            for (struct pages left = whole, next; left.begin < left.end;)
                if (next_pages(r, &left, &next))
                    put_back(r, next);
            break;
        }
    pthread_mutex_unlock(&r->lock);
}
