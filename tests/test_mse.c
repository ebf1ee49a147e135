/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search for the range with the least error: what the presets *mse do in any layout, format and number of threads,
 * against a slow search; importance; what is refused. */
#include <math.h>

#include "layouts.h"
#include "number/convert.h"
#include "observing.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "repeats.h"
#include "search_reference.h"
#include "threads.h"
#include "calls.h"

static uint64_t seed = 20261120;

/* ---- Settings ---------------------------------------------------------------------------------------------------- */

static void test_settings(void **state)
{
    static const struct {
        const char *preset, *settings, *words;
    } refused[] = {
        {"llmc.mse", "maxshrink=1.01", "maxshrink|'1.01'|0 to 1"},
        {"llmc.mse", "maxshrink=-0.1", "maxshrink|'-0.1'"},
        {"llmc.mse", "patience=-1", "patience|'-1'"},
        {"llmc.mse", "patience=2.5", "patience|'2.5'|integers"},
        {"llmc.mse", "grid=0", "grid|'0'"},
        {"llmc.mse", "grid=-20", "grid|'-20'"},
        {"llmc.mse", "norm=0", "norm|'0'"},
        {"llmc.mse", "norm=inf", "norm|'inf'"},
        {"llmc.mse", "expand=0.99", "expand|'0.99'|1 to"},
        {"llmc.mse", "chunk_size=0", "chunk_size|'0'|1 to"},
        {"llmc.mse", "strict=true", "'strict'|belongs to llmc.imatrix_mse"},
        {"llmc.imatrix_mse", "strict=1", "strict|'1'|true and false"},
        {"llmc.imatrix_mse", "chunk_size=5", "'chunk_size'"},
        {"llmc.minmax", "maxshrink=0.2", "'maxshrink'"},
        {"llmc.memoryless_mse", "averaging_constant=0.2", "'averaging_constant'"},
        {"llmc.nvfp4_expanded_mse", "version=2025-10", "version|2025-10|nvfp4_expanded_mse"},
        {"llmc.imatrix_mse", "version=2025-10", "version|2025-10|imatrix_mse"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        qobs_config *config = make_config(refused[i].preset, "", NULL);
        const int status = qobs_config_set_all(config, refused[i].settings, &error);
        assert_refused(status == QOBS_OK ? qobs_config_check(config, &error) : status, QOBS_ERROR_INVALID_ARGUMENT,
                       refused[i].words);
        qobs_config_destroy(config);
    }
    static const struct {
        const char *preset, *maxshrink, *grid, *patience, *norm, *expand;
    } defaults[] = {
        {"llmc.memoryless_mse", "0.20000000000000001", "100", "5", "2.3999999999999999", "1"},
        {"llmc.mse", "0.20000000000000001", "100", "5", "2.3999999999999999", "1"},
        {"llmc.nvfp4_expanded_mse", "0.55555555555555558", "200", "1000", "2.3999999999999999", "1.8"},
        {"llmc.imatrix_mse", "0.94999999999999996", "20", "5", "3", "1"},
    };
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        const char *const keys[] = {"maxshrink", "grid", "patience", "norm", "expand"};
        const char *const values[] = {defaults[i].maxshrink, defaults[i].grid, defaults[i].patience, defaults[i].norm,
                                      defaults[i].expand};
        qobs_config *config = NULL;
        assert_ok(qobs_config_create(&config, defaults[i].preset, NULL, &error));
        for (size_t k = 0; k < 5; k++) {
            char value[64];
            assert_ok(qobs_config_get(config, keys[k], value, sizeof value, &error));
            assert_true(strtod(value, NULL) == strtod(values[k], NULL));
        }
        qobs_config_destroy(config);
    }
}

/* ---- Importance -------------------------------------------------------------------------------------------------- */

/* Every column's sum of squares, tokens in C order. */
static void slow_sums(const struct tensor *t, double *sums)
{
    int64_t index[DIMS] = {0};
    memset(sums, 0, (size_t)t->shape[t->ndim - 1] * sizeof *sums);
    do {
        const double value = value_of(t->dtype, load_bits(t->dtype, address(t, index)));
        sums[index[t->ndim - 1]] += (double)(float)value * (double)(float)value;
    } while (step(t, index));
}

static void test_importance_layouts(void **state)
{
    struct rng r = {seed};
    for (int round = 0; round < 400; round++) {
        struct tensor t = {.dtype = &dtypes[between(&r, 0, 3)], .ndim = (int)between(&r, 1, 4)};
        for (int d = 0; d < t.ndim; d++)
            t.shape[d] = between(&r, 1, d == t.ndim - 1 ? (chance(&r, 20) ? 700 : 70) : 12);
        lay_out(&r, &t);
        fill_elements(&r, &t, 0);
        const qobs_tensor view = view_of(&t);
        const int64_t columns = t.shape[t.ndim - 1];
        float *got = malloc((size_t)columns * sizeof *got);
        double *sums = malloc((size_t)columns * sizeof *sums);
        slow_sums(&t, sums);
        for (size_t isa = 0; select_isa(&isa); isa++) {
            qobs_observer *o = make("llmc.imatrix_mse", "");
            int64_t tokens;
            for (int twice = 0; twice < 2; twice++)
                assert_ok(qobs_observer_observe_importance(o, &view, &error));
            assert_ok(qobs_observer_read(o, "imatrix_count", &tokens, sizeof tokens, &error));
            assert_int_equal(tokens, 2 * t.elements / columns);
            assert_ok(qobs_observer_read(o, "imatrix_sum", got, (size_t)columns * sizeof *got, &error));
            for (int64_t j = 0; j < columns; j++) {
                const double slow = 2 * sums[j];
                if (fabs((double)got[j] - slow) > 6.1e-8 * slow + 1e-45 && !(slow > 3.4e38 && isinf(got[j])))
                    fail_msg("round %d, column %d: %.9g, expected %.9g", round, (int)j, (double)got[j], slow);
            }
            qobs_observer_destroy(o);
        }
        free(sums);
        free(got);
        free(t.memory);
    }
    assert_ok(qobs_isa_select(NULL, &error));
}

