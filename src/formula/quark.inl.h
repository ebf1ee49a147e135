/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of quark.c. Scalars (the range, half of it) stay float next to a bf16 or f16 tensor. */

/* A 0-dimensional tensor that has seen nothing. */
static inline bool NATIVE(unseen)(const struct integers *q, real lo, real hi)
{
    return q->scalars && isinf(lo) && lo > 0 && isinf(hi) && hi < 0;
}

/* The first range with a minimum that is not below or at its maximum; n if there is none. */
static size_t NATIVE(first_invalid)(const struct integers *q, size_t n, const stored *min, const stored *max)
{
    for (size_t i = 0; i < n; i++)
        if (!(load(min[i]) <= load(max[i])) && !NATIVE(unseen)(q, load(min[i]), load(max[i])))
            return i;
    return n;
}

/* Ranges first to first + n: scales as numbers into `scale`, zero points to their place in `zero_point`, which may be NULL. */
static void NATIVE(integers)(const struct integers *q, size_t first, size_t n, const stored *min, const stored *max,
                             double *scale, void *zero_point)
{
    const real eps = (real)0x1p-23;
    const real range = (real)(q->quant_max - q->quant_min), half = (real)((double)(q->quant_max - q->quant_min) / 2);
    for (size_t i = 0; i < n; i++) {
        const real lo = load(min[first + i]), hi = load(max[first + i]);
        const real a = lo < 0 ? lo : 0, b = hi > 0 ? hi : 0;
        real s;
        int32_t z = 0;
        real fraction = 0;
        if (NATIVE(unseen)(q, lo, hi)) {
            s = 1;
        } else if (q->mapping == MAPPING_SYMMETRIC) {
            s = round_native((-a > b ? -a : b) / half);
            s = s > eps ? s : eps;
        } else if (q->mapping == MAPPING_AFFINE) {
            s = round_native(round_native(b - a) / range);
            s = s > eps ? s : eps;
            const real steps = q->scalars ? a / s : round_native(a / s);
            const int32_t wrapped = (int32_t)((uint32_t)q->quant_min - (uint32_t)to_int32(rint((double)steps)));
            z = wrapped < q->quant_min ? (int32_t)q->quant_min : wrapped > q->quant_max ? (int32_t)q->quant_max : wrapped;
        } else {
            s = round_native(round_native(hi - lo) / range);
            s = s > eps ? s : 1;
            fraction = -lo / s;
        }
        scale[i] = (double)s;
        if (zero_point && q->mapping == MAPPING_FLOAT)
            ((stored *)zero_point)[first + i] = store(fraction);
        else if (zero_point)
            ((int32_t *)zero_point)[first + i] = z;
    }
}

static void NATIVE(put)(size_t first, size_t n, const double *from, stored *to)
{
    for (size_t i = 0; i < n; i++)
        to[first + i] = store((real)from[i]);
}
