/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Range search's kernels: every usable instruction set against the scalar one, bit for bit, between no-access pages;
 * the scalar one against double; candidates against the formula; and the whole search by 1, 2 and 7 threads.
 *
 *   test_search_kernels [GROUPS]    random groups a format, by default 200 or 10000 (repeats.h)
 */
#include <float.h>
#include <math.h>

#include "base/tensor.h"
#include "check/exercised.h"
#include "check/memory.h"
#include "check/upper_halves.h"
#include "config/resolve.h"
#include "stages/formula.h"
#include "quantize/qparam_view.h"
#include "kernels/dispatch.h"
#include "number/convert.h"
#include "number/format.h"
#include "number/number.h"
#include "qobs/format.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "repeats.h"
#include "search/grid_search.h"
#include "search/search_errors.h"
#include "threads.h"
#include "calls.h"
#include "unit.h"

enum { MOST = 1024, CANDIDATES = 112 };

static int groups;

static uint64_t state = 20261120;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double uniform(void) { return (double)(draw() >> 11) * 0x1p-53; }

static float gauss(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform();
    return (float)sum;
}

static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bits_of_float(a[i]) != bits_of_float(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* ---- Formats and norms ------------------------------------------------------------------------------------------- */

static const struct target {
    const char *name;
    int bits; /* of integers; 0: the format of that name */
    bool zero_point;
} targets[] = {
    {"int2", 2, false},           {"int3", 3, true},      {"int4", 4, false},     {"int4 asymmetric", 4, true},
    {"int5", 5, false},           {"int6", 6, true},      {"int7", 7, false},     {"int8", 8, false},
    {"int8 asymmetric", 8, true}, {"int16", 16, true},    {"fp4_e2m1", 0, false}, {"fp6_e2m3", 0, false},
    {"fp6_e3m2", 0, false},       {"fp8_e4m3", 0, false}, {"fp8_e4m3", 0, true},  {"fp8_e5m2", 0, false},
};

#ifdef QOBS_SLEEF
static const double norms[] = {2, 2.4, 1, 3, 2.7, 0.4, 4, 4.2, 6.5, 1.5};
#else
static const double norms[] = {2, 2.4, 1, 3};
#endif

static struct quantizer quantizer_of(const struct target *t)
{
    struct quantizer q;
    if (t->bits)
        qobs_quantizer_for_integers(&q, -(INT64_C(1) << (t->bits - 1)), (INT64_C(1) << (t->bits - 1)) - 1, false);
    else
        qobs_quantizer_for_format(&q, qobs_format_find(t->name));
    return q;
}

/* A group of magnitudes below 0.5, candidates for it, and weights, each between no-access pages. */
struct group {
    size_t n, candidates;
    bool weighted, shifted;
    float *x, *weight, *scale, *inverse, *shift;
};

static struct arena arenas[5];

static size_t padded(size_t n) { return (n + 15) / 16 * 16; }

static float *place(int which, size_t n)
{
    return (float *)(void *)arena_place(&arenas[which], padded(n) * sizeof(float), true, 0);
}

static void make_group(struct group *g, const struct target *t, size_t n, size_t candidates)
{
    const struct quantizer q = quantizer_of(t);
    const bool integers = t->bits != 0;
    const int kind = (int)(draw() % 8);
    g->n = n;
    g->candidates = candidates;
    g->shifted = t->zero_point;
    g->weighted = (g->shifted && !integers) || draw() % 3 == 0;
    g->x = place(0, n);
    g->weight = place(1, n);
    g->scale = place(2, candidates);
    g->inverse = place(3, candidates);
    g->shift = place(4, candidates);
    float amax = 0;
    for (size_t i = 0; i < padded(n); i++) {
        g->x[i] = i >= n || (kind == 1 && draw() % 2) ? 0 : gauss() * (kind == 2 && draw() % 16 == 0 ? 30 : 1);
        g->weight[i] = i >= n ? 0 : g->weighted && draw() % 8 ? (float)uniform() * 3 : 1;
        amax = fmaxf(amax, fabsf(g->x[i]));
    }
    for (size_t i = 0; i < n; i++)
        g->x[i] *= amax > 0 ? 0.499f / amax : 0;
    for (size_t c = 0; c < padded(candidates); c++) {
        const double p = 1.8 - 1.75 * (double)c / (double)padded(candidates);
        g->scale[c] = (float)(p * 0.5 / (t->zero_point ? (q.quant_max - q.quant_min) / 2 : q.quant_max + 0.5));
        g->scale[c] = kind == 3 ? exp2f(floorf(log2f(g->scale[c]))) : kind == 4 ? g->scale[c] * 1e-20f : g->scale[c];
        const float zero_point = !t->zero_point ? 0
                                 : integers     ? (float)floor(q.quant_min + uniform() * (q.quant_max - q.quant_min))
                                                : (float)(draw() % 17) - 8;
        qobs_search_candidate(integers, g->scale[c], zero_point, &g->inverse[c], &g->shift[c]);
    }
    if (kind == 5 && integers && !t->zero_point) /* numbers the first candidate has, exactly */
        for (size_t i = 0; i < n; i++)
            g->x[i] =
                rintf(fmaxf((float)q.quant_min, fminf((float)q.quant_max, g->x[i] * g->inverse[0]))) * g->scale[0];
}

static void run_kernel(const struct kernel_table *k, const struct target *t, const struct group *g,
                       const struct search_norm *norm, float *sum)
{
    const struct quantizer q = quantizer_of(t);
    const struct search_candidates candidates = {g->scale, g->inverse, g->shift, 1};
    const unsigned char *const x = (const unsigned char *)g->x;
    CALL(k, search_errors)
    (&q, &norm->errors, g->shifted, g->x, g->weighted ? g->weight : NULL, g->n, &candidates,
     (g->candidates + 3) / 4 * 4, (struct prefetch_ahead){x, x + g->n * sizeof *g->x}, sum);
    check_upper_halves(k->isa, "search_errors");
}

/* The norm of a round of tests, made once. */
static struct search_norm *norm_of(int i, double *value)
{
    static struct search_norm made[sizeof norms / sizeof *norms];
    const size_t which = (size_t)i % (sizeof norms / sizeof *norms);
    *value = norms[which];
    if (made[which].errors.value == 0)
        assert_int_equal(qobs_search_norm(&made[which], *value, NULL), QOBS_OK);
    return &made[which];
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

/* The same in double, from the same scale and zero point. */
static double slow_error(const struct target *t, const struct group *g, double norm, size_t c)
{
    const struct quantizer q = quantizer_of(t);
    const double zero_point = (double)(t->bits ? g->shift[c] - 0x1.8p23f : g->shift[c]);
    double sum = 0;
    for (size_t i = 0; i < g->n; i++) {
        const double v = (double)g->x[i] * (double)g->inverse[c] + zero_point;
        const double limited = fmax(q.quant_min, fmin(q.quant_max, v));
        const double rounded =
            t->bits ? nearbyint(limited) : (double)qobs_format_round(qobs_format_find(t->name), (float)limited, true);
        const double e = fabs((double)g->x[i] - (rounded - zero_point) * (double)g->scale[c]);
        sum += (g->weighted ? (double)g->weight[i] : 1) * (e == 0 ? 0 : pow(e, norm));
    }
    return sum;
}

static void check_against_double(const struct target *t, const struct group *g, const struct search_norm *norm,
                                 double value, const float *sum)
{
    for (size_t c = 0; c < g->candidates; c += 7) {
        const double got = (double)sum[c] * qobs_search_error_unit(norm, 0), expected = slow_error(t, g, value, c);
        /* below: differences that are what rounding them to float leaves; int16's errors are near that */
        const double noise = (double)g->n * pow(t->bits == 16 ? 0x1p-22 : 0x1p-25, value);
        if (fabs(got - expected) > 2e-6 * expected + noise * 8) {
            fprintf(stderr, "%s, norm %g, n %zu, candidate %zu: %.9g, expected %.9g\n", t->name, value, g->n, c, got,
                    expected);
            fail();
        }
    }
}

static void test_errors(void **unused)
{
    _Alignas(64) static float expected[CANDIDATES], got[CANDIDATES];
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++)
        for (int i = 0; i < groups; i++) {
            double value;
            const struct search_norm *norm = norm_of(i, &value);
            struct group g;
            const size_t n = i < 700 ? (size_t)i % 70 + 1 : i % 100 == 0 ? draw() % MOST + 1 : draw() % 40 + 1;
            make_group(&g, &targets[t], n, i % 5 == 0 ? draw() % CANDIDATES + 1 : 20);
            const size_t count = (g.candidates + 3) / 4 * 4;
            run_kernel(&qobs_kernels_scalar, &targets[t], &g, norm, expected);
            check_against_double(&targets[t], &g, norm, value, expected);
            if (targets[t].bits && !g.shifted) { /* zero points of 0 are zero points like others */
                g.shifted = true;
                run_kernel(&qobs_kernels_scalar, &targets[t], &g, norm, got);
                assert_true(same(got, expected, g.candidates));
                g.shifted = false;
            }
            for (size_t k = 0; qobs_kernel_tables[k]; k++) {
                if (!qobs_kernel_tables[k]->usable() || qobs_kernel_tables[k] == &qobs_kernels_scalar)
                    continue;
                run_kernel(qobs_kernel_tables[k], &targets[t], &g, norm, got);
                if (!same(expected, got, count)) {
                    fprintf(stderr, "%s: %s, norm %g, n %zu\n", qobs_kernel_tables[k]->isa, targets[t].name, value, n);
                    fail();
                }
            }
        }
}

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

enum { LANES = QOBS_SEARCH_LANES };

/* Groups of the same kind side by side, from kinds of elements that differ. */
struct batch {
    size_t row, n, candidates;
    bool weighted, shifted;
    float *x, *weight, *scale, *inverse, *shift;
};

static void make_batch(struct batch *b, const struct target *t, size_t n, size_t candidates)
{
    static float kept[3][CANDIDATES * LANES], x[2][QOBS_SEARCH_FEW * LANES];
    const size_t row = n + draw() % (QOBS_SEARCH_FEW - n + 1), padded_row = padded(row),
                 count = (candidates + 3) / 4 * 4;
    for (size_t lane = 0; lane < LANES; lane++) {
        struct group g;
        const size_t some = draw() % 4 ? n : draw() % n + 1;
        make_group(&g, t, some, candidates);
        b->weighted = lane == 0 ? g.weighted : b->weighted;
        b->shifted = g.shifted;
        for (size_t i = 0; i < padded_row; i++) {
            x[0][lane * padded_row + i] = i < some ? g.x[i] : 0;
            x[1][lane * padded_row + i] = i >= some ? 0 : b->weighted && !g.weighted ? 1 : g.weight[i];
        }
        for (size_t c = 0; c < count; c++) {
            kept[0][c * LANES + lane] = g.scale[c];
            kept[1][c * LANES + lane] = g.inverse[c];
            kept[2][c * LANES + lane] = g.shift[c];
        }
    }
    b->row = padded_row;
    b->n = n;
    b->candidates = candidates;
    float **const arrays[] = {&b->x, &b->weight, &b->scale, &b->inverse, &b->shift};
    for (int i = 0; i < 5; i++) {
        const size_t floats = i < 2 ? padded_row * LANES : count * LANES;
        *arrays[i] = place(i, floats);
        memcpy(*arrays[i], i < 2 ? x[i] : kept[i - 2], floats * sizeof(float));
    }
}

static void run_batch(const struct kernel_table *k, const struct target *t, const struct batch *b,
                      const struct search_norm *norm, float *sum)
{
    const struct quantizer q = quantizer_of(t);
    const struct search_candidates candidates = {b->scale, b->inverse, b->shift, LANES};
    const unsigned char *const x = (const unsigned char *)b->x;
    CALL(k, search_batch)
    (&q, &norm->errors, b->shifted, b->x, b->weighted ? b->weight : NULL, b->row, b->n, &candidates,
     (b->candidates + 3) / 4 * 4, (struct prefetch_ahead){x, x + b->row * sizeof *b->x}, sum);
}

/* One qparam of a batch. */
static struct group group_of(const struct batch *b, size_t lane)
{
    static float kept[3][CANDIDATES];
    for (size_t c = 0; c < b->candidates; c++) {
        kept[0][c] = b->scale[c * LANES + lane];
        kept[1][c] = b->inverse[c * LANES + lane];
        kept[2][c] = b->shift[c * LANES + lane];
    }
    return (struct group){
        b->n,    b->candidates, b->weighted, b->shifted, b->x + lane * b->row, b->weight + lane * b->row,
        kept[0], kept[1],       kept[2]};
}

static void test_batches(void **unused)
{
    _Alignas(64) static float expected[CANDIDATES * LANES], got[CANDIDATES * LANES];
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++)
        for (int i = 0; i < groups / LANES; i++) {
            double value;
            const struct search_norm *norm = norm_of(i, &value);
            struct batch b;
            const size_t most =
                norm->errors.kind == QOBS_NORM_POW ? 8 : QOBS_SEARCH_FEW; /* scalar's pow takes its time */
            make_batch(&b, &targets[t], (size_t)i < most ? (size_t)i + 1 : draw() % most + 1,
                       i % 5 == 0 ? draw() % CANDIDATES + 1 : 20);
            const size_t count = (b.candidates + 3) / 4 * 4;
            run_batch(&qobs_kernels_scalar, &targets[t], &b, norm, expected);
            for (size_t lane = draw() % 8; lane < LANES; lane += 8) {
                float sum[CANDIDATES];
                const struct group g = group_of(&b, lane);
                for (size_t c = 0; c < b.candidates; c++)
                    sum[c] = expected[c * LANES + lane];
                check_against_double(&targets[t], &g, norm, value, sum);
            }
            for (size_t k = 0; qobs_kernel_tables[k]; k++) {
                if (!qobs_kernel_tables[k]->usable() || qobs_kernel_tables[k] == &qobs_kernels_scalar)
                    continue;
                run_batch(qobs_kernel_tables[k], &targets[t], &b, norm, got);
                if (!same(expected, got, count * LANES)) {
                    fprintf(stderr, "%s: batch, %s, norm %g, n %zu\n", qobs_kernel_tables[k]->isa, targets[t].name,
                            value, b.n);
                    fail();
                }
            }
            /* a qparam's sums do not depend on the others, nor on where it is among them */
            const size_t lane = draw() % LANES;
            for (size_t other = 0; other < LANES; other++) {
                memcpy(b.x + other * b.row, b.x + lane * b.row, b.row * sizeof(float));
                memcpy(b.weight + other * b.row, b.weight + lane * b.row, b.row * sizeof(float));
                for (size_t c = 0; c < count; c++) {
                    b.scale[c * LANES + other] = b.scale[c * LANES + lane];
                    b.inverse[c * LANES + other] = b.inverse[c * LANES + lane];
                    b.shift[c * LANES + other] = b.shift[c * LANES + lane];
                }
            }
            run_batch(&qobs_kernels_scalar, &targets[t], &b, norm, got);
            for (size_t c = 0; c < count; c++)
                for (size_t other = 0; other < LANES; other++)
                    assert_true(same(&got[c * LANES + other], &expected[c * LANES + lane], 1));
        }
}

