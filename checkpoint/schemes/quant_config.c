/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads and completes quantization_config. quant_config_json.c writes it. */
#include "schemes/quant_config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "files/json.h"
#include "files/suggest.h"
#include "files/text.h"
#include "schemes/gguf_mixtures.h"
#include "schemes/match.h"

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

static struct quant_group *add_group(struct quant_config *config, const char *name, struct fail *f)
{
    struct quant_group *group = list_add(&config->groups, &config->group_count, sizeof *group);
    if (group && (group->name = strdup(name)))
        return group;
    fail_system(f, "no memory for the groups");
    return NULL;
}

static int add_text(char ***list, size_t *count, const char *text, struct fail *f)
{
    char **added = list_add(list, count, sizeof *added);
    return added && (*added = strdup(text)) ? 0 : fail_system(f, "no memory for a list of names");
}

int quant_config_add_ignore(struct quant_config *config, const char *entry, struct fail *f)
{
    return add_text(&config->ignore, &config->ignore_count, entry, f);
}

/* Defines a function that adds a formatted text to a list of the configuration. */
#define ADDER(function, list, count)                                                                                   \
    int function(struct quant_config *config, struct fail *f, const char *format, ...)                                 \
    {                                                                                                                  \
        char text[768];                                                                                                \
        va_list values;                                                                                                \
        va_start(values, format);                                                                                      \
        vsnprintf(text, sizeof text, format, values);                                                                  \
        va_end(values);                                                                                                \
        make_printable(text);                                                                                          \
        return add_text(&config->list, &config->count, text, f);                                                       \
    }
ADDER(quant_config_add_note, notes, note_count)
ADDER(quant_config_add_unused, unused, unused_count)

bool quant_config_report_unused(const struct quant_config *config, json_object *report)
{
    json_object *array = json_put_array(report, "unused");
    bool good = array != NULL;
    for (size_t i = 0; i < config->unused_count; i++)
        good = good && json_append_text(array, config->unused[i]);
    return good;
}

/* In any case. */
static bool has_word(const char *text, const char *word)
{
    while (*text && strncasecmp(text, word, strlen(word)) != 0)
        text++;
    return *text;
}

/* Names that users write for a scheme, without '-' and '_', and the scheme. */
static const struct {
    const char *word, *scheme;
} OTHER_NAMES[] = {
    {"INT4", "W4A16"}, {"4BIT", "W4A16"}, {"UINT4", "W4A16_ASYM"}, {"FP4", "NVFP4A16"}, {"E4M3", "FP8_DYNAMIC"}};

static const char *scheme_called(const char *text)
{
    char word[16];
    size_t length = 0;
    for (; *text && length < sizeof word - 1; text++)
        if (*text != '-' && *text != '_')
            word[length++] = *text;
    word[length] = '\0';
    for (size_t i = 0; i < sizeof OTHER_NAMES / sizeof *OTHER_NAMES; i++)
        if (strcasecmp(word, OTHER_NAMES[i].word) == 0)
            return OTHER_NAMES[i].scheme;
    return NULL;
}

static int unknown_scheme(const char *scheme, struct fail *f)
{
    const struct gguf_scheme *gguf;
    char known[120] = ""; /* messages of the library have 256 bytes */
    for (size_t i = 0; scheme_preset_at(i) && strlen(known) < sizeof known - 20; i++)
        text_append(known, sizeof known, "%s, ", scheme_preset_at(i)->name);
    if (has_word(scheme, "GPTQ") || has_word(scheme, "AWQ"))
        return fail(f, "scheme: '%.20s': its format is --dialect %s; near it is --scheme W4A16 " DESCENT_WAY, scheme,
                    has_word(scheme, "GPTQ") ? "gptq" : "awq");
    if (gguf_scheme_find(&gguf, scheme, NULL) == 0)
        return fail(f,
                    "scheme: '%.40s' is one of GGUF files: quantize takes it for a .gguf, which convert_hf_to_gguf.py "
                    "of llama.cpp makes of a model",
                    scheme);
    if (scheme_called(scheme))
        return fail(f, "scheme: '%.40s' does not exist here; near it is %s", scheme, scheme_called(scheme));
    return fail(f, "scheme: '%.40s' is unknown; known are %s...", scheme, known);
}

