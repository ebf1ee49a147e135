/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The largest magnitude along any axes of tensors in every layout, on every usable instruction set, in one piece and
 * cut for threads: modelopt.MaxCalibrator against a loop over the elements. Two batches follow each other;
 * NaN and infinities are refused, left out, or propagated.
 *
 *   test_absmax [SEED [CASE]] */
#include "layouts.h"
#include "repeats.h"
#include "threads.h"
#include "unit.h"

enum { BATCHES = 2 };

static uint64_t seed = 1;
static int64_t only = -1;

/* The dimensions that are kept, and the largest magnitudes. */
struct wanted {
    bool kept[DIMS];
    int64_t qparams;
    double *amax;
    char mode; /* first letter of `nonfinite` */
    uint64_t nan, inf;
};

static int64_t qparam_of(const struct wanted *w, const struct tensor *t, const int64_t *index)
{
    int64_t q = 0;
    for (int d = 0; d < t->ndim && w->qparams > 1; d++)
        q = w->kept[d] ? q * t->shape[d] + index[d] : q;
    return q;
}

static void draw_tensor(struct rng *r, struct tensor *t, int64_t elements)
{
    t->dtype = &dtypes[between(r, 0, 3)];
    t->ndim = (int)between(r, 1, 4);
    int64_t left = elements;
    for (int d = 0; d < t->ndim; d++) {
        const int64_t at = between(r, 0, t->ndim - 1);
        t->shape[d] = 1;
        t->shape[d] = d == t->ndim - 1 ? left : at == d ? between(r, 1, left) : between(r, 1, left < 40 ? left : 40);
        left /= t->shape[d];
    }
}

/* The axes as a setting; all and none of them mean one magnitude for the whole tensor. */
static void draw_axes(struct rng *r, struct wanted *w, const struct tensor *t, char *setting, size_t size)
{
    size_t used = (size_t)snprintf(setting, size, "[");
    int count = 0;
    int64_t qparams = 1;
    for (int d = 0; d < t->ndim; d++) {
        w->kept[d] = chance(r, 40);
        if (!w->kept[d])
            continue;
        used +=
            (size_t)snprintf(setting + used, size - used, "%s%d", count++ ? ", " : "", chance(r, 50) ? d : d - t->ndim);
        qparams *= t->shape[d];
    }
    snprintf(setting + used, size - used, "]");
    w->qparams = count == 0 || count == t->ndim ? 1 : qparams;
    w->amax = calloc((size_t)w->qparams, sizeof *w->amax);
    assert_non_null(w->amax);
}

/* Merges a batch; false: it must be refused. */
static bool enter(struct wanted *w, const struct tensor *t)
{
    int64_t index[DIMS] = {0};
    uint64_t nan = 0, inf = 0;
    do {
        const double x = fabs(value_of(t->dtype, load_bits(t->dtype, address(t, index))));
        nan += isnan(x) != 0;
        inf += isinf(x) != 0;
    } while (step(t, index));
    if (w->mode == 'r' && nan + inf > 0)
        return false;
    w->nan += nan;
    w->inf += inf;
    do {
        const double x = fabs(value_of(t->dtype, load_bits(t->dtype, address(t, index))));
        double *amax = &w->amax[qparam_of(w, t, index)];
        if (isfinite(x) ? x > *amax : w->mode == 'p' && !isnan(*amax))
            *amax = isnan(x) || x > *amax ? x : *amax;
    } while (step(t, index));
    return true;
}

static bool same(const struct wanted *w, const struct tensor *t, qobs_observer *o)
{
    const size_t size = (size_t)w->qparams * t->dtype->size;
    unsigned char *amax = malloc(size);
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_error error;
    bool good = qobs_observer_read(o, "amax", amax, size, &error) == QOBS_OK &&
                qobs_observer_counts(o, &counts, &error) == QOBS_OK;
    if (!good)
        print_error("%s\n", error.message);
    for (int64_t q = 0; q < w->qparams && good; q++) {
        const double got = value_of(t->dtype, load_bits(t->dtype, amax + (size_t)q * t->dtype->size));
        good = isnan(w->amax[q]) ? isnan(got) : got == w->amax[q] && !signbit(got);
        if (!good)
            print_error("amax %lld is %.17g, expected %.17g\n", (long long)q, got, w->amax[q]);
    }
    if (good && (counts.nan != w->nan || counts.inf != w->inf)) {
        print_error("counted %llu NaN and %llu infinite, expected %llu and %llu\n", (unsigned long long)counts.nan,
                    (unsigned long long)counts.inf, (unsigned long long)w->nan, (unsigned long long)w->inf);
        good = false;
    }
    free(amax);
    return good;
}

