/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The prepared quantizer: a resolved configuration for matrices of one dtype and number of columns. Codes or
 * fake-quantized numbers by given scales, or by those of the matrix itself: then each unit of rows is measured, gets
 * its qparams and is quantized while it is in the cache. Results are those of measure/, formula/ and fake_quantize.h
 * one after another, bit for bit. Nothing is allocated. */
#pragma once

#include "stages/formula.h"
#include "quantize/fake_quantize.h"
#include "measure/reduce.h"

/* The part of a configuration that quantization needs. */
struct quantize_rule {
    struct granularity granularity;
    struct formula formula;
    struct quantizer quantizer;
    enum nonfinite_mode nonfinite;
    bool positive_zero;               /* of fake-quantized numbers */
    bool symmetric;                   /* qparams depend on the largest magnitude alone */
    bool finds_scales;                /* they are those of the range of one tensor */
    bool has_global_scale;            /* scales are divided by one of the tensor */
    const struct qobs_format *format; /* of codes; NULL: integers */
    enum code_kind kind;              /* if codes were asked for */
    int code_bits;
};

struct row_quantizer {
    struct quantize_rule rule;
    struct row_geometry geometry;
    int64_t cell_units;     /* units of one row that fit L1 together */
    struct runtime runtime; /* its executor is used */
    struct fake_quantize f;
    struct quantize_work work; /* of f */
    struct qparam_source qparams;
    qobs_dtype dtype, scale_dtype, zero_point_dtype;
    enum kernel_dtype kernel_dtype;
};

struct row_call {
    int64_t rows; /* above 0 */
    const unsigned char *x;
    unsigned char *out;           /* NULL: only qparams are wanted */
    int64_t x_stride, out_stride; /* bytes from row to row */
    void *scale, *zero_point; /* given, or to be found; zero_point may be NULL, but not if an asymmetric one is found */
    const float *global_scale;
    double *sum; /* as in struct fake_quantize */
};

/* Bytes of the output of the first columns of a row, whole blocks or pairs. */
static inline int64_t qobs_row_quantizer_bytes(const struct row_quantizer *q, int64_t columns)
{
    const enum q8_block block = q->rule.quantizer.block;
    return block          ? columns / q8_elements(block) * q8_bytes(block)
           : q->work.pack ? columns / 2
                          : columns * q->work.out_element;
}

/* Sets what follows from the other members. */
void qobs_row_quantizer_finish(struct row_quantizer *quantizer);

/* Quantizes by the given scales. Cannot fail. */
void qobs_quantize_rows_by(const struct row_quantizer *quantizer, const struct row_call *call);

/* Finds scales and zero points, and quantizes by them. Counts NaN and infinity, and fails for them if the rule refuses
 * them; outputs are then undefined. */
int qobs_quantize_rows_of(const struct row_quantizer *quantizer, const struct row_call *call,
                          struct nonfinite_count *nonfinite, qobs_error *error);
