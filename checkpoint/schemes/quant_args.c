/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads and writes the members of QuantizationArgs (compressed_tensors/quantization/quant_args.py). */
#include "schemes/quant_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "files/json.h"
#include "files/suggest.h"

struct quant_word {
    const char *name;
    int value;
};

static const struct quant_word types[] = {{"int", QUANT_INT}, {"float", QUANT_FLOAT}, {0}};
static const struct quant_word strategies[] = {{"tensor", QUANT_TENSOR},       {"channel", QUANT_CHANNEL},
                                               {"group", QUANT_GROUP},         {"block", QUANT_BLOCK},
                                               {"token", QUANT_TOKEN},         {"tensor_group", QUANT_TENSOR_GROUP},
                                               {"attn_head", QUANT_ATTN_HEAD}, {0}};
static const struct quant_word dtypes[] = {
    {"null", FILE_NONE}, {"int8", FILE_I8}, {"uint8", FILE_U8}, {"float8_e4m3fn", FILE_F8_E4M3}, {0}};

static const char *word_name(const struct quant_word *words, int value)
{
    for (; words->name; words++)
        if (words->value == value)
            return words->name;
    return "?";
}

const char *quant_strategy_name(enum quant_strategy strategy) { return word_name(strategies, (int)strategy); }

const char *quant_dtype_name(enum file_dtype dtype) { return word_name(dtypes, (int)dtype); }

/* Finds a word. A dtype may have "torch." before it. Lists the words in the message of a failure. */
static int find_word(const struct quant_word *words, const char *text, const char *where, const char *key, int *value,
                     struct fail *f)
{
    char known[128] = "";
    const char *bare = words == dtypes && strncmp(text, "torch.", 6) == 0 ? text + 6 : text;
    for (const struct quant_word *w = words; w->name; w++) {
        if (strcmp(w->name, bare) == 0) {
            *value = w->value;
            return 0;
        }
        text_append(known, sizeof known, "%s%s", w == words ? "" : ", ", w->name);
    }
    return fail(f, "%s: %s is '%.80s'; known are %s", where, key, text, known);
}

/* ---- Members ----------------------------------------------------------------------------------------------------- */

/* Fails because a member has a wrong value. */
static int refuse(const struct json_item *item, const char *where, const char *needed, struct fail *f)
{
    return fail(f, "%s: %s is %s; %s", where, item->key, JSON_WORDS(item->value), needed);
}

static int read_number(int64_t *value, int64_t least, int64_t most, const struct json_item *item, const char *where,
                       struct fail *f)
{
    uint64_t number;
    if (json_integer(item->value, &number) != 0 || (int64_t)number < least || (int64_t)number > most)
        return fail(f, "%s: %s is %s; whole numbers from %lld to %lld are allowed", where, item->key,
                    JSON_WORDS(item->value), (long long)least, (long long)most);
    *value = (int64_t)number;
    return 0;
}

static int read_bool(bool *value, const struct json_item *item, const char *where, struct fail *f)
{
    if (!json_is_bool(item->value))
        return refuse(item, where, "true and false are allowed", f);
    *value = json_is_true(item->value);
    return 0;
}

static int read_word(int *value, const struct quant_word *words, const struct json_item *item, const char *where,
                     struct fail *f)
{
    if (!item->value && words == dtypes) {
        *value = FILE_NONE;
        return 0;
    }
    if (!json_is_string(item->value))
        return refuse(item, where, "a string is needed", f);
    return find_word(words, json_text(item->value), where, item->key, value, f);
}

static int read_text(char **value, const struct json_item *item, const char *where, struct fail *f)
{
    free(*value);
    *value = NULL;
    if (!item->value || (json_is_bool(item->value) && !json_is_true(item->value)))
        return 0;
    if (!json_is_string(item->value))
        return refuse(item, where, "a string or null is needed", f);
    return text_set(value, json_text(item->value)) ? 0 : fail_system(f, "%s: no memory", where);
}

static int read_dynamic(enum quant_dynamic *dynamic, const struct json_item *item, const char *where, struct fail *f)
{
    if (json_is_bool(item->value))
        *dynamic = json_is_true(item->value) ? QUANT_DYNAMIC : QUANT_STATIC;
    else if (json_is_string(item->value) && strcmp(json_text(item->value), "local") == 0)
        *dynamic = QUANT_LOCAL;
    else
        return refuse(item, where, "true, false and \"local\" are allowed", f);
    return 0;
}