/* Copies a preset into a group. */
static int use_preset(struct quant_group *group, const char *scheme, struct fail *f)
{
    const struct scheme_preset *preset = scheme_preset_find(scheme);
    if (!preset)
        return unknown_scheme(scheme, f);
    group->has_weights = true;
    RETURN_IF_NOT_OK(quant_args_copy(&group->weights, preset->weights, f));
    group->has_inputs = preset->inputs != NULL;
    if (!preset->inputs)
        return 0;
    RETURN_IF_NOT_OK(quant_args_copy(&group->inputs, preset->inputs, f));
    if (preset->inputs->dynamic == QUANT_DYNAMIC)
        return 0;
    /* The observer of upstream's presets with static activations. */
    return text_set(&group->inputs.observer, "static_minmax") ? 0 : fail_system(f, "no memory for a scheme");
}

int quant_config_add_scheme(struct quant_config *config, const char *scheme, const char *const *targets,
                            size_t target_count, struct fail *f)
{
    struct quant_group *group = add_group(config, scheme, f);
    if (!group)
        return failure_status(f);
    RETURN_IF_NOT_OK(use_preset(group, scheme, f));
    for (size_t i = 0; i < target_count; i++)
        RETURN_IF_NOT_OK(add_text(&group->targets, &group->target_count, targets[i], f));
    return target_count > 0 ? 0 : add_text(&group->targets, &group->target_count, "Linear", f);
}

/* Copies a scheme without what made its numbers. */
static int copy_scheme(struct quant_args *to, const struct quant_args *from, struct fail *f)
{
    struct quant_args bare = *from;
    bare.actorder = bare.observer = NULL;
    bare.observer_kwargs = NULL;
    return quant_args_copy(to, &bare, f);
}

int quant_config_add_copy(struct quant_config *config, const struct quant_group *from, const char *target,
                          struct fail *f)
{
    size_t i = 0;
    while (scheme_preset_at(i) && !quant_group_has_preset(from, scheme_preset_at(i)))
        i++;
    struct quant_group *g = add_group(config, scheme_preset_at(i) ? scheme_preset_at(i)->name : from->name, f);
    if (!g)
        return failure_status(f);
    g->changed = true;
    g->has_weights = from->has_weights;
    g->has_inputs = from->has_inputs;
    g->has_outputs = from->has_outputs;
    RETURN_IF_NOT_OK(copy_scheme(&g->weights, &from->weights, f));
    RETURN_IF_NOT_OK(copy_scheme(&g->inputs, &from->inputs, f));
    RETURN_IF_NOT_OK(copy_scheme(&g->outputs, &from->outputs, f));
    return add_text(&g->targets, &g->target_count, target, f);
}

