/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The checks of torch.ao.quantization's observers (UniformQuantizationObserverBase and FixedQParamsObserver). */
#include "check/check.h"

#include "base/error.h"

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

int qobs_check_torch(const qobs_config *config, qobs_error *error)
{
    if (!qobs_preset_measures(config->preset))
        return check_without_ranges(config, error);
    const char *name = qobs_torch_dtype_text(config->dtype);
    const bool channels = qobs_config_has_channels(config);
    if (qobs_preset_has_torch_histogram(config->preset) && config->is_dynamic)
        return qobs_invalid(error, "is_dynamic: %s cannot be dynamic", config->preset->name);
    if (config->qscheme != TORCH_QSCHEME_NONE && channels != (config->qscheme >= TORCH_PER_CHANNEL_AFFINE))
        return qobs_invalid(error, "qscheme: is '%s', %s takes %s", qobs_qscheme_text(config->qscheme),
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
        const bool bits32 = config->dtype == TORCH_QINT32 || config->dtype == TORCH_INT32;
        const bool bits16 = config->dtype == TORCH_UINT16 || config->dtype == TORCH_INT16;
        const int64_t widest = bits32 ? INT64_C(1) << 31 : bits16 ? 65536 : 256;
        if (quant_max - quant_min + 1 > widest)
            return qobs_invalid(error, "quant_min, quant_max: %lld to %lld is %lld wide, dtype %s allows %lld",
                                (long long)quant_min, (long long)quant_max,
                                (long long)quant_max - (long long)quant_min + 1, name, (long long)widest);
    }
    const bool symmetric =
        config->qscheme == TORCH_PER_TENSOR_SYMMETRIC || config->qscheme == TORCH_PER_CHANNEL_SYMMETRIC;
    if (config->reduce_range && symmetric && config->dtype == TORCH_QUINT8)
        return qobs_invalid(error, "reduce_range: cannot be combined with dtype quint8 and a symmetric qscheme");
    return QOBS_OK;
}
