/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_round_codes: optima by brute force, an objective that never rises, Hessians of all kinds, blocks, and the same
 * bits on every instruction set and number of threads. */
#include <math.h>

#include "qobs/plan.h"
#include "qobs/qobs.h"
#include "qobs/stateless.h"
#include "repeats.h"
#include "threads.h"
#include "unit.h"

enum { MOST_COLUMNS = 400, MOST_ROWS = 400 };
#define DOUBT 0x1.2p-17 /* relative error of D H, as kernels/kernel_hessian.h has it */

/* The numbers that a configuration quantizes to. */
struct kind {
    const char *name, *settings;
    const char *format;        /* of codes; NULL: integers or the format of the settings */
    int bits;                  /* of integers */
    bool asymmetric, mirrored; /* zero points; scales below 0 */
};

static const struct kind kinds[] = {
    {"int2", "num_bits=2", NULL, 2, false, false},
    {"int3", "num_bits=3", NULL, 3, false, false},
    {"int4", "num_bits=4", NULL, 4, false, false},
    {"int5", "num_bits=5", NULL, 5, false, false},
    {"int6", "num_bits=6", NULL, 6, false, false},
    {"int7", "num_bits=7", NULL, 7, false, false},
    {"int8", "num_bits=8", NULL, 8, false, false},
    {"int2 asymmetric", "num_bits=2 symmetric=false", NULL, 2, true, false},
    {"int3 asymmetric", "num_bits=3 symmetric=false", NULL, 3, true, false},
    {"int4 asymmetric", "num_bits=4 symmetric=false", NULL, 4, true, false},
    {"int5 asymmetric", "num_bits=5 symmetric=false", NULL, 5, true, false},
    {"int6 asymmetric", "num_bits=6 symmetric=false", NULL, 6, true, false},
    {"int7 asymmetric", "num_bits=7 symmetric=false", NULL, 7, true, false},
    {"int8 asymmetric", "num_bits=8 symmetric=false", NULL, 8, true, false},
    {"int4 signed", "num_bits=4 signed_scale=true", NULL, 4, false, true},
    {"int2 signed", "num_bits=2 signed_scale=true", NULL, 2, false, true},
    {"e2m1", "num_bits=4 type=float scale_dtype=bfloat16", "fp4", 0, false, false},
    {"e2m3", "num_bits=6", "fp6_e2m3", 0, false, false},
    {"e4m3", "num_bits=8", "fp8_e4m3", 0, false, false},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static uint32_t seed = 12345;

static double uniform(void)
{
    seed = seed * 1664525 + 1013904223;
    return (double)(int32_t)seed * 0x1p-31;
}

static double normal(void) { return (uniform() + uniform() + uniform() + uniform()) * 0.87; }

/* A weight with its H in float, and what comes of it. */
struct sample {
    const struct kind *kind;
    double dampening;
    int64_t tokens; /* that a call is told */
    int64_t rows, columns, group, groups, block, blocks;
    float *w, *scale;
    signed char *zero_point;
    double *h; /* [blocks][block][block] */
    unsigned char *nearest, *codes;
    qobs_round_report report;
};

static void *allocate(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    assert_non_null(p);
    return p;
}

/* H of `tokens` inputs, of columns of unequal size that depend on each other. */
static void make_hessian(double *h, int64_t n, int64_t tokens, double common)
{
    double *x = allocate((size_t)n, sizeof *x), *size = allocate((size_t)n, sizeof *size);
    for (int64_t j = 0; j < n; j++)
        size[j] = exp(normal());
    memset(h, 0, (size_t)(n * n) * sizeof *h);
    for (int64_t t = 0; t < tokens; t++) {
        const double shared = common * normal();
        for (int64_t j = 0; j < n; j++)
            x[j] = size[j] * (shared + normal());
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < n; k++)
                h[j * n + k] += x[j] * x[k] / (double)tokens;
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k <= j; k++) /* a number of float */
            h[j * n + k] = h[k * n + j] = (double)(float)h[j * n + k];
    free(x);
    free(size);
}

