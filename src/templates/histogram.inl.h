/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The histogram over vectors. Included by src/<isa>/histogram.c after what it is made of:
 *   LANES, ALL_LANES           floats in a vector; the mask of all lanes, bit i for lane i
 *   hist_vec, hist_index       floats; their bins
 *   hist_rule, hist_rule_of    the binning as vectors
 *   hist_load_<dtype>(x)       LANES elements as floats, magnitudes not yet taken
 *   hist_abs(rule, v)          |v| where magnitudes are counted
 *   hist_place(rule, v)        where v lies, in bins; whatever outside
 *   hist_bins(rule, place)     the bins, whatever in lanes outside
 *   hist_lanes, hist_all(), hist_is_all(lanes)   sets of lanes; all of them; is it that
 *   hist_wanted(rule, lanes, v)   of those the lanes neither NaN nor skipped
 *   hist_between(rule, min, max)  are all of min at least lo, all of max at most hi
 *   hist_inside, hist_seen, hist_special(rule, v), hist_unlike(bins, bin)   masks: to be counted; to be seen as extremes; NaN
 *                              and infinite; of another bin
 *   hist_min, hist_max(v, w)   w where v is NaN
 *   hist_unequal(v, w)         mask: NaN, too
 *   hist_where(mask, v, w)     v in the lanes of the mask, w in the others
 *   hist_splat(x), hist_store_floats(p, v), hist_store_wide(p, bins)
 *   hist_store(p, bins)        in 16 bits each
 *   hist_pack(p, v, mask)      stores the lanes of the mask, packed; may write LANES
 *   hist_pick(p, bins, mask)   in 16 bits each those of the mask, packed; may write LANES
 *
 * Counters: 32 bits, two arrays in turn, so that equal bins in a row wait less for each other's stores. Four were slower where
 *   they fill the first-level cache.
 * In flight: the bins of a chunk are found while those of the chunk before are counted. The counting is bound by one store a
 *   cycle, the finding by everything else.
 * Where one value is met often (zeros after a ReLU), it is sifted out: compared, counted by its mask, and only what is left has to
 *   be binned. Without a branch, as single elements that are left over are no pattern to foresee.
 * Where one bin is met often, or elements lie outside, a chunk is picked over: the hot bin is counted by its mask, and only the
 *   others are written down to be counted.
 * Tails: fewer than LANES of a run go element by element. Nothing outside a run is read. */
#include "templates/histogram_elements.inl.h"

enum { CHUNK = 512, AHEAD = 3072 /* bytes fetched before they are needed: the hardware stops at the end of a page */, LINE = 64 };

/* Bins to be counted, at the beginning of a cache line: stores of whole vectors across two are slow. */
struct pending {
    _Alignas(64) uint16_t bin[CHUNK + LANES];
    size_t n;
};

struct state {
    const struct qobs_binning *binning;
    hist_rule rule;
    uint32_t *even, *odd; /* counters of every other bin */
    struct qobs_extrema *extrema;
    hist_vec min, max;
    struct pending *found, *before;
    bool picking;
    uint32_t hot;
    bool sifting;
    hist_vec common;      /* the value that is sifted out, in all lanes */
    uint32_t common_bin;
    size_t left;          /* over from sifting, of floats */
    float *rest;          /* room for two chunks and a vector */
};

/* The elements of one dtype. */
struct reader {
    hist_vec (*load)(const unsigned char *x);
    float (*load_one)(const unsigned char *x);
    size_t size, prefetch, again; /* bytes ahead to be fetched, and once more; 0: they are in the cache */
};

#define READER(dtype, bytes, prefetch, again) ((struct reader){hist_load_##dtype, load_##dtype, bytes, prefetch, again})

/* 64 bits: gcc does not know that the upper half of 32 is 0. */
static inline void count(uint32_t *counters, uint64_t bin)
{
    __asm__("" : "+r"(bin)); /* else gcc makes vectors of counters, with gathers and scatters */
    counters[bin]++;
}

/* n bins, an even number, loaded two at a time: loads and stores are what there is least room for, then instructions. */
static inline __attribute__((always_inline)) void count_pairs(uint32_t *a, uint32_t *b, const uint16_t *bin, size_t n)
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

/* Fetches a vector's bytes that come later, every line twice: once is much slower in memory. Vectors narrower than a line come to it
 * more often anyway. */
static inline __attribute__((always_inline)) void fetch(const struct reader *reader, const unsigned char *x)
{
    const size_t bytes = reader->prefetch > 0 ? LANES * reader->size : 0;
    for (size_t i = 0; i < bytes; i += LINE) {
        __builtin_prefetch(x + i + reader->prefetch);
        if (bytes >= LINE)
            __builtin_prefetch(x + i + reader->again);
    }
}

/* A chunk, counting the one before, which is whole. Fails, with nothing but that done, if not all of it lies inside. A vector's places
 * become bins one round later: the two, one after the other, take longer than what can be in flight with a vector's counting. */