/* ---- What improves ----------------------------------------------------------------------------------------------- */

static void test_improved(void **unused)
{
    for (int i = 0; i < 3000; i++) {
        const size_t n = draw() % 150;
        float *const sum = place(0, (n + 1) * LANES);
        _Alignas(64) float bound[LANES], best[LANES], expected_best[LANES];
        int32_t step[LANES], expected_step[LANES];
        uint64_t expected[3] = {0};
        for (size_t j = 0; j < n * LANES; j++) {
            const uint64_t kind = draw() % 32;
            sum[j] = kind == 0 ? NAN : kind == 1 ? INFINITY : (float)(draw() % 64) + (float)(n - j / LANES) / 2;
        }
        for (size_t lane = 0; lane < LANES; lane++) {
            bound[lane] = draw() % 3 ? FLT_MAX : draw() % 3 ? 40.0f : draw() % 2 ? 0 : INFINITY;
            expected_best[lane] = bound[lane];
            expected_step[lane] = -1;
            for (size_t j = 0; j < n; j++)
                if (sum[j * LANES + lane] < expected_best[lane]) {
                    expected_best[lane] = sum[j * LANES + lane];
                    expected_step[lane] = (int32_t)j;
                    expected[j / 64] |= UINT64_C(1) << j % 64;
                }
        }
        for (size_t k = 0; usable_table(&k); k++) {
            uint64_t got[3] = {0};
            CALL(qobs_kernel_tables[k], search_improved)(sum, n, bound, step, best, got);
            assert_memory_equal(got, expected, sizeof got);
            assert_memory_equal(step, expected_step, sizeof step);
            assert_true(same(best, expected_best, LANES));
        }
    }
}

