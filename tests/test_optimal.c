/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search for optimal scales against a slow one that tries every candidate, on random groups and every usable
 * instruction set: the same scale, zero point and bits of the error.
 *
 *     test_optimal [GROUPS]
 *
 * GROUPS of each kind; the default is for a quick run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fpenv.h"
#include "bits.h"
#include "kernels/dispatch.h"
#include "number/number.h"
#include "range/optimal_group.h"

enum { MOST = 144, QUICK = 1500 };

static size_t groups_of_a_kind = QUICK;

/* ---- Random groups ----------------------------------------------------------------------------------------------- */

static uint64_t state;

static double uniform(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 40) * 0x1p-24;
}

static double normal(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform();
    return sum;
}

static float element(unsigned how, double scale, double constant)
{
    const double x = normal();
    switch (how % 9) {
    case 0:
        return (float)(x * scale);
    case 1: /* heavy tails */
        return (float)(x * scale / (0.05 + uniform()));
    case 2: /* a lattice: exact ties */
        return (float)(rint(x * 8) * exp2(floor(log2(scale))) / 8);
    case 3: /* one magnitude */
        return (float)(x < 0 ? -constant : constant);
    case 4:
        return (float)fabs(x * scale);
    case 5: /* mostly zeros */
        return uniform() < 0.8 ? 0 : (float)(x * scale);
    case 6: /* bf16 */
        return float_of_bf16(bf16_of_float((float)(x * scale)));
    case 7: /* away from 0 */
        return (float)(x * scale + 3 * scale);
    default: /* multiples of one number and halves between them */
        return (float)(rint(x * 3 * 2) / 2 * constant);
    }
}

static double weight(unsigned how)
{
    switch (how % 6) {
    case 0:
        return 1;
    case 1:
        return uniform() < 0.5 ? 0 : uniform();
    case 2: /* many orders of magnitude */
        return exp2(60 * uniform() - 30);
    case 3: /* one column that decides */
        return uniform() < 0.05 ? 1e6 : 1e-6;
    case 4:
        return fabs(normal()) * 1e-30;
    default:
        return 0.1 + uniform();
    }
}

static size_t fill(const struct optimal_params *p, unsigned how, float *w, double *h)
{
    const size_t n = 1 + (size_t)(uniform() * (how % 11 == 0 ? MOST : 40));
    const double scale = how % 7 == 0 ? exp2(60 * uniform() - 100) : how % 7 == 1 ? 1e-6 : 0.05;
    const double range = p->scales == OPTIMAL_F16 && how % 7 == 0 ? exp2(24 * uniform() - 20) : scale;
    const double constant = (double)(float)(range * (0.5 + uniform()));
    bool any = false;
    for (size_t i = 0; i < MOST; i++) {
        w[i] = i < n ? element(how, range, constant) : 0;
        h[i] = i < n ? weight(how / 9) : 0;
        any |= w[i] != 0 && h[i] > 0;
    }
    for (size_t i = 0; !any && i < n; i++) /* what the caller does with weights that say nothing */
        h[i] = 1;
    return n;
}

/* ---- The slow search --------------------------------------------------------------------------------------------- */

static double rounded(const struct optimal_params *p, float w, float s, int z)
{
    const float x = w / s;
    if (p->e2m1) {
        const double a = fabs((double)x);
        const double q = a < 2 ? rint(a * 2) / 2 : a < 4 ? rint(a) : rint(a / 2) * 2;
        return copysign(q < 6 ? q : 6, (double)x);
    }
    const double y = (double)(float)(x + (float)z);
    return rint(y < p->quant_min ? p->quant_min : y > p->quant_max ? p->quant_max : y) - z;
}

