/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "config.h"

#include <ctype.h>
#include <fenv.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convention/convention.h"
#include "convention/quark.h"
#include "error.h"
#include "fpenv.h"

/* ---- The settings ------------------------------------------------------------------------------------------------------- */

enum kind {
    KIND_WORD, /* one of `words`, stored as int: the value beside it */
    KIND_BOOL,
    KIND_INTEGER,        /* int */
    KIND_LONG,           /* int64_t */
    KIND_REAL,           /* double */
    KIND_AXES,           /* struct axes; "[0, -1]" or "0" */
    KIND_PAIR            /* int64_t[2]; "[h, w]" or "hxw" */
};

struct word {
    const char *text;
    int value;
};

static const struct word base_names[] = {{"weight", BASE_WEIGHT}, {"input", BASE_INPUT}, {"output", BASE_OUTPUT},
                                         {"q", BASE_Q},           {"k", BASE_K},         {"v", BASE_V},
                                         {0}};
static const struct word strategies[] = {{"tensor", STRATEGY_TENSOR},
                                         {"channel", STRATEGY_CHANNEL},
                                         {"group", STRATEGY_GROUP},
                                         {"tensor_group", STRATEGY_TENSOR_GROUP},
                                         {"block", STRATEGY_BLOCK},
                                         {"token", STRATEGY_TOKEN},
                                         {"attn_head", STRATEGY_ATTN_HEAD},
                                         {0}};
static const struct word nonfinite_modes[] = {
    {"refuse", NONFINITE_REFUSE}, {"ignore", NONFINITE_IGNORE}, {"propagate", NONFINITE_PROPAGATE}, {0}};
static const struct word versions[] = {{"current", VERSION_CURRENT}, {"2025-10", VERSION_2025_10}, {0}};
static const struct word types[] = {{"int", TYPE_INT}, {"float", TYPE_FLOAT}, {0}};
static const struct word scale_dtypes[] = {{"float32", SCALE_F32},          {"bfloat16", SCALE_BF16}, {"float16", SCALE_F16},
                                           {"float8_e4m3fn", SCALE_E4M3}, {"uint8", SCALE_U8},      {0}};
static const struct word dynamics[] = {{"false", 0}, {"true", 1}, {"local", 2}, {0}};
static const struct word zp_dtypes[] = {
    {"int8", QOBS_I8},  {"int16", QOBS_I16},     {"int32", QOBS_I32},
    {"bfloat16", QOBS_BF16}, {"float16", QOBS_F16}, {"float32", QOBS_F32}, {"float8_e4m3fn", QOBS_F8_E4M3}, {0}};
enum { FLOATING = 3 }; /* the first words, which observers of ranges do not take */
static const struct word torch_dtypes[] = {{"float32", TORCH_FLOAT32},
                                           {"float16", TORCH_FLOAT16},
                                           {"bfloat16", TORCH_BFLOAT16},
                                           {"quint8", TORCH_QUINT8},
                                           {"qint8", TORCH_QINT8},
                                           {"qint32", TORCH_QINT32},
                                           {"quint4x2", TORCH_QUINT4X2},
                                           {"uint8", TORCH_UINT8},
                                           {"int8", TORCH_INT8},
                                           {"uint16", TORCH_UINT16},
                                           {"int16", TORCH_INT16},
                                           {"int32", TORCH_INT32},
                                           {0}};
static const struct word qschemes[] = {{"per_tensor_affine", TORCH_PER_TENSOR_AFFINE},
                                       {"per_tensor_symmetric", TORCH_PER_TENSOR_SYMMETRIC},
                                       {"per_channel_affine", TORCH_PER_CHANNEL_AFFINE},
                                       {"per_channel_symmetric", TORCH_PER_CHANNEL_SYMMETRIC},
                                       {"per_channel_affine_float_qparams", TORCH_PER_CHANNEL_AFFINE_FLOAT_QPARAMS},
                                       {0}};

