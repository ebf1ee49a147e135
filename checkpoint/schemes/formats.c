/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* See compressed_tensors/compressors in 0.19. */
#include "schemes/formats.h"

#include <stdio.h>
#include <string.h>

static const struct quant_format_row rows[] = {
    [QUANT_MXFP4_PACK] = {.name = "mxfp4-pack-quantized",
                          .floats = true,
                          .bits = E2M1_BITS,
                          .group_size = 32,
                          .strategy = QUANT_GROUP,
                          .scale_dtype = FILE_U8,
                          .codes = "weight_packed",
                          .word_bits = 8},
    [QUANT_MXFP8] = {.name = "mxfp8-quantized",
                     .floats = true,
                     .bits = E4M3_BITS,
                     .group_size = 32,
                     .strategy = QUANT_GROUP,
                     .scale_dtype = FILE_U8,
                     .by_scale_dtype = true,
                     .codes = "weight"},
    [QUANT_NVFP4_PACK] = {.name = "nvfp4-pack-quantized",
                          .floats = true,
                          .bits = E2M1_BITS,
                          .group_size = 16,
                          .strategy = QUANT_TENSOR_GROUP,
                          .scale_dtype = FILE_F8_E4M3,
                          .codes = "weight_packed",
                          .word_bits = 8},
    [QUANT_INT_QUANTIZED] = {.name = "int-quantized", .ints = true, .bits = 8, .codes = "weight"},
    [QUANT_PACK] =
        {.name = "pack-quantized", .ints = true, .codes = "weight_packed", .word_bits = 32, .has_shape = true},
    [QUANT_FLOAT_QUANTIZED] = {.name = "float-quantized", .floats = true, .bits = E4M3_BITS, .codes = "weight"},
    [QUANT_NAIVE] = {.name = "naive-quantized", .ints = true, .floats = true, .bits = E4M3_BITS, .codes = "weight"},
};

enum { FORMATS = sizeof rows / sizeof *rows };

const struct quant_format_row *quant_format_row(enum quant_format format)
{
    return format > QUANT_FORMAT_NONE && (size_t)format < FORMATS ? &rows[format] : NULL;
}

const char *quant_format_name(enum quant_format format)
{
    const struct quant_format_row *row = quant_format_row(format);
    return row ? row->name : NULL;
}

int quant_format_find(const char *name, enum quant_format *format, const char *where, struct fail *f)
{
    char known[256] = "";
    for (int i = QUANT_FORMAT_NONE + 1; i < FORMATS; i++) {
        const size_t length = strlen(known);
        if (strcmp(rows[i].name, name) == 0) {
            *format = (enum quant_format)i;
            return 0;
        }
        snprintf(known + length, sizeof known - length, "%s%s", length > 0 ? ", " : "", rows[i].name);
    }
    return fail(f, "%s: format is '%.80s'; known are %s", where, name, known);
}

enum quant_format quant_format_infer(const struct quant_args *w, bool has_inputs)
{
    const bool is_int = w->type == QUANT_INT;
    for (int i = QUANT_FORMAT_NONE + 1; i < FORMATS && !is_int; i++)
        if (rows[i].group_size > 0 && w->group_size == rows[i].group_size && w->num_bits == rows[i].bits &&
            (!rows[i].by_scale_dtype || w->scale_dtype == rows[i].scale_dtype))
            return (enum quant_format)i;
    if (is_int)
        return has_inputs ? QUANT_INT_QUANTIZED : QUANT_PACK;
    return has_inputs ? QUANT_FLOAT_QUANTIZED : QUANT_NAIVE;
}

bool quant_format_holds(enum quant_format format, const struct quant_args *w, enum quant_format inferred)
{
    const struct quant_format_row *row = &rows[format];
    if (row->group_size > 0 || rows[inferred].group_size > 0)
        return format == inferred;
    return w->type == QUANT_INT ? row->ints : row->floats;
}
