/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The tensors of a model as they are quantized or copied: experts that lie in one 3-D tensor are split into one matrix
 * each, and weights that are quantized already are read as the numbers they mean. */
#pragma once

#include "model/model.h"

enum weight_encoding {
    WEIGHT_PLAIN,     /* numbers of its dtype */
    WEIGHT_FP8_BLOCK, /* e4m3 under one scale for each block, as DeepSeek writes it: read as BF16 */
    WEIGHT_MXFP4      /* two e2m1 codes a byte under exponents of groups of 32, as gpt-oss writes it: read as BF16 */
};

/* Why a tensor is not quantized. WEIGHT_TAKEN: it is. */
enum weight_reason {
    WEIGHT_TAKEN,
    WEIGHT_NOT_A_WEIGHT, /* its name is not <module>.weight */
    WEIGHT_NORM,
    WEIGHT_IGNORED,
    WEIGHT_NOT_TARGETED,
    WEIGHT_NOT_LINEAR, /* an embedding, a router, lm_head, a convolution: no linear layer that vLLM quantizes */
    WEIGHT_NO_FLOAT,   /* its dtype cannot be quantized */
    WEIGHT_REASONS
};

struct weight {
    char *name;
    size_t module; /* length of the module's name, before ".weight"; the length of the name for other tensors */
    const struct model_tensor *source;
    const struct st_tensor *scales; /* of an encoded weight */
    enum weight_encoding encoding;
    const char *dtype; /* of the numbers; BF16 for encoded weights */
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    const unsigned char *data;
    int64_t row_bytes,
        column_bytes;  /* distance of rows and of columns; in C order for plain tensors of other dimensions */
    int64_t first_row; /* row of the source, counted over all its matrices; for encoded experts */
    uint64_t bytes;    /* of the numbers */
    enum weight_reason reason;
    size_t group; /* index of its group in the configuration, if reason is WEIGHT_TAKEN */
};

struct weights {
    struct weight *items; /* sorted by name with strcmp */
    size_t count;
    int64_t block[2]; /* rows and columns of a block of WEIGHT_FP8_BLOCK */
};

/* Lists the tensors of a model. compat decides the layout of experts: by the model's configuration, or by rows. */
int weights_list(struct weights *weights, const struct model *model, qobs_compat compat, struct fail *f);
void weights_free(struct weights *weights);

/* Returns the weight with that name, or NULL. */
const struct weight *weights_find(const struct weights *weights, const char *name);

/* Returns true if rows of the weight can be used in place: plain, with contiguous rows. */
bool weight_is_in_place(const struct weight *w);

/* Returns true if all its bytes lie together as they are stored. */
bool weight_is_contiguous(const struct weight *w);

/* A list of weights that grows. weight_list_append adds a weight; `name` moves into the list, or is freed on failure.
 */
struct weight_list {
    struct weights *weights;
    size_t capacity;
};
int weight_list_append(struct weight_list *list, struct weight w, char *name, struct fail *f);

/* Writes rows [first, first + count) of a matrix to `out` in C order, as numbers of its dtype. */
void weight_read_rows(const struct weight *w, const struct weights *weights, int64_t first, int64_t count, void *out);
