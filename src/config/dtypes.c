/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "config/dtypes.h"
#include "qobs/format.h"

#define NO_FORMAT ((enum format_id) - 1) /* which qobs_format_at does not have */

static const struct {
    enum format_id format;
    int64_t symmetric_zero_point;
} torch_numbers[] = {
    [TORCH_QUINT8] = {FORMAT_UINT8, 128},    [TORCH_QINT8] = {FORMAT_INT8, 0},    [TORCH_QINT32] = {FORMAT_INT32, 0},
    [TORCH_QUINT4X2] = {FORMAT_UINT4, 0},    [TORCH_UINT8] = {FORMAT_UINT8, 128}, [TORCH_INT8] = {FORMAT_INT8, 0},
    [TORCH_UINT16] = {FORMAT_UINT16, 32768}, [TORCH_INT16] = {FORMAT_INT16, 0},   [TORCH_INT32] = {FORMAT_INT32, 0},
    [TORCH_FLOAT32] = {NO_FORMAT, 0}, /* from here on PlaceholderObserver's, which has no range */
    [TORCH_FLOAT16] = {NO_FORMAT, 0},        [TORCH_BFLOAT16] = {NO_FORMAT, 0},
};

struct torch_number qobs_torch_number(int torch_dtype)
{
    struct torch_number number = {.symmetric_zero_point = torch_numbers[torch_dtype].symmetric_zero_point};
    const qobs_format *format = qobs_format_at(torch_numbers[torch_dtype].format);
    if (!format)
        return number;
    const bool reduced = format->bits == 8; /* the others have no reduced form */
    number.quant_min = (int64_t)qobs_format_min(format);
    number.quant_max = (int64_t)qobs_format_max(format);
    number.reduced_min = reduced ? number.quant_min / 2 : number.quant_min;
    number.reduced_max = reduced ? number.quant_max / 2 : number.quant_max;
    return number;
}

static const struct {
    enum format_id format;
    int mantissa_bits;
    bool is_float;
} quark_numbers[] = {
    [QUARK_DTYPE_NONE] = {NO_FORMAT, 0, false}, [QUARK_INT8] = {FORMAT_INT8, 8, false},
    [QUARK_UINT8] = {FORMAT_UINT8, 0, false},   [QUARK_INT4] = {FORMAT_INT4, 4, false},
    [QUARK_UINT4] = {FORMAT_UINT4, 0, false},   [QUARK_INT3] = {FORMAT_INT3, 3, false},
    [QUARK_INT2] = {FORMAT_INT2, 2, false},     [QUARK_INT16] = {FORMAT_INT16, 0, false},
    [QUARK_INT32] = {FORMAT_INT32, 0, false},   [QUARK_FP8_E4M3] = {FORMAT_E4M3, 3, true},
    [QUARK_FP8_E5M2] = {FORMAT_E5M2, 2, true},  [QUARK_FP8_E5M3] = {FORMAT_E5M3, 0, true},
    [QUARK_FP6_E2M3] = {FORMAT_E2M3, 3, true},  [QUARK_FP6_E3M2] = {FORMAT_E3M2, 2, true},
    [QUARK_FP4] = {FORMAT_E2M1, 1, true},       [QUARK_BFP16] = {NO_FORMAT, 0, true},
    [QUARK_FLOAT16] = {FORMAT_F16, 10, true},   [QUARK_BFLOAT16] = {FORMAT_BF16, 7, true},
    [QUARK_MX] = {NO_FORMAT, 0, false},         [QUARK_MX6] = {NO_FORMAT, 0, false},
    [QUARK_MX9] = {NO_FORMAT, 0, false},        [QUARK_UINT16] = {NO_FORMAT, 0, false},
    [QUARK_UINT32] = {NO_FORMAT, 0, false},     [QUARK_UINT2] = {FORMAT_UINT2, 0, false},
};

struct quark_number qobs_quark_number(int quark_dtype)
{
    struct quark_number number = {.mantissa_bits = quark_numbers[quark_dtype].mantissa_bits,
                                  .is_float = quark_numbers[quark_dtype].is_float};
    const qobs_format *format = qobs_format_at(quark_numbers[quark_dtype].format);
    if (!format)
        return number;
    number.quant_min = qobs_format_min(format);
    number.quant_max = qobs_format_max(format);
    number.emax = qobs_format_max_exponent(format);
    return number;
}

struct quark_number qobs_quark_element(const qobs_config *config)
{
    return qobs_quark_number(config->mx_element_dtype ? config->mx_element_dtype : config->quark_dtype);
}

qobs_dtype qobs_quark_scale_type(const qobs_config *config)
{
    switch (config->scale_type) {
    case SCALE_TYPE_F32:
        return QOBS_F32;
    case SCALE_TYPE_F16:
        return QOBS_F16;
    case SCALE_TYPE_BF16:
        return QOBS_BF16;
    default:
        return (qobs_dtype)0;
    }
}