static const struct word quark_dtypes[] = {{"int8", QUARK_INT8},         {"uint8", QUARK_UINT8},       {"int4", QUARK_INT4},
                                           {"uint4", QUARK_UINT4},       {"int3", QUARK_INT3},         {"int2", QUARK_INT2},
                                           {"int16", QUARK_INT16},       {"int32", QUARK_INT32},       {"fp8_e4m3", QUARK_FP8_E4M3},
                                           {"fp8_e5m2", QUARK_FP8_E5M2}, {"fp8_e5m3", QUARK_FP8_E5M3}, {"fp6_e2m3", QUARK_FP6_E2M3},
                                           {"fp6_e3m2", QUARK_FP6_E3M2}, {"fp4", QUARK_FP4},           {"bfp16", QUARK_BFP16},
                                           {"float16", QUARK_FLOAT16},   {"bfloat16", QUARK_BFLOAT16}, {"mx", QUARK_MX},
                                           {"mx6", QUARK_MX6},           {"mx9", QUARK_MX9},           {"uint16", QUARK_UINT16},
                                           {"uint32", QUARK_UINT32},     {0}};
static const struct word quark_qschemes[] = {{"per_tensor", QUARK_PER_TENSOR},
                                             {"per_channel", QUARK_PER_CHANNEL},
                                             {"per_group", QUARK_PER_GROUP},
                                             {0}};
static const struct word zero_point_types[] = {{"int32", ZERO_POINT_INT32}, {"float32", ZERO_POINT_FLOAT32}, {0}};
static const struct word scale_types[] = {{"float", SCALE_TYPE_FLOAT},
                                          {"float32", SCALE_TYPE_F32},
                                          {"float16", SCALE_TYPE_F16},
                                          {"bfloat16", SCALE_TYPE_BF16},
                                          {"pof2", SCALE_TYPE_POF2},
                                          {"float8_e5m3", SCALE_TYPE_E5M3},
                                          {"float8_e8m0fnu", SCALE_TYPE_E8M0},
                                          {0}};
static const struct word scale_formats[] = {{"float32", SCALE_FORMAT_FLOAT32},
                                            {"e4m3", SCALE_FORMAT_E4M3},
                                            {"e5m3", SCALE_FORMAT_E5M3},
                                            {"e8m0", SCALE_FORMAT_E8M0},
                                            {0}};
static const struct word scale_modes[] = {{"even", SCALE_MODE_EVEN}, {"floor", SCALE_MODE_FLOOR}, {"ceil", SCALE_MODE_CEIL}, {0}};

static bool averages(const struct preset *preset)
{
    return preset->statistic == STATISTIC_AVERAGE_LERP || preset->statistic == STATISTIC_AVERAGE_TOWARDS;
}

static bool has_ranges(const struct preset *preset)
{
    return preset->statistic != STATISTIC_NONE;
}

static bool is_fixed(const struct preset *preset)
{
    return preset->convention == CONVENTION_FIXED;
}

static bool is_placeholder(const struct preset *preset)
{
    return preset->convention == CONVENTION_NONE && preset->statistic == STATISTIC_NONE;
}

static bool is_no_placeholder(const struct preset *preset)
{
    return !is_placeholder(preset);
}

static bool has_channels(const struct preset *preset)
{
    return preset->granularity == GRANULARITY_TORCH_CHANNEL;
}

enum { ANY = FAMILY_LLMC | FAMILY_TORCH | FAMILY_QUARK | FAMILY_TRT };
#define EVERY NULL
#define NO_FIELD ((size_t)-1)
#define FIELD(name) offsetof(struct qobs_config, name)

/* One row a setting: name, families, kind, field, and for each kind its words or its limits. `set` is the field that says
 * whether it has been given, where that makes a difference. */
