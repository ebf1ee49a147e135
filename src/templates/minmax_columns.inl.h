/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum over columns. Included by minmax.inl.h, whose limits hold.
 *
 * Few columns, and columns from L1 or L2, go in tiles of vectors whose bounds stay in registers for TILE_ROWS rows.
 * Larger ones go in panels of columns: memory is read in the order of rows, a cache line of some rows at a time, and
 * the panel's keys stay in L1. */

/* The width of a tile in vectors: three bounds each, and two registers for the work. */
#define TILE_VECTORS ((VEC_REGISTERS - 2) / 3)
#define FEW_COLUMNS_BYTES (4 * TILE_VECTORS * VEC_BYTES)
#define UNROLLED_ROWS(streaming) ((streaming) ? STREAMING_UNROLLED_ROWS : PANEL_UNROLLED_ROWS)
#define PANEL(streaming) ((streaming) ? STREAMING_PANEL_BYTES : PANEL_BYTES)
#define LINE_VECTORS (64 / VEC_BYTES)

/* Merges the bounds of one vector of columns, as keys, into the outputs. If an element is not finite, the columns go
 * element by element, except the first `counted` ones, which another vector has counted. */
static inline void K(merge_columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t counted, vec lo,
                                    vec hi, BITS inf, unsigned char *min, unsigned char *max,
                                    struct nonfinite_count *nonfinite)
{
    const vec limit = K(vec_splat)((KEY)inf);
    if (!K(vec_any_ge)(hi, limit) && !K(vec_any_ge)(~lo, limit)) {
        vec_store(min, K(vec_key)(K(vec_no_minus_zero)(K(vec_min_s)(lo, K(vec_key)(vec_load(min))))));
        vec_store(max, K(vec_key)(K(vec_no_minus_zero)(K(vec_max_s)(hi, K(vec_key)(vec_load(max))))));
        return;
    }
    for (size_t j = counted * sizeof(BITS); j < VEC_BYTES; j += sizeof(BITS)) {
        KEY l = MOST_POSITIVE, h = MOST_NEGATIVE;
        for (size_t r = 0; r < rows; r++)
            K(scan_elements)(x + (ptrdiff_t)r * row_stride + j, 1, inf, &l, &h, nonfinite);
        K(merge_keys)(l, h, min + j, max + j);
    }
}

/* In registers only: otherwise gcc also updates copies in memory. */
static inline void K(in_registers)(struct K(bounds) * b)
{
    vec_in_register(&b->high);
    vec_in_register(&b->low);
    vec_in_register(&b->high_signed);
}

