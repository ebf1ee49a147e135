/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The settings of all presets, one row each, and their words and defaults. */
#include "config/settings.h"

#include <float.h>
#include <stddef.h>
#include <string.h>

static const struct word base_names[] = {{"weight", BASE_WEIGHT},
                                         {"input", BASE_INPUT},
                                         {"output", BASE_OUTPUT},
                                         {"q", BASE_Q},
                                         {"k", BASE_K},
                                         {"v", BASE_V},
                                         {0}};
static const struct word strategies[] = {{"tensor", STRATEGY_TENSOR},       {"channel", STRATEGY_CHANNEL},
                                         {"group", STRATEGY_GROUP},         {"tensor_group", STRATEGY_TENSOR_GROUP},
                                         {"block", STRATEGY_BLOCK},         {"token", STRATEGY_TOKEN},
                                         {"attn_head", STRATEGY_ATTN_HEAD}, {0}};
static const struct word nonfinite_modes[] = {
    {"refuse", NONFINITE_REFUSE}, {"ignore", NONFINITE_IGNORE}, {"propagate", NONFINITE_PROPAGATE}, {0}};
static const struct word histogram_nonfinite_modes[] = {{"refuse", NONFINITE_REFUSE},
                                                        {"refuse_nan", NONFINITE_REFUSE_NAN},
                                                        {"ignore", NONFINITE_IGNORE},
                                                        {"propagate", NONFINITE_PROPAGATE},
                                                        {0}};
static const struct word versions[] = {
    {"current", VERSION_CURRENT}, {"2025-10", VERSION_2025_10}, {"2025-09", VERSION_2025_09}, {0}};
static const struct word types[] = {{"int", TYPE_INT}, {"float", TYPE_FLOAT}, {0}};
static const struct word amax_methods[] = {
    {"entropy", AMAX_ENTROPY}, {"mse", AMAX_MSE}, {"percentile", AMAX_PERCENTILE}, {0}};
static const struct word modelopt_num_bits[] = {{"2", 2},
                                                {"3", 3},
                                                {"4", 4},
                                                {"5", 5},
                                                {"6", 6},
                                                {"7", 7},
                                                {"8", 8},
                                                {"9", 9},
                                                {"10", 10},
                                                {"11", 11},
                                                {"12", 12},
                                                {"13", 13},
                                                {"14", 14},
                                                {"15", 15},
                                                {"16", 16},
                                                {"[4, 3]", NUM_BITS_E4M3},
                                                {"[4,3]", NUM_BITS_E4M3},
                                                {0}};
static const struct word scale_dtypes[] = {{"float32", SCALE_F32}, {"bfloat16", SCALE_BF16},
                                           {"float16", SCALE_F16}, {"float8_e4m3fn", SCALE_E4M3},
                                           {"uint8", SCALE_U8},    {0}};
static const struct word dynamics[] = {{"false", 0}, {"true", 1}, {"local", 2}, {0}};
static const struct word zp_dtypes[] = {{"int8", QOBS_I8},
                                        {"int16", QOBS_I16},
                                        {"int32", QOBS_I32},
                                        {"bfloat16", QOBS_BF16},
                                        {"float16", QOBS_F16},
                                        {"float32", QOBS_F32},
                                        {"float8_e4m3fn", QOBS_F8_E4M3},
                                        {0}};
enum { FLOATING = 3 }; /* the first words, which observers of ranges do not accept */
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

static const struct word quark_dtypes[] = {{"int8", QUARK_INT8},
                                           {"uint8", QUARK_UINT8},
                                           {"int4", QUARK_INT4},
                                           {"uint4", QUARK_UINT4},
                                           {"int3", QUARK_INT3},
                                           {"int2", QUARK_INT2},
                                           {"int16", QUARK_INT16},
                                           {"int32", QUARK_INT32},
                                           {"fp8_e4m3", QUARK_FP8_E4M3},
                                           {"fp8_e5m2", QUARK_FP8_E5M2},
                                           {"fp8_e5m3", QUARK_FP8_E5M3},
                                           {"fp6_e2m3", QUARK_FP6_E2M3},
                                           {"fp6_e3m2", QUARK_FP6_E3M2},
                                           {"fp4", QUARK_FP4},
                                           {"bfp16", QUARK_BFP16},
                                           {"float16", QUARK_FLOAT16},
                                           {"bfloat16", QUARK_BFLOAT16},
                                           {"mx", QUARK_MX},
                                           {"mx6", QUARK_MX6},
                                           {"mx9", QUARK_MX9},
                                           {"uint16", QUARK_UINT16},
                                           {"uint32", QUARK_UINT32},
                                           {0}};
