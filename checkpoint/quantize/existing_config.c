/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Loaders look for a module among the exact names of all groups, then among the patterns, then among the classes
 * (match_targets of compressed-tensors 0.19). The merged configuration must give every module the scheme it has. */
#include "quantize/selection.h"

#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "files/text.h"
#include "model/fused.h"
#include "schemes/match.h"
#include "model/layer_words.h"

/* Returns the quantization_config of compressed-tensors at the top of config.json; NULL: none. ModelOpt's has groups,
 * too; upstream does not tell them apart. */
static const json_object *find_config(const struct selection *selection)
{
    const json_object *config = json_get(selection->inputs->model.config, "quantization_config");
    const bool own = strcmp(json_text_of(config, "quant_method"), "compressed-tensors") == 0;
    const bool known = own || selection->config.compat != QOBS_COMPAT_VLLM;
    return known && json_is_object(json_get(config, "config_groups")) ? config : NULL;
}

static int make_matcher(struct matcher **matcher, const json_object *list, struct fail *f)
{
    OWNED const char **texts = malloc((json_count(list) + 1) * sizeof *texts);
    size_t n = 0;
    if (!texts)
        return NO_MEMORY(f, "the targets");
    json_each(item, list) if (json_is_string(item.value)) texts[n++] = json_text(item.value);
    return matcher_create(matcher, texts, n, "quantization_config", f);
}

static bool matches(const struct matcher *m, const struct weight *w)
{
    return matcher_find(m, w->name, w->module) >= 0;
}

/* Adds the name of a weight's module. */
static int add_module(json_object *list, const struct weight *w, struct fail *f)
{
    return json_append(list, json_object_new_string_len(w->name, (int)w->module)) ? QOBS_OK
                                                                                  : NO_MEMORY(f, "quantization_config");
}

/* ---- Targets ----------------------------------------------------------------------------------------------------- */

/* Adds to `kept` the targets of a group, those that match a weight that is quantized anew as the names of the weights
 * that stay. */
static int keep_target(json_object *kept, const char *target, const struct weights *weights, struct fail *f)
{
    OWNED_MATCHER struct matcher *m = NULL;
    bool renewed;
    RETURN_IF_NOT_OK(entry_matches(&renewed, target, weights, false, f));
    if (!renewed)
        return json_append_text(kept, target) ? QOBS_OK : NO_MEMORY(f, "quantization_config");
    RETURN_IF_NOT_OK(matcher_create(&m, &target, 1, "quantization_config", f));
    for (size_t i = 0; i < weights->count; i++)
        if (weights->items[i].reason == WEIGHT_KEPT && matches(m, &weights->items[i]))
            RETURN_IF_NOT_OK(add_module(kept, &weights->items[i], f));
    return QOBS_OK;
}

/* Replaces the targets of a group, and gives it the format that older files state once for all groups. */
static int keep_group(json_object *group, const json_object *config, const struct weights *weights, struct fail *f)
{
    const char *format = json_text(json_get(config, "format"));
    OWNED_JSON json_object *kept = json_object_new_array();
    json_each(target, json_get(group, "targets"))
    {
        if (json_is_string(target.value))
            RETURN_IF_NOT_OK(keep_target(kept, json_text(target.value), weights, f));
    }
    const bool complete = kept && json_put(group, "targets", json_object_get(kept)) &&
                          (!format || json_get(group, "format") || json_put_text(group, "format", format));
    return complete ? QOBS_OK : NO_MEMORY(f, "quantization_config");
}

/* Returns how well a group matches: 3 by name, 2 by pattern, 1 by class, 0 not at all. */
static int rank(const struct matcher *m, const struct weight *w)
{
    char name[1024];
    if (w->module < sizeof name) {
        memcpy(name, w->name, w->module);
        name[w->module] = '\0';
        if (matcher_has(m, name))
            return 3;
    }
    return matches(m, w) ? 2 : matcher_has(m, "Linear") ? 1 : 0;
}

/* The place of a weight that stays in the earlier configuration. */
enum home { HOME_GROUP, HOME_NONE, HOME_IGNORED };

static enum home home_of(const struct quant_matchers *m, const struct weight *w, size_t *group)
{
    int best = 0;
    for (size_t g = 0; g < m->count; g++)
        if (rank(m->groups[g], w) > best) {
            *group = g;
            best = rank(m->groups[g], w);
        }
    return best == 0 ? HOME_NONE : matches(m->ignore, w) ? HOME_IGNORED : HOME_GROUP;
}

/* Fails with all weights that stay and have this home. */
static int refuse_homes(const struct quant_matchers *m, const struct weights *weights, enum home home, struct fail *f)
{
    struct layer_words l;
    size_t group;
    OWNED bool *marked = calloc(weights->count, sizeof *marked);
    if (!marked)
        return NO_MEMORY(f, "the layers");
    for (size_t i = 0; i < weights->count; i++)
        marked[i] = weights->items[i].reason == WEIGHT_KEPT && home_of(m, &weights->items[i], &group) == home;
    layer_words_make(&l, weights, marked);
    return INVALID(f,
                   "%s: %s quantized, but the quantization_config of the model %s %s. A target quantizes %s anew, "
                   "--ignore '%s' leaves %s out",
                   l.names, IS_OR_ARE(&l), home == HOME_NONE ? "does not target" : "ignores", IT_OR_THEM(&l),
                   IT_OR_THEM(&l), l.entry, IT_OR_THEM(&l));
}

