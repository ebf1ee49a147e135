/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search of NVFP4 groups under a Hessian by bounds, against the errors of all candidates in double: the least one
 * is among the candidates, on every instruction set.
 *
 *   test_hessian_lanes [GROUPS]    of each kind, by default 300 or 1500 (repeats.h) */
#include <math.h>

#include "kernels/dispatch.h"
#include "number/number.h"
#include "optimal/hessian_search.h"
#include "random_groups.h"
#include "repeats.h"
#include "unit.h"

enum { SIDE = 16 };

static size_t groups_of_each_kind;

/* ---- Random groups ----------------------------------------------------------------------------------------------- */

enum weights { PLAIN, NARROW, LATTICE, HEAVY, ONE_MAGNITUDE, ONE_SIDE, SPARSE, MANY_MAGNITUDES, MIDDLE };

struct kind {
    const char *name;
    enum weights weights;
    size_t tokens;   /* 0: any */
    double together; /* what columns share */
    double spread;   /* of the sizes of columns, as the logarithm */
};

static const struct kind kinds[] = {
    {"independent columns", PLAIN, 64, 0, 0},
    {"columns of many sizes", NARROW, 64, 0, 1},
    {"columns that go together", PLAIN, 64, 2, 0.3},
    {"nearly one column", NARROW, 64, 30, 0.1},
    {"one token", PLAIN, 1, 0, 0.5},
    {"few tokens", NARROW, 5, 0, 0.5},
    {"ties", LATTICE, 0, 0.5, 0.5},
    {"heavy tails", HEAVY, 0, 0.5, 1},
    {"one magnitude", ONE_MAGNITUDE, 0, 0.5, 0.5},
    {"one side", ONE_SIDE, 0, 1, 0.5},
    {"mostly zeros", SPARSE, 0, 0.5, 0.5},
    {"columns of very many sizes", PLAIN, 0, 0, 12},
    {"two scales are nearly alike", MIDDLE, 64, 0, 0},
    {"weights of very many sizes", MANY_MAGNITUDES, 0, 0.5, 6},
};

struct sample {
    size_t n;
    float global_scale, amax;
    _Alignas(64) float w[SIDE];
    _Alignas(64) double h[SIDE * SIDE];
    struct hessian_factor factor;
    struct scale_list scales;
    float scale[OPTIMAL_MOST_SCALES];
};

static float weight_of(enum weights how, double size)
{
    double x = gauss() * size;
    switch (how) {
    case LATTICE:
        x = rint(x / size * 8) * size / 8;
        break;
    case HEAVY:
        x = x * x * x / (size * size);
        break;
    case ONE_MAGNITUDE:
        x = x < 0 ? -size : size;
        break;
    case ONE_SIDE:
        x = fabs(x);
        break;
    case SPARSE:
        x = below(4) == 0 ? x : 0;
        break;
    case MANY_MAGNITUDES:
        x *= ldexp(1, -(int)below(60));
        break;
    default:
        break;
    }
    return how == NARROW || below(3) == 0 ? float_of_bf16(bf16_of_float((float)x)) : (float)x;
}

/* H = E[x x^T] as the Gram has it: products and sums have the rounding of float. */
static void fill_hessian(struct sample *s, const struct kind *kind)
{
    const size_t tokens = kind->tokens > 0 ? kind->tokens : 1 + below(100);
    double size[SIDE];
    float sum[SIDE * SIDE] = {0}, x[SIDE];
    memset(s->h, 0, sizeof s->h);
    for (size_t j = 0; j < s->n; j++)
        size[j] = below(20) == 0 ? 0 : exp(gauss() * kind->spread);
    for (size_t t = 0; t < tokens; t++) {
        const double common = gauss() * kind->together;
        for (size_t j = 0; j < s->n; j++)
            x[j] = (float)((gauss() + common) * size[j]);
        for (size_t j = 0; j < s->n; j++)
            for (size_t k = 0; k < s->n; k++)
                sum[j * SIDE + k] += x[j] * x[k];
    }
    const double mean = ldexp(1, 20 - (int)below(40)) / (double)tokens;
    for (size_t i = 0; i < SIDE * SIDE; i++)
        s->h[i] = (double)sum[i] * mean;
}

/* One element in the middle between two neighbours of all numbers times scales: roundings of float would choose. */
static void put_in_middle(struct sample *s)
{
    static const float magnitude[] = {0.5f, 1, 1.5f, 2, 3, 4, 6};
    const double from = (double)s->scale[40 + below(80)] * (double)magnitude[below(7)];
    double next = INFINITY;
    for (size_t k = 0; k < s->scales.count; k++)
        for (size_t j = 0; j < 7; j++) {
            const double x = (double)s->scale[k] * (double)magnitude[j];
            next = x > from && x < next ? x : next;
        }
    memset(s->w, 0, sizeof s->w);
    if (next < INFINITY)
        s->w[0] = (float)((from + next) / 2);
    s->amax = s->w[0];
}

