/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From a configuration to the histogram, if its preset has one. */
#include "config/stages.h"

/* Bins of the first batch, which are no setting. */
enum { QUARK_BINS = 2048, QUARK_PERCENTILE_BINS = 4200 };

void qobs_resolve_histogram(const qobs_config *config, struct histogram_rule *rule)
{
    const bool percentile = config->preset->statistic == STATISTIC_PERCENTILE;
    *rule = (struct histogram_rule){.params = {.float32_counts = config->float32_counts,
                                               .shifted_counts = config->shifted_counts,
                                               .nonfinite = (enum nonfinite_mode)config->nonfinite}};
    struct histogram_params *params = &rule->params;
    switch (config->preset->statistic) {
    case STATISTIC_HISTOGRAM:
        rule->ops = &qobs_histogram_torch;
        params->bins = (size_t)config->bins;
        return;
    case STATISTIC_HISTOGRAM_QUARK:
    case STATISTIC_PERCENTILE:
    case STATISTIC_SQUARED_ERROR:
        rule->ops = &qobs_histogram_quark;
        params->bins = percentile ? QUARK_PERCENTILE_BINS : QUARK_BINS;
        params->magnitude = config->symmetric;
        params->skip_zeros = percentile;
        return;
    case STATISTIC_HISTOGRAM_MODELOPT:
        rule->ops = config->torch_hist ? &qobs_histogram_modelopt : &qobs_histogram_numpy;
        params->bins = (size_t)config->num_bins;
        params->magnitude = true;
        params->skip_zeros = config->skip_zeros;
        return;
    default:
        return;
    }
}
