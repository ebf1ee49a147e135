/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Recipes of llm-compressor: YAML, of which JSON is a part, becomes a tree of JSON. Modifiers stand in stages, in
 * groups named "..._modifiers", or alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "files/file_kind.h"
#include "files/json.h"
#include "files/mapped.h"
#include "files/suggest.h"
#include "files/text.h"
#include "schemes/quant_config.h"

/* Aliases let a small file mean a large tree, so that the tree is limited. */
enum { MAX_BYTES = 1 << 20, MAX_VALUES = 1 << 16, MAX_DEPTH = 32 };

/* ---- YAML -------------------------------------------------------------------------------------------------------- */

struct yaml_tree {
    yaml_document_t document;
    int values;
    const char *problem; /* NULL: none */
};

/* Integers are what JSON calls so; other numbers keep their text. */
static json_object *number_of(const char *text)
{
    json_object *value;
    return json_parse_value(&value, text) == 0 ? value : json_exact_number(text);
}

/* The value of a plain scalar; quoted ones are strings. */
static json_object *scalar_of(struct yaml_tree *tree, const yaml_node_t *node)
{
    const char *text = (const char *)node->data.scalar.value;
    char *end;
    const bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 || strcmp(text, "None") == 0))
        return NULL;
    const bool yes = strcmp(text, "true") == 0 || strcmp(text, "True") == 0;
    const bool no = strcmp(text, "false") == 0 || strcmp(text, "False") == 0;
    const bool digits = strspn(text, "+-.0123456789eE") == strlen(text) && strpbrk(text, "0123456789");
    json_object *value = plain && (yes || no)                             ? json_object_new_boolean(yes)
                         : plain && digits && (strtod(text, &end), !*end) ? number_of(text)
                                                                          : json_object_new_string(text);
    if (!value)
        tree->problem = "no memory";
    return value;
}

static json_object *value_of(struct yaml_tree *tree, int index, int depth);

static json_object *sequence_of(struct yaml_tree *tree, const yaml_node_t *node, int depth)
{
    json_object *array = json_object_new_array();
    for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top && !tree->problem;
         i++)
        if (!json_append(array, value_of(tree, *i, depth + 1)) && !tree->problem)
            tree->problem = "no memory";
    return array;
}

static json_object *mapping_of(struct yaml_tree *tree, const yaml_node_t *node, int depth)
{
    json_object *object = json_object_new_object();
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top && !tree->problem;
         p++) {
        const yaml_node_t *key = yaml_document_get_node(&tree->document, p->key);
        if (!key || key->type != YAML_SCALAR_NODE) {
            tree->problem = "a key is no text";
            break;
        }
        const char *name = (const char *)key->data.scalar.value;
        if (json_has(object, name)) {
            tree->problem = "a key occurs twice";
            break;
        }
        if (!json_put(object, name, value_of(tree, p->value, depth + 1)) && !tree->problem)
            tree->problem = "no memory";
    }
    return object;
}

static json_object *value_of(struct yaml_tree *tree, int index, int depth)
{
    const yaml_node_t *node = yaml_document_get_node(&tree->document, index);
    if (depth > MAX_DEPTH || ++tree->values > MAX_VALUES)
        tree->problem = depth > MAX_DEPTH ? "more than 32 levels deep" : "more than 65536 values";
    if (!node || tree->problem)
        return NULL;
    return node->type == YAML_SCALAR_NODE     ? scalar_of(tree, node)
           : node->type == YAML_SEQUENCE_NODE ? sequence_of(tree, node, depth)
                                              : mapping_of(tree, node, depth);
}

static int parse_yaml(json_object **json, const struct mapped *map, struct fail *f)
{
    yaml_parser_t parser;
    struct yaml_tree tree = {0};
    *json = NULL;
    if (map->size > MAX_BYTES)
        return fail(f, "%s: has %zu bytes; a recipe has at most %d", map->path, map->size, MAX_BYTES);
    if (!yaml_parser_initialize(&parser))
        return fail_system(f, "%s: no memory for its contents", map->path);
    yaml_parser_set_input_string(&parser, map->data, map->size);
    if (!yaml_parser_load(&parser, &tree.document)) {
        const int status = fail(f, "%s: cannot be read as YAML: %s in line %zu", map->path,
                                parser.problem ? parser.problem : "no memory", parser.problem_mark.line + 1);
        yaml_parser_delete(&parser);
        return status;
    }
    *json = yaml_document_get_root_node(&tree.document) ? value_of(&tree, 1, 0) : NULL;
    yaml_document_delete(&tree.document);
    yaml_parser_delete(&parser);
    if (*json && !tree.problem)
        return 0;
    json_object_put(*json);
    *json = NULL;
    return fail(f, "%s: cannot be read as a recipe: %s", map->path, tree.problem ? tree.problem : "it is empty");
}

