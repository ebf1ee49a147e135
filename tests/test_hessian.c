/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search of a group under a Hessian against brute force: every candidate is fake-quantized element by element, and
 * e^T H e is computed in double. The same choice on every instruction set.
 *
 *   test_hessian [GROUPS]    of each kind; the default is for continuous integration */
#include <math.h>

#include "kernels/dispatch.h"
#include "number/number.h"
#include "optimal/hessian_search.h"
#include "random_groups.h"
#include "repeats.h"
#include "unit.h"

enum { MOST = 32, ISAS = 8 };

static size_t groups_of_each_kind;

/* ---- Random groups ----------------------------------------------------------------------------------------------- */

struct kind {
    const char *name;
    enum optimal_scales scales;
    bool e2m1, asymmetric, with_signs, descent, of_f16;
    int bits;
};

struct sample {
    struct optimal_params params;
    size_t n;
    float global_scale;
    _Alignas(64) float w[MOST];
    double h[MOST * MOST], hw[MOST], linear[MOST], g[MOST], energy;
    float scale[OPTIMAL_MOST_SCALES];
    struct scale_list scales;
    int first, last;
};

/* Plain, BF16, on a lattice with many ties, heavy tails, all alike, one side, tiny. */
static void fill_weights(struct sample *s)
{
    const size_t style = below(8);
    const double size = style == 7 ? ldexp(1, -100 - (int)below(46)) : ldexp(0.05, (int)below(9) - 4);
    memset(s->w, 0, sizeof s->w);
    for (size_t i = 0; i < s->n; i++) {
        double x = gauss() * size;
        x = style == 2 ? rint(x / size * 8) * size / 8 : style == 3 ? x * x * x / (size * size) : x;
        x = style == 4 ? (below(2) ? size : -size) : style == 5 ? fabs(x) : x;
        float f = (float)x;
        if (style == 1 || below(16) == 0)
            f = float_of_bits(bits_of_float(f) & 0xffff0000);
        s->w[i] = below(12) == 0 ? 0 : f;
    }
}

/* H = E[x x^T] of a few or of many tokens; columns may have seen nothing. */
static void fill_hessian(struct sample *s)
{
    const size_t n = s->n, tokens = below(4) == 0 ? 1 + below(3) : n + below(64);
    double size[MOST], x[MOST];
    for (size_t j = 0; j < n; j++)
        size[j] = below(10) == 0 ? 0 : exp(gauss() / 2);
    for (size_t t = 0; t < tokens; t++) {
        const double common = gauss();
        for (size_t j = 0; j < n; j++)
            x[j] = (gauss() + common) * size[j];
        for (size_t j = 0; j < n; j++)
            for (size_t k = 0; k < n; k++)
                s->h[j * MOST + k] += x[j] * x[k] / (double)tokens;
    }
}

static double quantized(const struct sample *s, float w, float scale, int z)
{
    const float x = w / scale;
    const struct optimal_params *p = &s->params;
    if (p->e2m1) {
        const double a = fabs((double)x);
        const double q = a < 2 ? rint(a * 2) / 2 : a < 4 ? rint(a) : rint(a / 2) * 2;
        return copysign(q > 6 ? 6 : q, (double)x);
    }
    const float v = x + (float)z;
    return rint(fmin(fmax((double)v, p->quant_min), p->quant_max)) - z;
}

/* e^T H e, in a descent plus 2 e.linear. */
static double error_of(const struct sample *s, float scale, int z)
{
    double e[MOST], sum = 0;
    for (size_t i = 0; i < s->n; i++)
        e[i] = quantized(s, s->w[i], scale, z) * (double)scale - (double)s->w[i];
    for (size_t i = 0; i < s->n; i++) {
        double he = 0;
        for (size_t j = 0; j < s->n; j++)
            he += s->h[i * MOST + j] * e[j];
        sum += e[i] * (he + 2 * s->linear[i]);
    }
    return sum;
}

/* False: the range alone decides such a group. */
static bool make(struct sample *s, const struct kind *kind)
{
    static const struct sample empty;
    *s = empty;
    const int half = 1 << (kind->bits - 1);
    s->params = (struct optimal_params){.scales = kind->scales,
                                        .e2m1 = kind->e2m1,
                                        .symmetric = !kind->asymmetric,
                                        .signed_scale = kind->with_signs,
                                        .f16_results = kind->of_f16,
                                        .num_bits = kind->bits,
                                        .quant_min = -half,
                                        .quant_max = half - 1,
                                        .start = 0.2f,
                                        .stop = 2};
    s->n = 1 + below(MOST);
    fill_weights(s);
    fill_hessian(s);
    float amax = 0;
    for (size_t i = 0; i < s->n; i++)
        amax = fabsf(s->w[i]) > amax ? fabsf(s->w[i]) : amax;
    s->global_scale = kind->scales == OPTIMAL_E4M3 && amax > 0x1p-90f ? 2688 / amax / (float)(1 + below(4)) : 1;
    const struct optimal_group group = {.w = s->w, .n = s->n, .global_scale = s->global_scale};
    const struct optimal_range range = qobs_optimal_range(&s->params, &group);
    struct optimal_choice choice;
    if (!qobs_optimal_is_searched(&s->params, &range, &group, &choice))
        return false;
    s->scales = qobs_optimal_scales(&s->params, range.scale, s->global_scale, s->scale);
    const int centre = (int)below(2 * (size_t)half) - half;
    s->first = kind->asymmetric ? (centre > -half ? centre - 1 : centre) : 0;
    s->last = kind->asymmetric ? (centre < half - 1 ? centre + 1 : centre) : 0;
    double largest = 0;
    for (size_t i = 0; i < s->n; i++) {
        for (size_t j = 0; j < s->n; j++)
            s->hw[i] += (double)s->w[j] * s->h[j * MOST + i];
        largest = fabs(s->hw[i]) > largest ? fabs(s->hw[i]) : largest;
        s->energy += (double)s->w[i] * s->hw[i];
    }
    for (size_t i = 0; i < s->n; i++) {
        s->linear[i] = kind->descent ? gauss() * largest * 0.3 : 0;
        s->g[i] = s->hw[i] - s->linear[i];
    }
    return s->scales.count > 0;
}

