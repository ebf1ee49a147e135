/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "formula/formula.h"

#include <math.h>

#include "formula/quark.h"
#include "base/error.h"

/* ---- The formulas behind one signature -------------------------------------------------------------------------------- */

static void compressed_tensors_dtypes(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale,
                                      qobs_dtype *zero_point)
{
    qobs_compressed_tensors_dtypes(config, ranges->dtype, scale, zero_point);
    if (ranges->global_scale)
        *scale = QOBS_F32;
}

static int compressed_tensors(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point,
                              qobs_error *error)
{
    if (ranges->rank == RANK_EMPTY)
        return qobs_fail(error, QOBS_ERROR_NO_DATA, "observer: nothing has been observed yet");
    qobs_compressed_tensors_qparams(config, ranges, scale, zero_point);
    return qobs_succeed(error);
}

static void torch_dtypes(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale, qobs_dtype *zero_point)
{
    *scale = QOBS_F32;
    *zero_point = qobs_torch_zero_point_dtype(config, ranges->rank != RANK_EMPTY);
}

static int torch_qparams(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point,
                         qobs_error *error)
{
    if (ranges->rank != RANK_EMPTY)
        return qobs_torch_qparams(config, ranges, scale, zero_point, error);
    if (scale)
        *(float *)scale = 1;
    if (zero_point)
        *(int64_t *)zero_point = 0;
    return qobs_succeed(error);
}

/* Quark's HistogramObserverPro is torch's observer of a dtype like its own, with its own limits. */
static qobs_config as_torch(const qobs_config *config)
{
    const struct quark_number *number = qobs_quark_number(config->quark_dtype);
    qobs_config other = *config;
    other.preset = qobs_preset_find("torch.HistogramObserver");
    other.dtype = config->quark_dtype == QUARK_UINT4 ? TORCH_QUINT4X2 : config->quark_dtype == QUARK_INT8 ? TORCH_QINT8 : TORCH_QUINT8;
    other.qscheme = config->symmetric ? TORCH_PER_TENSOR_SYMMETRIC : TORCH_PER_TENSOR_AFFINE;
    other.has_quant_min = other.has_quant_max = true;
    other.quant_min = (int64_t)number->quant_min;
    other.quant_max = (int64_t)number->quant_max;
    return other;
}

static void quark_torch_dtypes(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale,
                               qobs_dtype *zero_point)
{
    const qobs_config torch = as_torch(config);
    torch_dtypes(&torch, ranges, scale, zero_point);
}

static int quark_torch_qparams(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point,
                               qobs_error *error)
{
    const qobs_config torch = as_torch(config);
    return torch_qparams(&torch, ranges, scale, zero_point, error);
}

/* torch's FixedQParamsObserver. */
static void fixed_dtypes(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale, qobs_dtype *zero_point)
{
    (void)config, (void)ranges;
    *scale = QOBS_F32;
    *zero_point = QOBS_I32;
}

static int fixed(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point, qobs_error *error)
{
    for (size_t i = 0; scale && i < ranges->n; i++)
        ((float *)scale)[i] = (float)config->scale;
    for (size_t i = 0; zero_point && i < ranges->n; i++)
        ((int32_t *)zero_point)[i] = (int32_t)config->zero_point;
    return qobs_succeed(error);
}

static int none(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point, qobs_error *error)
{
    (void)ranges, (void)scale, (void)zero_point;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s has no scale and zero point", config->preset->name);
}

static const struct {
    void (*dtypes)(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale, qobs_dtype *zero_point);
    int (*qparams)(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point,
                   qobs_error *error);
} formulas[] = {
    [FORMULA_NONE] = {fixed_dtypes, none},
    [FORMULA_FIXED] = {fixed_dtypes, fixed},
    [FORMULA_COMPRESSED_TENSORS] = {compressed_tensors_dtypes, compressed_tensors},
    [FORMULA_TORCH] = {torch_dtypes, torch_qparams},
    [FORMULA_QUARK] = {qobs_quark_dtypes, qobs_quark_qparams},
    [FORMULA_QUARK_MX] = {qobs_quark_amax_dtypes, qobs_quark_amax_qparams},
    [FORMULA_QUARK_BFP] = {qobs_quark_amax_dtypes, qobs_quark_amax_qparams},
    [FORMULA_QUARK_TORCH] = {quark_torch_dtypes, quark_torch_qparams},
    [FORMULA_QUARK_POWER_OF_2] = {qobs_quark_power_of_2_dtypes, qobs_quark_power_of_2_qparams},
};

/* ---- Front ---------------------------------------------------------------------------------------------------------------- */

enum rank qobs_default_rank(const qobs_config *config)
{
    const bool old_tensor = config->preset->family == FAMILY_LLMC && config->version == VERSION_2025_09 &&
                            qobs_config_strategy(config) == STRATEGY_TENSOR;
    const bool tensor = config->preset->granularity == GRANULARITY_TENSOR ||
                        (config->preset->granularity == GRANULARITY_TORCH_QSCHEME && !qobs_config_has_channels(config));
    return tensor || old_tensor ? RANK_SCALAR : RANK_TENSOR;
}

struct range_view qobs_no_ranges(void)
{
    static const float min = INFINITY, max = -INFINITY;
    return (struct range_view){.dtype = QOBS_F32, .n = 1, .rank = RANK_EMPTY, .min = &min, .max = &max};
}

bool qobs_has_formula(const qobs_config *config)
{
    return config->preset->formula != FORMULA_NONE;
}

void qobs_formula_dtypes(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale,
                            qobs_dtype *zero_point)
{
    formulas[config->preset->formula].dtypes(config, ranges, scale, zero_point);
}

int qobs_formula(const qobs_config *config, const struct range_view *ranges, void *scale, void *zero_point,
                    qobs_error *error)
{
    return formulas[config->preset->formula].qparams(config, ranges, scale, zero_point, error);
}

struct shape qobs_formula_shape_without_data(const qobs_config *config)
{
    if (config->preset->family == FAMILY_QUARK)
        return qobs_quark_shape_without_data(config);
    return (struct shape){.ndim = 1, .extent = {1}};
}

int qobs_config_qparam_dtypes(const qobs_config *config, qobs_dtype dtype, qobs_dtype *scale, qobs_dtype *zero_point,
                              qobs_error *error)
{
    const int status = qobs_config_check(config, error);
    if (status == QOBS_OK && (!scale || !zero_point))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", scale ? "zero_point" : "scale");
    const struct range_view ranges = {.dtype = dtype, .rank = qobs_default_rank(config)};
    if (status == QOBS_OK)
        qobs_formula_dtypes(config, &ranges, scale, zero_point);
    return status;
}
