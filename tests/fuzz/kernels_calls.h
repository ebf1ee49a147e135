/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels of every usable instruction set against the scalar ones, bit for bit: one function for each kind of kernel,
 * which reads a call out of an input and makes it on every table. Elements end or begin at memory without access. */
#ifndef QOBS_FUZZ_KERNELS_CALLS_H
#define QOBS_FUZZ_KERNELS_CALLS_H

#include "check/memory.h"
#include "check/values.h"
#include "kernels/dispatch.h"
#include "fuzz.h"

enum { MOST_BYTES = 1 << 18 };

extern struct arena elements, first_output, second_output; /* of MOST_BYTES and more each */

/* Runs or rows of elements. */
struct matrix {
    enum kernel_dtype index;
    const struct dtype *dtype; /* &dtypes[index] */
    const unsigned char *x;    /* the first run */
    ptrdiff_t stride;          /* bytes */
    size_t count, length;
};

void take_matrix(struct bytes *b, struct matrix *m, size_t most_length);

/* Usable tables but the scalar one, in turn; NULL: no more. */
const struct kernel_table *next_table(size_t *i);

/* Compares bits; any NaN equals any other. */
void same_floats(const struct kernel_table *table, const char *what, const float *got, const float *expected, size_t n);

void fuzz_minmax(struct bytes *b);
void fuzz_absmax(struct bytes *b);
void fuzz_row_panels(struct bytes *b);
void fuzz_indexed(struct bytes *b);
void fuzz_histogram(struct bytes *b);
void fuzz_squares(struct bytes *b);
void fuzz_fake_quantize(struct bytes *b);
void fuzz_search_errors(struct bytes *b);
void fuzz_search_improved(struct bytes *b);
void fuzz_search_load(struct bytes *b);
void fuzz_search_shrink(struct bytes *b);
void fuzz_superblock(struct bytes *b);

#endif
