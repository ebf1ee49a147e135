/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Shared by the fuzz targets: reading choices from libFuzzer's bytes, and ending the process where something does not
 * hold. */
#ifndef QOBS_FUZZ_H
#define QOBS_FUZZ_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The bytes of one input; where they end zeros follow. */
struct bytes {
    const uint8_t *at;
    size_t left;
};

static inline uint64_t take(struct bytes *b, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size && b->left > 0; i++, b->left--)
        value |= (uint64_t)*b->at++ << 8 * i;
    return value;
}

/* From 0 to n - 1. */
static inline size_t take_below(struct bytes *b, size_t n)
{
    return (size_t)take(b, n <= 256 ? 1 : n <= 65536 ? 2 : 4) % n;
}

static inline float take_float(struct bytes *b)
{
    const uint32_t bits = (uint32_t)take(b, 4);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double take_double(struct bytes *b)
{
    const uint64_t bits = take(b, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Says what does not hold, and ends the process, which libFuzzer reports with the input. */
static inline void __attribute__((noreturn, format(printf, 1, 2))) finding(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "FINDING: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

#define must(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            finding("%s:%d: %s does not hold", __FILE__, __LINE__, #condition);                                        \
    } while (0)

/* malloc that cannot fail; room for 1 byte at least. */
static inline void *workspace(size_t size)
{
    void *memory = malloc(size ? size : 1);
    if (!memory)
        finding("no memory for %zu bytes", size);
    return memory;
}

#endif
