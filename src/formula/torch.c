/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torch.ao.quantization's UniformQuantizationObserverBase: _calculate_qparams and its checks, in f32. */
#include <math.h>

#include "formula/formula.h"
#include "base/error.h"

static const struct {
    const char *name;
    int64_t quant_min, quant_max;
    int64_t symmetric_zero_point;
} dtypes[] = {
    [TORCH_QUINT8] = {"quint8", 0, 255, 128},
    [TORCH_QINT8] = {"qint8", -128, 127, 0},
    [TORCH_QINT32] = {"qint32", INT32_MIN, INT32_MAX, 0},
    [TORCH_QUINT4X2] = {"quint4x2", 0, 15, 0},
    [TORCH_UINT8] = {"uint8", 0, 255, 128},
    [TORCH_INT8] = {"int8", -128, 127, 0},
    [TORCH_UINT16] = {"uint16", 0, 65535, 32768},
    [TORCH_INT16] = {"int16", INT16_MIN, INT16_MAX, 0},
    [TORCH_INT32] = {"int32", INT32_MIN, INT32_MAX, 0},
};

static int64_t floor_half(int64_t x)
{
    return x >= 0 ? x / 2 : -((1 - x) / 2);
}

static bool custom_range(const qobs_config *config)
{
    return config->has_quant_min && config->has_quant_max;
}

void qobs_torch_quant_range(const qobs_config *config, int64_t *quant_min, int64_t *quant_max)
{
    *quant_min = dtypes[config->dtype].quant_min;
    *quant_max = dtypes[config->dtype].quant_max;
    if (custom_range(config)) {
        *quant_min = config->reduce_range ? floor_half(config->quant_min) : config->quant_min;
        *quant_max = config->reduce_range ? floor_half(config->quant_max) : config->quant_max;
    } else if (config->reduce_range) {
        switch (config->dtype) {
        case TORCH_QINT8:
        case TORCH_INT8:
            *quant_min = -64;
            *quant_max = 63;
            break;
        case TORCH_QUINT8:
        case TORCH_UINT8:
            *quant_max = 127;
            break;
        default: /* the others have no reduced form */
            break;
        }
    }
}

enum scheme { AFFINE, SYMMETRIC, FLOAT_QPARAMS };

static enum scheme scheme_of(const qobs_config *config)
{
    switch (config->qscheme) {
    case TORCH_PER_TENSOR_SYMMETRIC:
    case TORCH_PER_CHANNEL_SYMMETRIC:
        return SYMMETRIC;
    case TORCH_PER_CHANNEL_AFFINE_FLOAT_QPARAMS:
        return FLOAT_QPARAMS;
    default:
        return AFFINE;
    }
}

qobs_dtype qobs_torch_zero_point_dtype(const qobs_config *config, bool observed)
{
    const enum scheme scheme = scheme_of(config);
    return !observed || scheme == SYMMETRIC ? QOBS_I64 : scheme == AFFINE ? QOBS_I32 : QOBS_F32;
}

/* FixedQParamsObserver and PlaceholderObserver take their other settings as they are. */
static int check_without_ranges(const qobs_config *config, qobs_error *error)
{
    const bool fixed = config->preset->formula == FORMULA_FIXED;
    if (fixed && !(config->has_scale && config->has_zero_point))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is not set, %s needs scale and zero_point",
                         config->has_scale ? "zero_point" : "scale", config->preset->name);
    if (fixed && config->is_dynamic)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "is_dynamic: %s cannot be dynamic", config->preset->name);
    return QOBS_OK;
}

