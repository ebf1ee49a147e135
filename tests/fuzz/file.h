/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* An input as a file in memory, for readers that map files. */
#ifndef QOBS_FUZZ_FILE_H
#define QOBS_FUZZ_FILE_H

#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "files/mapped.h"

/* Puts data into the file that path names from now on: /proc/self/fd/NUMBER, of that file descriptor. */
static inline void file_fill(int number, const uint8_t *data, size_t size)
{
    if (fcntl(number, F_GETFD) < 0) {
        char path[] = "/dev/shm/qobs-fuzz-XXXXXX";
        const int made = mkstemp(path);
        must(made >= 0);
        unlink(path);
        must(dup2(made, number) == number);
        close(made);
    }
    must(ftruncate(number, 0) == 0);
    must(pwrite(number, data, size, 0) == (ssize_t)size);
}

/* Maps it; what a page has behind its end may then not be touched, and munmap ends that. */
static inline void file_map(struct mapped *map, int number)
{
    char path[32];
    struct fail f;
    snprintf(path, sizeof path, "/proc/self/fd/%d", number);
    if (mapped_open(map, path, &f) != 0)
        finding("%s", f.message);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (map->size + page - 1) / page * page;
    ASAN_POISON_MEMORY_REGION(map->data + map->size, map->size > 0 ? whole - map->size : 0);
}

/* Reads every byte of [data, data + size), which a sanitizer watches. */
static inline unsigned touch(const unsigned char *data, uint64_t size)
{
    unsigned sum = 0;
    for (uint64_t i = 0; i < size; i++)
        sum = sum * 31 + data[i];
    return sum;
}

extern volatile unsigned touched; /* so that reading is not optimised away */

#endif
