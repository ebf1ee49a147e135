/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names decide which modules are attention, because a checkpoint has no classes. */
#include "activations/needs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schemes/match.h"
#include "files/text.h"

const char *const activation_bases[ACTIVATION_KINDS] = {"input", "output", "q", "k", "v"};
const char *const activation_suffixes[ACTIVATION_KINDS] = {".input", ".output", ".q_states", ".k_states", ".v_states"};

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

static int add(struct activation_needs *n, struct activation_need need, struct fail *f)
{
    return list_append(&n->items, &n->count, sizeof need, &need) ? QOBS_OK : NO_MEMORY(f, "the list of activations");
}

/* Returns the scheme of the states of attention of a kind; NULL: none. */
static const struct quant_args *state_args(const struct quant_config *config, enum activation_kind kind)
{
    if (config->states)
        return config->states[kind - ACTIVATION_Q];
    return config->has_kv_cache && kind != ACTIVATION_Q ? &config->kv_cache : NULL;
}

/* Adds what one weight needs. `ignored` matches attention modules that are left out; NULL: none are. */
static int add_weight(struct activation_needs *n, const struct weights *weights, size_t index,
                      const struct quant_config *config, const struct matcher *ignored, struct fail *f)
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
                RETURN_IF_NOT_OK(add(n, need, f));
        }
    }
    if (w->unrecorded || !marks_attention(weights, w, &need.length) ||
        (ignored && matcher_find(ignored, w->name, need.length) >= 0))
        return QOBS_OK;
    need.features = -1;
    for (need.kind = ACTIVATION_Q; need.kind <= ACTIVATION_V; need.kind++) {
        need.args = state_args(config, need.kind);
        if (need.args && need.args->dynamic == QUANT_STATIC)
            RETURN_IF_NOT_OK(add(n, need, f));
    }
    return QOBS_OK;
}

int activation_needs_list(struct activation_needs *n, const struct weights *weights, const struct quant_config *config,
                          struct fail *f)
{
    OWNED_MATCHER struct matcher *ignored = NULL;
    *n = (struct activation_needs){0};
    if (config->states)
        RETURN_IF_NOT_OK(
            matcher_create(&ignored, (const char *const *)config->ignore, config->ignore_count, "ignore", f));
    for (size_t i = 0; i < weights->count; i++)
        RETURN_IF_NOT_OK(add_weight(n, weights, i, config, ignored, f));
    return QOBS_OK;
}

void activation_needs_free(struct activation_needs *n)
{
    free(n->items);
    *n = (struct activation_needs){0};
}