static const struct setting {
    const char *key;
    int families;
    bool (*only)(const struct preset *preset); /* of the families' presets; EVERY: all */
    enum kind kind;
    size_t field, set;
    const struct word *words;
    double least, greatest;
} settings[] = {
    {"base_name", ANY, EVERY, KIND_WORD, FIELD(base_name), NO_FIELD, base_names, 0, 0},
    {"nonfinite", ANY, EVERY, KIND_WORD, FIELD(nonfinite), NO_FIELD, nonfinite_modes, 0, 0},
    {"averaging_constant", ANY, averages, KIND_REAL, FIELD(averaging_constant), NO_FIELD, NULL, 0, 1},
    {"num_bits", FAMILY_LLMC | FAMILY_TRT, EVERY, KIND_INTEGER, FIELD(num_bits), NO_FIELD, NULL, 2, 16},
    {"type", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(type), NO_FIELD, types, 0, 0},
    {"symmetric", FAMILY_LLMC | FAMILY_QUARK, EVERY, KIND_BOOL, FIELD(symmetric), NO_FIELD, NULL, 0, 0},
    {"strategy", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(strategy), NO_FIELD, strategies, 0, 0},
    {"group_size", FAMILY_LLMC | FAMILY_QUARK, EVERY, KIND_LONG, FIELD(group_size), FIELD(has_group_size), NULL, -1, 0x1p53},
    {"block_structure", FAMILY_LLMC, EVERY, KIND_PAIR, FIELD(block), FIELD(has_block), NULL, 1, 0x1p31},
    {"dynamic", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(dynamic), NO_FIELD, dynamics, 0, 0},
    {"scale_dtype", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(scale_dtype), NO_FIELD, scale_dtypes, 0, 0},
    {"zp_dtype", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(zp_dtype), NO_FIELD, zp_dtypes, 0, 0},
    {"version", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(version), NO_FIELD, versions, 0, 0},
    {"ragged", FAMILY_LLMC, EVERY, KIND_BOOL, FIELD(ragged), NO_FIELD, NULL, 0, 0},
    {"dtype", FAMILY_TORCH, is_no_placeholder, KIND_WORD, FIELD(dtype), NO_FIELD, torch_dtypes + FLOATING, 0, 0},
    {"dtype", FAMILY_TORCH, is_placeholder, KIND_WORD, FIELD(dtype), NO_FIELD, torch_dtypes, 0, 0},
    {"qscheme", FAMILY_TORCH, EVERY, KIND_WORD, FIELD(qscheme), NO_FIELD, qschemes, 0, 0},
    {"reduce_range", FAMILY_TORCH, has_ranges, KIND_BOOL, FIELD(reduce_range), NO_FIELD, NULL, 0, 0},
    {"quant_min", FAMILY_TORCH, EVERY, KIND_LONG, FIELD(quant_min), FIELD(has_quant_min), NULL, -0x1p31, 0x1p32},
    {"quant_max", FAMILY_TORCH, EVERY, KIND_LONG, FIELD(quant_max), FIELD(has_quant_max), NULL, -0x1p31, 0x1p32},
    {"eps", FAMILY_TORCH, has_ranges, KIND_REAL, FIELD(eps), NO_FIELD, NULL, 0, 1e38},
    {"ch_axis", FAMILY_TORCH, has_channels, KIND_INTEGER, FIELD(ch_axis), NO_FIELD, NULL, -QOBS_MAX_NDIM, QOBS_MAX_NDIM - 1},
    {"is_dynamic", FAMILY_TORCH | FAMILY_QUARK, EVERY, KIND_BOOL, FIELD(is_dynamic), NO_FIELD, NULL, 0, 0},
    {"scale", FAMILY_TORCH, is_fixed, KIND_REAL, FIELD(scale), FIELD(has_scale), NULL, -FLT_MAX, FLT_MAX},
    {"zero_point", FAMILY_TORCH, is_fixed, KIND_LONG, FIELD(zero_point), FIELD(has_zero_point), NULL, INT32_MIN, INT32_MAX},
    {"dtype", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(quark_dtype), NO_FIELD, quark_dtypes, 0, 0},
    {"qscheme", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(quark_qscheme), NO_FIELD, quark_qschemes, 0, 0},
    {"ch_axis", FAMILY_QUARK, EVERY, KIND_INTEGER, FIELD(ch_axis), FIELD(has_ch_axis), NULL, -QOBS_MAX_NDIM, QOBS_MAX_NDIM - 1},
    {"zero_point_type", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(zero_point_type), NO_FIELD, zero_point_types, 0, 0},
    {"scale_type", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(scale_type), NO_FIELD, scale_types, 0, 0},
    {"scale_format", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(scale_format), NO_FIELD, scale_formats, 0, 0},
    {"scale_calculation_mode", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(scale_calculation_mode), NO_FIELD, scale_modes, 0, 0},
    {"mx_element_dtype", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(mx_element_dtype), NO_FIELD, quark_dtypes, 0, 0},
    {"axis", FAMILY_TRT, EVERY, KIND_AXES, FIELD(axes), FIELD(has_axes), NULL, -QOBS_MAX_NDIM, QOBS_MAX_NDIM - 1},
    {"unsigned", FAMILY_TRT, EVERY, KIND_BOOL, FIELD(is_unsigned), NO_FIELD, NULL, 0, 0},
};

enum { SETTINGS = sizeof settings / sizeof *settings };

