/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Sums of errors in upstream's own arithmetic from a table with a row for each element; included by src/ISA/search.c
 * after search_native.inl.h. Lanes are candidates.
 *
 * Accumulators: four floats for each candidate, for every fourth element; they are added at the end. All terms are
 *   positive, so that n / 4 + 1 additions are wrong by at most as many halves of the last place.
 * Overflow: a sum that is infinite is above the numbers of BF16.
 * Tails: elements are padded with zeros to a multiple of 16, which have row 0.
 * In flight: the rows of four elements; they hit L1 or L2.
 * Caller's duty: round to nearest, no flushing of subnormals. */

enum { ROW_LANES = 8, ROW_VECTORS = 3 /* of a row that are added together */, ROW_SUMS = 4 };

/* No row; the element is smaller than those with rows. */
#define NO_ROW UINT32_MAX

/* Places of rows in floats. Returns false if a magnitude is above the last one. */
ALWAYS_INLINE bool find_rows(const struct native_rows *rows, const float *x, size_t n, uint32_t *place)
{
    const uint32_t first = rows->first, symmetric = rows->symmetric, beyond = rows->last - rows->symmetric;
    const uint32_t stride = (uint32_t)rows->stride;
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of_float(x[i]) >> 16, magnitude = bits & 0x7fff;
        const uint32_t at = magnitude - first + 1 + (bits > 0x7fff && magnitude > symmetric ? beyond : 0);
        most = magnitude > most ? magnitude : most;
        place[i] = magnitude == 0 ? 0 : magnitude < first ? NO_ROW : at * stride;
    }
    return most <= rows->last;
}

ALWAYS_INLINE void add_row(const struct native_rows *rows, float x, uint32_t place, size_t from, size_t vectors,
                           f32x8 *sum)
{
    if (__builtin_expect(place != NO_ROW, 1)) {
        const float *const row = rows->row + place + from;
        for (size_t v = 0; v < vectors; v++)
            sum[v] = f32x8_add(sum[v], f32x8_load(row + v * ROW_LANES));
    } else {
        const f32x8 power = f32x8_splat((float)rows->power[bits_of_float(x) >> 16 & 0x7fff]);
        for (size_t v = 0; v < vectors; v++)
            sum[v] = f32x8_add(sum[v], power);
    }
}

/* The sums of `vectors` times ROW_LANES candidates. */
ALWAYS_INLINE void add_rows(const struct native_rows *rows, const float *x, const uint32_t *place, size_t n,
                            size_t from, size_t vectors, float *sum)
{
    f32x8 of[ROW_SUMS][ROW_VECTORS];
    for (size_t j = 0; j < ROW_SUMS; j++)
        for (size_t v = 0; v < vectors; v++)
            of[j][v] = f32x8_splat(0);
    for (size_t i = 0; i < n; i += ROW_SUMS)
        for (size_t j = 0; j < ROW_SUMS; j++)
            add_row(rows, x[i + j], place[i + j], from, vectors, of[j]);
    for (size_t v = 0; v < vectors; v++)
        f32x8_store(sum + from + v * ROW_LANES,
                    f32x8_add(f32x8_add(of[0][v], of[2][v]), f32x8_add(of[1][v], of[3][v])));
}

QOBS_SEARCH_ROW_SUMS(ENTRY(qobs_search_row_sums))
{
    CLEARS_UPPER_HALVES
    uint32_t place[QOBS_SEARCH_MOST];
    const size_t padded = (n + QOBS_SEARCH_LANES - 1) / QOBS_SEARCH_LANES * QOBS_SEARCH_LANES;
    if (!find_rows(rows, x, padded, place))
        return false;
    size_t from = 0;
    for (; rows->stride - from >= ROW_VECTORS * ROW_LANES; from += ROW_VECTORS * ROW_LANES)
        add_rows(rows, x, place, padded, from, ROW_VECTORS, sum);
    for (; from < rows->stride; from += ROW_LANES)
        add_rows(rows, x, place, padded, from, 1, sum);
    return true;
}

#undef NO_ROW
