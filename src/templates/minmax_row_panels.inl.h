/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum over row panels. Included by minmax.inl.h, whose limits hold.
 *
 * Memory is read in the order of rows. The bounds of ROW_PANEL_RUNS runs stay in L1; a run is added to them as a
 * whole. */

/* A panel: rows of runs that share bounds. */
struct K(row_panel) {
    const unsigned char *x;
    ptrdiff_t row_stride;
    size_t rows, runs, bytes; /* bytes of a run */
};

/* Adds the elements of a run, at least a vector, to bounds. The last vector may overlap the one before. */
ALWAYS_INLINE void K(add_run)(bool both_signs, struct K(bounds) * b, const unsigned char *x, size_t bytes)
{
    const unsigned char *const last = x + bytes - VEC_BYTES;
#pragma GCC unroll 4
    for (; x + 3 * VEC_BYTES <= last; x += 4 * VEC_BYTES) {
        const vec p = vec_load_ordered(x), q = vec_load_ordered(x + VEC_BYTES);
        const vec r = vec_load_ordered(x + 2 * VEC_BYTES);
        K(add_quad)(both_signs, b, p, q, r, vec_load_ordered(x + 3 * VEC_BYTES));
    }
    for (; x <= last; x += VEC_BYTES)
        K(add_vector)(both_signs, b, vec_load_ordered(x));
    if (x < last + VEC_BYTES)
        K(add_vector)(both_signs, b, vec_load_ordered(last));
}

/* Run after run, row after row. */
ALWAYS_INLINE void K(add_rows)(bool both_signs, const struct K(row_panel) * panel, struct K(bounds) * bounds,
                               size_t bytes)
{
    const struct K(row_panel) p = *panel; /* bounds may alias it */
    for (size_t r = 0; r < p.rows; r++)
        for (size_t i = 0; i < p.runs; i++) {
            struct K(bounds) b = bounds[i];
            K(add_run)(both_signs, &b, p.x + (ptrdiff_t)r * p.row_stride + i * bytes, bytes);
            bounds[i] = b;
        }
}

/* Runs of usual lengths need no loop. */
ALWAYS_INLINE void K(add_runs)(bool both_signs, const struct K(row_panel) * panel, struct K(bounds) * bounds)
{
    if (panel->bytes == 256)
        K(add_rows)(both_signs, panel, bounds, 256);
    else if (panel->bytes == 512)
        K(add_rows)(both_signs, panel, bounds, 512);
    else
        K(add_rows)(both_signs, panel, bounds, panel->bytes);
}

/* Two bounds are enough if all runs begin with both signs. */
static void K(panel_bounds)(const struct K(row_panel) * panel, struct K(bounds) * bounds)
{
    for (size_t i = 0; i < panel->runs; i++)
        bounds[i] = K(bounds_of)(vec_load(panel->x + i * panel->bytes));
    size_t both = 0;
    while (both < panel->runs && K(begins_with_both_signs)(panel->x + both * panel->bytes))
        both++;
    if (both == panel->runs)
        K(add_runs)(true, panel, bounds);
    else
        K(add_runs)(false, panel, bounds);
}

/* A panel of at most ROW_PANEL_RUNS runs a row. A run with an element that is not finite is read again, row by row. */
static void K(one_panel)(const struct K(row_panel) * panel, BITS inf, unsigned char *min, unsigned char *max,
                         struct nonfinite_count *nonfinite)
{
    struct K(bounds) bounds[ROW_PANEL_RUNS];
    K(panel_bounds)(panel, bounds);
    for (size_t i = 0; i < panel->runs; i++, min += sizeof(BITS), max += sizeof(BITS)) {
        KEY lo, hi;
        K(range_of_bounds)(&bounds[i], &lo, &hi);
        if (!K(has_nonfinite)(lo, hi, inf)) {
            K(merge_keys)(lo, hi, min, max);
            continue;
        }
        for (size_t r = 0; r < panel->rows; r++)
            K(one_run)
        (panel->x + i * panel->bytes + (ptrdiff_t)r * panel->row_stride, panel->bytes / sizeof(BITS), inf, min, max,
         nonfinite);
    }
}

static void K(row_panels)(const unsigned char *x, ptrdiff_t row_stride, size_t panels, size_t rows, size_t runs,
                          size_t length, BITS inf, unsigned char *min, unsigned char *max,
                          struct nonfinite_count *nonfinite)
{
    const size_t bytes = length * sizeof(BITS);
    for (size_t b = 0; b < panels && rows > 0; b++, x += (ptrdiff_t)rows * row_stride) {
        for (size_t r = 0; bytes < ROW_PANEL_MIN_VECTORS * VEC_BYTES && r < rows; r++)
            K(rows)
        (x + (ptrdiff_t)r * row_stride, (ptrdiff_t)bytes, runs, length, inf, min, max, sizeof(BITS), nonfinite);
        for (size_t done = 0, n; bytes >= ROW_PANEL_MIN_VECTORS * VEC_BYTES && done < runs; done += n) {
            n = runs - done < ROW_PANEL_RUNS ? runs - done : ROW_PANEL_RUNS;
            const struct K(row_panel) panel = {x + done * bytes, row_stride, rows, n, bytes};
            K(one_panel)(&panel, inf, min + done * sizeof(BITS), max + done * sizeof(BITS), nonfinite);
        }
        min += runs * sizeof(BITS);
        max += runs * sizeof(BITS);
    }
}
