/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From a configuration to what upstream's class does besides its stages. */
#include "config/stages.h"

static struct observer_traits traits_of_llmc(const qobs_config *config)
{
    const bool current = qobs_config_is_current(config), oldest = config->version == VERSION_2025_09;
    struct observer_traits traits = {
        .first_batch_only = current && config->base_name == BASE_WEIGHT,
        .has_global_range = !current,
        .token_result = oldest ? TOKENS_ALL : TOKENS_NONE,
        .qparams_along_dim = oldest,
        .plural_names = true,
        .hides_ranges = oldest && config->averaging_constant == 1,
    };
    if (qobs_config_strategy(config) == STRATEGY_TENSOR_GROUP)
        traits.global = current ? GLOBAL_FROM_RANGES : GLOBAL_FROM_TENSORS;
    return traits;
}

void qobs_resolve_traits(const qobs_config *config, struct observer_traits *traits)
{
    const bool quark = config->preset->family == FAMILY_QUARK, observes = qobs_preset_measures(config->preset);
    *traits = (struct observer_traits){
        .token_result = quark && observes ? TOKENS_NONZERO : TOKENS_NONE,
        .counts_nonzero_tokens = quark,
        .range_is_lowest = config->preset->family == FAMILY_ORT,
        .first_batch_only = config->preset->formula == FORMULA_QUARK_TQT ||
                            (config->preset->range == &qobs_range_line && config->run_once),
        .scale_is_list =
            config->preset->formula == FORMULA_QUARK_TORCH || config->preset->formula == FORMULA_QUARK_TQT ||
            (config->preset->granularity == GRANULARITY_QUARK_LSQ && !qobs_config_has_lsq_channels(config)),
        .hides_ranges = config->preset->granularity == GRANULARITY_QUARK_LSQ ||
                        config->preset->formula == FORMULA_QUARK_TQT,
        .bias = config->preset->granularity == GRANULARITY_MODELOPT_REDUCED,
    };
    if (qobs_preset_has_scheme(config->preset))
        *traits = traits_of_llmc(config);
}