/* group: columns of a group, 0: a channel. block: of H, 0: all columns. */
static struct sample make_sample(const struct kind *kind, int64_t rows, int64_t columns, int64_t group, int64_t block,
                                 int64_t tokens)
{
    struct sample s = {.kind = kind, .rows = rows, .columns = columns, .group = group > 0 ? group : columns};
    s.groups = (columns + s.group - 1) / s.group;
    s.block = block > 0 && block < columns ? block : columns;
    const int64_t period = s.block < s.group ? s.group : s.block;
    for (int64_t start = 0; start < columns; start += period) {
        const int64_t end = start + period < columns ? start + period : columns;
        s.blocks += (end - start + s.block - 1) / s.block;
    }
    const size_t n = (size_t)(rows * columns), qparams = (size_t)(rows * s.groups);
    s.w = allocate(n, sizeof *s.w);
    s.scale = allocate(qparams, sizeof *s.scale);
    s.zero_point = allocate(qparams, 1);
    s.h = allocate((size_t)(s.blocks * s.block * s.block), sizeof *s.h);
    s.nearest = allocate(n, 1);
    s.codes = allocate(n, 1);
    const double most = kind->bits ? (1 << kind->bits) - 1 : 2 * qobs_format_max(qobs_format_find(kind->format));
    for (size_t i = 0; i < n; i++)
        s.w[i] = (float)normal();
    for (size_t i = 0; i < qparams; i++) {
        s.scale[i] = (float)((0.6 + 0.4 * uniform()) * 4 / most);
        s.scale[i] = kind->mirrored && i % 2 ? -s.scale[i] : s.scale[i];
        s.zero_point[i] = kind->asymmetric ? (signed char)lrint(0.2 * uniform() * (1 << (kind->bits - 1))) : 0;
    }
    for (int64_t b = 0; b < s.blocks; b++)
        make_hessian(s.h + b * s.block * s.block, s.block, tokens, 1);
    s.report.struct_size = sizeof s.report;
    return s;
}

static void free_sample(struct sample *s)
{
    free(s->w);
    free(s->scale);
    free(s->zero_point);
    free(s->h);
    free(s->nearest);
    free(s->codes);
}

static qobs_config *open_config(const struct sample *s)
{
    char text[200], groups[40] = "strategy=channel";
    qobs_config *config;
    qobs_error error;
    if (s->groups > 1)
        snprintf(groups, sizeof groups, "group_size=%lld", (long long)s->group);
    snprintf(text, sizeof text, "qobs.local_hessian %s %s dampening_frac=%g", s->kind->settings, groups, s->dampening);
    if (qobs_config_parse(&config, text, NULL, &error) != QOBS_OK)
        fail_msg("%s: %s", text, error.message);
    return config;
}

/* The status; passes 0: the nearest codes. */
static int call(struct sample *s, int passes, unsigned char *codes, const qobs_runtime *runtime, qobs_error *error)
{
    const int64_t shape[] = {s->rows, s->columns}, qparams[] = {s->rows, s->groups};
    const int64_t blocks[] = {s->blocks, s->block, s->block};
    const qobs_tensor value = {sizeof value, s->w, QOBS_F32, 2, shape, NULL};
    const qobs_tensor scale = {sizeof scale, s->scale, QOBS_F32, 2, qparams, NULL};
    const qobs_tensor zero_point = {sizeof zero_point, s->zero_point, QOBS_I8, 2, qparams, NULL};
    const qobs_tensor hessian = {sizeof hessian, s->h, QOBS_F64, 3, blocks, NULL};
    qobs_config *const config = open_config(s);
    const qobs_format *const format = s->kind->format ? qobs_format_find(s->kind->format) : NULL;
    const qobs_tensor *const zero_points = s->kind->asymmetric ? &zero_point : NULL;
    const size_t size = (size_t)(s->rows * s->columns);
    int status;
    if (passes == 0) {
        const qobs_quantize_args args = {.struct_size = sizeof args,
                                         .config = config,
                                         .format = format,
                                         .value = &value,
                                         .scale = &scale,
                                         .zero_point = zero_points,
                                         .codes = codes,
                                         .codes_size = size};
        status = qobs_quantize(&args, error);
    } else {
        const qobs_round_args args = {.struct_size = sizeof args,
                                      .config = config,
                                      .format = format,
                                      .value = &value,
                                      .scale = &scale,
                                      .zero_point = zero_points,
                                      .hessian = &hessian,
                                      .hessian_count = s->tokens,
                                      .passes = passes,
                                      .codes = codes,
                                      .codes_size = size,
                                      .report = &s->report,
                                      .runtime = runtime};
        status = qobs_round_codes(&args, error);
    }
    qobs_config_destroy(config);
    return status;
}

