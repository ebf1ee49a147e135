/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Bounds of int4 errors in upstream's own arithmetic, 32 elements in 16-bit integers; only avx512/search.c includes
 * this.
 *
 * An error is the distance to the nearer level of a step, which is not above the error of the level that rounding
 * chooses: that is one of the step's two levels. The step comes from a product with the inverse scale, which is at most
 * 1/33 too small: less than half a step up to level 8, beyond which steps are alike.
 *
 * Accumulators: 16 lanes of int32 for 128 elements, added to 16 lanes of float.
 * Overflow: native_int4_bounds refuses errors that could overflow a lane.
 * Tails: zeros, whose error is 0.
 * In flight: four vectors of one candidate. */
#pragma once

#include "avx512/f32x16.h"
#include "number/number.h"

#define NATIVE_INT4_BOUNDS

struct int4_candidate {
    __m512i middle, half, inverse;
};

struct int4_powers {
    __m512i slope, offset, offset_unit, far, far_slope;
};

DEEP_INLINE __m512i add_int4_powers(struct int4_candidate c, struct int4_powers p, __m512i x, __m512i sum)
{
    const __m512i step = _mm512_mulhi_epi16(x, c.inverse);
    const __m512i middle = _mm512_permutexvar_epi16(step, c.middle), half = _mm512_permutexvar_epi16(step, c.half);
    const __m512i e = _mm512_abs_epi16(_mm512_sub_epi16(half, _mm512_abs_epi16(_mm512_sub_epi16(x, middle))));
    const __m512i tangent = _mm512_srli_epi16(_mm512_min_epu16(e, _mm512_set1_epi16(1023)), 5);
    const __m512i rise = _mm512_madd_epi16(_mm512_permutexvar_epi16(tangent, p.slope), e);
    const __m512i offset = _mm512_madd_epi16(_mm512_permutexvar_epi16(tangent, p.offset), p.offset_unit);
    const __m512i far = _mm512_madd_epi16(_mm512_subs_epu16(e, p.far), p.far_slope);
    return _mm512_add_epi32(_mm512_add_epi32(sum, rise), _mm512_add_epi32(offset, far));
}

/* Elements in units of 1 / factor, with zeros up to a multiple of 32. Elements may change places. */
DEEP_INLINE void load_int4_elements(const float *x, size_t n, float factor, __m512i *to)
{
    const __m512 by = _mm512_set1_ps(factor);
    for (size_t i = 0; i < n; i += 32) {
        const __m512i low = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_load_ps(x + i), by));
        const __m512i high =
            i + 16 < n ? _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_load_ps(x + i + 16), by)) : _mm512_set1_epi16(0);
        to[i / 32] = _mm512_packs_epi32(low, high);
    }
}

DEEP_INLINE __m512 int4_power_sum(struct int4_candidate c, struct int4_powers p, const __m512i *x, size_t vectors)
{
    __m512 total = _mm512_set1_ps(0);
    for (; vectors >= 4; vectors -= 4, x += 4) {
        const __m512i first = add_int4_powers(c, p, x[1], add_int4_powers(c, p, x[0], _mm512_set1_epi16(0)));
        const __m512i sum = add_int4_powers(c, p, x[3], add_int4_powers(c, p, x[2], first));
        total = _mm512_add_ps(total, _mm512_cvtepi32_ps(sum));
    }
    __m512i rest = _mm512_set1_epi16(0);
    for (; vectors > 0; vectors--, x++)
        rest = add_int4_powers(c, p, *x, rest);
    return _mm512_add_ps(total, _mm512_cvtepi32_ps(rest));
}

/* search_native_bound for int4 without zero points. Returns false, without bounds, if an element is too far beyond the
 * limits of a candidate or a scale is out of range. most: the largest |x|. */
static inline bool native_int4_bounds(const struct native_int4 *t, const float *x, size_t n, float most,
                                      const struct search_candidates *candidates, size_t count, float *bound)
{
    __m512i elements[QOBS_SEARCH_MOST / 32];
    const struct int4_powers powers = {_mm512_loadu_si512(t->slope), _mm512_loadu_si512(t->offset),
                                       _mm512_set1_epi16(t->offset_unit), _mm512_set1_epi16(t->far),
                                       _mm512_set1_epi16(t->far_slope)};
    uint32_t exponent = 0; /* biased, of the elements' unit */
    float factor = 0;
    for (size_t first = 0; first < count; first += 4) {
        __m512 total[4];
        for (size_t i = 0; i < 4; i++) {
            const uint32_t bits = bits_of_float(candidates->scale[(first + i) * candidates->step]),
                           m = bits >> 16 & 127;
            const uint32_t at = (bits >> 23) - (127 + NATIVE_INT4_MIN_EXPONENT);
            if (at >= NATIVE_INT4_EXPONENTS)
                return false;
            if (bits >> 23 != exponent) {
                exponent = bits >> 23;
                factor = float_of_bits((127 + 10 + 127 - exponent) << 23);
                if (!(most * factor <= INT16_MAX))
                    return false;
                load_int4_elements(x, n, factor, elements);
            }
            if (most * factor > (float)(t->middle[m][7] + NATIVE_INT4_MOST))
                return false;
            const struct int4_candidate c = {_mm512_loadu_si512(t->middle[m]), _mm512_loadu_si512(t->half[m]),
                                             _mm512_set1_epi16((int16_t)(8192 / (128 + m)))};
            total[i] = _mm512_mul_ps(int4_power_sum(c, powers, elements, (n + 31) / 32), _mm512_set1_ps(t->unit[at]));
        }
        f32x16_sum_4(total, bound + first);
    }
    return true;
}
