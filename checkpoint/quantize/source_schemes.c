/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Integers say their scheme: bits and groups, and zero points if any weight of a kind has one. Floats do not: nothing
 * beside their weights tells how activations are quantized. */
#include "quantize/source_schemes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "model/qparam_facts.h"

/* ---- Schemes ----------------------------------------------------------------------------------------------------- */

static int refuse(const struct weight *w, struct fail *f)
{
    const struct source_codes *c = &w->source_codes;
    if (c->group_index)
        return INVALID(f,
                       "%.300s: %s puts its columns into groups out of order (desc_act), which vLLM 0.32 and "
                       "compressed-tensors 0.20 no longer load (actorder group); quantize with a --scheme quantizes "
                       "their numbers anew",
                       w->name, c->group_index->name);
    return INVALID(
        f,
        "%.300s: is %s; its scheme does not say how activations are quantized: --scheme names one that holds "
        "its codes",
        w->name, c->format->read.title);
}

/* Returns the group of integers like those of a weight; NULL: there is none yet. */
static struct quant_group *find_group(const struct quant_config *config, const struct weight *w)
{
    const struct source_codes *c = &w->source_codes;
    const bool whole = c->scale_columns == 1;
    for (size_t i = 0; i < config->group_count; i++) {
        const struct quant_args *a = &config->groups[i].weights;
        if (a->num_bits == c->bits && (a->strategy == QUANT_CHANNEL) == whole &&
            (whole || a->group_size == c->block[1]))
            return &config->groups[i];
    }
    return NULL;
}

static int add_weight(struct quant_config *config, const struct weight *w, struct fail *f)
{
    const struct source_codes *c = &w->source_codes;
    OWNED char *module = strndup(w->name, w->module);
    if (!module)
        return NO_MEMORY(f, "a scheme");
    if (!c->format->code.ints || c->block[0] != 1 || c->group_index)
        return refuse(w, f);
    struct quant_group *g = find_group(config, w);
    if (g) {
        RETURN_IF_NOT_OK(quant_config_add_target(g, module, f));
    } else {
        RETURN_IF_NOT_OK(quant_config_add_scheme(config, "W4A16", &(const char *){module}, 1, f));
        g = &config->groups[config->group_count - 1];
        g->changed = true;
        g->weights.num_bits = c->bits;
        g->weights.strategy = c->scale_columns == 1 ? QUANT_CHANNEL : QUANT_GROUP;
        g->weights.group_size = c->scale_columns == 1 ? 0 : c->block[1];
    }
    /* Negative scales become zero points. */
    struct qparam_facts facts;
    RETURN_IF_NOT_OK(weight_qparam_facts(w, &facts, f));
    g->weights.symmetric = g->weights.symmetric && !facts.negative && facts.low == 0 && facts.high == 0;
    return QOBS_OK;
}

int source_schemes_make(struct selection *s, struct fail *f)
{
    struct inputs *in = s->inputs;
    const struct scheme_choice *c = s->choice;
    RETURN_IF_NOT_OK(source_check_configs(&in->model, f));
    RETURN_IF_NOT_OK(weights_list(&in->listed, &in->model, &in->architectures, c->compat, c->split_experts, f));
    for (size_t i = 0; i < in->listed.count; i++)
        if (in->listed.items[i].source_codes.format)
            RETURN_IF_NOT_OK(add_weight(&s->config, &in->listed.items[i], f));
    return s->config.group_count > 0 ? QOBS_OK
                                     : INVALID(f,
                                               "model: %s: is not quantized, so that it has no scheme; --scheme "
                                               "quantizes it",
                                               in->model.tree.root);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

int source_schemes_check(const struct quantize_call *run, struct fail *f)
{
    const struct weights *all = &run->selection.weights;
    for (size_t i = 0; i < all->count; i++) {
        const struct weight *w = &all->items[i];
        if (w->reason != WEIGHT_TAKEN || run->engine.cast[i])
            continue;
        if (!w->source_codes.format)
            return INVALID(f, "%.300s: is not quantized, and %.60s would change its numbers; quantize does so", w->name,
                           run->selection.config.groups[w->group].name);
        return INVALID(f, "%.300s: is %s, whose numbers %.60s does not hold; quantize quantizes them anew", w->name,
                       w->source_codes.format->read.title, run->selection.config.groups[w->group].name);
    }
    return QOBS_OK;
}

int source_schemes_check_numbers(const struct quantize_call *run, struct fail *f)
{
    for (size_t i = 0; i < run->engine.job_count; i++) {
        const struct weight_job *job = &run->engine.jobs[i];
        const struct job_result *r = &job->result;
        if (job->cast && job->wants && r->lossless < r->blocks)
            return INVALID(f,
                           "%.300s: %" PRIu64 " of %" PRIu64 " blocks would change their numbers in %.60s; quantize "
                           "changes them",
                           job->weight->name, r->blocks - r->lossless, r->blocks, job->group->quant->name);
    }
    return QOBS_OK;
}