/* The same bits from every instruction set and number of threads. */
static void test_importance_threads(void **state)
{
    enum { TOKENS = 301, COLUMNS = 1500 };
    struct rng r = {seed};
    float *x = malloc(TOKENS * COLUMNS * sizeof *x);
    static float first[COLUMNS], got[COLUMNS];
    for (size_t i = 0; i < TOKENS * COLUMNS; i++)
        x[i] = (float)between(&r, -1000000, 1000000) / 999983;
    const qobs_tensor value = tensor(QOBS_F32, x, TOKENS, COLUMNS);
    bool any = false;
    for (size_t isa = 0; select_isa(&isa); isa++) {
        for (size_t threads = 1; threads <= 7; threads += threads == 1 ? 1 : 5) {
            const qobs_executor executor = {sizeof executor, threads, parallel_for, &threads};
            const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = &executor};
            qobs_config *config = make_config("llmc.imatrix_mse", "", NULL);
            qobs_observer *o;
            assert_ok(qobs_observer_create(&o, config, &runtime, &error));
            assert_ok(qobs_observer_observe_importance(o, &value, &error));
            assert_ok(qobs_observer_read(o, "imatrix_sum", any ? got : first, sizeof got, &error));
            if (any)
                assert_memory_equal(first, got, sizeof got);
            any = true;
            qobs_observer_destroy(o);
            qobs_config_destroy(config);
        }
    }
    assert_ok(qobs_isa_select(NULL, &error));
    free(x);
}

static qobs_search_report report_of(const qobs_observer *o)
{
    qobs_search_report report = {.struct_size = sizeof report};
    assert_ok(qobs_observer_search_report(o, &report, &error));
    return report;
}

static const float weight[] = {1, -2, 3, 4, 0.5f, -0.25f, 0.125f, 9}; /* 2 rows */

