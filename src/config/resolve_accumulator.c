/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From a configuration to the accumulator. */
#include "config/stages.h"

#include "formula/quark.h"

/* Quark's is_dynamic keeps the last batch only; torch's changes nothing. */
static bool is_dynamic(const qobs_config *config)
{
    return config->preset->family == FAMILY_QUARK && config->is_dynamic;
}

static const struct accumulator_ops *ops_of(const qobs_config *config)
{
    const bool dynamic = is_dynamic(config);
    switch (config->preset->statistic) {
    case STATISTIC_NONE:
    case STATISTIC_MEMORYLESS:
        return &qobs_accumulate_last;
    case STATISTIC_AVERAGE_LERP: /* llm-compressor averaged as torch does before October 2025 */
        return config->version == VERSION_2025_09 ? &qobs_accumulate_moving_average : &qobs_accumulate_lerp;
    case STATISTIC_AVERAGE_TOWARDS:
        return &qobs_accumulate_moving_average;
    case STATISTIC_ABSMAX:
    case STATISTIC_ABSMAX_STEPS:
        return dynamic ? &qobs_accumulate_absmax_last : &qobs_accumulate_absmax;
    case STATISTIC_ABSMAX_BFP:
        return dynamic ? &qobs_accumulate_bfp_last : &qobs_accumulate_bfp;
    case STATISTIC_MULTIPLES:
        return &qobs_accumulate_absmax_first;
    case STATISTIC_LEAST_SCALE:
        return &qobs_accumulate_absmax_last;
    default:
        return dynamic ? &qobs_accumulate_last : &qobs_accumulate_extremes;
    }
}

/* Quark's observers restart, but for block floating point over several batches; llm-compressor's of September 2025 do if they
 * replace. */
static bool restarts(const qobs_config *config, bool replaces)
{
    if (config->preset->family == FAMILY_LLMC)
        return config->version == VERSION_2025_09 && replaces;
    return config->preset->family == FAMILY_QUARK && (config->preset->statistic != STATISTIC_ABSMAX_BFP || config->is_dynamic);
}

void qobs_resolve_accumulator(const qobs_config *config, struct accumulator *a)
{
    const enum statistic statistic = config->preset->statistic;
    const bool replaces = statistic == STATISTIC_MEMORYLESS || is_dynamic(config) ||
                          (statistic == STATISTIC_AVERAGE_LERP && config->averaging_constant == 1);
    const bool ballot = statistic == STATISTIC_BALLOT || statistic == STATISTIC_BALLOT_LEAST;
    const bool minmax = statistic == STATISTIC_MEMORYLESS || statistic == STATISTIC_RUNNING || ballot;
    *a = (struct accumulator){
        .ops = ops_of(config),
        .params = {.averaging_constant = config->averaging_constant, .scale_dtype = qobs_quark_scale_dtype(config, 0)},
        .replaces = replaces,
        .counts_mode = ballot,
        .restarts = restarts(config, replaces),
        .starts_in_f32 = config->preset->family == FAMILY_QUARK && (minmax || statistic == STATISTIC_HISTOGRAM),
        .skips_first_groups = config->version == VERSION_2025_09 && qobs_preset_search(config->preset) != NULL,
    };
}
