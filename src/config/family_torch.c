/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torch.ao.quantization: settings, checks (UniformQuantizationObserverBase and FixedQParamsObserver) and parameters. */
#include "config/families.h"

enum torch_qscheme {
    TORCH_QSCHEME_NONE, /* affine, per tensor or per channel as the preset is */
    TORCH_PER_TENSOR_AFFINE,
    TORCH_PER_TENSOR_SYMMETRIC,
    TORCH_PER_CHANNEL_AFFINE,
    TORCH_PER_CHANNEL_SYMMETRIC,
    TORCH_PER_CHANNEL_AFFINE_FLOAT_QPARAMS
};
static const struct word qschemes[] = {{"per_tensor_affine", TORCH_PER_TENSOR_AFFINE},
                                       {"per_tensor_symmetric", TORCH_PER_TENSOR_SYMMETRIC},
                                       {"per_channel_affine", TORCH_PER_CHANNEL_AFFINE},
                                       {"per_channel_symmetric", TORCH_PER_CHANNEL_SYMMETRIC},
                                       {"per_channel_affine_float_qparams", TORCH_PER_CHANNEL_AFFINE_FLOAT_QPARAMS},
                                       {0}};

static bool is_placeholder(const struct preset *preset)
{
    return preset->formula == FORMULA_NONE && !qobs_preset_measures(preset);
}

static bool is_no_placeholder(const struct preset *preset) { return !is_placeholder(preset); }

static bool may_have_channels(const struct preset *preset)
{
    return preset->granularity == &qobs_granularity_torch_channel || qobs_preset_has_torch_histogram(preset);
}

static const struct setting settings[] = {
    BASE_NAME,
    NONFINITE(qobs_preset_has_no_torch_histogram, qobs_nonfinite_modes),
    NONFINITE(qobs_preset_has_torch_histogram, qobs_histogram_nonfinite_modes),
    TORCH_HISTOGRAM,
    AVERAGING_CONSTANT(qobs_preset_averages),
    WORD("dtype", is_no_placeholder, torch.dtype, qobs_torch_dtypes + TORCH_FLOATS, "dtype of the quantized numbers"),
    WORD("dtype", is_placeholder, torch.dtype, qobs_torch_dtypes, "dtype of the quantized numbers"),
    WORD("qscheme", EVERY, torch.qscheme, qschemes, "granularity, and symmetric or affine"),
    REDUCE_RANGE(qobs_preset_measures),
    QUANT_LIMITS,
    NUMBER("eps", qobs_preset_measures, KIND_REAL, eps, 0, 1e38, "smallest scale"),
    NUMBER("ch_axis", may_have_channels, KIND_INTEGER, ch_axis, LEAST_AXIS, MOST_AXIS,
           "axis of the channels; negative: from the end"),
    DYNAMIC_OF_ONE_BATCH(EVERY),
    FIXED_QPARAMS,
};

static void set_defaults(struct qobs_config *config)
{
    config->torch.dtype = is_placeholder(config->preset) ? TORCH_FLOAT32 : TORCH_QUINT8;
}

static bool has_channel_scales(const qobs_config *config)
{
    return config->preset->granularity == &qobs_granularity_torch_channel ||
           (qobs_preset_has_torch_histogram(config->preset) && config->torch.qscheme >= TORCH_PER_CHANNEL_AFFINE);
}

/* How many numbers torch takes a dtype to have; the elements of quint4x2 have 8 bits in torch.iinfo. */
static int64_t numbers_of(const qobs_config *config)
{
    const struct torch_number number = qobs_torch_number(config->torch.dtype, false);
    const int64_t numbers = number.quant_max - number.quant_min + 1;
    return numbers < 256 ? 256 : numbers;
}

/* FixedQParamsObserver and PlaceholderObserver do not check their other settings. */
static int check_without_ranges(const qobs_config *config, qobs_error *error)
{
    const bool fixed = config->preset->formula == FORMULA_FIXED;
    if (fixed && !(config->has_scale && config->has_zero_point))
        return qobs_invalid(error, "%s: is not set, %s needs scale and zero_point",
                            config->has_scale ? "zero_point" : "scale", config->preset->name);
    if (fixed && config->is_dynamic)
        return qobs_invalid(error, "is_dynamic: %s cannot be dynamic", config->preset->name);
    return QOBS_OK;
}