static inline __attribute__((always_inline)) bool whole_chunk(struct state *s, const struct reader *reader, const unsigned char *x)
{
    const hist_rule rule = s->rule;
    uint32_t *const even = s->even, *const odd = s->odd;
    uint16_t *const found = s->found->bin;
    const uint16_t *const before = s->before->bin;
    const size_t size = reader->size;
    hist_vec v = hist_abs(&rule, reader->load(x)), place = hist_place(&rule, v), min = v, max = v;
    hist_lanes wanted = hist_wanted(&rule, hist_all(), v);
    for (size_t i = 0; i < CHUNK - LANES; i += LANES) {
        fetch(reader, x + i * size);
        const hist_index bins = hist_bins(&rule, place);
        v = hist_abs(&rule, reader->load(x + (i + LANES) * size));
        place = hist_place(&rule, v);
        hist_store(found + i, bins);
        wanted = hist_wanted(&rule, wanted, v);
        min = hist_min(v, min);
        max = hist_max(v, max);
        count_pairs(even, odd, before + i, LANES);
    }
    fetch(reader, x + (CHUNK - LANES) * size);
    hist_store(found + CHUNK - LANES, hist_bins(&rule, place));
    count_pairs(even, odd, before + CHUNK - LANES, LANES);
    s->before->n = 0;
    if (!hist_is_all(wanted) || !hist_between(&rule, min, max))
        return false;
    s->min = hist_min(min, s->min);
    s->max = hist_max(max, s->max);
    s->found->n = CHUNK;
    return true;
}

/* Some of which may be NaN, infinite or skipped. */
static inline void see_lanes(struct state *s, hist_vec v)
{
    const uint32_t extrema = hist_seen(&s->rule, v);
    s->min = hist_min(hist_where(extrema, v, s->min), s->min);
    s->max = hist_max(hist_where(extrema, v, s->max), s->max);
    for (uint32_t special = hist_special(v); special; special &= special - 1) {
        float x[LANES];
        hist_store_floats(x, v);
        const bool nan = isnan(x[__builtin_ctz(special)]);
        s->extrema->nonfinite.nan += nan;
        s->extrema->nonfinite.inf += !nan;
    }
}

/* Up to a chunk of any elements. */
static inline __attribute__((always_inline)) void picked_chunk(struct state *s, const struct reader *reader,
                                                               const unsigned char *x, size_t n)
{
    size_t inside = 0, kept = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        fetch(reader, x + i * reader->size);
        const hist_vec v = hist_abs(&s->rule, reader->load(x + i * reader->size));
        const hist_index bins = hist_bins(&s->rule, hist_place(&s->rule, v));
        const uint32_t in = hist_inside(&s->rule, v), others = in & hist_unlike(bins, s->hot);
        hist_pick(s->found->bin + kept, bins, others);
        kept += (size_t)__builtin_popcount(others);
        if (in == ALL_LANES) {
            inside += LANES;
            s->min = hist_min(v, s->min);
            s->max = hist_max(v, s->max);
        } else {
            inside += (size_t)__builtin_popcount(in);
            see_lanes(s, v);
        }
    }
    s->even[s->hot] += (uint32_t)(inside - kept);
    s->found->n = kept;
    s->picking = inside < i || kept < i - i / 4;
    add_elements(reader->load_one, reader->size, s->binning, x + i * reader->size, n - i, s->even, s->extrema);
}

/* Is there a bin that many elements of the chunk at x, which has those bins, are in? One with half of all shows in every third
 * chunk, one with an eighth hardly ever. If it is one value, that is sifted out. */
static inline __attribute__((always_inline)) void look_for_hot(struct state *s, const struct reader *reader, const uint16_t *bin,
                                                               const unsigned char *x)
{
    enum { SAMPLES = 4, APART = CHUNK / SAMPLES };
    size_t most = bin[0] == bin[APART] || bin[0] == bin[APART * (size_t)2] ? 0 : 3, same_bin = 0, same = 0;
    const float value = reader->load_one(x + most * APART * reader->size);
    for (size_t i = 0; i < SAMPLES; i++) {
        same_bin += bin[i * APART] == bin[most * APART];
        same += reader->load_one(x + i * APART * reader->size) == value;
    }
    if (same_bin < SAMPLES - 1)
        return;
    if (same < SAMPLES - 1 || s->sifting) {
        s->hot = bin[most * APART];
        s->picking = true;
    } else {
        s->common = hist_abs(&s->rule, hist_splat(value));
        s->common_bin = bin[most * APART];
        s->sifting = true;
    }
}

static inline __attribute__((always_inline)) void add_chunk(struct state *s, const struct reader *reader, const unsigned char *x,
                                                            size_t n)
{
    const bool whole = n == CHUNK && !s->picking && s->before->n == CHUNK && whole_chunk(s, reader, x);
    if (!whole) {
        count_pending(s, s->before);
        picked_chunk(s, reader, x, n);
    }
    struct pending *const found = s->found;
    s->found = s->before;
    s->before = found;
    if (found->n == CHUNK)
        look_for_hot(s, reader, found->bin, x);
}

