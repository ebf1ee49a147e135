/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quark's dtypes and settings, and its integers (UniformScalingObserver.calculate_int_quant_params). */
#include "formula/quark.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "number/native.h"

/* ---- Dtypes ----------------------------------------------------------------------------------------------------------- */

/* Which observers take a dtype. */
enum takers {
    UNIFORM = 1,       /* of a range per tensor and per channel */
    UNIFORM_GROUP = 2, /* of a range per group */
    MX = 4,
    BFP = 8,
    POWER_OF_2 = 16,
    TORCH = 32,         /* torch's histogram */
    SQUARED_ERROR = 64, /* of a histogram's bins */
    PLACEHOLDER = 0 /* takes all */
};

static const struct {
    struct quark_number number;
    int takers;
    bool floating;
} dtypes[QUARK_DTYPES] = {
    [QUARK_INT8] = {{-128, 127, 8, 0}, UNIFORM | UNIFORM_GROUP | POWER_OF_2 | TORCH | SQUARED_ERROR, false},
    [QUARK_UINT8] = {{0, 255, 0, 0}, UNIFORM | UNIFORM_GROUP | POWER_OF_2 | TORCH | SQUARED_ERROR, false},
    [QUARK_INT4] = {{-8, 7, 4, 0}, UNIFORM | UNIFORM_GROUP | SQUARED_ERROR, false},
    [QUARK_UINT4] = {{0, 15, 0, 0}, UNIFORM | UNIFORM_GROUP | TORCH | SQUARED_ERROR, false},
    [QUARK_INT3] = {{-4, 3, 3, 0}, UNIFORM | UNIFORM_GROUP, false},
    [QUARK_INT2] = {{-2, 1, 2, 0}, UNIFORM | UNIFORM_GROUP, false},
    [QUARK_INT16] = {{-0x1p15, 0x1p15 - 1, 0, 0}, UNIFORM | UNIFORM_GROUP, false},
    [QUARK_INT32] = {{-0x1p31, 0x1p31 - 1, 0, 0}, UNIFORM | UNIFORM_GROUP | POWER_OF_2, false},
    [QUARK_FP8_E4M3] = {{-448, 448, 3, 8}, UNIFORM | UNIFORM_GROUP | MX | SQUARED_ERROR, true},
    [QUARK_FP8_E5M2] = {{-57344, 57344, 2, 15}, UNIFORM | UNIFORM_GROUP | MX | SQUARED_ERROR, true},
    [QUARK_FP8_E5M3] = {{0, 114688, 0, 0}, UNIFORM | UNIFORM_GROUP, true},
    [QUARK_FP6_E2M3] = {{-7.5, 7.5, 3, 2}, MX, true},
    [QUARK_FP6_E3M2] = {{-28, 28, 2, 4}, MX, true},
    [QUARK_FP4] = {{-6, 6, 1, 2}, UNIFORM | MX, true},
    [QUARK_BFP16] = {{0, 0, 0, 0}, BFP, true},
    [QUARK_FLOAT16] = {{-65504, 65504, 10, 15}, 0, true},
    [QUARK_BFLOAT16] = {{-0x1.fep127, 0x1.fep127, 7, 127}, 0, true},
};

const struct quark_number *qobs_quark_number(int quark_dtype)
{
    return &dtypes[quark_dtype].number;
}

/* ---- Settings --------------------------------------------------------------------------------------------------------- */

static enum takers taker(const struct preset *preset)
{
    switch (preset->formula) {
    case FORMULA_NONE:
        return PLACEHOLDER;
    case FORMULA_QUARK_MX:
        return MX;
    case FORMULA_QUARK_BFP:
        return BFP;
    case FORMULA_QUARK_POWER_OF_2:
        return POWER_OF_2;
    case FORMULA_QUARK_TORCH:
        return TORCH;
    default:
        if (preset->statistic == STATISTIC_SQUARED_ERROR)
            return SQUARED_ERROR;
        return preset->granularity == GRANULARITY_QUARK_GROUP ? UNIFORM_GROUP : UNIFORM;
    }
}

