/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The settings of all presets, one row each, and their defaults. The words are in setting_words.h. */
#include "config/settings.h"
#include "config/families.h"
#include "config/setting_words.h"

#include <float.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static bool has_ranges(const struct preset *preset) { return qobs_preset_measures(preset); }

static bool averages(const struct preset *preset) { return preset->accumulator->averages; }

static bool searches(const struct preset *preset) { return preset->search != NULL; }

static bool has_importance(const struct preset *preset) { return searches(preset) && preset->search->importance; }

static bool weighs_columns(const struct preset *preset)
{
    return has_importance(preset) || (preset->range->optimal && preset->range->optimal->importance);
}

static bool is_optimal(const struct preset *preset) { return preset->range->optimal; }

static bool has_hessian(const struct preset *preset)
{
    return preset->range->optimal && preset->range->optimal->hessian;
}

static bool has_chunks(const struct preset *preset) { return searches(preset) && !has_importance(preset); }

static bool has_percentile(const struct preset *preset) { return preset->range->reads & READS_PERCENTILE; }

static bool has_start_bin(const struct preset *preset) { return preset->range->reads & READS_START_BIN; }

static bool has_scope(const struct preset *preset) { return preset->range->reads & READS_SCOPE; }

/* Quark's and Model-Optimizer's histograms, which grow by whole bins. */
static bool grows_bins(const struct preset *preset)
{
    return preset->reduction->histogram && !(preset->range->reads & (READS_BINS | READS_HEADROOM));
}

static bool has_multiples(const struct preset *preset) { return preset->range->reads & READS_MULTIPLIERS; }

static bool is_bias(const struct preset *preset) { return preset->granularity == GRANULARITY_MODELOPT_REDUCED; }

static bool is_no_bias(const struct preset *preset) { return !is_bias(preset); }

static bool sweeps_amax(const struct preset *preset) { return qobs_range_has_reference(preset->range); }

static bool sweeps_scales(const struct preset *preset) { return preset->range->reads & READS_FOUR_OVER_SIX; }

static bool has_headroom(const struct preset *preset) { return preset->range->reads & READS_HEADROOM; }

static bool has_blocks(const struct preset *preset)
{
    return preset->granularity == GRANULARITY_MODELOPT_BLOCK || has_headroom(preset);
}

static bool has_modelopt_bins(const struct preset *preset) { return preset->reduction->histogram != NULL; }

static bool has_threshold(const struct preset *preset) { return preset->formula == FORMULA_QUARK_TQT; }

static bool is_tensor_minmax(const struct preset *preset)
{
    return preset->granularity == GRANULARITY_TENSOR && preset->formula == FORMULA_QUARK &&
           !preset->reduction->histogram;
}

static bool is_fixed(const struct preset *preset)
{
    return preset->formula == FORMULA_FIXED || preset->formula == FORMULA_TORCHAO_FIXED;
}

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

static bool has_ort_bins(const struct preset *preset) { return preset->reduction->histogram != NULL; }

static bool has_ort_ranges(const struct preset *preset) { return !has_ort_bins(preset); }

static bool has_quantized_bins(const struct preset *preset) { return preset->range->reads & READS_QUANTIZED_BINS; }

static bool has_moments(const struct preset *preset) { return qobs_range_finds(preset->range, FOUND_MOMENTS); }

static bool has_no_moments(const struct preset *preset) { return !has_moments(preset); }

static bool has_symmetric_data(const struct preset *preset)
{
    return !has_quantized_bins(preset) && !has_moments(preset);
}

static bool searches_line(const struct preset *preset) { return preset->range->reads & READS_LINE; }

static bool has_module(const struct preset *preset)
{
    return !preset->accumulator->averages && !preset->accumulator->replaces;
}

static bool has_keepdim(const struct preset *preset) { return has_module(preset); }

enum { ANY = FAMILIES_OF_SCHEMES | FAMILY_TORCH | FAMILY_QUARK | FAMILY_MODELOPT | FAMILY_ORT | FAMILY_TORCHAO };
#define EVERY NULL
#define FIELD(name) offsetof(struct qobs_config, name)

