/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Lists tensors, splits experts and finds the scales of encoded weights. */
#include "quantize/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quantize/names.h"

/* ---- List -------------------------------------------------------------------------------------------------------- */

struct weight_list {
    struct weights *weights;
    size_t capacity;
};

/* Appends a weight. `name` moves into the list, or is freed on failure. */
static int append(struct weight_list *list, struct weight w, char *name, struct fail *f)
{
    struct weights *all = list->weights;
    if (all->count == list->capacity) {
        const size_t capacity = 2 * list->capacity + 64;
        struct weight *grown = realloc(all->items, capacity * sizeof *grown);
        if (!grown || !name) {
            all->items = grown ? grown : all->items;
            free(name);
            return NO_MEMORY(f, "the list of tensors");
        }
        all->items = grown;
        list->capacity = capacity;
    }
    if (!name)
        return NO_MEMORY(f, "the list of tensors");
    w.name = name;
    w.module = module_length(name);
    all->items[all->count++] = w;
    return QOBS_OK;
}

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

/* ---- Experts ----------------------------------------------------------------------------------------------------- */

/* Returns `name` with `word` replaced by "<expert>.<part>", and ".weight" at its end. NULL: no memory. */
static char *expert_name(const char *name, const char *word, int64_t expert, const char *part)
{
    const char *at = strstr(name, word);
    const size_t length = strlen(name), size = length + strlen(part) + 64;
    char *made = malloc(size);
    if (!made)
        return NULL;
    int n = snprintf(made, size, "%.*s%" PRId64 ".%s%s", (int)(at - name), name, expert, part, at + strlen(word));
    if (!ends_with(made, ".weight"))
        snprintf(made + n, size - (size_t)n, ".weight");
    return made;
}

/* A matrix of one expert: rows or columns [first, first + count) of a matrix of the 3-D tensor, every `step`-th. */
static struct weight of_expert(const struct model_tensor *source, int64_t expert, enum expert_layout layout,
                               int64_t part, int64_t parts)
{
    const struct st_tensor *s = source->stored;
    const int64_t element = (int64_t)dtype_size(s->dtype), rows = s->shape[1], columns = s->shape[2];
    struct weight w = {.source = source, .dtype = s->dtype, .ndim = 2};
    w.data = (const unsigned char *)s->data + expert * rows * columns * element;
    if (layout == EXPERTS_TRANSPOSED) {
        w.shape[0] = columns / parts;
        w.shape[1] = rows;
        w.row_bytes = element;
        w.column_bytes = columns * element;
        w.data += part * w.shape[0] * element;
    } else {
        w.shape[0] = rows / parts;
        w.shape[1] = columns;
        w.column_bytes = element;
        w.row_bytes = columns * element;
        w.data += part * w.shape[0] * w.row_bytes;
    }
    w.bytes = (uint64_t)(w.shape[0] * w.shape[1] * element);
    return w;
}

static int split_experts(struct weight_list *list, const struct model_tensor *source, const char *word,
                         enum expert_layout layout, struct fail *f)
{
    static const char *const gate_up[] = {"gate_proj", "up_proj"}, *const down[] = {"down_proj"};
    const struct st_tensor *s = source->stored;
    const bool joined = strcmp(word, "gate_up_proj") == 0;
    const int64_t parts = joined ? 2 : 1, split = s->shape[layout == EXPERTS_TRANSPOSED ? 2 : 1];
    if (split % parts != 0)
        return INVALID(f,
                       "tensor '%.200s': gate_proj and up_proj share dimension %d, which has %" PRId64
                       " elements; an even number is needed",
                       s->name, layout == EXPERTS_TRANSPOSED ? 2 : 1, split);
    for (int64_t e = 0; e < s->shape[0]; e++)
        for (int64_t p = 0; p < parts; p++)
            RETURN_IF_NOT_OK(append(list, of_expert(source, e, layout, p, parts),
                                    expert_name(s->name, word, e, joined ? gate_up[p] : down[p]), f));
    return QOBS_OK;
}

/* Returns the layout of 3-D experts. Llama 4 multiplies from the left, so that its matrices are transposed. A model
 * says it by the size of its hidden states: [E, hidden_size, 2I] against [E, 2I, hidden_size]. */
static enum expert_layout layout_of(const struct model *model, const struct st_tensor *s, bool joined)
{
    const cJSON *hidden = model_config_item(model, "hidden_size"), *type = model_config_item(model, "model_type");
    if (!cJSON_IsNumber(hidden))
        return EXPERTS_BY_ROWS;
    const int64_t in = s->shape[joined ? 2 : 1], other = s->shape[joined ? 1 : 2];
    const bool by_rows = (double)in == hidden->valuedouble, transposed = (double)other == hidden->valuedouble;
    if (by_rows != transposed)
        return transposed ? EXPERTS_TRANSPOSED : EXPERTS_BY_ROWS;
    const bool known = cJSON_IsString(type) && strncmp(type->valuestring, "llama4", 6) == 0;
    return by_rows && known ? EXPERTS_TRANSPOSED : EXPERTS_BY_ROWS;
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

static int list_tensor(struct weight_list *list, const struct model *model, const struct model_tensor *source,
                       qobs_compat compat, struct fail *f)
{
    const struct st_tensor *s = source->stored;
    const bool joined = strstr(s->name, "gate_up_proj") != NULL, down = strstr(s->name, "down_proj") != NULL;
    if (joined && down && s->ndim >= 2)
        return INVALID(f, "tensor '%.200s': its name has gate_up_proj and down_proj, so that it cannot be split",
                       s->name);
    if (s->ndim == 3 && (joined || down)) {
        const enum expert_layout layout =
            compat == QOBS_COMPAT_LLM_COMPRESSOR ? EXPERTS_BY_ROWS : layout_of(model, s, joined);
        return split_experts(list, source, joined ? "gate_up_proj" : "down_proj", layout, f);
    }
    struct weight w = of_tensor(source);
    w.module = module_length(s->name);
    w.name = s->name;
    RETURN_IF_NOT_OK(find_scales(&w, model, list->weights, f));
    return append(list, w, strdup(s->name), f);
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

const struct weight *weights_find(const struct weights *weights, const char *name)
{
    const struct weight key = {.name = (char *)(uintptr_t)name};
    return bsearch(&key, weights->items, weights->count, sizeof key, compare_names);
}

void weights_free(struct weights *weights)
{
    for (size_t i = 0; i < weights->count; i++)
        free(weights->items[i].name);
    free(weights->items);
    *weights = (struct weights){0};
}