/* ---- Elements ---------------------------------------------------------------------------------------------------- */

static void test_load(void **unused)
{
    static const qobs_dtype dtypes[] = {[QOBS_KERNEL_F32] = QOBS_F32,
                                        [QOBS_KERNEL_BF16] = QOBS_BF16,
                                        [QOBS_KERNEL_F16] = QOBS_F16,
                                        [QOBS_KERNEL_F64] = QOBS_F64};
    for (int d = 0; d < QOBS_KERNEL_DTYPES; d++)
        for (size_t n = 0; n < 71; n++)
            for (int i = 0; i < 40; i++) {
                const size_t size = qobs_dtype_size(dtypes[d]);
                unsigned char *x = arena_place(&arenas[0], n * size, i % 2, (size_t)i % 8);
                for (size_t j = 0; j < n * size; j++)
                    x[j] = (unsigned char)draw();
                const bool finite_only = i % 3 == 0;
                const double factor = ldexp(1, (int)(draw() % 40) - 20);
                for (size_t k = 0; usable_table(&k); k++) {
                    float *out = (float *)(void *)arena_place(&arenas[1], n * sizeof *out, true, 0);
                    CALL(qobs_kernel_tables[k], search_load[d])(x, n, factor, finite_only, out);
                    check_upper_halves(qobs_kernel_tables[k]->isa, "search_load");
                    for (size_t j = 0; j < n; j++) {
                        const double value = qobs_element(x + j * size, dtypes[d]);
                        const float expected = finite_only && !isfinite(value) ? 0 : (float)(value * factor);
                        assert_true(same(&expected, &out[j], 1));
                    }
                }
            }
}