/* ---- Modifiers --------------------------------------------------------------------------------------------------- */

/* Adds the groups of "scheme": the name of a preset, or presets with their targets. */
static int add_schemes(struct quant_config *config, const json_object *modifier, const char *path, struct fail *f)
{
    const json_object *scheme = json_get(modifier, "scheme");
    if (!scheme)
        return 0;
    if (json_is_string(scheme))
        return quant_config_read_scheme(config, json_text(scheme), json_get(modifier, "targets"), path, f);
    if (!json_is_object(scheme))
        return fail(f, "%s: scheme must be a name, or names with lists of targets", path);
    json_each(item, scheme) { RETURN_IF_NOT_OK(quant_config_read_scheme(config, item.key, item.value, path, f)); }
    return 0;
}

/* The observers of weights, inputs and outputs, which replace those of the groups. */
static const char *const observer_keys[] = {"weight_observer", "input_observer", "output_observer"};

/* Gives the groups from `first` on the observers of the modifier. */
static int override_observers(struct quant_config *config, size_t first, const json_object *modifier, const char *path,
                              struct fail *f)
{
    static const char *const members[] = {"weights", "input", "output"};
    const json_object *all = json_get(modifier, "observer");
    if (all && !json_is_object(all))
        return fail(f, "%s: observer is no mapping; weights, input and output with observers are needed", path);
    json_each(item, all)
    {
        if (!is_one_of(item.key, "weights input output"))
            return fail(f, "%s: observer has '%.80s'; weights, input and output are read", path, item.key);
    }
    for (int k = 0; k < 3; k++) {
        const json_object *alone = json_get(modifier, observer_keys[k]);
        const json_object *name = all ? json_get(all, members[k]) : alone;
        if (alone && all)
            return fail(f, "%s: has %s and observer; one of them is needed", path, observer_keys[k]);
        if (name && !json_is_string(name))
            return fail(f, "%s: the observer of %s must be a text", path, members[k]);
        bool used = false;
        for (size_t i = first; name && i < config->group_count; i++) {
            struct quant_group *g = &config->groups[i];
            struct quant_args *args = k == 0 ? &g->weights : k == 1 ? &g->inputs : &g->outputs;
            const bool has = k == 0 ? g->has_weights : k == 1 ? g->has_inputs : g->has_outputs;
            if (!has || args->dynamic == QUANT_DYNAMIC)
                continue;
            used = true;
            RETURN_IF_NOT_OK(quant_args_set(args, "observer", json_text(name), f));
        }
        if (name && !used)
            RETURN_IF_NOT_OK(quant_config_add_note(config, f,
                                                   "recipe: the observer of %s changes nothing here: no "
                                                   "scheme stores their scales",
                                                   members[k]));
    }
    return 0;
}

/* Members that say when a modifier acts, or what it checks. They change nothing here. */
static const char idle_keys[] = "bypass_divisibility_checks start end index group update";

static int refuse_key(const char *key, const char *path, struct fail *f)
{
    static const char *const known[] = {"scheme",          "targets",  "ignore",          "config_groups",
                                        "kv_cache_scheme", "observer", "weight_observer", "input_observer",
                                        "output_observer", NULL};
    char hint[HINT_SIZE];
    return fail(f, "%s: QuantizationModifier has '%.80s'%s", path, key,
                *did_you_mean(hint, key, known)
                    ? hint
                    : "; scheme, targets, ignore, config_groups, kv_cache_scheme, observer, "
                      "weight_observer, input_observer and output_observer are read");
}

