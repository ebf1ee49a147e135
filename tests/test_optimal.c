/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search for optimal scales against a slow one that tries every candidate, on random groups and every usable
 * instruction set: the same scale, zero point and bits of the error.
 *
 *     test_optimal [GROUPS [KIND]]
 *
 * GROUPS of each kind; the default is for a quick run. KIND is the name of one, where * and ? stand for others. */
#include <math.h>

#include "base/fpenv.h"
#include "check/exercised.h"
#include "kernels/dispatch.h"
#include "number/number.h"
#include "optimal/optimal.h"
#include "repeats.h"
#include "unit.h"

enum { MOST = 144 };

static size_t groups_of_a_kind;

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
    const size_t n = qobs_optimal_scales(p, range.scale, g->global_scale, scale).count;
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
     bits > 4 && !(is_symmetric) ? ((size_t)1 << (bits)) / 8 : 1}
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

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* Elements of a group; NaN follows where kernels must not read. */
struct sample {
    _Alignas(64) float w[MOST + 16];
    _Alignas(64) double h[MOST + 16];
    size_t n, padded;
};

/* The results of all kernels for a sample. */
struct answers {
    double error, beyond[2], excess[8], curve[512];
    float nearly[QOBS_OPTIMAL_SCALES];
    _Alignas(64) float magnitude[MOST + 16];
    _Alignas(64) float weight[MOST + 16];
    struct optimal_moments sums;
};

static void fill_sample(struct sample *s, unsigned number)
{
    s->n = 1 + number % MOST;
    s->padded = (s->n + 15) / 16 * 16;
    for (size_t i = 0; i < MOST + 16; i++) {
        const double size = fabs(normal()) + 0.01;
        s->w[i] = i < s->n ? (float)(uniform() < 0.5 ? -size : size) : i < s->padded ? 0 : NAN;
        s->h[i] = i < s->n ? uniform() : i < s->padded ? 0 : (double)NAN;
    }
    if (number % 5 == 0)
        s->w[0] = -0.0f;
}

/* int4: 7 steps up and 8 down. */
static void make_int4_steps(struct optimal_steps *steps)
{
    *steps = (struct optimal_steps){.positive = 7, .negative = 8};
    for (size_t j = 0; j < 8; j++) {
        steps->inverse_mid[j] = 1 / ((float)j + 0.5f);
        steps->gain[j][0] = 1;
        steps->gain[j][1] = (double)(2 * j + 1);
        steps->taken[j + 1][0] = (double)(j + 1);
        steps->taken[j + 1][1] = (double)((j + 1) * (j + 1));
    }
}

enum { CURVE_FIRST = 0x3d80, CURVE = 400, LOWEST = 3 }; /* scales from 2^-4 on */

static void ask(const struct kernel_table *table, const struct sample *s, unsigned char *scratch, struct answers *a)
{
    static const float scale[QOBS_OPTIMAL_SCALES] = {0.01f, 0.05f, 0.1f, 0.2f, 0.3f, 0.5f, 1, 4};
    struct optimal_number number = {.quant_min = -8, .quant_max = 7};
    struct optimal_steps steps;
    float sorted[MOST + 16];
    memset(a, 0, sizeof *a);
    make_int4_steps(&steps);
    a->error = CALL(table, optimal_error)(&number, s->w, s->h, s->n, 0.25f, 0);
    CALL(table, optimal_beyond)(s->w, s->h, s->n, 0.5f, 0.75f, a->beyond);
    CALL(table, optimal_moments)(s->w, s->h, s->n, &a->sums);
    for (size_t i = 0; i < (s->n + QOBS_OPTIMAL_LANES - 1) / QOBS_OPTIMAL_LANES * QOBS_OPTIMAL_LANES; i++) {
        a->magnitude[i] = fabsf(s->w[i]);
        a->weight[i] = (float)(s->h[i] * 3);
    }
    CALL(table, optimal_nearly)(a->magnitude, a->weight, s->n, scale, a->nearly);
    CALL(table, optimal_curve)(&steps, s->w, s->h, s->n, CURVE_FIRST, CURVE, a->sums.energy, a->curve, scratch);
    memset(a->curve + CURVE, 0, sizeof a->curve - CURVE * sizeof *a->curve);
    for (size_t i = 0; i < s->n; i++) /* in descending order */
        sorted[i] = 3 - (float)i * 0.02f;
    CALL(table, optimal_excess)(sorted, s->h, s->n, 0.3, 15, LOWEST, 6, a->excess);
    a->excess[6] = a->excess[7] = 0; /* its room, not its result */
}