int quant_config_add_target(struct quant_group *group, const char *target, struct fail *f)
{
    return add_text(&group->targets, &group->target_count, target, f);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* Reads a text or a list of texts. */
static int read_names(char ***list, size_t *count, const json_object *json, const char *where, const char *key,
                      struct fail *f)
{
    if (!json)
        return 0;
    if (json_is_string(json))
        return add_text(list, count, json_text(json), f);
    if (!json_is_array(json))
        return fail(f, "%s: %s is %s; a list of strings is needed", where, key, JSON_WORDS(json));
    json_each(item, json)
    {
        if (!json_is_string(item.value))
            return fail(f, "%s: %s holds %s; strings are needed", where, key, JSON_WORDS(item.value));
        RETURN_IF_NOT_OK(add_text(list, count, json_text(item.value), f));
    }
    return 0;
}

static int read_args(struct quant_config *config, struct quant_args *args, bool *has, const json_object *object,
                     const char *where, const char *key, struct fail *f)
{
    const json_object *json = json_get(object, key);
    char path[256];
    if (!json)
        return 0;
    snprintf(path, sizeof path, "%.150s: %.60s", where, key);
    *has = true;
    RETURN_IF_NOT_OK(quant_args_read(args, json, path, f));
    return unused_members_of_args(config, args, path, strcmp(key, "weights") == 0, f);
}

int quant_config_set_format(enum quant_format *format, const char *name, const char *where, struct fail *f)
{
    *format = quant_format_find(name);
    return *format ? 0 : fail(f, "%s: format is '%.80s'; known are %s", where, name, FORMAT_WORDS(NULL));
}

/* Reads the member "format" of a group or a configuration. A configuration may have "mixed-precision" and "dense",
 * which say nothing about a group. */
static int read_format(enum quant_format *format, const json_object *json, bool joint, const char *where,
                       struct fail *f)
{
    const json_object *item = json_get(json, "format");
    if (!item)
        return 0;
    if (!json_is_string(item))
        return fail(f, "%s: format is %s; a string is needed", where, JSON_WORDS(item));
    if (joint && quant_format_is_joint(json_text(item)))
        return 0;
    return quant_config_set_format(format, json_text(item), where, f);
}

static int refuse_group_member(const char *key, const char *where, struct fail *f)
{
    static const char *const known[] = {"targets", "weights", "input_activations", "output_activations",
                                        "format",  NULL};
    char hint[HINT_SIZE];
    return fail(f, "%s: has the member '%.80s'%s", where, key,
                *did_you_mean(hint, key, known)
                    ? hint
                    : "; known are targets, weights, input_activations, output_activations and format");
}

/* Reads one entry of config_groups: a scheme, or a list of targets under the name of a preset. */
static int read_group(struct quant_config *config, const char *name, const json_object *json, const char *where,
                      struct fail *f)
{
    char path[256];
    snprintf(path, sizeof path, "%.150s: %.80s", where, name);
    if (json_is_array(json))
        return quant_config_read_scheme(config, name, json, path, f);
    struct quant_group *group = add_group(config, name, f);
    if (!group)
        return failure_status(f);
    json_each(item, json)
    {
        if (!is_one_of(item.key, "targets weights input_activations output_activations format"))
            return refuse_group_member(item.key, path, f);
    }
    RETURN_IF_NOT_OK(read_names(&group->targets, &group->target_count, json_get(json, "targets"), path, "targets", f));
    RETURN_IF_NOT_OK(read_args(config, &group->weights, &group->has_weights, json, path, "weights", f));
    RETURN_IF_NOT_OK(read_args(config, &group->inputs, &group->has_inputs, json, path, "input_activations", f));
    RETURN_IF_NOT_OK(read_args(config, &group->outputs, &group->has_outputs, json, path, "output_activations", f));
    return read_format(&group->format, json, false, path, f);
}

int quant_config_read_ignore(struct quant_config *config, const json_object *json, const char *where, struct fail *f)
{
    return read_names(&config->ignore, &config->ignore_count, json_get(json, "ignore"), where, "ignore", f);
}

int quant_config_read_scheme(struct quant_config *config, const char *scheme, const json_object *targets,
                             const char *where, struct fail *f)
{
    struct quant_group *group = add_group(config, scheme, f);
    if (!group)
        return failure_status(f);
    RETURN_IF_NOT_OK(use_preset(group, scheme, f));
    return read_names(&group->targets, &group->target_count, targets, where, "targets", f);
}

/* Names the format of the configuration if a group from `first` on has another one of its own. */
static int name_format(struct quant_config *config, size_t first, const char *where, struct fail *f)
{
    for (size_t i = first; i < config->group_count && config->format != QUANT_FORMAT_NONE; i++) {
        const struct quant_group *g = &config->groups[i];
        if (g->format != QUANT_FORMAT_NONE && g->format != config->format)
            return quant_config_add_note(config, f, "%.200s: format is %s, but %.80s has %s, which counts", where,
                                         quant_format_name(config->format), g->name, quant_format_name(g->format));
    }
    return 0;
}

int quant_config_parse(struct quant_config *config, const json_object *json, const char *where, struct fail *f)
{
    const json_object *groups = json_get(json, "config_groups");
    const size_t first = config->group_count;
    if (config->group_count == 0 && !json_get(json, "kv_cache_scheme") &&
        (!json_is_object(groups) || json_count(groups) == 0))
        return fail(f, "%s: has no config_groups; an object with a group at least, or a kv_cache_scheme, is needed",
                    where);
    if (groups && !json_is_object(groups))
        return fail(f, "%s: config_groups is %s; an object is needed", where, JSON_WORDS(groups));
    json_each(item, groups) { RETURN_IF_NOT_OK(read_group(config, item.key, item.value, where, f)); }
    RETURN_IF_NOT_OK(quant_config_read_ignore(config, json, where, f));
    RETURN_IF_NOT_OK(read_format(&config->format, json, true, where, f));
    RETURN_IF_NOT_OK(name_format(config, first, where, f));
    return read_args(config, &config->kv_cache, &config->has_kv_cache, json, where, "kv_cache_scheme", f);
}

int quant_config_read(struct quant_config *config, const char *path, struct fail *f)
{
    OWNED_JSON json_object *json;
    RETURN_IF_NOT_OK(json_read(&json, path, "quantization_config", f));
    const json_object *inner = json_get(json, "quantization_config"), *whole = inner ? inner : json;
    RETURN_IF_NOT_OK(quant_config_parse(config, whole, path, f));
    return unused_members_name(config, whole, path, f);
}

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

/* The format that vLLM 0.32 loads. It takes a byte a code for symmetric W8A8 with a scale for each channel or tensor,
 * and no tensor scale packed (_get_scheme_from_parts of its compressed_tensors.py). */
static enum quant_format loaded_format(const struct quant_group *g)
{
    const struct quant_args *w = &g->weights;
    const enum quant_format inferred = quant_format_infer(w, g->has_inputs);
    const bool bytes =
        w->strategy == QUANT_TENSOR || (w->num_bits == quant_format_row(QUANT_INT_QUANTIZED)->code.bits &&
                                        w->symmetric && w->strategy == QUANT_CHANNEL);
    return inferred == QUANT_INT_QUANTIZED && !bytes ? QUANT_PACK : inferred;
}

static int finish_format(struct quant_group *g, enum quant_format of_config, qobs_compat compat, struct fail *f)
{
    const bool compatible = compat != QOBS_COMPAT_VLLM;
    const enum quant_format inferred = quant_format_infer(&g->weights, g->has_inputs);
    if (g->format == QUANT_FORMAT_NONE && !compatible)
        g->format = of_config;
    if (g->format == QUANT_FORMAT_NONE)
        g->format = compatible ? inferred : loaded_format(g);
    const struct quant_release *release = quant_release_of(compat);
    const char *since = quant_format_row(g->format)->since;
    if (compatible && since && strcmp(since, release->compressed_tensors) > 0) /* both have two digits */
        return fail(f, "%s: format is %s, which compressed-tensors has from %s on; that of compat %s is %s", g->name,
                    quant_format_name(g->format), since, release->name, release->compressed_tensors);
    if (quant_format_holds(g->format, &g->weights))
        return 0;
    return fail(f, "%s: format is %s, which does not hold this scheme; allowed are %s", g->name,
                quant_format_name(g->format), FORMAT_WORDS(&g->weights));
}

/* ---- Completion -------------------------------------------------------------------------------------------------- */

/* Drops members that the strategy does not use: compressed-tensors refuses them. */
static void drop_unused(struct quant_args *a)
{
    if (a->strategy != QUANT_GROUP && a->strategy != QUANT_TENSOR_GROUP)
        a->group_size = 0;
    if (a->strategy != QUANT_BLOCK)
        a->block_structure[0] = a->block_structure[1] = 0;
}

/* The same, and asks for those that it does use. */
static int fit_strategy(struct quant_args *a, const char *where, struct fail *f)
{
    const bool grouped = a->strategy == QUANT_GROUP || a->strategy == QUANT_TENSOR_GROUP;
    if (grouped && a->group_size == 0)
        return fail(f, "%s: strategy group needs a group_size above 0", where);
    if (a->strategy == QUANT_BLOCK && a->block_structure[0] == 0)
        return fail(f, "%s: strategy block needs a block_structure such as [128,128]", where);
    drop_unused(a);
    return 0;
}

static int check_weights(const struct quant_group *g, struct fail *f)
{
    const struct quant_args *w = &g->weights;
    if (w->dynamic != QUANT_STATIC)
        return fail(f, "%s: weights: dynamic is not false; weights are quantized once", g->name);
    if (w->strategy == QUANT_TOKEN || w->strategy == QUANT_ATTN_HEAD)
        return fail(f,
                    "%s: weights: the strategy is of activations; tensor, channel, group, block and tensor_group "
                    "are allowed",
                    g->name);
    if (w->type == QUANT_INT && (w->num_bits < 2 || w->num_bits > 8))
        return fail(f, "%s: weights: num_bits is %d; integers of 2 to 8 bits are allowed", g->name, w->num_bits);
    if (w->type == QUANT_FLOAT)
        return quant_format_check_floats(g->format, w, g->name, f);
    if (w->strategy == QUANT_TENSOR_GROUP || w->scale_dtype != FILE_NONE)
        return fail(f, "%s: weights: strategy and scale_dtype are %s and %s; integers have neither", g->name,
                    quant_strategy_name(w->strategy), quant_dtype_name(w->scale_dtype));
    return 0;
}

/* A weight is observed once, so that the moving averages of minmax and mse are those of one batch. model_free_ptq has
 * the name static_mse, which no observer has. */
static int rename_observer(struct quant_args *a, qobs_compat compat, struct fail *f)
{
    const bool mse = a->observer && strcmp(a->observer, "mse") == 0;
    if (!a->observer || (strcmp(a->observer, "minmax") != 0 && !mse))
        return 0;
    const char *name = !mse ? "static_minmax" : compat == QOBS_COMPAT_VLLM ? "memoryless_mse" : "static_mse";
    return text_set(&a->observer, name) ? 0 : fail_system(f, "no memory for a scheme");
}

int quant_config_finish(struct quant_config *config, qobs_compat compat, struct fail *f)
{
    config->compat = compat;
    if (config->group_count == 0 && !config->has_kv_cache)
        return fail(f, "no group of targets: a scheme, a configuration or a recipe is needed");
    drop_unused(&config->kv_cache);
    for (size_t i = 0; i < config->group_count; i++) {
        struct quant_group *g = &config->groups[i];
        if (!g->has_weights)
            return fail(f, "%s: has no scheme for weights", g->name);
        if (g->target_count == 0)
            RETURN_IF_NOT_OK(add_text(&g->targets, &g->target_count, "Linear", f));
        RETURN_IF_NOT_OK(fit_strategy(&g->weights, g->name, f));
        RETURN_IF_NOT_OK(rename_observer(&g->weights, compat, f));
        RETURN_IF_NOT_OK(finish_format(g, config->format, compat, f));
        RETURN_IF_NOT_OK(check_weights(g, f));
        g->stored = g->format;
        g->weights.zp_dtype = g->weights.symmetric ? FILE_NONE : quant_code_dtype(&g->weights);
        drop_unused(&g->inputs);
        drop_unused(&g->outputs);
        if (g->has_inputs)
            g->inputs.zp_dtype = g->inputs.symmetric ? FILE_NONE : quant_code_dtype(&g->inputs);
    }
    return 0;
}

/* Rows and whole matrices that share a scale are too long to count. */
static double bits_of(const struct quant_group *group)
{
    const struct quant_args *weights = &group->weights;
    const struct quant_format_row *row = quant_format_row(group->format);
    const int code = row->word ? weights->num_bits : 8;
    const int scale = 8 * (int)dtype_size(row->scale_dtype ? row->scale_dtype : FILE_BF16);
    const int zero_point = weights->symmetric ? 0 : row->packs_zero_points ? code : 8;
    const int64_t *block = weights->block_structure;
    const int64_t sharing = block[0] > 0 ? block[0] * block[1] : weights->group_size;
    return code + (sharing > 0 ? (double)(scale + zero_point) / (double)sharing : 0);
}

double scheme_preset_bits(const struct scheme_preset *preset)
{
    struct quant_config config = {0};
    struct fail f;
    const bool complete = quant_config_add_scheme(&config, preset->name, NULL, 0, &f) == 0 &&
                          quant_config_finish(&config, QOBS_COMPAT_VLLM, &f) == 0;
    const double bits = complete ? bits_of(config.groups) : (double)NAN;
    quant_config_free(&config);
    return bits;
}

bool quant_args_alike(const struct quant_args *a, const struct quant_args *b)
{
    return a->num_bits == b->num_bits && a->type == b->type && a->symmetric == b->symmetric &&
           a->group_size == b->group_size && a->strategy == b->strategy &&
           a->block_structure[0] == b->block_structure[0] && a->block_structure[1] == b->block_structure[1] &&
           a->dynamic == b->dynamic && a->scale_dtype == b->scale_dtype;
}

static bool args_alike(bool has_a, const struct quant_args *a, bool has_b, const struct quant_args *b)
{
    return has_a && has_b ? quant_args_alike(a, b) : has_a == has_b;
}

bool quant_groups_alike(const struct quant_group *a, const struct quant_group *b)
{
    return a->format == b->format && args_alike(a->has_weights, &a->weights, b->has_weights, &b->weights) &&
           args_alike(a->has_inputs, &a->inputs, b->has_inputs, &b->inputs) &&
           args_alike(a->has_outputs, &a->outputs, b->has_outputs, &b->outputs);
}

bool quant_group_has_preset(const struct quant_group *g, const struct scheme_preset *preset)
{
    return args_alike(g->has_weights, &g->weights, true, preset->weights) &&
           args_alike(g->has_inputs, &g->inputs, preset->inputs != NULL, preset->inputs) && !g->has_outputs;
}

/* ---- Release ----------------------------------------------------------------------------------------------------- */

void quant_config_clear_ignore(struct quant_config *config)
{
    named_free(config->ignore, config->ignore_count, sizeof *config->ignore, 1);
    config->ignore = NULL;
    config->ignore_count = 0;
}

void quant_config_free(struct quant_config *config)
{
    for (size_t i = 0; i < config->group_count; i++) {
        struct quant_group *g = &config->groups[i];
        free(g->name);
        named_free(g->targets, g->target_count, sizeof *g->targets, 1);
        quant_args_free(&g->weights);
        quant_args_free(&g->inputs);
        quant_args_free(&g->outputs);
    }
    free(config->groups);
    quant_config_clear_ignore(config);
    named_free(config->notes, config->note_count, sizeof *config->notes, 1);
    named_free(config->unused, config->unused_count, sizeof *config->unused, 1);
    quant_args_free(&config->kv_cache);
    *config = (struct quant_config){0};
}

/* ---- Matchers ---------------------------------------------------------------------------------------------------- */

int quant_matchers_create(struct quant_matchers *m, const struct quant_config *config, struct fail *f)
{
    m->groups = calloc(config->group_count + 1, sizeof *m->groups);
    if (!m->groups)
        return NO_MEMORY(f, "the targets");
    RETURN_IF_NOT_OK(
        matcher_create(&m->ignore, (const char *const *)config->ignore, config->ignore_count, "ignore", f));
    for (; m->count < config->group_count; m->count++) {
        const struct quant_group *g = &config->groups[m->count];
        RETURN_IF_NOT_OK(
            matcher_create(&m->groups[m->count], (const char *const *)g->targets, g->target_count, "targets", f));
    }
    return QOBS_OK;
}

void quant_matchers_free(struct quant_matchers *m)
{
    matcher_free(m->ignore);
    for (size_t i = 0; i < m->count; i++)
        matcher_free(m->groups[i]);
    free(m->groups);
}

bool shares_scale(const struct quant_args *args, qobs_compat compat)
{
    const bool fp8 = args->strategy == QUANT_TENSOR && args->type == QUANT_FLOAT && compat == QOBS_COMPAT_VLLM;
    return args->strategy == QUANT_TENSOR_GROUP || fp8;
}
