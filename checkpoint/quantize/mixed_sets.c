/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* vLLM gives a fused layer one scheme: see should_ignore_layer and find_matched_target of its compressed-tensors. */
#include "quantize/choose.h"

#include <stdlib.h>
#include <string.h>

#include "files/text.h"

static bool counts(const struct weight *w)
{
    return w->ndim == 2 && w->reason != WEIGHT_NOT_LINEAR && w->reason != WEIGHT_CONV1D && w->reason != WEIGHT_NORM;
}

static bool same_scheme(const struct weight *a, const struct weight *b, const struct quant_config *config)
{
    if (a->reason != WEIGHT_TAKEN || b->reason != WEIGHT_TAKEN)
        return a->reason != WEIGHT_TAKEN && b->reason != WEIGHT_TAKEN;
    return quant_groups_alike(&config->groups[a->group], &config->groups[b->group]);
}

/* Returns the length of the parent that the members of a set share, its dot included. */
static size_t parent_of(const struct weights *weights, size_t set)
{
    const char *name = weights->items[set].name;
    size_t parent = strlen(name);
    for (size_t i = 0; i < weights->count; i++) {
        size_t common = 0;
        if (weights->items[i].set != set || i == set)
            continue;
        while (common < parent && name[common] == weights->items[i].name[common])
            common++;
        parent = common;
    }
    return component_start(name, parent);
}

#define APPEND(text, ...) text_append((text)->message, sizeof(text)->message, __VA_ARGS__)

/* Appends "q_proj (W4A16), k_proj (not quantized)" or, for a pattern, "q_proj|k_proj". */
static void append_members(struct fail *text, const struct weights *weights, const struct quant_config *config,
                           size_t set, size_t parent, bool pattern)
{
    bool first = true;
    for (size_t i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->items[i];
        if (w->set != set || !counts(w))
            continue;
        APPEND(text, "%s%.*s", first ? "" : pattern ? "|" : ", ", (int)(w->module - parent), w->name + parent);
        if (!pattern)
            APPEND(text, " (%.40s)", w->reason == WEIGHT_TAKEN ? config->groups[w->group].name : "not quantized");
        first = false;
    }
}

static void describe(struct mixed_sets *m, const struct weights *weights, const struct quant_config *config, size_t set)
{
    const size_t parent = parent_of(weights, set);
    struct fail ignore = {.message = "; --ignore 're:.*("};
    fail(&m->warning, "%.*s: vLLM runs ", parent > 0 ? (int)parent - 1 : 0, weights->items[set].name);
    append_members(&m->warning, weights, config, set, parent, false);
    APPEND(&m->warning, " as one matrix of one scheme");
    m->refusal = m->warning;
    APPEND(&m->warning, " and cannot load this");
    APPEND(&m->refusal, "; --allow-mixed-sets writes this");
    if (m->count > 1) {
        APPEND(&m->warning, " (%zu sets)", m->count);
        APPEND(&m->refusal, " (%zu sets)", m->count);
    }
    append_members(&ignore, weights, config, set, parent, true);
    APPEND(&ignore, ")$' leaves it out");
    if (strlen(m->refusal.message) + strlen(ignore.message) < sizeof((qobs_error *)NULL)->message)
        APPEND(&m->refusal, "%s", ignore.message);
    make_printable(m->warning.message);
    make_printable(m->refusal.message);
}

int mixed_sets_find(struct mixed_sets *m, const struct weights *weights, const struct quant_config *config,
                    struct fail *f)
{
    OWNED size_t *first = malloc((weights->count + 1) * sizeof *first);
    OWNED bool *mixed = calloc(weights->count + 1, sizeof *mixed);
    size_t example = 0;
    *m = (struct mixed_sets){0};
    if (!first || !mixed)
        return NO_MEMORY(f, "the fused sets");
    for (size_t i = 0; i < weights->count; i++)
        first[i] = SIZE_MAX;
    for (size_t i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->items[i];
        if (!counts(w))
            continue;
        if (first[w->set] == SIZE_MAX)
            first[w->set] = i;
        else if (!mixed[w->set] && !same_scheme(w, &weights->items[first[w->set]], config)) {
            example = m->count++ == 0 ? w->set : example;
            mixed[w->set] = true;
        }
    }
    if (m->count > 0)
        describe(m, weights, config, example);
    return QOBS_OK;
}