static bool applies(const struct setting *s, const struct preset *preset)
{
    return (s->families & (int)preset->family) && (!s->only || s->only(preset));
}

static struct qobs_config defaults(const struct preset *preset)
{
    return (struct qobs_config){
        .preset = preset,
        .averaging_constant = 0.01,
        .num_bits = 8,
        .symmetric = true,
        .dtype = is_placeholder(preset) ? TORCH_FLOAT32 : TORCH_QUINT8,
        .eps = 0x1p-23,
        .nonfinite = preset->convention == CONVENTION_QUARK_BFP ? NONFINITE_IGNORE : NONFINITE_REFUSE,
        .quark_dtype = preset->convention == CONVENTION_QUARK_MX    ? QUARK_FP4
                       : preset->convention == CONVENTION_QUARK_BFP ? QUARK_BFP16
                                                                    : QUARK_INT8,
    };
}

/* ---- Parsing ------------------------------------------------------------------------------------------------------------- */

static const char *text_of(const struct word *words, int value)
{
    for (; words->text; words++)
        if (words->value == value)
            return words->text;
    return NULL;
}

const char *qobs_base_name_text(int base_name)
{
    const char *text = text_of(base_names, base_name);
    return text ? text : "?";
}

const char *qobs_strategy_text(int strategy)
{
    const char *text = text_of(strategies, strategy);
    return text ? text : "?";
}

static void list_words(const struct word *words, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (; words->text && used < size; words++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", words->text);
}

const char *qobs_qscheme_text(int qscheme)
{
    const char *text = text_of(qschemes, qscheme);
    return text ? text : "?";
}

const char *qobs_quark_dtype_text(int dtype)
{
    const char *text = text_of(quark_dtypes, dtype);
    return text ? text : "?";
}

const char *qobs_quark_qscheme_text(int qscheme)
{
    const char *text = text_of(quark_qschemes, qscheme);
    return text ? text : "?";
}

/* Numbers as JSON writes them, whatever the locale. */
static bool parse_real(const char *value, double *out)
{
    char buffer[64];
    if (strlen(value) >= sizeof buffer || *value == '\0' || strspn(value, "0123456789+-.eE") != strlen(value))
        return false;
    strcpy(buffer, value);
    char *point = strchr(buffer, '.');
    if (point)
        *point = *localeconv()->decimal_point;
    char *end;
    const fp_mode mode = fp_enter(); /* fesetround changes it too */
    const int rounding = fegetround(); /* strtod rounds as the caller's mode says */
    fesetround(FE_TONEAREST);
    *out = strtod(buffer, &end);
    fesetround(rounding);
    fp_leave(mode);
    return *end == '\0' && isfinite(*out);
}

static bool parse_integer(const char *value, double least, double greatest, int64_t *out)
{
    double number;
    if (!parse_real(value, &number) || number != floor(number) || number < least || number > greatest)
        return false;
    *out = (int64_t)number;
    return true;
}

static bool parse_pair(const char *value, const struct setting *s, int64_t pair[2])
{
    char buffer[64], *parts[2];
    if (strlen(value) >= sizeof buffer)
        return false;
    size_t n = 0;
    for (; *value; value++)
        if (!strchr(" []()", *value))
            buffer[n++] = *value;
    buffer[n] = '\0';
    parts[0] = buffer;
    parts[1] = strpbrk(buffer, ",x");
    if (!parts[1])
        return false;
    *parts[1]++ = '\0';
    for (int i = 0; i < 2; i++)
        if (!parse_integer(parts[i], s->least, s->greatest, &pair[i]))
            return false;
    return true;
}

static bool parse_axes(const char *value, const struct setting *s, struct axes *axes)
{
    char buffer[64];
    size_t n = 0;
    if (strlen(value) >= sizeof buffer)
        return false;
    for (; *value; value++)
        if (!strchr(" []()", *value))
            buffer[n++] = *value;
    buffer[n] = '\0';
    *axes = (struct axes){0};
    for (char *part = n > 0 ? buffer : NULL, *next; part; part = next) {
        int64_t axis;
        next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        if (axes->count == QOBS_MAX_NDIM || !parse_integer(part, s->least, s->greatest, &axis))
            return false;
        axes->axis[axes->count++] = (int)axis;
    }
    return true;
}

static bool equal_ignoring_case(const char *a, const char *b)
{
    for (; *a && tolower((unsigned char)*a) == tolower((unsigned char)*b); a++, b++)
        ;
    return *a == '\0' && *b == '\0';
}

static int parse_word(const struct setting *s, const char *value, int *out, qobs_error *error)
{
    const char *word = strncmp(value, "torch.", 6) == 0 ? value + 6 : value;
    for (const struct word *w = s->words; w->text; w++)
        if (equal_ignoring_case(w->text, word)) {
            *out = w->value;
            return QOBS_OK;
        }
    char known[220];
    list_words(s->words, known, sizeof known);
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: '%s' is unknown, allowed are %s", s->key, value, known);
}

static int parse_bool(const struct setting *s, const char *value, bool *out, qobs_error *error)
{
    const bool yes = equal_ignoring_case(value, "true");
    if (!yes && !equal_ignoring_case(value, "false"))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is '%s', allowed are true and false", s->key, value);
    *out = yes;
    return QOBS_OK;
}

static int out_of_range(const struct setting *s, const char *value, qobs_error *error)
{
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is '%s', allowed are %s from %.15g to %.15g", s->key, value,
                     s->kind == KIND_REAL   ? "numbers"
                     : s->kind == KIND_PAIR ? "two integers [height, width]"
                     : s->kind == KIND_AXES ? "lists of integers"
                                            : "integers",
                     s->least, s->greatest);
}

