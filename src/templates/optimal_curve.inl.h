/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Errors of all candidates for a scale at once; included by src/ISA/optimal.c after PACKED_EVENTS and
 *   size_t pack_events(uint32_t *events, const float t[16], uint32_t first, uint32_t count, uint32_t tag,
 *                      int32_t passed[16])
 * which appends (k << 20 | tag + 16 * lane) for lanes with k = (bits of t >> 16) - first below count, in the order of
 * lanes, returns how many it appended, and adds 1 to `passed` in lanes in which k is at least count. It may write 16
 * events.
 *
 * As the scale falls, every element only takes steps up. Each step is dropped into the bucket of the largest candidate
 * that takes it. Sums from the largest candidate down are then those of each candidate.
 *
 * Accumulators: two doubles a bucket, of elements in chunks of QOBS_OPTIMAL_CHUNK, in these of 16 elements, step by
 * step. Overflow: h * w * w must not. Caller's duty: round to nearest, no flushing of subnormals (base/fpenv.h). */

#ifndef PACKED_EVENTS
/* For instruction sets that cannot compress vectors. There is no branch, because events are not predictable. */
ALWAYS_INLINE size_t pack_events(uint32_t *events, const float t[16], uint32_t first, uint32_t count, uint32_t tag,
                                 int32_t passed[16])
{
    size_t n = 0;
    for (uint32_t l = 0; l < 16; l++) {
        const int32_t k = (int32_t)(bits_of_float(t[l]) >> 16) - (int32_t)first;
        events[n] = (uint32_t)k << 20 | (tag + 16 * l);
        n += (uint32_t)k < count;
        passed[l] += k >= (int32_t)count;
    }
    return n;
}
#endif

/* An event: bucket (12 bits), step (8 bits), 16 times the element of the chunk (12 bits). Tables have entries of 16
 * bytes, so that a shift and a mask make an offset in bytes. */
enum { BLOCK = 16, STEP_BITS = 12, OFFSETS = 255 << 4 };

struct curve {
    const struct optimal_steps *steps;
    uint32_t first, count;
    f64x2 *bucket;
    uint32_t *events;
    float *magnitude; /* of the elements of a chunk */
    f64x2 *pair;      /* their h * |w| and h */
};

/* Finds the events of 16 elements from element `at` of the chunk on; passed: steps that all candidates take. */
ALWAYS_INLINE size_t find_events(const struct curve *c, const float *w, uint32_t at, uint32_t *events, int32_t *passed)
{
    const struct optimal_steps *s = c->steps;
    const size_t both = s->positive < s->negative ? s->positive : s->negative;
    const size_t all = s->positive > s->negative ? s->positive : s->negative;
    const float smallest = float_of_bits(c->first << 16);
    const i32x8 zero = {0}, one_sign = zero - (s->negative > s->positive ? 0 : 1); /* of elements with more steps */
    _Alignas(32) float one_side[BLOCK];
    i32x8 most = {0};
    size_t n = 0;
    for (size_t l = 0; l < BLOCK; l += LANES) {
        const i32x8 x = *(const i32x8 *)(const void *)(w + l), a = x & INT32_MAX; /* -0 is 0 */
        *(i32x8 *)(void *)(c->magnitude + at + l) = a;
        *(i32x8 *)(void *)(one_side + l) = a & ((x ^ one_sign) >> 31);
        *(i32x8 *)(void *)(passed + l) = zero;
        most = MOST_OF(a, most);
    }
    const float largest = largest_of(&most);
    for (size_t j = 0; j < all; j++) {
        const float *const a = j < both ? c->magnitude + at : one_side;
        const float factor = s->inverse_mid[j];
        float t[BLOCK];
        if (largest * factor < smallest)
            break;
        for (int l = 0; l < BLOCK; l++)
            t[l] = a[l] * factor;
        n += pack_events(events + n, t, c->first, c->count, (uint32_t)(j << STEP_BITS) + 16 * at, passed);
    }
    return n;
}

ALWAYS_INLINE const f64x2 *at_offset(const void *table, size_t bytes)
{
    return (const f64x2 *)(const void *)((const unsigned char *)table + bytes);
}