/* ---- Candidates -------------------------------------------------------------------------------------------------- */

static qobs_config *config_of(const char *settings)
{
    qobs_config *config = NULL;
    qobs_error error;
    assert_int_equal(qobs_config_create(&config, "llmc.memoryless_mse", NULL, &error), QOBS_OK);
    if (qobs_config_set_all(config, settings, &error) != QOBS_OK)
        fail_msg("%s", error.message);
    return config;
}

/* A number of the dtype, of any magnitude; sometimes 0. */
static double draw_bound(qobs_dtype dtype)
{
    const int lowest = dtype == QOBS_F16 ? -24 : -140, most = dtype == QOBS_F16 ? 15 : 126;
    const double magnitude =
        ldexp(1 + uniform(), draw() % 4 ? (int)(draw() % 8) - 4 : lowest + (int)(draw() % (uint64_t)(most - lowest)));
    return draw() % 16 == 0 ? 0 : qobs_round_to(dtype, draw() % 2 ? -magnitude : magnitude);
}

/* One candidate of range i against the formula. */
static void check_candidate(const struct formula *formula, const struct shrink *shrink, const char *isa,
                            const struct range_batch *ranges, size_t i, const struct shrunk *shrunk, size_t c)
{
    double low = ranges->min[i], high = ranges->max[i], scale, zero_point, bounds[2];
    if ((int)c < shrink->params->steps) {
        low = qobs_shrink_bound(shrink, (int)c, low);
        high = qobs_shrink_bound(shrink, (int)c, high);
    }
    qobs_put_element(&bounds[0], shrink->dtype, low);
    qobs_put_element(&bounds[1], shrink->dtype, high);
    const struct range_view view = {
        .dtype = shrink->dtype, .n = 1, .rank = formula->params.rank, .min = &bounds[0], .max = &bounds[1]};
    const struct qparam_dtypes dtypes = qobs_formula_dtypes(formula, &view);
    assert_int_equal(qobs_formula_qparams(formula, &view, &scale, &zero_point, NULL), QOBS_OK);
    const float s = (float)qobs_qparam_at(&scale, dtypes.scale, 0),
                z = (float)qobs_qparam_at(&zero_point, dtypes.zero_point, 0);
    const float got = shrunk->scale[c * LANES + i], inverse = shrunk->inverse[c * LANES + i],
                shift = shrunk->offset[c * LANES + i];
    const float got_z = shrink->integers ? shift - 0x1.8p23f : shift;
    if (bits_of_float(s) != bits_of_float(got) || z != got_z) {
        fprintf(stderr, "%s, %s, range %.9g %.9g: %.9g %g, expected %.9g %g\n", isa, qobs_dtype_name(shrink->dtype),
                low, high, (double)got, (double)got_z, (double)s, (double)z);
        fail();
    }
    assert_true(inverse == 1 / s || inverse == FLT_MAX || fabsf(inverse * s - 1) < 1e-6f);
}