/* `threads` above 1: cut for them. */
static bool observe(struct rng *r, const char *axes, struct wanted *w, struct tensor *batch, size_t threads)
{
    static const char *const modes[] = {"refuse", "ignore", "propagate"};
    const char *mode = modes[between(r, 0, 2)];
    const qobs_executor executor = {
        .struct_size = sizeof executor, .context = &threads, .threads = threads, .parallel_for = parallel_for};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = &executor};
    qobs_config *config = NULL;
    qobs_observer *o = NULL;
    qobs_error error;
    if (qobs_config_create(&config, "modelopt.MaxCalibrator", NULL, &error) != QOBS_OK ||
        qobs_config_set(config, "axis", axes, &error) != QOBS_OK ||
        qobs_config_set(config, "nonfinite", mode, &error) != QOBS_OK ||
        qobs_observer_create(&o, config, threads > 1 ? &runtime : NULL, &error) != QOBS_OK)
        fail_msg("%s", error.message);
    w->mode = *mode;
    w->nan = w->inf = 0;
    memset(w->amax, 0, (size_t)w->qparams * sizeof *w->amax);
    bool good = true, any = false;
    for (int i = 0; i < BATCHES && good; i++) {
        const qobs_tensor value = view_of(&batch[i]);
        const bool taken = enter(w, &batch[i]);
        good = qobs_observer_observe(o, &value, NULL, &error) == (taken ? QOBS_OK : QOBS_ERROR_NONFINITE);
        any |= taken;
        if (!good)
            print_error("observe: %s\n", error.message);
    }
    good = good && (!any || same(w, &batch[0], o));
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
    return good;
}

static void run(const char *test, int64_t number, uint64_t stream, int64_t quant_min, int64_t most)
{
    struct rng r = {seed * 1000003 + (uint64_t)number * 4 + stream};
    struct tensor batch[BATCHES] = {{0}};
    struct wanted w = {0};
    char axes[64];
    draw_tensor(&r, &batch[0], between(&r, quant_min, most));
    draw_axes(&r, &w, &batch[0], axes, sizeof axes);
    for (int i = 0; i < BATCHES; i++) {
        batch[i].dtype = batch[0].dtype;
        batch[i].ndim = batch[0].ndim;
        memcpy(batch[i].shape, batch[0].shape, sizeof batch[0].shape);
        lay_out(&r, &batch[i]);
        fill_elements(&r, &batch[i], chance(&r, 40) ? (int)between(&r, 1, 30) : 0);
    }
    bool good = true;
    for (size_t isa = 0; good && select_isa(&isa); isa++)
        good = observe(&r, axes, &w, batch, 1) && observe(&r, axes, &w, batch, 3);
    if (!good)
        print_error("%s case %lld of seed %llu on %s: axis=%s, shape %lld %lld %lld %lld in %d dimensions of %s\n",
                    test, (long long)number, (unsigned long long)seed, qobs_isa_active(), axes,
                    (long long)batch[0].shape[0], (long long)batch[0].shape[1], (long long)batch[0].shape[2],
                    (long long)batch[0].shape[3], batch[0].ndim, qobs_dtype_name(batch[0].dtype->dtype));
    for (int i = 0; i < BATCHES; i++)
        free(batch[i].memory);
    free(w.amax);
    assert_true(good);
}

static void test_small(void **state)
{
    for (int64_t i = 0; i < repeats(300, 1500); i++)
        if (only < 0 || only == i)
            run("small", i, 1, 1, 3000);
}

/* Large enough to be cut for threads. */
static void test_big(void **state)
{
    atomic_store(&loops, 0);
    const size_t cases = (size_t)repeats(4, 20);
    for (int64_t i = 0; i < (int64_t)cases; i++)
        if (only < 0 || only == i)
            run("big", i, 2, 100000, 400000);
    if (only < 0)
        assert_true(atomic_load(&loops) >= cases);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small), cmocka_unit_test(test_big)};
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 0);
    if (argc > 2)
        only = strtoll(argv[2], NULL, 0);
    make_f16_values();
    return cmocka_run_group_tests_name("absmax", tests, NULL, NULL) != 0;
}