static int check(const qobs_config *config, qobs_error *error)
{
    if (!qobs_preset_measures(config->preset))
        return check_without_ranges(config, error);
    const char *name = qobs_word_text(qobs_torch_dtypes, config->torch.dtype);
    const bool channels = has_channel_scales(config);
    if (qobs_preset_has_torch_histogram(config->preset) && config->is_dynamic)
        return qobs_invalid(error, "is_dynamic: %s cannot be dynamic", config->preset->name);
    if (config->torch.qscheme != TORCH_QSCHEME_NONE && channels != (config->torch.qscheme >= TORCH_PER_CHANNEL_AFFINE))
        return qobs_invalid(error, "qscheme: is '%s', %s takes %s", qobs_word_text(qschemes, config->torch.qscheme),
                            config->preset->name,
                            channels ? "per_channel_affine, per_channel_symmetric, per_channel_affine_float_qparams"
                                     : "per_tensor_affine, per_tensor_symmetric");
    if (config->has_quant_min != config->has_quant_max)
        return qobs_invalid(error, "quant_min, quant_max: set both or neither");
    if (config->has_quant_min) {
        const int64_t quant_min = config->quant_min, quant_max = config->quant_max;
        if (quant_min > 0 || quant_max < 0)
            return qobs_invalid(error, "quant_min, quant_max: %lld to %lld does not include 0", (long long)quant_min,
                                (long long)quant_max);
        if (quant_min >= quant_max)
            return qobs_invalid(error, "quant_min, quant_max: %lld is not below %lld", (long long)quant_min,
                                (long long)quant_max);
        const int64_t widest = numbers_of(config) > INT64_C(1) << 31 ? INT64_C(1) << 31 : numbers_of(config);
        if (quant_max - quant_min + 1 > widest)
            return qobs_invalid(error, "quant_min, quant_max: %lld to %lld is %lld wide, dtype %s allows %lld",
                                (long long)quant_min, (long long)quant_max,
                                (long long)quant_max - (long long)quant_min + 1, name, (long long)widest);
    }
    const bool symmetric =
        config->torch.qscheme == TORCH_PER_TENSOR_SYMMETRIC || config->torch.qscheme == TORCH_PER_CHANNEL_SYMMETRIC;
    if (config->reduce_range && symmetric && config->torch.dtype == TORCH_QUINT8)
        return qobs_invalid(error, "reduce_range: cannot be combined with dtype quint8 and a symmetric qscheme");
    return QOBS_OK;
}

static int64_t floor_half(int64_t x) { return x >= 0 ? x / 2 : -((1 - x) / 2); }

void qobs_set_torch(const struct torch_number *number, enum mapping mapping, double eps, struct formula_params *p)
{
    p->mapping = mapping;
    p->quant_min = (double)number->quant_min;
    p->quant_max = (double)number->quant_max;
    p->torch.eps = eps;
    p->torch.symmetric_zero_point = number->symmetric_zero_point;
}

/* Limits that are set replace those of the dtype. A symmetric zero point of 128 then becomes the middle of them. */
struct torch_number qobs_torch_limits(struct torch_number number, int64_t quant_min, int64_t quant_max, bool reduce)
{
    const int64_t min = reduce ? floor_half(quant_min) : quant_min, max = reduce ? floor_half(quant_max) : quant_max;
    const int64_t zero_point = number.symmetric_zero_point;
    return (struct torch_number){.quant_min = min,
                                 .quant_max = max,
                                 .symmetric_zero_point = zero_point == 128 ? floor_half(min + max) : zero_point};
}

static const struct formula_ops *torch(const qobs_config *config, struct formula_params *p)
{
    static const enum mapping mappings[] = {
        [TORCH_QSCHEME_NONE] = MAPPING_AFFINE,
        [TORCH_PER_TENSOR_AFFINE] = MAPPING_AFFINE,
        [TORCH_PER_TENSOR_SYMMETRIC] = MAPPING_SYMMETRIC,
        [TORCH_PER_CHANNEL_AFFINE] = MAPPING_AFFINE,
        [TORCH_PER_CHANNEL_SYMMETRIC] = MAPPING_SYMMETRIC,
        [TORCH_PER_CHANNEL_AFFINE_FLOAT_QPARAMS] = MAPPING_FLOAT,
    };
    struct torch_number number = qobs_torch_number(config->torch.dtype, config->reduce_range);
    if (config->has_quant_min && config->has_quant_max)
        number = qobs_torch_limits(number, config->quant_min, config->quant_max, config->reduce_range);
    qobs_set_torch(&number, mappings[config->torch.qscheme], config->eps, p);
    return &qobs_formula_torch;
}

static const struct formula_ops *fixed(const qobs_config *config, struct formula_params *p)
{
    p->fixed.scale_dtype = QOBS_F32;
    p->fixed.zero_point_dtype = QOBS_I32;
    p->fixed.scale = config->scale;
    p->fixed.zero_point = (double)config->zero_point;
    return &qobs_formula_fixed;
}

static const struct formula_ops *formula(const qobs_config *config, struct formula_params *p)
{
    return config->preset->formula == FORMULA_FIXED  ? fixed(config, p)
           : config->preset->formula == FORMULA_NONE ? &qobs_formula_none
                                                     : torch(config, p);
}

static void granularity(const qobs_config *config, struct granularity *g)
{
    if (has_channel_scales(config))
        g->ops = &qobs_granularity_torch_channel;
}

static void bins(const qobs_config *config, struct bins_params *b) { b->numbers = (double)numbers_of(config); }

const struct family_ops qobs_family_torch = {
    SETTINGS_OF(settings), .finders = FINDER_L2_NORM,  .has_own_quantize = true, .set_defaults = set_defaults,
    .check = check,        .granularity = granularity, .in_f32 = true,           .bins = bins,
    .formula = formula,
};
