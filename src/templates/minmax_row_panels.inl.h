/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum over row panels. Included by minmax.inl.h, whose limits hold.
 *
 * Memory is read in the order of rows. The bounds of ROW_PANEL_RUNS runs stay in L1; a run is added to them as a
 * whole. While L3 holds a part of the data (ROW_PANEL_PREFETCH_BYTES), rows further down are prefetched into L2,
 * each line twice. From L2 adding ROW_PANEL_ROWS rows together is faster. */

typedef void K(add_fn)(struct K(bounds) *, struct K(bounds) *, vec, vec);
typedef void K(merge_fn)(struct K(bounds) *, const struct K(bounds) *);

/* A panel: rows of runs that share bounds. */
struct K(row_panel) {
    const unsigned char *x;
    ptrdiff_t row_stride;
    size_t rows, runs, bytes; /* bytes of a run */
};

ALWAYS_INLINE void K(prefetch_two)(const unsigned char *x)
{
    for (int v = 0; v < 2 * VEC_BYTES; v += 32)
        __builtin_prefetch(x + v, 0, 2);
}

/* Adds the elements of a run, at least two vectors, to two bounds. The last vector may overlap the one before. */
ALWAYS_INLINE void K(add_run)(K(add_fn) * add, bool prefetch, struct K(bounds) * b, struct K(bounds) * c,
                              const unsigned char *x, size_t bytes, ptrdiff_t ahead)
{
    size_t at = 0;
#pragma GCC unroll 4
    for (; at + 2 * VEC_BYTES <= bytes; at += 2 * VEC_BYTES) {
        const vec v = vec_load_ordered(x + at);
        add(b, c, v, vec_load_ordered(x + at + VEC_BYTES));
        if (prefetch)
            K(prefetch_two)(x + at + ahead);
    }
    if (at < bytes) {
        const vec last = vec_load_ordered(x + bytes - VEC_BYTES);
        add(b, c, at + VEC_BYTES < bytes ? vec_load_ordered(x + at) : last, last);
    }
}

/* Run after run of one row or of `unrolled` rows. */
ALWAYS_INLINE void K(add_row)(K(add_fn) * add, K(merge_fn) * merge, bool prefetch, int unrolled,
                              struct K(bounds) * bounds, const unsigned char *x, ptrdiff_t row_stride, size_t runs,
                              size_t bytes)
{
    for (size_t i = 0; i < runs; i++, x += bytes) {
        struct K(bounds) b = K(bounds_of)(vec_load_ordered(x)), c = K(bounds_of)(vec_load_ordered(x + VEC_BYTES));
        if (prefetch)
            K(prefetch_two)(x + ROW_PANEL_ROWS_AHEAD * row_stride);
        K(add_run)(add, prefetch, &b, &c, x + 2 * VEC_BYTES, bytes - 2 * VEC_BYTES, ROW_PANEL_ROWS_AHEAD * row_stride);
        if (unrolled == 2)
            K(add_run)(add, prefetch, &b, &c, x + row_stride, bytes, ROW_PANEL_ROWS_AHEAD * row_stride);
        merge(&b, &c);
        merge(&bounds[i], &b);
    }
}

ALWAYS_INLINE void K(add_runs_of)(K(add_fn) * add, K(merge_fn) * merge, bool prefetch, struct K(bounds) * bounds,
                                  const struct K(row_panel) * panel, size_t bytes)
{
    const struct K(row_panel) b = *panel; /* bounds may alias it */
    const unsigned char *x = b.x;
    size_t left = b.rows;
    for (; ROW_PANEL_ROWS == 2 && left >= 2; left -= 2, x += 2 * b.row_stride)
        K(add_row)(add, merge, prefetch, 2, bounds, x, b.row_stride, b.runs, bytes);
    for (; left > 0; left--, x += b.row_stride)
        K(add_row)(add, merge, prefetch, 1, bounds, x, b.row_stride, b.runs, bytes);
}

