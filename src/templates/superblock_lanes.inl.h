/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Runs of elements in lanes: element i of 16 runs is one vector of 16 floats; PACK runs are searched together. A lane
 * has the operations of one run in their order. Included by superblock.inl.h. */

enum {
    LANES = VEC_BYTES / 4,
    ROW = 16,  /* lanes of a row of a pack */
    PACK = 32, /* runs; two halves of rows */
    VECTORS = PACK / LANES,
    TALLEST = 32,        /* elements of a run that is searched */
    HALF = ROW * TALLEST /* floats from one half to the other */
};

struct pack {
    _Alignas(64) float x[2 * HALF];
    float w[2 * HALF], code[2 * HALF];
};

/* The begin of vector v of a pack; its element i is ROW * i further. */
#define AT(p, v) ((p) + (v)*LANES / ROW * HALF + (v)*LANES % ROW)
#define LOAD(p) (*(const f32v_at *)(const void *)(p))
#define STORE(p, a) (*(f32v_at *)(void *)(p) = (a))
/* NOLINTNEXTLINE(bugprone-macro-parentheses): v is declared here */
#define EACH_LANES(v, n) _Pragma("GCC unroll 4") for (int v = 0; v < (n); v++)

#define TINY 1e-15f /* a run whose largest magnitude is below has no codes but 0 */

/* ---- Integers of floats ------------------------------------------------------------------------------------------ */

/* v + ROUNDER is the nearest integer, ties to even, plus the bits ROUNDED, for |v| up to 2^22. */
#define ROUNDER 0x1.8p23f
#define ROUNDED 0x4b400000

/* The same for all v: beyond that range, and for NaN, the low 23 bits of the sum count, less 2^22. */
DEEP_INLINE vec any_rounded(f32v v) { return (vec)((((u32v)(v + f32v_splat(ROUNDER))) & 0x7fffff) | 0x4b000000); }

DEEP_INLINE f32v rounded_number(vec rounded) { return (f32v)rounded - f32v_splat(ROUNDER); }
DEEP_INLINE vec s32_splat(int32_t a) { return (vec)((s32v){0} + a); }
DEEP_INLINE vec rounded_limited(vec rounded, int low, int high)
{
    return vec_max_s32(vec_min_s32(rounded, s32_splat(ROUNDED + high)), s32_splat(ROUNDED + low));
}

/* The integer nearest to v, and back. */
DEEP_INLINE vec integer_of(f32v v) { return (vec)((s32v)any_rounded(v) - ROUNDED); }
DEEP_INLINE f32v number_of(vec integer) { return rounded_number((vec)((s32v)integer + ROUNDED)); }

DEEP_INLINE vec s32_limited(vec a, int low, int high)
{
    return vec_max_s32(vec_min_s32(a, s32_splat(high)), s32_splat(low));
}

DEEP_INLINE f32v f32v_magnitude(f32v a) { return (f32v)((u32v)a & 0x7fffffff); }
DEEP_INLINE f32v f32v_unless(f32v_mask k, f32v a) { return f32v_choose(k, f32v_splat(0), a); }
DEEP_INLINE f32v_mask f32v_without(f32v_mask a, f32v_mask b) { return (f32v_mask)(a & ~b); }

/* ---- Measures of runs of any length ------------------------------------------------------------------------------ */

enum measure { PEAK, LARGEST, MINIMUM_MAXIMUM, SUM_OF_MAGNITUDES, SUM_OF_SQUARES };

/* Measures 16 runs of n elements, `apart` floats apart: the largest magnitude in a and the first element that has it in
 * b; or the minimum in a and the maximum in b; or a sum in the order of the elements in a. a and b hold the measures of
 * the elements before. */