static void round_sample(struct sample *s, int passes, unsigned char *codes, const qobs_runtime *runtime)
{
    qobs_error error;
    if (call(s, passes, codes, runtime, &error) != QOBS_OK)
        fail_msg("%s: %s", s->kind->name, error.message);
}

static double number_of(const struct kind *kind, unsigned char code)
{
    return kind->format ? (double)qobs_format_decode(qobs_format_find(kind->format), code) : (double)(signed char)code;
}

/* w minus the number of a code. */
static double residual(const struct sample *s, int64_t row, int64_t column, unsigned char code)
{
    const int64_t q = row * s->groups + column / s->group;
    const double number = (number_of(s->kind, code) - (double)s->zero_point[q]) * (double)s->scale[q];
    return (double)s->w[row * s->columns + column] - number;
}

/* d H d^T with one block of H, and the sum of |d| * sqrt(H_jj). */
static double error_of(const double *h, const double *d, int64_t n, double *error_bound)
{
    double sum = 0;
    *error_bound = 0;
    for (int64_t j = 0; j < n; j++) {
        double g = 0;
        for (int64_t k = 0; k < n; k++)
            g += h[j * n + k] * d[k];
        sum += d[j] * g;
        *error_bound += fabs(d[j]) * sqrt(h[j * n + j]);
    }
    return sum;
}

static double row_error(const struct sample *s, int64_t row, const unsigned char *codes, double *error_bound)
{
    double d[MOST_COLUMNS];
    for (int64_t j = 0; j < s->columns; j++)
        d[j] = residual(s, row, j, codes[row * s->columns + j]);
    return error_of(s->h, d, s->columns, error_bound);
}

/* ---- Optima ------------------------------------------------------------------------------------------------------ */

/* H = R^T R with R lower triangular, so that row i of R has columns up to i; a matrix of less rank has zeros. */
static void factor(const double *h, int64_t n, double *r)
{
    memset(r, 0, (size_t)(n * n) * sizeof *r);
    for (int64_t i = n - 1; i >= 0; i--) {
        double own = h[i * n + i];
        for (int64_t m = i + 1; m < n; m++)
            own -= r[m * n + i] * r[m * n + i];
        const double root = own > 1e-12 * h[i * n + i] ? sqrt(own) : 0;
        r[i * n + i] = root;
        for (int64_t j = 0; j < i && root > 0; j++) {
            double sum = h[i * n + j];
            for (int64_t m = i + 1; m < n; m++)
                sum -= r[m * n + i] * r[m * n + j];
            r[i * n + j] = sum / root;
        }
    }
}

/* The smallest error of all codes of the columns from i on. Partial sums of squares only grow. */
static void search_all(const struct sample *s, int64_t row, const double *r, int64_t i, double *d, double sum,
                       double *best)
{
    const int half = 1 << (s->kind->bits - 1);
    if (i == s->columns) {
        *best = sum;
        return;
    }
    for (int code = -half; code < half; code++) {
        double y = 0;
        d[i] = residual(s, row, i, (unsigned char)code);
        for (int64_t j = 0; j <= i; j++)
            y += r[i * s->columns + j] * d[j];
        if (sum + y * y < *best)
            search_all(s, row, r, i + 1, d, sum + y * y, best);
    }
}

/* No change of one code lowers the error of a row by more than float sums can tell: by as much as a step must gain,
 * and the error of that gain, each 2 * |step| * DOUBT * sqrt(H_jj) * error_bound. */
