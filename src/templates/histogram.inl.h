/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The histogram over vectors. Included by src/ISA/histogram.c after simd.h of that folder and after these functions:
 *
 *   f32v_differ(a, b)                    the lanes in which neither is NaN and a != b
 *   f32v_truncate(v)                     integers; any in lanes that 31 bits do not hold
 *   u32v_store_halves(p, a)              the low 16 bits of each lane
 *   f32v_left_pack(p, a, lanes)          stores the lanes of a mask, packed; may write a vector
 *   u32v_left_pack_halves(p, a, lanes)   the same, 16 bits of each lane
 *
 *   elements -> [filter] -> floats that remain -> binning -> pending bins -> counters
 *                  |                                 |
 *                  +-- dominant value: popcount      +-- dominant bin: popcount
 *
 * filter: set while one value is frequent (zeros after a ReLU). It is compared and counted by its mask; only the
 * remainder is binned. There is no branch, because single elements of the remainder are not predictable. left_packing:
 * the mode of binning while one bin is frequent, or after an element was out of range. The dominant bin is counted by
 * its mask; only the other bins become pending. Otherwise a full chunk is binned while the chunk before is counted.
 * find_dominant() enters a mode, each mode ends itself when fewer than a quarter of a chunk is dominant.
 *
 * Counters: 32 bits, two arrays in alternation, so that equal bins in a row wait less for each other's stores. Four
 * arrays were slower because they exceed L1. In flight: the bins of a chunk are found while those of the chunk before
 * are counted. Counting is bound by one store a cycle. Tails: fewer than LANES of a run go element by element. Nothing
 * outside a run is read. Caller's duty: no counter overflows. */
#include "templates/histogram_elements.inl.h"
#include "templates/inline.h"

enum { LINE = 64, LANES = VEC_BYTES / 4, ALL_LANES = (1 << LANES) - 1 };

/* The binning as vectors. */
struct rule {
    f32v lo, hi, scale, from, bins, width;
    f32v skipped;     /* 0, or NaN */
    f32v uncountable; /* 0 if it is skipped, else infinity */
    u32v magnitude;   /* the bits of an element that count */
    u32v last;        /* bin */
};

static inline u32v u32v_splat(uint32_t a) { return (u32v){0} + a; }

static inline struct rule rule_of(const struct binning *b)
{
    struct rule r = {.lo = f32v_splat(b->lo), .hi = f32v_splat(b->hi), .scale = f32v_splat(b->scale)};
    r.from = f32v_splat(b->from);
    r.bins = f32v_splat((float)b->bins);
    r.width = f32v_splat(b->width);
    r.skipped = f32v_splat(b->skip_zeros ? 0 : __builtin_nanf(""));
    r.uncountable = f32v_splat(b->skip_zeros ? 0 : __builtin_inff());
    r.magnitude = u32v_splat(b->magnitude ? INT32_MAX : UINT32_MAX);
    r.last = u32v_splat((uint32_t)b->bins - 1);
    return r;
}

static inline f32v f32v_load_f32(const void *p) { return *(const f32v_at *)p; }

/* The magnitude if magnitudes are counted. */
static inline f32v counted_value(const struct rule *r, f32v v) { return (f32v)((u32v)v & r->magnitude); }

/* The position in bins; any value if v is out of range. */
static inline f32v place_of(const struct rule *r, f32v v) { return (v * r->scale - r->from) * r->bins / r->width; }

/* Any bin in lanes out of range. */
static inline u32v bins_of(const struct rule *r, f32v place)
{
    return (u32v)vec_min_u32((vec)f32v_truncate(place), (vec)r->last);
}

/* The lanes that are neither infinite nor NaN. */
static inline f32v_mask finite_lanes(f32v v)
{
    return f32v_less((f32v)((u32v)v & INT32_MAX), f32v_splat(__builtin_inff()));
}

/* The lanes that are counted. */
static inline uint32_t lanes_inside(const struct rule *r, f32v v)
{
    return f32v_bits(f32v_at_most(r->lo, v) & f32v_at_most(v, r->hi) & f32v_unequal(v, r->skipped));
}

static inline bool all_between(const struct rule *r, f32v min, f32v max)
{
    return f32v_bits(f32v_at_most(r->lo, min) & f32v_at_most(max, r->hi)) == ALL_LANES;
}

/* Bins that are not yet counted. Aligned, because vector stores across two cache lines are slow. */
struct pending {
    _Alignas(64) uint16_t bin[HISTOGRAM_CHUNK + LANES];
    size_t n;
};

