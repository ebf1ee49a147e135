/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The configuration of the model states schemes. Without one, integers say theirs: bits and groups, and zero points if
 * any weight of a kind has one. Nothing beside floats tells how activations are quantized. */
#include "quantize/source_schemes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "model/qparam_facts.h"
#include "model/stated_schemes.h"

/* ---- Schemes ----------------------------------------------------------------------------------------------------- */

/* The schemes that the configuration of the model states. Zero-initialize it. */
struct stated {
    struct quant_config config;
    struct quant_matchers targets;
    size_t *made;       /* of each group, the index of that which is made of it; SIZE_MAX: none yet */
    struct fail unread; /* why the configuration is not read */
};

static void release_stated(struct stated *s)
{
    quant_config_free(&s->config);
    quant_matchers_free(&s->targets);
    free(s->made);
}

/* Reads them, if they are of those that are read. */
static int read_stated(struct stated *s, const struct model *m, struct fail *f)
{
    const char *maker;
    int status = stated_schemes_read(&s->config, &maker, m, &s->unread);
    for (size_t i = 0; i < s->config.group_count && status == QOBS_OK; i++)
        if (s->config.groups[i].other_inputs)
            status = INVALID(&s->unread, "no scheme quantizes inputs as the quant_algo of the model");
    if (status != QOBS_OK)
        quant_config_free(&s->config);
    s->made = malloc((s->config.group_count + 1) * sizeof *s->made);
    if (!s->made)
        return NO_MEMORY(f, "the schemes");
    for (size_t i = 0; i < s->config.group_count; i++)
        s->made[i] = SIZE_MAX;
    return quant_matchers_create(&s->targets, &s->config, f);
}

/* Returns true if codes like those of a weight may be codes of a scheme. */
static bool fits(const struct source_codes *c, const struct quant_args *a)
{
    const char *grid = a->type == QUANT_FLOAT ? quant_grid(a) : NULL;
    return grid && c->format->code.grid && strcmp(grid, c->format->code.grid) == 0 &&
           (c->format->group_size > 0 ? a->scale_dtype == c->format->scale_dtype : a->scale_dtype == FILE_NONE) &&
           (a->strategy == QUANT_BLOCK) == (c->block[0] > 1 && c->scale_columns > 1);
}

static int refuse_unstated(const struct stated *stated, const struct weight *w, struct fail *f)
{
    char schemes[100] = "";
    for (size_t i = 0; scheme_preset_at(i); i++)
        if (fits(&w->source_codes, scheme_preset_at(i)->weights))
            text_append(schemes, sizeof schemes, "%s%s", *schemes ? ", " : "", scheme_preset_at(i)->name);
    return INVALID(f, "%.300s: is %s, and %.300s; --scheme says so, and its codes are those of %s", w->name,
                   w->source_codes.format->read.title,
                   *stated->unread.message ? stated->unread.message
                                           : "config.json does not say how activations are quantized",
                   *schemes ? schemes : "no scheme");
}

static int refuse(const struct stated *stated, const struct weight *w, struct fail *f)
{
    const struct source_codes *c = &w->source_codes;
    if (c->group_index)
        return INVALID(f,
                       "%.300s: %s puts its columns into groups out of order (desc_act), which vLLM 0.32 and "
                       "compressed-tensors 0.20 no longer load (actorder group); quantize with a --scheme quantizes "
                       "their numbers anew",
                       w->name, c->group_index->name);
    return refuse_unstated(stated, w, f);
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

/* Adds a group as it is stated, or that of integers. */
static int add_group(struct quant_config *config, struct stated *stated, const struct quant_group *as,
                     const struct weight *w, const char *module, struct fail *f)
{
    const struct source_codes *c = &w->source_codes;
    if (as) {
        stated->made[as - stated->config.groups] = config->group_count;
        return quant_config_add_copy(config, as, module, f);
    }
    RETURN_IF_NOT_OK(quant_config_add_scheme(config, "W4A16", &module, 1, f));
    struct quant_group *g = &config->groups[config->group_count - 1];
    g->changed = true;
    g->weights.num_bits = c->bits;
    g->weights.strategy = c->scale_columns == 1 ? QUANT_CHANNEL : QUANT_GROUP;
    g->weights.group_size = c->scale_columns == 1 ? 0 : c->block[1];
    return QOBS_OK;
}

static int add_weight(struct quant_config *config, struct stated *stated, const struct weight *w, struct fail *f)
{
    const struct source_codes *c = &w->source_codes;
    bool by_class;
    const struct quant_group *as = stated_group(&stated->config, &stated->targets, w->name, w->module, &by_class);
    OWNED char *module = strndup(w->name, w->module);
    if (!module)
        return NO_MEMORY(f, "a scheme");
    if (c->group_index || (!as && (!c->format->code.ints || c->block[0] != 1)))
        return refuse(stated, w, f);
    const size_t made = as ? stated->made[as - stated->config.groups] : SIZE_MAX;
    struct quant_group *g = made != SIZE_MAX ? &config->groups[made] : as ? NULL : find_group(config, w);
    RETURN_IF_NOT_OK(g ? quant_config_add_target(g, module, f) : add_group(config, stated, as, w, module, f));
    if (!c->format->code.ints || c->block[0] != 1)
        return QOBS_OK;
    /* Negative scales become zero points. */
    struct qparam_facts facts;
    RETURN_IF_NOT_OK(weight_qparam_facts(w, &facts, f));
    g = g ? g : &config->groups[config->group_count - 1];
    g->weights.symmetric = g->weights.symmetric && !facts.negative && facts.low == 0 && facts.high == 0;
    return QOBS_OK;
}

int source_schemes_make(struct selection *s, struct fail *f)
{
    struct inputs *in = s->inputs;
    const struct scheme_choice *c = s->choice;
    RELEASED_BY(release_stated) struct stated stated = {0};
    RETURN_IF_NOT_OK(source_check_configs(&in->model, f));
    RETURN_IF_NOT_OK(weights_list(&in->listed, &in->model, &in->architectures, c->compat, c->split_experts, f));
    RETURN_IF_NOT_OK(read_stated(&stated, &in->model, f));
    for (size_t i = 0; i < in->listed.count; i++)
        if (in->listed.items[i].source_codes.format)
            RETURN_IF_NOT_OK(add_weight(&s->config, &stated, &in->listed.items[i], f));
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
