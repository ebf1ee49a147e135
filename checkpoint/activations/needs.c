/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names decide which modules are attention, because a checkpoint has no classes. */
#include "activations/needs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/names.h"

const char *const activation_bases[ACTIVATION_KINDS] = {"input", "output", "k", "v"};
const char *const activation_suffixes[ACTIVATION_KINDS] = {".input", ".output", ".k_states", ".v_states"};

bool marks_attention(const struct weights *weights, const struct weight *w, size_t *length)
{
    static const char *const marks[] = {".k_proj.weight", ".v_proj.weight", ".qkv_proj.weight", ".kv_b_proj.weight"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (!ends_with(w->name, marks[i]))
            continue;
        *length = strlen(w->name) - strlen(marks[i]);
        for (size_t k = 0; k < i; k++) {
            char earlier[512];
            const int size = snprintf(earlier, sizeof earlier, "%.*s%s", (int)*length, w->name, marks[k]);
            if (size > 0 && (size_t)size < sizeof earlier && weights_find(weights, earlier))
                return false;
        }
        return *length > 0;
    }
    return false;
}

static int add(struct activation_needs *n, size_t *capacity, struct activation_need need, struct fail *f)
{
    if (n->count == *capacity) {
        struct activation_need *grown = realloc(n->items, (2 * *capacity + 64) * sizeof *grown);
        if (!grown)
            return NO_MEMORY(f, "the list of activations");
        n->items = grown;
        *capacity = 2 * *capacity + 64;
    }
    n->items[n->count++] = need;
    return QOBS_OK;
}

/* Adds what one weight needs. */
static int add_weight(struct activation_needs *n, size_t *capacity, const struct weights *weights, size_t index,
                      const struct quant_config *config, struct fail *f)
{
    const struct weight *w = &weights->items[index];
    struct activation_need need = {.weight = index, .module = w->name, .length = w->module};
    if (w->reason == WEIGHT_TAKEN) {
        const struct quant_group *g = &config->groups[w->group];
        const struct quant_args *args[] = {g->has_inputs ? &g->inputs : NULL, g->has_outputs ? &g->outputs : NULL};
        for (int k = 0; k < 2; k++) {
            need.kind = k == 0 ? ACTIVATION_INPUT : ACTIVATION_OUTPUT;
            need.args = args[k];
            need.features = w->shape[1 - k];
            if (need.args && need.args->dynamic != QUANT_DYNAMIC)
                RETURN_IF_NOT_OK(add(n, capacity, need, f));
        }
    }
    if (!config->has_kv_cache || config->kv_cache.dynamic != QUANT_STATIC || !marks_attention(weights, w, &need.length))
        return QOBS_OK;
    need.args = &config->kv_cache;
    need.features = -1;
    for (need.kind = ACTIVATION_K; need.kind <= ACTIVATION_V; need.kind++)
        RETURN_IF_NOT_OK(add(n, capacity, need, f));
    return QOBS_OK;
}

int activation_needs_list(struct activation_needs *n, const struct weights *weights, const struct quant_config *config,
                          struct fail *f)
{
    size_t capacity = 0;
    *n = (struct activation_needs){0};
    for (size_t i = 0; i < weights->count; i++)
        RETURN_IF_NOT_OK(add_weight(n, &capacity, weights, i, config, f));
    return QOBS_OK;
}

void activation_needs_free(struct activation_needs *n)
{
    free(n->items);
    *n = (struct activation_needs){0};
}