static int parse(const struct setting *s, const char *value, unsigned char *config, qobs_error *error)
{
    void *field = config + s->field;
    int64_t integer, pair[2];
    struct axes axes;
    double real;
    switch (s->kind) {
    case KIND_WORD:
        return parse_word(s, value, field, error);
    case KIND_BOOL:
        return parse_bool(s, value, field, error);
    case KIND_INTEGER:
        if (!parse_integer(value, s->least, s->greatest, &integer))
            return out_of_range(s, value, error);
        *(int *)field = (int)integer;
        return QOBS_OK;
    case KIND_LONG:
        if (!parse_integer(value, s->least, s->greatest, &integer))
            return out_of_range(s, value, error);
        *(int64_t *)field = integer;
        return QOBS_OK;
    case KIND_REAL:
        if (!parse_real(value, &real) || real < s->least || real > s->greatest)
            return out_of_range(s, value, error);
        *(double *)field = real;
        return QOBS_OK;
    case KIND_AXES:
        if (!parse_axes(value, s, &axes))
            return out_of_range(s, value, error);
        *(struct axes *)field = axes;
        return QOBS_OK;
    default:
        if (!parse_pair(value, s, pair))
            return out_of_range(s, value, error);
        memcpy(field, pair, sizeof pair);
        return QOBS_OK;
    }
}

static void restore_default(const struct setting *s, struct qobs_config *config)
{
    static const size_t sizes[] = {
        [KIND_WORD] = sizeof(int),      [KIND_BOOL] = sizeof(bool),   [KIND_INTEGER] = sizeof(int),
        [KIND_LONG] = sizeof(int64_t), [KIND_REAL] = sizeof(double), [KIND_PAIR] = 2 * sizeof(int64_t),
        [KIND_AXES] = sizeof(struct axes)};
    const struct qobs_config fresh = defaults(config->preset);
    memcpy((unsigned char *)config + s->field, (const unsigned char *)&fresh + s->field, sizes[s->kind]);
    if (s->set != NO_FIELD)
        *(bool *)((unsigned char *)config + s->set) = false;
}

static int unknown_key(const qobs_config *config, const char *key, qobs_error *error)
{
    char known[220];
    size_t used = 0;
    known[0] = '\0';
    for (size_t i = 0; i < SETTINGS && used < sizeof known; i++)
        if (applies(&settings[i], config->preset))
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", settings[i].key);
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: '%s' is no setting; known are %s", config->preset->name, key,
                     known);
}

/* llm-compressor's configurations carry the observer's own name; it must agree. */
static int check_observer_name(const qobs_config *config, const char *value, qobs_error *error)
{
    const char *own = strchr(config->preset->name, '.') + 1;
    if (strcmp(value, own) == 0)
        return qobs_succeed(error);
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is '%s', but the preset is %s", value,
                     config->preset->name);
}

