/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Lists of weights that grow and are searched. */
#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"

size_t module_length(const char *name)
{
    if (strcmp(name, "weight") == 0)
        return 0;
    return ends_with(name, ".weight") ? strlen(name) - strlen(".weight") : strlen(name);
}

int weights_append(struct weights *all, struct weight w, char *name, struct fail *f)
{
    w.name = name;
    w.module = name ? module_length(name) : 0;
    if (name && list_append(&all->items, &all->count, sizeof w, &w))
        return QOBS_OK;
    free(name);
    return NO_MEMORY(f, "the list of tensors");
}

int64_t weight_columns(const struct weight *w) { return w->ndim > 0 ? w->shape[w->ndim - 1] : 1; }

int64_t weight_rows(const struct weight *w)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < w->ndim; d++)
        rows *= w->shape[d];
    return rows;
}

int64_t weight_rows_at_once(const struct weight *w)
{
    return w->source_codes.format && w->ndim == 3 ? w->source_codes.block[1] : 1;
}

uint64_t weight_stored_bytes(const struct weight *w)
{
    const struct source_codes *c = &w->source_codes;
    if (!c->format)
        return w->bytes;
    const int64_t elements = weight_rows(w) * weight_columns(w), block = c->block[0] * c->block[1];
    const int64_t scales = block > 0 ? (elements + block - 1) / block : 1;
    return (uint64_t)(elements * c->bits + 7) / 8 + (uint64_t)scales * dtype_size(c->scales->dtype);
}

void weights_sort(struct weights *weights) { named_sort(weights->items, weights->count, sizeof *weights->items); }

const struct weight *weights_find(const struct weights *weights, const char *name)
{
    return named_find(weights->items, weights->count, sizeof *weights->items, name);
}

int weights_copy(struct weights *copy, const struct weights *from, struct fail *f)
{
    *copy = (struct weights){.items = malloc((from->count + 1) * sizeof *copy->items),
                             .drops_attention_scales = from->drops_attention_scales};
    for (; copy->items && copy->count < from->count; copy->count++) {
        struct weight *w = &copy->items[copy->count];
        *w = from->items[copy->count];
        w->name = strdup(w->name);
        if (!w->name)
            return NO_MEMORY(f, "the list of tensors");
    }
    return copy->items ? QOBS_OK : NO_MEMORY(f, "the list of tensors");
}

void weights_free(struct weights *weights)
{
    named_free(weights->items, weights->count, sizeof *weights->items, 1);
    *weights = (struct weights){0};
}

/* Last components of the names of tensors that belong to a weight in codes. */
static const char parts[] = "weight_scale weight_scale_inv weight_scale_2 weight_zero_point "
                            "weight_global_scale weight_shape scales qzeros g_idx input_scale input_zero_point "
                            "input_global_scale output_scale output_zero_point output_global_scale";

/* The same of attention: scales of keys, values and queries. */
static const char attention_parts[] = "k_scale v_scale q_scale kv_scale k_zero_point v_zero_point "
                                      "q_zero_point";

bool weight_is_of_attention(const struct weight *w)
{
    return is_one_of(w->name + component_start(w->name, strlen(w->name)), attention_parts);
}

bool weight_is_consumed(const struct weights *weights, const struct weight *w, qobs_compat compat)
{
    char name[1024];
    const char *dot = strrchr(w->name, '.'), *part = dot ? dot + 1 : w->name;
    const size_t length = (size_t)(part - w->name);
    if (weights->drops_attention_scales && weight_is_of_attention(w))
        return true;
    if (!is_one_of(part, parts) || length + sizeof "weight" > sizeof name)
        return false;
    snprintf(name, sizeof name, "%.*sweight", (int)length, w->name);
    const struct weight *owner = weights_find(weights, name);
    const struct quant_format_row *format = owner ? owner->source_codes.format : NULL;
    return format && (compat == QOBS_COMPAT_VLLM || strcmp(part, format->scale) == 0);
}