struct state {
    const struct binning *binning;
    struct rule rule;
    uint32_t *even, *odd; /* counters of every other bin */
    struct extrema *extrema;
    f32v min, max;
    struct pending *current, *previous;
    bool left_packing;
    uint32_t dominant_bin;
    bool filtering;
    f32v dominant_value; /* the filtered value, in all lanes */
    uint32_t dominant_value_bin;
    size_t remaining; /* floats in the remainder */
    float *remainder; /* capacity: two chunks and a vector */
};

/* The elements of one dtype. */
struct reader {
    f32v (*load)(const void *x);
    float (*load_one)(const unsigned char *x);
    size_t size, ahead; /* bytes to prefetch; 0: in the cache */
};

#define READER(dtype, bytes, ahead) ((struct reader){f32v_load_##dtype, load_##dtype, bytes, ahead})

/* 64 bits: gcc does not know that the upper half of 32 is 0. */
static inline void count(uint32_t *counters, uint64_t bin)
{
    __asm__("" : "+r"(bin)); /* else gcc makes vectors of counters, with gathers and scatters */
    counters[bin]++;
}

/* n bins, an even number, loaded two at a time: loads and stores are the bottleneck, then instructions. */
ALWAYS_INLINE void count_pairs(uint32_t *a, uint32_t *b, const uint16_t *bin, size_t n)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i += 2) {
        uint32_t two;
        memcpy(&two, bin + i, sizeof two);
        count(a, two & UINT16_MAX);
        count(b, two >> 16);
    }
}

static void count_pending(const struct state *s, struct pending *p)
{
    count_pairs(s->even, s->odd, p->bin, p->n / 2 * 2);
    if (p->n % 2 != 0)
        count(s->even, p->bin[p->n - 1]);
    p->n = 0;
}

/* Prefetches later bytes of a vector's size, every line twice: once is much slower from memory. Vectors narrower
 * than a line reach it more often anyway. */
ALWAYS_INLINE void prefetch_vector(const struct reader *reader, const unsigned char *x)
{
    const size_t bytes = reader->ahead > 0 ? LANES * reader->size : 0;
    for (size_t i = 0; i < bytes; i += LINE) {
        __builtin_prefetch(x + i + reader->ahead);
        if (bytes >= LINE)
            __builtin_prefetch(x + i + reader->ahead);
    }
}

/* Bins a chunk and counts the one before, which is full. Returns false, with only the count done, if an element is
 * out of range. The places of a vector become bins one round later: both in one round exceed the latency that one
 * vector of counting hides. */
ALWAYS_INLINE bool bin_full_chunk(struct state *s, const struct reader *reader, const unsigned char *x)
{
    const struct rule rule = s->rule;
    uint32_t *const even = s->even, *const odd = s->odd;
    uint16_t *const current = s->current->bin;
    const uint16_t *const previous = s->previous->bin;
    const size_t size = reader->size;
    f32v v = counted_value(&rule, reader->load(x)), place = place_of(&rule, v), min = v, max = v;
    f32v_mask countable = f32v_differ(v, rule.uncountable);
    for (size_t i = 0; i < HISTOGRAM_CHUNK - LANES; i += LANES) {
        prefetch_vector(reader, x + i * size);
        const u32v bins = bins_of(&rule, place);
        v = counted_value(&rule, reader->load(x + (i + LANES) * size));
        place = place_of(&rule, v);
        u32v_store_halves(current + i, bins);
        countable &= f32v_differ(v, rule.uncountable);
        min = f32v_min(v, min);
        max = f32v_max(v, max);
        count_pairs(even, odd, previous + i, LANES);
    }
    prefetch_vector(reader, x + (HISTOGRAM_CHUNK - LANES) * size);
    u32v_store_halves(current + HISTOGRAM_CHUNK - LANES, bins_of(&rule, place));
    count_pairs(even, odd, previous + HISTOGRAM_CHUNK - LANES, LANES);
    s->previous->n = 0;
    if (f32v_bits(countable) != ALL_LANES || !all_between(&rule, min, max))
        return false;
    s->min = f32v_min(min, s->min);
    s->max = f32v_max(max, s->max);
    s->current->n = HISTOGRAM_CHUNK;
    return true;
}

