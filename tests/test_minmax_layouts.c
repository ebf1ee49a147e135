/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Minimum and maximum of tensors in every memory layout: random dtypes, shapes, strides, alignments and granularities,
 * on every usable instruction set and with 1, 2 and 7 threads, against one loop over the elements that finds each
 * element's qparam from its indices. A range has one right answer, so every comparison is of bits.
 *
 *     test_minmax_layouts [SEED [CASE]]     only that case of each test
 */
#include "unit.h"

#include <math.h>

#include "layouts.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "repeats.h"
#include "threads.h"
#include "calls.h"

static uint64_t seed = 1;
static int64_t only = -1;

/* ---- Granularities ----------------------------------------------------------------------------------------------- */

enum side { WEIGHT, ACTIVATION, ATTENTION };
enum strategy { TENSOR, CHANNEL, GROUP, TENSOR_GROUP, BLOCK, TOKEN, ATTN_HEAD };

static const char *const strategy_names[] = {"tensor", "channel", "group",    "tensor_group",
                                             "block",  "token",   "attn_head"};

struct granularity {
    bool torch;
    const char *preset, *base_name;
    enum side side;
    enum strategy strategy;
    bool inferred;    /* the strategy follows from the group size */
    int64_t piece[2]; /* group size, or height and width of a block */
    bool ragged, older;
    const char *nonfinite;
    bool has_g_idx;
    int64_t *group_of; /* each column's, where g_idx says so */
};

static bool grouped(const struct granularity *g) { return g->strategy == GROUP || g->strategy == TENSOR_GROUP; }

/* Draws a granularity and a number of dimensions that go together. */
static void draw_granularity(struct rng *r, struct granularity *g, int *ndim)
{
    static const char *const presets[] = {"llmc.memoryless_minmax", "llmc.static_minmax", "llmc.minmax",
                                          "torch.MinMaxObserver", "torch.MovingAverageMinMaxObserver"};
    static const char *const modes[] = {"refuse", "ignore", "propagate"};
    static const char *const bases[][3] = {
        {"weight", "weight", "weight"}, {"input", "output", "input"}, {"q", "k", "v"}};
    static const enum strategy of_side[3][6] = {{TENSOR, CHANNEL, GROUP, TENSOR_GROUP, BLOCK, BLOCK},
                                                {TENSOR, TOKEN, GROUP, TENSOR_GROUP, TENSOR, GROUP},
                                                {TENSOR, ATTN_HEAD, TENSOR, ATTN_HEAD, TENSOR, ATTN_HEAD}};
    const int64_t preset = chance(r, 85) ? between(r, 0, 2) : between(r, 3, 4);
    *g = (struct granularity){.torch = preset > 2, .preset = presets[preset], .nonfinite = modes[between(r, 0, 2)]};
    g->older = !g->torch && chance(r, 25);
    g->side = (enum side)(chance(r, 50) ? WEIGHT : chance(r, 70) ? ACTIVATION : ATTENTION);
    g->base_name = bases[g->side][between(r, 0, 2)];
    g->strategy = g->torch ? TENSOR : of_side[g->side][between(r, 0, 5)];
    if (g->older && g->strategy == ATTN_HEAD)
        g->strategy = TENSOR;
    g->inferred = (g->strategy == TENSOR || g->strategy == CHANNEL || g->strategy == GROUP) && chance(r, 20);
    g->ragged = g->side == WEIGHT && grouped(g) && chance(r, 40);
    g->has_g_idx = g->side == WEIGHT && grouped(g) && chance(r, 40);
    const bool matrix = g->strategy == BLOCK && !g->torch;
    const bool rows = g->side == ACTIVATION && g->strategy != TENSOR;
    *ndim = matrix ? 2 : g->side == ATTENTION && !g->torch ? 4 : (int)between(r, rows ? 2 : 1, DIMS);
}