static void check_optimum(const struct sample *s, int64_t row)
{
    const int half = 1 << (s->kind->bits - 1);
    double d[MOST_COLUMNS], error_bound;
    for (int64_t j = 0; j < s->columns; j++)
        d[j] = residual(s, row, j, s->codes[row * s->columns + j]);
    const double present = error_of(s->h, d, s->columns, &error_bound);
    for (int64_t j = 0; j < s->columns; j++) {
        const double own = d[j];
        for (int code = -half; code < half; code++) {
            double unused;
            d[j] = residual(s, row, j, (unsigned char)code);
            const double root = sqrt(s->h[j * s->columns + j]), other = error_of(s->h, d, s->columns, &unused);
            if (!(other >= present - 4.01 * fabs(d[j] - own) * DOUBT * root * error_bound))
                fail_msg("%s: row %lld: code %d in column %lld has error %.9g, the result %.9g", s->kind->name,
                         (long long)row, code, (long long)j, other, present);
        }
        d[j] = own;
    }
}

/* 10,000 rows of each kind, or 400; a hundred with one H. */
static void brute_force(void **state)
{
    static const char *const names[] = {"int2", "int3", "int2 asymmetric", "int3 asymmetric"};
    enum { ROWS = 100 };
    const int hessians = repeats(4, 100);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct kind *kind = kinds;
        while (strcmp(kind->name, names[i]) != 0)
            kind++;
        int64_t global = 0, global_nearest = 0;
        for (int k = 0; k < hessians; k++) {
            const int64_t columns = 6 + k % 3;
            struct sample s = make_sample(kind, ROWS, columns, 0, 0, k % 4 == 0 ? 3 : 20);
            double r[64], d[MOST_COLUMNS], error_bound;
            factor(s.h, columns, r);
            round_sample(&s, 0, s.nearest, NULL);
            round_sample(&s, 100, s.codes, NULL);
            assert_true(s.report.passes < 100);
            for (int64_t row = 0; row < ROWS; row++) {
                check_optimum(&s, row);
                const double result = row_error(&s, row, s.codes, &error_bound);
                double best = result * (1 + 1e-9) + 1e-300;
                search_all(&s, row, r, 0, d, 0, &best);
                global += result <= best * (1 + 1e-6);
                global_nearest += row_error(&s, row, s.nearest, &error_bound) <= best * (1 + 1e-6);
            }
            free_sample(&s);
        }
        print_message("%s: %.1f %% of %d rows have the smallest error of all codes, %.1f %% of the nearest codes\n",
                      kind->name, (double)global / hessians, hessians * ROWS, (double)global_nearest / hessians);
        assert_true(global > global_nearest);
    }
}

/* Without dependence between columns the nearest codes are the best ones. */
static void diagonal(void **state)
{
    for (int i = 0; i < KINDS; i++) {
        struct sample s = make_sample(&kinds[i], 200, 150, 0, 0, 1);
        for (int64_t j = 0; j < s.columns; j++)
            for (int64_t k = 0; k < s.columns; k++)
                s.h[j * s.columns + k] = j == k ? fabs(normal()) + 0.01 : 0;
        round_sample(&s, 0, s.nearest, NULL);
        round_sample(&s, 4, s.codes, NULL);
        assert_memory_equal(s.codes, s.nearest, (size_t)(s.rows * s.columns));
        assert_int_equal(s.report.changed, 0);
        assert_int_equal(s.report.passes, 1);
        assert_true(s.report.error == s.report.error_before);
        free_sample(&s);
    }
}

/* 100,000 rows, or 2,000: the error after a pass is at most that before it. */
static void monotone(void **state)
{
    enum { ROWS = 200, PASSES = 4 };
    int64_t rows = 0, lower = 0;
    for (int turn = 0; rows < repeats(2000, 100000); turn++)
        for (int i = 0; i < KINDS; i++, rows += ROWS) {
            const int64_t columns = 5 + (turn * 7 + i * 3) % 44;
            struct sample s = make_sample(&kinds[i], ROWS, columns, 0, 0, turn % 3 == 0 ? 4 : 2 * columns);
            double before[ROWS], error_bound, sums[2] = {0};
            round_sample(&s, 0, s.codes, NULL);
            for (int64_t row = 0; row < ROWS; row++) {
                before[row] = row_error(&s, row, s.codes, &error_bound);
                sums[0] += before[row];
            }
            for (int passes = 1; passes <= PASSES; passes++) {
                round_sample(&s, passes, s.codes, NULL);
                sums[1] = 0;
                for (int64_t row = 0; row < ROWS; row++) {
                    const double after = row_error(&s, row, s.codes, &error_bound);
                    if (!(after <= before[row] + 1e-13 * error_bound * error_bound)) /* of the sums of doubles here */
                        fail_msg("%s: row %lld: the error rises from %.17g to %.17g in pass %d", kinds[i].name,
                                 (long long)row, before[row], after, passes);
                    lower += after < before[row];
                    before[row] = after;
                    sums[1] += after;
                }
            }
            const double noise = 1e-5 * sums[0] + 1e-12;
            assert_true(fabs(s.report.error_before - sums[0]) < noise && fabs(s.report.error - sums[1]) < noise);
            free_sample(&s);
        }
    assert_true(lower > rows / 2);
}