/* Importance that cannot be used: the plain search and the reason, or an error and nothing else. */
static void test_fallback(void **state)
{
    static const struct {
        const char *settings;
        const float activations[4];
        int64_t columns; /* 0: none are observed */
        const char *reason;
        int status;
    } cases[] = {
        {"strategy=channel", {1, 2, 3, 4}, 0, "no activations", QOBS_ERROR_NO_DATA},
        {"strategy=channel", {1, NAN, 3, 4}, 4, "not all finite", QOBS_ERROR_INVALID_ARGUMENT},
        {"strategy=channel", {1, 2, INFINITY, 4}, 4, "not all finite", QOBS_ERROR_INVALID_ARGUMENT},
        {"strategy=channel", {1, 2, 3e30f, 4}, 4, "not all finite", QOBS_ERROR_INVALID_ARGUMENT},
        {"group_size=2", {0, 0, 0, 0}, 4, "0 everywhere", QOBS_ERROR_INVALID_ARGUMENT},
        {"group_size=2", {1, 2}, 2, "another number of columns", QOBS_ERROR_INVALID_ARGUMENT},
        {"strategy=tensor", {1, 2, 3, 4}, 4, "strategy", QOBS_ERROR_INVALID_ARGUMENT},
        {"strategy=block;block_structure=[2,2]", {1, 2, 3, 4}, 4, "strategy", QOBS_ERROR_INVALID_ARGUMENT},
        {"base_name=input;strategy=tensor", {1, 2, 3, 4}, 4, "no weight", QOBS_ERROR_INVALID_ARGUMENT},
        {"group_size=2;num_bits=4", {1, 2, 3, 4}, 4, NULL, QOBS_OK},
        {"strategy=tensor_group;group_size=2;type=float;num_bits=4", {0, 0, 0, 4}, 4, NULL, QOBS_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int strict = 0; strict < 2; strict++) {
            qobs_observer *o = make("llmc.imatrix_mse", cases[i].settings),
                          *plain = make("llmc.imatrix_mse", cases[i].settings);
            qobs_observer_destroy(o);
            char settings[128];
            snprintf(settings, sizeof settings, "%s;strict=%s", cases[i].settings, strict ? "true" : "false");
            o = make("llmc.imatrix_mse", settings);
            if (cases[i].columns) {
                const qobs_tensor x = tensor(QOBS_F32, cases[i].activations, 1, 1, cases[i].columns);
                assert_ok(qobs_observer_observe_importance(o, &x, &error));
            }
            if (strict && cases[i].reason) {
                assert_refused(observe(o, 2, 4, weight), cases[i].status, "importance|strict");
                assert_non_null(strstr(error.message, cases[i].reason));
                assert_int_equal(counts_of(o).batches, 0);
                qobs_result result = {.struct_size = sizeof result};
                assert_int_equal(qobs_observer_result_find(o, "min_vals", &result, &error), QOBS_ERROR_NO_DATA);
                assert_int_equal(qobs_observer_result_find(o, "best_step", &result, &error), QOBS_ERROR_NO_DATA);
            } else {
                assert_ok(observe(o, 2, 4, weight));
                const qobs_search_report report = report_of(o);
                assert_int_equal(report.weighted, cases[i].reason == NULL);
                assert_int_equal(report.steps, 20);
                if (cases[i].reason) {
                    float with[16], without[16];
                    qobs_result result = {.struct_size = sizeof result};
                    assert_non_null(strstr(report.fallback, cases[i].reason));
                    assert_ok(observe(plain, 2, 4, weight));
                    assert_ok(qobs_observer_result_find(o, "min_vals", &result, &error));
                    assert_ok(qobs_observer_read(o, "min_vals", with, result.size, &error));
                    assert_ok(qobs_observer_read(plain, "min_vals", without, result.size, &error));
                    assert_memory_equal(with, without, result.size);
                } else {
                    assert_null(report.fallback);
                }
            }
            qobs_observer_destroy(o);
            qobs_observer_destroy(plain);
        }
}

static void test_importance_refused(void **state)
{
    qobs_observer *o = make("llmc.imatrix_mse", "strategy=channel"), *plain = make("llmc.mse", "");
    const qobs_tensor x = tensor(QOBS_F32, weight, 2, 4), wider = tensor(QOBS_F32, weight, 1, 8),
                      none = tensor(QOBS_F32, NULL, 0, 8);
    const qobs_tensor integers = tensor(QOBS_I32, weight, 2, 4);
    const qobs_tensor scalar = {.struct_size = sizeof scalar, .data = weight, .dtype = QOBS_F32};
    int64_t tokens;
    qobs_search_report report = {.struct_size = sizeof report};
    assert_refused(qobs_observer_observe_importance(plain, &x, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "llmc.mse|weigh columns");
    assert_refused(qobs_observer_observe_importance(NULL, &x, &error), QOBS_ERROR_INVALID_ARGUMENT, "observer|NULL");
    assert_refused(qobs_observer_observe_importance(o, &integers, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "activations|I32|F32, BF16");
    assert_refused(qobs_observer_observe_importance(o, &scalar, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "activations|dimensions");
    assert_refused(qobs_observer_read(o, "imatrix_count", &tokens, 8, &error), QOBS_ERROR_NO_DATA, "imatrix_count");
    assert_ok(qobs_observer_observe_importance(o, &none, &error)); /* no tokens say nothing about columns */
    assert_ok(qobs_observer_observe_importance(o, &x, &error));
    assert_refused(qobs_observer_observe_importance(o, &wider, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "activations|8 columns|4");
    assert_ok(qobs_observer_read(o, "imatrix_count", &tokens, 8, &error));
    assert_int_equal(tokens, 2);
    assert_result(o, "imatrix_sum", 1.25f, 4.0625f, 9.015625f, 97);
    assert_refused(qobs_observer_search_report(o, &report, &error), QOBS_ERROR_NO_DATA, "searched");
    report.struct_size--;
    assert_ok(observe(o, 2, 4, weight));
    assert_refused(qobs_observer_search_report(o, &report, &error), QOBS_ERROR_INVALID_ARGUMENT, "report|struct_size");
    assert_refused(qobs_observer_read(plain, "imatrix_sum", &tokens, 8, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "imatrix_sum|llmc.mse");
    qobs_observer_reset(o);
    assert_refused(qobs_observer_read(o, "imatrix_count", &tokens, 8, &error), QOBS_ERROR_NO_DATA, "imatrix_count");
    qobs_observer_destroy(o);
    qobs_observer_destroy(plain);
}

/* Importance gathered on several machines is one. */
static void test_importance_merge(void **state)
{
    qobs_observer *all = make("llmc.imatrix_mse", "group_size=2"), *parts[3],
                  *wider = make("llmc.imatrix_mse", "group_size=2");
    const float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    for (int i = 0; i < 3; i++) {
        const qobs_tensor part = tensor(QOBS_F32, x + 4 * i, 1, 4);
        parts[i] = make("llmc.imatrix_mse", "group_size=2");
        if (i > 0) /* the first has seen nothing */
            assert_ok(qobs_observer_observe_importance(parts[i], &part, &error));
    }
    const qobs_tensor seen = tensor(QOBS_F32, x + 4, 2, 4), eight = tensor(QOBS_F32, x, 1, 8);
    assert_ok(qobs_observer_observe_importance(all, &seen, &error));
    assert_ok(qobs_observer_merge(parts[0], (const qobs_observer *const[]){parts[1], parts[2]}, 2, &error));
    assert_result(parts[0], "imatrix_sum", 25 + 81, 36 + 100, 49 + 121, 64 + 144);
    int64_t tokens;
    assert_ok(qobs_observer_read(parts[0], "imatrix_count", &tokens, sizeof tokens, &error));
    assert_int_equal(tokens, 2);
    assert_ok(observe(parts[0], 2, 4, weight));
    assert_ok(observe(all, 2, 4, weight));
    assert_true(report_of(parts[0]).weighted && report_of(parts[0]).error == report_of(all).error);
    assert_ok(qobs_observer_observe_importance(wider, &eight, &error));
    assert_refused(qobs_observer_merge(parts[1], (const qobs_observer *const[]){parts[2], wider}, 2, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "others[1]|8 columns|4");
    assert_ok(qobs_observer_read(parts[1], "imatrix_count", &tokens, sizeof tokens, &error));
    assert_int_equal(tokens, 1);
    for (int i = 0; i < 3; i++)
        qobs_observer_destroy(parts[i]);
    qobs_observer_destroy(all);
    qobs_observer_destroy(wider);
}

/* ---- The search -------------------------------------------------------------------------------------------------- */

/* A random tensor, and the same elements in C order. */
struct subject {
    struct tensor t;
    unsigned char *plain;
    int32_t *g_idx; /* NULL: none */
    float *importance;
};

static uint64_t bits_of(const struct dtype *d, double value)
{
    uint64_t bits = 0;
    qobs_put_element(&bits, d->dtype, value);
    return bits;
}

/* Something like a weight: bell-shaped, a few outliers, sometimes all of one sign. */
static void make_subject(struct rng *r, struct subject *s, int ndim, const int64_t *shape)
{
    *s = (struct subject){.t = {.dtype = &dtypes[between(r, 0, 3)], .ndim = ndim}};
    for (int d = 0; d < ndim; d++)
        s->t.shape[d] = shape[d];
    lay_out(r, &s->t);
    const double scale = ldexp(1, (int)between(r, -8, 3));
    const int sign = (int)between(r, 0, 4);
    int64_t index[DIMS] = {0}, n = 0;
    do {
        double x = 0;
        for (int i = 0; i < 4; i++)
            x += (double)between(r, -10007, 10007) / 20000;
        x *= chance(r, 2) ? 4 * scale : scale;
        const uint64_t bits = bits_of(s->t.dtype, sign == 0 ? fabs(x) : x);
        memcpy(address(&s->t, index), &bits, s->t.dtype->size);
    } while (step(&s->t, index));
    s->plain = malloc((size_t)s->t.elements * s->t.dtype->size + 1);
    memset(index, 0, sizeof index);
    do
        memcpy(s->plain + (size_t)n++ * s->t.dtype->size, address(&s->t, index), s->t.dtype->size);
    while (step(&s->t, index));
}

static void free_subject(struct subject *s)
{
    free(s->t.memory);
    free(s->plain);
    free(s->g_idx);
    free(s->importance);
}

struct trial {
    char settings[300];
    struct reference_format format;
    double maxshrink, grid, norm, expand;
    int64_t patience;
    bool importance;
};

static struct trial draw_trial(struct rng *r, struct subject *s)
{
    static const char *const formats[] = {"type=int", "type=int", "type=int;symmetric=false", "type=float",
                                          "type=float"};
#ifdef QOBS_SLEEF
    static const double norms[] = {1, 2, 2.4, 2.7, 3, 0.5};
#else
    static const double norms[] = {1, 2, 2.4, 3, 1, 2};
#endif
    struct trial t = {.settings = "",
                      .maxshrink = 0.05 * (double)between(r, 2, 18),
                      .grid = (double)between(r, 10, 30),
                      .norm = norms[between(r, 0, 5)],
                      .expand = chance(r, 70) ? 1 : 1.5,
                      .patience = between(r, 0, 8)};
    const int format = (int)between(r, 0, 4);
    t.format = (struct reference_format){format >= 3, format == 3 ? 8 : format == 4 ? 4 : (int)between(r, 2, 8)};
    const int64_t rows = between(r, 1, 9), groups = between(r, 1, 4), experts = between(r, 1, 3), g = between(r, 1, 40);
    char granularity[120];
    int64_t shape[DIMS] = {rows, groups * g};
    int ndim = 2;
    bool columns = false, order = false;
    switch (between(r, 0, 8)) {
    case 0:
        snprintf(granularity, sizeof granularity, "strategy=tensor");
        break;
    case 1:
        snprintf(granularity, sizeof granularity, "strategy=channel");
        columns = true;
        break;
    case 2: /* experts */
        snprintf(granularity, sizeof granularity, "strategy=channel");
        shape[0] = experts, shape[1] = rows, shape[2] = groups * g;
        ndim = 3;
        columns = true;
        break;
    case 3:
        snprintf(granularity, sizeof granularity, "strategy=group;group_size=%d", (int)g);
        columns = order = true;
        break;
    case 4:
        snprintf(granularity, sizeof granularity, "strategy=%s;group_size=%d",
                 t.format.bits == 4 ? "tensor_group" : "group", (int)g);
        shape[0] = experts, shape[1] = rows, shape[2] = groups * g;
        ndim = 3;
        columns = order = true;
        break;
    case 5: /* the last group is short */
        snprintf(granularity, sizeof granularity, "strategy=group;group_size=%d;ragged=true", (int)g);
        shape[1] = between(r, 1, groups * g);
        columns = order = true;
        break;
    case 6:
        snprintf(granularity, sizeof granularity, "strategy=block;block_structure=[%d,%d]", (int)between(r, 1, 5),
                 (int)g);
        shape[1] = between(r, 1, groups * g);
        break;
    case 7:
        snprintf(granularity, sizeof granularity, "base_name=input;strategy=tensor");
        break;
    default:
        snprintf(granularity, sizeof granularity, "base_name=input;strategy=group;group_size=%d", (int)g);
        shape[0] = experts, shape[1] = rows, shape[2] = groups * g;
        ndim = 3;
        break;
    }
    make_subject(r, s, ndim, shape);
    const int64_t width = shape[ndim - 1];
    if (order && chance(r, 40)) {
        s->g_idx = malloc((size_t)width * sizeof *s->g_idx);
        for (int64_t j = 0; j < width; j++)
            s->g_idx[j] = (int32_t)(j <= (width - 1) / g ? j : between(r, 0, (width - 1) / g)); /* all are named */
    }
    if (columns && chance(r, 50)) {
        s->importance = malloc((size_t)width * sizeof *s->importance);
        for (int64_t j = 0; j < width; j++)
            s->importance[j] = chance(r, 10) && j > 0 ? 0 : (float)between(r, 1, 1000) / 64;
    }
    snprintf(t.settings, sizeof t.settings,
             "%s;%s;num_bits=%d;maxshrink=%.17g;grid=%.17g;norm=%.17g;expand=%.17g;patience=%d;search_dtype=float32",
             granularity, formats[format], t.format.bits, t.maxshrink, t.grid, t.norm, t.expand, (int)t.patience);
    return t;
}

/* The results of one way of running the search. */
struct outcome {
    unsigned char min[8 * 600], max[8 * 600];
    int32_t step[600];
    double error[600];
    qobs_search_report report;
};

static void run_trial(const struct trial *t, const struct subject *s, size_t threads, struct outcome *out)
{
    const qobs_executor executor = {sizeof executor, threads, parallel_for, &threads};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = threads > 1 ? &executor : NULL};
    const qobs_tensor value = view_of(&s->t), g_idx = tensor(QOBS_I32, s->g_idx, s->t.shape[s->t.ndim - 1]);
    qobs_config *config = make_config("llmc.memoryless_mse", t->settings, NULL);
    memset(out, 0, sizeof *out);
    out->report.struct_size = sizeof out->report;
    assert_ok(call_search(config, &value, s->g_idx ? &g_idx : NULL, s->importance, NULL, out->min, out->max, out->step,
                          out->error, &out->report, &runtime, &error));
    qobs_config_destroy(config);
}

static void expect_outcome(const struct trial *t, const struct subject *s, const struct outcome *out)
{
    const int64_t width = s->t.shape[s->t.ndim - 1];
    qobs_config *config = make_config("llmc.memoryless_mse", t->settings, NULL);
    const qobs_tensor value = {.struct_size = sizeof value,
                               .data = s->plain,
                               .dtype = s->t.dtype->dtype,
                               .ndim = s->t.ndim,
                               .shape = s->t.shape};
    const qobs_tensor g_idx = tensor(QOBS_I32, s->g_idx, width);
    qobs_plan *plan;
    assert_ok(qobs_plan_create(&plan, config, &value, s->g_idx ? &g_idx : NULL, NULL, &error));
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    const int ndim = qobs_plan_shape(plan, shape, sizeof shape);
    double mean = 0;
    for (int64_t j = 0; s->importance && j < width; j++)
        mean += (double)s->importance[j] / (double)width;
    float *weights = s->importance ? malloc((size_t)width * sizeof *weights) : NULL;
    for (int64_t j = 0; weights && j < width; j++)
        weights[j] = (float)((double)s->importance[j] / mean);
    struct reference r = {.config = config,
                          .format = t->format,
                          .plan = plan,
                          .data = s->plain,
                          .dtype = s->t.dtype->dtype,
                          .columns = width,
                          .weights = weights,
                          .grid = t->grid,
                          .expand = t->expand,
                          .norm = t->norm,
                          .steps = (int)(t->maxshrink * t->grid),
                          .qparams = 1};
    for (int d = 1; d < ndim - 1; d++)
        r.qparams *= (size_t)shape[d];
    assert_true(r.qparams <= 600);
    unsigned char min[8 * 600], max[8 * 600];
    const size_t size = s->t.dtype->size;
    assert_ok(call_minmax(config, &value, s->g_idx ? &g_idx : NULL, min, max, NULL, NULL, &error));
    reference_search(&r, min, max);
    double *rounded = malloc((size_t)r.steps * r.qparams * sizeof *rounded + 1);
    memcpy(rounded, r.error, (size_t)r.steps * r.qparams * sizeof *rounded);
    r.unrounded = true;
    for (int i = 0; i < r.steps; i++)
        reference_step(&r, i);
    bool tie, close;
    const int stop = reference_stop(rounded, r.steps, r.qparams, t->patience, &tie);
    const int exact = reference_stop(r.error, r.steps, r.qparams, t->patience, &close);
    if (out->report.stop_step != stop && out->report.stop_step != exact && !tie && !close)
        fail_msg("%s: stopped after %d, expected %d or %d", t->settings, (int)out->report.stop_step, stop, exact);
    /* x / s is f32: at 2^bits its rounding is that much of the difference from the nearest integer */
    const double tolerance = fmax(1e-5, t->format.is_float ? 0 : t->norm * ldexp(1, t->format.bits - 22));
    double total = 0;
    for (size_t q = 0; q < r.qparams; q++) {
        const size_t at = (size_t)out->step[q] * r.qparams + q;
        const int stopped = out->report.stop_step;
        if (!reference_is_best(r.error, r.qparams, q, stopped, out->step[q]) &&
            !reference_is_best(rounded, r.qparams, q, stopped, out->step[q]))
            fail_msg("%s %s: qparam %d: step %d is not the best", qobs_dtype_name(r.dtype), t->settings, (int)q,
                     (int)out->step[q]);
        if (fabs(out->error[q] - r.error[at]) > tolerance * r.error[at] + 1e-30)
            fail_msg("%s %s: qparam %d: error %.9g, expected %.9g", qobs_dtype_name(r.dtype), t->settings, (int)q,
                     out->error[q], r.error[at]);
        assert_memory_equal(out->min + q * size, r.lo + at * size, size);
        assert_memory_equal(out->max + q * size, r.hi + at * size, size);
        total += out->error[q];
    }
    assert_true(out->report.error == total);
    assert_true(out->report.weighted == (weights != NULL) && !out->report.fallback);
    reference_free(&r);
    free(rounded);
    free(weights);
    qobs_plan_destroy(plan);
    qobs_config_destroy(config);
}

static void test_random(void **state)
{
    struct rng r = {seed};
    static struct outcome first, other;
    for (int round = 0; round < repeats(100, 300); round++) {
        struct subject s;
        const struct trial t = draw_trial(&r, &s);
        bool any = false;
        for (size_t isa = 0; select_isa(&isa); isa++) {
            for (size_t threads = 1; threads <= 7; threads += threads == 1 ? 1 : 5) {
                run_trial(&t, &s, threads, any ? &other : &first);
                if (any && (memcmp(&first, &other, offsetof(struct outcome, report)) != 0 ||
                            !same_report(&first.report, &other.report)))
                    fail_msg("round %d: %s with %zu threads gives other bits: %s", round, qobs_isa_name(isa), threads,
                             t.settings);
                any = true;
            }
        }
        expect_outcome(&t, &s, &first);
        free_subject(&s);
    }
    assert_ok(qobs_isa_select(NULL, &error));
}

/* ---- Corners ----------------------------------------------------------------------------------------------------- */

/* No candidates, or none that is better than nothing. */
static void test_no_candidate(void **state)
{
    int32_t steps[2], stop;
    qobs_observer *o = make("llmc.memoryless_mse", "strategy=channel;maxshrink=0;expand=1.5");
    assert_ok(observe(o, 2, 4, weight));
    assert_result(o, "min_vals", -3, -0.375f);
    assert_result(o, "max_vals", 6, 13.5f);
    assert_ok(qobs_observer_read(o, "best_step", steps, sizeof steps, &error));
    assert_true(steps[0] == -1 && steps[1] == -1);
    assert_ok(qobs_observer_read(o, "stop_step", &stop, sizeof stop, &error));
    assert_int_equal(stop, 0);
    assert_true(report_of(o).error == report_of(o).error_before);
    qobs_observer_destroy(o);

    /* the observer with importance always looks at two */
    o = make("llmc.imatrix_mse", "strategy=channel;maxshrink=0");
    assert_ok(observe(o, 2, 4, weight));
    assert_int_equal(report_of(o).steps, 2);
    qobs_observer_destroy(o);

    /* NaN: the other rows are searched as ever */
    const float with_nan[] = {1, -2, NAN, 4, 0.5f, -0.25f, 0.125f, 9};
    o = make("llmc.memoryless_mse", "strategy=channel;num_bits=4;nonfinite=propagate");
    assert_ok(observe(o, 2, 4, with_nan));
    float min[2], expected[2];
    qobs_observer *plain = make("llmc.memoryless_mse", "strategy=channel;num_bits=4");
    assert_ok(observe(plain, 1, 4, weight + 4));
    assert_ok(qobs_observer_read(o, "min_vals", min, sizeof min, &error));
    assert_ok(qobs_observer_read(plain, "min_vals", expected, sizeof *expected, &error));
    assert_ok(qobs_observer_read(o, "best_step", steps, sizeof steps, &error));
    assert_true(isnan(min[0]) && min[1] == expected[0] && steps[0] == -1 && steps[1] >= 0);
    qobs_observer_destroy(o);
    qobs_observer_destroy(plain);

    o = make("llmc.memoryless_mse", "strategy=channel;num_bits=4");
    assert_refused(observe(o, 2, 4, with_nan), QOBS_ERROR_NONFINITE, "value|1 NaN");
    assert_int_equal(counts_of(o).batches, 0);
    qobs_observer_destroy(o);
}

/* A zero point of 127, which an 8-bit float format has as 128: then 0 is off by a scale, 1 here, and only the elements
 * that are 0 may count for that. */
static void test_zero_point_outside(void **state)
{
    float x[40];
    for (size_t i = 0; i < qobs_isa_count(); i++)
        for (int n = 1; n <= 40 && qobs_isa_usable(i); n++)
            for (int few = 0; few < 2; few++) {
                const int zeros = n / 3;
                for (int j = 0; j < n; j++)
                    x[j] = j < zeros ? 0 : -255;
                assert_ok(qobs_isa_select(qobs_isa_name(i), &error));
                qobs_observer *o = make("llmc.memoryless_mse",
                                        few ? "symmetric=false;zp_dtype=float8_e4m3fn;maxshrink=0.2;patience=1000"
                                            : "symmetric=false;zp_dtype=float8_e4m3fn;maxshrink=0.6;patience=1000");
                assert_ok(observe(o, 1, n, x));
                assert_true(fabs(report_of(o).error_before - zeros) <= 1e-6 * zeros);
                qobs_observer_destroy(o);
            }
    assert_ok(qobs_isa_select(NULL, &error));
}

/* nonfinite=ignore: what is left out does not count. */
static void test_ignore(void **state)
{
    static const float with[] = {1, -2, NAN, 3, 4, INFINITY, 0.5f, -0.25f, 0.125f, 9, 7, -INFINITY};
    static const float without[] = {1, -2, 3, 4, 0.5f, -0.25f, 0.125f, 9, 7};
    qobs_observer *a = make("llmc.memoryless_mse", "num_bits=4;nonfinite=ignore"),
                  *b = make("llmc.memoryless_mse", "num_bits=4");
    float got[2], expected[2];
    assert_ok(observe(a, 1, 12, with));
    assert_ok(observe(b, 1, 9, without));
    for (int i = 0; i < 2; i++) {
        assert_ok(qobs_observer_read(a, i ? "max_vals" : "min_vals", &got[i], sizeof *got, &error));
        assert_ok(qobs_observer_read(b, i ? "max_vals" : "min_vals", &expected[i], sizeof *got, &error));
        assert_true(got[i] == expected[i]);
    }
    assert_true(fabs(report_of(a).error - report_of(b).error) <= 1e-6 * report_of(b).error);
    qobs_observer_destroy(a);
    qobs_observer_destroy(b);
}

/* ---- Global scales (2025) ---------------------------------------------------------------------------------------- */

static const char old_nvfp4[] = "strategy=tensor_group;group_size=4;type=float;num_bits=4;version=2025-10";

/* The observer's steps one by one, at once, and without an observer: the same. */
static void test_global_scale(void **state)
{
    static float x[2][64];
    struct rng r = {seed};
    for (int i = 0; i < 128; i++)
        x[i / 64][i % 64] = (float)between(&r, -1000, 1000) / 333;
    const qobs_tensor value[2] = {tensor(QOBS_F32, x[0], 4, 16), tensor(QOBS_F32, x[1], 4, 16)};
    qobs_config *config = make_config("llmc.memoryless_mse", old_nvfp4, NULL),
                *now = make_config("llmc.memoryless_mse", "", NULL);
    qobs_observer *once = make("llmc.memoryless_mse", old_nvfp4), *stepwise = make("llmc.memoryless_mse", old_nvfp4);
    float lo, hi, min, max, g, mins[16], maxs[16], got[16];
    assert_ok(qobs_observer_observe(once, &value[0], NULL, &error));
    assert_ok(call_global_search(config, &value[0], &lo, &hi, NULL, &error));
    assert_ok(call_update_global_min_max(stepwise, &value[0], &min, &max, sizeof min, &error));
    assert_result(once, "global_min", lo);
    assert_result(once, "global_max", hi);
    assert_true(min == lo && max == hi);
    assert_ok(qobs_observer_read(once, "global_scale", &g, sizeof g, &error));
    assert_ok(call_search(config, &value[0], NULL, NULL, &g, mins, maxs, NULL, NULL, NULL, NULL, &error));
    assert_ok(qobs_observer_read(once, "min_vals", got, sizeof got, &error));
    assert_memory_equal(got, mins, sizeof got);
    assert_ok(call_update_min_max(stepwise, &value[0], NULL, got, maxs, sizeof got, &error));
    assert_memory_equal(got, mins, sizeof got);

    /* fused: the layer with the larger range decides, and the groups are searched under its scale */
    qobs_observer *pair[2] = {make("llmc.memoryless_mse", old_nvfp4), make("llmc.memoryless_mse", old_nvfp4)};
    float amax = 0;
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 64; j++)
            x[i][j] *= i ? 40 : 1;
        assert_ok(call_update_global_min_max(pair[i], &value[i], &min, &max, sizeof min, &error));
        amax = fmaxf(amax, fmaxf(-min, max));
    }
    assert_ok(qobs_observers_fuse(pair, 2, &error));
    assert_ok(qobs_global_scale(config, QOBS_F32, -(double)amax, (double)amax, &g, &error));
    for (int i = 0; i < 2; i++) {
        float own, scale[16], direct[16];
        assert_ok(call_update_min_max(pair[i], &value[i], NULL, got, maxs, sizeof got, &error));
        assert_ok(call_search(config, &value[i], NULL, NULL, &g, mins, maxs, NULL, NULL, NULL, NULL, &error));
        assert_memory_equal(got, mins, sizeof got);
        assert_ok(qobs_observer_read(pair[i], "global_scale", &own, sizeof own, &error));
        assert_true(own == g);
        assert_ok(call_qparams(pair[i], scale, sizeof scale, NULL, 0, &error));
        assert_ok(call_calculate_qparams(config, QOBS_F32, 16, mins, maxs, &g, direct, NULL, &error));
        assert_memory_equal(scale, direct, sizeof scale);
    }
    assert_refused(call_search(now, &value[0], NULL, NULL, &g, mins, maxs, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "global_scale|current");
    assert_refused(call_global_search(now, &value[0], &lo, &hi, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "2025|tensor_group");
    for (int i = 0; i < 2; i++)
        qobs_observer_destroy(pair[i]);
    qobs_observer_destroy(once);
    qobs_observer_destroy(stepwise);
    qobs_config_destroy(config);
    qobs_config_destroy(now);
}

static void test_search_refused(void **state)
{
    const qobs_tensor value = tensor(QOBS_F32, weight, 2, 4), none = tensor(QOBS_F32, NULL, 0, 4);
    qobs_config *config = make_config("llmc.mse", "base_name=weight;strategy=channel", NULL),
                *minmax = make_config("llmc.minmax", "", NULL);
    qobs_config *tensor_config = make_config("llmc.mse", "", NULL);
    const char *const others[] = {"quark.PerTensorMSEObserver", "quark.PerTensorPowOf2MinMSEObserver",
                                  "modelopt.MseCalibrator"};
    const qobs_tensor scalar = {.struct_size = sizeof scalar, .data = weight, .dtype = QOBS_F32};
    float min[2] = {77, 77}, max[2] = {77, 77};
    qobs_search_report report = {.struct_size = 1};
    const float bad[][4] = {{1, -1, 1, 1}, {1, INFINITY, 1, 1}, {0, 0, 0, 0}};
    const char *const words[] = {"importance|negative", "importance|finite", "importance|0"};
    assert_refused(call_search(NULL, &value, NULL, NULL, NULL, min, max, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "config|NULL");
    assert_refused(call_search(config, &value, NULL, NULL, NULL, NULL, max, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "min|NULL");
    assert_refused(call_search(minmax, &value, NULL, NULL, NULL, min, max, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "llmc.minmax|search");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        qobs_config *other = make_config(others[i], "", NULL);
        assert_refused(call_search(other, &scalar, NULL, weight, NULL, min, max, NULL, NULL, NULL, NULL, &error),
                       QOBS_ERROR_INVALID_ARGUMENT, "config|search|llmc presets");
        qobs_config_destroy(other);
    }
    assert_refused(call_search(config, &none, NULL, NULL, NULL, min, max, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_NO_DATA, "value|no elements");
    assert_refused(call_search(config, &value, NULL, NULL, NULL, min, max, NULL, NULL, &report, NULL, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "report|struct_size");
    for (size_t i = 0; i < 3; i++)
        assert_refused(call_search(config, &value, NULL, bad[i], NULL, min, max, NULL, NULL, NULL, NULL, &error),
                       QOBS_ERROR_INVALID_ARGUMENT, words[i]);
    assert_refused(call_search(tensor_config, &value, NULL, weight, NULL, min, max, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_INVALID_ARGUMENT, "importance|channel, group or tensor_group|tensor");
    assert_true(min[0] == 77 && max[1] == 77);
    qobs_config_destroy(config);
    qobs_config_destroy(minmax);
    qobs_config_destroy(tensor_config);
}

#ifndef QOBS_SLEEF
/* The error names the norm; the observer is as it was. */
static void test_without_sleef(void **state)
{
    qobs_config *config = NULL;
    qobs_observer *o = NULL;
    float min[2], max[2];
    const qobs_tensor value = tensor(QOBS_F32, weight, 2, 4);
    assert_ok(qobs_config_create(&config, "llmc.memoryless_mse", NULL, &error));
    assert_ok(qobs_config_set(config, "norm", "2.7", &error));
    assert_ok(qobs_observer_create(&o, config, NULL, &error));
    assert_refused(observe(o, 2, 4, weight), QOBS_ERROR_UNSUPPORTED, "norm|2.7|SLEEF|1, 2, 2.4 and 3");
    assert_int_equal(counts_of(o).batches, 0);
    assert_refused(call_search(config, &value, NULL, NULL, NULL, min, max, NULL, NULL, NULL, NULL, &error),
                   QOBS_ERROR_UNSUPPORTED, "norm|2.7|SLEEF");
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
}
#endif

int main(void)
{
    make_f16_values();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_importance_layouts),
        cmocka_unit_test(test_importance_threads),
        cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_importance_refused),
        cmocka_unit_test(test_importance_merge),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_no_candidate),
        cmocka_unit_test(test_zero_point_outside),
        cmocka_unit_test(test_ignore),
        cmocka_unit_test(test_global_scale),
        cmocka_unit_test(test_search_refused),
#ifndef QOBS_SLEEF
        cmocka_unit_test(test_without_sleef),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