/* Sizes that fit: group sizes divide unless ragged, blocks in the older version. */
static void draw_shape(struct rng *r, struct granularity *g, struct tensor *t, int64_t elements)
{
    const int last = t->ndim - 1, wide = chance(r, 50) ? 0 : (int)between(r, 0, last); /* which takes what is left */
    int64_t left = elements;
    t->shape[wide] = 1;
    for (int d = 0; d < t->ndim; d++) {
        const int64_t most = d == last ? 20 + elements / 100 : 5 + elements / 1000;
        if (d != wide)
            t->shape[d] = between(r, 1, most < left ? most : left);
        left /= t->shape[d];
    }
    t->shape[wide] = between(r, left / 2 + 1, left + 1);
    for (int i = 0; i < 2; i++) {
        const int64_t whole = t->shape[g->strategy == BLOCK && i == 0 ? 0 : last];
        g->piece[i] = between(r, 1, chance(r, 50) ? 9 : chance(r, 90) ? 40 : whole);
        if (g->piece[i] > whole && (elements > 10000 || chance(r, 50)))
            g->piece[i] = whole;
    }
    for (int d = 0; d <= last; d++) {
        const int64_t piece = g->piece[grouped(g) ? 0 : d & 1];
        if (grouped(g) ? d == last && !g->ragged : g->strategy == BLOCK && (g->older || chance(r, 30)))
            t->shape[d] = (t->shape[d] + piece - 1) / piece * piece;
    }
}

/* How many pieces the last dimension has. */
static int64_t groups_of(const struct granularity *g, const struct tensor *t)
{
    return (t->shape[t->ndim - 1] + g->piece[0] - 1) / g->piece[0];
}

/* The first dimension that has scales of its own. */
static int first_kept(const struct granularity *g) { return g->side == WEIGHT ? 0 : g->strategy == TOKEN ? 1 : 2; }

static int heads_dimension(const struct granularity *g) { return g->older ? 2 : 1; }

static int64_t qparam_of(const struct granularity *g, const struct tensor *t, const int64_t *at)
{
    const int last = t->ndim - 1;
    int64_t q = 0;
    switch (g->strategy) {
    case TENSOR:
        return 0;
    case BLOCK:
        return at[0] / g->piece[0] * ((t->shape[1] + g->piece[1] - 1) / g->piece[1]) + at[1] / g->piece[1];
    case ATTN_HEAD:
        return at[heads_dimension(g)];
    default:
        for (int d = first_kept(g); d < last; d++)
            q = q * t->shape[d] + at[d];
        return grouped(g) ? q * groups_of(g, t) + (g->group_of ? g->group_of[at[last]] : at[last] / g->piece[0]) : q;
    }
}

/* The shape of the scale; returns its number of dimensions. */
static int qparam_shape(const struct granularity *g, const struct tensor *t, int64_t *shape)
{
    int n = 0;
    switch (g->strategy) {
    case TENSOR:
        shape[n++] = 1;
        return g->torch ? 0 : n;
    case BLOCK:
        for (; n < 2; n++)
            shape[n] = (t->shape[n] + g->piece[n] - 1) / g->piece[n];
        return n;
    case ATTN_HEAD:
        shape[0] = t->shape[heads_dimension(g)];
        shape[1] = shape[2] = 1;
        return 3;
    default:
        for (int d = first_kept(g); d < t->ndim - 1; d++)
            shape[n++] = t->shape[d];
        if (grouped(g))
            shape[n++] = groups_of(g, t);
        else if (g->strategy == CHANNEL)
            shape[n++] = 1;
        return n;
    }
}

/* As many numbers as there are groups, each at least once, with gaps between them; by counting, the how-manieth each
 * is. */
static void draw_ragged_groups(struct rng *r, int64_t n, int64_t groups, int64_t *group, int64_t *group_of)
{
    const int64_t first = between(r, 0, n - groups);
    for (int64_t i = 0; i < n; i++)
        group[i] = i < groups ? i : between(r, 0, groups - 1);
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t other = between(r, 0, i), kept = group[i];
        group[i] = group[other];
        group[other] = kept;
    }
    for (int64_t i = 0; i < n; i++) {
        group_of[i] = group[i];
        group[i] += group[i] < groups / 2 ? 0 : first;
    }
}

/* A g_idx for t's columns with repeats, at times not initialised; and the group of each column: for ragged groups the
 * number's rank, else by counting what comes before each column, where a stable sort puts it. */
