/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The storage formats of compressed-tensors, a row each. Whoever stores, reads or checks codes asks the row. */
#pragma once

#include "schemes/quant_args.h"

enum quant_format {
    QUANT_FORMAT_NONE,
    QUANT_MXFP4_PACK,
    QUANT_MXFP8,
    QUANT_NVFP4_PACK,
    QUANT_INT_QUANTIZED,
    QUANT_PACK,
    QUANT_FLOAT_QUANTIZED,
    QUANT_NAIVE
};

enum { E2M1_BITS = 4, E4M3_BITS = 8 };

struct quant_format_row {
    const char *name;             /* in config.json */
    bool ints, floats;            /* the codes that it holds */
    int bits;                     /* of floats, and of the integers that vLLM takes in this format if it is no pack */
    int64_t group_size;           /* the only one; 0: any granularity */
    enum quant_strategy strategy; /* if there is a group size */
    enum file_dtype scale_dtype;  /* of the scheme and in the file; FILE_NONE: that of the weight */
    bool by_scale_dtype;          /* the scheme's scale_dtype tells it from a format of plain codes */
    const char *codes;            /* name of the tensor of codes */
    int word_bits;                /* the codes of a row share words of so many bits; 0: each is an element */
    bool has_shape;               /* weight_shape has the shape of the weight */
};

/* Returns the row of a format; NULL for QUANT_FORMAT_NONE and after the last one. */
const struct quant_format_row *quant_format_row(enum quant_format format);

/* Returns the name in config.json, such as "pack-quantized"; NULL after the last one. */
const char *quant_format_name(enum quant_format format);

/* Finds a format by its name. Fails for unknown names with the list of known ones. */
int quant_format_find(const char *name, enum quant_format *format, const char *where, struct fail *f);

/* Returns the format that compressed-tensors infers for weights (compressors/format.py). */
enum quant_format quant_format_infer(const struct quant_args *weights, bool has_inputs);

/* Returns true if a format can hold the codes of weights whose inferred format is `inferred`. */
bool quant_format_holds(enum quant_format format, const struct quant_args *weights, enum quant_format inferred);