int qobs_config_set(qobs_config *config, const char *key, const char *given, qobs_error *error)
{
    if (!config || !key || !given)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", !config ? "config" : !key ? "key" : "value");
    /* A JSON string and a bare word are the same. */
    char value[128];
    const size_t length = strlen(given);
    const bool quoted = length >= 2 && given[0] == '"' && given[length - 1] == '"';
    if (length >= sizeof value)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: its value is %zu characters long, allowed are %zu", key,
                         length, sizeof value - 1);
    memcpy(value, given + quoted, length - 2 * quoted);
    value[length - 2 * quoted] = '\0';

    if (config->preset->family == FAMILY_LLMC && strcmp(key, "observer") == 0)
        return check_observer_name(config, value, error);
    for (size_t i = 0; i < SETTINGS; i++) {
        const struct setting *s = &settings[i];
        if (!applies(s, config->preset) || strcmp(s->key, key) != 0)
            continue;
        if (!quoted && (equal_ignoring_case(value, "null") || equal_ignoring_case(value, "none"))) {
            restore_default(s, config);
            return qobs_succeed(error);
        }
        const int status = parse(s, value, (unsigned char *)config, error);
        if (status != QOBS_OK)
            return status;
        if (s->set != NO_FIELD)
            *(bool *)((unsigned char *)config + s->set) = true;
        return qobs_succeed(error);
    }
    return unknown_key(config, key, error);
}

int qobs_config_get(const qobs_config *config, const char *key, char *value, size_t size, qobs_error *error)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        const struct setting *s = &settings[i];
        if (!applies(s, config->preset) || strcmp(s->key, key) != 0)
            continue;
        const unsigned char *base = (const unsigned char *)config, *field = base + s->field;
        int written = 0;
        if (s->set != NO_FIELD && !*(const bool *)(base + s->set)) {
            written = snprintf(value, size, "null");
        } else {
            switch (s->kind) {
            case KIND_WORD: {
                const char *text = text_of(s->words, *(const int *)field);
                written = snprintf(value, size, "%s", text ? text : "null");
                break;
            }
            case KIND_BOOL:
                written = snprintf(value, size, "%s", *(const bool *)field ? "true" : "false");
                break;
            case KIND_INTEGER:
                written = snprintf(value, size, "%d", *(const int *)field);
                break;
            case KIND_LONG:
                written = snprintf(value, size, "%lld", (long long)*(const int64_t *)field);
                break;
            case KIND_REAL: {
                written = snprintf(value, size, "%.17g", *(const double *)field);
                char *point = strchr(value, *localeconv()->decimal_point);
                if (point)
                    *point = '.';
                break;
            }
            case KIND_AXES: {
                const struct axes *axes = (const struct axes *)field;
                size_t used = (size_t)snprintf(value, size, "[");
                for (int k = 0; k < axes->count && used < size; k++)
                    used += (size_t)snprintf(value + used, size - used, "%s%d", k ? ", " : "", axes->axis[k]);
                written = (int)used + (used < size ? snprintf(value + used, size - used, "]") : 1);
                break;
            }
            default: {
                const int64_t *pair = (const int64_t *)field;
                written = snprintf(value, size, "[%lld, %lld]", (long long)pair[0], (long long)pair[1]);
                break;
            }
            }
        }
        if ((size_t)written >= size)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is %zu, the value of %s needs %d", size, key,
                             written + 1);
        return qobs_succeed(error);
    }
    return unknown_key(config, key, error);
}

size_t qobs_config_key_count(const qobs_config *config)
{
    size_t n = 0;
    for (size_t i = 0; i < SETTINGS; i++)
        n += applies(&settings[i], config->preset);
    return n;
}

const char *qobs_config_key(const qobs_config *config, size_t index)
{
    for (size_t i = 0; i < SETTINGS; i++)
        if (applies(&settings[i], config->preset) && index-- == 0)
            return settings[i].key;
    return NULL;
}

/* ---- Life and checks ------------------------------------------------------------------------------------------------------ */

/* Those of the family the name has, then the others: as many as fit, and how many more there are. */
static void list_presets(const char *name, char *text, size_t size)
{
    const size_t prefix = name && strchr(name, '.') ? (size_t)(strchr(name, '.') - name) + 1 : 0, room = size - 16;
    size_t used = 0, more = 0;
    for (int others = 0; others < 2; others++)
        for (size_t i = 0; i < qobs_preset_count(); i++) {
            const char *preset = qobs_preset_name(i);
            const bool other = prefix == 0 || strncmp(preset, name, prefix) != 0;
            if (other != (others == 1))
                continue;
            if (more > 0 || used + strlen(preset) + 2 > room)
                more++;
            else
                used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", preset);
        }
    if (more > 0)
        snprintf(text + used, size - used, ", %zu more", more);
}