int qobs_torch_check(const qobs_config *config, qobs_error *error)
{
    if (config->preset->statistic == STATISTIC_NONE)
        return check_without_ranges(config, error);
    const char *name = dtypes[config->dtype].name;
    const bool channels = qobs_config_has_channels(config);
    if (qobs_preset_has_histogram(config->preset) && config->is_dynamic)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "is_dynamic: %s cannot be dynamic", config->preset->name);
    if (config->qscheme != TORCH_QSCHEME_NONE && channels != (config->qscheme >= TORCH_PER_CHANNEL_AFFINE))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "qscheme: is '%s', %s takes %s", qobs_qscheme_text(config->qscheme),
                         config->preset->name,
                         channels ? "per_channel_affine, per_channel_symmetric, per_channel_affine_float_qparams"
                                  : "per_tensor_affine, per_tensor_symmetric");
    if (config->has_quant_min != config->has_quant_max)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "quant_min, quant_max: set both or neither");
    if (custom_range(config)) {
        const int64_t quant_min = config->quant_min, quant_max = config->quant_max;
        if (quant_min > 0 || quant_max < 0)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "quant_min, quant_max: %lld to %lld does not include 0",
                             (long long)quant_min, (long long)quant_max);
        if (quant_min >= quant_max)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "quant_min, quant_max: %lld is not below %lld",
                             (long long)quant_min, (long long)quant_max);
        const bool bits32 = config->dtype == TORCH_QINT32 || config->dtype == TORCH_INT32;
        const bool bits16 = config->dtype == TORCH_UINT16 || config->dtype == TORCH_INT16;
        const int64_t widest = bits32 ? INT64_C(1) << 31 : bits16 ? 65536 : 256;
        if (quant_max - quant_min + 1 > widest)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                             "quant_min, quant_max: %lld to %lld is %lld wide, dtype %s allows %lld", (long long)quant_min,
                             (long long)quant_max, (long long)quant_max - (long long)quant_min + 1, name, (long long)widest);
    }
    if (config->reduce_range && scheme_of(config) == SYMMETRIC && config->dtype == TORCH_QUINT8)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "reduce_range: cannot be combined with dtype quint8 and a symmetric qscheme");
    return QOBS_OK;
}

/* As an x86 conversion does it: what does not fit becomes the smallest integer. Results for such ranges are the platform's in
 * upstream too. */
static int32_t to_int32(float x)
{
    return x >= -0x1p31f && x < 0x1p31f ? (int32_t)x : INT32_MIN;
}

static int32_t affine_zero_point(float min, float scale, int64_t quant_min, int64_t quant_max)
{
    const uint32_t wrapped = (uint32_t)quant_min - (uint32_t)to_int32(rintf(min / scale));
    int64_t zero_point = (int32_t)wrapped;
    if (zero_point < quant_min)
        zero_point = quant_min;
    return (int32_t)(zero_point > quant_max ? quant_max : zero_point);
}

/* The range of an observer that has seen nothing: scale 1, zero point 0. */
static bool no_data(float min, float max)
{
    return isinf(min) && min > 0 && isinf(max) && max < 0;
}

int qobs_torch_qparams(const qobs_config *config, const struct range_view *ranges, float *scale, void *zero_point,
                       qobs_error *error)
{
    const size_t n = ranges->n;
    const float *min = ranges->min, *max = ranges->max;
    int64_t quant_min, quant_max;
    qobs_torch_quant_range(config, &quant_min, &quant_max);
    const float eps = (float)config->eps;
    const float range = (float)(quant_max - quant_min), half = (float)((double)(quant_max - quant_min) / 2);
    const enum scheme scheme = scheme_of(config);
    for (size_t i = 0; i < n; i++)
        if (!(min[i] <= max[i]) && !no_data(min[i], max[i]))
            return qobs_fail(error, QOBS_ERROR_NO_RESULT, "min %g should not be above max %g", (double)min[i], (double)max[i]);
    for (size_t i = 0; i < n; i++) {
        const float a = min[i] < 0 ? min[i] : 0, b = max[i] > 0 ? max[i] : 0;
        float s;
        if (scheme == FLOAT_QPARAMS) {
            s = (max[i] - min[i]) / range;
            s = s > eps ? s : 1;
            if (zero_point)
                ((float *)zero_point)[i] = no_data(min[i], max[i]) ? 0 : -min[i] / s;
        } else if (scheme == SYMMETRIC) {
            s = (-a > b ? -a : b) / half;
            s = s > eps ? s : eps;
            int64_t z = dtypes[config->dtype].symmetric_zero_point;
            if (z == 128 && custom_range(config))
                z = floor_half(quant_min + quant_max);
            if (no_data(min[i], max[i]))
                z = 0;
            if (zero_point)
                ((int64_t *)zero_point)[i] = z;
        } else {
            s = (b - a) / range;
            s = s > eps ? s : eps;
            if (zero_point)
                ((int32_t *)zero_point)[i] =
                    no_data(min[i], max[i]) ? 0 : affine_zero_point(a, s, quant_min, quant_max);
        }
        if (no_data(min[i], max[i]))
            s = 1;
        if (scale)
            scale[i] = s;
    }
    return qobs_succeed(error);
}