/* The same for lanes that may be NaN, infinite or skipped. */
static inline void add_extrema_of_lanes(struct state *s, f32v v)
{
    const f32v_mask finite = finite_lanes(v), extrema = finite & f32v_unequal(v, s->rule.skipped);
    s->min = f32v_min(f32v_choose(extrema, v, s->min), s->min);
    s->max = f32v_max(f32v_choose(extrema, v, s->max), s->max);
    for (uint32_t special = ALL_LANES ^ f32v_bits(finite); special; special &= special - 1) {
        const bool nan = isnan(v[__builtin_ctz(special)]);
        s->extrema->nonfinite.nan += nan;
        s->extrema->nonfinite.inf += !nan;
    }
}

/* Bins at most a chunk of any elements. */
ALWAYS_INLINE void left_pack_chunk(struct state *s, const struct reader *reader, const unsigned char *x, size_t n)
{
    size_t inside = 0, packed = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        prefetch_vector(reader, x + i * reader->size);
        const f32v v = counted_value(&s->rule, reader->load(x + i * reader->size));
        const u32v bins = bins_of(&s->rule, place_of(&s->rule, v));
        const uint32_t in = lanes_inside(&s->rule, v);
        const uint32_t others = in & f32v_bits(u32v_unequal(bins, u32v_splat(s->dominant_bin)));
        u32v_left_pack_halves(s->current->bin + packed, bins, others);
        packed += (size_t)__builtin_popcount(others);
        if (in == ALL_LANES) {
            inside += LANES;
            s->min = f32v_min(v, s->min);
            s->max = f32v_max(v, s->max);
        } else {
            inside += (size_t)__builtin_popcount(in);
            add_extrema_of_lanes(s, v);
        }
    }
    s->even[s->dominant_bin] += (uint32_t)(inside - packed);
    s->current->n = packed;
    s->left_packing = inside < i || packed < i - i / 4;
    add_elements(reader->load_one, reader->size, s->binning, x + i * reader->size, n - i, s->even, s->extrema);
}

/* Samples four elements of the chunk at x, whose bins are given. If three share a bin, left-packing starts for it;
 * if they are the same value, filtering starts. Detects a bin with half of all elements in every third chunk, one
 * with an eighth almost never. */
ALWAYS_INLINE void find_dominant(struct state *s, const struct reader *reader, const uint16_t *bin,
                                 const unsigned char *x)
{
    enum { SAMPLES = 4, DISTANCE = HISTOGRAM_CHUNK / SAMPLES };
    size_t max_index = bin[0] == bin[DISTANCE] || bin[0] == bin[DISTANCE * (size_t)2] ? 0 : 3, same_bin = 0, same = 0;
    const float value = reader->load_one(x + max_index * DISTANCE * reader->size);
    for (size_t i = 0; i < SAMPLES; i++) {
        same_bin += bin[i * DISTANCE] == bin[max_index * DISTANCE];
        same += reader->load_one(x + i * DISTANCE * reader->size) == value;
    }
    if (same_bin < SAMPLES - 1)
        return;
    if (same < SAMPLES - 1 || s->filtering) {
        s->dominant_bin = bin[max_index * DISTANCE];
        s->left_packing = true;
    } else {
        s->dominant_value = counted_value(&s->rule, f32v_splat(value));
        s->dominant_value_bin = bin[max_index * DISTANCE];
        s->filtering = true;
    }
}

ALWAYS_INLINE void add_chunk(struct state *s, const struct reader *reader, const unsigned char *x, size_t n)
{
    const bool done =
        n == HISTOGRAM_CHUNK && !s->left_packing && s->previous->n == HISTOGRAM_CHUNK && bin_full_chunk(s, reader, x);
    if (!done) {
        count_pending(s, s->previous);
        left_pack_chunk(s, reader, x, n);
    }
    struct pending *const current = s->current;
    s->current = s->previous;
    s->previous = current;
    if (current->n == HISTOGRAM_CHUNK)
        find_dominant(s, reader, current->bin, x);
}

/* Bins at most a chunk of the remainder. */
static __attribute__((noinline)) void add_remainder(struct state *s)
{
    const struct reader floats = READER(f32, 4, 0);
    const size_t n = s->remaining < HISTOGRAM_CHUNK ? s->remaining : HISTOGRAM_CHUNK;
    add_chunk(s, &floats, (const unsigned char *)s->remainder, n);
    s->remaining -= n;
    memcpy(s->remainder, s->remainder + n, s->remaining * sizeof *s->remainder);
}

/* Filters a chunk. The dominant value is in range and in the extrema, so it only needs counting. This is as fast as
 * memory, and faster with the hardware prefetcher alone. */
