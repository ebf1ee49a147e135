/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Tests of process_vm_readv, which emulators and some sandboxes lack. Included after <cmocka.h>, with _GNU_SOURCE. */
#ifndef QOBS_SYSTEM_COPIES_H
#define QOBS_SYSTEM_COPIES_H

#include <stdbool.h>
#include <sys/uio.h>
#include <unistd.h>

/* Returns true if the system copies memory of this process. */
static inline bool system_copies(void)
{
#ifdef __linux__
    char from = 1, to = 0;
    const struct iovec local = {&to, 1}, remote = {&from, 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
#else
    return false;
#endif
}

#define SKIP_WITHOUT_COPIES()                                                                                          \
    do {                                                                                                               \
        if (!system_copies()) {                                                                                        \
            print_message("skipped: this system does not copy memory of a process\n");                                 \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)

#endif
