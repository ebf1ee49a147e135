/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* llm-compressor's observers of September and October 2025: random settings, shapes, strides and batches against a slow
 * computation of the same, which takes the values one by one as doubles and rounds every operation itself. Results
 * must be equal. Fusion in the present form is checked the same way.
 *
 *     test_versions [SEED [CASE]]     only that case of each test
 */
#include "observing.h"

#include "layouts.h"

enum { CASES = 1500, BATCHES = 4 };

static uint64_t seed = 1;
static int64_t only = -1, current; /* the case that runs, or has failed */

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* The number of the dtype nearest to x, ties to even. */
static double rounded(const struct dtype *d, double x)
{
    int exponent;
    if (d->dtype == QOBS_F64 || x == 0 || !isfinite(x))
        return x;
    const int quant_min = 2 - (1 << (d->exponent - 1)) - d->mantissa;
    frexp(x, &exponent);
    const int last = exponent - 1 - d->mantissa > quant_min ? exponent - 1 - d->mantissa : quant_min;
    return ldexp(rint(ldexp(x, -last)), last);
}

static const struct dtype *const f32 = &dtypes[0];

/* The result of an operation on tensors of the dtype: computed in float (a Python number stays one), then rounded. */
static double native(const struct dtype *d, double x) { return d->dtype == QOBS_F64 ? x : rounded(d, rounded(f32, x)); }

/* A Python number that meets a tensor: a float, unless the tensor is F64. */
static double scalar(const struct dtype *d, double x) { return d->dtype == QOBS_F64 ? x : (double)(float)x; }

/* The e4m3 number nearest to x, of all there are; ties go to the even code. */
static double e4m3(double x)
{
    const double magnitude = fabs(x) > 448 ? 448 : fabs(x);
    double best = 0, distance = magnitude;
    for (int code = 1; code < 127; code++) {
        const double v = code < 8 ? ldexp(code, -9) : ldexp(8 + (code & 7), (code >> 3) - 10);
        if (fabs(v - magnitude) < distance || (fabs(v - magnitude) == distance && code % 2 == 0)) {
            best = v;
            distance = fabs(v - magnitude);
        }
    }
    return x < 0 ? -best : best;
}

/* ---- A case ------------------------------------------------------------------------------------------------------ */

struct form {
    bool september, symmetric, fp4, with_g_idx;
    const char *strategy;
    int64_t piece[2];
    double c;
    int bits;
    const struct dtype *dtype;
    int64_t rows, groups, *group; /* of the columns, where they are in groups */
    int ndim;
    int64_t shape[DIMS], qparams;
};

static bool is(const struct form *f, const char *strategy) { return strcmp(f->strategy, strategy) == 0; }

static bool in_groups(const struct form *f) { return is(f, "group") || is(f, "tensor_group"); }

static void draw_form(struct rng *r, struct form *f)
{
    static const char *const strategies[] = {"tensor", "channel", "group", "tensor_group", "block", "token"};
    static const double constants[] = {1, 0.01, 0.3, 0.5};
    *f =
        (struct form){.september = chance(r, 60), .symmetric = chance(r, 60), .strategy = strategies[between(r, 0, 5)]};
    if (!f->september && is(f, "token"))
        f->strategy = "channel";
    f->c = constants[between(r, 0, 3)];
    f->bits = chance(r, 50) ? 4 : 8;
    f->dtype = &dtypes[between(r, 0, 3)];
    f->fp4 = is(f, "tensor_group");
    f->symmetric |= f->fp4;
    f->bits = f->fp4 ? 4 : f->bits;
    f->ndim = is(f, "token") ? 3 : is(f, "tensor") ? (int)between(r, 1, 4) : 2;
    for (int d = 0; d < f->ndim; d++)
        f->shape[d] = between(r, 1, d == f->ndim - 1 ? 40 : 7);
    f->piece[0] = between(r, 1, 9);
    f->piece[1] = between(r, 1, 9);
    for (int d = 0; d < 2 && !f->september; d++) { /* sizes that divide */
        if (is(f, "block") || (d == 1 && in_groups(f)))
            f->shape[d] = (f->shape[d] + f->piece[is(f, "block") ? d : 0] - 1) / f->piece[is(f, "block") ? d : 0] *
                          f->piece[is(f, "block") ? d : 0];
    }
}