ALWAYS_INLINE void filter_chunk(struct state *s, const struct reader *reader, const unsigned char *x)
{
    const struct rule rule = s->rule;
    const f32v dominant_value = s->dominant_value;
    float *const remainder = s->remainder;
    size_t remaining = s->remaining;
    for (size_t i = 0; i < HISTOGRAM_CHUNK; i += LANES) {
        const f32v v = counted_value(&rule, reader->load(x + i * reader->size));
        const uint32_t others = f32v_bits(f32v_unequal(v, dominant_value));
        f32v_left_pack(remainder + remaining, v, others);
        remaining += (size_t)__builtin_popcount(others);
    }
    const size_t packed = remaining - s->remaining;
    s->even[s->dominant_value_bin] += (uint32_t)(HISTOGRAM_CHUNK - packed);
    s->filtering = packed < HISTOGRAM_CHUNK - HISTOGRAM_CHUNK / 4;
    s->remaining = remaining;
    if (remaining >= HISTOGRAM_CHUNK)
        add_remainder(s);
}

ALWAYS_INLINE void add_run(struct state *s, const struct reader *reader, const unsigned char *x, size_t length)
{
    const size_t prefetch = (64 - (uintptr_t)x % 64) % 64 / reader->size; /* elements up to the first cache line */
    size_t max_index = length >= 4 * HISTOGRAM_CHUNK && prefetch > 0 ? prefetch : HISTOGRAM_CHUNK;
    while (length > 0) {
        const size_t n = length < max_index ? length : max_index;
        max_index = HISTOGRAM_CHUNK;
        if (n == HISTOGRAM_CHUNK && s->filtering)
            filter_chunk(s, reader, x);
        else
            add_chunk(s, reader, x, n);
        x += n * reader->size;
        length -= n;
    }
}

/* More bins than 16 bits hold. Cache misses of the counters are the bottleneck. */
ALWAYS_INLINE void add_wide(struct state *s, const struct reader *reader, const unsigned char *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const f32v v = counted_value(&s->rule, reader->load(x + i * reader->size));
        const u32v bins = bins_of(&s->rule, place_of(&s->rule, v));
        uint32_t bin[LANES];
        memcpy(bin, &bins, sizeof bin);
        for (uint32_t inside = lanes_inside(&s->rule, v); inside; inside &= inside - 1)
            count(s->even, bin[__builtin_ctz(inside)]);
        add_extrema_of_lanes(s, v);
    }
    add_elements(reader->load_one, reader->size, s->binning, x + i * reader->size, n - i, s->even, s->extrema);
}

ALWAYS_INLINE void add_runs(const struct reader reader, const struct binning *binning, const unsigned char *x,
                            ptrdiff_t run_stride, size_t runs, size_t length, uint32_t *counters,
                            struct extrema *extrema)
{
    struct pending one, other;
    float remainder[2 * HISTOGRAM_CHUNK + LANES];
    one.n = other.n = 0;
    struct state s = {.binning = binning,
                      .rule = rule_of(binning),
                      .even = counters,
                      .odd = counters + qobs_counter_stride(binning->bins),
                      .extrema = extrema,
                      .min = f32v_splat(extrema->min),
                      .max = f32v_splat(extrema->max),
                      .remainder = remainder,
                      .current = &one,
                      .previous = &other};
    for (size_t i = 0; i < runs; i++)
        if (binning->bins <= UINT16_MAX + 1)
            add_run(&s, &reader, x + (ptrdiff_t)i * run_stride, length);
        else
            add_wide(&s, &reader, x + (ptrdiff_t)i * run_stride, length);
    if (s.remaining > 0)
        add_remainder(&s);
    count_pending(&s, s.previous);
    for (size_t i = 0; i < LANES; i++)
        add_extrema(extrema, s.min[i], s.max[i]);
}

#define HISTOGRAM_ENTRY(dtype, bytes)                                                                                  \
    QOBS_HISTOGRAM_ROWS(ENTRY(qobs_histogram_rows_##dtype))                                                            \
    {                                                                                                                  \
        CLEARS_UPPER_HALVES                                                                                            \
        add_runs(READER(dtype, bytes, HISTOGRAM_BYTES_AHEAD), binning, x, run_stride, runs, length, counters,          \
                 extrema);                                                                                             \
    }
HISTOGRAM_ENTRY(f32, 4)
HISTOGRAM_ENTRY(bf16, 2)
HISTOGRAM_ENTRY(f16, 2)
