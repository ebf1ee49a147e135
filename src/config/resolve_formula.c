/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The formula of a configuration: the only place that looks at the preset, the version and the settings for it. */
#include "config/stages.h"

#include "config/dtypes.h"
#include "number/block_float.h"
#include "qobs/format.h"

static enum rank default_rank(const qobs_config *config)
{
    const bool old_tensor = config->preset->family == FAMILY_LLMC && config->version == VERSION_2025_09 &&
                            qobs_config_strategy(config) == STRATEGY_TENSOR;
    const bool tensor = config->preset->granularity == GRANULARITY_TENSOR ||
                        (config->preset->granularity == GRANULARITY_TORCH_QSCHEME && !qobs_config_has_channels(config));
    return tensor || old_tensor ? RANK_SCALAR : RANK_TENSOR;
}

static const struct formula_ops *fixed(const qobs_config *config, struct formula_params *p)
{
    p->fixed.scale = config->scale;
    p->fixed.zero_point = (int32_t)config->zero_point;
    return &qobs_formula_fixed;
}

static const struct formula_ops *compressed_tensors(const qobs_config *config, struct formula_params *p)
{
    const bool integer = config->type == TYPE_INT, current = qobs_config_is_current(config);
    const qobs_format *format = qobs_config_float_format(config);
    const double half = (double)(INT64_C(1) << (config->num_bits - 1));
    p->mapping = config->symmetric ? MAPPING_SYMMETRIC : MAPPING_AFFINE;
    p->quant_min = integer ? -half : qobs_format_min(format);
    p->quant_max = integer ? half - 1 : qobs_format_max(format);
    p->compressed_tensors.mx = qobs_config_is_mx(config);
    p->compressed_tensors.mx_offset = qobs_format_max_exponent(format);
    p->compressed_tensors.mx_half_bits = config->num_bits == 6 ? 4 : 2;
    p->compressed_tensors.scale_dtype = current ? (enum scale_dtype)config->scale_dtype : SCALE_NATIVE;
    p->compressed_tensors.zero_point_dtype = config->zp_dtype        ? (qobs_dtype)config->zp_dtype
                                             : !integer              ? QOBS_F8_E4M3
                                             : config->num_bits <= 8 ? QOBS_I8
                                                                     : QOBS_I16;
    p->compressed_tensors.e2m1 = !integer && config->num_bits == 4;
    return current ? &qobs_formula_compressed_tensors : &qobs_formula_compressed_tensors_2025;
}

/* ---- torch ------------------------------------------------------------------------------------------------------- */

static int64_t floor_half(int64_t x) { return x >= 0 ? x / 2 : -((1 - x) / 2); }

static void set_torch(struct formula_params *p, const struct torch_number *number, enum mapping mapping, double eps)
{
    p->mapping = mapping;
    p->quant_min = (double)number->quant_min;
    p->quant_max = (double)number->quant_max;
    p->torch.eps = eps;
    p->torch.symmetric_zero_point = number->symmetric_zero_point;
}

/* Limits that are set replace those of the dtype. A symmetric zero point of 128 then becomes the middle of them. */
static struct torch_number custom_number(struct torch_number number, int64_t quant_min, int64_t quant_max, bool reduce)
{
    const int64_t min = reduce ? floor_half(quant_min) : quant_min, max = reduce ? floor_half(quant_max) : quant_max;
    const int64_t zero_point = number.symmetric_zero_point;
    return (struct torch_number){.quant_min = min,
                                 .quant_max = max,
                                 .symmetric_zero_point = zero_point == 128 ? floor_half(min + max) : zero_point};
}

static const struct formula_ops *torch(const qobs_config *config, struct formula_params *p)
{
    static const enum mapping mappings[] = {
        [TORCH_QSCHEME_NONE] = MAPPING_AFFINE,
        [TORCH_PER_TENSOR_AFFINE] = MAPPING_AFFINE,
        [TORCH_PER_TENSOR_SYMMETRIC] = MAPPING_SYMMETRIC,
        [TORCH_PER_CHANNEL_AFFINE] = MAPPING_AFFINE,
        [TORCH_PER_CHANNEL_SYMMETRIC] = MAPPING_SYMMETRIC,
        [TORCH_PER_CHANNEL_AFFINE_FLOAT_QPARAMS] = MAPPING_FLOAT,
    };
    struct torch_number number = qobs_torch_number(config->dtype);
    if (config->has_quant_min && config->has_quant_max) {
        number = custom_number(number, config->quant_min, config->quant_max, config->reduce_range);
    } else if (config->reduce_range) {
        number.quant_min = number.reduced_min;
        number.quant_max = number.reduced_max;
    }
    set_torch(p, &number, mappings[config->qscheme], config->eps);
    return &qobs_formula_torch;
}

/* ---- Quark ------------------------------------------------------------------------------------------------------- */

/* HistogramObserverPro is torch's observer of a dtype like its own, with Quark's limits. */
static const struct formula_ops *quark_torch(const qobs_config *config, struct formula_params *p)
{
    const int dtype = config->quark_dtype == QUARK_UINT4  ? TORCH_QUINT4X2
                      : config->quark_dtype == QUARK_INT8 ? TORCH_QINT8
                                                          : TORCH_QUINT8;
    const struct quark_number limits = qobs_quark_number(config->quark_dtype);
    const struct torch_number number = custom_number(qobs_torch_number(dtype), (int64_t)limits.quant_min,
                                                     (int64_t)limits.quant_max, config->reduce_range);
    set_torch(p, &number, config->symmetric ? MAPPING_SYMMETRIC : MAPPING_AFFINE, config->eps);
    return &qobs_formula_torch;
}

