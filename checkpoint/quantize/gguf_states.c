/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "quantize/gguf_states.h"

#include <stdlib.h>
#include <string.h>

#include "files/status.h"

#define SUFFIX ".importance"

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static char *key_of(const char *tensor, uint64_t matrix)
{
    return text_format("%s %llu", tensor, (unsigned long long)matrix);
}

/* Adds the states of one module, which follow each other. */
static int add(struct gguf_states *s, const struct saved_state *first, size_t count, struct fail *f)
{
    struct llama_name name;
    if (!ends_with(first->name, SUFFIX) ||
        !llama_name_of(first->name, strlen(first->name) - (sizeof SUFFIX - 1), &name))
        return QOBS_OK;
    const struct gguf_state state = {key_of(name.text, name.matrix), first, count};
    if (state.key && list_append(&s->items, &s->count, sizeof state, &state))
        return QOBS_OK;
    free(state.key);
    return NO_MEMORY(f, "states");
}

int gguf_states_open(struct gguf_states *s, const struct texts *directories, struct fail *f)
{
    pthread_mutex_init(&s->lock, NULL);
    for (size_t i = 0; i < directories->count; i++)
        RETURN_IF_NOT_OK(argument_failure("states", saved_states_add(&s->saved, directories->items[i], f), f));
    for (size_t first = 0, end; first < s->saved.count; first = end) {
        for (end = first + 1;
             end < s->saved.count && strcmp(s->saved.items[end].name, s->saved.items[first].name) == 0;)
            end++;
        RETURN_IF_NOT_OK(add(s, &s->saved.items[first], end - first, f));
    }
    named_sort(s->items, s->count, sizeof *s->items);
    const char *twice = named_twice(s->items, s->count, sizeof *s->items);
    return twice ? INVALID(f, "states: there are two of %.150s, by names of two modules", twice) : QOBS_OK;
}

void gguf_states_close(struct gguf_states *s)
{
    named_free(s->items, s->count, sizeof *s->items, 1);
    saved_states_free(&s->saved);
    *s = (struct gguf_states){.items = NULL};
}

const struct gguf_state *gguf_states_find(const struct gguf_states *s, const char *tensor, uint64_t matrix)
{
    OWNED char *key = s->count > 0 ? key_of(tensor, matrix) : NULL;
    return key ? named_find(s->items, s->count, sizeof *s->items, key) : NULL;
}

int gguf_states_means(const struct gguf_state *state, int64_t columns, float *mean, struct fail *f)
{
    if (state)
        return means_of_states(state->first, state->count, "columns", columns, mean, f);
    for (int64_t i = 0; i < columns; i++)
        mean[i] = 1;
    return QOBS_OK;
}

/* ---- Hessians ---------------------------------------------------------------------------------------------------- */

static int read(struct gguf_hessian *h, const qobs_observer *observer, int64_t columns, struct fail *f)
{
    qobs_error error = {0};
    qobs_result info = {.struct_size = sizeof info};
    if (qobs_observer_result_find(observer, "hessian_sum", &info, &error) != QOBS_OK)
        return INVALID(f,
                       "%.200s: holds no Hessian, by which codes are rounded; importance=\"qobs.local_hessian "
                       "hessian_block_size=1048576\" of calibration collects it",
                       h->state->first->path);
    const int64_t block = info.shape[1], blocks = (columns + block - 1) / block;
    if (info.shape[0] != blocks || block > columns)
        return INVALID(f, "%.200s: has a Hessian of %lld blocks of %lld columns; the tensor has %lld columns",
                       h->state->first->path, (long long)info.shape[0], (long long)block, (long long)columns);
    h->sum = malloc(info.size + 1);
    if (!h->sum)
        return NO_MEMORY(f, "a Hessian");
    memcpy(h->shape, (const int64_t[]){blocks, block, block}, sizeof h->shape);
    if (qobs_observer_read(observer, "hessian_sum", h->sum, info.size, &error) == QOBS_OK &&
        qobs_observer_read(observer, "hessian_count", &h->tokens, sizeof h->tokens, &error) == QOBS_OK)
        return QOBS_OK;
    free(h->sum);
    h->sum = NULL;
    return report_failure(f, error.status, "%.200s: %.250s", h->state->first->path, error.message);
}

int gguf_hessian_take(struct gguf_states *s, struct gguf_hessian *h, int64_t columns, struct fail *f)
{
    OWNED_OBSERVER qobs_observer *observer = NULL;
    int status = QOBS_OK;
    pthread_mutex_lock(&s->lock);
    if (!h->sum)
        status = saved_importance_load(h->state->first, h->state->count, &observer, f);
    if (!h->sum && status == QOBS_OK)
        status = read(h, observer, columns, f);
    pthread_mutex_unlock(&s->lock);
    return status;
}

void gguf_hessian_give(struct gguf_states *s, struct gguf_hessian *h, int64_t rows)
{
    pthread_mutex_lock(&s->lock);
    h->left -= rows;
    if (h->left == 0) {
        free(h->sum);
        h->sum = NULL;
    }
    pthread_mutex_unlock(&s->lock);
}
