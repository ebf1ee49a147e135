/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads and writes the members of QuantizationArgs (compressed_tensors/quantization/quant_args.py). */
#include "schemes/quant_args.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "files/json_print.h"

struct quant_word {
    const char *name;
    int value;
};

static const struct quant_word types[] = {{"int", QUANT_INT}, {"float", QUANT_FLOAT}, {0}};
static const struct quant_word strategies[] = {{"tensor", QUANT_TENSOR},       {"channel", QUANT_CHANNEL},
                                               {"group", QUANT_GROUP},         {"block", QUANT_BLOCK},
                                               {"token", QUANT_TOKEN},         {"tensor_group", QUANT_TENSOR_GROUP},
                                               {"attn_head", QUANT_ATTN_HEAD}, {0}};
static const struct quant_word dtypes[] = {{"null", QUANT_DTYPE_NONE},
                                           {"int8", QUANT_DTYPE_INT8},
                                           {"uint8", QUANT_DTYPE_UINT8},
                                           {"float8_e4m3fn", QUANT_DTYPE_E4M3},
                                           {0}};
static const char *const dtype_json[] = {NULL, "torch.int8", "torch.uint8", "torch.float8_e4m3fn"};

static const char *word_name(const struct quant_word *words, int value)
{
    for (; words->name; words++)
        if (words->value == value)
            return words->name;
    return "?";
}

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
        strncat(known, w == words ? "" : ", ", sizeof known - strlen(known) - 1);
        strncat(known, w->name, sizeof known - strlen(known) - 1);
    }
    return fail(f, "%s: %s is '%.80s'; known are %s", where, key, text, known);
}

/* ---- Members ----------------------------------------------------------------------------------------------------- */

/* Reads the value of one member. Returns 1 if there is no such member. */
static int read_number(int64_t *value, int64_t least, int64_t most, const cJSON *item, const char *where,
                       struct fail *f)
{
    struct json_words words;
    uint64_t number;
    if (json_integer(item, &number) != 0 || (int64_t)number < least || (int64_t)number > most)
        return fail(f, "%s: %s is %s; whole numbers from %lld to %lld are allowed", where, item->string,
                    json_describe(item, &words), (long long)least, (long long)most);
    *value = (int64_t)number;
    return 0;
}

static int read_bool(bool *value, const cJSON *item, const char *where, struct fail *f)
{
    struct json_words words;
    if (!cJSON_IsBool(item))
        return fail(f, "%s: %s is %s; true and false are allowed", where, item->string, json_describe(item, &words));
    *value = cJSON_IsTrue(item);
    return 0;
}

static int read_word(int *value, const struct quant_word *words, const cJSON *item, const char *where, struct fail *f)
{
    struct json_words described;
    if (cJSON_IsNull(item) && words == dtypes) {
        *value = QUANT_DTYPE_NONE;
        return 0;
    }
    if (!cJSON_IsString(item))
        return fail(f, "%s: %s is %s; a string is needed", where, item->string, json_describe(item, &described));
    return find_word(words, item->valuestring, where, item->string, value, f);
}

static int read_text(char **value, const cJSON *item, const char *where, struct fail *f)
{
    struct json_words words;
    free(*value);
    *value = NULL;
    if (cJSON_IsNull(item) || cJSON_IsFalse(item))
        return 0;
    if (!cJSON_IsString(item))
        return fail(f, "%s: %s is %s; a string or null is needed", where, item->string, json_describe(item, &words));
    *value = strdup(item->valuestring);
    return *value ? 0 : fail(f, "%s: no memory", where);
}

static int read_dynamic(enum quant_dynamic *dynamic, const cJSON *item, const char *where, struct fail *f)
{
    struct json_words words;
    if (cJSON_IsBool(item))
        *dynamic = cJSON_IsTrue(item) ? QUANT_DYNAMIC : QUANT_STATIC;
    else if (cJSON_IsString(item) && strcmp(item->valuestring, "local") == 0)
        *dynamic = QUANT_LOCAL;
    else
        return fail(f, "%s: dynamic is %s; true, false and \"local\" are allowed", where, json_describe(item, &words));
    return 0;
}

static int read_block(int64_t *block, const cJSON *item, const char *where, struct fail *f)
{
    struct json_words words;
    block[0] = block[1] = 0;
    if (cJSON_IsNull(item))
        return 0;
    if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != 2)
        return fail(f, "%s: block_structure is %s; two whole numbers are needed", where, json_describe(item, &words));
    for (int i = 0; i < 2; i++) {
        uint64_t number;
        if (json_integer(cJSON_GetArrayItem(item, i), &number) != 0 || number == 0 || number > 1 << 20)
            return fail(f, "%s: block_structure[%d] is %s; whole numbers from 1 to 1048576 are allowed", where, i,
                        json_describe(cJSON_GetArrayItem(item, i), &words));
        block[i] = (int64_t)number;
    }
    return 0;
}

