/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Min/max over columns: included by minmax.inl.h, whose limits hold. */

/* From memory columns go ABREAST rows and TILE vectors, one line of the cache, at a time. */
#define ABREAST 8
#define TILE (64 / VEC_BYTES)
/* From this size on columns are taken to come from memory. */
#define FAR ((size_t)16 << 20)
/* Up to this size they go down CHUNK rows, STEP at a time, in strips of so many bytes, whose accumulators stay in the first-level cache. */
#define NEAR ((size_t)8 << 20)
#define STRIP 2048
#define CHUNK 64
#define STEP 8

/* Merges the bounds of one vector of columns into the caller's, which may be `keyed` for the duration. Where something is not finite
 * the elements are gone through one by one, but for the first `seen` columns, which another vector has counted. */
static inline void K(merge_columns)(bool keyed, const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t seen,
                                    const struct K(bounds) *bounds, BITS inf, unsigned char *min, unsigned char *max,
                                    struct qobs_nonfinite *nonfinite)
{
    const vec limit = K(vec_splat)((KEY)inf);
    vec lo, hi;
    K(keys_of_bounds)(bounds, &lo, &hi);
    if (!K(vec_any_ge)(hi, limit) && !K(vec_any_ge)(vec_not(lo), limit)) {
        const vec least = vec_load(min), greatest = vec_load(max);
        lo = K(vec_min_s)(lo, keyed ? least : K(vec_key)(least));
        hi = K(vec_max_s)(hi, keyed ? greatest : K(vec_key)(greatest));
        vec_store(min, keyed ? lo : K(vec_key)(K(vec_no_minus_zero)(lo)));
        vec_store(max, keyed ? hi : K(vec_key)(K(vec_no_minus_zero)(hi)));
        return;
    }
    for (size_t j = seen * sizeof(BITS); j < VEC_BYTES; j += sizeof(BITS)) {
        KEY l = MOST_POSITIVE, h = MOST_NEGATIVE;
        for (size_t r = 0; r < rows; r++)
            K(scan_elements)(x + (ptrdiff_t)r * row_stride + j, 1, inf, &l, &h, nonfinite);
        if (keyed) {
            l = K(key_min)(l, (KEY)K(load_bits)(min + j));
            h = K(key_max)(h, (KEY)K(load_bits)(max + j));
            memcpy(min + j, &l, sizeof l);
            memcpy(max + j, &h, sizeof h);
        } else {
            K(merge_keys)(l, h, min + j, max + j);
        }
    }
}

/* `vectors` vectors of columns, side by side, over `rows` rows; `ahead`: the same columns of as many rows further down are fetched
 * into the second-level cache, as the hardware does not foresee that the streams go on there. */
static inline __attribute__((always_inline)) void K(column_tile)(int vectors, bool ahead, bool keyed, const unsigned char *x,
                                                                  ptrdiff_t row_stride, size_t rows, size_t seen, BITS inf,
                                                                  unsigned char *min, unsigned char *max,
                                                                  struct qobs_nonfinite *nonfinite)
{
    struct K(bounds) b[TILE];
    for (int i = 0; i < vectors; i++) {
        b[i] = K(bounds_of)(vec_load(x + i * VEC_BYTES));
        if (ahead)
            __builtin_prefetch(x + (ptrdiff_t)rows * row_stride + i * VEC_BYTES, 0, 2);
    }
    const unsigned char *row = x;
#pragma GCC unroll 1
    for (size_t r = 1; r < rows; r++) {
        row += row_stride;
        for (int i = 0; i < vectors; i++) {
            const vec v = vec_load(row + i * VEC_BYTES);
            if (ahead)
                __builtin_prefetch(row + (ptrdiff_t)rows * row_stride + i * VEC_BYTES, 0, 2);
            K(enter)(&b[i], v);
        }
    }
    for (int i = 0; i < vectors; i++, x += VEC_BYTES, min += VEC_BYTES, max += VEC_BYTES)
        K(merge_columns)(keyed, x, row_stride, rows, seen, &b[i], inf, min, max, nonfinite);
}

#if HAS_RAW
/* STEP rows enter the accumulators of a strip. */
static inline void K(strip_rows)(const unsigned char *x, ptrdiff_t row_stride, size_t bytes, struct K(bounds) *b)
{
    for (size_t j = 0; j < bytes; j += VEC_BYTES, b++) {
        struct K(bounds) c = *b;
        for (int r = 0; r < STEP; r++)
            K(enter)(&c, vec_load(x + r * row_stride + j));
        *b = c;
    }
}