static int check_dtype(const qobs_config *config, qobs_error *error)
{
    const int wanted = (int)taker(config->preset);
    if (wanted == PLACEHOLDER || dtypes[config->quark_dtype].takers & wanted)
        return QOBS_OK;
    char known[200] = "";
    size_t used = 0;
    for (int i = 0; i < QUARK_DTYPES; i++)
        if (dtypes[i].takers & wanted)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", qobs_quark_dtype_text(i));
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "dtype: is %s, %s takes %s",
                     qobs_quark_dtype_text(config->quark_dtype), config->preset->name, known);
}

static int check_qscheme(const qobs_config *config, qobs_error *error)
{
    static const int own[] = {
        [GRANULARITY_NONE] = QUARK_QSCHEME_NONE,
        [GRANULARITY_TENSOR] = QUARK_PER_TENSOR,
        [GRANULARITY_QUARK_CHANNEL] = QUARK_PER_CHANNEL,
        [GRANULARITY_QUARK_GROUP] = QUARK_PER_GROUP,
        [GRANULARITY_QUARK_BLOCK] = QUARK_PER_GROUP,
    };
    const int expected = own[config->preset->granularity];
    if (config->quark_qscheme == QUARK_QSCHEME_NONE || expected == QUARK_QSCHEME_NONE || config->quark_qscheme == expected)
        return QOBS_OK;
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "qscheme: is %s, %s takes %s",
                     qobs_quark_qscheme_text(config->quark_qscheme), config->preset->name,
                     qobs_quark_qscheme_text(expected));
}

static int check_axis(const qobs_config *config, qobs_error *error)
{
    const enum granularity_kind granularity = config->preset->granularity;
    const char *name = config->preset->name;
    if (granularity == GRANULARITY_NONE || granularity == GRANULARITY_TENSOR)
        return QOBS_OK;
    if (!config->has_ch_axis)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "ch_axis: is not set, %s needs it", name);
    if (granularity == GRANULARITY_QUARK_CHANNEL)
        return QOBS_OK;
    if (!config->has_group_size)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "group_size: is not set, %s needs it", name);
    if (config->group_size == 0 || (config->group_size < 0 && granularity == GRANULARITY_QUARK_BLOCK))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "group_size: is %lld, %s takes %sabove 0",
                         (long long)config->group_size, name,
                         granularity == GRANULARITY_QUARK_BLOCK ? "" : "-1 (one group) and ");
    return QOBS_OK;
}

/* fp4 scales and those of blocks have a format of their own. */
static int check_format(const qobs_config *config, qobs_error *error)
{
    const enum formula formula = config->preset->formula;
    const bool formatted = (formula == FORMULA_QUARK_MX && config->preset->statistic != STATISTIC_ABSMAX_STEPS) ||
                           (formula == FORMULA_QUARK && config->quark_dtype == QUARK_FP4);
    if (formatted && config->scale_format == SCALE_FORMAT_NONE)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "scale_format: is not set, %s with dtype %s takes float32, e4m3, e5m3, e8m0", config->preset->name,
                         qobs_quark_dtype_text(config->quark_dtype));
    if (config->mx_element_dtype && dtypes[config->mx_element_dtype].number.mantissa_bits == 0)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "mx_element_dtype: %s is no element of an e8m0 scale",
                         qobs_quark_dtype_text(config->mx_element_dtype));
    return QOBS_OK;
}

int qobs_quark_check(const qobs_config *config, qobs_error *error)
{
    int status = check_dtype(config, error);
    if (status == QOBS_OK)
        status = check_qscheme(config, error);
    if (status == QOBS_OK)
        status = check_axis(config, error);
    if (status == QOBS_OK)
        status = check_format(config, error);
    return status;
}

/* ---- Integers --------------------------------------------------------------------------------------------------------- */

struct integers {
    enum { SYMMETRIC, AFFINE, FLOAT_ZERO_POINT } form;
    bool scalars; /* ranges are 0-dimensional tensors: the scale of 16-bit ones is promoted to f32 on the way */
    int64_t quant_min, quant_max;
};

enum { CHUNK = 256 };

