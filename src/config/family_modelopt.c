/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer: settings, checks and parameters of multiples of a magnitude, blocks of a Hessian and histograms. */
#include <math.h>

#include "config/families.h"
#include "histogram/histogram.h"
#include "search/search_errors.h"

static const struct word num_bits[] = {{"2", 2},
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
                                       {"[4, 3]", MODELOPT_E4M3},
                                       {"[4,3]", MODELOPT_E4M3},
                                       {0}};
static const struct word amax_methods[] = {
    {"entropy", AMAX_ENTROPY}, {"mse", AMAX_MSE}, {"percentile", AMAX_PERCENTILE}, {0}};
static const struct word versions[] = {{"0.47", 0}, {"0.48", 1}, {0}};
enum bias_method { BIAS_MEAN, BIAS_MAX_MIN };
static const struct word bias_methods[] = {{"mean", BIAS_MEAN}, {"max_min", BIAS_MAX_MIN}, {0}};

/* ---- Releases ---------------------------------------------------------------------------------------------------- */

/* The largest amax without a scale: of integers the smallest f16. 0.48 gives e4m3 every scale that is finite. */
static const float zero_of_integers = 0x1p-24f, zero_of_e4m3[] = {0x1p-24f, (float)(448 / (double)FLT_MAX)};

static float e4m3_zero(const qobs_config *config)
{
    return zero_of_e4m3[config->modelopt.has_version ? config->modelopt.version : 0];
}

/* ---- Settings ---------------------------------------------------------------------------------------------------- */

static bool has_multiples(const struct preset *preset) { return preset->range->reads & READS_MULTIPLIERS; }

static bool is_bias(const struct preset *preset) { return preset->granularity == &qobs_granularity_modelopt_reduced; }

static bool is_no_bias(const struct preset *preset) { return !is_bias(preset); }

static bool sweeps_amax(const struct preset *preset) { return qobs_range_has_reference(preset->range); }

static bool sweeps_scales(const struct preset *preset) { return preset->range->reads & READS_FOUR_OVER_SIX; }

static bool has_headroom(const struct preset *preset) { return preset->range->reads & READS_HEADROOM; }

static bool has_blocks(const struct preset *preset) { return sweeps_scales(preset) || has_headroom(preset); }

#define HEADROOM(key, min, max, help) NUMBER(#key, has_headroom, KIND_REAL, modelopt.headroom.key, min, max, help)
static const struct setting settings[] = {
    BASE_NAME,
    NONFINITE(EVERY, qobs_nonfinite_modes),
    FLOAT32_COUNTS(qobs_preset_grows_bins),
    PERCENTILE,
    CANDIDATES,
    NUM_BINS,
    SWITCH("skip_zeros", qobs_preset_grows_bins, modelopt.skip_zeros, "zeros are not counted"),
    SWITCH("torch_hist", qobs_preset_grows_bins, modelopt.torch_hist,
           "bins of torch.histc; `false`: of numpy.histogram"),
    WORD("method", qobs_preset_grows_bins, modelopt.method, amax_methods, "rule that finds the range"),
    {"version", EVERY, KIND_WORD, FIELD(modelopt.version), FIELD(modelopt.has_version), versions, 0, 0,
     "release of Model-Optimizer that is reproduced; `null`: 0.47", true, false},
    WORD("num_bits", EVERY, modelopt.num_bits, num_bits, "bits of the integers; `[4, 3]` is e4m3"),
    {"four_over_six", sweeps_scales, KIND_BOOL, FIELD(modelopt.four_over_six), FIELD(modelopt.has_four_over_six),
     qobs_switch_words, 0, 0, "scales are normalised to 256 instead of 448; `null`: false", true, false},
    ADDED("hessian_block_size", sweeps_amax, KIND_LONG, modelopt.hessian_block_size, modelopt.has_hessian_block, 8, 512,
          "columns of a block of the Hessian that weighs errors, a multiple of 8; `null`: squared errors"),
    OPTIONAL("axis", is_bias, KIND_AXES, modelopt.axes, modelopt.has_axes, LEAST_AXIS, MOST_AXIS,
             "axes that are reduced; `null`: all"),
    WORD("method", is_bias, modelopt.bias_method, bias_methods, "mean, or middle of minimum and maximum"),
    HEADROOM(anchor_percentile, 0x1p-30, 100, "share of the blocks below the anchor, in percent"),
    HEADROOM(upper_percentile, 0x1p-30, 100, "share of the blocks that the amax must hold, in percent"),
    HEADROOM(rho, 0x1p-30, 28671.999, "amax as a multiple of the anchor"),
    HEADROOM(log2_min, -1000, 1000, "first edge of the bins"),
    HEADROOM(log2_max, -1000, 1000, "last edge of the bins"),
    OPTIONAL("axis", is_no_bias, KIND_AXES, modelopt.axes, modelopt.has_axes, LEAST_AXIS, MOST_AXIS,
             "axes that are kept; `null`: one range for the tensor"),
    SWITCH("unsigned", EVERY, modelopt.is_unsigned, "quantized numbers are not negative"),
    SWITCH("narrow_range", has_multiples, modelopt.narrow_range, "leave out the smallest integer"),
    NUMBER("step_size", has_multiples, KIND_REAL, modelopt.step_size, 0x1p-20, 0x1p20, "distance of the multiples"),
    NUMBER("start_multiplier", has_multiples, KIND_REAL, modelopt.start_multiplier, 0, 0x1p20,
           "first multiple of the amax"),
    NUMBER("stop_multiplier", has_multiples, KIND_REAL, modelopt.stop_multiplier, 0, 0x1p20,
           "last multiple of the amax"),
    NUMBER("block_size", has_blocks, KIND_LONG, modelopt.block_size, 1, 0x1p31,
           "elements of a block of the last dimension"),
};