/* Rows for words, for true and false, for numbers, and for settings that have no value until they are set; ADDED: and
 * that a preset of saved states of format 3 got later. */
#define WORD(key, families, only, field, words, help)                                                                  \
    {key, families, only, KIND_WORD, FIELD(field), NO_FIELD, words, 0, 0, help, false, false}
#define SWITCH(key, families, only, field, help)                                                                       \
    {key, families, only, KIND_BOOL, FIELD(field), NO_FIELD, switch_words, 0, 0, help, false, false}
#define NUMBER(key, families, only, kind, field, min, max, help)                                                       \
    {key, families, only, kind, FIELD(field), NO_FIELD, NULL, min, max, help, false, false}
#define OPTIONAL(key, families, only, kind, field, set, min, max, help)                                                \
    {key, families, only, kind, FIELD(field), FIELD(set), NULL, min, max, help, false, false}
#define ADDED(key, families, only, kind, field, set, min, max, help)                                                   \
    {key, families, only, kind, FIELD(field), FIELD(set), NULL, min, max, help, true, false}

/* Key, families, presets, kind, field, the field that is true once the setting has a value, limits, help. */
static const struct setting settings[] = {
    WORD("base_name", ANY, EVERY, base_name, base_names, "kind of the tensor"),
    WORD("nonfinite", ANY, has_no_histogram, nonfinite, nonfinite_modes, "treatment of NaN and infinity"),
    WORD("nonfinite", ANY, qobs_preset_has_torch_histogram, nonfinite, histogram_nonfinite_modes,
         "treatment of NaN and infinity"),
    NUMBER("bins", FAMILY_TORCH | FAMILY_QUARK, qobs_preset_has_torch_histogram, KIND_LONG, bins, 1, 0x1p20,
           "number of bins"),
    NUMBER("upsample_rate", FAMILY_TORCH | FAMILY_QUARK, qobs_preset_has_torch_histogram, KIND_INTEGER, upsample_rate,
           1, 0x1p20, "accepted, without effect, as in torch since 2.5"),
    SWITCH("float32_counts", ANY, qobs_preset_has_torch_histogram, float32_counts,
           "counts stop at 2^24, as upstream's do"),
    SWITCH("float32_counts", FAMILY_QUARK | FAMILY_MODELOPT, grows_bins, float32_counts,
           "counts stop at 2^24, as upstream's do"),
    SWITCH("shifted_counts", FAMILY_QUARK, grows_bins, shifted_counts, "old counts move with their bins"),
    NUMBER("percentile", ANY, has_percentile, KIND_REAL, percentile, 0, 100,
           "share of the elements in the range, in percent"),
    NUMBER("stride", ANY, has_start_bin, KIND_LONG, stride, 1, 0x1p31, "distance of the candidates in bins"),
    NUMBER("start_bin", ANY, has_start_bin, KIND_LONG, start_bin, 0, 0x1p31, "first candidate"),
    NUMBER("num_bins", FAMILY_MODELOPT, has_modelopt_bins, KIND_LONG, num_bins, 1, 0x1p20,
           "number of bins of the first batch"),
    SWITCH("skip_zeros", FAMILY_MODELOPT, grows_bins, skip_zeros, "zeros are not counted"),
    SWITCH("torch_hist", FAMILY_MODELOPT, grows_bins, torch_hist, "bins of torch.histc; `false`: of numpy.histogram"),
    WORD("method", FAMILY_MODELOPT, grows_bins, method, amax_methods, "rule that finds the range"),
    SWITCH("reduce_range", FAMILY_QUARK, qobs_preset_has_torch_histogram, reduce_range, "use one bit less"),
    NUMBER("averaging_constant", ANY, averages, KIND_REAL, averaging_constant, 0, 1,
           "weight of a new batch in the moving average"),
    NUMBER("num_bits", FAMILY_LLMC, EVERY, KIND_INTEGER, num_bits, 2, 16, "bits of the quantized numbers"),
    NUMBER("num_bits", FAMILY_QOBS, EVERY, KIND_INTEGER, num_bits, 2, 8, "bits of the quantized numbers"),
    WORD("num_bits", FAMILY_MODELOPT, EVERY, num_bits, modelopt_num_bits, "bits of the integers; `[4, 3]` is e4m3"),
    WORD("type", FAMILIES_OF_SCHEMES, EVERY, type, types, "integers or floating-point numbers"),
    SWITCH("symmetric", FAMILIES_OF_SCHEMES | FAMILY_QUARK, EVERY, symmetric, "symmetric range, zero point 0"),
    WORD("strategy", FAMILIES_OF_SCHEMES, EVERY, strategy, strategies,
         "elements that share a scale; `null`: derived from `group_size`"),
    OPTIONAL("group_size", FAMILIES_OF_SCHEMES, EVERY, KIND_LONG, group_size, has_group_size, -1, 0x1p53,
             "columns of a group; -1: one group for each row"),
    OPTIONAL("group_size", FAMILY_QUARK, EVERY, KIND_LONG, group_size, has_group_size, -1, 0x1p53,
             "elements of a group or block along `ch_axis`; -1: all"),
    OPTIONAL("block_structure", FAMILY_LLMC, EVERY, KIND_PAIR, block, has_block, 1, 0x1p31,
             "height and width of a block"),
    WORD("dynamic", FAMILY_LLMC, EVERY, dynamic, dynamics,
         "scales are computed at run time; `local`: under a stored global scale"),
    WORD("scale_dtype", FAMILIES_OF_SCHEMES, EVERY, scale_dtype, scale_dtypes,
         "dtype to which scales are rounded; `uint8`: powers of two"),
    WORD("zp_dtype", FAMILY_LLMC, EVERY, zp_dtype, zp_dtypes, "dtype of the zero point"),
    WORD("version", FAMILY_LLMC, EVERY, version, versions, "release of llm-compressor that is reproduced"),
    {"observer", FAMILIES_OF_SCHEMES, EVERY, KIND_OWN_NAME, 0, NO_FIELD, NULL, 0, 0,
     "accepted only with the preset's own name", false, false},
    SWITCH("ragged", FAMILY_LLMC, EVERY, ragged, "a last group may be shorter"),
    NUMBER("maxshrink", ANY, searches, KIND_REAL, maxshrink, 0, 1,
           "largest part of the range that a candidate removes"),
    NUMBER("patience", ANY, has_chunks, KIND_LONG, patience, 0, 0x1p31,
           "failed candidates in a row that end the search"),
    NUMBER("patience", ANY, has_importance, KIND_LONG, patience, 0, 0x1p31,
           "failed candidates in a row that end the search; 0: never"),
    NUMBER("grid", ANY, searches, KIND_REAL, grid, 0x1p-10, 0x1p16, "number of steps from the complete range to 0"),
    NUMBER("norm", ANY, searches, KIND_REAL, norm, 0x1p-10, 0x1p10, "exponent of the error"),
    NUMBER("expand", ANY, has_chunks, KIND_REAL, expand, 1, 0x1p10, "factor of the range before the search"),
    NUMBER("expand", ANY, has_importance, KIND_REAL, expand, 0x1p-10, 0x1p10, "factor of the range before the search"),
    WORD("search_dtype", FAMILY_LLMC, searches, search_dtype, search_dtypes,
         "arithmetic of the search on BF16 and F16: upstream's in that dtype, or float"),
    NUMBER("chunk_size", ANY, has_chunks, KIND_LONG, chunk_size, 1, 0x1p31, "accepted, without effect"),
    SWITCH("strict", ANY, weighs_columns, strict, "fail if importance cannot be used"),
    NUMBER("start_multiplier", FAMILY_QOBS, is_optimal, KIND_REAL, start_multiplier, 0x1p-20, 4,
           "smallest scale tried, in multiples of that of the range"),
    NUMBER("stop_multiplier", FAMILY_QOBS, is_optimal, KIND_REAL, stop_multiplier, 0x1p-20, 4,
           "largest scale tried, in multiples of that of the range"),
    SWITCH("signed_scale", FAMILY_QOBS, is_optimal, signed_scale, "negative scales, too; symmetric integers only"),
    NUMBER("dampening_frac", FAMILY_QOBS, weighs_columns, KIND_REAL, dampening_frac, 0, 1,
           "share of a group's mean importance that is added to each column"),
    NUMBER("hessian_block_size", FAMILY_QOBS, has_hessian, KIND_LONG, hessian_block_size, 0, 0x1p31,
           "columns of a block of the Hessian; 0: the group"),
    NUMBER("passes", FAMILY_QOBS, has_hessian, KIND_INTEGER, passes, 0, 100,
           "passes over the groups of a block, at most; 0: each group alone"),
    NUMBER("zero_point_radius", FAMILY_QOBS, has_hessian, KIND_INTEGER, zero_point_radius, 0, 256,
           "largest distance of zero points from the one without the Hessian"),
    {"rounding", FAMILY_QOBS, has_hessian, KIND_WORD, FIELD(rounding), FIELD(has_rounding), roundings, 0, 0,
     "codes: nearest, or by descent under the Hessian; `null`: nearest", true, true},
    {"rounding_passes", FAMILY_QOBS, has_hessian, KIND_INTEGER, FIELD(rounding_passes), FIELD(has_rounding_passes),
     NULL, 1, 100, "passes of the descent over the columns, at most; `null`: 4", true, true},
    WORD("dtype", FAMILY_TORCH, is_no_placeholder, dtype, torch_dtypes + FLOATING, "dtype of the quantized numbers"),
    WORD("dtype", FAMILY_TORCH, is_placeholder, dtype, torch_dtypes, "dtype of the quantized numbers"),
    WORD("qscheme", FAMILY_TORCH, EVERY, qscheme, qschemes, "granularity, and symmetric or affine"),
    SWITCH("reduce_range", FAMILY_TORCH, has_ranges, reduce_range, "use one bit less"),
    OPTIONAL("quant_min", FAMILY_TORCH | FAMILY_TORCHAO, EVERY, KIND_LONG, quant_min, has_quant_min, -0x1p31, 0x1p32,
             "smallest quantized number"),
    OPTIONAL("quant_max", FAMILY_TORCH | FAMILY_TORCHAO, EVERY, KIND_LONG, quant_max, has_quant_max, -0x1p31, 0x1p32,
             "largest quantized number"),
    NUMBER("eps", FAMILY_TORCH, has_ranges, KIND_REAL, eps, 0, 1e38, "smallest scale"),
    NUMBER("ch_axis", FAMILY_TORCH, has_channels, KIND_INTEGER, ch_axis, -QOBS_MAX_NDIM, QOBS_MAX_NDIM - 1,
           "axis of the channels; negative: from the end"),
    SWITCH("is_dynamic", FAMILY_TORCH, EVERY, is_dynamic,
           "accepted; moving averages need `averaging_constant` 1 with it"),
    SWITCH("is_dynamic", FAMILY_QUARK, EVERY, is_dynamic, "use only the last batch"),
    OPTIONAL("scale", FAMILY_TORCH | FAMILY_TORCHAO, is_fixed, KIND_REAL, scale, has_scale, -FLT_MAX, FLT_MAX,
             "the scale"),
    OPTIONAL("zero_point", FAMILY_TORCH | FAMILY_TORCHAO, is_fixed, KIND_LONG, zero_point, has_zero_point, INT32_MIN,
             INT32_MAX, "the zero point"),
    WORD("dtype", FAMILY_QUARK, EVERY, quark_dtype, quark_dtypes, "dtype of the quantized numbers"),
    WORD("qscheme", FAMILY_QUARK, EVERY, quark_qscheme, quark_qschemes, "granularity, and symmetric or affine"),
    OPTIONAL("ch_axis", FAMILY_QUARK, EVERY, KIND_INTEGER, ch_axis, has_ch_axis, -QOBS_MAX_NDIM, QOBS_MAX_NDIM - 1,
             "axis of the channels; negative: from the end"),
    WORD("zero_point_type", FAMILY_QUARK, EVERY, zero_point_type, zero_point_types, "dtype of the zero point"),
    WORD("scale_type", FAMILY_QUARK, EVERY, scale_type, scale_types,
         "dtype to which scales are rounded; `float`: not rounded"),
    WORD("scale_format", FAMILY_QUARK, EVERY, scale_format, scale_formats, "number format of the scales"),
    WORD("scale_calculation_mode", FAMILY_QUARK, EVERY, scale_calculation_mode, scale_modes,
         "rounding of power-of-two scales"),
    WORD("mx_element_dtype", FAMILY_QUARK, EVERY, mx_element_dtype, quark_dtypes,
         "dtype of the elements of `mx` formats"),
    ADDED("quant_max_first_level", FAMILY_QUARK, is_tensor_minmax, KIND_REAL, quant_max_first_level, has_first_level,
          0x1p-20, 0x1p20, "largest number of the fp4 quantizer whose scales these fp8 numbers are"),
    WORD("threshold_init_meth", FAMILY_QUARK, has_threshold, threshold_init_meth, threshold_methods,
         "first threshold: three standard deviations, or lowest divergence"),
    NUMBER("scope", FAMILY_QUARK, has_scope, KIND_INTEGER, scope, 0, 127,
           "exponents tried below that of the magnitude"),
    SWITCH("symmetric", FAMILY_ORT, has_symmetric_data, symmetric, "the calibrated range is symmetric"),
    NUMBER("num_bins", FAMILY_ORT, has_ort_bins, KIND_LONG, num_bins, 1, 0x1p20, "number of bins of the first batch"),
    NUMBER("num_quantized_bins", FAMILY_ORT, has_quantized_bins, KIND_LONG, num_quantized_bins, 1, 0x1p20,
           "number of bins that a candidate is quantized to"),
    WORD("scenario", FAMILY_ORT, has_moments, scenario, ort_scenarios, "moments of values, or of their cube roots"),
    SWITCH("moving_average", FAMILY_ORT, has_ort_ranges, moving_average, "moving average of the ranges of the batches"),
    NUMBER("averaging_constant", FAMILY_ORT, has_ort_ranges, KIND_REAL, averaging_constant, 0, 1,
           "weight of a new batch in the moving average"),
    SWITCH("per_channel", FAMILY_ORT, has_ort_ranges, per_channel, "one range for each index of dimension 1"),
    WORD("activation_type", FAMILY_ORT, has_no_moments, activation_type, ort_types, "type of the quantized numbers"),
    SWITCH("activation_symmetric", FAMILY_ORT, has_no_moments, activation_symmetric,
           "symmetric range of the quantized numbers"),
    SWITCH("reduce_range", FAMILY_ORT, has_no_moments, reduce_range, "use one bit less"),
    OPTIONAL("min_real_range", FAMILY_ORT, has_no_moments, KIND_REAL, min_real_range, has_min_real_range, 0, 1e38,
             "smallest width of a range"),
    {"activation_restricted_asymmetric", FAMILY_ORT, has_no_moments, KIND_BOOL, FIELD(restricted_asymmetric),
     FIELD(has_restricted_asymmetric), switch_words, 0, 0,
     "zero points of `QUInt8` are the smallest number or the middle; `null`: false", true, false},
    WORD("mapping_type", FAMILY_TORCHAO, EVERY, mapping_type, mapping_types, "how real numbers map to integers"),
    WORD("target_dtype", FAMILY_TORCHAO, EVERY, target_dtype, torchao_dtypes, "dtype of the quantized numbers"),
    WORD("granularity", FAMILY_TORCHAO, EVERY, torchao_granularity, torchao_granularities,
         "elements that share a scale"),
    NUMBER("axis", FAMILY_TORCHAO, EVERY, KIND_INTEGER, axis, -QOBS_MAX_NDIM, QOBS_MAX_NDIM - 1,
           "PerAxis: the axis that is kept; negative: from the end"),
    NUMBER("dim", FAMILY_TORCHAO, EVERY, KIND_INTEGER, dim, -QOBS_MAX_NDIM, QOBS_MAX_NDIM - 1,
           "PerRow: the axis that is reduced; negative: from the end"),
    OPTIONAL("group_size", FAMILY_TORCHAO, EVERY, KIND_LONG, group_size, has_group_size, 1, 0x1p53,
             "PerGroup: elements of a group along the last dimension"),
    OPTIONAL("block_size", FAMILY_TORCHAO, EVERY, KIND_AXES, block_sizes, has_block_sizes, 1, 0x1p16,
             "PerBlock: elements of a block along the last dimensions"),
    OPTIONAL("eps", FAMILY_TORCHAO, EVERY, KIND_REAL, eps, has_eps, 0, 1e38,
             "smallest scale; `null`: that of the module for the dtype"),
    WORD("scale_dtype", FAMILY_TORCHAO, EVERY, torchao_scale_dtype, torchao_scale_dtypes,
         "dtype of the scale; `null`: that of the tensor"),
    WORD("zero_point_dtype", FAMILY_TORCHAO, EVERY, torchao_zero_point_dtype, torchao_qparam_dtypes,
         "dtype of the zero point; `null`: that of the module"),
    SWITCH("preserve_zero", FAMILY_TORCHAO, EVERY, preserve_zero, "0 has an exact quantized number"),
    WORD("zero_point_domain", FAMILY_TORCHAO, EVERY, zero_point_domain, zero_point_domains,
         "numbers that zero points are; `NONE`: there are no zero points"),
    SWITCH("keepdim", FAMILY_TORCHAO, has_keepdim, keepdim, "reduced dimensions stay in the shape, as 1"),
    WORD("module", FAMILY_TORCHAO, has_module, torchao_module, torchao_modules,
         "whose observer: torchao.quantization's or torchao.quantization.pt2e's"),
    SWITCH("is_dynamic", FAMILY_TORCHAO, averages, is_dynamic,
           "accepted; moving averages need `averaging_constant` 1 with it"),
    NUMBER("steps", FAMILY_TORCHAO, searches_line, KIND_INTEGER, steps, 1, 0x1p16, "number of thresholds"),
    SWITCH("run_once", FAMILY_TORCHAO, searches_line, run_once, "later batches are ignored"),
    {"four_over_six", FAMILY_MODELOPT, sweeps_scales, KIND_BOOL, FIELD(four_over_six), FIELD(has_four_over_six),
     switch_words, 0, 0, "scales are normalised to 256 instead of 448; `null`: false", true, false},
    ADDED("hessian_block_size", FAMILY_MODELOPT, sweeps_amax, KIND_LONG, hessian_block_size, has_hessian_block, 8, 512,
          "columns of a block of the Hessian that weighs errors, a multiple of 8; `null`: squared errors"),
    OPTIONAL("axis", FAMILY_MODELOPT, is_bias, KIND_AXES, axes, has_axes, -QOBS_MAX_NDIM, QOBS_MAX_NDIM - 1,
             "axes that are reduced; `null`: all"),
    WORD("method", FAMILY_MODELOPT, is_bias, bias_method, bias_methods, "mean, or middle of minimum and maximum"),
    NUMBER("anchor_percentile", FAMILY_MODELOPT, has_headroom, KIND_REAL, anchor_percentile, 0x1p-30, 100,
           "share of the blocks below the anchor, in percent"),
    NUMBER("upper_percentile", FAMILY_MODELOPT, has_headroom, KIND_REAL, upper_percentile, 0x1p-30, 100,
           "share of the blocks that the amax must hold, in percent"),
    NUMBER("rho", FAMILY_MODELOPT, has_headroom, KIND_REAL, rho, 0x1p-30, 28671.999,
           "amax as a multiple of the anchor"),
    NUMBER("log2_min", FAMILY_MODELOPT, has_headroom, KIND_REAL, log2_min, -1000, 1000, "first edge of the bins"),
    NUMBER("log2_max", FAMILY_MODELOPT, has_headroom, KIND_REAL, log2_max, -1000, 1000, "last edge of the bins"),
    OPTIONAL("axis", FAMILY_MODELOPT, is_no_bias, KIND_AXES, axes, has_axes, -QOBS_MAX_NDIM, QOBS_MAX_NDIM - 1,
             "axes that are kept; `null`: one range for the tensor"),
    SWITCH("unsigned", FAMILY_MODELOPT, EVERY, is_unsigned, "quantized numbers are not negative"),
    SWITCH("narrow_range", FAMILY_MODELOPT, has_multiples, narrow_range, "leave out the smallest integer"),
    NUMBER("step_size", FAMILY_MODELOPT, has_multiples, KIND_REAL, step_size, 0x1p-20, 0x1p20,
           "distance of the multiples"),
    NUMBER("start_multiplier", FAMILY_MODELOPT, has_multiples, KIND_REAL, start_multiplier, 0, 0x1p20,
           "first multiple of the amax"),
    NUMBER("stop_multiplier", FAMILY_MODELOPT, has_multiples, KIND_REAL, stop_multiplier, 0, 0x1p20,
           "last multiple of the amax"),
    NUMBER("block_size", FAMILY_MODELOPT, has_blocks, KIND_LONG, block_size, 1, 0x1p31,
           "elements of a block of the last dimension"),
};

