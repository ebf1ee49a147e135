/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantize, dequantize and fake-quantize: quantizes every element of a tensor with its qparam to a code, a code to the
 * number that it stands for, or does both. */
#pragma once

#include "kernels/kernels.h"
#include "number/format.h"
#include "plan/loops.h"
#include "quantize/qparam_view.h"

/* Codes have one byte. */
enum quantize_direction { FAKE_QUANTIZE, TO_CODES, FROM_CODES };

/* The kernels of fake-quantize by an amax in place of a scale. */
struct fake_quantize_by_amax {
    qobs_fake_quantize_rows_fn *rows[QOBS_KERNEL_DTYPES];
    qobs_fake_quantize_columns_fn *columns[QOBS_KERNEL_DTYPES];
};

/* Scale and zero point of every qparam of a plan, in the order of the flattened qparam_shape. The arithmetic is
 * upstream's: that of the dtypes of x and scale together. If x is BF16 or F16 and scale, or scale / global_scale, is
 * float, it is float. If x is F64 and scale is float, it is double up to the rounding and float afterwards. */
struct fake_quantize {
    const struct runtime *runtime;
    const struct kernel_table *kernels;
    struct quantizer quantizer; /* all but in_float */
    const void *scale;
    qobs_dtype scale_dtype; /* of x, or F32 */
    const void *zero_point; /* NULL: none; a zero point of 0 would make +0 of -0 */
    qobs_dtype zero_point_dtype;
    bool positive_zero;        /* without zero points: -0 becomes +0, as in compressed-tensors' e2m1 */
    const float *global_scale; /* every scale is divided by it; NULL: there is none */
    const struct fake_quantize_by_amax *by_amax; /* in place of the kernels; NULL: they are used */
    enum quantize_direction direction;
    enum code_kind kind;  /* of the codes */
    bool packed;          /* TO_CODES: the codes have 4 bits, and two are in a byte, as kernel pack_pairs has them */
    unsigned pack_offset; /* is added to packed codes */
    double *sum;          /* TO_CODES: two sums to add to, as kernel_quantize.h has them; NULL: none */
};

/* Reads x, laid out as the value of plan, and writes out, laid out as the value of out_plan. The plans have one shape
 * and granularity and differ in strides at most. If the strides are equal, out may be x; otherwise the memory must not
 * overlap. g_idx is that of `plan`. Runs on the runtime's executor. Fails only if memory runs out, which only g_idx
 * needs. Codes are laid out as numbers of one byte; both plans have the dtype of the numbers.
 * Packed codes have C order, and rows of an even number of elements; memory may run out for them, too. */
int qobs_fake_quantize_plan(const struct fake_quantize *f, const qobs_plan *plan, const void *x,
                            const qobs_plan *out_plan, void *out, qobs_error *error);

/* Codes of a runtime are those of narrow dtypes, and have no sums of errors. */
int qobs_check_runtime_codes(const struct quantizer *quantizer, qobs_dtype dtype, bool with_sums, qobs_error *error);

/* Floats of a runtime have no zero points. */
int qobs_check_runtime_zero_point(const struct quantizer *quantizer, enum code_kind kind, const void *zero_point,
                                  qobs_error *error);

/* ---- In steps ---------------------------------------------------------------------------------------------------- */

/* Kernels and arithmetic, which do not depend on a tensor. */
struct quantize_work {
    const struct fake_quantize *f; /* its qparams and sums are not used */
    struct quantizer quantizer, bounded; /* the same, and with what is known of elements */
    qobs_fake_quantize_rows_fn *rows;
    qobs_fake_quantize_columns_fn *columns;
    qobs_quantize_rows_fn *code_rows;
    qobs_quantize_pairs_fn *code_pairs;
    qobs_quantize_columns_fn *code_columns;
    qobs_product_rows_fn *product_rows; /* in place of all that make codes; NULL: they do */
    qobs_dequantize_rows_fn *number_rows;
    qobs_dequantize_columns_fn *number_columns;
    bool pack;                    /* codes become pairs; strides of out but that of the elements are bytes of pairs */
    int64_t element, out_element; /* bytes; 1 for codes */
};

/* One tensor, or a part of it; small, because a call for a small tensor copies it. */
struct quantization {
    const struct quantize_work *work;
    struct qparam_source qparams;
    double *sum;  /* of the squared errors of codes, and of the elements; NULL: not wanted */
    bool bounded; /* elements are as work->bounded says */
};

/* Chooses kernels and arithmetic for elements of x_dtype. It matters whether there is a global_scale, not which. */
void qobs_quantization_open(struct quantization *job, struct quantize_work *work, const struct fake_quantize *f,
                            qobs_dtype x_dtype);

/* One tile of a granularity without g_idx, on the runtime's executor. Its loops are normalised. */
void qobs_quantize_tile(const struct quantization *job, const struct loops *loops);

/* Normalises loops of codes to `out`, and makes them those of pairs, which are not normalised again: strides of pairs
 * beside strides of elements look like loops that continue each other. False, and nothing has changed: there is a code
 * that has no neighbour in its run. */
bool qobs_loops_by_pairs(struct loops *loops, const unsigned char *out, int64_t element);

/* Normalised loops, and runs of elements that share a qparam, on this thread in the floating-point mode of results. The
 * elements of `inner` are contiguous; `qparam` is that of the first run. */
void qobs_quantize_loops(const struct quantization *job, const struct loops *loops);
void qobs_quantize_runs(const struct quantization *job, const struct loop *inner, const struct loop *runs,
                        const unsigned char *x, unsigned char *out, int64_t qparam);

/* ---- By magnitudes ----------------------------------------------------------------------------------------------- */

/* Model-Optimizer's fake quantization: fake_tensor_quant and scaled_e4m3 (quantization/tensor_quant.py, 0.47 and
 * 0.48). Elements are multiplied by a factor, rounded, and divided by it. */

/* The numbers to which elements are rounded. */
struct amax_numbers {
    double quant_min, quant_max; /* integers */
    bool e4m3;                   /* e4m3 instead */
    float zero_amax;             /* a magnitude of at most this has no scale */
};

/* 448 / amax as torch computes it: the reciprocal times the number. Without a scale amax counts as 1. */
static inline float qobs_e4m3_factor(float amax, float zero_amax) { return 1 / (amax <= zero_amax ? 1 : amax) * 448; }

/* The factor of the elements; 0: integers that are all 0. For those upstream divides two tensors. */
static inline float qobs_amax_factor(bool e4m3, float quant_max, float amax, float zero_amax)
{
    return e4m3 ? qobs_e4m3_factor(amax, zero_amax) : amax <= zero_amax ? 0 : quant_max / amax;
}

/* The factors of n magnitudes of a dtype, which must be finite and not negative. */
int qobs_amax_factors(const struct amax_numbers *numbers, const void *amax, qobs_dtype dtype, int64_t n, float *factor,
                      qobs_error *error);

/* In place of the kernels of fake-quantize: `scale` is the factor, zero points are not used. Plain C on every
 * instruction set, without a limit of length; memory as their contract says. In float, rounded once to the dtype. */
extern const struct fake_quantize_by_amax qobs_amax_integers, qobs_amax_e4m3;
