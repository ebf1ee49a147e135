/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Counts the codes that are further from the numbers of the original than those of quantize under the stored scales. A
 * change that hides in rounding moves codes and leaves scales as they are. */
#include <math.h>
#include <stdlib.h>

#include "audit/nearest_codes.h"
#include "model/stored_qparams.h"
#include "qobs/format.h"

/* Returns the distance of a number to what its code means, without rounding where doubles have the bits. */
static double distance(const struct nearest_rows *rows, double number, unsigned char code, size_t qparam)
{
    const qobs_dequantize_args *s = rows->stored;
    const unsigned mask = (1u << rows->args->num_bits) - 1;
    const float scale = ((const float *)s->scale->data)[qparam];
    double unit = rows->grid ? (double)qobs_format_decode(rows->grid, code & mask) : (signed char)code;
    if (s->zero_point)
        unit -= ((const signed char *)s->zero_point->data)[qparam];
    return fabs(number - unit * (double)(s->global_scale ? scale / *s->global_scale : scale));
}

/* Returns the scales in the dtype of the original if it has all of them: quantize computes in it then. NULL: they stay
 * in float. */
static void *narrow_scales(const struct nearest_rows *rows)
{
    const qobs_tensor *scale = rows->stored->scale;
    const qobs_dtype dtype = rows->original->dtype;
    const size_t count = (size_t)scale->shape[0], size = qobs_dtype_size(dtype);
    unsigned char *narrow = rows->stored->global_scale || dtype == QOBS_F32 ? NULL : malloc(count * size + 1);
    for (size_t i = 0; narrow && i < count; i++) {
        stored_put_number(narrow + i * size, dtype, (double)((const float *)scale->data)[i]);
        if (number_of(narrow, dtype, i) != (double)((const float *)scale->data)[i]) {
            free(narrow);
            return NULL;
        }
    }
    return narrow;
}

/* Writes the codes that quantize makes of the original. */
static int quantize_rows(const struct nearest_rows *rows, qobs_error *error)
{
    const qobs_dequantize_args *s = rows->stored;
    void *narrow = narrow_scales(rows);
    const qobs_tensor scale = narrow ? tensor_of_array(narrow, rows->original->dtype, s->scale->shape) : *s->scale;
    const int64_t *shape = rows->original->shape;
    const qobs_quantize_args args = {.struct_size = sizeof args,
                                     .config = s->config,
                                     .value = rows->original,
                                     .scale = &scale,
                                     .zero_point = s->zero_point,
                                     .global_scale = s->global_scale,
                                     .codes = rows->codes,
                                     .codes_size = (size_t)(shape[0] * shape[1])};
    const int status = qobs_quantize(&args, error);
    free(narrow);
    return status;
}

int nearest_codes_count(const struct nearest_rows *rows, uint64_t *further, qobs_error *error)
{
    const unsigned char *stored = rows->stored->codes->data;
    const int64_t *shape = rows->original->shape;
    const int status = quantize_rows(rows, error);
    for (int64_t i = 0; status == QOBS_OK && i < shape[0] * shape[1]; i++) {
        if (stored[i] == rows->codes[i])
            continue;
        const int64_t row = i / shape[1], column = i % shape[1];
        const size_t qparam = (size_t)(row / rows->block[0] * rows->block_qparams + column / rows->block[1]);
        const double number = number_of(rows->original->data, rows->original->dtype, (size_t)i);
        const double least = distance(rows, number, rows->codes[i], qparam);
        *further += !isnan(least) && !(distance(rows, number, stored[i], qparam) <= least);
    }
    return status;
}
