/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors of at most 16 integers from a table of their levels in two vectors; only search_native.inl.h includes this. */

/* Levels of integers in two vectors: entry k % 32 is that of k, for the limited range of at most 16 integers and eight
 * more on both sides, which have the levels of the limits. */
enum { LEVELS = 2 * QOBS_SEARCH_LANES };
#ifdef F32X16_PERMUTES
ALWAYS_INLINE bool has_levels(struct native_how how, float quant_min, float quant_max)
{
    return how.integers && how.rounded && quant_max - quant_min < QOBS_SEARCH_LANES;
}

/* Says whether the quotients of all x up to `most` are near the range. */
ALWAYS_INLINE bool are_near(struct native_candidate c, float quant_min, float most)
{
    const float quotient = most / c.scale;
    return c.zero_point - quotient > quant_min - 7 && c.zero_point + quotient < quant_min + 22;
}

ALWAYS_INLINE void quantized_numbers(float quant_min, float quant_max, float *number)
{
    const int low = (int)quant_min, first = low - 8, last = (int)quant_max;
    for (int half = 0; half < LEVELS; half += QOBS_SEARCH_LANES) /* gcc does not vectorize a single loop */
        for (int j = half; j < half + QOBS_SEARCH_LANES; j++) {
            int k = first + ((j - first) & (LEVELS - 1));
            k = k < low ? low : k;
            number[j] = (float)(k > last ? last : k);
        }
}

struct native_levels {
    f32x16 low, high;
};

ALWAYS_INLINE struct native_levels native_levels(struct native_how how, const float *number, struct native_candidate c)
{
    _Alignas(64) float level[LEVELS];
    for (int j = 0; j < LEVELS; j++)
        level[j] = native_level(how, number[j], c.scale, c.zero_point);
    return (struct native_levels){f32x16_load(level), f32x16_load(level + QOBS_SEARCH_LANES)};
}

/* native_error of 16 elements that are near. The low bits of a float that adds 1.5 * 2^23 are those of the nearest
 * integer. */
ALWAYS_INLINE f32x16 errors_of_levels(struct native_how how, struct native_levels levels, const float *x,
                                      struct native_candidate c)
{
    _Alignas(64) float v[QOBS_SEARCH_LANES];
    const f32x16 elements = f32x16_load(x);
    if (how.inverse) {
        const f32x16 spread = f32x16_mul(elements, f32x16_splat(c.split));
        f32x16_store(v, f32x16_sub(spread, f32x16_fnma(elements, f32x16_splat(c.inverse), spread)));
    } else {
        for (int j = 0; j < QOBS_SEARCH_LANES; j++)
            v[j] = round_half(how.bf16, x[j] / c.scale);
    }
    for (int j = 0; j < QOBS_SEARCH_LANES && how.shifted; j++)
        v[j] = round_half(how.bf16, v[j] + c.zero_point);
    const f32x16 at = f32x16_add(f32x16_load(v), f32x16_splat(0x1.8p23f));
    return f32x16_sub(f32x16_permute_2(levels.low, at, levels.high), elements);
}
#endif