static void draw_g_idx(struct rng *r, struct granularity *g, const struct tensor *t, struct tensor *index)
{
    static const struct dtype integers[] = {{QOBS_I32, 4, 0, 0}, {QOBS_I64, 8, 0, 0}};
    const int64_t n = t->shape[t->ndim - 1];
    int64_t *group = malloc((size_t)n * sizeof *group);
    *index = (struct tensor){.dtype = &integers[between(r, 0, 1)], .ndim = 1, .shape = {n}};
    lay_out(r, index);
    if (index->strides[0] == 0)
        index->strides[0] = (int64_t)index->dtype->size,
        index->data = index->memory = realloc(index->memory, (size_t)n * 8);
    g->group_of = malloc((size_t)n * sizeof *g->group_of);
    const int64_t most = chance(r, 50) ? (n - 1) / 3 : n - 1;
    bool initialised = true;
    if (g->ragged)
        draw_ragged_groups(r, n, groups_of(g, t), group, g->group_of);
    else
        for (int64_t i = 0; i < n; i++)
            group[i] = between(r, 0, most);
    if (chance(r, g->ragged && g->older ? 0 : 15)) {
        group[between(r, 0, n - 1)] = -1;
        initialised = g->older;
    }
    for (int64_t i = 0; i < n; i++) {
        const int32_t narrow = (int32_t)group[i];
        memcpy(index->data + i * index->strides[0], index->dtype->size == 4 ? (void *)&narrow : (void *)&group[i],
               index->dtype->size);
        int64_t place = initialised ? 0 : i;
        for (int64_t j = 0; initialised && j < n; j++)
            place += group[j] < group[i] || (group[j] == group[i] && j < i);
        if (!g->ragged || !initialised)
            g->group_of[i] = place / g->piece[0];
    }
    free(group);
}

static qobs_config *make_config(const struct granularity *g)
{
    const bool block = g->strategy == BLOCK, implied_channel = g->inferred && g->strategy == CHANNEL;
    char size[32], blocks[64];
    snprintf(size, sizeof size, "%lld", implied_channel ? -1LL : (long long)g->piece[0]);
    snprintf(blocks, sizeof blocks, "[%lld, %lld]", (long long)g->piece[0], (long long)g->piece[1]);
    const char *const settings[][2] = {{"base_name", g->base_name},
                                       {"nonfinite", g->nonfinite},
                                       {"strategy", g->inferred || g->torch ? NULL : strategy_names[g->strategy]},
                                       {"group_size", grouped(g) || implied_channel ? size : NULL},
                                       {"block_structure", block ? blocks : NULL},
                                       {"dynamic", g->strategy == TOKEN ? "true" : NULL},
                                       {"ragged", g->ragged ? "true" : NULL},
                                       {"version", g->older ? "\"2025-10\"" : NULL}};
    qobs_config *config;
    qobs_error error;
    assert_int_equal(qobs_config_create(&config, g->preset, NULL, &error), QOBS_OK);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i][1] && qobs_config_set(config, settings[i][0], settings[i][1], &error) != QOBS_OK) {
            print_error("%s\n", error.message);
            fail();
        }
    return config;
}

/* ---- What is expected -------------------------------------------------------------------------------------------- */

struct expected {
    int ndim;
    int64_t shape[QOBS_MAX_NDIM], qparams;
    uint64_t *min, *max; /* bits */
    qobs_counts counts;
    char place[128]; /* of the first element that is not finite */
};

static void merge(struct expected *e, const struct dtype *d, int64_t q, uint64_t bits, bool *seen)
{
    const double value = value_of(d, bits), quant_min = value_of(d, e->min[q]), quant_max = value_of(d, e->max[q]);
    if (!seen[q] || isnan(value))
        e->min[q] = e->max[q] = bits;
    else if (!isnan(quant_min)) {
        e->min[q] = value < quant_min ? bits : e->min[q];
        e->max[q] = value > quant_max ? bits : e->max[q];
    }
    seen[q] = true;
}

/* Which blocks are short of elements: those are filled up with zeros. */
static void merge_padding(struct expected *e, const struct granularity *g, const struct tensor *t, bool *seen)
{
    for (int64_t i = 0; i < e->shape[0]; i++)
        for (int64_t j = 0; j < e->shape[1]; j++)
            if ((i + 1) * g->piece[0] > t->shape[0] || (j + 1) * g->piece[1] > t->shape[1])
                merge(e, t->dtype, i * e->shape[1] + j, 0, seen);
}