int qobs_config_create(qobs_config **result, const char *name, const qobs_runtime *given, qobs_error *error)
{
    struct runtime runtime;
    const struct preset *preset = name ? qobs_preset_find(name) : NULL;
    if (!preset) {
        char known[200];
        list_presets(name, known, sizeof known);
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "preset: '%s' is unknown; known are %s", name ? name : "(null)",
                         known);
    }
    const int status = qobs_runtime_resolve(&runtime, given, error);
    if (status != QOBS_OK)
        return status;
    qobs_config *config = qobs_allocate(&runtime, sizeof *config);
    if (!config)
        return qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "config: no memory for %zu bytes", sizeof *config);
    *config = defaults(preset);
    config->runtime = runtime;
    *result = config;
    return qobs_succeed(error);
}

void qobs_config_destroy(qobs_config *config)
{
    if (config) {
        const struct runtime runtime = config->runtime;
        qobs_release(&runtime, config, sizeof *config);
    }
}

enum strategy qobs_config_strategy(const qobs_config *config)
{
    if (config->strategy != STRATEGY_NONE)
        return (enum strategy)config->strategy;
    if (!config->has_group_size)
        return STRATEGY_TENSOR;
    return config->group_size == -1 ? STRATEGY_CHANNEL : STRATEGY_GROUP;
}

bool qobs_config_is_mx(const qobs_config *config)
{
    return config->type == TYPE_FLOAT && (config->num_bits == 4 || config->num_bits == 8) && config->has_group_size &&
           config->group_size == 32 && config->scale_dtype == SCALE_U8 && config->version == VERSION_CURRENT;
}

/* compressed-tensors' QuantizationArgs.validate_model_after. */
static int check_llmc(const qobs_config *config, qobs_error *error)
{
    const enum strategy strategy = qobs_config_strategy(config);
    const char *name = qobs_strategy_text((int)strategy);
    const bool grouped = strategy == STRATEGY_GROUP || strategy == STRATEGY_TENSOR_GROUP;
    if (config->type == TYPE_FLOAT && config->num_bits != 4 && config->num_bits != 8)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "num_bits: is %d, type float allows 4 (e2m1) and 8 (e4m3)",
                         config->num_bits);
    if (config->type == TYPE_FLOAT && config->num_bits == 4 && !config->symmetric)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "symmetric: type float with num_bits 4 allows true only");
    if (strategy == STRATEGY_TOKEN && !config->dynamic)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "strategy: token needs dynamic=true");
    if (grouped && (!config->has_group_size || config->group_size <= 0))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "group_size: strategy %s needs one above 0", name);
    if (config->has_group_size && config->group_size == 0)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "group_size: is 0, allowed are -1 (channel) and above 0");
    if (!grouped && config->has_group_size && config->group_size > 0)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "group_size: %lld does not go with strategy %s",
                         (long long)config->group_size, name);
    if ((strategy == STRATEGY_BLOCK) != config->has_block)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "block_structure: %s",
                         config->has_block ? "goes with strategy block only" : "strategy block needs [height, width]");
    if (config->dynamic && strategy != STRATEGY_TOKEN && strategy != STRATEGY_TENSOR && !grouped)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "dynamic: strategy %s cannot be dynamic, only tensor, token, group and tensor_group", name);
    if (config->dynamic == 2 && strategy != STRATEGY_TENSOR_GROUP)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "dynamic: local goes with strategy tensor_group, not with %s",
                         name);
    return QOBS_OK;
}

int qobs_config_check(const qobs_config *config, qobs_error *error)
{
    if (!config)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "config: is NULL");
    int status = QOBS_OK;
    switch (config->preset->family) {
    case FAMILY_LLMC:
        status = check_llmc(config, error);
        break;
    case FAMILY_TORCH:
        status = qobs_torch_check(config, error);
        break;
    case FAMILY_QUARK:
        status = qobs_quark_check(config, error);
        break;
    case FAMILY_TRT:
        break;
    }
    if (status == QOBS_OK && config->is_dynamic && averages(config->preset) && config->averaging_constant != 1)
        status = qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                           "is_dynamic: %s allows it only with averaging_constant 1, not %g", config->preset->name,
                           config->averaging_constant);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}