static const struct word quark_qschemes[] = {
    {"per_tensor", QUARK_PER_TENSOR}, {"per_channel", QUARK_PER_CHANNEL}, {"per_group", QUARK_PER_GROUP}, {0}};
static const struct word zero_point_types[] = {{"int32", ZERO_POINT_INT32}, {"float32", ZERO_POINT_FLOAT32}, {0}};
static const struct word scale_types[] = {{"float", SCALE_TYPE_FLOAT},         {"float32", SCALE_TYPE_F32},
                                          {"float16", SCALE_TYPE_F16},         {"bfloat16", SCALE_TYPE_BF16},
                                          {"pof2", SCALE_TYPE_POF2},           {"float8_e5m3", SCALE_TYPE_E5M3},
                                          {"float8_e8m0fnu", SCALE_TYPE_E8M0}, {0}};
static const struct word scale_formats[] = {{"float32", SCALE_FORMAT_FLOAT32},
                                            {"e4m3", SCALE_FORMAT_E4M3},
                                            {"e5m3", SCALE_FORMAT_E5M3},
                                            {"e8m0", SCALE_FORMAT_E8M0},
                                            {0}};
static const struct word scale_modes[] = {
    {"even", SCALE_MODE_EVEN}, {"floor", SCALE_MODE_FLOOR}, {"ceil", SCALE_MODE_CEIL}, {0}};

static bool has_ranges(const struct preset *preset) { return qobs_preset_measures(preset); }

static bool averages(const struct preset *preset) { return preset->accumulator->averages; }

static bool searches(const struct preset *preset) { return preset->search != NULL; }

static bool has_importance(const struct preset *preset) { return searches(preset) && preset->search->importance; }

static bool has_chunks(const struct preset *preset) { return searches(preset) && !has_importance(preset); }

static bool has_percentile(const struct preset *preset)
{
    return preset->range == &qobs_range_percentile || preset->range == &qobs_range_amax;
}

static bool has_start_bin(const struct preset *preset)
{
    return preset->range == &qobs_range_mse || preset->range == &qobs_range_amax;
}

static bool has_steps(const struct preset *preset) { return preset->range == &qobs_range_exponent; }

static bool has_multiples(const struct preset *preset) { return preset->range == &qobs_range_multiplier; }

static bool has_blocks(const struct preset *preset) { return preset->granularity == GRANULARITY_MODELOPT_BLOCK; }

static bool is_fixed(const struct preset *preset) { return preset->formula == FORMULA_FIXED; }

static bool is_placeholder(const struct preset *preset)
{
    return preset->formula == FORMULA_NONE && !qobs_preset_measures(preset);
}

static bool is_no_placeholder(const struct preset *preset) { return !is_placeholder(preset); }

static bool has_channels(const struct preset *preset)
{
    return preset->granularity == GRANULARITY_TORCH_CHANNEL || preset->granularity == GRANULARITY_TORCH_QSCHEME;
}

static bool has_no_histogram(const struct preset *preset) { return !qobs_preset_has_torch_histogram(preset); }

enum { ANY = FAMILY_LLMC | FAMILY_TORCH | FAMILY_QUARK | FAMILY_MODELOPT };
#define EVERY NULL
#define FIELD(name) offsetof(struct qobs_config, name)