/* ---- Hessians ---------------------------------------------------------------------------------------------------- */

static void multiply(double *x, size_t n, double by)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

/* Columns of a block of H, of which the last one of a row or of a group may be short. */
static int64_t width_of(const struct sample *s, int64_t start)
{
    const int64_t period = s->block < s->group ? s->group : s->block;
    const int64_t next = start / period * period + period, end = next < s->columns ? next : s->columns;
    return end - start < s->block ? end - start : s->block;
}

static void dampen(struct sample *s, double share)
{
    int64_t width;
    double *h = s->h;
    for (int64_t start = 0; start < s->columns; start += width, h += s->block * s->block) {
        double mean = 0;
        width = width_of(s, start);
        for (int64_t j = 0; j < width; j++)
            mean += h[j * (s->block + 1)] / (double)width;
        for (int64_t j = 0; j < width; j++)
            h[j * (s->block + 1)] += share * mean;
    }
}

static void special_hessians(void **state)
{
    for (int i = 0; i < KINDS; i++) {
        struct sample s = make_sample(&kinds[i], 150, 140, 20, 0, 1); /* of rank 1 */
        const size_t codes = (size_t)(s.rows * s.columns), entries = (size_t)(s.columns * s.columns);
        unsigned char *const expected = allocate(codes, 1);
        round_sample(&s, 0, s.nearest, NULL);
        round_sample(&s, 4, expected, NULL);
        assert_true(s.report.error < 0.05 * s.report.error_before && s.report.changed > 0);
        const double error = s.report.error;
        for (int power = -900; power <= 900; power += 450) {
            multiply(s.h, entries, ldexp(1, power)); /* huge and tiny */
            round_sample(&s, 4, s.codes, NULL);
            assert_memory_equal(s.codes, expected, codes);
            assert_true(s.report.error == ldexp(error, power));
            multiply(s.h, entries, ldexp(1, -power));
        }
        for (size_t k = 0; k < codes; k++)
            s.w[k] *= 0x1p-90f;
        for (int64_t k = 0; k < s.rows * s.groups; k++)
            s.scale[k] *= 0x1p-90f;
        round_sample(&s, 4, s.codes, NULL);
        assert_memory_equal(s.codes, expected, codes);
        memset(s.h, 0, entries * sizeof *s.h); /* columns saw nothing */
        round_sample(&s, 4, s.codes, NULL);
        assert_memory_equal(s.codes, s.nearest, codes);
        assert_true(s.report.error == 0 && s.report.changed == 0);
        free(expected);
        free_sample(&s);
    }
}

/* A column without weight keeps its nearest codes, and so do NaN and infinity; others change beside them. */
static void kept(void **state)
{
    struct sample s = make_sample(&kinds[2], 150, 140, 0, 0, 60);
    const int64_t n = s.columns;
    for (int64_t k = 0; k < n; k++)
        s.h[7 * n + k] = s.h[k * n + 7] = 0;
    s.w[3 * n + 11] = NAN;
    s.w[3 * n + 12] = INFINITY;
    round_sample(&s, 0, s.nearest, NULL);
    round_sample(&s, 4, s.codes, NULL);
    for (int64_t row = 0; row < s.rows; row++)
        assert_int_equal(s.codes[row * n + 7], s.nearest[row * n + 7]);
    assert_int_equal(s.codes[3 * n + 11], 0);
    assert_int_equal(s.codes[3 * n + 12], 7);
    assert_memory_not_equal(s.codes + 3 * n, s.nearest + 3 * n, (size_t)n);
    free_sample(&s);
}