static void check_nearly(double got, double wanted, double tolerance)
{
    if (!(fabs(got - wanted) <= tolerance)) {
        print_error("got %.17g, expected %.17g\n", got, wanted);
        fail();
    }
}

/* The same by plain loops, with the rounding of another order. */
static void check_answers(const struct sample *s, const struct answers *a)
{
    static const struct optimal_params int4 = {.symmetric = true, .num_bits = 4, .quant_min = -8, .quant_max = 7};
    const struct optimal_group g = {s->w, s->h, s->n, 1};
    double energy = 0, magnitude = 0, weight = 0, beyond[2] = {0}, excess[6] = {0};
    for (size_t i = 0; i < s->n; i++) {
        const double w = (double)s->w[i], h = s->h[i], x = 3 - (double)((float)i * 0.02f), q = rint(x / 0.3);
        energy += h * w * w;
        magnitude += h * fabs(w);
        weight += h;
        const double clipped = fmax(0, fmax(w - 0.5, -w - 0.75));
        beyond[0] += h * clipped * clipped;
        beyond[1] += h * clipped;
        for (int c = 0; c < 6; c++)
            excess[c] += q > LOWEST + c ? h * (pow(x - (LOWEST + c) * 0.3, 2) - pow(x - q * 0.3, 2)) : 0;
    }
    check_nearly(a->sums.energy, energy, 1e-12 * energy);
    check_nearly(a->sums.magnitude, magnitude, 1e-12 * magnitude);
    check_nearly(a->sums.weight, weight, 1e-12 * weight);
    check_nearly(a->beyond[0], beyond[0], 1e-12 * energy);
    check_nearly(a->beyond[1], beyond[1], 1e-12 * magnitude);
    for (int c = 0; c < 6; c++)
        check_nearly(a->excess[c], excess[c], 1e-5 * weight);
    assert_true(a->error == slow_error(&int4, &g, 0.25f, 0));
    for (uint32_t k = 0; k < CURVE; k++) {
        const float scale = float_of_bits((CURVE_FIRST + k) << 16);
        check_nearly(a->curve[k], slow_error(&int4, &g, scale, 0), 1e-5 * (double)scale * magnitude + 1e-12 * energy);
    }
}

static void test_kernels(void **unused)
{
    static struct sample sample;
    static struct answers first, other;
    static _Alignas(64) unsigned char scratch[QOBS_OPTIMAL_CURVE_SCRATCH(512, 8) + 4096];
    const fp_mode mode = fp_enter();
    for (unsigned number = 0; number < 3 * MOST; number++) {
        state = number;
        fill_sample(&sample, number);
        ask(qobs_kernel_tables[0], &sample, scratch, &first);
        check_answers(&sample, &first);
        for (size_t i = 1; usable_table(&i); i++) {
                ask(qobs_kernel_tables[i], &sample, scratch, &other);
                assert_memory_equal(&other, &first, sizeof other);
            }
    }
    fp_leave(mode);
    assert_int_equal(slots_failed_anywhere(CALLER_OPTIMAL), 0);
}

/* ---- Searches ---------------------------------------------------------------------------------------------------- */

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
    for (size_t i = 0; usable_table(&i); i++) {
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
    unsigned char *const memory = malloc(size + 63), *const scratch = memory + -(uintptr_t)memory % 64;
    assert_non_null(memory);
    const fp_mode mode = fp_enter();
    for (unsigned i = 0; i < groups + 1; i++)
        compare(kind, i, scratch);
    fp_leave(mode);
    free(memory);
}

int main(int argc, char **argv)
{
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct CMUnitTest tests[KINDS + 1];
    groups_of_a_kind = (size_t)repeats(200, 1500);
    if (argc > 1)
        groups_of_a_kind = strtoull(argv[1], NULL, 10);
    size_t count = 0;
    for (size_t i = 0; i < KINDS; i++)
        if (argc <= 2 || strcmp(kinds[i].name, argv[2]) == 0)
            tests[count++] =
                (struct CMUnitTest){.name = kinds[i].name, .test_func = test_kind, .initial_state = (void *)&kinds[i]};
    if (argc <= 2)
        tests[count++] = (struct CMUnitTest){.name = "kernels", .test_func = test_kernels};
    return count == 0 || _cmocka_run_group_tests("optimal", tests, count, NULL, NULL) != 0;
}