/* ---- Search and brute force -------------------------------------------------------------------------------------- */

static struct hessian_choice search(const struct sample *s, const struct kernel_table *kernels)
{
    static _Alignas(64) unsigned char memory[MOST * 256 * 40 + (1 << 16)];
    struct hessian_workspace workspace;
    struct hessian_levels levels;
    struct array_layout layout = qobs_layout_begin(memory);
    qobs_hessian_workspace_place(&s->params, MOST, &layout, &workspace);
    assert_true(layout.used <= sizeof memory);
    qobs_hessian_levels(&s->params, s->global_scale, &levels);
    double shift = s->energy; /* errors less that are what candidates are compared by */
    for (size_t i = 0; i < s->n; i++)
        shift -= 2 * (double)s->w[i] * s->linear[i];
    const struct hessian_group group = {
        .w = s->w,
        .n = s->n,
        .h = s->h,
        .columns = (s->n + 7) / 8 * 8,
        .h_stride = MOST,
        .g = s->g,
        .constant = shift,
        .first = s->first,
        .last = s->last,
    };
    return qobs_hessian_group(kernels, &s->params, &levels, &s->scales, &group, &workspace);
}

static void check(const struct sample *s, const char *name)
{
    struct hessian_choice first = {0};
    double best = INFINITY;
    for (size_t k = 0; k < s->scales.count; k++)
        for (int sign = 0; sign <= s->params.signed_scale; sign++)
            for (int z = s->first; z <= s->last; z++)
                best = fmin(best, error_of(s, sign ? -s->scale[k] : s->scale[k], z));
    for (size_t i = 0; qobs_kernel_tables[i]; i++) {
        if (!qobs_kernel_tables[i]->usable())
            continue;
        const struct hessian_choice c = search(s, qobs_kernel_tables[i]);
        const float scale = c.negative ? -s->scale[c.index] : s->scale[c.index];
        const double error = error_of(s, scale, c.zero_point);
        double floor = 0; /* what 1e-12 of the energy is, of terms that may cancel */
        for (size_t j = 0; j < s->n; j++)
            floor += fabs((double)s->w[j]) * (fabs(s->hw[j]) + 2 * fabs(s->linear[j]));
        if (!(error <= best + fabs(best) * 2e-6 + 1e-12 * floor))
            fail_msg("%s, %s, %zu elements: scale %.9g, zero point %d has error %.17g, the least is %.17g", name,
                     qobs_kernel_tables[i]->isa, s->n, (double)scale, c.zero_point, error, best);
        if (i == 0)
            first = c;
        assert_int_equal(c.index, first.index);
        assert_int_equal(c.negative, first.negative);
        assert_int_equal(c.zero_point, first.zero_point);
        assert_memory_equal(&c.error, &first.error, sizeof c.error);
    }
}

static const struct kind kinds[] = {
    {"int4", OPTIMAL_BF16, .bits = 4},
    {"int2", OPTIMAL_BF16, .bits = 2},
    {"int3, f16 scales", OPTIMAL_F16, .bits = 3},
    {"int5, signed", OPTIMAL_BF16, .bits = 5, .with_signs = true},
    {"int8", OPTIMAL_BF16, .bits = 8},
    {"asymmetric int2", OPTIMAL_BF16, .bits = 2, .asymmetric = true},
    {"asymmetric int4", OPTIMAL_BF16, .bits = 4, .asymmetric = true},
    {"asymmetric int8", OPTIMAL_BF16, .bits = 8, .asymmetric = true},
    {"e2m1, e4m3 scales", OPTIMAL_E4M3, .bits = 4, .e2m1 = true},
    {"e2m1, e8m0 scales", OPTIMAL_E8M0, .bits = 4, .e2m1 = true},
    {"int4 of f16 weights", OPTIMAL_BF16, .bits = 4, .of_f16 = true},
    {"e2m1 of f16 weights, e8m0 scales", OPTIMAL_E8M0, .bits = 4, .e2m1 = true, .of_f16 = true},
    {"int4, descent", OPTIMAL_BF16, .bits = 4, .descent = true},
    {"int3, signed, descent", OPTIMAL_BF16, .bits = 3, .descent = true, .with_signs = true},
    {"asymmetric int3, descent", OPTIMAL_BF16, .bits = 3, .descent = true, .asymmetric = true},
    {"e2m1, e4m3 scales, descent", OPTIMAL_E4M3, .bits = 4, .e2m1 = true, .descent = true},
};

static void brute_force(void **state)
{
    const struct kind *kind = *state;
    static struct sample s;
    size_t searched = 0;
    rng = UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(kind - kinds);
    while (searched < groups_of_each_kind) {
        if (!make(&s, kind))
            continue;
        check(&s, kind->name);
        searched++;
    }
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[sizeof kinds / sizeof *kinds];
    const size_t count = sizeof kinds / sizeof *kinds;
    groups_of_each_kind = (size_t)repeats(200, 1500);
    if (argc > 1)
        groups_of_each_kind = (size_t)strtoull(argv[1], NULL, 10);
    for (size_t i = 0; i < count; i++)
        tests[i] =
            (struct CMUnitTest){.name = kinds[i].name, .test_func = brute_force, .initial_state = (void *)&kinds[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