static int read_block(int64_t *block, const struct json_item *item, const char *where, struct fail *f)
{
    block[0] = block[1] = 0;
    if (!item->value)
        return 0;
    if (!json_is_array(item->value) || json_count(item->value) != 2)
        return refuse(item, where, "two whole numbers are needed", f);
    for (int i = 0; i < 2; i++) {
        uint64_t number;
        if (json_integer(json_at(item->value, (size_t)i), &number) != 0 || number == 0 || number > 1 << 20)
            return fail(f, "%s: %s[%d] is %s; whole numbers from 1 to 1048576 are allowed", where, item->key, i,
                        JSON_WORDS(json_at(item->value, (size_t)i)));
        block[i] = (int64_t)number;
    }
    return 0;
}

static int read_kwargs(json_object **kwargs, const struct json_item *item, const char *where, struct fail *f)
{
    json_object_put(*kwargs);
    *kwargs = NULL;
    if (!item->value)
        return 0;
    if (!json_is_object(item->value))
        return refuse(item, where, "an object is needed", f);
    *kwargs = json_copy(item->value);
    return *kwargs ? 0 : fail_system(f, "%s: no memory", where);
}

/* Reads one member. Returns 1 if QuantizationArgs has none of this name. */
static int read_member(struct quant_args *a, const char *key, const struct json_item *item, const char *where,
                       struct fail *f)
{
    int64_t number = 0;
    int word = 0, result = 0;
    if (strcmp(key, "num_bits") == 0) {
        result = read_number(&number, 2, 16, item, where, f);
        a->num_bits = (int)number;
    } else if (strcmp(key, "group_size") == 0) {
        a->group_size = 0;
        const bool whole = json_is_number(item->value) && json_object_get_double(item->value) == -1;
        if (whole && a->strategy == QUANT_GROUP) /* as the validators of QuantizationArgs have it */
            a->strategy = QUANT_CHANNEL;
        if (item->value && !whole)
            result = read_number(&a->group_size, 1, INT64_C(1) << 40, item, where, f);
    } else if (strcmp(key, "symmetric") == 0) {
        result = read_bool(&a->symmetric, item, where, f);
    } else if (strcmp(key, "type") == 0) {
        result = read_word(&word, types, item, where, f);
        a->type = (enum quant_type)word;
    } else if (strcmp(key, "strategy") == 0) {
        result = !item->value ? 0 : read_word(&word, strategies, item, where, f);
        a->strategy = !item->value ? a->strategy : (enum quant_strategy)word;
    } else if (strcmp(key, "scale_dtype") == 0 || strcmp(key, "zp_dtype") == 0) {
        result = read_word(&word, dtypes, item, where, f);
        *(*key == 's' ? &a->scale_dtype : &a->zp_dtype) = (enum file_dtype)word;
        a->has_zp_dtype |= *key == 'z';
    } else if (strcmp(key, "dynamic") == 0) {
        result = read_dynamic(&a->dynamic, item, where, f);
    } else if (strcmp(key, "block_structure") == 0) {
        result = read_block(a->block_structure, item, where, f);
    } else if (strcmp(key, "actorder") == 0 || strcmp(key, "observer") == 0) {
        result = read_text(*key == 'a' ? &a->actorder : &a->observer, item, where, f);
    } else if (strcmp(key, "observer_kwargs") == 0) {
        result = read_kwargs(&a->observer_kwargs, item, where, f);
    } else {
        return 1;
    }
    return result;
}

static int refuse_member(const char *key, const char *where, struct fail *f)
{
    static const char *const known[] = {"num_bits",        "type",     "symmetric", "group_size", "strategy",
                                        "block_structure", "dynamic",  "actorder",  "observer",   "observer_kwargs",
                                        "scale_dtype",     "zp_dtype", NULL};
    char hint[HINT_SIZE];
    return fail(f, "%s: has the member '%.80s', which is unknown%s", where, key, did_you_mean(hint, key, known));
}

int quant_args_take(struct quant_args *args, const char *key, const json_object *json, const char *member,
                    const char *where, struct fail *f)
{
    const struct json_item item = {.key = member, .value = json_get(json, member)};
    return read_member(args, key, &item, where, f);
}

