/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The kernel floor: the signatures every instruction set implements and the table that carries them.
 *
 * Contract of every kernel
 *  - any byte alignment, any length including 0; nothing outside the described elements is read;
 *  - no allocation, no errors, no globals, no threads;
 *  - results merge into what the caller passes in, so splitting and streaming need no extra code;
 *  - the same bits on every instruction set. */
#ifndef QOBS_KERNELS_H
#define QOBS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "number/quantizer.h"

/* Elements that are not finite; kernels add to what is there. */
struct qobs_nonfinite {
    uint64_t nan;
    uint64_t inf;
};

/* Row form: `runs` runs of `length` contiguous elements, the next run starting `run_stride` bytes after the one before.
 * Run i merges into min[i * out_stride] and max[i * out_stride], which have the dtype of x and count in elements; the
 * identities are +infinity and -infinity. NaN is skipped and counted, infinities take part and are counted. A result that
 * is zero is +0. out_stride 0 merges every run into one pair. */
#define QOBS_MINMAX_ROWS(name)                                                                                        \
    void name(const void *x, ptrdiff_t run_stride, size_t runs, size_t length, void *min, void *max,                 \
              ptrdiff_t out_stride, struct qobs_nonfinite *nonfinite)

/* Band form: `bands` bands of `rows` rows each, all of them `row_stride` bytes apart, and in a row `runs` runs that follow each other without
 * a gap. Run i of every row of band b merges into min[b * runs + i] and max likewise. Everything else as in the row form. */
#define QOBS_MINMAX_BANDS(name)                                                                                       \
    void name(const void *x, ptrdiff_t row_stride, size_t bands, size_t rows, size_t runs, size_t length, void *min, \
              void *max, struct qobs_nonfinite *nonfinite)

/* Column form: `rows` rows of `columns` contiguous elements, `row_stride` bytes apart; column j merges into min[j] and
 * max[j]. Everything else as in the row form. */
#define QOBS_MINMAX_COLUMNS(name)                                                                                     \
    void name(const void *x, ptrdiff_t row_stride, size_t rows, size_t columns, void *min, void *max,                \
              struct qobs_nonfinite *nonfinite)

/* Indexed form: `rows` rows of `columns` contiguous elements; column j belongs to group[j] < groups, and row r merges into
 * min[r * groups + group[j]] and max likewise. scratch: QOBS_INDEXED_SCRATCH(groups) bytes at any address. Everything else as in
 * the row form; groups without a column, and those of no row, stay as they are. */
#define QOBS_MINMAX_INDEXED(name)                                                                                     \
    void name(const void *x, ptrdiff_t row_stride, size_t rows, size_t columns, const uint32_t *group, size_t groups, \
              void *min, void *max, void *scratch, struct qobs_nonfinite *nonfinite)
#define QOBS_INDEXED_SCRATCH(groups) (((groups) + 64) * 128) /* two of the largest vectors a group, rounded up to their lanes */

/* The largest magnitude: as min/max in row and in column form, run i merging into absmax[i * out_stride] and column j into
 * absmax[j], which hold no sign; the identity is +0. */
#define QOBS_ABSMAX_ROWS(name)                                                                                        \
    void name(const void *x, ptrdiff_t run_stride, size_t runs, size_t length, void *absmax, ptrdiff_t out_stride,   \
              struct qobs_nonfinite *nonfinite)
#define QOBS_ABSMAX_COLUMNS(name)                                                                                     \
    void name(const void *x, ptrdiff_t row_stride, size_t rows, size_t columns, void *absmax,                        \
              struct qobs_nonfinite *nonfinite)

/* One entry per qparam, in float, for F64 in double. There are two of the zero point because upstream converts it twice: to
 * the dtype of x where it is added, to that of scale where it is taken away. Both may be NULL in the row form: then there is
 * none, which adding -0 and taking away +0 is, too. */
struct qobs_qparams {
    const void *scale;
    const void *zero_point_add;
    const void *zero_point_sub;
};

/* Row form: `runs` runs of `length` contiguous elements, x_stride and out_stride bytes apart; run i has qparam
 * i * qparam_stride. Writes every element; out may be x, otherwise they must not overlap. NaN becomes the quiet NaN without
 * sign and payload, in torch's way `least`. */