/* The group of each column; with g_idx in September as many as it names them, else pieces of its stable sort. */
static void draw_groups(struct rng *r, struct form *f, int32_t *g_idx)
{
    const int64_t n = f->shape[1], size = f->piece[0];
    f->groups = (n + size - 1) / size;
    f->group = malloc((size_t)n * sizeof *f->group);
    f->with_g_idx = chance(r, 50);
    for (int64_t j = 0; j < n; j++)
        g_idx[j] = (int32_t)(f->september && j < f->groups ? j : between(r, 0, f->groups - 1));
    for (int64_t j = n - 1; j > 0; j--) {
        const int64_t other = between(r, 0, j);
        const int32_t kept = g_idx[j];
        g_idx[j] = g_idx[other];
        g_idx[other] = kept;
    }
    const bool none = f->with_g_idx && f->september && chance(r, 20);
    if (none)
        g_idx[between(r, 0, n - 1)] = -1;
    for (int64_t j = 0; j < n; j++) {
        int64_t place = 0;
        for (int64_t i = 0; i < n; i++)
            place += g_idx[i] < g_idx[j] || (g_idx[i] == g_idx[j] && i < j);
        f->group[j] = !f->with_g_idx || none ? j / size : f->september ? g_idx[j] : place / size;
    }
}

static int64_t qparam_of(const struct form *f, const int64_t *at)
{
    if (in_groups(f))
        return at[0] * f->groups + f->group[at[1]];
    if (is(f, "block"))
        return at[0] / f->piece[0] * ((f->shape[1] + f->piece[1] - 1) / f->piece[1]) + at[1] / f->piece[1];
    return is(f, "channel") ? at[0] : is(f, "token") ? at[0] * f->shape[1] + at[1] : 0;
}

static int64_t count_qparams(const struct form *f)
{
    if (in_groups(f))
        return f->shape[0] * f->groups;
    if (is(f, "block"))
        return (f->shape[0] + f->piece[0] - 1) / f->piece[0] * ((f->shape[1] + f->piece[1] - 1) / f->piece[1]);
    return is(f, "channel") ? f->shape[0] : is(f, "token") ? f->shape[0] * f->shape[1] : 1;
}

/* ---- The slow way ------------------------------------------------------------------------------------------------ */

enum { MOST_QPARAMS = 400 };

struct slow {
    bool any;
    double min[MOST_QPARAMS + 1], max[MOST_QPARAMS + 1]; /* the last: of the whole */
};

static double averaged(const struct form *f, double old, double now)
{
    const struct dtype *d = f->dtype;
    if (f->september)
        return native(d, old + native(d, scalar(d, f->c) * native(d, now - old)));
    return native(d, native(d, old * scalar(d, 1 - f->c)) + native(d, now * scalar(d, f->c)));
}

static void observe_slowly(struct slow *s, const struct form *f, const struct tensor *t)
{
    double min[MOST_QPARAMS + 1], max[MOST_QPARAMS + 1];
    for (int64_t q = 0; q <= f->qparams; q++)
        min[q] = INFINITY, max[q] = -INFINITY;
    int64_t index[DIMS] = {0};
    do {
        const double v = value_of(t->dtype, load_bits(t->dtype, address(t, index)));
        for (int whole = 0; whole < 2; whole++) {
            const int64_t q = whole ? f->qparams : qparam_of(f, index);
            min[q] = fmin(min[q], v);
            max[q] = fmax(max[q], v);
        }
    } while (step(t, index));
    for (int64_t q = 0; q <= f->qparams; q++) {
        s->min[q] = s->any && f->c != 1 ? averaged(f, s->min[q], min[q]) : min[q] + 0.0;
        s->max[q] = s->any && f->c != 1 ? averaged(f, s->max[q], max[q]) : max[q] + 0.0;
    }
    s->any = true;
}

static double amax_of(const struct slow *s, int64_t q) { return fmax(fmax(-s->min[q], s->max[q]), 0); }

