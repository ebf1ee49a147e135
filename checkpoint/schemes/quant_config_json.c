/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Writes quantization_config as model_free_ptq of a release of llm-compressor writes it. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "files/text.h"
#include "schemes/match.h"
#include "schemes/quant_config.h"

/* A tree that is being built; after the first failure nothing is added. */
struct tree {
    const struct quant_release *release;
    bool failed;
};

static void add_or_null(struct tree *t, json_object *object, const char *key, json_object *item)
{
    t->failed |= !json_put(object, key, item);
}

static void add(struct tree *t, json_object *object, const char *key, json_object *item)
{
    t->failed |= !item;
    add_or_null(t, object, key, item);
}

static void add_text(struct tree *t, json_object *object, const char *key, const char *text)
{
    t->failed |= !json_put_text(object, key, text);
}

static void add_texts(struct tree *t, json_object *object, const char *key, char *const *list, size_t count)
{
    json_object *array = json_put_array(object, key);
    t->failed |= !array;
    for (size_t i = 0; i < count; i++)
        t->failed |= !json_append_text(array, list[i]);
}

static void add_args(struct tree *t, json_object *object, const char *key, bool has, const struct quant_args *args)
{
    if (has)
        add(t, object, key, quant_args_json(args, t->release->omits_unset));
    else
        add_or_null(t, object, key, NULL);
}

static json_object *group_json(struct tree *t, const struct quant_group *g)
{
    json_object *json = json_object_new_object();
    add_texts(t, json, "targets", g->targets, g->target_count);
    add_text(t, json, "format", g->used ? quant_format_name(g->format) : NULL);
    add_args(t, json, "weights", g->has_weights, &g->weights);
    add_args(t, json, "input_activations", g->has_inputs, &g->inputs);
    add_args(t, json, "output_activations", g->has_outputs, &g->outputs);
    return json;
}

/* Returns the one format of the groups, "mixed-precision" for several, "dense" for none. */
static const char *joint_format(const json_object *groups)
{
    const char *format = NULL;
    json_each(group, groups)
    {
        const char *other = json_text(json_get(group.value, "format"));
        if (format && other && strcmp(format, other) != 0)
            return QUANT_FORMAT_OF_SEVERAL;
        format = other ? other : format;
    }
    return format ? format : QUANT_FORMAT_OF_NONE;
}

static void omit_unset_of_group(json_object *group)
{
    static const char *const members[] = {"weights", "input_activations", "output_activations"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        quant_args_omit_unset(json_get(group, members[i]));
}

/* Adds the groups under free names, those of an existing configuration first. */
static json_object *groups_json(struct tree *t, const struct quant_config *config, const json_object *existing)
{
    const json_object *before = json_get(existing, "config_groups");
    json_object *groups = before ? json_copy(before) : json_object_new_object();
    if (t->release->omits_unset)
        json_each(group, groups) omit_unset_of_group(group.value);
    for (size_t i = 0; i < config->group_count; i++) {
        char name[160];
        const struct quant_group *g = &config->groups[i];
        snprintf(name, sizeof name, "%.100s", g->changed ? "config_group_0" : g->name);
        for (int k = 1; json_has(groups, name); k++)
            snprintf(name, sizeof name, "config_group_%d", k);
        add(t, groups, name, group_json(t, g));
    }
    return groups;
}

/* Adds the existing ignore list without the names that the new targets name. */
static void add_merged_ignore(struct tree *t, json_object *json, const struct quant_config *config,
                              const json_object *existing)
{
    const json_object *before = json_get(existing, "ignore");
    json_object *kept = json_put_array(json, "ignore");
    struct fail f;
    RELEASED_BY(quant_matchers_free) struct quant_matchers m = {0};
    t->failed |= quant_matchers_create(&m, config, &f) != 0;
    json_each(item, before)
    {
        bool targeted = false;
        const char *entry = json_text(item.value);
        if (!entry)
            continue;
        for (size_t g = 0; g < m.count && strncmp(entry, "re:", 3) != 0; g++)
            targeted |= matcher_find(m.groups[g], entry, strlen(entry)) >= 0;
        t->failed |= !targeted && !json_append_text(kept, entry);
    }
}

json_object *quant_config_json(const struct quant_config *config, const json_object *existing)
{
    struct tree t = {.release = quant_release_of(config->compat)};
    json_object *json = json_object_new_object();
    if (!json_get(existing, "config_groups"))
        existing = NULL;
    const bool own_kv_cache = config->ignore_is_complete && config->has_kv_cache;
    const json_object *kv_cache = own_kv_cache ? NULL : json_get(existing, "kv_cache_scheme");
    json_object *groups = groups_json(&t, config, existing);
    add_text(&t, json, "quant_method", "compressed-tensors");
    add_text(&t, json, "version", t.release->compressed_tensors);
    add_text(&t, json, "format", joint_format(groups));
    add_text(&t, json, "quantization_status", "compressed");
    add_text(&t, json, "global_compression_ratio", NULL);
    if (existing && !config->ignore_is_complete)
        add_merged_ignore(&t, json, config, existing);
    else
        add_texts(&t, json, "ignore", config->ignore, config->ignore_count);
    json_object *kept = kv_cache ? json_copy(kv_cache) : NULL;
    if (t.release->omits_unset)
        quant_args_omit_unset(kept);
    if (kv_cache)
        add(&t, json, "kv_cache_scheme", kept);
    else
        add_args(&t, json, "kv_cache_scheme", config->has_kv_cache, &config->kv_cache);
    if (t.release->omits_unset) /* the release that omits them has added this member */
        add_text(&t, json, "moe_sparsity_config", NULL);
    add(&t, json, "transform_config", json_object_new_object());
    add(&t, json, "config_groups", groups);
    if (!t.failed)
        return json;
    json_object_put(json);
    return NULL;
}
