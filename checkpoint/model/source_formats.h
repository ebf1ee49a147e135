/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Weights that are quantized already: which tensors hold them, and which numbers they mean. A format is a row of a
 * table (source_formats.c). */
#pragma once

#include "model/model.h"
#include "qobs/checkpoint.h"

enum source_codes_kind {
    SOURCE_I8,     /* signed bytes */
    SOURCE_E4M3,   /* bytes of fp8_e4m3 */
    SOURCE_PACKED, /* integers of 1 to 8 bits in words of 32 bits */
    SOURCE_E2M1    /* two codes of fp4 a byte, the low bits first */
};

struct source_format {
    const char *name;          /* for messages and reports */
    const char *codes, *scale; /* last components of the names of these tensors */
    enum file_dtype codes_dtype;
    file_dtypes scale_dtypes;
    file_dtypes zero_point_dtypes; /* of <module>.weight_zero_point; 0: there is none */
    const char *global_scale;      /* last component of its name; NULL: there is none */
    bool global_divides;           /* scales are divided by it; else multiplied */
    int64_t group;                 /* columns of a scale; 0: the shapes say it */
    enum source_codes_kind kind;
    bool upstream; /* llm-compressor dequantizes it, too */
    bool keeps;    /* compressed-tensors has it: a weight that nothing targets can stay */
};

/* Codes of a matrix with their scales: x = (code - zero point) * scale, where a global scale multiplies or divides the
 * scale in F32. */
struct source_codes {
    const struct source_format *format;           /* NULL: the weight is not quantized */
    const struct st_tensor *scales, *zero_points; /* zero_points may be NULL */
    float global_scale;
    int bits;                    /* of SOURCE_PACKED */
    int64_t block[2];            /* rows and columns that share a scale */
    int64_t scale_columns;       /* scales of a row of blocks */
    int64_t first_row, row_step; /* row r of the matrix is row first_row + r * row_step of the scales */
};

/* The format of gpt-oss's experts: blocks [..., rows, groups, 16] with scales [..., rows, groups]. */
extern const struct source_format source_mxfp4_blocks;

/* Hints of a model's configurations about its quantized weights. */
struct source_hints {
    bool quantized;       /* a configuration describes a quantization */
    int64_t blocks[8][2]; /* rows and columns of blocks */
    int block_count;
    unsigned bits;         /* bit b: integers of b bits */
    enum file_dtype dtype; /* of numbers whose scales are F32: that of the model, else BF16 */
};
void source_hints_read(struct source_hints *hints, const struct model *model);

/* Finds the format of a tensor. codes->format stays NULL if it is plain, or a part of another. Fills `codes`, the shape
 * of the matrix, and the dtype of its numbers. Fails for a tensor of codes whose scales are missing or do not fit, and
 * for the tensors of foreign formats (GPTQ, AWQ, ...), with their names. */
int source_find_codes(struct source_codes *codes, int64_t *shape, enum file_dtype *dtype, const struct model *model,
                      const struct source_hints *hints, const struct st_tensor *tensor, qobs_compat compat,
                      struct fail *f);

/* Fails if a configuration of the model describes a quantization that is not understood, with its name. */
int source_check_configs(const struct model *model, struct fail *f);