static int read_kwargs(cJSON **kwargs, const cJSON *item, const char *where, struct fail *f)
{
    struct json_words words;
    cJSON_Delete(*kwargs);
    *kwargs = NULL;
    if (cJSON_IsNull(item))
        return 0;
    if (!cJSON_IsObject(item))
        return fail(f, "%s: observer_kwargs is %s; an object is needed", where, json_describe(item, &words));
    *kwargs = cJSON_Duplicate(item, 1);
    return *kwargs ? 0 : fail(f, "%s: no memory", where);
}

/* Reads one member. Returns 1 if QuantizationArgs has none of this name. */
static int read_member(struct quant_args *a, const cJSON *item, const char *where, struct fail *f)
{
    const char *key = item->string;
    int64_t number = 0;
    int word = 0, result = 0;
    if (strcmp(key, "num_bits") == 0) {
        result = read_number(&number, 1, 16, item, where, f);
        a->num_bits = (int)number;
    } else if (strcmp(key, "group_size") == 0) {
        a->group_size = 0;
        if (!cJSON_IsNull(item) && !(cJSON_IsNumber(item) && item->valuedouble == -1))
            result = read_number(&a->group_size, 1, INT64_C(1) << 40, item, where, f);
    } else if (strcmp(key, "symmetric") == 0) {
        result = read_bool(&a->symmetric, item, where, f);
    } else if (strcmp(key, "type") == 0) {
        result = read_word(&word, types, item, where, f);
        a->type = (enum quant_type)word;
    } else if (strcmp(key, "strategy") == 0) {
        result = cJSON_IsNull(item) ? 0 : read_word(&word, strategies, item, where, f);
        a->strategy = cJSON_IsNull(item) ? a->strategy : (enum quant_strategy)word;
    } else if (strcmp(key, "scale_dtype") == 0 || strcmp(key, "zp_dtype") == 0) {
        result = read_word(&word, dtypes, item, where, f);
        *(*key == 's' ? &a->scale_dtype : &a->zp_dtype) = (enum quant_dtype)word;
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

int quant_args_read(struct quant_args *args, const cJSON *json, const char *where, struct fail *f)
{
    struct json_words words;
    bool has_strategy = false;
    const cJSON *item;
    *args = (struct quant_args){.num_bits = 8, .symmetric = true, .strategy = QUANT_TENSOR};
    if (!cJSON_IsObject(json))
        return fail(f, "%s: is %s; an object is needed", where, json_describe(json, &words));
    cJSON_ArrayForEach(item, json)
    {
        const int result = read_member(args, item, where, f);
        if (result > 0)
            return fail(f, "%s: has the member '%.80s', which is unknown", where, item->string);
        if (result != 0)
            return -1;
        has_strategy |= strcmp(item->string, "strategy") == 0 && !cJSON_IsNull(item);
    }
    if (!has_strategy)
        args->strategy = args->group_size > 0           ? QUANT_GROUP
                         : args->block_structure[0] > 0 ? QUANT_BLOCK
                         : args->dynamic                ? QUANT_TOKEN
                                                        : QUANT_TENSOR;
    return 0;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static cJSON *string_or_null(const char *text) { return text ? cJSON_CreateString(text) : cJSON_CreateNull(); }

static cJSON *block_json(const int64_t *block)
{
    const int numbers[2] = {(int)block[0], (int)block[1]};
    return block[0] > 0 ? cJSON_CreateIntArray(numbers, 2) : cJSON_CreateNull();
}

cJSON *quant_args_json(const struct quant_args *a)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *const items[] = {cJSON_CreateNumber(a->num_bits),
                            cJSON_CreateString(word_name(types, a->type)),
                            cJSON_CreateBool(a->symmetric),
                            a->group_size > 0 ? cJSON_CreateNumber((double)a->group_size) : cJSON_CreateNull(),
                            cJSON_CreateString(word_name(strategies, a->strategy)),
                            block_json(a->block_structure),
                            a->dynamic == QUANT_LOCAL ? cJSON_CreateString("local")
                                                      : cJSON_CreateBool(a->dynamic == QUANT_DYNAMIC),
                            string_or_null(a->actorder),
                            string_or_null(dtype_json[a->scale_dtype]),
                            string_or_null(dtype_json[a->zp_dtype]),
                            string_or_null(a->observer),
                            a->observer_kwargs ? cJSON_Duplicate(a->observer_kwargs, 1) : cJSON_CreateObject()};
    static const char *const keys[] = {"num_bits",        "type",           "symmetric", "group_size",  "strategy",
                                       "block_structure", "dynamic",        "actorder",  "scale_dtype", "zp_dtype",
                                       "observer",        "observer_kwargs"};
    bool complete = json != NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!items[i] || !json || !cJSON_AddItemToObject(json, keys[i], items[i])) {
            cJSON_Delete(items[i]);
            complete = false;
        }
    if (complete)
        return json;
    cJSON_Delete(json);
    return NULL;
}

int quant_args_copy(struct quant_args *to, const struct quant_args *from, struct fail *f)
{
    *to = *from;
    to->actorder = from->actorder ? strdup(from->actorder) : NULL;
    to->observer = from->observer ? strdup(from->observer) : NULL;
    to->observer_kwargs = from->observer_kwargs ? cJSON_Duplicate(from->observer_kwargs, 1) : NULL;
    const bool complete = !to->actorder == !from->actorder && !to->observer == !from->observer &&
                          !to->observer_kwargs == !from->observer_kwargs;
    return complete ? 0 : fail(f, "no memory for a scheme");
}

void quant_args_free(struct quant_args *args)
{
    free(args->actorder);
    free(args->observer);
    cJSON_Delete(args->observer_kwargs);
    *args = (struct quant_args){0};
}

/* ---- Settings ---------------------------------------------------------------------------------------------------- */

/* Settings of observers that upstream has as float, so that config.json shows 40.0 for 40. */
static bool is_float_setting(const char *key)
{
    static const char *const keys[] = {"maxshrink", "grid", "norm", "expand", "averaging_constant"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static int set_kwarg(struct quant_args *a, const char *key, cJSON *value, struct fail *f)
{
    if (!a->observer_kwargs)
        a->observer_kwargs = cJSON_CreateObject();
    if (cJSON_IsNumber(value) && is_float_setting(key)) {
        cJSON *number = json_python_float(value->valuedouble);
        cJSON_Delete(value);
        value = number;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(a->observer_kwargs, key);
    if (a->observer_kwargs && value && cJSON_AddItemToObject(a->observer_kwargs, key, value))
        return 0;
    cJSON_Delete(value);
    return fail(f, "--set: no memory");
}

int quant_args_set(struct quant_args *args, const char *key, const char *value, struct fail *f)
{
    cJSON *item = cJSON_ParseWithOpts(value, NULL, 1);
    if (!item)
        item = cJSON_CreateString(value); /* a bare word */
    if (item && !item->string) {
        item->string = cJSON_malloc(strlen(key) + 1);
        if (item->string)
            memcpy(item->string, key, strlen(key) + 1);
    }
    if (!item || !item->string) {
        cJSON_Delete(item);
        return fail(f, "--set: no memory");
    }
    const int result = read_member(args, item, "--set", f);
    if (result > 0)
        return set_kwarg(args, key, item, f);
    cJSON_Delete(item);
    return result;
}

/* Appends to a text of limited size. Returns -1 if it is full. */
static int append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int append(char *text, size_t size, const char *format, ...)
{
    const size_t length = strlen(text);
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(text + length, size - length, format, list);
    va_end(list);
    return n >= 0 && (size_t)n < size - length ? 0 : -1;
}

int quant_args_settings(const struct quant_args *a, char *text, size_t size, struct fail *f)
{
    const cJSON *item;
    *text = '\0';
    int result = append(text, size, "num_bits=%d type=%s symmetric=%s strategy=%s", a->num_bits,
                        word_name(types, a->type), a->symmetric ? "true" : "false", word_name(strategies, a->strategy));
    if (result == 0 && a->group_size > 0)
        result = append(text, size, " group_size=%lld", (long long)a->group_size);
    if (result == 0 && a->block_structure[0] > 0)
        result = append(text, size, " block_structure=[%lld,%lld]", (long long)a->block_structure[0],
                        (long long)a->block_structure[1]);
    if (result == 0 && a->scale_dtype != QUANT_DTYPE_NONE)
        result = append(text, size, " scale_dtype=%s", word_name(dtypes, a->scale_dtype));
    cJSON_ArrayForEach(item, a->observer_kwargs)
    {
        char *value = json_print_sorted(item);
        result = result == 0 && value ? append(text, size, " %s=%s", item->string, value) : -1;
        free(value);
    }
    return result == 0 ? 0 : fail(f, "the settings of the scheme are too long");
}
