/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Weights that are quantized already: which tensors hold them, and which numbers they mean. Formats are rows of
 * schemes/formats.c. */
#pragma once

#include "model/model.h"
#include "qobs/checkpoint.h"
#include "qobs/gguf.h"
#include "schemes/formats.h"

/* Codes of a matrix with their scales: x = (code - zero point) * scale, where a global scale multiplies or divides the
 * scale in F32. */
struct source_codes {
    const struct quant_format_row *format;        /* NULL: the weight is not quantized, or in blocks */
    const qobs_gguf_type *blocks;                 /* of a GGUF file, with their scales; they are read as F32 */
    const struct st_tensor *scales, *zero_points; /* zero_points may be NULL */
    const struct st_tensor *group_index;          /* the group of each column; NULL: they lie in order */
    float global_scale;
    int bits;                    /* of a code */
    int64_t block[2];            /* rows and columns that share a scale */
    int64_t scale_columns;       /* scales of a row of blocks */
    int64_t first_row, row_step; /* row r of the matrix is row first_row + r * row_step of the scales */
};

/* Returns the column of scales of a column of codes. */
int64_t source_group(const struct source_codes *codes, int64_t column);

/* Makes scales, zero points and groups safe to read in place until they are released. */
int source_codes_borrow(const struct source_codes *codes, struct fail *f);
void source_codes_release(const struct source_codes *codes);

/* Hints of a model's configurations about its quantized weights. */
struct source_hints {
    bool quantized;       /* a configuration describes a quantization */
    int64_t blocks[8][2]; /* rows and columns of blocks */
    int block_count;
    unsigned bits;         /* bit b: integers of b bits */
    const char *version;   /* checkpoint_format; NULL: none */
    enum file_dtype dtype; /* of numbers whose scales are F32: that of the model, else BF16 */
};
void source_hints_read(struct source_hints *hints, const struct model *model);

/* Finds the format of a tensor. codes->format stays NULL if it is plain, or a part of another. Fills `codes`, the shape
 * of the matrix, and the dtype of its numbers. Fails for a tensor of codes whose scales are missing or do not fit, and
 * for the tensors of foreign formats (GPTQ, AWQ, ...) and of adapters, with their names. */
int source_find_codes(struct source_codes *codes, int64_t *shape, enum file_dtype *dtype, const struct model *model,
                      const struct source_hints *hints, const struct st_tensor *tensor, qobs_compat compat,
                      struct fail *f);

/* Fails if a configuration of the model describes a quantization that is not understood, with its name. */
int source_check_configs(const struct model *model, struct fail *f);