static void qparams_slowly(const struct slow *s, const struct form *f, int64_t q, double *scale, double *zero_point)
{
    const struct dtype *d = f->dtype;
    const double eps = 0x1p-23, half = ldexp(1, f->bits - 1), quant_min = -half, range = 2 * half - 1;
    const double a = fmin(s->min[q], 0), b = fmax(s->max[q], 0);
    *zero_point = 0;
    if (f->fp4) {
        const double g = rounded(f32, native(d, native(d, 1 / amax_of(s, f->qparams)) * 2688));
        const double t =
            d->dtype == QOBS_F64 ? g * native(d, amax_of(s, q) / 6) : rounded(f32, g * native(d, amax_of(s, q) / 6));
        *scale = isnan(t) ? t : e4m3(t); /* all zeros: an infinite global scale times 0 */
        *scale = *scale == 0 ? 0.125 : *scale;
        return;
    }
    *scale = native(d, f->symmetric ? amax_of(s, q) / (range / 2) : native(d, b - a) / range);
    *scale = *scale < eps ? eps : *scale;
    if (f->symmetric)
        return;
    const double steps = native(d, a / *scale);
    const double z = f->september && is(f, "tensor") ? quant_min - steps : native(d, quant_min - steps);
    *zero_point = rint(fmin(fmax(z, quant_min), quant_min + range));
}

/* ---- Against the library ----------------------------------------------------------------------------------------- */

static double as_double(qobs_dtype dtype, const void *p)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype)
            return value_of(&dtypes[i], load_bits(&dtypes[i], p));
    return 0;
}

static void expect_all(const qobs_observer *o, const struct form *f, const struct slow *s)
{
    qobs_result result = {.struct_size = sizeof result};
    unsigned char scale[MOST_QPARAMS * 8], zero_point[MOST_QPARAMS * 8];
    assert_ok(qobs_observer_result_find(o, "scale", &result, &error));
    const size_t size = qobs_dtype_size(result.dtype);
    assert_int_equal(result.size, (size_t)f->qparams * size);
    assert_ok(qobs_observer_read(o, "scale", scale, result.size, &error));
    qobs_result zero = {.struct_size = sizeof zero};
    assert_ok(qobs_observer_result_find(o, "zero_point", &zero, &error));
    assert_ok(qobs_observer_read(o, "zero_point", zero_point, zero.size, &error));
    for (int64_t q = 0; q < f->qparams; q++) {
        double want_scale, want_zero;
        qparams_slowly(s, f, q, &want_scale, &want_zero);
        const double got = as_double(result.dtype, scale + (size_t)q * size);
        if (got != want_scale && !(isnan(got) && isnan(want_scale)))
            fail_msg("scale[%lld]: %.17g, expected %.17g", (long long)q, got, want_scale);
        if (zero.dtype == QOBS_I8 && ((int8_t *)zero_point)[q] != (int8_t)want_zero)
            fail_msg("zero_point[%lld]: %d, expected %g", (long long)q, ((int8_t *)zero_point)[q], want_zero);
    }
    /* The ranges, under upstream's names. */
    for (int64_t q = 0; q < f->qparams; q++) {
        char name[64] = "min_vals";
        int64_t part = q, across = is(f, "block") ? (f->shape[1] + f->piece[1] - 1) / f->piece[1] : f->groups;
        if (f->september && is(f, "block"))
            snprintf(name, sizeof name, "max_val[block_%lld_%lld]", (long long)(q / across), (long long)(q % across)),
                part = 0;
        else if (f->september && in_groups(f) && q % across > 0)
            snprintf(name, sizeof name, "max_val[%lld]", (long long)(q % across)), part = q / across;
        else if (f->september)
            snprintf(name, sizeof name, "max_val[default]"), part = in_groups(f) ? q / across : q;
        if (f->september && f->c == 1) {
            assert_refused(qobs_observer_result_find(o, name, &result, &error), QOBS_ERROR_INVALID_ARGUMENT,
                           "name|max_val");
            continue;
        }
        unsigned char values[MOST_QPARAMS * 8];
        assert_ok(qobs_observer_result_find(o, name, &result, &error));
        assert_string_equal(result.name, name);
        assert_ok(qobs_observer_read(o, name, values, result.size, &error));
        const double want = f->september ? s->max[q] : s->min[q];
        assert_true(as_double(result.dtype, values + (size_t)part * f->dtype->size) == want);
    }
}