/* One row a setting: key, families, presets, kind, field, the field that is true once it is set, words, limits. */
static const struct setting settings[] = {
    {"base_name", ANY, EVERY, KIND_WORD, FIELD(base_name), NO_FIELD, base_names, 0, 0},
    {"nonfinite", ANY, has_no_histogram, KIND_WORD, FIELD(nonfinite), NO_FIELD, nonfinite_modes, 0, 0},
    {"nonfinite", ANY, qobs_preset_has_torch_histogram, KIND_WORD, FIELD(nonfinite), NO_FIELD,
     histogram_nonfinite_modes, 0, 0},
    {"bins", FAMILY_TORCH | FAMILY_QUARK, qobs_preset_has_torch_histogram, KIND_LONG, FIELD(bins), NO_FIELD, NULL, 1,
     0x1p20},
    {"upsample_rate", FAMILY_TORCH | FAMILY_QUARK, qobs_preset_has_torch_histogram, KIND_INTEGER, FIELD(upsample_rate),
     NO_FIELD, NULL, 1, 0x1p20},
    {"float32_counts", ANY, qobs_preset_has_torch_histogram, KIND_BOOL, FIELD(float32_counts), NO_FIELD, NULL, 0, 0},
    {"float32_counts", ANY, qobs_preset_grows_bins, KIND_BOOL, FIELD(float32_counts), NO_FIELD, NULL, 0, 0},
    {"shifted_counts", FAMILY_QUARK, qobs_preset_grows_bins, KIND_BOOL, FIELD(shifted_counts), NO_FIELD, NULL, 0, 0},
    {"percentile", ANY, has_percentile, KIND_REAL, FIELD(percentile), NO_FIELD, NULL, 0, 100},
    {"stride", ANY, has_start_bin, KIND_LONG, FIELD(stride), NO_FIELD, NULL, 1, 0x1p31},
    {"start_bin", ANY, has_start_bin, KIND_LONG, FIELD(start_bin), NO_FIELD, NULL, 0, 0x1p31},
    {"num_bins", FAMILY_MODELOPT, qobs_preset_grows_bins, KIND_LONG, FIELD(num_bins), NO_FIELD, NULL, 1, 0x1p20},
    {"skip_zeros", FAMILY_MODELOPT, qobs_preset_grows_bins, KIND_BOOL, FIELD(skip_zeros), NO_FIELD, NULL, 0, 0},
    {"torch_hist", FAMILY_MODELOPT, qobs_preset_grows_bins, KIND_BOOL, FIELD(torch_hist), NO_FIELD, NULL, 0, 0},
    {"method", FAMILY_MODELOPT, qobs_preset_grows_bins, KIND_WORD, FIELD(method), NO_FIELD, amax_methods, 0, 0},
    {"reduce_range", FAMILY_QUARK, qobs_preset_has_torch_histogram, KIND_BOOL, FIELD(reduce_range), NO_FIELD, NULL, 0,
     0},
    {"averaging_constant", ANY, averages, KIND_REAL, FIELD(averaging_constant), NO_FIELD, NULL, 0, 1},
    {"num_bits", FAMILY_LLMC, EVERY, KIND_INTEGER, FIELD(num_bits), NO_FIELD, NULL, 2, 16},
    {"num_bits", FAMILY_MODELOPT, EVERY, KIND_WORD, FIELD(num_bits), NO_FIELD, modelopt_num_bits, 0, 0},
    {"type", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(type), NO_FIELD, types, 0, 0},
    {"symmetric", FAMILY_LLMC | FAMILY_QUARK, EVERY, KIND_BOOL, FIELD(symmetric), NO_FIELD, NULL, 0, 0},
    {"strategy", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(strategy), NO_FIELD, strategies, 0, 0},
    {"group_size", FAMILY_LLMC | FAMILY_QUARK, EVERY, KIND_LONG, FIELD(group_size), FIELD(has_group_size), NULL, -1,
     0x1p53},
    {"block_structure", FAMILY_LLMC, EVERY, KIND_PAIR, FIELD(block), FIELD(has_block), NULL, 1, 0x1p31},
    {"dynamic", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(dynamic), NO_FIELD, dynamics, 0, 0},
    {"scale_dtype", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(scale_dtype), NO_FIELD, scale_dtypes, 0, 0},
    {"zp_dtype", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(zp_dtype), NO_FIELD, zp_dtypes, 0, 0},
    {"version", FAMILY_LLMC, EVERY, KIND_WORD, FIELD(version), NO_FIELD, versions, 0, 0},
    {"observer", FAMILY_LLMC, EVERY, KIND_OWN_NAME, 0, NO_FIELD, NULL, 0, 0},
    {"ragged", FAMILY_LLMC, EVERY, KIND_BOOL, FIELD(ragged), NO_FIELD, NULL, 0, 0},
    {"maxshrink", ANY, searches, KIND_REAL, FIELD(maxshrink), NO_FIELD, NULL, 0, 1},
    {"patience", ANY, searches, KIND_LONG, FIELD(patience), NO_FIELD, NULL, 0, 0x1p31},
    {"grid", ANY, searches, KIND_REAL, FIELD(grid), NO_FIELD, NULL, 0x1p-10, 0x1p16},
    {"norm", ANY, searches, KIND_REAL, FIELD(norm), NO_FIELD, NULL, 0x1p-10, 0x1p10},
    {"expand", ANY, searches, KIND_REAL, FIELD(expand), NO_FIELD, NULL, 1, 0x1p10},
    {"chunk_size", ANY, has_chunks, KIND_LONG, FIELD(chunk_size), NO_FIELD, NULL, 1, 0x1p31},
    {"strict", ANY, has_importance, KIND_BOOL, FIELD(strict), NO_FIELD, NULL, 0, 0},
    {"dtype", FAMILY_TORCH, is_no_placeholder, KIND_WORD, FIELD(dtype), NO_FIELD, torch_dtypes + FLOATING, 0, 0},
    {"dtype", FAMILY_TORCH, is_placeholder, KIND_WORD, FIELD(dtype), NO_FIELD, torch_dtypes, 0, 0},
    {"qscheme", FAMILY_TORCH, EVERY, KIND_WORD, FIELD(qscheme), NO_FIELD, qschemes, 0, 0},
    {"reduce_range", FAMILY_TORCH, has_ranges, KIND_BOOL, FIELD(reduce_range), NO_FIELD, NULL, 0, 0},
    {"quant_min", FAMILY_TORCH, EVERY, KIND_LONG, FIELD(quant_min), FIELD(has_quant_min), NULL, -0x1p31, 0x1p32},
    {"quant_max", FAMILY_TORCH, EVERY, KIND_LONG, FIELD(quant_max), FIELD(has_quant_max), NULL, -0x1p31, 0x1p32},
    {"eps", FAMILY_TORCH, has_ranges, KIND_REAL, FIELD(eps), NO_FIELD, NULL, 0, 1e38},
    {"ch_axis", FAMILY_TORCH, has_channels, KIND_INTEGER, FIELD(ch_axis), NO_FIELD, NULL, -QOBS_MAX_NDIM,
     QOBS_MAX_NDIM - 1},
    {"is_dynamic", FAMILY_TORCH | FAMILY_QUARK, EVERY, KIND_BOOL, FIELD(is_dynamic), NO_FIELD, NULL, 0, 0},
    {"scale", FAMILY_TORCH, is_fixed, KIND_REAL, FIELD(scale), FIELD(has_scale), NULL, -FLT_MAX, FLT_MAX},
    {"zero_point", FAMILY_TORCH, is_fixed, KIND_LONG, FIELD(zero_point), FIELD(has_zero_point), NULL, INT32_MIN,
     INT32_MAX},
    {"dtype", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(quark_dtype), NO_FIELD, quark_dtypes, 0, 0},
    {"qscheme", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(quark_qscheme), NO_FIELD, quark_qschemes, 0, 0},
    {"ch_axis", FAMILY_QUARK, EVERY, KIND_INTEGER, FIELD(ch_axis), FIELD(has_ch_axis), NULL, -QOBS_MAX_NDIM,
     QOBS_MAX_NDIM - 1},
    {"zero_point_type", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(zero_point_type), NO_FIELD, zero_point_types, 0, 0},
    {"scale_type", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(scale_type), NO_FIELD, scale_types, 0, 0},
    {"scale_format", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(scale_format), NO_FIELD, scale_formats, 0, 0},
    {"scale_calculation_mode", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(scale_calculation_mode), NO_FIELD, scale_modes, 0,
     0},
    {"mx_element_dtype", FAMILY_QUARK, EVERY, KIND_WORD, FIELD(mx_element_dtype), NO_FIELD, quark_dtypes, 0, 0},
    {"scope", FAMILY_QUARK, has_steps, KIND_INTEGER, FIELD(scope), NO_FIELD, NULL, 0, 127},
    {"axis", FAMILY_MODELOPT, EVERY, KIND_AXES, FIELD(axes), FIELD(has_axes), NULL, -QOBS_MAX_NDIM, QOBS_MAX_NDIM - 1},
    {"unsigned", FAMILY_MODELOPT, EVERY, KIND_BOOL, FIELD(is_unsigned), NO_FIELD, NULL, 0, 0},
    {"narrow_range", FAMILY_MODELOPT, has_multiples, KIND_BOOL, FIELD(narrow_range), NO_FIELD, NULL, 0, 0},
    {"step_size", FAMILY_MODELOPT, has_multiples, KIND_REAL, FIELD(step_size), NO_FIELD, NULL, 0x1p-20, 0x1p20},
    {"start_multiplier", FAMILY_MODELOPT, has_multiples, KIND_REAL, FIELD(start_multiplier), NO_FIELD, NULL, 0, 0x1p20},
    {"stop_multiplier", FAMILY_MODELOPT, has_multiples, KIND_REAL, FIELD(stop_multiplier), NO_FIELD, NULL, 0, 0x1p20},
    {"block_size", FAMILY_MODELOPT, has_blocks, KIND_LONG, FIELD(block_size), NO_FIELD, NULL, 1, 0x1p31},
};

