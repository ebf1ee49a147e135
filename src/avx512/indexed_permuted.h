/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum of 16-bit columns that an index assigns to at most 32 groups, without a transposition: every lane
 * of an accumulator is a group. Included by templates/indexed.inl.h.
 *
 * All rows have the same columns in the same places. So permutations that bring the columns of a cache line into the
 * lanes of their groups are made once: one for the first column of every group, another for the second, and so on. A
 * group with fewer columns repeats its last.
 *
 * Accumulators: two vectors of keys a row; none can overflow.
 * Counts: 64 bits, made only for rows that hold an element that is not finite.
 * Tails: the last columns and the last row are read twice, which changes no bound. Nothing outside a row is read.
 * In flight: a cache line of 4 rows, while those below are prefetched. */

enum { PERMUTED_LANES = 32, PERMUTED_ROWS = 4, PERMUTED_LINES = 64, PERMUTATIONS = 5 * PERMUTED_LINES };

/* Permutations for some lines; random columns in 32 groups need 3.6 a line. */
struct permuted {
    uint16_t from[PERMUTATIONS][PERMUTED_LANES];
    struct {
        uint32_t column, groups, permutations; /* a bit for each group it has */
    } line[PERMUTED_LINES];
    size_t lines;
};

/* Makes permutations for as many columns as fit, `columns` at most; false if these need too many permutations. */
static bool make_permuted(struct permuted *p, const uint32_t *group, size_t columns)
{
    size_t used = 0;
    for (p->lines = 0; p->lines < PERMUTED_LINES && p->lines * PERMUTED_LANES < columns; p->lines++) {
        const size_t at = p->lines * PERMUTED_LANES,
                     first = at + PERMUTED_LANES <= columns ? at : columns - PERMUTED_LANES;
        uint16_t members[PERMUTED_LANES] = {0};
        uint32_t groups = 0, most = 0;
        for (uint32_t c = 0; c < PERMUTED_LANES; c++) {
            const uint32_t g = group[first + c], before = members[g]++;
            if (used + before >= PERMUTATIONS)
                return false;
            if (before == most)
                vec_store(p->from[used + most++], vec_splat16(0));
            p->from[used + before][g] = (uint16_t)c;
            groups |= UINT32_C(1) << g;
        }
        const vec there = vec_load(members);
        for (uint32_t i = 1; i < most; i++) {
            const __mmask32 fewer = _mm512_cmple_epu16_mask(there, _mm512_set1_epi16((int16_t)i));
            vec_store(p->from[used + i],
                      _mm512_mask_mov_epi16(vec_load(p->from[used + i]), fewer, vec_load(p->from[used + i - 1])));
        }
        p->line[p->lines].column = (uint32_t)first;
        p->line[p->lines].groups = groups;
        p->line[p->lines].permutations = most;
        used += most;
    }
    return true;
}

/* Merges one bound of a row into the outputs. */
static void merge_permuted(vec bound, bool is_max, unsigned char *out, __mmask32 groups)
{
    const vec before = vec_key16(_mm512_maskz_loadu_epi16(groups, out));
    const vec merged = is_max ? vec_max_s16(before, bound) : vec_min_s16(before, bound);
    _mm512_mask_storeu_epi16(out, groups, vec_key16(vec_no_minus_zero16(merged)));
}

/* Up to PERMUTED_ROWS rows; false if an element is not finite: then nothing has been merged. twice: every line is
 * prefetched twice, because a Zen 4 drops some prefetches into L2. */
static bool permuted_rows(const struct permuted *p, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                          size_t groups, bool twice, bits16 inf, unsigned char *min, unsigned char *max)
{
    const unsigned char *row[PERMUTED_ROWS];
    vec lo[PERMUTED_ROWS], hi[PERMUTED_ROWS];
    _Pragma("GCC unroll 4") for (size_t i = 0; i < PERMUTED_ROWS; i++)
    {
        row[i] = x + (ptrdiff_t)(i < rows ? i : rows - 1) * row_stride;
        lo[i] = vec_splat16(INT16_MAX);
        hi[i] = vec_splat16(INT16_MIN);
    }
    const uint16_t(*from)[PERMUTED_LANES] = p->from;
    for (size_t l = 0; l < p->lines; l++) {
        const size_t at = p->line[l].column * sizeof(bits16);
        const __mmask32 there = p->line[l].groups;
        vec v[PERMUTED_ROWS];
        _Pragma("GCC unroll 4") for (int i = 0; i < PERMUTED_ROWS; i++)
        {
            v[i] = vec_key16(vec_load(row[i] + at));
            __builtin_prefetch(row[i] + PERMUTED_ROWS * row_stride + at, 0, 2);
            if (twice)
                __builtin_prefetch(row[i] + PERMUTED_ROWS * row_stride + at + VEC_BYTES / 2, 0, 2);
        }
        for (uint32_t n = p->line[l].permutations; n > 0; n--, from++) {
            const vec order = vec_load(from);
            _Pragma("GCC unroll 4") for (int i = 0; i < PERMUTED_ROWS; i++)
            {
                const vec w = _mm512_permutexvar_epi16(order, v[i]);
                lo[i] = _mm512_mask_min_epi16(lo[i], there, lo[i], w);
                hi[i] = _mm512_mask_max_epi16(hi[i], there, hi[i], w);
                vec_in_register(&lo[i]);
                vec_in_register(&hi[i]);
            }
        }
    }
    const vec limit = vec_splat16((int16_t)inf);
    _Pragma("GCC unroll 4") for (int i = 0; i < PERMUTED_ROWS;
                                 i++) if (vec_any_ge16(hi[i], limit) ||
                                          vec_any_ge16(~lo[i], limit)) return false;
    const __mmask32 all = (__mmask32)(UINT32_MAX >> (PERMUTED_LANES - groups));
    _Pragma("GCC unroll 4") for (size_t i = 0; i < PERMUTED_ROWS; i++)
    {
        if (i >= rows)
            break;
        merge_permuted(lo[i], false, min + i * groups * sizeof(bits16), all);
        merge_permuted(hi[i], true, max + i * groups * sizeof(bits16), all);
    }
    return true;
}

/* Returns the number of columns done: all, or those before some that need too many permutations. */
static size_t indexed_permuted(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns,
                               const uint32_t *group, size_t groups, bits16 inf, unsigned char *min, unsigned char *max,
                               struct nonfinite_count *nonfinite)
{
    const size_t row_bytes = groups * sizeof(bits16);
    const bool twice = rows * columns * sizeof(bits16) >= STREAMING_SMALL_L1_BYTES && !qobs_avx512_has_large_l1();
    struct permuted p;
    size_t done = 0;
    for (size_t some; done < columns; done += some) {
        some = columns - done < PERMUTED_LINES * PERMUTED_LANES ? columns - done : PERMUTED_LINES * PERMUTED_LANES;
        if (some < PERMUTED_LANES || !make_permuted(&p, group + done, some))
            break;
        for (size_t r = 0; r < rows; r += PERMUTED_ROWS) {
            const unsigned char *const at = x + (ptrdiff_t)r * row_stride + done * sizeof(bits16);
            const size_t n = rows - r < PERMUTED_ROWS ? rows - r : PERMUTED_ROWS;
            if (!permuted_rows(&p, at, row_stride, n, groups, twice, inf, min + r * row_bytes,
                               max + r * row_bytes))
                indexed_plain16(at, row_stride, n, some, group + done, groups, inf, min + r * row_bytes,
                                max + r * row_bytes, nonfinite);
        }
    }
    return done;
}
