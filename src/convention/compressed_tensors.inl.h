/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of compressed_tensors.c. Scalars (the half range, the range) stay float next to a bf16 or f16 tensor. */

static inline real NATIVE(at_least)(real least, real s)
{
    return s < least ? least : s;
}

static void NATIVE(symmetric)(const struct integers *q, size_t n, const stored *min, const stored *max, stored *scale)
{
    const real half = (real)((q->greatest - q->least) / 2), eps = (real)q->eps, floor = q->floor ? (real)0x1p-23 : 0;
    for (size_t i = 0; i < n; i++) {
        /* |min(min, 0)| and |max(max, 0)|; NaN stays NaN as in torch.min, torch.max */
        const real lo = load(min[i]), hi = load(max[i]);
        const real a = lo < 0 || lo != lo ? -lo : 0, b = hi > 0 || hi != hi ? hi : 0;
        const real amax = a > b || a != a ? a : b;
        const real s = NATIVE(at_least)(floor, round_native(amax / half));
        scale[i] = store(s == 0 ? eps : s);
    }
}

static void NATIVE(asymmetric)(const struct integers *q, size_t n, const stored *min, const stored *max, stored *scale,
                               void *zero_point)
{
    const real range = (real)(q->greatest - q->least), least = (real)q->least, greatest = (real)q->greatest;
    const real floor = q->floor ? (real)0x1p-23 : 0;
    for (size_t i = 0; i < n; i++) {
        const real lo = load(min[i]), hi = load(max[i]);
        const real a = lo < 0 || lo != lo ? lo : 0, b = hi > 0 || hi != hi ? hi : 0;
        const real s = NATIVE(at_least)(floor, round_native(round_native(b - a) / range));
        if (scale)
            scale[i] = store(s == 0 ? (real)q->eps : s);
        if (zero_point) {
            const real steps = round_native(a / s);
            const real z = q->wide_zero_point ? least - steps : round_native(least - steps);
            put_integer(zero_point, q->zero_point_dtype, i, (double)rint((double)(z < least ? least : z > greatest ? greatest : z)));
        }
    }
}

static void NATIVE(integers)(const struct integers *q, size_t n, const stored *min, const stored *max, stored *scale,
                             void *zero_point)
{
    if (!q->symmetric) {
        NATIVE(asymmetric)(q, n, min, max, scale, zero_point);
        return;
    }
    if (scale)
        NATIVE(symmetric)(q, n, min, max, scale);
    for (size_t i = 0; zero_point && i < n; i++)
        put_integer(zero_point, q->zero_point_dtype, i, 0);
}
