/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Writes quantization_config as model_free_ptq of llm-compressor 0.14 writes it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schemes/match.h"
#include "schemes/quant_config.h"

/* A tree that is being built; after the first failure nothing is added. */
struct tree {
    bool failed;
};

static void add(struct tree *t, cJSON *object, const char *key, cJSON *item)
{
    if (object && item && cJSON_AddItemToObject(object, key, item))
        return;
    cJSON_Delete(item);
    t->failed = true;
}

/* cJSON takes no list that is NULL. */
static cJSON *texts(char *const *list, size_t count)
{
    return count > 0 ? cJSON_CreateStringArray((const char *const *)list, (int)count) : cJSON_CreateArray();
}

static cJSON *args_or_null(bool has, const struct quant_args *args)
{
    return has ? quant_args_json(args) : cJSON_CreateNull();
}

static cJSON *group_json(struct tree *t, const struct quant_group *g)
{
    const char *format = g->used ? quant_format_name(g->format) : NULL;
    cJSON *json = cJSON_CreateObject();
    add(t, json, "targets", texts(g->targets, g->target_count));
    add(t, json, "format", format ? cJSON_CreateString(format) : cJSON_CreateNull());
    add(t, json, "weights", args_or_null(g->has_weights, &g->weights));
    add(t, json, "input_activations", args_or_null(g->has_inputs, &g->inputs));
    add(t, json, "output_activations", args_or_null(g->has_outputs, &g->outputs));
    return json;
}

/* Returns the one format of the groups, "mixed-precision" for several, "dense" for none. */
static const char *joint_format(const cJSON *groups)
{
    const char *format = NULL;
    const cJSON *group;
    cJSON_ArrayForEach(group, groups)
    {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(group, "format");
        if (!cJSON_IsString(item))
            continue;
        if (format && strcmp(format, item->valuestring) != 0)
            return "mixed-precision";
        format = item->valuestring;
    }
    return format ? format : "dense";
}

/* Adds the groups under free names, those of an earlier configuration first. */
static cJSON *groups_json(struct tree *t, const struct quant_config *config, const cJSON *earlier)
{
    const cJSON *before = cJSON_GetObjectItemCaseSensitive(earlier, "config_groups");
    cJSON *groups = before ? cJSON_Duplicate(before, 1) : cJSON_CreateObject();
    for (size_t i = 0; i < config->group_count; i++) {
        char name[160];
        snprintf(name, sizeof name, "%.100s", config->groups[i].name);
        for (int k = 1; cJSON_GetObjectItemCaseSensitive(groups, name); k++)
            snprintf(name, sizeof name, "config_group_%d", k);
        add(t, groups, name, group_json(t, &config->groups[i]));
    }
    return groups;
}

/* Returns the earlier ignore list without the names that the new targets name, and the new one if both are joined. */
static cJSON *merged_ignore(struct tree *t, const struct quant_config *config, const cJSON *earlier)
{
    const cJSON *before = cJSON_GetObjectItemCaseSensitive(earlier, "ignore"), *item;
    cJSON *kept = cJSON_CreateArray();
    struct fail f;
    cJSON_ArrayForEach(item, before)
    {
        bool targeted = false;
        if (!cJSON_IsString(item))
            continue;
        for (size_t g = 0; g < config->group_count && strncmp(item->valuestring, "re:", 3) != 0; g++) {
            struct matcher *m;
            const struct quant_group *group = &config->groups[g];
            if (matcher_create(&m, (const char *const *)group->targets, group->target_count, "targets", &f) != 0) {
                t->failed = true;
                continue;
            }
            targeted |= matcher_find(m, item->valuestring, strlen(item->valuestring)) >= 0;
            matcher_free(m);
        }
        if (!targeted && !cJSON_AddItemToArray(kept, cJSON_Duplicate(item, 1)))
            t->failed = true;
    }
    for (size_t i = 0; config->joins_ignore && i < config->ignore_count; i++) {
        bool there = false;
        cJSON_ArrayForEach(item, kept) { there |= strcmp(item->valuestring, config->ignore[i]) == 0; }
        if (!there && !cJSON_AddItemToArray(kept, cJSON_CreateString(config->ignore[i])))
            t->failed = true;
    }
    return kept;
}

cJSON *quant_config_json(const struct quant_config *config, const cJSON *earlier)
{
    struct tree t = {0};
    cJSON *json = cJSON_CreateObject();
    if (!cJSON_GetObjectItemCaseSensitive(earlier, "config_groups"))
        earlier = NULL;
    const cJSON *kv_cache = cJSON_GetObjectItemCaseSensitive(earlier, "kv_cache_scheme");
    cJSON *groups = groups_json(&t, config, earlier);
    add(&t, json, "quant_method", cJSON_CreateString("compressed-tensors"));
    add(&t, json, "version", cJSON_CreateString("0.19.0"));
    add(&t, json, "format", cJSON_CreateString(joint_format(groups)));
    add(&t, json, "quantization_status", cJSON_CreateString("compressed"));
    add(&t, json, "global_compression_ratio", cJSON_CreateNull());
    add(&t, json, "ignore", earlier ? merged_ignore(&t, config, earlier) : texts(config->ignore, config->ignore_count));
    add(&t, json, "kv_cache_scheme",
        kv_cache ? cJSON_Duplicate(kv_cache, 1) : args_or_null(config->has_kv_cache, &config->kv_cache));
    add(&t, json, "transform_config", cJSON_CreateObject());
    add(&t, json, "config_groups", groups);
    if (!t.failed)
        return json;
    cJSON_Delete(json);
    return NULL;
}
