/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From a configuration to the reduction. */
#include "config/stages.h"

/* Block floating point counts what is not finite as 0, as upstream does; for a magnitude that is to leave it out. */
static enum nonfinite_mode nonfinite_of(const qobs_config *config)
{
    const bool as_zero = config->preset->statistic == STATISTIC_ABSMAX_BFP && config->nonfinite == NONFINITE_PROPAGATE;
    return as_zero ? NONFINITE_IGNORE : (enum nonfinite_mode)config->nonfinite;
}

static const struct reduction_ops *ops_of(const qobs_config *config, const struct histogram_rule *histogram)
{
    switch (config->preset->statistic) {
    case STATISTIC_NONE:
        return NULL;
    case STATISTIC_ABSMAX:
    case STATISTIC_ABSMAX_STEPS:
    case STATISTIC_LEAST_SCALE:
        return &qobs_reduction_absmax;
    case STATISTIC_MULTIPLES: /* unsigned numbers: negative elements have to be found, which are an error */
        return config->is_unsigned ? &qobs_reduction_minmax : &qobs_reduction_absmax;
    default:
        return histogram->ops ? &qobs_reduction_histogram : &qobs_reduction_minmax;
    }
}

void qobs_resolve_reduction(const qobs_config *config, struct reduction *reduction)
{
    const enum statistic statistic = config->preset->statistic;
    qobs_resolve_histogram(config, &reduction->histogram);
    reduction->ops = ops_of(config, &reduction->histogram);
    reduction->nonfinite = nonfinite_of(config);
    reduction->in_f32 = config->preset->family == FAMILY_TORCH || reduction->histogram.ops || statistic == STATISTIC_MULTIPLES ||
                        statistic == STATISTIC_LEAST_SCALE;
}