enum { SETTINGS = sizeof settings / sizeof *settings };

static bool applies(const struct setting *s, const struct preset *preset)
{
    return (s->families & (int)preset->family) && (!s->only || s->only(preset));
}

const struct setting *qobs_setting_at(const struct preset *preset, size_t index)
{
    for (size_t i = 0; i < SETTINGS; i++)
        if (applies(&settings[i], preset) && index-- == 0)
            return &settings[i];
    return NULL;
}

const struct setting *qobs_setting_find(const struct preset *preset, const char *key)
{
    for (size_t i = 0; i < SETTINGS; i++)
        if (applies(&settings[i], preset) && strcmp(settings[i].key, key) == 0)
            return &settings[i];
    return NULL;
}

struct qobs_config qobs_config_defaults(const struct preset *preset)
{
    static const struct search_defaults no_search;
    const struct search_defaults *search = searches(preset) ? preset->search : &no_search;
    return (struct qobs_config){
        .preset = preset,
        .base_name = qobs_preset_is_for_weights(preset) ? BASE_WEIGHT : BASE_INPUT,
        .maxshrink = search->maxshrink,
        .grid = search->grid,
        .norm = search->norm,
        .expand = search->expand,
        .patience = search->patience,
        .chunk_size = 5,
        .averaging_constant = 0.01,
        .num_bits = 8,
        .symmetric = true,
        .scope = 1,
        .step_size = 0.1,
        .start_multiplier = 0.25,
        .stop_multiplier = 4,
        .block_size = 16,
        .dtype = is_placeholder(preset) ? TORCH_FLOAT32 : TORCH_QUINT8,
        .eps = 0x1p-23,
        .nonfinite = preset->formula == FORMULA_QUARK_BFP      ? NONFINITE_IGNORE
                     : qobs_preset_has_torch_histogram(preset) ? NONFINITE_REFUSE_NAN
                                                               : NONFINITE_REFUSE,
        .bins = preset->family == FAMILY_QUARK ? 256 : 2048,
        .percentile = preset->family == FAMILY_QUARK ? 99.99999999 : 99.99,
        .stride = 1,
        .start_bin = preset->family == FAMILY_QUARK ? 2045 : 128,
        .num_bins = 2048,
        .torch_hist = true,
        .upsample_rate = 16,
        .quark_dtype = preset->formula == FORMULA_QUARK_MX    ? QUARK_FP4
                       : preset->formula == FORMULA_QUARK_BFP ? QUARK_BFP16
                                                              : QUARK_INT8,
    };
}

/* ---- Names for messages ------------------------------------------------------------------------------------------ */

const char *qobs_word_text(const struct word *words, int value)
{
    for (; words->text; words++)
        if (words->value == value)
            return words->text;
    return NULL;
}

static const char *text_of(const struct word *words, int value)
{
    const char *text = qobs_word_text(words, value);
    return text ? text : "?";
}

const char *qobs_torch_dtype_text(int dtype) { return text_of(torch_dtypes, dtype); }
const char *qobs_qscheme_text(int qscheme) { return text_of(qschemes, qscheme); }
const char *qobs_quark_dtype_text(int dtype) { return text_of(quark_dtypes, dtype); }
const char *qobs_quark_qscheme_text(int qscheme) { return text_of(quark_qschemes, qscheme); }
