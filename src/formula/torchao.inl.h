/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of torchao.c. */

static inline real NATIVE(symmetric_scale)(const struct affine *q, real a, real b)
{
    if (q->mapping == TORCHAO_SYMMETRIC) {
        const real amax = -a > b || a != a ? -a : b;
        return round_native(amax / (real)((q->quant_max - q->quant_min) / 2));
    }
    const real low = round_native(a / (real)q->quant_min), high = round_native(b / (real)q->quant_max);
    return low > high ? low : high;
}

/* Scale and zero point of range i as doubles, exact in this dtype. NaN stays NaN, as in torch.min and torch.clamp. */
static void NATIVE(affine_qparam)(const struct affine *q, const stored *min, const stored *max, size_t i, double *scale,
                                  double *zero_point)
{
    const real low = load(min[i]), high = load(max[i]), eps = round_native((real)q->eps);
    const real a = low < 0 || low != low || !q->preserve_zero ? low : 0;
    const real b = high > 0 || high != high || !q->preserve_zero ? high : 0;
    const double middle = (q->quant_max + q->quant_min + 1) / 2;
    real s, z;
    if (q->mapping != TORCHAO_ASYMMETRIC) {
        s = NATIVE(symmetric_scale)(q, a, b);
        s = s < eps ? eps : s;
        z = round_native((real)trunc(middle));
    } else {
        s = round_native(round_native(b - a) / (real)(q->quant_max - q->quant_min));
        s = s < eps ? eps : s;
        if (q->preserve_zero) {
            const real lowest = round_native((real)q->quant_min), highest = round_native((real)q->quant_max);
            z = round_native((real)q->quant_min - (real)rint((double)round_native(a / s)));
            z = z < lowest ? lowest : z > highest ? highest : z;
        } else {
            z = round_native(a + round_native(s * (real)middle));
        }
    }
    *scale = (double)s;
    *zero_point = (double)z;
}
