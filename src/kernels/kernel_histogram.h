/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Kernels that count elements in bins by torch.histc's rule in f32. */
#pragma once

#include "kernels/slot.h"

/* The bins; made by qobs_binning_set (histogram/histogram.h). An element x from lo to hi belongs to bin
 * floor((x * scale - from) * bins / width), one rounding an operation; the result `bins` means the last bin. F64 is
 * rounded to float first. */
struct binning {
    float lo, hi;    /* finite; elements outside [lo, hi] are not counted */
    float scale;     /* 1, or a smaller power of two with which (hi - lo) * bins does not overflow */
    float from;      /* lo * scale */
    float width;     /* hi * scale - from, above 0 */
    uint32_t bins;   /* 1 to QOBS_MOST_BINS */
    bool magnitude;  /* of |x| */
    bool skip_zeros; /* zeros are ignored: neither counted nor part of the extrema */
};

/* The bin of x, which lies in the range. */
static inline uint32_t qobs_bin_index(const struct binning *b, float x)
{
    const uint32_t k = (uint32_t)((x * b->scale - b->from) * (float)b->bins / b->width);
    return k < b->bins ? k : b->bins - 1;
}

enum {
    QOBS_MOST_BINS = 1 << 24, /* larger numbers of bins are not all integers in f32 */
    QOBS_COUNTER_COPIES = 2   /* a kernel spreads its counts over this many arrays */
};

/* Counters from one array to the next. The low 12 bits of addresses differ for equal bins: by these bits processors
 * match a load with earlier stores. */
static inline size_t qobs_counter_stride(size_t bins) { return (bins + 1023) / 1024 * 1024 + 80; }

/* Extrema of the finite elements, in or out of range, or of their magnitudes if those are counted; counts of the
 * others. A zero is +0; the identities are +infinity and -infinity. */
struct extrema {
    float min, max;
    struct nonfinite_count nonfinite;
};

/* Row form: `runs` runs of `length` contiguous elements, run_stride bytes apart, are added to `counters` and `extrema`.
 * counters: QOBS_COUNTER_COPIES arrays of `bins` counters, qobs_counter_stride(bins) apart. A bin's count is the sum of
 * its counters; the spread is not defined. The caller prevents overflow. NaN and infinities appear in `extrema` only.
 */
#define QOBS_HISTOGRAM_ROWS(name)                                                                                      \
    void name(const struct binning *binning, const void *x, ptrdiff_t run_stride, size_t runs, size_t length,          \
              uint32_t *counters, struct extrema *extrema)

#define QOBS_HISTOGRAM_SLOTS(EACH, with) EACH(SCALAR_F64, histogram_rows, QOBS_HISTOGRAM_ROWS, with)

QOBS_HISTOGRAM_SLOTS(QOBS_SLOT_TYPE, )
#define QOBS_DECLARE_HISTOGRAM(isa) QOBS_HISTOGRAM_SLOTS(QOBS_DECLARE_SLOT, isa)
QOBS_ISAS(QOBS_DECLARE_HISTOGRAM)
