/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Qparams in order of the largest magnitude of their ranges. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The amax of ranges that are not finite. */
enum { AMAX_NONFINITE = 0x7f80 };

/* The bits of the larger magnitude of a BF16 range, or AMAX_NONFINITE. */
uint32_t qobs_amax_bits(const unsigned char *min, const unsigned char *max, size_t qparam);

/* Memory for the order of n qparams, in elements; n is below 2^32. */
static inline size_t amax_order_size(size_t n) { return n + AMAX_NONFINITE + 1; }

/* Writes qparams 0 to n - 1 to `order`, those with the same amax one after the other. Returns how many of them share
 * their amax with at least `enough` qparams. */
size_t qobs_amax_order(const unsigned char *min, const unsigned char *max, size_t n, size_t enough, uint32_t *order);

/* How many of n qparams have that amax, after qobs_amax_order. */
size_t qobs_amax_count(const uint32_t *order, size_t n, uint32_t amax);