static struct form last; /* of the current case */

static void describe(int64_t number, const struct form *f)
{
    if (!f->dtype)
        return;
    print_error(
        "seed %llu case %lld: %s, %s, %s, %d bits, averaging %g, pieces %lld x %lld, g_idx %d, symmetric %d, shape",
        (unsigned long long)seed, (long long)number, f->september ? "2025-09" : "2025-10", f->strategy,
        qobs_dtype_name(f->dtype->dtype), f->bits, f->c, (long long)f->piece[0], (long long)f->piece[1], f->with_g_idx,
        f->symmetric);
    for (int d = 0; d < f->ndim; d++)
        print_error(" %lld", (long long)f->shape[d]);
    print_error("\n");
}

static qobs_observer *make_observer(const struct form *f)
{
    char settings[256];
    int n = snprintf(settings, sizeof settings,
                     "base_name=weight;version=%s;strategy=%s;num_bits=%d;symmetric=%s;averaging_constant=%g;type=%s",
                     f->september ? "2025-09" : "2025-10", f->strategy, f->bits, f->symmetric ? "true" : "false", f->c,
                     f->fp4 ? "float" : "int");
    if (in_groups(f))
        n += snprintf(settings + n, sizeof settings - (size_t)n, ";group_size=%lld", (long long)f->piece[0]);
    if (is(f, "block"))
        n += snprintf(settings + n, sizeof settings - (size_t)n, ";block_structure=[%lld,%lld]", (long long)f->piece[0],
                      (long long)f->piece[1]);
    if (is(f, "token"))
        snprintf(settings + n, sizeof settings - (size_t)n, ";dynamic=true");
    return make("llmc.minmax", settings);
}

/* Numbers around 1, or the same one everywhere, which may be 0: no overflow, which is a matter of other tests. */
static void fill_moderate(struct rng *r, const struct tensor *t)
{
    const bool same = chance(r, 20);
    const uint64_t constant = chance(r, 50) ? 0 : draw_finite(r, t->dtype, NEAR_ONE);
    int64_t index[DIMS] = {0};
    do {
        const uint64_t bits = same ? constant : draw_finite(r, t->dtype, NEAR_ONE);
        put_bits(address(t, index), bits, t->dtype->size);
    } while (step(t, index));
}

static void run_case(int64_t number)
{
    struct rng r = {seed + (uint64_t)number * UINT64_C(0x2545f4914f6cdd1d)};
    struct form f;
    int32_t g_idx[64];
    struct slow slow = {.any = false};
    draw_form(&r, &f);
    if (in_groups(&f))
        draw_groups(&r, &f, g_idx);
    f.qparams = count_qparams(&f);
    current = number;
    last = f;
    qobs_observer *o = make_observer(&f);
    const int64_t batches = between(&r, 1, BATCHES);
    uint64_t tokens = 0;
    for (int64_t i = 0; i < batches; i++) {
        struct tensor t = {.dtype = f.dtype, .ndim = f.ndim};
        memcpy(t.shape, f.shape, sizeof t.shape);
        lay_out(&r, &t);
        fill_moderate(&r, &t);
        const qobs_tensor value = view_of(&t), columns = tensor_of(QOBS_I32, 1, &f.shape[1], g_idx);
        assert_ok(qobs_observer_observe(o, &value, f.with_g_idx ? &columns : NULL, &error));
        observe_slowly(&slow, &f, &t);
        tokens += f.ndim == 2 ? (uint64_t)f.shape[0] : 0;
        expect_all(o, &f, &slow);
        free(t.memory);
    }
    assert_true(counts_of(o).tokens == tokens);
    qobs_observer_destroy(o);
    free(f.group);
}

static void test_versions(void **state)
{
    for (int64_t i = 0; i < CASES; i++)
        if (only < 0 || only == i)
            run_case(i);
}