/* `as_f32`: what a float cannot hold counts as infinite. */
static struct expected expect(const struct granularity *g, const struct tensor *t, bool as_f32)
{
    struct expected e = {.qparams = 1, .counts = {.struct_size = sizeof e.counts, .batches = 1}};
    e.counts.tokens = t->ndim == 2 ? (uint64_t)t->shape[0] : 0;
    const uint64_t minus_zero = UINT64_C(1) << (t->dtype->mantissa + t->dtype->exponent);
    e.ndim = qparam_shape(g, t, e.shape);
    for (int d = 0; d < e.ndim; d++)
        e.qparams *= e.shape[d];
    e.min = calloc((size_t)e.qparams, sizeof *e.min);
    e.max = calloc((size_t)e.qparams, sizeof *e.max);
    bool *seen = calloc((size_t)e.qparams, sizeof *seen);
    int64_t index[DIMS] = {0};
    do {
        const uint64_t bits = load_bits(t->dtype, address(t, index));
        const double value = value_of(t->dtype, bits);
        e.counts.elements++;
        if (!isfinite(value) || (as_f32 && isinf((float)value))) {
            int used = 0;
            for (int d = 0; d < t->ndim && e.counts.nan + e.counts.inf == 0; d++)
                used += snprintf(e.place + used, sizeof e.place - (size_t)used, "%s%lld", d ? ", " : "[",
                                 (long long)index[d]);
            e.counts.nan += isnan(value) != 0;
            e.counts.inf += isnan(value) == 0;
            if (*g->nonfinite == 'i')
                continue;
        }
        merge(&e, t->dtype, qparam_of(g, t, index), bits, seen);
    } while (step(t, index));
    if (g->strategy == BLOCK)
        merge_padding(&e, g, t, seen);
    for (int64_t q = 0; q < e.qparams; q++) {
        e.min[q] = e.min[q] == minus_zero ? 0 : e.min[q];
        e.max[q] = e.max[q] == minus_zero ? 0 : e.max[q];
    }
    free(seen);
    return e;
}

/* ---- Comparison -------------------------------------------------------------------------------------------------- */

static void describe(const char *test, int64_t number, const struct granularity *g, const struct tensor *t)
{
    print_error(
        "%s, repeat it with: test_minmax_layouts %llu %lld\n  %s, base name %s, strategy %s%s, sizes %lld and %lld, "
        "ragged %d, version 2025-10 %d, g_idx %d, nonfinite %s\n  %s",
        test, (unsigned long long)seed, (long long)number, g->preset, g->base_name, strategy_names[g->strategy],
        g->inferred ? " (inferred)" : "", (long long)g->piece[0], (long long)g->piece[1], g->ragged, g->older,
        g->has_g_idx, g->nonfinite, qobs_dtype_name(t->dtype->dtype));
    for (int d = 0; d < t->ndim; d++)
        print_error("%s%lld by %lld", d ? ", " : " of (size by stride) ", (long long)t->shape[d],
                    (long long)t->strides[d]);
    print_error("; misaligned by %d\n", (int)((uintptr_t)t->data % t->dtype->size));
}

static bool same_bits(const struct dtype *d, const struct expected *e, const void *min, const void *max)
{
    for (int64_t q = 0; q < e->qparams; q++)
        for (int i = 0; i < 2; i++) {
            const uint64_t want = i ? e->max[q] : e->min[q];
            const uint64_t got = load_bits(d, (const unsigned char *)(i ? max : min) + (size_t)q * d->size);
            if (got != want && !(isnan(value_of(d, got)) && isnan(value_of(d, want)))) {
                print_error("%s of qparam %lld is %.17g, expected %.17g\n", i ? "maximum" : "minimum", (long long)q,
                            value_of(d, got), value_of(d, want));
                return false;
            }
        }
    return true;
}

static bool same_counts(const qobs_counts *a, const qobs_counts *b)
{
    return a->batches == b->batches && a->elements == b->elements && a->nan == b->nan && a->inf == b->inf &&
           a->tokens == b->tokens && a->nonzero_tokens == b->nonzero_tokens;
}

/* torch keeps f32, whatever is observed. */
static bool same_f32(const struct dtype *d, const struct expected *e, const void *min, const void *max)
{
    float quant_min, quant_max;
    memcpy(&quant_min, min, sizeof quant_min);
    memcpy(&quant_max, max, sizeof quant_max);
    const double a = value_of(d, e->min[0]), b = value_of(d, e->max[0]);
    return isnan(a) ? isnan(quant_min) && isnan(quant_max) : quant_min == (float)a && quant_max == (float)b;
}