static void check_candidates(const struct formula *formula, const qobs_plan *plan, const struct grid_params *params,
                             const struct kernel_table *kernels, const struct range_batch *ranges)
{
    struct runtime runtime;
    struct shrink shrink;
    struct shrunk shrunk, alone;
    double bounds[2];
    qobs_put_element(&bounds[0], plan->dtype, ranges->min[0]);
    qobs_put_element(&bounds[1], plan->dtype, ranges->max[0]);
    qobs_runtime_resolve(&runtime, NULL, NULL);
    const struct grid_search search = {.runtime = &runtime,
                                       .kernels = kernels,
                                       .params = params,
                                       .formula = formula,
                                       .plan = plan,
                                       .min = &bounds[0],
                                       .max = &bounds[1]};
    assert_int_equal(qobs_shrink_begin(&shrink, &search, NULL), QOBS_OK);
    enum kernel_dtype index;
    assert_true(qobs_kernel_dtype_of(plan->dtype, &index));
    assert_true(shrink.kernel == CALL(kernels, search_shrink[index]));
    unsigned char *const block = malloc(2 * qobs_shrunk_size(&shrink) + 63);
    assert_non_null(block);
    unsigned char *const memory = block + -(uintptr_t)block % 64;
    qobs_shrunk_place(&shrink, memory, &shrunk);
    qobs_shrunk_place(&shrink, memory + qobs_shrunk_size(&shrink), &alone);
    qobs_shrink(&shrink, ranges, &shrunk);
    for (size_t i = 0; i < ranges->n; i++) {
        struct range_batch one = {.n = 1, .min = {ranges->min[i]}, .max = {ranges->max[i]}, .finite = {true}};
        qobs_shrink(&shrink, &one, &alone);
        for (size_t c = 0; c < shrink.candidates; c++) {
            check_candidate(formula, &shrink, kernels->isa, ranges, i, &shrunk, c);
            /* the others play no part */
            assert_true(same(&shrunk.scale[c * LANES + i], &alone.scale[c * LANES], 1));
            assert_true(same(&shrunk.inverse[c * LANES + i], &alone.inverse[c * LANES], 1));
            assert_true(same(&shrunk.offset[c * LANES + i], &alone.offset[c * LANES], 1));
        }
    }
    free(block);
    qobs_shrink_release(&shrink);
}