enum { SETTINGS = sizeof settings / sizeof *settings };

static bool applies(const struct setting *s, const struct preset *preset)
{
    return (s->families & (int)preset->family) && (!s->only || s->only(preset));
}

bool qobs_setting_is_saved(const struct setting *s, const struct qobs_config *config)
{
    return !s->added || *(const bool *)((const unsigned char *)config + s->set);
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

int qobs_setting_require(const struct preset *preset, const char *key, const struct setting **setting,
                         qobs_error *error)
{
    *setting = qobs_setting_find(preset, key);
    if (*setting)
        return QOBS_OK;
    char known[220];
    size_t used = 0;
    known[0] = '\0';
    const struct setting *s;
    for (size_t i = 0; (s = qobs_setting_at(preset, i)) && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", s->key);
    return qobs_invalid(error, "%s: '%s' is no setting; known are %s", preset->name, key, known);
}

struct qobs_config qobs_config_defaults(const struct preset *preset)
{
    static const struct search_defaults no_search;
    const struct search_defaults *search = searches(preset) ? preset->search : &no_search;
    struct qobs_config config = {
        .preset = preset,
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
        .passes = 2,
        .zero_point_radius = 1,
        .block_size = 16,
        .dtype = is_placeholder(preset) ? TORCH_FLOAT32 : TORCH_QUINT8,
        .eps = 0x1p-23,
        .nonfinite = qobs_preset_has_torch_histogram(preset) ? NONFINITE_REFUSE_NAN : NONFINITE_REFUSE,
        .bins = 2048,
        .percentile = 99.99,
        .stride = 1,
        .start_bin = 128,
        .num_bins = 2048,
        .anchor_percentile = 1,
        .upper_percentile = 99.99,
        .rho = 16384,
        .log2_min = -40,
        .log2_max = 40,
        .num_quantized_bins = 128,
        .torch_hist = true,
        .upsample_rate = 16,
        .dim = -1,
        .preserve_zero = true,
        .steps = 100,
    };
    if (preset->ops->set_defaults)
        preset->ops->set_defaults(&config);
    return config;
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
const char *qobs_torchao_dtype_text(int dtype) { return text_of(torchao_dtypes, dtype); }
const char *qobs_quark_qscheme_text(int qscheme) { return text_of(quark_qschemes, qscheme); }