static bool check_observer(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                           const struct tensor *t, const struct granularity *g, const struct expected *e,
                           const qobs_runtime *runtime, void *min, void *max)
{
    qobs_observer *o;
    qobs_error error;
    qobs_result result = {.struct_size = sizeof result};
    qobs_counts counts = {.struct_size = sizeof counts};
    const size_t size = (size_t)e->qparams * (g->torch ? sizeof(float) : t->dtype->size);
    assert_int_equal(qobs_observer_create(&o, config, runtime, &error), QOBS_OK);
    if (*g->nonfinite == 'r' && e->counts.nan + e->counts.inf > 0) {
        const bool refused =
            qobs_observer_observe(o, value, g_idx, &error) == QOBS_ERROR_NONFINITE && strstr(error.message, e->place);
        qobs_observer_destroy(o);
        return refused;
    }
    bool good = qobs_observer_observe(o, value, g_idx, &error) == QOBS_OK &&
                qobs_observer_result_find(o, g->torch ? "min_val" : "min_vals", &result, &error) == QOBS_OK &&
                qobs_observer_read(o, g->torch ? "min_val" : "min_vals", min, size, &error) == QOBS_OK &&
                qobs_observer_read(o, g->torch ? "max_val" : "max_vals", max, size, &error) == QOBS_OK &&
                qobs_observer_counts(o, &counts, &error) == QOBS_OK;
    if (!good)
        print_error("observer: %s\n", error.message);
    else
        good = result.ndim == e->ndim && memcmp(result.shape, e->shape, (size_t)e->ndim * sizeof *e->shape) == 0 &&
               same_counts(&counts, &e->counts) &&
               (g->torch ? same_f32(t->dtype, e, min, max) : same_bits(t->dtype, e, min, max));
    qobs_observer_destroy(o);
    return good;
}

static bool check_refused(const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                          const struct expected *e, const qobs_runtime *runtime, void *min, void *max)
{
    qobs_error error;
    char want[192];
    snprintf(want, sizeof want, "%llu NaN and %llu infinite of %llu elements", (unsigned long long)e->counts.nan,
             (unsigned long long)e->counts.inf, (unsigned long long)e->counts.elements);
    if (call_minmax(config, value, g_idx, min, max, NULL, runtime, &error) == QOBS_ERROR_NONFINITE &&
        strstr(error.message, want) && strstr(error.message, e->place))
        return true;
    print_error("refused with '%s', expected %s at %s\n", error.message, want, e->place);
    return false;
}

static bool check_all(const struct granularity *g, const struct tensor *t, const struct tensor *index)
{
    qobs_config *config = make_config(g);
    const qobs_tensor value = view_of(t), columns = g->has_g_idx ? view_of(index) : value;
    const qobs_tensor *g_idx = g->has_g_idx ? &columns : NULL;
    struct expected e = expect(g, t, false), observed = expect(g, t, g->torch);
    const size_t size = (size_t)e.qparams * t->dtype->size; /* torch: one number, for which there is room enough */
    void *min = malloc(size > 4 ? size : 4), *max = malloc(size > 4 ? size : 4);
    const bool refused = *g->nonfinite == 'r' && e.counts.nan + e.counts.inf > 0;
    bool good = true;
    for (size_t i = 0; good && select_isa(&i); i++) {
        qobs_error error;
        for (size_t threads = 1; good && threads <= 7; threads += threads == 1 ? 1 : 5) {
            const qobs_executor executor = {
                .struct_size = sizeof executor, .threads = threads, .parallel_for = parallel_for, .context = &threads};
            const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = &executor};
            qobs_counts counts = {.struct_size = sizeof counts};
            if (refused)
                good = check_refused(config, &value, g_idx, &e, &runtime, min, max);
            else if (call_minmax(config, &value, g_idx, min, max, &counts, &runtime, &error) != QOBS_OK)
                good = (print_error("%s\n", error.message), false);
            else
                good = same_counts(&counts, &e.counts) && same_bits(t->dtype, &e, min, max) &&
                       check_observer(config, &value, g_idx, t, g, &observed, &runtime, min, max);
            if (!good)
                print_error("%s with %zu threads:\n", qobs_isa_name(i), threads);
        }
    }
    qobs_isa_select(NULL, NULL);
    free(min);
    free(max);
    free(e.min);
    free(e.max);
    free(observed.min);
    free(observed.max);
    qobs_config_destroy(config);
    return good;
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static struct rng rng_of(int64_t number, uint64_t stream)
{
    struct rng r = {seed ^ stream << 56};
    r.state = next(&r) + (uint64_t)number * UINT64_C(0x2545f4914f6cdd1d);
    return r;
}