static void test_candidates(void **unused)
{
    static const char *const settings[] = {
        "num_bits=4",
        "num_bits=2",
        "num_bits=3 symmetric=false",
        "num_bits=4 symmetric=false",
        "num_bits=8",
        "num_bits=8 symmetric=false",
        "num_bits=7 symmetric=false version=2025-10",
        "num_bits=4 version=2025-10",
        "num_bits=8 type=float",
        "num_bits=4 type=float strategy=tensor_group group_size=16",
        "num_bits=4 type=float strategy=group group_size=32 scale_dtype=uint8",
        "num_bits=8 type=float strategy=group group_size=32 scale_dtype=uint8",
    };
    static const qobs_dtype dtypes[] = {QOBS_F32, QOBS_BF16, QOBS_F16};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (size_t d = 0; d < 3; d++) {
            qobs_config *config = config_of(settings[i]);
            if (qobs_config_is_mx(config) && dtypes[d] == QOBS_F16) {
                qobs_config_destroy(config); /* asks the formula */
                continue;
            }
            const qobs_plan plan = {.dtype = dtypes[d], .qparams = 1};
            for (int j = 0; j < repeats(75, 300); j++) {
                struct range_rule rule;
                struct formula formula;
                qobs_resolve_range(config, &rule);
                qobs_resolve_formula(config, &formula);
                rule.params.grid.steps = j % 50 + 1;
                rule.params.grid.grid = 60;
                rule.params.grid.expand = j % 4 ? 1 : 1.8;
                struct range_batch ranges = {.n = draw() % LANES + 1};
                const bool like_others = draw() % 2; /* normal numbers all of them */
                for (size_t r = 0; r < ranges.n; r++) {
                    const double a = like_others ? -1 - uniform() : draw_bound(dtypes[d]),
                                 b = like_others ? uniform() : draw_bound(dtypes[d]);
                    ranges.min[r] = qobs_round_to(dtypes[d], fmin(a, b));
                    ranges.max[r] = qobs_round_to(dtypes[d], fmax(a, b));
                    ranges.finite[r] = true;
                }
                for (size_t k = 0; usable_table(&k); k++)
                    check_candidates(&formula, &plan, &rule.params.grid, qobs_kernel_tables[k], &ranges);
            }
            qobs_config_destroy(config);
        }
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

enum { ROWS = 300, COLUMNS = 400 };

struct outcome {
    float min[ROWS * COLUMNS / 16], max[ROWS * COLUMNS / 16];
    int32_t step[ROWS * COLUMNS / 16];
    double error[ROWS * COLUMNS / 16];
    qobs_search_report report;
};

/* Searches with an instruction set and a number of threads. */
static void search_value(const qobs_config *config, const qobs_tensor *value, const char *isa, size_t threads,
                         void *min, void *max, int32_t *step, double *best_error, qobs_search_report *report)
{
    qobs_error error;
    const qobs_executor executor = {
        .struct_size = sizeof executor, .threads = threads, .parallel_for = parallel_for, .context = &threads};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = &executor};
    report->struct_size = sizeof *report;
    assert_int_equal(qobs_isa_select(isa, &error), QOBS_OK);
    if (call_search(config, value, NULL, NULL, NULL, min, max, step, best_error, report, &runtime, &error) != QOBS_OK)
        fail_msg("%s", error.message);
}

