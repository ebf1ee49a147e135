/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Lists tensors. source_formats.c finds those that are quantized, experts.c lists those of experts. */
#include "model/experts.h"

#include <stdlib.h>
#include <string.h>

#include "files/text.h"

struct weight weight_of_tensor(const struct model_tensor *source)
{
    const struct st_tensor *s = source->stored;
    struct weight w = {
        .source = source, .dtype = s->dtype, .ndim = s->ndim, .data = s->data, .bytes = s->end - s->begin};
    memcpy(w.shape, s->shape, sizeof w.shape);
    w.column_bytes = (int64_t)dtype_size(s->dtype);
    w.row_bytes = s->ndim >= 1 ? w.column_bytes * s->shape[s->ndim - 1] : 0;
    return w;
}

/* Names the weight of a tensor of codes "<module>.weight", in memory for both names: weight_keep_codes writes that of
 * the codes again. */
static char *weight_name(const char *codes, const struct quant_format_row *format)
{
    static const char weight[] = "weight";
    char *name = strdup(codes);
    if (name)
        memcpy(name + strlen(codes) - strlen(format->codes), weight, sizeof weight);
    return name;
}

static int list_tensor(struct weights *list, const struct model *model, const struct architectures *found,
                       const struct source_hints *hints, const struct model_tensor *source, qobs_compat compat,
                       bool split_experts, struct fail *f)
{
    struct weight w = weight_of_tensor(source);
    RETURN_IF_NOT_OK(source_find_codes(&w.source_codes, w.shape, &w.dtype, model, hints, source->stored, compat, f));
    const struct expert_listing listing = experts_listing(model, found, source, compat, split_experts);
    if (listing.kind != EXPERTS_NONE)
        return experts_list(list, model, source, &listing, f);
    if (!w.source_codes.format)
        return weights_append(list, w, strdup(source->stored->name), f);
    w.bytes = (uint64_t)(w.shape[0] * w.shape[1]) * dtype_size(w.dtype);
    return weights_append(list, w, weight_name(source->stored->name, w.source_codes.format), f);
}

/* The list that is made. */
struct listing {
    struct weights *weights;
    const struct model *model;
    const struct architectures *found;
    struct source_hints hints;
    qobs_compat compat;
    bool split_experts;
};

static int list_at(struct listing *l, size_t i, struct fail *f)
{
    const struct model_tensor *tensor = &l->model->tensors[i];
    if (l->compat != QOBS_COMPAT_VLLM && tensor->omitted)
        return QOBS_OK;
    return list_tensor(l->weights, l->model, l->found, &l->hints, tensor, l->compat, l->split_experts, f);
}

/* Adds to the failure of a tensor how many of those behind it fail, too. */
static void count_failures(struct listing *l, size_t first, struct fail *f)
{
    struct fail other;
    size_t count = 0;
    for (size_t i = first + 1; i < l->model->count; i++)
        count += list_at(l, i, &other) != QOBS_OK;
    if (count > 0)
        text_append(f->message, sizeof f->message, " (and %zu more tensors)", count);
}

int weights_list(struct weights *weights, const struct model *model, const struct architectures *found,
                 qobs_compat compat, bool split_experts, struct fail *f)
{
    struct listing l = {weights, model, found, .compat = compat, .split_experts = split_experts};
    *weights = (struct weights){0};
    source_hints_read(&l.hints, model);
    for (size_t i = 0; i < model->count; i++) {
        const int status = list_at(&l, i, f);
        if (status == QOBS_ERROR_INVALID_ARGUMENT)
            count_failures(&l, i, f);
        RETURN_IF_NOT_OK(status);
    }
    weights_sort(weights);
    const char *twice = named_twice(weights->items, weights->count, sizeof *weights->items);
    return twice ? INVALID(f, "tensor '%.200s' would be there twice after the experts are split", twice) : QOBS_OK;
}

int weight_keep_codes(struct weight *w, struct fail *f)
{
    struct weight codes = weight_of_tensor(w->source);
    codes.module = w->module;
    codes.reason = w->reason;
    codes.name = strdup(w->source->stored->name);
    if (!codes.name)
        return NO_MEMORY(f, "the list of tensors");
    free(w->name);
    *w = codes;
    return QOBS_OK;
}
