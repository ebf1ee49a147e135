/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of quark_power_of_2.c. The range [lo, hi] is numbers of the dtype. */

/* x in the dtype of the second half of the formula. An operation in double followed by this is one operation in that
 * dtype. */
static inline double NATIVE(rounded)(const struct powers *q, double x)
{
    return q->tensor ? (double)(float)x : (double)round_native((real)x);
}

/* False if the scale is not above 0, which upstream asserts for the range of a tensor. There a range of width 0 has
 * scale 1; for the range of a channel it has the smallest scale there is. */
static bool NATIVE(power_of_2)(const struct powers *q, double lo, double hi, double *scale, int32_t *zero_point)
{
    real a = lo < 0 ? (real)lo : 0, b = hi > 0 ? (real)hi : 0;
    if (q->symmetric) {
        b = -a > b ? -a : b;
        a = -b;
    }
    const real width = round_native(b - a);
    const real s = q->tensor && width == 0 ? 1 : round_native(width / (real)(q->quant_max - q->quant_min));
    if (q->tensor && !(s > 0))
        return false;
    const int32_t z = int32_of_double((double)round_native((real)q->quant_min - round_native(a / s)));
    const double limited = (double)s < 0x1p-127 ? 0x1p-127 : (double)s > 0x1p127 ? 0x1p127 : (double)s;

    const double position = rint(-NATIVE(rounded)(q, log2(NATIVE(rounded)(q, limited))));
    const double power = NATIVE(rounded)(q, ldexp(1, (int)-position));
    const double product = NATIVE(rounded)(q, NATIVE(rounded)(q, subtract_int32(q->quant_min, z)) * power);
    const double steps = NATIVE(rounded)(q, (product < 0 ? product : 0) / power);
    *scale = power;
    *zero_point = int32_of_double(rint(NATIVE(rounded)(q, (double)q->quant_min - steps)));
    return true;
}