/* A conversion to int32 as x86 does it, which is upstream's for what does not fit. */
static inline int32_t to_int32(double x)
{
    return x > -0x1p31 - 1 && x < 0x1p31 ? (int32_t)x : INT32_MIN;
}

#define NATIVE_BODY "formula/quark.inl.h"
#include "number/native_each.inl.h"

static int form(const qobs_config *config)
{
    return config->symmetric ? SYMMETRIC : config->zero_point_type == ZERO_POINT_FLOAT32 ? FLOAT_ZERO_POINT : AFFINE;
}

qobs_dtype qobs_quark_scale_dtype(const qobs_config *config, qobs_dtype otherwise)
{
    switch (config->scale_type) {
    case SCALE_TYPE_F32:
        return QOBS_F32;
    case SCALE_TYPE_F16:
        return QOBS_F16;
    case SCALE_TYPE_BF16:
        return QOBS_BF16;
    default:
        return otherwise;
    }
}

void qobs_quark_dtypes(const qobs_config *config, const struct range_view *ranges, qobs_dtype *scale, qobs_dtype *zero_point)
{
    if (dtypes[config->quark_dtype].floating) {
        qobs_quark_amax_dtypes(config, ranges, scale, zero_point);
        return;
    }
    if (ranges->rank == RANK_EMPTY) {
        *scale = QOBS_F32;
        *zero_point = QOBS_I64;
        return;
    }
    const bool fractional = form(config) == FLOAT_ZERO_POINT;
    const bool promoted = ranges->rank == RANK_SCALAR && !fractional && ranges->dtype != QOBS_F64;
    *scale = qobs_quark_scale_dtype(config, promoted ? QOBS_F32 : ranges->dtype);
    *zero_point = fractional ? ranges->dtype : QOBS_I32;
}

int qobs_quark_qparams(const qobs_config *config, const struct range_view *r, void *scale, void *zero_point,
                       qobs_error *error)
{
    if (dtypes[config->quark_dtype].floating)
        return qobs_quark_amax_qparams(config, r, scale, zero_point, error);
    if (r->rank == RANK_EMPTY) {
        if (scale)
            *(float *)scale = 1;
        if (zero_point)
            *(int64_t *)zero_point = 0;
        return qobs_succeed(error);
    }
    const struct quark_number *number = qobs_quark_number(config->quark_dtype);
    const struct integers q = {.form = form(config),
                               .scalars = r->rank == RANK_SCALAR,
                               .quant_min = (int64_t)number->quant_min,
                               .quant_max = (int64_t)number->quant_max};
    qobs_dtype scale_dtype, zero_point_dtype;
    qobs_quark_dtypes(config, r, &scale_dtype, &zero_point_dtype);
    size_t bad = 0;
    FOR_NATIVE(r->dtype, bad = first_invalid, &q, r->n, r->min, r->max);
    if (bad < r->n)
        return qobs_fail(error, QOBS_ERROR_NO_RESULT, "min %g should not be above max %g",
                         qobs_element((const unsigned char *)r->min + bad * qobs_dtype_size(r->dtype), r->dtype),
                         qobs_element((const unsigned char *)r->max + bad * qobs_dtype_size(r->dtype), r->dtype));
    for (size_t first = 0; first < r->n; first += CHUNK) {
        const size_t n = r->n - first < CHUNK ? r->n - first : CHUNK;
        double s[CHUNK];
        FOR_NATIVE(r->dtype, integers, &q, first, n, r->min, r->max, s, zero_point);
        if (scale)
            FOR_NATIVE(scale_dtype, put, first, n, s, scale);
    }
    return qobs_succeed(error);
}

struct shape qobs_quark_shape_without_data(const qobs_config *config)
{
    const bool groups = config->preset->granularity == GRANULARITY_QUARK_GROUP;
    /* The scale of a 0-dimensional range all the same, or the winner of a ballot of one vote. */
    const bool scalar =
        dtypes[config->quark_dtype].floating || (config->preset->formula == FORMULA_QUARK_POWER_OF_2 &&
                                                 config->preset->granularity == GRANULARITY_TENSOR);
    return (struct shape){.ndim = groups ? 2 : scalar ? 0 : 1, .extent = {1, 1}};
}
