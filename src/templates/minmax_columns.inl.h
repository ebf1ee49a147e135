/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Min/max over columns: included by minmax.inl.h, whose limits hold. */

/* From the second-level cache they go in tiles of WIDE vectors down CHUNK rows, whose bounds stay in registers; few columns in NARROW tiles. */
#define NARROW 4
#define WIDE (HAS_RAW ? (VEC_REGISTERS - 2) / 3 : NARROW)
#define FEW_COLUMNS (4 * WIDE * VEC_BYTES)
/* Up to this size columns are taken to come from there; where a tile has only a few lines of the cache, strips are faster, but from the first-level
 * cache. */
#define NEAR ((size_t)(!HAS_RAW || WIDE * VEC_BYTES >= 512 ? 1024 : 32) << 10)
#define CHUNK 64
/* From further away memory is walked in the order of its rows, some rows abreast, a line of the cache at a time, in strips of some bytes down DEEP
 * rows, whose bounds stay in the first-level cache. From memory a strip is a page wide, so that few pages are read at a time. */
#define ABREAST(far) ((far) ? 4 : 8)
#define STRIP(far) ((far) ? 4096 : 8192)
#define LINE (64 / VEC_BYTES)
#define AHEAD 8
#define DEEP 256

/* Merges the bounds of one vector of columns, as keys, into the caller's. Where something is not finite the elements are gone through one
 * by one, but for the first `seen` columns, which another vector has counted. */
static inline void K(merge_columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t seen, vec lo, vec hi, BITS inf,
                                    unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    const vec limit = K(vec_splat)((KEY)inf);
    if (!K(vec_any_ge)(hi, limit) && !K(vec_any_ge)(vec_not(lo), limit)) {
        vec_store(min, K(vec_key)(K(vec_no_minus_zero)(K(vec_min_s)(lo, K(vec_key)(vec_load(min))))));
        vec_store(max, K(vec_key)(K(vec_no_minus_zero)(K(vec_max_s)(hi, K(vec_key)(vec_load(max))))));
        return;
    }
    for (size_t j = seen * sizeof(BITS); j < VEC_BYTES; j += sizeof(BITS)) {
        KEY l = MOST_POSITIVE, h = MOST_NEGATIVE;
        for (size_t r = 0; r < rows; r++)
            K(scan_elements)(x + (ptrdiff_t)r * row_stride + j, 1, inf, &l, &h, nonfinite);
        K(merge_keys)(l, h, min + j, max + j);
    }
}

