/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The tensors of a model as they are quantized or copied: experts that lie in one tensor are split into one matrix
 * each where runtimes load that, and weights that are quantized already are read as the numbers they mean. */
#pragma once

#include "model/source_formats.h"

/* Why a tensor is not quantized. WEIGHT_TAKEN: it is. */
enum weight_reason {
    WEIGHT_TAKEN,
    WEIGHT_NOT_A_WEIGHT, /* its name is not <module>.weight */
    WEIGHT_NORM,
    WEIGHT_IGNORED,
    WEIGHT_NOT_TARGETED,
    WEIGHT_NOT_LINEAR, /* an embedding, a router, lm_head, a convolution: no linear layer that vLLM quantizes */
    WEIGHT_CONV1D,     /* MODULE_CONV1D */
    WEIGHT_VLLM_KEEPS, /* vLLM would not load it quantized */
    WEIGHT_UNEVEN,     /* the group size does not divide its columns */
    WEIGHT_NO_FLOAT,   /* its dtype cannot be quantized */
    WEIGHT_EXPERTS,    /* EXPERTS_WHOLE */
    WEIGHT_STACKED,    /* EXPERTS_STACKED */
    WEIGHT_KEPT,       /* nothing targets it, and it is quantized already */
    WEIGHT_DRAFT,      /* of a draft layer that stays */
    WEIGHT_REASONS
};

/* The part of a weight in a layer of experts. */
enum weight_experts {
    EXPERTS_ABSENT,
    EXPERTS_OF_ONE,  /* a matrix of one expert, of a tensor with all; or of attention (MODULE_ATTENTION) */
    EXPERTS_WHOLE,   /* a tensor with all experts, which is copied: no runtime loads them quantized */
    EXPERTS_STACKED, /* the same, but vLLM would load them one by one */
    EXPERTS_UNCLEAR  /* the same, and nothing says how they lie */
};

struct weight {
    char *name;
    size_t module; /* length of the module's name, before ".weight"; the length of the name for other tensors */
    const struct model_tensor *source;
    struct source_codes source_codes; /* of a weight that is quantized already; its format is NULL for others */
    enum file_dtype dtype;            /* of the numbers */
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    const unsigned char *data;
    int64_t row_bytes,
        column_bytes; /* distance of rows and of columns; in C order for plain tensors of other dimensions */
    enum weight_experts experts;
    uint64_t bytes; /* of the numbers */
    enum weight_reason reason;
    bool unrecorded; /* of draft layers, of which no activations are recorded */
    size_t group;    /* index of its group in the configuration, if reason is WEIGHT_TAKEN */
    size_t set; /* index of the first weight that vLLM runs as one matrix with it, or its own (weights_find_sets) */
};

struct weights {
    struct weight *items; /* sorted by name with strcmp */
    size_t count;
    bool drops_attention_scales; /* those of keys and values: others take their place, or no runtime has their scheme */
};

/* Lists the tensors of a model. compat and split_experts decide which experts are split and how (experts.h). */
struct architectures;
int weights_list(struct weights *weights, const struct model *model, const struct architectures *found,
                 qobs_compat compat, bool split_experts, struct fail *f);
void weights_free(struct weights *weights);

/* Copies a list with its names; nothing is appended to the copy. Free it also after a failure. */
int weights_copy(struct weights *copy, const struct weights *from, struct fail *f);

/* Returns the weight of a complete tensor, without a name. */
struct weight weight_of_tensor(const struct model_tensor *source);

/* Returns the weight with that name, or NULL. */
const struct weight *weights_find(const struct weights *weights, const char *name);

/* Returns the bytes that a matrix takes in the files of the model: of codes and scales if it is quantized already. */
uint64_t weight_stored_bytes(const struct weight *w);

/* Returns true if rows of the weight can be used in place: plain, with contiguous rows. */
bool weight_is_in_place(const struct weight *w);

/* Returns true if all its bytes lie together as they are stored. */
bool weight_is_contiguous(const struct weight *w);

/* Makes a weight in codes the tensor of its codes, under that name. The list must be sorted again. */
int weight_keep_codes(struct weight *w, struct fail *f);
void weights_sort(struct weights *weights);

/* Adds a weight; `name` moves into the list, or is freed on failure. NULL: no memory. */
int weights_append(struct weights *all, struct weight w, char *name, struct fail *f);

/* Returns the length of the module's name if `name` is "<module>.weight" or "weight"; else the length of the name. */
size_t module_length(const char *name);

/* Returns the elements of a row: the last dimension. All others count rows. */
int64_t weight_columns(const struct weight *w);
int64_t weight_rows(const struct weight *w);

/* Returns how many rows are read at the cost of one: the columns of a scale, if rows are columns of codes. */
int64_t weight_rows_at_once(const struct weight *w);

/* Writes rows [first, first + count) to `out` in C order, as numbers of its dtype. A weight of
 * another kind is borrowed. Returns false if bytes of a plain one are missing, because its file has become shorter. */
bool weight_read_rows(const struct weight *w, int64_t first, int64_t count, void *out);

/* The bytes of a file from the first to the last number or code of a weight. */
struct weight_span {
    const unsigned char *data;
    size_t size;
};
struct weight_span weight_span_of(const struct weight *w);

/* Makes what is read in place safe to read until it is released: codes, scales, columns that are gathered. Rows of a
 * plain matrix are copied as they are read. */
int weight_borrow(const struct weight *w, struct fail *f);
void weight_release(const struct weight *w);

/* Write rows [first, first + count) of a matrix in codes: the codes, an element each and integers as signed ones; and
 * for each block of columns the scale, under the global scale, and the zero point. zero_points may be NULL. */
void weight_read_codes(const struct weight *w, int64_t first, int64_t count, unsigned char *codes);
void weight_read_scales(const struct weight *w, int64_t first, int64_t count, float *scales, float *zero_points);

/* Returns true for a scale or a zero point of keys, values or queries, by its name. */
bool weight_is_of_attention(const struct weight *w);

/* Returns true if the tensor belongs to a weight that is dequantized (its scale, its zero point, the scale of its
 * input), so that the output does not have it. Upstream drops the scale alone. */
bool weight_is_consumed(const struct weights *weights, const struct weight *w, qobs_compat compat);