static bool make(struct sample *s, const struct kind *kind)
{
    static const struct optimal_params params = {
        .scales = OPTIMAL_E4M3, .e2m1 = true, .symmetric = true, .num_bits = 4};
    const double size = ldexp(0.02 + unit(), (int)below(20) - 16);
    s->n = below(4) == 0 ? 1 + below(SIDE) : SIDE;
    s->amax = 0;
    memset(s->w, 0, sizeof s->w);
    for (size_t i = 0; i < s->n; i++) {
        s->w[i] = weight_of(kind->weights, size);
        s->amax = fabsf(s->w[i]) > s->amax ? fabsf(s->w[i]) : s->amax;
    }
    fill_hessian(s, kind);
    s->global_scale = (float)(2688 / (size * 4) * exp2(-8 * unit() + (below(8) == 0 ? 14 * unit() - 7 : 0)));
    if (below(4) == 0)
        s->global_scale = (float)exp2(rint(log2((double)s->global_scale)));
    s->scales = qobs_optimal_scales(&params, 1, s->global_scale, s->scale);
    if (kind->weights == MIDDLE)
        put_in_middle(s);
    qobs_hessian_factor(s->h, s->n, SIDE, &s->factor);
    return s->amax > 0 && qobs_hessian_lanes_fit(&s->factor, &s->scales, s->amax);
}

/* ---- All candidates ---------------------------------------------------------------------------------------------- */

static double error_of(const struct kernel_table *kernels, const struct sample *s, float scale)
{
    const struct optimal_number number = {.e2m1 = true};
    double e[SIDE] = {0}, product[SIDE] = {0}, sum = 0;
    kernels->hessian_residual(&number, s->w, s->n, scale, 0, e);
    kernels->hessian_product(e, SIDE, 1, s->h, SIDE, s->n, SIDE, product, SIDE);
    for (size_t i = 0; i < s->n; i++)
        sum += e[i] * product[i];
    return sum;
}

static size_t best_scale(const struct kernel_table *kernels, const struct sample *s)
{
    size_t best = 0;
    double least = INFINITY;
    for (size_t k = 0; k < s->scales.count; k++) {
        const double error = error_of(kernels, s, s->scale[k]);
        best = error < least ? k : best;
        least = error < least ? error : least;
    }
    return best;
}

static void candidates(void **state)
{
    const struct kind *const kind = *state;
    static struct sample s;
    size_t searched = 0, more = 0, tried = 0;
    rng = UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(kind - kinds);
    for (; searched < groups_of_each_kind; tried++) {
        assert_true(tried < 4 * searched + 100);
        if (!make(&s, kind))
            continue;
        searched++;
        const size_t best = best_scale(&qobs_kernels_scalar, &s);
        for (size_t i = 0; qobs_kernel_tables[i]; i++) {
            if (!qobs_kernel_tables[i]->usable())
                continue;
            struct hessian_candidate_list c;
            qobs_hessian_lanes(qobs_kernel_tables[i], &s.factor, &s.scales, s.w, s.amax, &c);
            bool found = false;
            for (size_t k = 0; k < c.count; k++) {
                found |= c.index[k] == best;
                assert_true(k == 0 || c.index[k] > c.index[k - 1]);
            }
            if (!found)
                fail_msg("%s, %s, group %zu of %zu elements: candidate %zu with error %.17g is left out", kind->name,
                         qobs_kernel_tables[i]->isa, searched, s.n, best,
                         error_of(&qobs_kernels_scalar, &s, s.scale[best]));
            more += c.count > 4;
        }
    }
    printf("%s: %zu of %zu groups have more than 4 candidates\n", kind->name, more, searched);
}

/* ---- What has no factor ------------------------------------------------------------------------------------------ */

static void refused(void **state)
{
    struct hessian_factor f;
    static double h[SIDE * SIDE];
    qobs_hessian_factor(h, SIDE, SIDE, &f);
    assert_false(f.fits); /* nothing has been seen */
    h[3 * SIDE + 3] = -1;
    h[0] = 1;
    qobs_hessian_factor(h, SIDE, SIDE, &f);
    assert_false(f.fits); /* an entry of the diagonal is negative */
    h[3 * SIDE + 3] = 0;
    h[0] = h[SIDE + 1] = 1;
    qobs_hessian_factor(h, SIDE, SIDE, &f);
    assert_true(f.fits);
    h[1] = h[SIDE] = 2;
    qobs_hessian_factor(h, SIDE, SIDE, &f);
    assert_false(f.fits); /* an eigenvalue is -1 */
    h[1] = h[SIDE] = NAN;
    qobs_hessian_factor(h, SIDE, SIDE, &f);
    assert_false(f.fits);
    h[1] = h[SIDE] = 0;
    h[2] = h[2 * SIDE] = 1e-3; /* beside a column of zeros */
    qobs_hessian_factor(h, SIDE, SIDE, &f);
    assert_false(f.fits);
}

int main(int argc, char **argv)
{
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct CMUnitTest tests[KINDS + 1];
    groups_of_each_kind = (size_t)repeats(300, 1500);
    if (argc > 1)
        groups_of_each_kind = (size_t)strtoull(argv[1], NULL, 10);
    for (size_t i = 0; i < KINDS; i++)
        tests[i] =
            (struct CMUnitTest){.name = kinds[i].name, .test_func = candidates, .initial_state = (void *)&kinds[i]};
    tests[KINDS] = (struct CMUnitTest){.name = "refused", .test_func = refused};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