/* Runs of usual lengths need no loop. */
ALWAYS_INLINE void K(add_runs)(K(add_fn) * add, K(merge_fn) * merge, bool prefetch, struct K(bounds) * bounds,
                               const struct K(row_panel) * panel)
{
    if (panel->bytes == 256)
        K(add_runs_of)(add, merge, prefetch, bounds, panel, 256);
    else if (panel->bytes == 512)
        K(add_runs_of)(add, merge, prefetch, bounds, panel, 512);
    else
        K(add_runs_of)(add, merge, prefetch, bounds, panel, panel->bytes);
}

ALWAYS_INLINE void K(add_panel)(K(add_fn) * add, K(merge_fn) * merge, bool prefetch, struct K(bounds) * bounds,
                                const struct K(row_panel) * panel)
{
    if (prefetch)
        K(add_runs)(add, merge, true, bounds, panel);
    else
        K(add_runs)(add, merge, false, bounds, panel);
}

/* Two bounds are enough if all runs begin with both signs. */
static void K(panel_bounds)(bool prefetch, const struct K(row_panel) * panel, struct K(bounds) * bounds)
{
    for (size_t i = 0; i < panel->runs; i++)
        bounds[i] = K(bounds_of)(vec_load(panel->x + i * panel->bytes));
    size_t both = 0;
    while (both < panel->runs && K(begins_with_both_signs)(panel->x + both * panel->bytes))
        both++;
    if (both == panel->runs) {
        K(add_panel)(K(add_two_signed), K(merge_signed), prefetch, bounds, panel);
        return;
    }
    K(add_panel)(K(add_two), K(merge), prefetch, bounds, panel);
}

/* A panel of at most ROW_PANEL_RUNS runs a row. A run with an element that is not finite is read again, row by row. */
static void K(one_panel)(bool prefetch, const struct K(row_panel) * panel, BITS inf, unsigned char *min,
                         unsigned char *max, struct nonfinite_count *nonfinite)
{
    struct K(bounds) bounds[ROW_PANEL_RUNS];
    K(panel_bounds)(prefetch, panel, bounds);
    for (size_t i = 0; i < panel->runs; i++, min += sizeof(BITS), max += sizeof(BITS)) {
        KEY lo, hi;
        K(range_of_bounds)(&bounds[i], &lo, &hi);
        if (!K(has_nonfinite)(lo, hi, inf)) {
            K(merge_keys)(lo, hi, min, max);
            continue;
        }
        for (size_t r = 0; r < panel->rows; r++)
            K(one_run)
        (false, panel->x + i * panel->bytes + (ptrdiff_t)r * panel->row_stride, panel->bytes / sizeof(BITS), inf, min,
         max, nonfinite);
    }
}

static void K(row_panels)(const unsigned char *x, ptrdiff_t row_stride, size_t panels, size_t rows, size_t runs,
                          size_t length, BITS inf, unsigned char *min, unsigned char *max,
                          struct nonfinite_count *nonfinite)
{
    const size_t bytes = length * sizeof(BITS), all = panels * rows * runs * bytes;
    const bool prefetch = all >= ROW_PANEL_PREFETCH_BYTES && all < ROW_PANEL_PREFETCH_END_BYTES;
    for (size_t b = 0; b < panels && rows > 0; b++, x += (ptrdiff_t)rows * row_stride) {
        for (size_t r = 0; bytes < ROW_PANEL_MIN_VECTORS * VEC_BYTES && r < rows; r++)
            K(rows)
        (x + (ptrdiff_t)r * row_stride, (ptrdiff_t)bytes, runs, length, inf, min, max, sizeof(BITS), nonfinite);
        for (size_t done = 0, n; bytes >= ROW_PANEL_MIN_VECTORS * VEC_BYTES && done < runs; done += n) {
            n = runs - done < ROW_PANEL_RUNS ? runs - done : ROW_PANEL_RUNS;
            const struct K(row_panel) panel = {x + done * bytes, row_stride, rows, n, bytes};
            K(one_panel)(prefetch, &panel, inf, min + done * sizeof(BITS), max + done * sizeof(BITS), nonfinite);
        }
        min += runs * sizeof(BITS);
        max += runs * sizeof(BITS);
    }
}
