/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Bounds of sums in upstream's own arithmetic; included by src/ISA/search.c after search_native.inl.h.
 *
 * Accumulators: 16 float lanes for each candidate, added in the tree of f32x16_sum_4. Vectors of 512 bits have chords,
 *   which fit closer than tangents, so that bounds differ between instruction sets.
 * Overflow: a bound may be infinite; the error then is beyond BF16.
 * Tails: as in search_native.inl.h, without weights.
 * In flight: the iterations that the processor overlaps.
 * Caller's duty: round to nearest, no flushing of subnormals; x and scales are numbers of BF16. */

#include <string.h>

#ifdef F32X16_PERMUTES
typedef struct f32x16_chords bound_vectors;

ALWAYS_INLINE void load_bound(const struct native_bound *b, bound_vectors *v)
{
    *v = f32x16_chords(b->chord_value, b->chord_slope, b->chord_min);
}

ALWAYS_INLINE f32x16 add_bound(const bound_vectors *v, f32x16 error, f32x16 sum)
{
    return f32x16_add_chords(v, error, sum);
}

/* Errors below chord_min count as chord_min. */
ALWAYS_INLINE float surplus(const struct native_bound *b, size_t n)
{
    const size_t padded = (n + QOBS_SEARCH_LANES - 1) / QOBS_SEARCH_LANES * QOBS_SEARCH_LANES;
    return b->chord_surplus * (float)padded;
}
#else
typedef struct {
    f32x16 slope[2], offset[2];
} bound_vectors;

ALWAYS_INLINE void load_bound(const struct native_bound *b, bound_vectors *v)
{
    for (int i = 0; i < 2; i++) {
        v->slope[i] = f32x16_splat(b->tangent_slope[i]);
        v->offset[i] = f32x16_splat(b->tangent_offset[i]);
    }
}

/* The smaller of two negative numbers is taken, which is a bound as well. */
DEEP_INLINE f32x16 add_bound(const bound_vectors *v, f32x16 error, f32x16 sum)
{
    const f32x16 e = f32x16_abs(error);
    const f32x16 first = f32x16_sub(f32x16_mul(e, v->slope[0]), v->offset[0]);
    const f32x16 second = f32x16_sub(f32x16_mul(e, v->slope[1]), v->offset[1]);
    return f32x16_add(sum, f32x16_mul(e, f32x16_max_bits(first, second)));
}

ALWAYS_INLINE float surplus(const struct native_bound *b, size_t n)
{
    (void)b;
    (void)n;
    return 0;
}
#endif

/* More than the largest error of elements up to `most`: beyond a limit, or an eighth of the largest number, since
 * formats have steps of at most a quarter of a number. */
ALWAYS_INLINE float most_error(const struct quantizer *quantizer, struct native_candidate c, float most)
{
    const float above = (float)quantizer->quant_max - c.zero_point, below = c.zero_point - (float)quantizer->quant_min;
    const float reach = (above < below ? above : below) * c.scale, step = (above > below ? above : below) * c.scale / 4;
    return most - reach + step + c.scale;
}

DEEP_INLINE f32x16 native_bound(struct native_how how, const struct quantizer *quantizer, const bound_vectors *v,
                                const float *x, size_t n, const float *number, struct native_candidate c)
{
    const struct grid_float grid = {quantizer->min_normal, quantizer->shifter};
    const float quant_min = (float)quantizer->quant_min, quant_max = (float)quantizer->quant_max;
    f32x16 sum = f32x16_splat(0);
    (void)number; /* for levels */
#ifdef F32X16_PERMUTES
    struct native_levels levels;
    if (how.levels)
        levels = native_levels(how, number, c);
#endif
    for (size_t i = 0; i < n; i += QOBS_SEARCH_LANES) {
#ifdef F32X16_PERMUTES
        if (how.levels) {
            sum = add_bound(v, errors_of_levels(how, levels, x + i, c), sum);
            continue;
        }
#endif
        _Alignas(64) float error[QOBS_SEARCH_LANES];
        AS_VECTORS
        for (int j = 0; j < QOBS_SEARCH_LANES; j++)
            error[j] = native_error(how, grid, quant_min, quant_max, x[i + (size_t)j], c);
        sum = add_bound(v, f32x16_load(error), sum);
    }
    return sum;
}

DEEP_INLINE void native_bounds(struct native_how how, const struct quantizer *quantizer,
                               const struct native_bound *rule, const float *x, size_t n,
                               const struct search_candidates *candidates, size_t count, float *bound)
{
    bound_vectors v;
#ifndef F32X16_PERMUTES
    /* Tangents leave 7 of 20 candidates of int4, and then take longer than they save. */
    if (how.integers && quantizer->quant_max - quantizer->quant_min < QOBS_SEARCH_LANES) {
        memset(bound, 0, count * sizeof *bound);
        return;
    }
#endif
    struct native_how by_inverse = how;
    _Alignas(64) float number[LEVELS] = {0};
    const float most = largest_magnitude(x, n);
    by_inverse.inverse = true;
    load_bound(rule, &v);
#ifdef F32X16_PERMUTES
    struct native_how by_levels = by_inverse;
    const bool levels = has_levels(how, (float)quantizer->quant_min, (float)quantizer->quant_max);
    by_levels.levels = true;
    if (levels)
        quantized_numbers((float)quantizer->quant_min, (float)quantizer->quant_max, number);
#endif
    for (size_t first = 0; first < count; first += 4) {
        f32x16 total[4];
        for (size_t i = 0; i < 4; i++) {
            const struct native_candidate c = candidate_at(how, candidates, first + i);
            const bool is_exact = inverse_is_exact(how, c.scale, most);
#ifdef F32X16_PERMUTES
            if (levels && is_exact && are_near(c, (float)quantizer->quant_min, most)) {
                total[i] = native_bound(by_levels, quantizer, &v, x, n, number, c);
                continue;
            }
#endif
            total[i] = is_exact ? native_bound(by_inverse, quantizer, &v, x, n, number, c)
                                : native_bound(how, quantizer, &v, x, n, number, c);
        }
        f32x16_sum_4(total, bound + first);
        for (size_t i = first; i < first + 4; i++)
            bound[i] = most_error(quantizer, candidate_at(how, candidates, i), most) < rule->limit
                           ? bound[i] - surplus(rule, n)
                           : 0;
    }
}

QOBS_SEARCH_NATIVE_BOUND(ENTRY(qobs_search_native_bound))
{
    struct native_how how = {.bf16 = true, .rounded = true};
#define NATIVE_BOUNDS native_bounds(how, quantizer, rule, x, n, candidates, count, bound)
    if ((double)quantizer->min_normal >= quantizer->quant_max) {
        how.integers = true;
        if (with_shift) {
            how.shifted = true;
            NATIVE_BOUNDS;
        } else {
            NATIVE_BOUNDS;
        }
    } else if (with_shift) {
        how.shifted = true;
        NATIVE_BOUNDS;
    } else {
        NATIVE_BOUNDS;
    }
#undef NATIVE_BOUNDS
}