ALWAYS_INLINE void measure(enum measure what, const float *x, size_t apart, size_t n, float a[ROW], float b[ROW])
{
    _Alignas(64) float t[ROW * ROW];
    f32v first[F32X16_PARTS], second[F32X16_PARTS];
    EACH_LANES(v, F32X16_PARTS)
    {
        first[v] = LOAD(a + LANES * v);
        second[v] = LOAD(b + LANES * v);
    }
    for (size_t i = 0; i < n; i += ROW) {
        f32x16_transpose(x + i, apart, t);
        for (size_t j = 0; j < ROW; j++)
            EACH_LANES(v, F32X16_PARTS)
            {
                const f32v e = LOAD(t + ROW * j + LANES * v), m = f32v_magnitude(e);
                if (what == PEAK)
                    second[v] = f32v_choose(f32v_less(first[v], m), e, second[v]);
                if (what == MINIMUM_MAXIMUM)
                    second[v] = f32v_max(e, second[v]);
                if (what == SUM_OF_MAGNITUDES)
                    first[v] += m;
                else if (what == SUM_OF_SQUARES)
                    first[v] += e * e;
                else if (what == MINIMUM_MAXIMUM)
                    first[v] = f32v_min(e, first[v]);
                else
                    first[v] = f32v_max(m, first[v]);
            }
    }
    EACH_LANES(v, F32X16_PARTS)
    {
        STORE(a + LANES * v, first[v]);
        STORE(b + LANES * v, second[v]);
    }
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* Puts the runs of a half into lanes. */
DEEP_INLINE void load_runs(const float *from, int n, float *to)
{
    for (int i = 0; i < n; i += ROW)
        f32x16_transpose(from + i, (size_t)n, to + ROW * i);
}

/* Makes the weights of a half, and their sums; w holds the importance of its elements, `moment` what is added to their
 * squares. */
ALWAYS_INLINE void weigh_by(enum gguf_weight kind, const float *x, float *w, int n, const float moment[ROW],
                            float sums[ROW])
{
    f32v raise[F32X16_PARTS], sum[F32X16_PARTS];
    EACH_LANES(v, F32X16_PARTS)
    {
        raise[v] = LOAD(moment + LANES * v);
        sum[v] = f32v_splat(0);
    }
    for (int i = 0; i < n && (kind == GGUF_WEIGHT_RAISED || kind == GGUF_WEIGHT_RUN); i++)
        EACH_LANES(v, F32X16_PARTS) sum[v] += LOAD(x + ROW * i + LANES * v) * LOAD(x + ROW * i + LANES * v);
    EACH_LANES(v, F32X16_PARTS)
    {
        if (kind == GGUF_WEIGHT_RUN)
            raise[v] = sum[v] * f32v_splat(2.0f / (float)n);
        if (kind == GGUF_WEIGHT_RAISED)
            raise[v] = f32v_sqrt(sum[v] * f32v_splat(1.0f / (float)n));
        sum[v] = f32v_splat(0);
    }
    for (int i = 0; i < n; i++)
        EACH_LANES(v, F32X16_PARTS)
        {
            float *const to = w + ROW * i + LANES * v;
            const f32v e = LOAD(x + ROW * i + LANES * v);
            const f32v weight = kind == GGUF_WEIGHT_SQUARE      ? (f32v)(e * e)
                                : kind == GGUF_WEIGHT_MAGNITUDE ? f32v_magnitude(e)
                                : kind == GGUF_WEIGHT_RAISED    ? (f32v)(raise[v] + f32v_magnitude(e))
                                : kind == GGUF_WEIGHT_GIVEN     ? (f32v)LOAD(to)
                                                                : (f32v)(LOAD(to) * f32v_sqrt(raise[v] + e * e));
            STORE(to, weight);
            sum[v] += weight;
        }
    EACH_LANES(v, F32X16_PARTS) STORE(sums + LANES * v, sum[v]);
}

static inline void weigh(enum gguf_weight kind, const float *x, float *w, int n, const float moment[ROW],
                         float sums[ROW])
{
    if (kind == GGUF_WEIGHT_SQUARE)
        weigh_by(GGUF_WEIGHT_SQUARE, x, w, n, moment, sums);
    else if (kind == GGUF_WEIGHT_MAGNITUDE)
        weigh_by(GGUF_WEIGHT_MAGNITUDE, x, w, n, moment, sums);
    else if (kind == GGUF_WEIGHT_RAISED)
        weigh_by(GGUF_WEIGHT_RAISED, x, w, n, moment, sums);
    else if (kind == GGUF_WEIGHT_GIVEN)
        weigh_by(GGUF_WEIGHT_GIVEN, x, w, n, moment, sums);
    else if (kind == GGUF_WEIGHT_RUN)
        weigh_by(GGUF_WEIGHT_RUN, x, w, n, moment, sums);
    else
        weigh_by(GGUF_WEIGHT_BLOCK, x, w, n, moment, sums);
}