#define QOBS_FAKE_QUANTIZE_ROWS(name)                                                                                 \
    void name(const struct qobs_quantizer *quantizer, const void *x, ptrdiff_t x_stride, void *out,                  \
              ptrdiff_t out_stride, size_t runs, size_t length, const struct qobs_qparams *qparams,                  \
              ptrdiff_t qparam_stride)

/* Column form: `rows` rows of `columns` contiguous elements; column j has qparam j. Everything else as in the row form. */
#define QOBS_FAKE_QUANTIZE_COLUMNS(name)                                                                              \
    void name(const struct qobs_quantizer *quantizer, const void *x, ptrdiff_t x_stride, void *out,                  \
              ptrdiff_t out_stride, size_t rows, size_t columns, const struct qobs_qparams *qparams)

/* How elements are counted: torch.histc's rule in f32. Made by qobs_binning_of (measure/binning.h). An element x from lo to
 * hi belongs to bin floor((x * scale - from) * bins / width), one rounding an operation, the last bin included where that is bins.
 * F64 is rounded to float first. */
struct qobs_binning {
    float lo, hi;     /* finite; elements outside [lo, hi] are not counted */
    float scale;      /* 1, or a smaller power of two with which (hi - lo) * bins does not overflow */
    float from;       /* lo * scale */
    float width;      /* hi * scale - from, above 0 */
    uint32_t bins;    /* 1 to QOBS_MOST_BINS */
    bool magnitude;   /* of |x| */
    bool skip_zeros;  /* zeros are not there: neither counted nor seen */
};

enum {
    QOBS_MOST_BINS = 1 << 24,  /* more would be no integers in f32 */
    QOBS_COUNTER_COPIES = 2    /* a kernel spreads its counts over that many arrays, as it likes */
};

/* From one of the arrays to the next, in counters. The low 12 bits of addresses, by which loads are matched with stores before
 * them, thus differ for equal bins. */
static inline size_t qobs_counter_stride(size_t bins)
{
    return (bins + 1023) / 1024 * 1024 + 80;
}

/* The extremes of the finite elements, in or out of range, of their magnitudes where those are counted, and how many elements
 * were not finite. A zero is +0; the identities are +infinity and -infinity. */
struct qobs_extrema {
    float min, max;
    struct qobs_nonfinite nonfinite;
};

/* Row form: `runs` runs of `length` contiguous elements, run_stride bytes apart, are added to `counters`, which are
 * QOBS_COUNTER_COPIES arrays of `bins`, qobs_counter_stride(bins) apart, and to `seen`. The sum of a bin's counters is its count; how it is spread is not
 * defined. The caller sees to it that no counter overflows. NaN and infinities are counted in `seen` only. */
#define QOBS_HISTOGRAM_ROWS(name)                                                                                     \
    void name(const struct qobs_binning *binning, const void *x, ptrdiff_t run_stride, size_t runs, size_t length,   \
              uint32_t *counters, struct qobs_extrema *seen)

/* Column form: `rows` rows of `columns` contiguous elements, row_stride bytes apart; adds the square of every element of
 * column j to sum[j], row after row. F64 is rounded to float first, so that squares are exact. */
#define QOBS_SQUARES_COLUMNS(name) void name(const void *x, ptrdiff_t row_stride, size_t rows, size_t columns, double *sum)

/* ---- Range search ------------------------------------------------------------------------------------------------------
 * Blocks of floats, aligned to 64 bytes and filled up with zeros to a multiple of QOBS_SEARCH_LANES, of magnitudes below 0.5. As many
 * qparams make a batch, of which arrays of candidates have one after the other: [candidate][QOBS_SEARCH_LANES]. */

enum { QOBS_SEARCH_LANES = 16, QOBS_SEARCH_FEW = 128, QOBS_SEARCH_MOST = 1024 };

enum qobs_norm_kind {
    QOBS_NORM_1,
    QOBS_NORM_2,
    QOBS_NORM_3,
    QOBS_NORM_TABLE, /* a polynomial in the mantissa times a table of the exponent */
    QOBS_NORM_POW    /* SLEEF's pow */
};

/* |e|^norm for |e| below 1; made by qobs_search_norm (search/norm.c). For TABLE of e times QOBS_NORM_UNIT, so that only the lower six
 * bits of its exponent are in use, and of minus its mantissa, which is what setting bits makes of any sign and exponent. */