/* H counts as its symmetric part. */
static void asymmetric(void **state)
{
    struct sample s = make_sample(&kinds[2], 130, 140, 0, 0, 60);
    const int64_t n = s.columns;
    round_sample(&s, 4, s.nearest, NULL);
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < j; k++) {
            const double off = (double)((j * 7 + k * 3) % 5) / 4;
            s.h[j * n + k] += off;
            s.h[k * n + j] -= off;
        }
    round_sample(&s, 4, s.codes, NULL);
    assert_memory_equal(s.codes, s.nearest, (size_t)(s.rows * n));
    free_sample(&s);
}

/* The share of the mean of H_jj stands on the diagonal of each block as if the caller had put it there. */
static void dampened(void **state)
{
    static const int64_t shapes[][2] = {{0, 0}, {100, 40}, {20, 140}};
    for (int i = 0; i < KINDS; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            struct sample s = make_sample(&kinds[i], 150, 290, shapes[k][0], shapes[k][1], 40);
            const size_t codes = (size_t)(s.rows * s.columns);
            round_sample(&s, 4, s.nearest, NULL);
            s.dampening = 0.25;
            round_sample(&s, 4, s.codes, NULL);
            assert_memory_not_equal(s.codes, s.nearest, codes);
            const double error = s.report.error;
            s.dampening = 0;
            dampen(&s, 0.25);
            round_sample(&s, 4, s.nearest, NULL);
            assert_memory_equal(s.codes, s.nearest, codes);
            assert_true(s.report.error == error);
            free_sample(&s);
        }
}

/* With a token for each column, products of two columns count as if the caller had divided them by 1.5; errors are those
 * of H. One token says that their number is not known. */
static void few_tokens(void **state)
{
    enum { COLUMNS = 256 };
    for (int i = 0; i < KINDS; i++) {
        struct sample s = make_sample(&kinds[i], 150, COLUMNS, 0, 0, 400);
        const size_t codes = (size_t)(s.rows * s.columns);
        double error_bound, error = 0;
        round_sample(&s, 4, s.nearest, NULL);
        s.tokens = 1;
        round_sample(&s, 4, s.codes, NULL);
        assert_memory_equal(s.codes, s.nearest, codes);
        s.tokens = COLUMNS;
        round_sample(&s, 4, s.codes, NULL);
        assert_memory_not_equal(s.codes, s.nearest, codes);
        for (int64_t row = 0; row < s.rows; row++)
            error += row_error(&s, row, s.codes, &error_bound) / COLUMNS;
        assert_true(fabs(s.report.error - error) <= 1e-3 * error);
        for (int64_t j = 0; j < COLUMNS; j++)
            for (int64_t k = 0; k < COLUMNS; k++)
                s.h[j * COLUMNS + k] *= j == k ? 1 : 1 - 0.5 / 1.5;
        s.tokens = 0;
        round_sample(&s, 4, s.nearest, NULL);
        assert_memory_equal(s.codes, s.nearest, codes);
        free_sample(&s);
    }
}