static void draw_case(struct rng *r, struct granularity *g, struct tensor *t, struct tensor *index, int64_t elements)
{
    *t = (struct tensor){.dtype = &dtypes[between(r, 0, 3)]};
    *index = (struct tensor){0};
    draw_granularity(r, g, &t->ndim);
    draw_shape(r, g, t, elements);
    lay_out(r, t);
    fill_elements(r, t, chance(r, 70) ? 0 : chance(r, 50) ? (int)between(r, 1, 3) : 90);
    g->has_g_idx = g->has_g_idx && t->shape[t->ndim - 1] <= 5000;
    if (g->has_g_idx)
        draw_g_idx(r, g, t, index);
}

static void free_case(struct granularity *g, struct tensor *t, struct tensor *index)
{
    free(g->group_of);
    free(t->memory);
    free(index->memory);
}

static void run(const char *test, int64_t number, struct rng *r, int64_t elements)
{
    struct granularity g;
    struct tensor t, index;
    draw_case(r, &g, &t, &index, elements);
    const bool good = check_all(&g, &t, &index);
    if (!good)
        describe(test, number, &g, &t);
    free_case(&g, &t, &index);
    assert_true(good);
}

static void test_small(void **state)
{
    for (int64_t i = 0; i < repeats(125, 2000); i++) {
        struct rng r = rng_of(i, 1);
        if (only < 0 || only == i)
            run("small", i, &r, between(&r, 1, 4000));
    }
}

/* Large enough to be cut for threads. */
static void test_big(void **state)
{
    atomic_store(&loops, 0);
    const int cases = repeats(4, 40);
    for (int64_t i = 0; i < cases; i++) {
        struct rng r = rng_of(i, 2);
        if (only < 0 || only == i)
            run("big", i, &r, between(&r, 100000, 600000));
    }
    if (only < 0)
        assert_in_range(atomic_load(&loops), cases, 1000 * cases);
}

/* The shapes of real work: weights whose outermost dimension is kept, activations whose outermost dimension is reduced;
 * contiguous, with gaps between rows, and transposed. */
