/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of search_shrink.inl.h. `kind` is constant where this is inlined: 0 asymmetric, 1 symmetric, 2 MX. */

ALWAYS_INLINE void NATIVE(shrink)(const struct qobs_shrinking *how, int kind, bool integers, float min, float max, const float *p,
                                  float factor, size_t n, float *scale, float *inverse, float *shift)
{
    const float least = how->least, greatest = how->greatest, range = greatest - least, half = range / 2;
    const float eps = how->eps, floor = how->floor;
    const int offset = how->mx_offset;
    NO_DEPENDENCE
    for (size_t i = 0; i < n; i++) {
        const float lo = nearest(min * p[i]), hi = nearest(max * p[i]);
        const float a = lo < 0 ? lo : 0, b = hi > 0 ? hi : 0, amax = -a > b ? -a : b;
        const float plain = kind == 2   ? nearest(mx_scale(amax, offset))
                            : kind == 1 ? nearest(amax / half)
                                        : nearest(nearest(b - a) / range);
        const float s = plain < floor ? floor : plain;
        float zero_point = 0;
        if (kind == 0) {
            const float z = nearest(least - nearest(a / s)), limited = z < least ? least : z > greatest ? greatest : z;
            const float whole = (limited + 0x1.8p23f) - 0x1.8p23f;
            zero_point = z == z ? whole : 0;
        }
        put_candidate(integers, s == 0 ? eps : s, zero_point, factor, scale + i, inverse + i, shift + i);
    }
}

QOBS_SEARCH_SHRINK(ENTRY(NATIVE(qobs_search_shrink)))
{
    if (how->mx)
        NATIVE(shrink)(how, 2, false, min, max, p, factor, n, scale, inverse, shift);
    else if (how->symmetric && how->integers)
        NATIVE(shrink)(how, 1, true, min, max, p, factor, n, scale, inverse, shift);
    else if (how->symmetric)
        NATIVE(shrink)(how, 1, false, min, max, p, factor, n, scale, inverse, shift);
    else
        NATIVE(shrink)(how, 0, true, min, max, p, factor, n, scale, inverse, shift);
}
