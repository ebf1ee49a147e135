/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A table of errors in upstream's own arithmetic (struct native_rows), for qparams that have the same candidates. BF16
 * has so few numbers that a table costs less than the errors of some thousand elements. */
#pragma once

#include "range/search_errors.h"

/* The largest number of candidates, and of floats in a row. */
enum { NATIVE_ROWS_CANDIDATES = 128 };

/* How much a table may hold, and its memory. */
struct row_capacity {
    size_t rows;   /* a multiple of 128; 0: the search has no tables */
    size_t stride; /* floats of a row */
    float *memory; /* aligned to 64 bytes */
};

/* The capacity for tables of a search with that many candidates, without memory. min_p: the smallest factor of a
 * range. Integers without zero points and a norm with a table have tables, others have none. */
struct row_capacity qobs_native_rows_capacity(const struct native_search *native, const struct quantizer *quantizer,
                                              size_t candidates, float min_p);

/* Fills a table for elements up to the BF16 number with the bits `amax`. Returns false if it does not fit, or if a
 * scale is so small or large that quotients may overflow. */
bool qobs_native_rows_fill(const struct kernel_table *kernels, const struct native_search *native,
                           const struct quantizer *quantizer, const struct search_candidates *candidates, size_t count,
                           uint32_t amax, const struct row_capacity *capacity, struct native_rows *rows);