/* Observers that are fused, in the present form: one global scale for the largest magnitude any of them has seen;
 * another batch ends it for the observer that takes it. */
static void test_fusion(void **state)
{
    for (int64_t number = 0; number < 200; number++) {
        struct rng r = {seed * 31 + (uint64_t)number};
        enum { MOST = 4, COLUMNS = 32 };
        qobs_observer *observers[MOST];
        double amax[MOST] = {0}, most = 0;
        const int64_t count = between(&r, 1, MOST);
        float data[MOST][3][COLUMNS];
        for (int64_t i = 0; i < count; i++) {
            observers[i] =
                make("llmc.static_minmax", "strategy=tensor_group;group_size=16;type=float;num_bits=4;base_name=input");
            for (int j = 0; j < 3 * COLUMNS; j++) {
                data[i][j / COLUMNS][j % COLUMNS] = ldexpf((float)between(&r, -1000, 1000), (int)between(&r, -14, -6));
                amax[i] = fmax(amax[i], fabs((double)data[i][j / COLUMNS][j % COLUMNS]));
            }
            const qobs_tensor value = tensor(QOBS_F32, data[i], 3, COLUMNS);
            assert_ok(qobs_observer_observe(observers[i], &value, NULL, &error));
            most = fmax(most, amax[i]);
        }
        assert_ok(qobs_observers_fuse(observers, (size_t)count, &error));
        for (int64_t i = 0; i <= count; i++) { /* the last time: the first observer, after another batch */
            qobs_observer *o = observers[i % count];
            if (i == count) {
                const qobs_tensor value = tensor(QOBS_F32, data[0], 3, COLUMNS);
                assert_ok(qobs_observer_observe(o, &value, NULL, &error));
            }
            const double shared = i == count ? amax[0] : most;
            const float global = (float)(rounded(f32, 1 / shared) * 2688);
            assert_result(o, "global_scale", global);
            float scale[2];
            assert_ok(qobs_observer_read(o, "scale", scale, sizeof scale, &error));
            for (int g = 0; g < 2; g++) {
                double local = 0;
                for (int row = 0; row < 3; row++)
                    for (int j = g * 16; j < g * 16 + 16; j++)
                        local = fabs((double)data[i % count][row][j]) > local ? fabs((double)data[i % count][row][j])
                                                                              : local;
                const float want = (float)rounded(f32, rounded(f32, local / 6) * (double)global);
                if (scale[g] != want)
                    fail_msg("seed %llu case %lld: scale %.9g, expected %.9g", (unsigned long long)seed,
                             (long long)number, (double)scale[g], (double)want);
            }
        }
        for (int64_t i = 0; i < count; i++)
            qobs_observer_destroy(observers[i]);
    }
}

