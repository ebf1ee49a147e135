/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The numbers of the dtypes that torch's and Quark's settings name. Limits come from the table of formats. */
#pragma once

#include "config/config.h"
#include "number/format.h"

struct torch_number {
    int64_t quant_min, quant_max;
    int64_t reduced_min, reduced_max; /* with reduce_range */
    int64_t symmetric_zero_point;
};
struct torch_number qobs_torch_number(int torch_dtype);

struct torchao_number {
    double quant_min, quant_max;
    bool is_float;
};
struct torchao_number qobs_torchao_number(const qobs_config *config); /* with limits that are set */

/* True if the functions of torchao.quantization.pt2e compute the qparams. */
bool qobs_config_is_pt2e(const qobs_config *config);

struct quark_number {
    double quant_min, quant_max; /* 0 and 0 for dtypes without a format of their own */
    int mantissa_bits, emax;     /* as elements of an e8m0 scale; mantissa_bits 0: Quark has no such scale */
    bool is_float;
};
struct quark_number qobs_quark_number(int quark_dtype);

/* The elements of an e8m0 scale: mx_element_dtype if it is set, else dtype. */
struct quark_number qobs_quark_element(const qobs_config *config);

/* The dtype that scale_type names; 0: none. */
qobs_dtype qobs_quark_scale_type(const qobs_config *config);