/* Up to a chunk of what is left over from sifting. */
static __attribute__((noinline)) void add_rest(struct state *s)
{
    const struct reader floats = READER(f32, 4, 0, 0);
    const size_t n = s->left < CHUNK ? s->left : CHUNK;
    add_chunk(s, &floats, (const unsigned char *)s->rest, n);
    s->left -= n;
    memcpy(s->rest, s->rest + n, s->left * sizeof *s->rest);
}

/* A chunk without the common value, which has been extrema, lies inside and only needs counting. As fast as memory, so what the
 * hardware fetches is enough, and more of it than with prefetching. */
static inline __attribute__((always_inline)) void sift_chunk(struct state *s, const struct reader *reader, const unsigned char *x)
{
    const hist_rule rule = s->rule;
    const hist_vec common = s->common;
    float *const rest = s->rest;
    size_t left = s->left;
    for (size_t i = 0; i < CHUNK; i += LANES) {
        const hist_vec v = hist_abs(&rule, reader->load(x + i * reader->size));
        const uint32_t others = hist_unequal(v, common);
        hist_pack(rest + left, v, others);
        left += (size_t)__builtin_popcount(others);
    }
    const size_t kept = left - s->left;
    s->even[s->common_bin] += (uint32_t)(CHUNK - kept);
    s->sifting = kept < CHUNK - CHUNK / 4;
    s->left = left;
    if (left >= CHUNK)
        add_rest(s);
}

static inline __attribute__((always_inline)) void add_run(struct state *s, const struct reader *reader, const unsigned char *x,
                                                          size_t length)
{
    const size_t prefetch = (64 - (uintptr_t)x % 64) % 64 / reader->size; /* of the first cache line that begins here */
    size_t most = length >= 4 * CHUNK && prefetch > 0 ? prefetch : CHUNK;
    while (length > 0) {
        const size_t n = length < most ? length : most;
        most = CHUNK;
        if (n == CHUNK && s->sifting)
            sift_chunk(s, reader, x);
        else
            add_chunk(s, reader, x, n);
        x += n * reader->size;
        length -= n;
    }
}

/* With more bins than 16 bits tell. Then it is the counters' cache misses that bind. */
static inline __attribute__((always_inline)) void add_wide(struct state *s, const struct reader *reader, const unsigned char *x,
                                                           size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const hist_vec v = hist_abs(&s->rule, reader->load(x + i * reader->size));
        uint32_t bin[LANES];
        hist_store_wide(bin, hist_bins(&s->rule, hist_place(&s->rule, v)));
        for (uint32_t inside = hist_inside(&s->rule, v); inside; inside &= inside - 1)
            count(s->even, bin[__builtin_ctz(inside)]);
        see_lanes(s, v);
    }
    add_elements(reader->load_one, reader->size, s->binning, x + i * reader->size, n - i, s->even, s->extrema);
}

static inline __attribute__((always_inline)) void add_runs(const struct reader reader, const struct qobs_binning *binning,
                                                           const unsigned char *x, ptrdiff_t run_stride, size_t runs,
                                                           size_t length, uint32_t *counters, struct qobs_extrema *extrema)
{
    struct pending one, other;
    float rest[2 * CHUNK + LANES];
    one.n = other.n = 0;
    struct state s = {.binning = binning,
                      .rule = hist_rule_of(binning),
                      .even = counters,
                      .odd = counters + qobs_counter_stride(binning->bins),
                      .extrema = extrema,
                      .min = hist_splat(extrema->min),
                      .max = hist_splat(extrema->max),
                      .rest = rest,
                      .found = &one,
                      .before = &other};
    for (size_t i = 0; i < runs; i++)
        if (binning->bins <= UINT16_MAX + 1)
            add_run(&s, &reader, x + (ptrdiff_t)i * run_stride, length);
        else
            add_wide(&s, &reader, x + (ptrdiff_t)i * run_stride, length);
    if (s.left > 0)
        add_rest(&s);
    count_pending(&s, s.before);
    float min[LANES], max[LANES];
    hist_store_floats(min, s.min);
    hist_store_floats(max, s.max);
    for (size_t i = 0; i < LANES; i++)
        see(extrema, min[i], max[i]);
}

QOBS_HISTOGRAM_ROWS(ENTRY(qobs_histogram_rows_f32))
{
    add_runs(READER(f32, 4, AHEAD, AHEAD), binning, x, run_stride, runs, length, counters, extrema);
}

QOBS_HISTOGRAM_ROWS(ENTRY(qobs_histogram_rows_bf16))
{
    add_runs(READER(bf16, 2, AHEAD, AHEAD), binning, x, run_stride, runs, length, counters, extrema);
}

QOBS_HISTOGRAM_ROWS(ENTRY(qobs_histogram_rows_f16))
{
    add_runs(READER(f16, 2, AHEAD, AHEAD), binning, x, run_stride, runs, length, counters, extrema);
}

QOBS_HISTOGRAM_ROWS(ENTRY(qobs_histogram_rows_f64))
{
    add_runs(READER(f64, 8, AHEAD, AHEAD - 512), binning, x, run_stride, runs, length, counters, extrema);
}