#define QOBS_NORM_UNIT 0x1p-63f
struct qobs_error_norm {
    enum qobs_norm_kind kind;
    float value;
    float polynomial[5]; /* coefficients of (-m)^0 to (-m)^4; that of (-m)^5 is 1, its factor is in the table */
    float low[8], high[8]; /* a biased exponent e below 64 has low[e % 8] * high[e / 8]; below 32 that is 0 */
    float boost; /* POW: |e| is multiplied by this power of two first */
};

/* What an element may be quantized to: q = round(x * inverse + shift), limited, (q - shift) * scale. Integers: shift is the zero
 * point plus 1.5 * 2^23. Candidate c is at c * step; arrays are aligned to 64 bytes. */
struct qobs_search_candidates {
    const float *scale, *inverse, *shift;
    size_t step;
};

/* Memory that is wanted soon, from == end: none. It is fetched beside the work, as much of it as that takes without being held up. */
struct qobs_prefetch {
    const unsigned char *from, *end;
};

/* Sums of |q - x|^norm * weight over n <= QOBS_SEARCH_MOST elements (without the padding) of one qparam for `count` candidates, a
 * multiple of 4, into sum; in units that the norm's maker knows. weight: as x, or NULL. Whatever count is, the sum of a candidate is the
 * same. quantizer: integers, 0 among them, or a float format whose limits differ in sign only; none that needs double. with_shift: a
 * shift may be other than that of a zero point of 0. Weights are wanted where a shift is none of the numbers quantized to: that of
 * padding is then 0. */
#define QOBS_SEARCH_ERRORS(name)                                                                                      \
    void name(const struct qobs_quantizer *quantizer, const struct qobs_error_norm *norm, bool with_shift, const float *x, \
              const float *weight, size_t n, const struct qobs_search_candidates *candidates, size_t count,                \
              struct qobs_prefetch prefetch, float *sum)

/* The same for a batch of qparams with n <= QOBS_SEARCH_FEW elements each, or zeros, `row` apart; sums of a qparam are not those that
 * QOBS_SEARCH_ERRORS makes, but do not depend on the others. Candidates' step is QOBS_SEARCH_LANES. */
#define QOBS_SEARCH_BATCH(name)                                                                                       \
    void name(const struct qobs_quantizer *quantizer, const struct qobs_error_norm *norm, bool with_shift, const float *x, \
              const float *weight, size_t row, size_t n, const struct qobs_search_candidates *candidates, size_t count,    \
              struct qobs_prefetch prefetch, float *sum)

/* Of each qparam of a batch the first of n steps with the least sum, if that is less than `least`, and that sum; else -1 and `least`.
 * NaN is not. Sets in `improved` a bit for each step whose sum is less than `least` and every sum before, for any qparam. */
#define QOBS_SEARCH_IMPROVED(name)                                                                                    \
    void name(const float *sum, size_t n, const float *quant_min, int32_t *step, float *best, uint64_t *improved)

/* How scale and zero point come of a range: compressed-tensors' formula where it needs nothing but the dtype of the range. */
struct qobs_shrinking {
    bool integers, symmetric, mx;
    float quant_min, quant_max; /* of quantized numbers */
    int mx_offset;         /* exponent of the greatest, for MX */
    float eps;             /* stands for a scale of 0 */
    float floor;           /* the least scale, or 0 */
    float least_p;         /* of all p there are */
};

/* Candidates for a batch of ranges from min to max, numbers of the dtype, times p[i] for i < n, and elements times `factor`, powers of
 * two: scale, inverse and shift. inverse_p: 1 / p, or NULL; it saves divisions. Not for F64; MX not for F16. */
#define QOBS_SEARCH_SHRINK(name)                                                                                      \
    void name(const struct qobs_shrinking *how, const float *min, const float *max, const float *factor, const float *p,  \
              const float *inverse_p, size_t n, float *scale, float *inverse, float *shift)

/* n contiguous elements times `factor`, a power of two, as floats; with finite_only 0 for what is not finite. */
#define QOBS_SEARCH_LOAD(name) void name(const void *x, size_t n, double factor, bool finite_only, float *out)

