/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* compressed-tensors' QuantizationArgs.validate_model_after, and the observers that each version has. */
#include "check/check.h"

#include <string.h>

#include "base/error.h"

int qobs_check_llmc(const qobs_config *config, qobs_error *error)
{
    const enum strategy strategy = qobs_config_strategy(config);
    const char *name = qobs_strategy_text((int)strategy);
    const bool grouped = strategy == STRATEGY_GROUP || strategy == STRATEGY_TENSOR_GROUP;
    const char *observer = config->preset->name + 5; /* after "llmc." */
    if (config->version == VERSION_2025_09 && strcmp(observer, "minmax") != 0 && strcmp(observer, "mse") != 0)
        return qobs_invalid(error, "version: 2025-09 has observers minmax and mse, not %s", observer);
    if (config->type == TYPE_FLOAT && config->num_bits != 4 && config->num_bits != 8 &&
        !(config->num_bits == 6 && qobs_config_is_current(config)))
        return qobs_invalid(error, "num_bits: is %d, type float allows 4 (e2m1), 6 (e2m3) and 8 (e4m3)",
                            config->num_bits);
    if (config->type == TYPE_FLOAT && config->num_bits < 8 && !config->symmetric)
        return qobs_invalid(error, "symmetric: type float with num_bits %d allows true only", config->num_bits);
    if (strategy == STRATEGY_TOKEN && !config->dynamic)
        return qobs_invalid(error, "strategy: token needs dynamic=true");
    if (grouped && (!config->has_group_size || config->group_size <= 0))
        return qobs_invalid(error, "group_size: strategy %s needs one above 0", name);
    if (config->has_group_size && config->group_size == 0)
        return qobs_invalid(error, "group_size: is 0, allowed are -1 (channel) and above 0");
    if (!grouped && config->has_group_size && config->group_size > 0)
        return qobs_invalid(error, "group_size: %lld does not go with strategy %s", (long long)config->group_size,
                            name);
    if ((strategy == STRATEGY_BLOCK) != config->has_block)
        return qobs_invalid(error, "block_structure: %s",
                            config->has_block ? "goes with strategy block only"
                                              : "strategy block needs [height, width]");
    if (config->dynamic && strategy != STRATEGY_TOKEN && strategy != STRATEGY_TENSOR && !grouped)
        return qobs_invalid(error, "dynamic: strategy %s cannot be dynamic, only tensor, token, group and tensor_group",
                            name);
    const struct search_defaults *search = !qobs_config_is_current(config) ? config->preset->search : NULL;
    if (search && search->since_2026)
        return qobs_invalid(error, "version: 2025-10 and earlier have no %s", observer);
    if (config->dynamic == 2 && strategy != STRATEGY_TENSOR_GROUP)
        return qobs_invalid(error, "dynamic: local goes with strategy tensor_group, not with %s", name);
    return QOBS_OK;
}
