/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Min/max over bands: included by minmax.inl.h, whose limits hold. Memory is walked in the order of its rows; the bounds of as many runs as
 * MOST_RUNS stay in the first-level cache, where a run enters them as a whole. From FAR on, of which the third-level cache usually holds only a
 * part, rows further on are fetched into the second-level one, every line twice; from twice that on it costs. */
#define MOST_RUNS 64
#define ROWS_AHEAD 4
/* Rows that enter bounds at the same time: from the second-level cache, of which AVX-512 takes what AVX2 does not, two are faster. */
#define ABREAST (VEC_BYTES == 64 ? 2 : 1)
/* Runs of fewer vectors are not worth that. */
#define LEAST_VECTORS 4

typedef void K(enter_fn)(struct K(bounds) *, struct K(bounds) *, vec, vec);
typedef void K(join_fn)(struct K(bounds) *, const struct K(bounds) *);

/* Where in memory the runs are that share bounds. */
struct K(band) {
    const unsigned char *x;
    ptrdiff_t row_stride;
    size_t rows, runs, bytes; /* bytes of a run */
};

static inline __attribute__((always_inline)) void K(fetch_two)(const unsigned char *x)
{
    for (int v = 0; v < 2 * VEC_BYTES; v += 32)
        __builtin_prefetch(x + v, 0, 2);
}

/* Some elements, at least two vectors of them, enter two bounds; the last vector may overlap the one before. What lies `ahead` bytes further
 * on is fetched where they are `far`. */
static inline __attribute__((always_inline)) void K(enter_run)(K(enter_fn) *enter, bool far, struct K(bounds) *b, struct K(bounds) *c,
                                                                const unsigned char *x, size_t bytes, ptrdiff_t prefetch)
{
    size_t at = 0;
#pragma GCC unroll 4
    for (; at + 2 * VEC_BYTES <= bytes; at += 2 * VEC_BYTES) {
        const vec v = vec_load_in_turn(x + at);
        enter(b, c, v, vec_load_in_turn(x + at + VEC_BYTES));
        if (far)
            K(fetch_two)(x + at + prefetch);
    }
    if (at < bytes) {
        const vec last = vec_load_in_turn(x + bytes - VEC_BYTES);
        enter(b, c, at + VEC_BYTES < bytes ? vec_load_in_turn(x + at) : last, last);
    }
}

/* Run after run of a row, or of `abreast` rows. */
static inline __attribute__((always_inline)) void K(enter_row)(K(enter_fn) *enter, K(join_fn) *join, bool far, int abreast,
                                                                struct K(bounds) *bounds, const unsigned char *x, ptrdiff_t row_stride,
                                                                size_t runs, size_t bytes)
{
    for (size_t i = 0; i < runs; i++, x += bytes) {
        struct K(bounds) b = K(bounds_of)(vec_load_in_turn(x)), c = K(bounds_of)(vec_load_in_turn(x + VEC_BYTES));
        if (far)
            K(fetch_two)(x + ROWS_AHEAD * row_stride);
        K(enter_run)(enter, far, &b, &c, x + 2 * VEC_BYTES, bytes - 2 * VEC_BYTES, ROWS_AHEAD * row_stride);
        if (abreast == 2)
            K(enter_run)(enter, far, &b, &c, x + row_stride, bytes, ROWS_AHEAD * row_stride);
        join(&b, &c);
        join(&bounds[i], &b);
    }
}

static inline __attribute__((always_inline)) void K(enter_runs_of)(K(enter_fn) *enter, K(join_fn) *join, bool far,
                                                                    struct K(bounds) *bounds, const struct K(band) *band, size_t bytes)
{
    const struct K(band) b = *band; /* bounds may alias it */
    const unsigned char *x = b.x;
    size_t left = b.rows;
    for (; ABREAST == 2 && left >= 2; left -= 2, x += 2 * b.row_stride)
        K(enter_row)(enter, join, far, 2, bounds, x, b.row_stride, b.runs, bytes);
    for (; left > 0; left--, x += b.row_stride)
        K(enter_row)(enter, join, far, 1, bounds, x, b.row_stride, b.runs, bytes);
}