/* Blocks of the Hessian are whole vectors of the kernels, and lie in one block of the scales. */
static int check_hessian(const qobs_config *config, qobs_error *error)
{
    const int64_t block = config->modelopt.hessian_block_size, scales = config->modelopt.block_size;
    if (!config->modelopt.has_hessian_block)
        return QOBS_OK;
    if (block % 8 != 0)
        return qobs_invalid(error, "hessian_block_size: is %lld, allowed are multiples of 8", (long long)block);
    if (sweeps_scales(config->preset) && scales % block != 0)
        return qobs_invalid(error, "hessian_block_size: is %lld, does not divide block_size, %lld", (long long)block,
                            (long long)scales);
    return QOBS_OK;
}

/* The multiples tried. */
static double steps_of(const qobs_config *config)
{
    const struct modelopt_settings *s = &config->modelopt;
    return ceil((s->stop_multiplier - s->start_multiplier) / s->step_size) + 1;
}

static int check(const qobs_config *config, qobs_error *error)
{
    if (has_headroom(config->preset) && !(config->modelopt.headroom.log2_min < config->modelopt.headroom.log2_max))
        return qobs_invalid(error, "log2_max: is %g, must be above log2_min, %g", config->modelopt.headroom.log2_max,
                            config->modelopt.headroom.log2_min);
    RETURN_IF_FAILED(check_hessian(config, error));
    if (!(has_multiples(config->preset)))
        return QOBS_OK;
    const double steps = steps_of(config);
    if (config->modelopt.stop_multiplier < config->modelopt.start_multiplier)
        return qobs_invalid(error, "stop_multiplier: is %g, must not be below start_multiplier, %g",
                            config->modelopt.stop_multiplier, config->modelopt.start_multiplier);
    if (steps > QOBS_MAX_MULTIPLIERS)
        return qobs_invalid(error, "step_size: %g makes %.0f candidates, allowed are %d", config->modelopt.step_size,
                            steps, QOBS_MAX_MULTIPLIERS);
    return QOBS_OK;
}

static void set_defaults(struct qobs_config *config)
{
    config->modelopt = (struct modelopt_settings){
        .num_bits = 8,
        .step_size = 0.1,
        .start_multiplier = 0.25,
        .stop_multiplier = 4,
        .block_size = 16,
        .torch_hist = true,
        .headroom = {.anchor_percentile = 1, .upper_percentile = 99.99, .rho = 16384, .log2_min = -40, .log2_max = 40}};
    if (has_headroom(config->preset))
        config->histogram.num_bins = 512;
}

static void granularity(const qobs_config *config, struct granularity *g)
{
    g->params.axes = config->modelopt.axes;
    g->params.block_size = config->modelopt.block_size;
}

static bool has_range_for_bias(const qobs_config *config)
{
    return is_bias(config->preset) && config->modelopt.bias_method == BIAS_MAX_MIN;
}