/* Adds the steps of a chunk of elements to the buckets; those that all candidates take to bucket `count`. */
ALWAYS_INLINE void add_chunk(const struct curve *c, const float *w, const double *h, size_t n)
{
    _Alignas(32) int32_t passed[QOBS_OPTIMAL_CHUNK];
    size_t events = 0;
    for (size_t i = 0; i < n; i += BLOCK)
        events += find_events(c, w + i, (uint32_t)i, c->events + events, passed + i);
    for (size_t i = 0; i < n; i++) {
        ((double *)(void *)c->pair)[2 * i] = h[i] * (double)c->magnitude[i];
        ((double *)(void *)c->pair)[2 * i + 1] = h[i];
    }
    for (size_t e = 0; e < events; e++) {
        const uint32_t event = c->events[e];
        const f64x2 pair = *at_offset(c->pair, event & OFFSETS);
        *(f64x2 *)(void *)((unsigned char *)c->bucket + (event >> 16 & ~15U)) +=
            pair * *at_offset(c->steps->gain, event >> (STEP_BITS - 4) & OFFSETS);
    }
    f64x2 first[4] = {{0}};
    for (size_t i = 0; i < n; i += 4)
        for (size_t l = 0; l < 4; l++)
            first[l] += c->pair[i + l] * *(const f64x2 *)(const void *)c->steps->taken[passed[i + l]];
    c->bucket[c->count] += (first[0] + first[1]) + (first[2] + first[3]);
}

/* above: sums of the buckets above, which are added to those of bucket k. */
#define curve_error(bits, energy, bucket, above)                                                                       \
    (((energy) - (2 * (double)float_of_bits((bits) << 16)) * ((bucket)[0] + (above)[0])) +                             \
     ((double)float_of_bits((bits) << 16) * (double)float_of_bits((bits) << 16)) * ((bucket)[1] + (above)[1]))

QOBS_OPTIMAL_CURVE(ENTRY(qobs_optimal_curve))
{
    CLEARS_UPPER_HALVES
    unsigned char *memory = scratch;
    struct curve c = {.steps = steps, .first = first, .count = (uint32_t)count};
    c.pair = (f64x2 *)(void *)memory;
    memory += QOBS_OPTIMAL_CHUNK * sizeof *c.pair;
    c.magnitude = (float *)(void *)memory;
    memory += QOBS_OPTIMAL_CHUNK * sizeof *c.magnitude;
    c.bucket = (f64x2 *)(void *)memory;
    memory += (count + 1) * sizeof *c.bucket;
    c.events = (uint32_t *)(void *)memory;
    for (size_t k = 0; k <= count; k++)
        c.bucket[k] = (f64x2){0, 0};
    for (size_t i = 0; i < n; i += QOBS_OPTIMAL_CHUNK) {
        const size_t left = (n - i + BLOCK - 1) / BLOCK * BLOCK;
        add_chunk(&c, w + i, h + i, left < QOBS_OPTIMAL_CHUNK ? left : QOBS_OPTIMAL_CHUNK);
    }
    /* Four sums at a time, each of a quarter of the buckets, so that none waits for the one before. */
    enum { QUARTERS = 4 };
    const size_t quarter = count / QUARTERS;
    f64x2 sum[QUARTERS] = {{0}};
    for (size_t k = quarter; k-- > 0;)
        for (size_t l = 0; l < QUARTERS; l++)
            c.bucket[l * quarter + k] = sum[l] += c.bucket[l * quarter + k];
    f64x2 above = c.bucket[count];
    for (size_t k = count; k-- > QUARTERS * quarter;)
        c.bucket[k] = above += c.bucket[k];
    for (size_t k = QUARTERS * quarter; k < count; k++)
        error[k] = curve_error(first + (uint32_t)k, energy, c.bucket[k], above - above);
    for (size_t l = QUARTERS; l-- > 0; above += sum[l])
        for (size_t k = l * quarter; k < (l + 1) * quarter; k++)
            error[k] = curve_error(first + (uint32_t)k, energy, c.bucket[k], above);
}