static void search(const qobs_config *config, const float *x, const char *isa, size_t threads, struct outcome *o)
{
    const int64_t shape[] = {ROWS, COLUMNS};
    const qobs_tensor value = {.struct_size = sizeof value, .data = x, .dtype = QOBS_F32, .ndim = 2, .shape = shape};
    memset(o, 0, sizeof *o);
    search_value(config, &value, isa, threads, o->min, o->max, o->step, o->error, &o->report);
}

static void search_ranges_only(const qobs_config *config, const float *x, struct outcome *o)
{
    const int64_t shape[] = {ROWS, COLUMNS};
    const qobs_tensor value = {.struct_size = sizeof value, .data = x, .dtype = QOBS_F32, .ndim = 2, .shape = shape};
    assert_int_equal(qobs_isa_select(NULL, NULL), QOBS_OK);
    assert_int_equal(call_search(config, &value, NULL, NULL, NULL, o->min, o->max, NULL, NULL, NULL, NULL, NULL),
                     QOBS_OK);
}

/* Few large qparams, searched in parts, and many small ones; with a stop before the last step. */
static void test_threads(void **unused)
{
    static const char *const settings[] = {
        "num_bits=4 strategy=tensor norm=2",
        "num_bits=8 symmetric=false strategy=tensor norm=3 patience=1",
        "num_bits=8 type=float strategy=channel norm=1",
        "num_bits=4 strategy=group group_size=16 norm=2 patience=1 maxshrink=0.9",
        "num_bits=3 strategy=group group_size=100 symmetric=false norm=2",
    };
    static float x[ROWS * COLUMNS];
    static struct outcome expected, got;
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        x[i] = gauss() * 0.02f;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        qobs_config *config = config_of(settings[i]);
        search(config, x, "scalar", 1, &expected);
        memset(got.min, 0, sizeof got.min);
        memset(got.max, 0, sizeof got.max);
        search_ranges_only(config, x, &got);
        assert_memory_equal(got.min, expected.min, sizeof got.min);
        assert_memory_equal(got.max, expected.max, sizeof got.max);
        for (size_t k = 0; k < qobs_isa_count(); k++)
            for (size_t t = 0; t < 3 && qobs_isa_usable(k); t++) {
                if (!meets_threads(k, t))
                    continue;
                search(config, x, qobs_isa_name(k), (size_t[]){1, 2, 7}[t], &got);
                assert_memory_equal(&got, &expected, offsetof(struct outcome, report));
                assert_true(same_report(&got.report, &expected.report));
            }
        qobs_config_destroy(config);
    }
    assert_int_equal(qobs_isa_select(NULL, NULL), QOBS_OK);
}