/* Rows seen apart, under the magnitude of all, are as the whole's. */
static void test_amax_known(void **state)
{
    static const char *const settings = "strategy=tensor_group;group_size=16;num_bits=4;type=float";
    enum { ROWS = 6, COLUMNS = 64, HALF = ROWS / 2 * COLUMNS, GROUPS = 2 * HALF / 16 };
    float data[2 * HALF], scale[GROUPS], expected[GROUPS], amax = 0, global, expected_global;
    for (int i = 0; i < 2 * HALF; i++) {
        data[i] = (float)((i * 37) % 101 - 50) / (float)(1 + i / COLUMNS);
        amax = fmaxf(amax, fabsf(data[i]));
    }
    qobs_observer *whole = make("llmc.memoryless_minmax", settings);
    assert_ok(observe(whole, ROWS, COLUMNS, data));
    assert_ok(qobs_observer_read(whole, "scale", expected, sizeof expected, &error));
    assert_ok(qobs_observer_read(whole, "global_scale", &expected_global, sizeof expected_global, &error));
    for (int part = 0; part < 2; part++) {
        qobs_observer *o = make("llmc.memoryless_minmax", settings);
        float own;
        assert_ok(observe(o, ROWS / 2, COLUMNS, data + part * HALF));
        assert_ok(qobs_observer_read(o, "global_scale", &own, sizeof own, &error));
        assert_true((own == expected_global) == (part == 0)); /* the first rows have the largest */
        assert_refused(qobs_observer_set_global_amax(o, -1, &error), QOBS_ERROR_INVALID_ARGUMENT, "amax|-1|from 0");
        assert_refused(qobs_observer_set_global_amax(o, (double)NAN, &error), QOBS_ERROR_INVALID_ARGUMENT,
                       "amax|nan|numbers");
        assert_refused(qobs_observer_set_global_amax(o, (double)INFINITY, &error), QOBS_ERROR_INVALID_ARGUMENT,
                       "amax|inf|3.40282e+38");
        assert_refused(qobs_observer_set_global_amax(o, 1e300, &error), QOBS_ERROR_INVALID_ARGUMENT,
                       "amax|1e+300|3.40282e+38"); /* its global scale would be 0 */
        assert_result(o, "global_scale", own);
        assert_ok(qobs_observer_set_global_amax(o, (double)amax, &error));
        assert_ok(qobs_observer_read(o, "global_scale", &global, sizeof global, &error));
        assert_true(global == expected_global);
        assert_ok(qobs_observer_read(o, "scale", scale + part * GROUPS / 2, sizeof scale / 2, &error));
        qobs_observer_destroy(o);
    }
    assert_memory_equal(scale, expected, sizeof scale);
    qobs_observer_destroy(whole);
    qobs_observer *channel = make("llmc.memoryless_minmax", "strategy=channel");
    assert_refused(qobs_observer_set_global_amax(channel, 1, &error), QOBS_ERROR_INVALID_ARGUMENT,
                   "observer|tensor_group");
    assert_refused(qobs_observer_set_global_amax(NULL, 1, &error), QOBS_ERROR_INVALID_ARGUMENT, "observer|NULL");
    qobs_observer_destroy(channel);
}

/* The dtype of a scale is that of its bytes: in 2025 F32 under a global scale for e2m1 only, else the batch's. Integers
 * and e4m3 have the scales of strategy group. */
static void test_scale_dtypes(void **state)
{
    static const char *const types[] = {"type=int;num_bits=8", "type=int;num_bits=4;symmetric=false",
                                        "type=float;num_bits=8", "type=float;num_bits=4"};
    static const char *const dates[] = {"2025-09", "2025-10"};
    static const int64_t shape[] = {2, 32};
    enum { QPARAMS = 4 };
    uint16_t x[64];
    for (size_t i = 0; i < 64; i++)
        x[i] = (uint16_t)(0x3f80 + 3 * i); /* bf16 */
    const qobs_tensor value = {.struct_size = sizeof value, .data = x, .dtype = QOBS_BF16, .ndim = 2, .shape = shape};
    for (size_t i = 0; i < 8; i++) {
        const char *type = types[i / 2];
        const bool e2m1 = strcmp(type, "type=float;num_bits=4") == 0;
        unsigned char scale[2][QPARAMS * 4];
        qobs_result result = {.struct_size = sizeof result};
        for (int global = 0; global < 2; global++) {
            char settings[128];
            snprintf(settings, sizeof settings, "version=%s;%s;group_size=16;strategy=%s", dates[i % 2], type,
                     global ? "tensor_group" : "group");
            qobs_observer *o = make("llmc.minmax", settings);
            assert_ok(qobs_observer_observe(o, &value, NULL, &error));
            assert_ok(qobs_observer_result_find(o, "scale", &result, &error));
            assert_int_equal(result.dtype, global && e2m1 ? QOBS_F32 : QOBS_BF16);
            memset(scale[global], 0xa5, sizeof scale[global]);
            assert_ok(qobs_observer_read(o, "scale", scale[global], result.size, &error));
            qobs_observer_destroy(o);
        }
        if (!e2m1)
            assert_memory_equal(scale[0], scale[1], sizeof *scale);
    }
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : seed;
    only = argc > 2 ? strtoll(argv[2], NULL, 0) : only;
    make_f16_values();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_versions), cmocka_unit_test(test_fusion),
                                       cmocka_unit_test(test_amax_known), cmocka_unit_test(test_scale_dtypes)};
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    if (failures > 0)
        describe(current, &last);
    return failures;
}