/* Marks the groups that weights have which stay. Fails if one has none. */
static int mark_groups(bool *used, const struct quant_matchers *m, const struct weights *weights, struct fail *f)
{
    for (size_t i = 0; i < weights->count; i++) {
        size_t group = 0;
        if (weights->items[i].reason != WEIGHT_KEPT)
            continue;
        const enum home home = home_of(m, &weights->items[i], &group);
        if (home != HOME_GROUP)
            return refuse_homes(m, weights, home, f);
        used[group] = true;
    }
    return QOBS_OK;
}

/* Keeps the groups that weights have, with targets that match no other ones. */
static int keep_groups(json_object *config, const struct weights *weights, struct fail *f)
{
    const json_object *groups = json_get(config, "config_groups");
    OWNED_JSON json_object *kept = json_object_new_object();
    OWNED bool *used = calloc(json_count(groups) + 1, sizeof *used);
    RELEASED_BY(quant_matchers_free) struct quant_matchers m = {0};
    m.groups = calloc(json_count(groups) + 1, sizeof(struct matcher *));
    size_t g = 0;
    if (!kept || !used || !m.groups)
        return NO_MEMORY(f, "the groups");
    RETURN_IF_NOT_OK(make_matcher(&m.ignore, json_get(config, "ignore"), f));
    json_each(group, groups) RETURN_IF_NOT_OK(make_matcher(&m.groups[m.count++], json_get(group.value, "targets"), f));
    RETURN_IF_NOT_OK(mark_groups(used, &m, weights, f));
    json_each(group, groups)
    {
        if (!used[g++])
            continue;
        RETURN_IF_NOT_OK(keep_group(group.value, config, weights, f));
        if (!json_put(kept, group.key, json_object_get(group.value)))
            return NO_MEMORY(f, "the groups");
    }
    return json_put(config, "config_groups", json_object_get(kept)) ? QOBS_OK : NO_MEMORY(f, "the groups");
}

/* ---- The ignore list --------------------------------------------------------------------------------------------- */

/* Adds an entry that matches no quantized weight, old or new, unless it is there. */
static int keep_entry(json_object *list, const char *entry, const struct weights *weights, struct fail *f)
{
    bool drops;
    RETURN_IF_NOT_OK(entry_matches(&drops, entry, weights, true, f));
    json_each(item, list) drops |= strcmp(json_text(item.value), entry) == 0;
    return drops || json_append_text(list, entry) ? QOBS_OK : NO_MEMORY(f, "the ignore list");
}

/* Adds the matrices that are not quantized and that the list does not match: any target may claim them. */
static int add_plain(json_object *list, const struct weights *weights, struct fail *f)
{
    OWNED_MATCHER struct matcher *m = NULL;
    RETURN_IF_NOT_OK(make_matcher(&m, list, f));
    for (size_t i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->items[i];
        if (w->reason != WEIGHT_TAKEN && w->reason != WEIGHT_KEPT && w->reason != WEIGHT_NOT_A_WEIGHT && w->ndim == 2 &&
            !matches(m, w))
            RETURN_IF_NOT_OK(add_module(list, w, f));
    }
    return QOBS_OK;
}

/* Puts the ignore list of the model before that of the run. */
static int merge_ignore(struct selection *selection, struct fail *f)
{
    OWNED_JSON json_object *list = json_object_new_array();
    if (!list)
        return NO_MEMORY(f, "the ignore list");
    json_each(item, json_get(selection->existing_config, "ignore"))
    {
        if (json_is_string(item.value))
            RETURN_IF_NOT_OK(keep_entry(list, json_text(item.value), &selection->weights, f));
    }
    for (size_t i = 0; i < selection->config.ignore_count; i++)
        RETURN_IF_NOT_OK(keep_entry(list, selection->config.ignore[i], &selection->weights, f));
    RETURN_IF_NOT_OK(add_plain(list, &selection->weights, f));
    quant_config_clear_ignore(&selection->config);
    json_each(item, list) RETURN_IF_NOT_OK(quant_config_add_ignore(&selection->config, json_text(item.value), f));
    return QOBS_OK;
}

/* ---- Codes ------------------------------------------------------------------------------------------------------- */

static int merge(struct selection *selection, struct fail *f)
{
    selection->config.ignore_is_complete = true;
    if (!selection->existing_config)
        return QOBS_OK;
    RETURN_IF_NOT_OK(keep_groups(selection->existing_config, &selection->weights, f));
    return merge_ignore(selection, f);
}

int existing_config_merge(struct selection *selection, struct fail *f)
{
    const bool compatible = selection->config.compat != QOBS_COMPAT_VLLM;
    const json_object *config = find_config(selection);
    bool kept = false, dequantized = false;
    for (size_t i = 0; i < selection->weights.count; i++) {
        struct weight *w = &selection->weights.items[i];
        const struct quant_format_row *format = w->source_codes.format;
        if (!format)
            continue;
        const bool keep =
            compatible ? w->reason != WEIGHT_TAKEN : w->reason == WEIGHT_NOT_TARGETED && config && format->name;
        if (keep)
            RETURN_IF_NOT_OK(weight_keep_codes(w, f));
        if (keep && !compatible)
            w->reason = WEIGHT_KEPT;
        kept |= keep;
        dequantized |= !keep;
    }
    if (kept && !compatible) { /* names have changed */
        weights_sort(&selection->weights);
        RETURN_IF_NOT_OK(weights_find_sets(&selection->weights, &selection->inputs->architectures, f));
    }
    if (config && !(dequantized && (compatible || !kept)) && !(selection->existing_config = json_copy(config)))
        return NO_MEMORY(f, "quantization_config");
    if (compatible)
        return QOBS_OK;
    RETURN_IF_NOT_OK(merge(selection, f));
    return existing_config_keep_cache(selection, f);
}