static void test_usual(void **state)
{
    static const struct {
        const char *base_name;
        enum side side;
        enum strategy strategy;
        int64_t piece[2], shape[3];
    } usual[] = {
        {"weight", WEIGHT, CHANNEL, {0, 0}, {700, 801, 0}},
        {"weight", WEIGHT, GROUP, {128, 0}, {520, 1024, 0}},
        {"weight", WEIGHT, TENSOR, {0, 0}, {520, 1024, 0}},
        {"weight", WEIGHT, BLOCK, {128, 128}, {700, 900, 0}},
        {"weight", WEIGHT, CHANNEL, {0, 0}, {6, 300, 311}},
        {"input", ACTIVATION, TENSOR, {0, 0}, {4100, 130, 0}},
        {"input", ACTIVATION, GROUP, {128, 0}, {2050, 256, 0}},
        {"input", ACTIVATION, TENSOR_GROUP, {16, 0}, {1025, 512, 0}},
        {"output", ACTIVATION, GROUP, {32, 0}, {3, 700, 256}},
        {"input", ACTIVATION, TOKEN, {0, 0}, {9, 120, 512}},
        {"weight", WEIGHT, BLOCK, {128, 128}, {700, 896, 0}},
        {"weight", WEIGHT, BLOCK, {100, 40}, {460, 4000, 0}},
        {"weight", WEIGHT, BLOCK, {64, 32}, {300, 64, 0}},
    };
    for (int64_t i = 0; i < (int64_t)(sizeof usual / sizeof *usual) * 3; i++) {
        if (only >= 0 && only != i)
            continue;
        const size_t u = (size_t)i / 3;
        if (only < 0 && i % 3 != (int64_t)u % 3 && !repeats(0, 1)) /* a layout of each */
            continue;
        struct rng r = rng_of(i, 3);
        struct granularity g = {.preset = "llmc.memoryless_minmax",
                                .base_name = usual[u].base_name,
                                .side = usual[u].side,
                                .strategy = usual[u].strategy,
                                .piece = {usual[u].piece[0], usual[u].piece[1]},
                                .nonfinite = "refuse"};
        struct tensor t = {.dtype = &dtypes[between(&r, 0, 3)], .ndim = usual[u].shape[2] ? 3 : 2}, none = {0};
        const int64_t element = (int64_t)t.dtype->size, *n = usual[u].shape;
        memcpy(t.shape, n, sizeof usual[u].shape);
        const int64_t rows = n[0] * (t.ndim == 3 ? n[1] : 1), columns = t.shape[t.ndim - 1], pad = i % 3 == 1 ? 7 : 0;
        t.strides[t.ndim - 1] = i % 3 == 2 ? rows * element : element;
        t.strides[t.ndim - 2] = i % 3 == 2 ? element : (columns + pad) * element;
        if (t.ndim == 3)
            t.strides[0] = n[1] * t.strides[1];
        t.elements = rows * columns;
        t.memory = t.data = malloc((size_t)(rows * (columns + pad) * element));
        memset(t.memory, 0xff, (size_t)(rows * (columns + pad) * element));
        fill_elements(&r, &t, 0);
        bool good = check_all(&g, &t, &none);
        if (good && g.strategy == BLOCK) { /* rows of nothing but NaN */
            g.nonfinite = "ignore";
            for (int64_t at = 0; at < t.elements; at++)
                if (at / columns % 3 == 1)
                    put_bits(address(&t, (int64_t[]){at / columns, at % columns}), draw_nonfinite(&r, t.dtype, 100),
                             t.dtype->size);
            good = check_all(&g, &t, &none);
        }
        if (!good)
            describe("usual", i, &g, &t);
        free(t.memory);
        assert_true(good);
    }
}

/* The flattened copy depends on the elements, not on where they lie. */
static void test_copies(void **state)
{
    for (int64_t i = 0; i < repeats(50, 1000); i++) {
        struct rng r = rng_of(i, 4);
        struct granularity g;
        struct tensor t, index, plain;
        if (only >= 0 && only != i)
            continue;
        draw_case(&r, &g, &t, &index, between(&r, 1, 2000));
        plain = t;
        plain.plain = true;
        unsigned char *at = plain.memory = plain.data = malloc((size_t)t.elements * t.dtype->size);
        int64_t position[DIMS] = {0}, shape[2][QOBS_PLAN_MAX_NDIM];
        do {
            memcpy(at, address(&t, position), t.dtype->size);
            at += t.dtype->size;
        } while (step(&t, position));

        qobs_config *config = make_config(&g);
        const qobs_tensor views[2] = {view_of(&t), view_of(&plain)}, columns = g.has_g_idx ? view_of(&index) : views[0];
        unsigned char *copy[2];
        size_t size = t.dtype->size;
        for (int k = 0; k < 2; k++) {
            qobs_plan *plan;
            qobs_error error;
            assert_int_equal(qobs_plan_create(&plan, config, &views[k], g.has_g_idx ? &columns : NULL, NULL, &error),
                             QOBS_OK);
            const int ndim = qobs_plan_shape(plan, shape[k], sizeof shape[k]);
            for (int d = 0; k == 0 && !g.ragged && d < ndim; d++)
                size *= (size_t)shape[k][d];
            size = g.ragged ? (size_t)t.elements * t.dtype->size : size;
            copy[k] = malloc(size);
            assert_int_equal(qobs_plan_copy(plan, &views[k], copy[k], size, &error), QOBS_OK);
            qobs_plan_destroy(plan);
        }
        const bool good = memcmp(copy[0], copy[1], size) == 0;
        if (!good)
            describe("copies", i, &g, &t);
        free(copy[0]);
        free(copy[1]);
        free(plain.memory);
        qobs_config_destroy(config);
        free_case(&g, &t, &index);
        assert_true(good);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_big),
        cmocka_unit_test(test_usual),
        cmocka_unit_test(test_copies),
    };
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 0);
    if (argc > 2)
        only = strtoll(argv[2], NULL, 0);
    make_f16_values();
    return cmocka_run_group_tests_name("minmax layouts", tests, NULL, NULL) != 0;
}