/* A strip of whole vectors down at least STEP rows, the last of which are read again where their number is no multiple. */
static inline void K(column_strip)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t bytes, BITS inf,
                                   unsigned char *min, unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    struct K(bounds) b[STRIP / VEC_BYTES];
    for (size_t j = 0; j < bytes; j += VEC_BYTES)
        b[j / VEC_BYTES] = K(bounds_of)(vec_load(x + j));
    for (size_t r = 0; r < rows; r += STEP)
        K(strip_rows)(x + (ptrdiff_t)(r + STEP <= rows ? r : rows - STEP) * row_stride, row_stride, bytes, b);
    for (size_t j = 0; j < bytes; j += VEC_BYTES)
        K(merge_columns)(false, x + j, row_stride, rows, 0, &b[j / VEC_BYTES], inf, min + j, max + j, nonfinite);
}
#endif

/* Some rows over all columns; the last vector is read again where the width is no multiple of LANES. */
static inline __attribute__((always_inline)) void K(column_rows)(bool far, bool near, const unsigned char *x, ptrdiff_t row_stride, size_t rows,
                                                                  size_t columns, BITS inf, unsigned char *min,
                                                                  unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    const size_t end = columns * sizeof(BITS), last = end - VEC_BYTES;
    const bool keyed = !near;
    size_t j = 0;
#if HAS_RAW
    for (size_t bytes; near && rows >= STEP && (bytes = (end - j < STRIP ? end - j : STRIP) / VEC_BYTES * VEC_BYTES) > 0; j += bytes)
        K(column_strip)(x + j, row_stride, rows, bytes, inf, min + j, max + j, nonfinite);
#endif
    for (; j + TILE * VEC_BYTES <= end; j += TILE * VEC_BYTES)
        K(column_tile)(TILE, far, keyed, x + j, row_stride, rows, 0, inf, min + j, max + j, nonfinite);
    for (; j + VEC_BYTES <= end; j += VEC_BYTES)
        K(column_tile)(1, far, keyed, x + j, row_stride, rows, 0, inf, min + j, max + j, nonfinite);
    if (j < end)
        K(column_tile)(1, far, keyed, x + last, row_stride, rows, (j - last) / sizeof(BITS), inf, min + last, max + last, nonfinite);
}

static inline void K(convert_keys)(unsigned char *k, size_t n, bool back)
{
    for (size_t i = 0; i < n; i++) {
        const BITS b = K(load_bits)(k + i * sizeof(BITS));
        const BITS c = back ? K(bits_of_key)((KEY)b) : (BITS)K(key_of_bits)(b);
        memcpy(k + i * sizeof(BITS), &c, sizeof c);
    }
}

/* From memory the rows are walked in order, ABREAST of them at a time, so that few streams are open. The accumulators, the caller's
 * min and max turned into keys for the duration, are touched once for that many elements. */
static void K(columns)(const unsigned char *x, ptrdiff_t row_stride, size_t rows, size_t columns, BITS inf, unsigned char *min,
                       unsigned char *max, struct qobs_nonfinite *nonfinite)
{
    const size_t size = rows * columns * sizeof(BITS);
    const bool far = size >= FAR, near = HAS_RAW && size <= NEAR;
    if (rows == 0)
        return;
    for (size_t j = 0; j < columns * sizeof(BITS) && columns < LANES; j += sizeof(BITS)) {
        KEY lo = MOST_POSITIVE, hi = MOST_NEGATIVE;
        for (size_t r = 0; r < rows; r++)
            K(scan_elements)(x + (ptrdiff_t)r * row_stride + j, 1, inf, &lo, &hi, nonfinite);
        K(merge_keys)(lo, hi, min + j, max + j);
    }
    if (columns < LANES)
        return;
    for (; near && rows > 0; rows -= rows < CHUNK ? rows : CHUNK, x += CHUNK * row_stride)
        K(column_rows)(false, true, x, row_stride, rows < CHUNK ? rows : CHUNK, columns, inf, min, max, nonfinite);
    if (rows == 0)
        return;
    K(convert_keys)(min, columns, false);
    K(convert_keys)(max, columns, false);
    for (; far && rows >= ABREAST; rows -= ABREAST, x += ABREAST * row_stride)
        K(column_rows)(true, false, x, row_stride, ABREAST, columns, inf, min, max, nonfinite);
    for (; rows > 0; rows -= rows < ABREAST ? rows : ABREAST, x += ABREAST * row_stride)
        K(column_rows)(false, false, x, row_stride, rows < ABREAST ? rows : ABREAST, columns, inf, min, max, nonfinite);
    K(convert_keys)(min, columns, true);
    K(convert_keys)(max, columns, true);
}

#undef ABREAST
#undef TILE
#undef FAR
#undef NEAR
#undef STRIP
#undef CHUNK
#undef STEP
