/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of plain.c. */

#define element NATIVE(element)

/* compressed-tensors' arithmetic to integers, without zero points. */
static void NATIVE(fake_quantize_rows)(const struct quantizer *quantizer, const void *x, ptrdiff_t x_stride, void *out,
                                       ptrdiff_t out_stride, size_t runs, size_t length,
                                       const struct qparam_pair *qparams, ptrdiff_t qparam_stride)
{
    const real quant_min = (real)quantizer->quant_min, quant_max = (real)quantizer->quant_max;
    for (ptrdiff_t r = 0; r < (ptrdiff_t)runs; r++) {
        const element *v = (const element *)((const unsigned char *)x + r * x_stride);
        element *to = (element *)((unsigned char *)out + r * out_stride);
        const real scale = ((const real *)qparams->scale)[r * qparam_stride];
        for (size_t j = 0; j < length; j++) {
            real q = round_native(load(v[j]) / scale);
            q = q < quant_min ? quant_min : q;
            q = q > quant_max ? quant_max : q;
            q = sizeof(real) == 8 ? (real)rint((double)q) : (real)rintf((float)q);
            q *= scale;
            to[j] = store(q != q ? (real)NAN : q);
        }
    }
}

static void NATIVE(fake_quantize_columns)(const struct quantizer *quantizer, const void *x, ptrdiff_t x_stride,
                                          void *out, ptrdiff_t out_stride, size_t rows, size_t columns,
                                          const struct qparam_pair *qparams)
{
    const real quant_min = (real)quantizer->quant_min, quant_max = (real)quantizer->quant_max;
    const real *scale = qparams->scale, *zero_point_add = qparams->zero_point_add,
               *zero_point_sub = qparams->zero_point_sub;
    for (ptrdiff_t r = 0; r < (ptrdiff_t)rows; r++) {
        const element *v = (const element *)((const unsigned char *)x + r * x_stride);
        element *to = (element *)((unsigned char *)out + r * out_stride);
        for (size_t j = 0; j < columns; j++) {
            real q = round_native(round_native(load(v[j]) / scale[j]) + zero_point_add[j]);
            q = q < quant_min ? quant_min : q;
            q = q > quant_max ? quant_max : q;
            q = sizeof(real) == 8 ? (real)rint((double)q) : (real)rintf((float)q);
            q = round_native(q - zero_point_sub[j]) * scale[j];
            to[j] = store(q != q ? (real)NAN : q);
        }
    }
}

static void NATIVE(histogram_rows)(const struct binning *binning, const void *x, ptrdiff_t run_stride, size_t runs,
                                   size_t length, uint32_t *counters, struct extrema *seen)
{
    const struct binning b = *binning;
    for (ptrdiff_t r = 0; r < (ptrdiff_t)runs; r++) {
        const element *v = (const element *)((const unsigned char *)x + r * run_stride);
        for (size_t i = 0; i < length; i++) {
            const float e = b.magnitude ? fabsf((float)load(v[i])) : (float)load(v[i]);
            if (b.skip_zeros && e == 0)
                continue;
            if (e >= b.lo && e <= b.hi) {
                const uint32_t bin = (uint32_t)((e * b.scale - b.from) * (float)b.bins / b.width);
                counters[bin < b.bins ? bin : b.bins - 1]++;
            }
            if (isfinite(e)) {
                seen->min = e < seen->min ? e + 0.0f : seen->min;
                seen->max = e > seen->max ? e + 0.0f : seen->max;
            } else {
                seen->nonfinite.nan += e != e;
                seen->nonfinite.inf += e == e;
            }
        }
    }
}

static void NATIVE(squares_columns)(const void *x, ptrdiff_t row_stride, size_t rows, size_t columns, double *sum)
{
    for (ptrdiff_t r = 0; r < (ptrdiff_t)rows; r++) {
        const element *v = (const element *)((const unsigned char *)x + r * row_stride);
        for (size_t j = 0; j < columns; j++) {
            const double e = (double)(float)load(v[j]);
            sum[j] += e * e;
        }
    }
}

#undef element
