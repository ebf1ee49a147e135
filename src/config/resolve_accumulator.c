/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From a configuration to the accumulator. */
#include "config/dtypes.h"
#include "config/stages.h"

/* Quark's observers restart, but for block floating point over several batches. llm-compressor's of September 2025
 * restart if they replace. */
static bool restarts(const qobs_config *config, bool replaces)
{
    if (config->preset->family == FAMILY_LLMC)
        return config->version == VERSION_2025_09 && replaces;
    return config->preset->family == FAMILY_QUARK &&
           (config->preset->accumulator != &qobs_accumulate_bfp || config->is_dynamic);
}

void qobs_resolve_accumulator(const qobs_config *config, struct accumulator *a)
{
    const struct preset *preset = config->preset;
    const bool quark = preset->family == FAMILY_QUARK, oldest = config->version == VERSION_2025_09;
    const bool lerp = preset->accumulator == &qobs_accumulate_lerp;
    const bool dynamic = quark && config->is_dynamic; /* the last batch only; torch's is_dynamic changes nothing */
    *a = (struct accumulator){
        /* llm-compressor averaged as torch does before October 2025. */
        .ops = lerp && oldest ? &qobs_accumulate_moving_average : preset->accumulator,
        .params = {.averaging_constant = config->averaging_constant, .scale_dtype = qobs_quark_scale_type(config)},
        .merge = dynamic ? MERGE_LAST : preset->accumulator->merge,
        .replaces =
            dynamic || preset->accumulator == &qobs_accumulate_last || (lerp && config->averaging_constant == 1),
        .starts_in_f32 = quark && !preset->accumulator->symmetric,
        .skips_first_groups = oldest && preset->range == &qobs_range_grid,
    };
    if (config->preset->granularity == GRANULARITY_MODELOPT_REDUCED && config->bias_method == BIAS_MAX_MIN) {
        a->ops = &qobs_accumulate_extremes;
        a->merge = MERGE_EXTREMES;
    }
    if (config->preset->family == FAMILY_ORT && config->moving_average) {
        a->ops = &qobs_accumulate_moving_average;
        a->merge = MERGE_MEANS;
    }
    a->restarts = restarts(config, a->replaces);
}