#ifndef QOBS_SLEEF
static void test_without_sleef(void **unused)
{
    struct search_norm norm;
    qobs_error error;
    assert_int_equal(qobs_search_norm(&norm, 2.7, &error), QOBS_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "norm"));
}
#else
/* The constants are what SLEEF gives. */
static void test_known_norms(void **unused)
{
    struct search_norm known, computed;
    assert_int_equal(qobs_search_norm(&known, 2.4, NULL), QOBS_OK);
    qobs_compute_search_norm(&computed, 2.4);
    assert_true(known.norm == computed.norm && known.sum_exp == computed.sum_exp);
    assert_int_equal(known.errors.kind, computed.errors.kind);
    assert_memory_equal(&known.errors.value, &computed.errors.value, sizeof known.errors.value);
    assert_memory_equal(known.errors.polynomial, computed.errors.polynomial, sizeof known.errors.polynomial);
    assert_memory_equal(known.errors.low, computed.errors.low, sizeof known.errors.low);
    assert_memory_equal(known.errors.high, computed.errors.high, sizeof known.errors.high);
    assert_memory_equal(known.fine_unit, computed.fine_unit, sizeof known.fine_unit);
    assert_memory_equal(known.coarse_unit, computed.coarse_unit, sizeof known.coarse_unit);
}
#endif

#include "native_search.h"
#include "native_rows.h"

/* Comes last. */
static void test_every_slot(void **unused)
{
    assert_int_equal(slots_failed_anywhere(CALLER_SEARCH), 0);
}

int main(int argc, char **argv)
{
    groups = repeats(200, 10000);
    if (argc > 1)
        groups = atoi(argv[1]);
    for (int i = 0; i < 5; i++)
        arenas[i] = arena_new((CANDIDATES + 64) * LANES * sizeof(float));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),        cmocka_unit_test(test_batches),     cmocka_unit_test(test_improved),
        cmocka_unit_test(test_load),          cmocka_unit_test(test_candidates),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_native),        cmocka_unit_test(test_native_rows), cmocka_unit_test(test_by_amax),
        cmocka_unit_test(test_uncertain_sum),
#ifndef QOBS_SLEEF
        cmocka_unit_test(test_without_sleef),
#else
        cmocka_unit_test(test_known_norms),
#endif
        cmocka_unit_test(test_every_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