/* Targets beside groups are those of no scheme; all linear layers are the default, which says nothing. */
static int name_idle_targets(struct quant_config *config, const json_object *modifier, const char *path, struct fail *f)
{
    const json_object *targets = json_get(modifier, "targets"), *first = json_at(targets, 0);
    const char *text = json_text(json_is_array(targets) && json_count(targets) == 1 ? first : targets);
    if (!targets || json_is_string(json_get(modifier, "scheme")) || (text && strcmp(text, "Linear") == 0))
        return 0;
    return quant_config_add_unused(config, f,
                                   "%.200s: targets change nothing here; they belong to a scheme by name, "
                                   "and groups have their own",
                                   path);
}

static int check_keys(struct quant_config *config, const json_object *modifier, const char *path, struct fail *f)
{
    static const char known[] = "scheme targets ignore config_groups kv_cache_scheme observer weight_observer "
                                "input_observer output_observer";
    json_each(item, modifier)
    {
        if (!item.value || is_one_of(item.key, known))
            continue;
        if (!is_one_of(item.key, idle_keys))
            return refuse_key(item.key, path, f);
        if (!json_is_bool(item.value) || json_is_true(item.value))
            RETURN_IF_NOT_OK(quant_config_add_note(config, f, "recipe: %.80s changes nothing here", item.key));
    }
    return 0;
}

static int add_quantization(struct quant_config *config, const json_object *modifier, const char *path, struct fail *f)
{
    const size_t first = config->group_count;
    if (!json_is_object(modifier))
        return fail(f, "%s: QuantizationModifier is no mapping; members such as scheme and targets are needed", path);
    RETURN_IF_NOT_OK(check_keys(config, modifier, path, f));
    RETURN_IF_NOT_OK(name_idle_targets(config, modifier, path, f));
    RETURN_IF_NOT_OK(add_schemes(config, modifier, path, f));
    const bool whole = json_get(modifier, "config_groups") || json_get(modifier, "kv_cache_scheme");
    RETURN_IF_NOT_OK(
        (whole ? quant_config_parse : quant_config_read_ignore)(config, modifier, path, f)); /* both ignore */
    return override_observers(config, first, modifier, path, f);
}

/* Returns true if there is a modifier at any level. */
static bool has_modifier(const json_object *json)
{
    bool found = false;
    json_each(item, json) found |= (item.key && ends_with(item.key, "Modifier")) || has_modifier(item.value);
    return found;
}

/* Names a member that stands beside modifiers and is none of a stage. */
static int name_stray(struct quant_config *config, const char *key, const char *path, struct fail *f)
{
    if (is_one_of(key, "run_type version"))
        return 0;
    return quant_config_add_unused(config, f,
                                   "%.200s: '%.80s' stands outside of QuantizationModifier and changes "
                                   "nothing",
                                   path, key);
}

/* Finds the modifiers at any level. */
static int add_modifiers(struct quant_config *config, const json_object *json, const char *path, struct fail *f)
{
    json_each(item, json)
    {
        const bool modifier = item.key && ends_with(item.key, "Modifier");
        if (modifier && strcmp(item.key, "GPTQModifier") == 0)
            return fail(f, "%s: there is no GPTQModifier here; near it is " DESCENT_WAY, path);
        if (modifier && strcmp(item.key, "QuantizationModifier") != 0)
            return fail(f, "%s: has %.80s, which needs data that runs through the model; QuantizationModifier is read",
                        path, item.key);
        if (item.key && !json_is_object(item.value) && !has_modifier(item.value) && has_modifier(json))
            RETURN_IF_NOT_OK(name_stray(config, item.key, path, f));
        RETURN_IF_NOT_OK((modifier ? add_quantization : add_modifiers)(config, item.value, path, f));
    }
    return 0;
}

int quant_config_read_recipe(struct quant_config *config, const char *path, struct fail *f)
{
    RELEASED_BY(mapped_close) struct mapped map;
    OWNED_JSON json_object *json = NULL;
    RETURN_IF_NOT_OK(mapped_open_whole(&map, path, f));
    RETURN_IF_NOT_OK(file_kind_refuse(path, map.data, map.size, f));
    RETURN_IF_NOT_OK(parse_yaml(&json, &map, f));
    RETURN_IF_NOT_OK(add_modifiers(config, json, path, f));
    return config->group_count > 0 || config->has_kv_cache
               ? 0
               : fail(f, "%s: has no QuantizationModifier with a scheme, config_groups or kv_cache_scheme", path);
}
