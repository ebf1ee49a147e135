/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Lists tensors and finds the scales of block-FP8 weights. experts.c splits experts. */
#include "model/experts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/names.h"

/* The weight of a complete tensor. */
static struct weight of_tensor(const struct model_tensor *source)
{
    const struct st_tensor *s = source->stored;
    struct weight w = {
        .source = source, .dtype = s->dtype, .ndim = s->ndim, .data = s->data, .bytes = s->end - s->begin};
    memcpy(w.shape, s->shape, sizeof w.shape);
    w.column_bytes = (int64_t)dtype_size(s->dtype);
    w.row_bytes = s->ndim >= 1 ? w.column_bytes * s->shape[s->ndim - 1] : 0;
    return w;
}

/* ---- Encoded weights --------------------------------------------------------------------------------------------- */

static int check_scales(const struct weight *w, const struct weights *weights, struct fail *f)
{
    const struct st_tensor *s = w->scales;
    const int64_t rows = (w->shape[0] + weights->block[0] - 1) / weights->block[0];
    const int64_t columns = (w->shape[1] + weights->block[1] - 1) / weights->block[1];
    const bool dtype = strcmp(s->dtype, "F32") == 0 || strcmp(s->dtype, "BF16") == 0;
    if (dtype && s->ndim == 2 && s->shape[0] == rows && s->shape[1] == columns)
        return QOBS_OK;
    struct shape_words words;
    return INVALID(f, "tensor '%.150s': is %s %s; F32 or BF16 [%" PRId64 ",%" PRId64 "] is needed for its weight",
                   s->name, s->dtype, shape_describe(s->ndim, s->shape, &words), rows, columns);
}

/* Finds the scales of an e4m3 weight. */
static int find_scales(struct weight *w, const struct model *model, const struct weights *weights, struct fail *f)
{
    char name[512];
    if (strcmp(w->dtype, "F8_E4M3") != 0 || w->ndim != 2 || w->module == strlen(w->name))
        return QOBS_OK;
    if ((size_t)snprintf(name, sizeof name, "%s_scale_inv", w->name) >= sizeof name)
        return QOBS_OK;
    const struct model_tensor *scales = model_find(model, name);
    if (!scales)
        return QOBS_OK;
    w->scales = scales->stored;
    w->encoding = WEIGHT_FP8_BLOCK;
    w->dtype = "BF16";
    w->bytes *= 2;
    return check_scales(w, weights, f);
}

static void read_block_size(struct weights *weights, const struct model *model)
{
    const cJSON *earlier = cJSON_GetObjectItemCaseSensitive(model->config, "quantization_config");
    const cJSON *block = cJSON_GetObjectItemCaseSensitive(earlier, "weight_block_size");
    for (int i = 0; i < 2; i++) {
        const cJSON *item = cJSON_GetArrayItem(block, i);
        weights->block[i] = cJSON_IsNumber(item) && item->valueint > 0 ? item->valueint : 128;
    }
}

/* ---- All tensors ------------------------------------------------------------------------------------------------- */

static int list_plain(struct weight_list *list, const struct model *model, const struct model_tensor *source,
                      struct fail *f)
{
    struct weight w = of_tensor(source);
    w.module = module_length(source->stored->name);
    w.name = source->stored->name;
    RETURN_IF_NOT_OK(find_scales(&w, model, list->weights, f));
    return weight_list_append(list, w, strdup(source->stored->name), f);
}

static int list_tensor(struct weight_list *list, const struct model *model, const struct model_tensor *source,
                       qobs_compat compat, struct fail *f)
{
    const enum expert_kind kind = experts_kind(model, source, compat);
    if (kind == EXPERTS_NONE)
        return list_plain(list, model, source, f);
    return experts_list(list, model, source, kind, compat, f);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct weight *)a)->name, ((const struct weight *)b)->name);
}

int weights_list(struct weights *weights, const struct model *model, qobs_compat compat, struct fail *f)
{
    struct weight_list list = {.weights = weights};
    *weights = (struct weights){0};
    read_block_size(weights, model);
    for (size_t i = 0; i < model->count; i++)
        RETURN_IF_NOT_OK(list_tensor(&list, model, &model->tensors[i], compat, f));
    if (weights->count > 0)
        qsort(weights->items, weights->count, sizeof *weights->items, compare_names);
    for (size_t i = 1; i < weights->count; i++)
        if (compare_names(&weights->items[i - 1], &weights->items[i]) == 0)
            return INVALID(f, "tensor '%.200s' would be there twice after the experts are split",
                           weights->items[i].name);
    return QOBS_OK;
}