/* `vectors` adjacent vectors of columns, down some rows, with bounds in registers; `counted` as above. */
ALWAYS_INLINE void K(column_tile)(int vectors, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                                  size_t counted, BITS inf, unsigned char *min, unsigned char *max,
                                  struct nonfinite_count *nonfinite)
{
    struct K(bounds) b[TILE_VECTORS];
    const unsigned char *row = x;
    for (int i = 0; i < vectors; i++)
        b[i] = K(bounds_of)(vec_load(x + i * VEC_BYTES));
    size_t r = 1;
#pragma GCC unroll 1
    for (; r < rows; r++) {
        row += row_stride;
#pragma GCC unroll 16
        for (int i = 0; i < vectors; i++) {
            K(add_vector)(false, &b[i], vec_load(row + i * VEC_BYTES));
            K(in_registers)(&b[i]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < vectors; i++) {
        vec lo, hi;
        K(keys_of_bounds)(&b[i], &lo, &hi);
        K(merge_columns)(x, row_stride, rows, counted < LANES ? counted : LANES, lo, hi, inf, min, max, nonfinite);
        x += VEC_BYTES, min += VEC_BYTES, max += VEC_BYTES;
        counted -= counted < LANES ? counted : LANES;
    }
}

/* Some rows over all columns, tile by tile. The last tile may overlap the one before. */
static void K(column_tiles)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                            unsigned char *min, unsigned char *max, struct nonfinite_count *nonfinite)
{
    const size_t end = columns * sizeof(BITS);
    const size_t tile = end >= FEW_COLUMNS_BYTES                 ? TILE_VECTORS * VEC_BYTES
                        : end >= NARROW_TILE_VECTORS * VEC_BYTES ? NARROW_TILE_VECTORS * VEC_BYTES
                                                                 : VEC_BYTES;
    for (size_t done = 0; done < end; done += tile) {
        const size_t j = done + tile <= end ? done : end - tile, counted = (done - j) / sizeof(BITS);
        if (tile == TILE_VECTORS * VEC_BYTES)
            K(column_tile)(TILE_VECTORS, x + j, row_stride, rows, counted, inf, min + j, max + j, nonfinite);
        else if (tile == NARROW_TILE_VECTORS * VEC_BYTES)
            K(column_tile)(NARROW_TILE_VECTORS, x + j, row_stride, rows, counted, inf, min + j, max + j, nonfinite);
        else
            K(column_tile)(1, x + j, row_stride, rows, counted, inf, min + j, max + j, nonfinite);
    }
}

/* Adds some rows of some vectors to their keys, pairs of minimum and maximum. Streaming: rows further down are
 * prefetched into L2, because the hardware does not foresee that the streams continue there, and each line twice,
 * because some prefetches are dropped. Loads keep their order: gcc would put all prefetches of a line together. */
ALWAYS_INLINE void K(panel_rows)(bool streaming, int vectors, const unsigned char *x, ptrdiff_t row_stride, vec *keys)
{
    const int unrolled = UNROLLED_ROWS(streaming);
    for (int i = 0; i < vectors; i++, x += VEC_BYTES, keys += 2) {
        struct K(bounds) b = K(bounds_of)(vec_load_ordered(x));
#pragma GCC unroll 16
        for (int r = 0; r < unrolled; r++) {
            const unsigned char *at = x + r * row_stride;
            if (r > 0)
                K(add_vector)(false, &b, vec_load_ordered(at));
            if (streaming)
                __builtin_prefetch(at + STREAMING_ROWS_AHEAD * row_stride, 0, 2);
            if (streaming && VEC_BYTES == 64)
                __builtin_prefetch(at + STREAMING_ROWS_AHEAD * row_stride + VEC_BYTES / 2, 0, 2);
        }
        vec lo, hi;
        K(keys_of_bounds)(&b, &lo, &hi);
        keys[0] = K(vec_min_s)(keys[0], lo);
        keys[1] = K(vec_max_s)(keys[1], hi);
    }
}

/* Adds all rows of a panel to the keys. The last rows, and the last vector, may overlap those before. */
ALWAYS_INLINE void K(panel_keys)(bool streaming, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                                 size_t bytes, vec *keys)
{
    const size_t vectors = (bytes + VEC_BYTES - 1) / VEC_BYTES, full = bytes / VEC_BYTES, last = bytes - VEC_BYTES;
    for (size_t r = 0; r < rows; r += UNROLLED_ROWS(streaming)) {
        const unsigned char *row =
            x + (ptrdiff_t)(r + UNROLLED_ROWS(streaming) <= rows ? r : rows - UNROLLED_ROWS(streaming)) * row_stride;
        size_t j = 0;
        for (; j + LINE_VECTORS <= full; j += LINE_VECTORS)
            K(panel_rows)(streaming, LINE_VECTORS, row + j * VEC_BYTES, row_stride, &keys[2 * j]);
        for (; j < vectors; j++)
            K(panel_rows)(streaming, 1, row + (j < full ? j * VEC_BYTES : last), row_stride, &keys[2 * j]);
    }
}

/* A panel at least a vector wide and PANEL_UNROLLED_ROWS deep, from byte `from` of its rows. Elements a `period`
 * apart in a row belong to one column. */
static void K(column_panel)(bool streaming, const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t from,
                            size_t bytes, size_t period, size_t counted, BITS inf, unsigned char *min,
                            unsigned char *max, struct nonfinite_count *nonfinite)
{
    vec keys[2 * PANEL_BYTES / VEC_BYTES];
    x += from;
    const size_t vectors = (bytes + VEC_BYTES - 1) / VEC_BYTES, full = bytes / VEC_BYTES, last = bytes - VEC_BYTES;
    for (size_t j = 0; j < vectors; j++) {
        keys[2 * j] = K(vec_splat)(MOST_POSITIVE);
        keys[2 * j + 1] = K(vec_splat)(MOST_NEGATIVE);
    }
    if (streaming)
        K(panel_keys)(true, x, row_stride, rows, bytes, keys);
    else
        K(panel_keys)(false, x, row_stride, rows, bytes, keys);
    for (size_t j = 0; j < vectors; j++) {
        const size_t at = j < full ? j * VEC_BYTES : last, column = (from + at) % period;
        K(merge_columns)
        (x + at, row_stride, rows, (j * VEC_BYTES - at) / sizeof(BITS) + counted, keys[2 * j], keys[2 * j + 1], inf,
         min + column, max + column, nonfinite);
        counted = 0;
    }
}

/* Fewer columns than a vector has lanes. */
static void K(few_columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                           unsigned char *min, unsigned char *max, struct nonfinite_count *nonfinite)
{
    for (size_t j = 0; j < columns * sizeof(BITS); j += sizeof(BITS)) {
        KEY lo = MOST_POSITIVE, hi = MOST_NEGATIVE;
        for (size_t r = 0; r < rows; r++)
            K(scan_elements)(x + (ptrdiff_t)r * row_stride + j, 1, inf, &lo, &hi, nonfinite);
        K(merge_keys)(lo, hi, min + j, max + j);
    }
}

/* At least PANEL_UNROLLED_ROWS rows, panel by panel. */
static void K(column_panels)(bool streaming, const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t width,
                             size_t period, BITS inf, unsigned char *min, unsigned char *max,
                             struct nonfinite_count *nonfinite)
{
    for (size_t some; rows > 0; rows -= some, x += (ptrdiff_t)some * row_stride) {
        some = rows < PANEL_ROWS + PANEL_UNROLLED_ROWS ? rows : PANEL_ROWS;
        for (size_t j = 0; j < width; j += PANEL(streaming)) {
            const size_t from = j + VEC_BYTES <= width ? j : width - VEC_BYTES;
            const size_t bytes = width - from < PANEL(streaming) ? width - from : PANEL(streaming);
            K(column_panel)
            (streaming, x, row_stride, some, from, bytes, period, (j - from) / sizeof(BITS), inf, min, max, nonfinite);
        }
    }
}

static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf,
                       unsigned char *min, unsigned char *max, struct nonfinite_count *nonfinite)
{
    const size_t end = columns * sizeof(BITS), size = rows * end;
    if (columns < LANES) {
        K(few_columns)(x, row_stride, rows, columns, inf, min, max, nonfinite);
        return;
    }
    if (size > TILED_COLUMN_BYTES && rows >= PANEL_UNROLLED_ROWS) {
        const bool streaming = STREAMS_COLUMNS(size);
        /* Short rows without gaps are joined, because prefetchers want long ones. */
        const bool joined = row_stride == (ptrdiff_t)end && end % VEC_BYTES == 0 && end < STREAMING_PANEL_BYTES &&
                            size >= PANEL_UNROLLED_ROWS * PANEL_BYTES;
        const size_t some = joined ? PANEL_BYTES / end : 1, full = rows / some * some;
        K(column_panels)
        (streaming, x, row_stride * (ptrdiff_t)some, rows / some, end * some, end, inf, min, max, nonfinite);
        rows -= full, x += (ptrdiff_t)full * row_stride;
    }
    for (; rows > 0; rows -= rows < TILE_ROWS ? rows : TILE_ROWS, x += TILE_ROWS * row_stride)
        K(column_tiles)(x, row_stride, rows < TILE_ROWS ? rows : TILE_ROWS, columns, inf, min, max, nonfinite);
}

#undef TILE_VECTORS
#undef FEW_COLUMNS_BYTES
#undef UNROLLED_ROWS
#undef PANEL
#undef LINE_VECTORS
