/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "config/dtypes.h"

static const struct torch_number torch_numbers[] = {
    [TORCH_QUINT8] = {0, 255, 0, 127, 128},
    [TORCH_QINT8] = {-128, 127, -64, 63, 0},
    [TORCH_QINT32] = {INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX, 0},
    [TORCH_QUINT4X2] = {0, 15, 0, 15, 0},
    [TORCH_UINT8] = {0, 255, 0, 127, 128},
    [TORCH_INT8] = {-128, 127, -64, 63, 0},
    [TORCH_UINT16] = {0, 65535, 0, 65535, 32768},
    [TORCH_INT16] = {INT16_MIN, INT16_MAX, INT16_MIN, INT16_MAX, 0},
    [TORCH_INT32] = {INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX, 0},
    [TORCH_FLOAT32] = {0}, /* PlaceholderObserver's have no range */
    [TORCH_FLOAT16] = {0},
    [TORCH_BFLOAT16] = {0},
};

static const struct quark_number quark_numbers[QUARK_DTYPES] = {
    [QUARK_INT8] = {-128, 127, 8, 0, false},
    [QUARK_UINT8] = {0, 255, 0, 0, false},
    [QUARK_INT4] = {-8, 7, 4, 0, false},
    [QUARK_UINT4] = {0, 15, 0, 0, false},
    [QUARK_INT3] = {-4, 3, 3, 0, false},
    [QUARK_INT2] = {-2, 1, 2, 0, false},
    [QUARK_INT16] = {-0x1p15, 0x1p15 - 1, 0, 0, false},
    [QUARK_INT32] = {-0x1p31, 0x1p31 - 1, 0, 0, false},
    [QUARK_FP8_E4M3] = {-448, 448, 3, 8, true},
    [QUARK_FP8_E5M2] = {-57344, 57344, 2, 15, true},
    [QUARK_FP8_E5M3] = {0, 114688, 0, 0, true},
    [QUARK_FP6_E2M3] = {-7.5, 7.5, 3, 2, true},
    [QUARK_FP6_E3M2] = {-28, 28, 2, 4, true},
    [QUARK_FP4] = {-6, 6, 1, 2, true},
    [QUARK_BFP16] = {0, 0, 0, 0, true},
    [QUARK_FLOAT16] = {-65504, 65504, 10, 15, true},
    [QUARK_BFLOAT16] = {-0x1.fep127, 0x1.fep127, 7, 127, true},
};

const struct torch_number *qobs_torch_number(int torch_dtype) { return &torch_numbers[torch_dtype]; }
const struct quark_number *qobs_quark_number(int quark_dtype) { return &quark_numbers[quark_dtype]; }

const struct quark_number *qobs_quark_element(const qobs_config *config)
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