static void refused(void **state)
{
    static const struct {
        double number;
        int64_t at;
        const char *message;
    } entries[] = {{(double)NAN, 3 * 40 + 9, "hessian: [0][3][9] is nan, allowed are finite numbers"},
                   {(double)INFINITY, 9 * 40 + 3, "hessian: [0][9][3] is inf, allowed are finite numbers"},
                   {-1, 5 * 41, "hessian: [0][5][5] is -1, allowed are finite numbers from 0 on the diagonal"}};
    struct sample s = make_sample(&kinds[2], 4, 40, 0, 0, 60);
    qobs_error error;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const double present = s.h[entries[i].at];
        s.h[entries[i].at] = entries[i].number;
        assert_int_equal(call(&s, 4, s.codes, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT);
        assert_string_equal(error.message, entries[i].message);
        s.h[entries[i].at] = present;
    }
    assert_int_equal(call(&s, 101, s.codes, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.message, "passes: is 101, allowed are 0 to 100");
    s.block = 20;
    assert_int_equal(call(&s, 4, s.codes, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.message, "hessian: has 1 blocks of 20 columns, 40 columns in groups of 40 have 2 blocks "
                                       "of 20");
    free_sample(&s);
}

/* ---- Blocks and bits --------------------------------------------------------------------------------------------- */

/* Blocks of H do not know of each other: columns of one have the codes that they have alone. */
static void blocks(void **state)
{
    static const int64_t shapes[][3] = {{300, 50, 100}, {300, 100, 40}, {310, 0, 150}, {260, 64, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct sample s = make_sample(&kinds[9], 140, shapes[i][0], shapes[i][1], shapes[i][2], 80);
        round_sample(&s, 3, s.codes, NULL);
        int64_t block = 0;
        for (int64_t start = 0; start < s.columns; block++) {
            const int64_t width = width_of(&s, start);
            const int64_t group = s.group < width ? s.group : 0;
            struct sample alone = make_sample(&kinds[9], s.rows, width, group, 0, 1);
            for (int64_t row = 0; row < s.rows; row++) {
                memcpy(alone.w + row * width, s.w + row * s.columns + start, (size_t)width * sizeof *s.w);
                for (int64_t k = 0; k < alone.groups; k++) {
                    alone.scale[row * alone.groups + k] = s.scale[row * s.groups + start / s.group + k];
                    alone.zero_point[row * alone.groups + k] = s.zero_point[row * s.groups + start / s.group + k];
                }
            }
            for (int64_t j = 0; j < width; j++)
                memcpy(alone.h + j * width, s.h + (block * s.block + j) * s.block, (size_t)width * sizeof *s.h);
            round_sample(&alone, 3, alone.codes, NULL);
            for (int64_t row = 0; row < s.rows; row++)
                assert_memory_equal(alone.codes + row * width, s.codes + row * s.columns + start, (size_t)width);
            free_sample(&alone);
            start += width;
        }
        assert_int_equal(block, s.blocks);
        free_sample(&s);
    }
}

/* Rows one by one, threads and instruction sets. */
static void same_bits(void **state)
{
    static const size_t counts[] = {1, 2, 7};
    for (int i = 2; i < KINDS; i += 3) {
        struct sample s = make_sample(&kinds[i], repeats(131, MOST_ROWS - 3), MOST_COLUMNS - 9, 100, 0, 200);
        const size_t codes = (size_t)(s.rows * s.columns);
        qobs_round_report expected = {0};
        for (size_t isa = 0; isa < qobs_isa_count(); isa++)
            for (size_t t = 0; t < sizeof counts / sizeof *counts && qobs_isa_usable(isa); t++) {
                size_t threads = counts[t];
                if (!meets_threads(isa, t))
                    continue;
                const qobs_executor executor = {.struct_size = sizeof executor,
                                                .context = &threads,
                                                .parallel_for = parallel_for,
                                                .threads = threads};
                const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = &executor};
                assert_int_equal(qobs_isa_select(qobs_isa_name(isa), NULL), QOBS_OK);
                round_sample(&s, 2, expected.struct_size == 0 ? s.nearest : s.codes, &runtime);
                if (expected.struct_size > 0) {
                    assert_memory_equal(s.codes, s.nearest, codes);
                    enum { BYTES = offsetof(qobs_round_report, passes) + sizeof s.report.passes }; /* no padding */
                    assert_memory_equal(&s.report, &expected, BYTES);
                }
                expected = s.report;
            }
        qobs_isa_select(NULL, NULL);
        struct sample some = s;
        for (int64_t row = 0; row < s.rows; row += some.rows) {
            some.rows = s.rows - row < 50 ? s.rows - row : 50;
            some.w = s.w + row * s.columns;
            some.scale = s.scale + row * s.groups;
            some.zero_point = s.zero_point + row * s.groups;
            round_sample(&some, 2, s.codes + row * s.columns, NULL);
        }
        assert_memory_equal(s.codes, s.nearest, codes);
        assert_true(expected.error < expected.error_before);
        free_sample(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brute_force),      cmocka_unit_test(diagonal), cmocka_unit_test(monotone),
        cmocka_unit_test(special_hessians), cmocka_unit_test(kept),     cmocka_unit_test(asymmetric),
        cmocka_unit_test(dampened),         cmocka_unit_test(refused),  cmocka_unit_test(blocks),
        cmocka_unit_test(same_bits),        cmocka_unit_test(few_tokens),
    };
    return cmocka_run_group_tests_name("round_codes", tests, NULL, NULL);
}
