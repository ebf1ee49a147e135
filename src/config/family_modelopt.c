/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Model-Optimizer: multiples of a magnitude, blocks of a Hessian, histograms. */
#include <math.h>

#include "base/error.h"
#include "config/families.h"
#include "qobs/format.h"
#include "search/search_errors.h"

/* Blocks of the Hessian are whole vectors of the kernels, and lie in one block of the scales. */
static int check_hessian(const qobs_config *config, qobs_error *error)
{
    const int64_t block = config->hessian_block_size, scales = config->block_size;
    if (!config->has_hessian_block)
        return QOBS_OK;
    if (block % 8 != 0)
        return qobs_invalid(error, "hessian_block_size: is %lld, allowed are multiples of 8", (long long)block);
    if (config->preset->range->reads & READS_FOUR_OVER_SIX && scales % block != 0)
        return qobs_invalid(error, "hessian_block_size: is %lld, does not divide block_size, %lld", (long long)block,
                            (long long)scales);
    return QOBS_OK;
}

static int check(const qobs_config *config, qobs_error *error)
{
    if (config->preset->range->reads & READS_HEADROOM && !(config->log2_min < config->log2_max))
        return qobs_invalid(error, "log2_max: is %g, must be above log2_min, %g", config->log2_max, config->log2_min);
    RETURN_IF_FAILED(check_hessian(config, error));
    if (!(config->preset->range->reads & READS_MULTIPLIERS))
        return QOBS_OK;
    const double steps = ceil((config->stop_multiplier - config->start_multiplier) / config->step_size) + 1;
    if (config->stop_multiplier < config->start_multiplier)
        return qobs_invalid(error, "stop_multiplier: is %g, must not be below start_multiplier, %g",
                            config->stop_multiplier, config->start_multiplier);
    if (steps > QOBS_MAX_MULTIPLIERS)
        return qobs_invalid(error, "step_size: %g makes %.0f candidates, allowed are %d", config->step_size, steps,
                            QOBS_MAX_MULTIPLIERS);
    return QOBS_OK;
}

static void set_defaults(struct qobs_config *config)
{
    if (config->preset->range->reads & READS_HEADROOM)
        config->num_bins = 512;
}

static bool has_range_for_bias(const qobs_config *config)
{
    return config->preset->granularity == GRANULARITY_MODELOPT_REDUCED && config->bias_method == BIAS_MAX_MIN;
}

static void reduction(const qobs_config *config, struct reduction *r)
{
    const int reads = config->preset->range->reads;
    struct histogram_rule *h = &r->histogram;
    h->params.bins = (size_t)config->num_bins;
    if (reads & READS_HEADROOM) {
        h->params.block_size = config->block_size;
        h->params.log2_min = config->log2_min;
        h->params.log2_max = config->log2_max;
    } else if (h->ops) {
        h->ops = config->torch_hist ? h->ops : &qobs_histogram_numpy;
        h->params.magnitude = true;
        h->params.skip_zeros = config->skip_zeros;
    }
    r->in_f32 = r->in_f32 || qobs_range_has_reference(config->preset->range);
    /* Unsigned numbers: the minimum shows negative elements, which are an error. */
    if (has_range_for_bias(config) || (reads & READS_MULTIPLIERS && config->is_unsigned))
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
    return (INT64_C(1) << (config->num_bits - 1 + config->is_unsigned)) - 1;
}

static void amax_numbers(const qobs_config *config, struct amax_numbers *numbers)
{
    const bool e4m3 = config->num_bits == NUM_BITS_E4M3;
    const int64_t bound = e4m3 ? 448 : bound_of(config);
    *numbers = (struct amax_numbers){
        .quant_min = (double)(e4m3                   ? -bound
                              : config->is_unsigned  ? 0
                              : config->narrow_range ? -bound
                                                     : -bound - 1),
        .quant_max = (double)bound,
        .e4m3 = e4m3,
    };
}

static void resolve_multiplier(const qobs_config *config, struct multiplier_params *m)
{
    struct amax_numbers numbers;
    amax_numbers(config, &numbers);
    *m = (struct multiplier_params){
        .count = (size_t)ceil((config->stop_multiplier - config->start_multiplier) / config->step_size) + 1,
        .start = config->start_multiplier,
        .stop = config->stop_multiplier,
        .quant_min = (int64_t)numbers.quant_min,
        .quant_max = (int64_t)numbers.quant_max,
        .hessian_block = config->has_hessian_block ? config->hessian_block_size : 0,
        .four_over_six = config->has_four_over_six && config->four_over_six,
        .format = numbers.e4m3 ? qobs_format_find("fp8_e4m3") : NULL,
    };
}

static void resolve_modelopt_bins(const qobs_config *config, struct bins_params *b)
{
    if (config->num_bits == NUM_BITS_E4M3) {
        b->centres = CENTRES_MODELOPT_E4M3;
        b->format = qobs_format_find("fp8_e4m3");
        return;
    }
    b->levels = (size_t)bound_of(config) + 1;
    b->centres = CENTRES_MODELOPT_INTEGER;
    b->quant_max = (double)bound_of(config);
    b->quant_min = config->is_unsigned ? 0 : -b->quant_max;
}

static void range(const qobs_config *config, struct range_rule *rule)
{
    rule->params.headroom = (struct headroom_params){.anchor_percentile = config->anchor_percentile,
                                                     .upper_percentile = config->upper_percentile,
                                                     .rho = config->rho,
                                                     .log2_min = config->log2_min,
                                                     .log2_max = config->log2_max};
    qobs_resolve_bins(config, &rule->params.bins);
    resolve_modelopt_bins(config, &rule->params.bins);
    resolve_multiplier(config, &rule->params.multiplier);
    rule->params.importance = rule->params.hessian = rule->params.multiplier.hessian_block > 0;
}

static void traits(const qobs_config *config, struct observer_traits *t)
{
    t->bias = config->preset->granularity == GRANULARITY_MODELOPT_REDUCED;
}

const struct family_ops qobs_family_modelopt = {
    .old_prefix = "trt.",
    .set_defaults = set_defaults,
    .check = check,
    .reduction = reduction,
    .accumulator = accumulator,
    .range = range,
    .traits = traits,
    .amax_numbers = amax_numbers,
};