static double slow_error(const struct optimal_params *p, const struct optimal_group *g, float s, int z)
{
    double lane[8] = {0};
    for (size_t i = 0; i < g->n; i++) {
        const double e = rounded(p, g->w[i], s, z) * (double)s - (double)g->w[i];
        lane[i % 8] += g->h[i] * e * e;
    }
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static struct optimal_choice slow_search(const struct optimal_params *p, const struct optimal_group *g)
{
    static float scale[OPTIMAL_MOST_SCALES];
    const struct optimal_range range = qobs_optimal_range(p, g);
    struct optimal_choice best = {.error = HUGE_VAL};
    const size_t n = qobs_optimal_scales(p, range.scale, g->global_scale, scale);
    const int from = p->symmetric ? 0 : p->quant_min, to = p->symmetric ? 0 : p->quant_max;
    for (size_t k = 0; k < n; k++)
        for (int sign = 0; sign <= p->signed_scale; sign++)
            for (int z = from; z <= to; z++) {
                const float s = sign ? -scale[k] : scale[k];
                const double error = slow_error(p, g, s, z);
                if (error < best.error)
                    best = (struct optimal_choice){.scale = s, .zero_point = z, .error = error};
            }
    return best;
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    struct optimal_params params;
    size_t divisor; /* of the number of groups: the slow search takes long */
} kinds[] = {
#define KIND(text, bits, is_symmetric, is_signed, of)                                                                  \
    {text,                                                                                                             \
     {.symmetric = is_symmetric,                                                                                       \
      .signed_scale = is_signed,                                                                                       \
      .num_bits = bits,                                                                                                \
      .quant_min = -(1 << (bits - 1)),                                                                                 \
      .quant_max = (1 << (bits - 1)) - 1,                                                                              \
      .start = 0.2f,                                                                                                   \
      .stop = 2,                                                                                                       \
      .eps = 1,                                                                                                        \
      .scales = of},                                                                                                   \
     bits > 4 && !(is_symmetric) ? (size_t)1 << (bits - 3) : 1}
    KIND("int2", 2, true, false, OPTIMAL_BF16),
    KIND("int3", 3, true, false, OPTIMAL_BF16),
    KIND("int4", 4, true, false, OPTIMAL_BF16),
    KIND("int6", 6, true, false, OPTIMAL_BF16),
    KIND("int8", 8, true, false, OPTIMAL_BF16),
    KIND("int4 f16", 4, true, false, OPTIMAL_F16),
    KIND("int2 signed", 2, true, true, OPTIMAL_BF16),
    KIND("int4 signed", 4, true, true, OPTIMAL_BF16),
    KIND("int8 signed", 8, true, true, OPTIMAL_BF16),
    KIND("int2 asymmetric", 2, false, false, OPTIMAL_BF16),
    KIND("int3 asymmetric", 3, false, false, OPTIMAL_BF16),
    KIND("int4 asymmetric", 4, false, false, OPTIMAL_BF16),
    KIND("int5 asymmetric", 5, false, false, OPTIMAL_BF16),
    KIND("int8 asymmetric", 8, false, false, OPTIMAL_BF16),
    KIND("int3 asymmetric f16", 3, false, false, OPTIMAL_F16),
    KIND("int4 e4m3", 4, true, false, OPTIMAL_E4M3),
    KIND("int4 asymmetric e4m3", 4, false, false, OPTIMAL_E4M3),
    {"e2m1",
     {.e2m1 = true, .symmetric = true, .num_bits = 4, .start = 0.2f, .stop = 2, .eps = 1, .scales = OPTIMAL_BF16},
     1},
    {"e2m1 e4m3", {.e2m1 = true, .symmetric = true, .num_bits = 4, .scales = OPTIMAL_E4M3}, 1},
    {"e2m1 e8m0", {.e2m1 = true, .symmetric = true, .num_bits = 4, .scales = OPTIMAL_E8M0}, 1},
};

/* A number for the seed and for reproducing a failure. */
static void compare(const struct kind *kind, unsigned number, void *scratch)
{
    static _Alignas(64) float w[MOST];
    static _Alignas(64) double h[MOST];
    const struct optimal_params *p = &kind->params;
    state = number * UINT64_C(2654435761) + 12345;
    const size_t n = fill(p, number, w, h);
    const float amax = 0.05f * (0.5f + (float)uniform() * 4), global = p->scales == OPTIMAL_E4M3 ? 1 / amax * 2688 : 1;
    const struct optimal_group g = {w, h, n, global};
    const struct optimal_range range = qobs_optimal_range(p, &g);
    struct optimal_choice choice;
    if (!qobs_optimal_is_searched(p, &range, &g, &choice))
        return;
    const struct optimal_choice slow = slow_search(p, &g);
    qobs_optimal_prepare(p, global, MOST, scratch);
    for (size_t i = 0; qobs_kernel_tables[i]; i++) {
        if (!qobs_kernel_tables[i]->usable())
            continue;
        qobs_optimal_group(qobs_kernel_tables[i], p, &g, scratch, &choice);
        if (slow.error < HUGE_VAL && (choice.scale != slow.scale || choice.zero_point != slow.zero_point ||
                                      bits_of_double(choice.error) != bits_of_double(slow.error))) {
            print_error("%s, group %u of %zu elements, %s: scale %.9g, zero point %d, error %.17g; "
                        "expected %.9g, %d, %.17g\n",
                        kind->name, number, n, qobs_kernel_tables[i]->isa, (double)choice.scale, choice.zero_point,
                        choice.error, (double)slow.scale, slow.zero_point, slow.error);
            fail();
        }
    }
}

static void test_kind(void **argument)
{
    const struct kind *kind = *argument;
    const size_t size = qobs_optimal_scratch(&kind->params, MOST), groups = groups_of_a_kind / kind->divisor;
    void *scratch = NULL;
    assert_int_equal(posix_memalign(&scratch, 64, size), 0);
    const fp_mode mode = fp_enter();
    for (unsigned i = 0; i < groups + 1; i++)
        compare(kind, i, scratch);
    fp_leave(mode);
    free(scratch);
}

int main(int argc, char **argv)
{
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct CMUnitTest tests[KINDS];
    if (argc > 1)
        groups_of_a_kind = strtoull(argv[1], NULL, 10);
    for (size_t i = 0; i < KINDS; i++)
        tests[i] = (struct CMUnitTest){.name = kinds[i].name, .test_func = test_kind, .initial_state = (void *)&kinds[i]};
    return _cmocka_run_group_tests("optimal", tests, KINDS, NULL, NULL) != 0;
}