typedef QOBS_MINMAX_ROWS(qobs_minmax_rows_fn);
typedef QOBS_MINMAX_BANDS(qobs_minmax_bands_fn);
typedef QOBS_MINMAX_COLUMNS(qobs_minmax_columns_fn);
typedef QOBS_MINMAX_INDEXED(qobs_minmax_indexed_fn);
typedef QOBS_ABSMAX_ROWS(qobs_absmax_rows_fn);
typedef QOBS_ABSMAX_COLUMNS(qobs_absmax_columns_fn);
typedef QOBS_FAKE_QUANTIZE_ROWS(qobs_fake_quantize_rows_fn);
typedef QOBS_FAKE_QUANTIZE_COLUMNS(qobs_fake_quantize_columns_fn);
typedef QOBS_HISTOGRAM_ROWS(qobs_histogram_rows_fn);
typedef QOBS_SQUARES_COLUMNS(qobs_squares_columns_fn);
typedef QOBS_SEARCH_ERRORS(qobs_search_errors_fn);
typedef QOBS_SEARCH_BATCH(qobs_search_batch_fn);
typedef QOBS_SEARCH_IMPROVED(qobs_search_improved_fn);
typedef QOBS_SEARCH_LOAD(qobs_search_load_fn);
typedef QOBS_SEARCH_SHRINK(qobs_search_shrink_fn);

struct qobs_kernels {
    const char *isa;     /* "scalar", "avx2", "avx512", "neon" */
    const char *summary; /* the extensions it needs, for people */
    bool (*usable)(void); /* does this CPU have them, and does the operating system save their registers? */
    qobs_minmax_rows_fn *minmax_rows[QOBS_KERNEL_DTYPES];
    qobs_minmax_bands_fn *minmax_bands[QOBS_KERNEL_DTYPES];
    qobs_minmax_columns_fn *minmax_columns[QOBS_KERNEL_DTYPES];
    qobs_minmax_indexed_fn *minmax_indexed[QOBS_KERNEL_DTYPES];
    qobs_absmax_rows_fn *absmax_rows[QOBS_KERNEL_DTYPES];
    qobs_absmax_columns_fn *absmax_columns[QOBS_KERNEL_DTYPES];
    qobs_fake_quantize_rows_fn *fake_quantize_rows[QOBS_KERNEL_DTYPES];
    qobs_fake_quantize_columns_fn *fake_quantize_columns[QOBS_KERNEL_DTYPES];
    qobs_histogram_rows_fn *histogram_rows[QOBS_KERNEL_DTYPES];
    qobs_squares_columns_fn *squares_columns[QOBS_KERNEL_DTYPES];
    qobs_search_errors_fn *search_errors;
    qobs_search_batch_fn *search_batch;
    qobs_search_improved_fn *search_improved;
    qobs_search_load_fn *search_load[QOBS_KERNEL_DTYPES];
    qobs_search_shrink_fn *search_shrink[QOBS_KERNEL_F64]; /* of the dtypes before it */
};

/* One table per instruction set, defined in src/<isa>/isa.c and listed in src/dispatch.c. */
extern const struct qobs_kernels qobs_kernels_scalar;
extern const struct qobs_kernels qobs_kernels_avx2;
extern const struct qobs_kernels qobs_kernels_avx512;
extern const struct qobs_kernels qobs_kernels_neon;

