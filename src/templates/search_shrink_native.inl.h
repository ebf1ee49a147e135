/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One dtype of search_shrink.inl.h. `kind`, `integers` and `normality` are constants, and the loop over ranges has
 * no other branch, so gcc vectorizes it. */

/* The part of a batch of ranges that does not depend on p. Rounding keeps order and sign, so the bounds can be found
 * before shrinking. */
struct NATIVE(ranges) {
    float low[QOBS_SEARCH_LANES], high[QOBS_SEARCH_LANES], amax[QOBS_SEARCH_LANES], factor[QOBS_SEARCH_LANES];
    float inverse[QOBS_SEARCH_LANES]; /* of scale * factor where p is 1, nearly; 0: some candidates are not normal */
};

/* Returns the number of ranges all of whose candidates are normal: above the dtype's subnormals and within float's
 * limits. */
DEEP_INLINE int NATIVE(begin)(const struct shrink_rule *how, bool symmetric, const float *min, const float *max,
                              const float *factor, struct NATIVE(ranges) * r)
{
    const float steps = how->quant_max - how->quant_min, quant_min = how->min_p / steps;
    float extent[QOBS_SEARCH_LANES], inverse[QOBS_SEARCH_LANES];
    int normal = 0;
    /* Several loops: gcc does not vectorize a single one. */
    NO_DEPENDENCE
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        const float a = min[i], b = max[i];
        r->low[i] = a < 0 ? a : 0;
        r->high[i] = b > 0 ? b : 0;
        r->factor[i] = factor[i];
    }
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        const float below = -r->low[i], above = r->high[i];
        r->amax[i] = below > above ? below : above;
    }
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        extent[i] = symmetric ? 2 * r->amax[i] : r->high[i] - r->low[i];
        inverse[i] = steps / (extent[i] * r->factor[i]);
    }
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        const bool is_normal = extent[i] < 0x1p100f && extent[i] * quant_min >= MIN_NORMAL;
        r->inverse[i] = is_normal ? inverse[i] : 0;
        normal += is_normal;
    }
    return normal;
}

DEEP_INLINE void NATIVE(shrink)(const struct shrink_rule *how, enum shrinking kind, bool integers,
                                enum normality normality, const struct NATIVE(ranges) * batch, const float *p,
                                const float *inverse_p, size_t n, float *scale, float *inverse, float *shift)
{
    const struct NATIVE(ranges) r = *batch; /* nothing that is written is read again */
    const float quant_min = how->quant_min, quant_max = how->quant_max, range = quant_max - quant_min, half = range / 2;
    const float eps = how->eps, floor = how->floor;
    const int offset = how->mx_offset;
    for (size_t c = 0; c < n;
         c++, scale += QOBS_SEARCH_LANES, inverse += QOBS_SEARCH_LANES, shift += QOBS_SEARCH_LANES) {
        const float by = p[c], inverse_by = normality == NONE_NORMAL ? 0 : inverse_p[c];
        NO_DEPENDENCE
        for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
            const float a = round_dtype(r.low[i] * by), b = round_dtype(r.high[i] * by),
                        amax = round_dtype(r.amax[i] * by);
            const float extent = kind == SYMMETRIC ? amax : round_dtype(b - a),
                        steps = kind == SYMMETRIC ? half : range;
            float s = kind == MX                ? round_dtype(mx_scale(amax, offset))
                      : normality == ALL_NORMAL ? round_dtype(divide(extent, steps, 1 / steps))
                                                : round_dtype(extent / steps);
            if (normality != ALL_NORMAL)
                s = s < floor ? floor : s;
            float zero_point = 0;
            if (kind == ASYMMETRIC) {
                const float z = round_dtype(quant_min - round_dtype(a / s)), limited = z < quant_min   ? quant_min
                                                                                       : z > quant_max ? quant_max
                                                                                                       : z;
                const float rounded = (limited + 0x1.8p23f) - 0x1.8p23f;
                zero_point = z == z ? rounded : 0;
            }
            if (normality != ALL_NORMAL)
                s = s == 0 ? eps : s;
            const float scaled = normality == ALL_NORMAL ? s * r.factor[i] : times_factor(s, r.factor[i]);
            const float refined = refined_inverse(REFINEMENTS, scaled, r.inverse[i] * inverse_by);
            scale[i] = scaled;
            inverse[i] = normality == ALL_NORMAL                        ? refined
                         : normality == SOME_NORMAL && r.inverse[i] > 0 ? refined
                                                                        : inverse_of(scaled);
            shift[i] = integers ? 0x1.8p23f + zero_point : zero_point;
        }
    }
}

/* Every normality of a kind. */
DEEP_INLINE void NATIVE(shrink_all)(const struct shrink_rule *how, enum shrinking kind, bool integers, int normal,
                                    const struct NATIVE(ranges) * r, const float *p, const float *inverse_p, size_t n,
                                    float *scale, float *inverse, float *shift)
{
    if (normal == QOBS_SEARCH_LANES)
        NATIVE(shrink)(how, kind, integers, ALL_NORMAL, r, p, inverse_p, n, scale, inverse, shift);
    else if (normal > 0)
        NATIVE(shrink)(how, kind, integers, SOME_NORMAL, r, p, inverse_p, n, scale, inverse, shift);
    else
        NATIVE(shrink)(how, kind, integers, NONE_NORMAL, r, p, NULL, n, scale, inverse, shift);
}

QOBS_SEARCH_SHRINK(ENTRY(NATIVE(qobs_search_shrink)))
{
    CLEARS_UPPER_HALVES
    struct NATIVE(ranges) r;
    int normal = how->symmetric ? NATIVE(begin)(how, true, min, max, factor, &r)
                                : NATIVE(begin)(how, false, min, max, factor, &r);
    if (!inverse_p || how->floor > 0)
        normal = 0;
    if (how->mx)
        NATIVE(shrink)(how, MX, false, NONE_NORMAL, &r, p, NULL, n, scale, inverse, shift);
    else if (how->symmetric && how->integers)
        NATIVE(shrink_all)(how, SYMMETRIC, true, normal, &r, p, inverse_p, n, scale, inverse, shift);
    else if (how->symmetric)
        NATIVE(shrink_all)(how, SYMMETRIC, false, normal, &r, p, inverse_p, n, scale, inverse, shift);
    else
        NATIVE(shrink_all)(how, ASYMMETRIC, true, normal, &r, p, inverse_p, n, scale, inverse, shift);
}
