/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From a configuration to the reduction and its histogram. */
#include "config/dtypes.h"
#include "config/stages.h"

/* Bins of the first batch of Quark's histograms. */
enum { QUARK_BINS = 2048, QUARK_PERCENTILE_BINS = 4200 };

static void resolve_histogram(const qobs_config *config, struct histogram_rule *rule)
{
    const struct histogram_ops *ops = config->preset->reduction->histogram;
    const bool percentile = config->preset->range == &qobs_range_percentile;
    *rule = (struct histogram_rule){.ops = ops,
                                    .params = {.bins = (size_t)config->bins,
                                               .float32_counts = config->float32_counts,
                                               .shifted_counts = config->shifted_counts,
                                               .nonfinite = (enum nonfinite_mode)config->nonfinite}};
    if (ops == &qobs_histogram_quark) {
        rule->params.bins = percentile ? QUARK_PERCENTILE_BINS : QUARK_BINS;
        rule->params.magnitude = config->symmetric;
        rule->params.skip_zeros = percentile;
    } else if (ops == &qobs_histogram_log2) {
        rule->params.bins = (size_t)config->num_bins;
        rule->params.block_size = config->block_size;
        rule->params.log2_min = config->log2_min;
        rule->params.log2_max = config->log2_max;
    } else if (ops == &qobs_histogram_ort) {
        rule->params.bins = (size_t)config->num_bins;
        rule->params.magnitude = config->preset->range == &qobs_range_ort_percentile && config->symmetric;
    } else if (ops == &qobs_histogram_modelopt) {
        rule->ops = config->torch_hist ? ops : &qobs_histogram_numpy;
        rule->params.bins = (size_t)config->num_bins;
        rule->params.magnitude = true;
        rule->params.skip_zeros = config->skip_zeros;
    }
}

void qobs_resolve_reduction(const qobs_config *config, struct reduction *reduction)
{
    const struct preset *preset = config->preset;
    const bool modelopt = preset->range == &qobs_range_multiplier || preset->range == &qobs_range_e4m3;
    *reduction = (struct reduction){.ops = preset->reduction, .nonfinite = (enum nonfinite_mode)config->nonfinite};
    resolve_histogram(config, &reduction->histogram);
    reduction->in_f32 = preset->family == FAMILY_TORCH || reduction->histogram.ops || modelopt;
    reduction->f64_in_f32 = preset->reduction == &qobs_reduction_absmax_f32;
    if (preset->reduction == &qobs_reduction_tqt) {
        reduction->in_f32 = true;
        if (config->threshold_init_meth == THRESHOLD_KL_J)
            reduction->numbers = (size_t)qobs_quark_number(config->quark_dtype).quant_max + 1;
    }
    /* Block floating point counts what is not finite as 0, as upstream does; for a magnitude that is to leave it out.
     */
    if (preset->accumulator == &qobs_accumulate_bfp && config->nonfinite == NONFINITE_PROPAGATE)
        reduction->nonfinite = NONFINITE_IGNORE;
    if (preset->family == FAMILY_ORT && preset->range == &qobs_range_measured && config->symmetric)
        reduction->ops = &qobs_reduction_absmax;
    if (preset->granularity == GRANULARITY_MODELOPT_REDUCED && config->bias_method == BIAS_MAX_MIN)
        reduction->ops = &qobs_reduction_minmax;
    /* Unsigned numbers: the minimum shows negative elements, which are an error. */
    if (preset->range == &qobs_range_multiplier && config->is_unsigned)
        reduction->ops = &qobs_reduction_minmax;
}
