/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "quantize/gguf_weights.h"

#include <stdlib.h>
#include <string.h>

#include "files/text.h"

bool gguf_choice_changes(const struct gguf_choice *c) { return c->type.number != c->tensor->type.number; }

uint64_t gguf_choice_bytes(const struct gguf_choice *c)
{
    return c->tensor->elements / (uint64_t)c->type.block_elements * c->type.block_size;
}

/* Numbers that the engine takes in place; FILE_NONE: blocks, which are read as F32. */
static enum file_dtype plain_dtype(const qobs_gguf_type *type)
{
    return strcmp(type->name, "F32") == 0    ? FILE_F32
           : strcmp(type->name, "F16") == 0  ? FILE_F16
           : strcmp(type->name, "BF16") == 0 ? FILE_BF16
                                             : FILE_NONE;
}

/* A tensor whose bytes are copied. */
static struct weight copied(const struct gguf_tensor *t)
{
    return (struct weight){.dtype = FILE_U8,
                           .ndim = 1,
                           .shape = {(int64_t)t->bytes},
                           .row_bytes = 1,
                           .column_bytes = 1,
                           .bytes = t->bytes};
}

/* A matrix whose numbers are read. Unaligned numbers are read as blocks are, since kernels take plain ones in
 * place. Experts that lie in one tensor follow each other in its rows. */
static struct weight matrix(const struct gguf_tensor *t)
{
    const bool aligned = (uintptr_t)t->data % t->type.block_size == 0;
    const enum file_dtype plain = aligned ? plain_dtype(&t->type) : FILE_NONE, dtype = plain ? plain : FILE_F32;
    const int64_t columns = t->shape[t->ndim - 1], rows = columns > 0 ? (int64_t)t->elements / columns : 0;
    return (struct weight){.dtype = dtype,
                           .source_codes.blocks = plain ? NULL : &t->type,
                           .ndim = 2,
                           .shape = {rows, columns},
                           .row_bytes = columns / t->type.block_elements * (int64_t)t->type.block_size,
                           .column_bytes = plain ? (int64_t)t->type.block_size : 0,
                           .bytes = t->elements * dtype_size(dtype)};
}

static int add(struct gguf_weights *made, const struct gguf_choice *c, const struct gguf_model *model, struct fail *f)
{
    const struct gguf_tensor *t = c->tensor;
    const size_t i = made->weights.count;
    const bool changes = gguf_choice_changes(c);
    if (changes && !t->type.made)
        return report_failure(f, QOBS_ERROR_UNSUPPORTED,
                              "tensor '%.200s': is %s, which is not read here; a file of F16, BF16 or Q8_0 is needed",
                              t->name, t->type.name);
    struct weight w = changes ? matrix(t) : copied(t);
    size_t file = 0;
    while (file + 1 < model->file_count &&
           !(t >= model->files[file].tensors && t < model->files[file].tensors + model->files[file].count))
        file++;
    made->stored[i] = (struct st_tensor){.end = t->bytes, .data = t->data};
    made->sources[i] = (struct model_tensor){.stored = &made->stored[i], .shard = file};
    made->changed += changes;
    made->requantized += changes && t->type.block_elements > 1;
    w.source = &made->sources[i];
    w.data = t->data;
    w.reason = WEIGHT_NOT_TARGETED;
    w.set = i;
    return weights_append(&made->weights, w, strdup(t->name), f);
}

int gguf_weights_make(struct gguf_weights *made, const struct gguf_choice *choices, const struct gguf_model *model,
                      struct fail *f)
{
    *made = (struct gguf_weights){.stored = calloc(model->tensor_count + 1, sizeof *made->stored),
                                  .sources = calloc(model->tensor_count + 1, sizeof *made->sources)};
    if (!made->stored || !made->sources)
        return NO_MEMORY(f, "the list of tensors");
    for (size_t i = 0; i < model->tensor_count; i++)
        RETURN_IF_NOT_OK(add(made, &choices[i], model, f));
    return QOBS_OK;
}

void gguf_weights_free(struct gguf_weights *made)
{
    weights_free(&made->weights);
    free(made->stored);
    free(made->sources);
}