static void set_quark(const qobs_config *config, struct formula_params *p)
{
    const struct quark_number number = qobs_quark_number(config->quark_dtype), element = qobs_quark_element(config);
    p->quant_min = number.quant_min;
    p->quant_max = number.quant_max;
    p->mapping = config->symmetric                               ? MAPPING_SYMMETRIC
                 : config->zero_point_type == ZERO_POINT_FLOAT32 ? MAPPING_FLOAT
                                                                 : MAPPING_AFFINE;
    p->quark.scale_dtype = qobs_quark_scale_type(config);
    p->quark.mantissa_bits = element.mantissa_bits;
    p->quark.emax = element.emax;
    p->quark.block_scales = config->quark_dtype == QUARK_FP4;
}

static enum scale_mode mode_of(const qobs_config *config)
{
    return config->scale_calculation_mode == SCALE_MODE_NONE ? SCALE_MODE_EVEN
                                                             : (enum scale_mode)config->scale_calculation_mode;
}

/* Only ranges of fp4 go by scale_format. */
static const struct formula_ops *quark(const qobs_config *config, struct formula_params *p)
{
    const bool fp4 = config->quark_dtype == QUARK_FP4;
    set_quark(config, p);
    if (!qobs_quark_number(config->quark_dtype).is_float)
        return &qobs_formula_quark_integer;
    /* The scale quantizer of a two-level scheme observes the magnitudes of blocks. */
    if (!fp4 && config->has_first_level)
        p->quant_max *= config->quant_max_first_level;
    p->quark.format = fp4 ? (enum scale_format)config->scale_format : SCALE_FORMAT_FLOAT32;
    p->quark.mode = mode_of(config);
    p->quark.zero_is_eps = fp4;
    return &qobs_formula_quark_float;
}

/* PerBlockMXDiffsObserver has e8m0 scales whatever the settings say. */
static const struct formula_ops *quark_mx(const qobs_config *config, struct formula_params *p)
{
    set_quark(config, p);
    if (config->preset->range == &qobs_range_exponent) {
        p->quark.format = SCALE_FORMAT_E8M0;
        p->quark.mode = SCALE_MODE_CEIL;
        p->quark.scale_dtype = (qobs_dtype)0;
    } else {
        p->quark.format = (enum scale_format)config->scale_format;
        p->quark.mode = mode_of(config);
    }
    return &qobs_formula_quark_float;
}

static const struct formula_ops *quark_lsq(const qobs_config *config, struct formula_params *p)
{
    const struct quark_number number = qobs_quark_number(config->quark_dtype);
    const double numbers = number.quant_max - number.quant_min;
    set_quark(config, p);
    p->quant_max = config->symmetric ? (numbers - 1) / 2 : numbers;
    return &qobs_formula_quark_lsq;
}

static const struct formula_ops *quark_tqt(const qobs_config *config, struct formula_params *p)
{
    set_quark(config, p);
    return &qobs_formula_quark_tqt;
}

static const struct formula_ops *quark_bfp(const qobs_config *config, struct formula_params *p)
{
    set_quark(config, p);
    p->quark.format = SCALE_FORMAT_E8M0;
    p->quark.mode = SCALE_MODE_FLOOR;
    p->quark.emax = BFP_EMAX;
    return &qobs_formula_quark_bfp;
}

static const struct formula_ops *quark_power_of_2(const qobs_config *config, struct formula_params *p)
{
    set_quark(config, p);
    p->quark.zero_point_128 = config->symmetric && config->quark_dtype == QUARK_UINT8;
    return config->preset->granularity == GRANULARITY_TENSOR ? &qobs_formula_quark_power_of_2_tensor
                                                             : &qobs_formula_quark_power_of_2_channel;
}

static struct shape shape_without_data(const qobs_config *config)
{
    if (config->preset->family != FAMILY_QUARK)
        return (struct shape){.ndim = 1, .extent = {1}};
    const bool groups = config->preset->granularity == GRANULARITY_QUARK_GROUP;
    /* upstream computes the scale of a 0-dimensional range, or the most frequent of one value */
    const bool scalar =
        qobs_quark_number(config->quark_dtype).is_float ||
        (config->preset->formula == FORMULA_QUARK_POWER_OF_2 && config->preset->granularity == GRANULARITY_TENSOR);
    return (struct shape){.ndim = groups ? 2 : scalar ? 0 : 1, .extent = {1, 1}};
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

static const struct formula_ops *none(const qobs_config *config, struct formula_params *p)
{
    (void)config, (void)p;
    return &qobs_formula_none;
}

void qobs_resolve_formula(const qobs_config *config, struct formula *formula)
{
    static const struct formula_ops *(*const resolve[])(const qobs_config *config, struct formula_params *params) = {
        [FORMULA_NONE] = none,
        [FORMULA_FIXED] = fixed,
        [FORMULA_COMPRESSED_TENSORS] = compressed_tensors,
        [FORMULA_TORCH] = torch,
        [FORMULA_ORT] = qobs_ort_formula,
        [FORMULA_TORCHAO] = qobs_torchao_formula,
        [FORMULA_TORCHAO_FIXED] = qobs_torchao_fixed,
        [FORMULA_QUARK] = quark,
        [FORMULA_QUARK_MX] = quark_mx,
        [FORMULA_QUARK_BFP] = quark_bfp,
        [FORMULA_QUARK_LSQ] = quark_lsq,
        [FORMULA_QUARK_TQT] = quark_tqt,
        [FORMULA_QUARK_POWER_OF_2] = quark_power_of_2,
        [FORMULA_QUARK_TORCH] = quark_torch,
    };
    *formula = (struct formula){.params = {.name = config->preset->name,
                                           .rank = default_rank(config),
                                           .shape_without_data = shape_without_data(config)}};
    formula->ops = resolve[config->preset->formula](config, &formula->params);
}