static void reduction(const qobs_config *config, struct reduction *r)
{
    struct histogram_rule *h = &r->histogram;
    h->params.bins = (size_t)config->histogram.num_bins;
    if (has_headroom(config->preset)) {
        h->params.block_size = config->modelopt.block_size;
        h->params.log2_min = config->modelopt.headroom.log2_min;
        h->params.log2_max = config->modelopt.headroom.log2_max;
    } else if (h->ops) {
        h->ops = config->modelopt.torch_hist ? h->ops : &qobs_histogram_numpy;
        h->params.magnitude = true;
        h->params.skip_zeros = config->modelopt.skip_zeros;
    }
    r->in_f32 = r->in_f32 || qobs_range_has_reference(config->preset->range);
    /* Unsigned numbers: the minimum shows negative elements, which are an error. */
    if (has_range_for_bias(config) || (has_multiples(config->preset) && config->modelopt.is_unsigned))
        r->ops = &qobs_reduction_minmax;
}

static void accumulator(const qobs_config *config, struct accumulator *a)
{
    if (has_range_for_bias(config)) {
        a->ops = &qobs_accumulate_extremes;
        a->merge = MERGE_EXTREMES;
    }
}

/* The largest magnitude of Model-Optimizer's integers. */
static int64_t bound_of(const qobs_config *config)
{
    return (INT64_C(1) << (config->modelopt.num_bits - 1 + config->modelopt.is_unsigned)) - 1;
}

static void amax_numbers(const qobs_config *config, struct amax_numbers *numbers)
{
    const bool e4m3 = config->modelopt.num_bits == MODELOPT_E4M3;
    const int64_t bound = e4m3 ? 448 : bound_of(config);
    *numbers = (struct amax_numbers){
        .quant_min = (double)(e4m3                            ? -bound
                              : config->modelopt.is_unsigned  ? 0
                              : config->modelopt.narrow_range ? -bound
                                                              : -bound - 1),
        .quant_max = (double)bound,
        .e4m3 = e4m3,
        .zero_amax = e4m3 ? e4m3_zero(config) : zero_of_integers,
    };
}

static void range(const qobs_config *config, struct range_rule *rule)
{
    struct amax_numbers numbers;
    if (has_headroom(config->preset)) {
        rule->params.headroom = config->modelopt.headroom;
        return;
    }
    amax_numbers(config, &numbers);
    rule->params.hessian_block = config->modelopt.has_hessian_block ? config->modelopt.hessian_block_size : 0;
    rule->params.importance = rule->params.hessian = rule->params.hessian_block > 0;
    rule->params.multiplier = (struct multiplier_params){
        .count = sweeps_scales(config->preset) ? QOBS_E4M3_MULTIPLIERS : (size_t)steps_of(config),
        .start = config->modelopt.start_multiplier,
        .stop = config->modelopt.stop_multiplier,
        .quant_min = (int64_t)numbers.quant_min,
        .quant_max = (int64_t)numbers.quant_max,
        .four_over_six = config->modelopt.has_four_over_six && config->modelopt.four_over_six,
        .format = numbers.e4m3 ? qobs_format_find("fp8_e4m3") : NULL,
        .zero_amax = sweeps_scales(config->preset) ? e4m3_zero(config) : numbers.zero_amax,
    };
}

static void bins(const qobs_config *config, struct bins_params *b)
{
    b->method = (enum amax_method)config->modelopt.method;
    b->of_magnitudes = true;
    b->from_zero = config->modelopt.is_unsigned;
    if (config->modelopt.num_bits == MODELOPT_E4M3) {
        b->centres = CENTRES_MODELOPT_E4M3;
        b->zero_amax = e4m3_zero(config);
        b->format = qobs_format_find("fp8_e4m3");
        return;
    }
    b->levels = (size_t)bound_of(config) + 1;
    b->centres = CENTRES_MODELOPT_INTEGER;
    b->zero_amax = zero_of_integers;
    b->quant_max = (double)bound_of(config);
    b->quant_min = config->modelopt.is_unsigned ? 0 : -b->quant_max;
}

static void traits(const qobs_config *config, struct observer_traits *t) { t->bias = is_bias(config->preset); }

const struct family_ops qobs_family_modelopt = {
    .old_prefix = "trt.",
    SETTINGS_OF(settings),
    .finders = FINDER_PERCENTILE | FINDER_ENTROPY | FINDER_MSE,
    .set_defaults = set_defaults,
    .check = check,
    .granularity = granularity,
    .reduction = reduction,
    .accumulator = accumulator,
    .bins = bins,
    .range = range,
    .traits = traits,
    .amax_numbers = amax_numbers,
};