/* `vectors` vectors of columns, side by side, down some rows, their bounds in registers; `seen` as above. */
static inline __attribute__((always_inline)) void K(column_tile)(int vectors, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                                                                  size_t seen, BITS inf, unsigned char *min, unsigned char *max,
                                                                  struct qobs_nonfinite *nonfinite)
{
    struct K(bounds) b[WIDE];
    const unsigned char *row = x;
    for (int i = 0; i < vectors; i++)
        b[i] = K(bounds_of)(vec_load(x + i * VEC_BYTES));
    size_t r = 1;
#pragma GCC unroll 1
    for (; !HAS_RAW && r + 1 < rows; r += 2, row += 2 * row_stride) /* one comparison for two */
        for (int i = 0; i < vectors; i++)
            K(enter_two)(&b[i], &b[i], vec_load(row + row_stride + i * VEC_BYTES), vec_load(row + 2 * row_stride + i * VEC_BYTES));
#pragma GCC unroll 1
    for (; r < rows; r++) {
        row += row_stride;
#pragma GCC unroll 16
        for (int i = 0; i < vectors; i++) {
            K(enter)(&b[i], vec_load(row + i * VEC_BYTES));
            K(keep)(&b[i]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < vectors; i++) {
        vec lo, hi;
        K(keys_of_bounds)(&b[i], &lo, &hi);
        K(merge_columns)(x, row_stride, rows, seen < LANES ? seen : LANES, lo, hi, inf, min, max, nonfinite);
        x += VEC_BYTES, min += VEC_BYTES, max += VEC_BYTES;
        seen -= seen < LANES ? seen : LANES;
    }
}

/* Some rows over all columns, tile by tile; the last columns are read again where their number is no multiple of a tile's. */
static void K(column_tiles)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf, unsigned char *min,
                            unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    const size_t end = columns * sizeof(BITS);
    const size_t tile = end >= FEW_COLUMNS ? WIDE * VEC_BYTES : end >= NARROW * VEC_BYTES ? NARROW * VEC_BYTES : VEC_BYTES;
    for (size_t done = 0; done < end; done += tile) {
        const size_t j = done + tile <= end ? done : end - tile, seen = (done - j) / sizeof(BITS);
        if (tile == WIDE * VEC_BYTES)
            K(column_tile)(WIDE, x + j, row_stride, rows, seen, inf, min + j, max + j, nonfinite);
        else if (tile == NARROW * VEC_BYTES)
            K(column_tile)(NARROW, x + j, row_stride, rows, seen, inf, min + j, max + j, nonfinite);
        else
            K(column_tile)(1, x + j, row_stride, rows, seen, inf, min + j, max + j, nonfinite);
    }
}

/* Some rows of some vectors enter their bounds, pairs of keys. From far away the rows AHEAD are fetched into the second-level cache, as the
 * hardware does not foresee that the streams go on there, and every line twice, as some first tries come to nothing. Loads keep their order:
 * gcc would put all prefetches of a line together. */
static inline __attribute__((always_inline)) void K(strip_rows)(bool far, int vectors, const unsigned char *x, ptrdiff_t row_stride,
                                                                 vec *keys)
{
    const int abreast = ABREAST(far);
    for (int i = 0; i < vectors; i++, x += VEC_BYTES, keys += 2) {
        struct K(bounds) b = K(bounds_of)(vec_load_in_turn(x));
#pragma GCC unroll 16
        for (int r = 0; r < abreast; r++) {
            const unsigned char *at = x + r * row_stride;
            if (r > 0)
                K(enter)(&b, vec_load_in_turn(at));
            if (far)
                __builtin_prefetch(at + AHEAD * row_stride, 0, 2);
            if (far && VEC_BYTES == 64)
                __builtin_prefetch(at + AHEAD * row_stride + VEC_BYTES / 2, 0, 2);
        }
        vec lo, hi;
        K(keys_of_bounds)(&b, &lo, &hi);
        keys[0] = K(vec_min_s)(keys[0], lo);
        keys[1] = K(vec_max_s)(keys[1], hi);
    }
}

/* A strip's rows, from the first to the last, enter the keys; the last rows, and the last vector, are read again where their number is no
 * multiple. */
static inline __attribute__((always_inline)) void K(strip_keys)(bool far, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                                                                 size_t bytes, vec *keys)
{
    const size_t vectors = (bytes + VEC_BYTES - 1) / VEC_BYTES, whole = bytes / VEC_BYTES, last = bytes - VEC_BYTES;
    for (size_t r = 0; r < rows; r += ABREAST(far)) {
        const unsigned char *row = x + (ptrdiff_t)(r + ABREAST(far) <= rows ? r : rows - ABREAST(far)) * row_stride;
        size_t j = 0;
        for (; j + LINE <= whole; j += LINE)
            K(strip_rows)(far, LINE, row + j * VEC_BYTES, row_stride, &keys[2 * j]);
        for (; j < vectors; j++)
            K(strip_rows)(far, 1, row + (j < whole ? j * VEC_BYTES : last), row_stride, &keys[2 * j]);
    }
}

/* A strip at least a vector wide and 8 rows deep, from byte `from` of its rows; what lies a `period` apart in a row is of one column. */
static void K(column_strip)(bool far, const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t from, size_t bytes, size_t period,
                            size_t seen, BITS inf, unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    vec keys[2 * STRIP(false) / VEC_BYTES];
    x += from;
    const size_t vectors = (bytes + VEC_BYTES - 1) / VEC_BYTES, whole = bytes / VEC_BYTES, last = bytes - VEC_BYTES;
    for (size_t j = 0; j < vectors; j++) {
        keys[2 * j] = K(vec_splat)(MOST_POSITIVE);
        keys[2 * j + 1] = K(vec_splat)(MOST_NEGATIVE);
    }
    if (far)
        K(strip_keys)(true, x, row_stride, rows, bytes, keys);
    else
        K(strip_keys)(false, x, row_stride, rows, bytes, keys);
    for (size_t j = 0; j < vectors; j++) {
        const size_t at = j < whole ? j * VEC_BYTES : last, column = (from + at) % period;
        K(merge_columns)(x + at, row_stride, rows, (j * VEC_BYTES - at) / sizeof(BITS) + seen, keys[2 * j], keys[2 * j + 1], inf,
                         min + column, max + column, nonfinite);
        seen = 0;
    }
}

/* Columns of less than a vector. */
static void K(few_columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf, unsigned char *min,
                           unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    for (size_t j = 0; j < columns * sizeof(BITS); j += sizeof(BITS)) {
        KEY lo = MOST_POSITIVE, hi = MOST_NEGATIVE;
        for (size_t r = 0; r < rows; r++)
            K(scan_elements)(x + (ptrdiff_t)r * row_stride + j, 1, inf, &lo, &hi, nonfinite);
        K(merge_keys)(lo, hi, min + j, max + j);
    }
}

/* Rows one strip after the other; at least 8. */
static void K(column_strips)(bool far, const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t width, size_t period, BITS inf,
                             unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    for (size_t some; rows > 0; rows -= some, x += (ptrdiff_t)some * row_stride) {
        some = rows < DEEP + ABREAST(false) ? rows : DEEP;
        for (size_t j = 0; j < width; j += STRIP(far)) {
            const size_t from = j + VEC_BYTES <= width ? j : width - VEC_BYTES;
            const size_t bytes = width - from < STRIP(far) ? width - from : STRIP(far);
            K(column_strip)(far, x, row_stride, some, from, bytes, period, (j - from) / sizeof(BITS), inf, min, max, nonfinite);
        }
    }
}

static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf, unsigned char *min,
                       unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    const size_t end = columns * sizeof(BITS), size = rows * end;
    if (columns < LANES) {
        K(few_columns)(x, row_stride, rows, columns, inf, min, max, nonfinite);
        return;
    }
    if (size > NEAR && rows >= ABREAST(false)) {
        const bool far = size >= FAR;
        /* Short rows with nothing between them are taken together, as the prefetchers want long ones. */
        const bool together = row_stride == (ptrdiff_t)end && end % VEC_BYTES == 0 && end < STRIP(true) &&
                              size >= ABREAST(false) * STRIP(false);
        const size_t some = together ? STRIP(false) / end : 1, whole = rows / some * some;
        K(column_strips)(far, x, row_stride * (ptrdiff_t)some, rows / some, end * some, end, inf, min, max, nonfinite);
        rows -= whole, x += (ptrdiff_t)whole * row_stride;
    }
    for (; rows > 0; rows -= rows < CHUNK ? rows : CHUNK, x += CHUNK * row_stride)
        K(column_tiles)(x, row_stride, rows < CHUNK ? rows : CHUNK, columns, inf, min, max, nonfinite);
}

#undef NEAR
#undef WIDE
#undef NARROW
#undef FEW_COLUMNS
#undef CHUNK
#undef ABREAST
#undef LINE
#undef AHEAD
#undef STRIP
#undef DEEP
