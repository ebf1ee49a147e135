/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torchao's choose_qparams_affine_with_min_max (quantization/quant_primitives.py and pt2e/_affine_quantization.py) in
 * the dtype of the ranges. */
#include "formula/shared.h"

static struct qparam_dtypes dtypes(const struct formula_params *params, const struct range_view *r)
{
    const bool integer = params->torchao.mapping == TORCHAO_ASYMMETRIC && !params->torchao.pt2e;
    return (struct qparam_dtypes){params->torchao.scale_dtype ? params->torchao.scale_dtype : r->dtype,
                                  params->torchao.zero_point_dtype ? params->torchao.zero_point_dtype
                                  : integer                        ? QOBS_I32
                                                                   : r->dtype};
}

/* Without eps: the smallest normal number, in pt2e the distance of 1 to the next number. */
static double epsilon(const struct formula_params *params, qobs_dtype dtype)
{
    static const double smallest[] = {
        [QOBS_F32] = 0x1p-126, [QOBS_BF16] = 0x1p-126, [QOBS_F16] = 0x1p-14, [QOBS_F64] = 0x1p-1022};
    static const double next[] = {
        [QOBS_F32] = 0x1p-23, [QOBS_BF16] = 0x1p-7, [QOBS_F16] = 0x1p-10, [QOBS_F64] = 0x1p-52};
    if (params->torchao.has_eps)
        return params->torchao.eps;
    return params->torchao.pt2e ? next[dtype] : smallest[dtype];
}

/* The scale of the range [a, b]. */
static double scale_of(const struct formula_params *p, qobs_dtype dtype, double a, double b)
{
    const double width = p->quant_max - p->quant_min;
    if (p->torchao.mapping == TORCHAO_ASYMMETRIC)
        return rounded(dtype, rounded(dtype, b - a) / operand(dtype, width));
    if (p->torchao.mapping == TORCHAO_SYMMETRIC)
        return rounded(dtype, (-a > b || a != a ? -a : b) / operand(dtype, width / 2));
    const double low = rounded(dtype, a / operand(dtype, p->quant_min)),
                 high = rounded(dtype, b / operand(dtype, p->quant_max));
    return low > high ? low : high;
}

/* NaN stays NaN, as in torch.min and torch.clamp. */
static int qparam(const struct formula_params *p, qobs_dtype dtype, double min, double max, struct qparam *result,
                  qobs_error *error)
{
    const bool whole = !p->torchao.preserve_zero;
    const double a = min < 0 || min != min || whole ? min : 0, b = max > 0 || max != max || whole ? max : 0;
    const double eps = rounded(dtype, epsilon(p, dtype)), s = scale_of(p, dtype, a, b);
    const double middle = (p->quant_max + p->quant_min + 1) / 2;
    double z;
    (void)error;
    result->scale = s < eps ? eps : s;
    if (p->torchao.mapping != TORCHAO_ASYMMETRIC) {
        z = rounded(dtype, trunc(middle));
    } else if (whole) {
        z = rounded(dtype, a + rounded(dtype, result->scale * operand(dtype, middle)));
    } else {
        const double lowest = rounded(dtype, p->quant_min), highest = rounded(dtype, p->quant_max);
        z = rounded(dtype, operand(dtype, p->quant_min) - rint(rounded(dtype, a / result->scale)));
        z = z < lowest ? lowest : z > highest ? highest : z;
    }
    result->zero_point = p->no_zero_point ? 0 : z;
    return QOBS_OK;
}

const struct formula_ops qobs_formula_torchao = {.dtypes = dtypes, .qparam = qparam, .needs_data = true};
