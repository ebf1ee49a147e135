/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of search_shrink.inl.h. `kind`, `integers` and `near`, without which inverse_p is not looked at, are constant where
 * this is inlined: a test in the loop would keep gcc from making vectors of it. */

ALWAYS_INLINE void NATIVE(shrink)(const struct qobs_shrinking *how, enum shrinking kind, bool integers, bool near, float min,
                                  float max, const float *p, const float *inverse_p, float factor, size_t n, float *scale,
                                  float *inverse, float *shift)
{
    const float least = how->least, greatest = how->greatest, range = greatest - least, half = range / 2;
    const float eps = how->eps, floor = how->floor, whole = near ? unshrunk_inverse(how, min, max, factor) : 0;
    const int offset = how->mx_offset;
    /* Rounding keeps order and sign, so the bounds that count can be found before shrinking. */
    const float low = min < 0 ? min : 0, high = max > 0 ? max : 0, most = -low > high ? -low : high;
    NO_DEPENDENCE
    for (size_t i = 0; i < n; i++) {
        const float a = nearest(low * p[i]), b = nearest(high * p[i]), amax = nearest(most * p[i]);
        const float plain = kind == MX          ? nearest(mx_scale(amax, offset))
                            : kind == SYMMETRIC ? nearest(near ? divide(amax, half, 1 / half) : amax / half)
                            : near              ? nearest(divide(nearest(b - a), range, 1 / range))
                                                : nearest(nearest(b - a) / range);
        const float s = !near && plain < floor ? floor : plain;
        float zero_point = 0;
        if (kind == ASYMMETRIC) {
            const float z = nearest(least - nearest(a / s)), limited = z < least ? least : z > greatest ? greatest : z;
            const float rounded = (limited + 0x1.8p23f) - 0x1.8p23f;
            zero_point = z == z ? rounded : 0;
        }
        if (near)
            put_near(integers, REFINEMENTS, s, zero_point, factor, whole * inverse_p[i], scale + i, inverse + i, shift + i);
        else
            put_any(integers, s == 0 ? eps : s, zero_point, factor, scale + i, inverse + i, shift + i);
    }
}

QOBS_SEARCH_SHRINK(ENTRY(NATIVE(qobs_search_shrink)))
{
    const bool near = inverse_p && are_normal(how, min, max, LEAST_NORMAL);
    if (how->mx)
        NATIVE(shrink)(how, MX, false, false, min, max, p, NULL, factor, n, scale, inverse, shift);
    else if (how->symmetric && how->integers && near)
        NATIVE(shrink)(how, SYMMETRIC, true, true, min, max, p, inverse_p, factor, n, scale, inverse, shift);
    else if (how->symmetric && how->integers)
        NATIVE(shrink)(how, SYMMETRIC, true, false, min, max, p, NULL, factor, n, scale, inverse, shift);
    else if (how->symmetric && near)
        NATIVE(shrink)(how, SYMMETRIC, false, true, min, max, p, inverse_p, factor, n, scale, inverse, shift);
    else if (how->symmetric)
        NATIVE(shrink)(how, SYMMETRIC, false, false, min, max, p, NULL, factor, n, scale, inverse, shift);
    else if (near)
        NATIVE(shrink)(how, ASYMMETRIC, true, true, min, max, p, inverse_p, factor, n, scale, inverse, shift);
    else
        NATIVE(shrink)(how, ASYMMETRIC, true, false, min, max, p, NULL, factor, n, scale, inverse, shift);
}