#define QOBS_DECLARE_KERNELS(isa)                                                                                     \
    QOBS_MINMAX_ROWS(qobs_minmax_rows_f32_##isa);                                                                     \
    QOBS_MINMAX_ROWS(qobs_minmax_rows_bf16_##isa);                                                                    \
    QOBS_MINMAX_ROWS(qobs_minmax_rows_f16_##isa);                                                                     \
    QOBS_MINMAX_ROWS(qobs_minmax_rows_f64_##isa);                                                                     \
    QOBS_MINMAX_BANDS(qobs_minmax_bands_f32_##isa);                                                                   \
    QOBS_MINMAX_BANDS(qobs_minmax_bands_bf16_##isa);                                                                  \
    QOBS_MINMAX_BANDS(qobs_minmax_bands_f16_##isa);                                                                   \
    QOBS_MINMAX_BANDS(qobs_minmax_bands_f64_##isa);                                                                   \
    QOBS_MINMAX_COLUMNS(qobs_minmax_columns_f32_##isa);                                                               \
    QOBS_MINMAX_COLUMNS(qobs_minmax_columns_bf16_##isa);                                                              \
    QOBS_MINMAX_COLUMNS(qobs_minmax_columns_f16_##isa);                                                               \
    QOBS_MINMAX_COLUMNS(qobs_minmax_columns_f64_##isa);                                                               \
    QOBS_MINMAX_INDEXED(qobs_minmax_indexed_f32_##isa);                                                               \
    QOBS_MINMAX_INDEXED(qobs_minmax_indexed_bf16_##isa);                                                              \
    QOBS_MINMAX_INDEXED(qobs_minmax_indexed_f16_##isa);                                                               \
    QOBS_MINMAX_INDEXED(qobs_minmax_indexed_f64_##isa);                                                               \
    QOBS_ABSMAX_ROWS(qobs_absmax_rows_f32_##isa);                                                                     \
    QOBS_ABSMAX_ROWS(qobs_absmax_rows_bf16_##isa);                                                                    \
    QOBS_ABSMAX_ROWS(qobs_absmax_rows_f16_##isa);                                                                     \
    QOBS_ABSMAX_ROWS(qobs_absmax_rows_f64_##isa);                                                                     \
    QOBS_ABSMAX_COLUMNS(qobs_absmax_columns_f32_##isa);                                                               \
    QOBS_ABSMAX_COLUMNS(qobs_absmax_columns_bf16_##isa);                                                              \
    QOBS_ABSMAX_COLUMNS(qobs_absmax_columns_f16_##isa);                                                               \
    QOBS_ABSMAX_COLUMNS(qobs_absmax_columns_f64_##isa);                                                               \
    QOBS_FAKE_QUANTIZE_ROWS(qobs_fake_quantize_rows_f32_##isa);                                                       \
    QOBS_FAKE_QUANTIZE_ROWS(qobs_fake_quantize_rows_bf16_##isa);                                                      \
    QOBS_FAKE_QUANTIZE_ROWS(qobs_fake_quantize_rows_f16_##isa);                                                       \
    QOBS_FAKE_QUANTIZE_ROWS(qobs_fake_quantize_rows_f64_##isa);                                                       \
    QOBS_FAKE_QUANTIZE_COLUMNS(qobs_fake_quantize_columns_f32_##isa);                                                 \
    QOBS_FAKE_QUANTIZE_COLUMNS(qobs_fake_quantize_columns_bf16_##isa);                                                \
    QOBS_FAKE_QUANTIZE_COLUMNS(qobs_fake_quantize_columns_f16_##isa);                                                 \
    QOBS_FAKE_QUANTIZE_COLUMNS(qobs_fake_quantize_columns_f64_##isa);                                                 \
    QOBS_HISTOGRAM_ROWS(qobs_histogram_rows_f32_##isa);                                                               \
    QOBS_HISTOGRAM_ROWS(qobs_histogram_rows_bf16_##isa);                                                              \
    QOBS_HISTOGRAM_ROWS(qobs_histogram_rows_f16_##isa);                                                               \
    QOBS_HISTOGRAM_ROWS(qobs_histogram_rows_f64_##isa);                                                               \
    QOBS_SQUARES_COLUMNS(qobs_squares_columns_f32_##isa);                                                             \
    QOBS_SQUARES_COLUMNS(qobs_squares_columns_bf16_##isa);                                                            \
    QOBS_SQUARES_COLUMNS(qobs_squares_columns_f16_##isa);                                                             \
    QOBS_SQUARES_COLUMNS(qobs_squares_columns_f64_##isa);                                                             \
    QOBS_SEARCH_ERRORS(qobs_search_errors_##isa);                                                                     \
    QOBS_SEARCH_BATCH(qobs_search_batch_##isa);                                                                           \
    QOBS_SEARCH_IMPROVED(qobs_search_improved_##isa);                                                                 \
    QOBS_SEARCH_LOAD(qobs_search_load_f32_##isa);                                                                     \
    QOBS_SEARCH_LOAD(qobs_search_load_bf16_##isa);                                                                    \
    QOBS_SEARCH_LOAD(qobs_search_load_f16_##isa);                                                                     \
    QOBS_SEARCH_LOAD(qobs_search_load_f64_##isa);                                                                     \
    QOBS_SEARCH_SHRINK(qobs_search_shrink_f32_##isa);                                                                 \
    QOBS_SEARCH_SHRINK(qobs_search_shrink_bf16_##isa);                                                                \
    QOBS_SEARCH_SHRINK(qobs_search_shrink_f16_##isa)

QOBS_DECLARE_KERNELS(scalar);
QOBS_DECLARE_KERNELS(avx2);
QOBS_DECLARE_KERNELS(avx512);
QOBS_DECLARE_KERNELS(neon);

#endif