/* Runs of usual lengths have no loop. */
static inline __attribute__((always_inline)) void K(enter_runs)(K(enter_fn) *enter, K(join_fn) *join, bool far, struct K(bounds) *bounds,
                                                                 const struct K(band) *band)
{
    if (band->bytes == 256)
        K(enter_runs_of)(enter, join, far, bounds, band, 256);
    else if (band->bytes == 512)
        K(enter_runs_of)(enter, join, far, bounds, band, 512);
    else
        K(enter_runs_of)(enter, join, far, bounds, band, band->bytes);
}

static inline __attribute__((always_inline)) void K(enter_band)(K(enter_fn) *enter, K(join_fn) *join, bool far, struct K(bounds) *bounds,
                                                                 const struct K(band) *band)
{
    if (far)
        K(enter_runs)(enter, join, true, bounds, band);
    else
        K(enter_runs)(enter, join, false, bounds, band);
}

/* Fills in the bounds. Where all runs begin with both signs two of them are enough. */
static void K(band_bounds)(bool far, const struct K(band) *band, struct K(bounds) *bounds)
{
    for (size_t i = 0; i < band->runs; i++)
        bounds[i] = K(bounds_of)(vec_load(band->x + i * band->bytes));
#if HAS_RAW
    size_t both = 0;
    while (both < band->runs && K(begins_with_both)(band->x + both * band->bytes))
        both++;
    if (both == band->runs) {
        K(enter_band)(K(enter_two_signed), K(join_signed), far, bounds, band);
        return;
    }
#endif
    K(enter_band)(K(enter_two), K(join), far, bounds, band);
}

/* A band of at most MOST_RUNS runs a row. A run in which something is not finite is gone through again, row by row. */
static void K(one_band)(bool far, const struct K(band) *band, BITS inf, unsigned char *min, unsigned char *max,
                        struct qobs_nonfinite *nonfinite)
{
    struct K(bounds) bounds[MOST_RUNS];
    K(band_bounds)(far, band, bounds);
    for (size_t i = 0; i < band->runs; i++, min += sizeof(BITS), max += sizeof(BITS)) {
        KEY lo, hi;
        K(ends_of_bounds)(&bounds[i], &lo, &hi);
        if (!K(special)(lo, hi, inf)) {
            K(merge_keys)(lo, hi, min, max);
            continue;
        }
        for (size_t r = 0; r < band->rows; r++)
            K(one_run)(false, band->x + i * band->bytes + (ptrdiff_t)r * band->row_stride, band->bytes / sizeof(BITS), inf, min, max, nonfinite);
    }
}

static void K(row_panels)(const unsigned char *x, ptrdiff_t row_stride, size_t bands, size_t rows, size_t runs, size_t length, BITS inf,
                     unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    const size_t bytes = length * sizeof(BITS), all = bands * rows * runs * bytes;
    const bool far = VEC_BYTES >= 32 && all >= FAR && all < 2 * FAR;
    for (size_t b = 0; b < bands && rows > 0; b++, x += (ptrdiff_t)rows * row_stride) {
        for (size_t r = 0; bytes < LEAST_VECTORS * VEC_BYTES && r < rows; r++)
            K(rows)(x + (ptrdiff_t)r * row_stride, (ptrdiff_t)bytes, runs, length, inf, min, max, sizeof(BITS), nonfinite);
        for (size_t done = 0, n; bytes >= LEAST_VECTORS * VEC_BYTES && done < runs; done += n) {
            n = runs - done < MOST_RUNS ? runs - done : MOST_RUNS;
            const struct K(band) band = {x + done * bytes, row_stride, rows, n, bytes};
            K(one_band)(far, &band, inf, min + done * sizeof(BITS), max + done * sizeof(BITS), nonfinite);
        }
        min += runs * sizeof(BITS);
        max += runs * sizeof(BITS);
    }
}

#undef MOST_RUNS
#undef ROWS_AHEAD
#undef ABREAST
#undef LEAST_VECTORS
