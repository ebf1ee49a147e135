/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of quark_power_of_2.c. `lo` and `hi` are numbers of the dtype. */

/* The range with 0, or as far as its larger end on both sides. */
static void NATIVE(widen)(const struct powers *q, double lo, double hi, real *a, real *b)
{
    *a = lo < 0 ? (real)lo : 0;
    *b = hi > 0 ? (real)hi : 0;
    if (q->symmetric) {
        *b = -*a > *b ? -*a : *b;
        *a = -*b;
    }
}

/* A 0-dimensional range: the scale is a Python number before it becomes f32 for the rest. False if it is 0, as upstream asserts. */
static bool NATIVE(of_tensor)(const struct powers *q, double lo, double hi, double *scale, int32_t *zero_point)
{
    real a, b;
    NATIVE(widen)(q, lo, hi, &a, &b);
    const real width = round_native(b - a), s = width != 0 ? round_native(width / (real)(q->quant_max - q->quant_min)) : 1;
    if (!(s > 0))
        return false;
    const int32_t z = to_int32((double)round_native((real)q->quant_min - round_native(a / s)));
    const double limited = (double)s < 0x1p-127 ? 0x1p-127 : (double)s > 0x1p127 ? 0x1p127 : (double)s;
    const float position = rintf(-(float)log2((double)(float)limited)), power = ldexpf(1, (int)-position);
    const float product = (float)subtract(q->quant_min, z) * power, quant_min = product < 0 ? product : 0;
    *scale = (double)power;
    *zero_point = to_int32((double)rintf((float)q->quant_min - quant_min / power));
    return true;
}

/* One of a vector of ranges: everything stays in their dtype. A range of width 0 has the smallest scale there is. */
static void NATIVE(of_channel)(const struct powers *q, double lo, double hi, double *scale, int32_t *zero_point)
{
    real a, b;
    NATIVE(widen)(q, lo, hi, &a, &b);
    const real s = round_native(round_native(b - a) / (real)(q->quant_max - q->quant_min));
    const int32_t z = to_int32((double)round_native((real)q->quant_min - round_native(a / s)));
    const double limited = (double)s < 0x1p-127 ? 0x1p-127 : (double)s > 0x1p127 ? 0x1p127 : (double)s;
    const double position = rint((double)-round_native((real)log2(limited)));
    const real power = round_native((real)ldexp(1, (int)-position));
    const real product = round_native(round_native((real)subtract(q->quant_min, z)) * power), quant_min = product < 0 ? product : 0;
    *scale = (double)power;
    *zero_point = to_int32(rint((double)round_native((real)q->quant_min - round_native(quant_min / power))));
}