int quant_args_read(struct quant_args *args, const json_object *json, const char *where, struct fail *f)
{
    bool has_strategy = false;
    *args = (struct quant_args){.num_bits = 8, .symmetric = true, .strategy = QUANT_TENSOR};
    if (!json_is_object(json))
        return fail(f, "%s: is %s; an object is needed", where, JSON_WORDS(json));
    json_each(item, json)
    {
        const int result = read_member(args, item.key, &item, where, f);
        if (result > 0)
            return refuse_member(item.key, where, f);
        RETURN_IF_NOT_OK(result);
        has_strategy |= strcmp(item.key, "strategy") == 0 && item.value;
    }
    if (!has_strategy)
        args->strategy = args->group_size > 0           ? QUANT_GROUP
                         : args->block_structure[0] > 0 ? QUANT_BLOCK
                         : args->dynamic                ? QUANT_TOKEN
                                                        : QUANT_TENSOR;
    return 0;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static bool put_block(json_object *json, const char *key, const int64_t *block)
{
    if (block[0] == 0)
        return json_put(json, key, NULL);
    json_object *array = json_put_array(json, key);
    return json_append(array, json_object_new_int64(block[0])) && json_append(array, json_object_new_int64(block[1]));
}

static bool put_dtype(json_object *json, const char *key, enum file_dtype dtype)
{
    char text[32];
    snprintf(text, sizeof text, "torch.%s", quant_dtype_name(dtype));
    return json_put_text(json, key, dtype == FILE_NONE ? NULL : text);
}

void quant_args_omit_unset(json_object *json)
{
    static const char *const members[] = {"actorder", "block_structure", "scale_dtype", "zp_dtype", "observer"};
    if (!json_is_object(json))
        return;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (!json_get(json, members[i]))
            json_object_object_del(json, members[i]);
    if (json_count(json_get(json, "observer_kwargs")) == 0)
        json_object_object_del(json, "observer_kwargs");
}

json_object *quant_args_json(const struct quant_args *a, bool omits_unset)
{
    json_object *json = json_object_new_object();
    json_object *kwargs = a->observer_kwargs ? json_copy(a->observer_kwargs) : json_object_new_object();
    bool complete = json && kwargs;
    complete &= json_put_count(json, "num_bits", (uint64_t)a->num_bits);
    complete &= json_put_text(json, "type", word_name(types, a->type));
    complete &= json_put_bool(json, "symmetric", a->symmetric);
    complete &= a->group_size > 0 ? json_put_count(json, "group_size", (uint64_t)a->group_size)
                                  : json_put(json, "group_size", NULL);
    complete &= json_put_text(json, "strategy", quant_strategy_name(a->strategy));
    complete &= put_block(json, "block_structure", a->block_structure);
    complete &= a->dynamic == QUANT_LOCAL ? json_put_text(json, "dynamic", "local")
                                          : json_put_bool(json, "dynamic", a->dynamic == QUANT_DYNAMIC);
    complete &= json_put_text(json, "actorder", a->actorder);
    complete &= put_dtype(json, "scale_dtype", a->scale_dtype);
    complete &= put_dtype(json, "zp_dtype", omits_unset && !a->has_zp_dtype ? FILE_NONE : a->zp_dtype);
    complete &= json_put_text(json, "observer", a->observer);
    complete &= json_put(json, "observer_kwargs", kwargs);
    if (complete && omits_unset)
        quant_args_omit_unset(json);
    if (complete)
        return json;
    json_object_put(json);
    return NULL;
}

int quant_args_copy(struct quant_args *to, const struct quant_args *from, struct fail *f)
{
    *to = *from;
    to->actorder = from->actorder ? strdup(from->actorder) : NULL;
    to->observer = from->observer ? strdup(from->observer) : NULL;
    to->observer_kwargs = from->observer_kwargs ? json_copy(from->observer_kwargs) : NULL;
    const bool complete = !to->actorder == !from->actorder && !to->observer == !from->observer &&
                          !to->observer_kwargs == !from->observer_kwargs;
    return complete ? 0 : fail_system(f, "no memory for a scheme");
}

void quant_args_free(struct quant_args *args)
{
    free(args->actorder);
    free(args->observer);
    json_object_put(args->observer_kwargs);
    *args = (struct quant_args){0};
}

enum file_dtype quant_code_dtype(const struct quant_args *args)
{
    return args->type == QUANT_INT ? FILE_I8 : FILE_F8_E4M3;
}

/* ---- Settings ---------------------------------------------------------------------------------------------------- */

/* Settings of observers that upstream has as float, so that config.json shows 40.0 for 40. */
static bool is_float_setting(const char *key)
{
    return is_one_of(key, "maxshrink grid norm expand averaging_constant");
}

static int set_kwarg(struct quant_args *a, const char *key, json_object *value, struct fail *f)
{
    if (!a->observer_kwargs)
        a->observer_kwargs = json_object_new_object();
    if (json_is_number(value) && is_float_setting(key)) {
        json_object *number = json_python_float(json_object_get_double(value));
        json_object_put(value);
        value = number;
    }
    return value && json_put(a->observer_kwargs, key, value) ? 0 : fail_system(f, "--set: no memory");
}

int quant_args_set(struct quant_args *args, const char *key, const char *value, struct fail *f)
{
    struct json_item item = {.key = key};
    if (json_parse_value(&item.value, value) != 0)
        item.value = json_object_new_string(value); /* a bare word */
    const int result = read_member(args, key, &item, "--set", f);
    if (result > 0)
        return set_kwarg(args, key, item.value, f);
    json_object_put(item.value);
    return result;
}

int quant_args_assign(struct quant_args *args, const char *assignment, struct fail *f)
{
    const char *equals = strchr(assignment, '=');
    char key[64];
    if (!equals || equals == assignment || (size_t)(equals - assignment) >= sizeof key)
        return fail(f, "setting: is '%.100s'; KEY=VALUE is needed", assignment);
    snprintf(key, sizeof key, "%.*s", (int)(equals - assignment), assignment);
    return quant_args_set(args, key, equals + 1, f);
}

int quant_args_settings(const struct quant_args *a, char *text, size_t size, struct fail *f)
{
    *text = '\0';
    bool fits =
        text_append(text, size, "num_bits=%d type=%s symmetric=%s strategy=%s", a->num_bits, word_name(types, a->type),
                    a->symmetric ? "true" : "false", quant_strategy_name(a->strategy));
    if (a->group_size > 0)
        fits &= text_append(text, size, " group_size=%lld", (long long)a->group_size);
    if (a->block_structure[0] > 0)
        fits &= text_append(text, size, " block_structure=[%lld,%lld]", (long long)a->block_structure[0],
                            (long long)a->block_structure[1]);
    if (a->scale_dtype != FILE_NONE)
        fits &= text_append(text, size, " scale_dtype=%s", quant_dtype_name(a->scale_dtype));
    json_each(item, a->observer_kwargs)
    {
        char *value = json_print(item.value, JSON_LINE);
        fits &= value && text_append(text, size, " %s=%s", item.key, value);
        free(value);
    }
    return fits ? 0 : fail(f, "the settings of the scheme are too long");
}

/* Returns the preset of an observer: NULL and the variants for activations are min/max of the weight. */
static void preset_name(const char *observer, const char *observers, char *name, size_t size)
{
    if (observer && strncmp(observer, "qobs.", 5) == 0) {
        snprintf(name, size, "%s", observer);
        return;
    }
    const bool minmax = !observer || strcmp(observer, "static_minmax") == 0;
    const char *bare = minmax                                 ? "memoryless_minmax"
                       : strcmp(observer, "fouroversix") == 0 ? "nvfp4_expanded_mse"
                                                              : observer;
    snprintf(name, size, "%s.%s", observers, bare);
}

int quant_args_config(const struct quant_args *args, const char *observers, qobs_config **config, struct fail *f)
{
    char text[1024], settings[900], preset[100];
    qobs_error error = {0};
    preset_name(args->observer, observers, preset, sizeof preset);
    RETURN_IF_NOT_OK(quant_args_settings(args, settings, sizeof settings, f));
    snprintf(text, sizeof text, "%s base_name=weight %s", preset, settings);
    return qobs_config_parse(config, text, NULL, &error) == QOBS_OK
               ? QOBS_OK
               : report_failure(f, error.status, "%s", error.message);
}

int scale_shape(const struct quant_args *args, const int64_t *matrix, int64_t *shape)
{
    shape[0] = matrix[0];
    shape[1] = 1;
    if (args->strategy == QUANT_TENSOR) {
        shape[0] = 1;
        return 1;
    }
    if (args->strategy == QUANT_BLOCK) {
        shape[0] = (matrix[0] + args->block_structure[0] - 1) / args->block_structure[0];
        shape[1] = (matrix[1] + args->block_structure[1] - 1) / args->block_structure[1];
    } else if (args->strategy != QUANT_CHANNEL) {
        shape[1] = matrix[1] / args->group_size;
    }
    return 2;
}
