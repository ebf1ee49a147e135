/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observers: a few batches, importance, merge, fuse, and everything there is to read. */
#include "api.h"

static unsigned char *save(const qobs_observer *o, size_t *size)
{
    *size = qobs_observer_save_size(o);
    unsigned char *saved = workspace(*size);
    must(qobs_observer_save(o, saved, *size, NULL) == QOBS_OK);
    return saved;
}

/* A batch that is refused changes nothing. */
static void observe(struct run *run, qobs_observer *o, const struct tensor *t, const qobs_tensor *g_idx)
{
    const qobs_tensor value = view_of(t);
    qobs_error error;
    size_t size = 0, size_after;
    unsigned char *before = run->first ? save(o, &size) : NULL;
    if (!record_status(&run->record, qobs_observer_observe(o, &value, g_idx, &error), &error) && run->first) {
        unsigned char *after = save(o, &size_after);
        if (size_after != size || memcmp(before, after, size) != 0)
            finding("a batch refused (%s) has changed the state", error.message);
        free(after);
    }
    free(before);
}

static void read_results(struct run *run, const qobs_observer *o)
{
    qobs_error error;
    for (size_t i = 0; i < qobs_observer_result_count(o); i++) {
        qobs_result result = {.struct_size = sizeof result};
        must(qobs_observer_result_info(o, i, &result, &error) == QOBS_OK);
        record(&run->record, result.name, strlen(result.name));
        record(&run->record, result.shape, (size_t)result.ndim * sizeof *result.shape);
        unsigned char *out = workspace(result.size);
        if (record_status(&run->record, qobs_observer_read(o, result.name, out, result.size, &error), &error))
            record(&run->record, out, result.size);
        free(out);
    }
    size_t size;
    unsigned char *saved = save(o, &size);
    record(&run->record, saved, size);
    free(saved);
}

/* The state loads, and is the same observer. */
static void reload(const qobs_observer *o)
{
    qobs_observer *loaded = NULL;
    qobs_error error;
    size_t size, size_again;
    unsigned char *saved = save(o, &size);
    if (qobs_observer_load(&loaded, saved, size, NULL, &error) != QOBS_OK)
        finding("a saved state is refused: %s", error.message);
    unsigned char *again = save(loaded, &size_again);
    must(size == size_again && memcmp(saved, again, size) == 0);
    qobs_observer_destroy(loaded);
    free(saved);
    free(again);
}

/* Blocks of the sizes that settings have, rarely the batch itself. Most entries are 0. */
static void set_hessian(struct run *run, qobs_observer *o, const qobs_tensor *value)
{
    static const int64_t sizes[] = {4, 8, 16, 24, 32, 64};
    const int64_t b = sizes[take_below(&run->b, sizeof sizes / sizeof *sizes)];
    const int64_t shape[] = {1 + (int64_t)take_below(&run->b, 4), b, b};
    const size_t n = (size_t)(shape[0] * b * b);
    double *numbers = workspace(n * sizeof *numbers);
    qobs_error error;
    for (size_t i = 0; i < n; i++)
        numbers[i] = i % (size_t)(b + 1) == 0 ? take_double(&run->b) : i % 7 == 0 ? (double)take_float(&run->b) : 0;
    const qobs_tensor hessian = {
        .struct_size = sizeof hessian, .data = numbers, .dtype = QOBS_F64, .ndim = 3, .shape = shape};
    const qobs_tensor *given = take_below(&run->b, 8) == 0 ? value : &hessian;
    record_status(&run->record, qobs_observer_set_hessian(o, given, &error), &error);
    free(numbers);
}

/* Another batch of the same shape, sometimes of another. */
static void next_batch(struct run *run, struct tensor *t)
{
    free(t->memory);
    t->memory = NULL;
    if (take_below(&run->b, 8) == 0)
        take_tensor(&run->b, t);
    else
        take_shaped(&run->b, t);
}

void run_observer(struct run *run, const qobs_config *config, struct tensor *t, const qobs_tensor *g_idx)
{
    qobs_observer *o[2] = {NULL, NULL};
    qobs_error error;
    for (int i = 0; i < 2; i++)
        if (!record_status(&run->record, qobs_observer_create(&o[i], config, run->runtime, &error), &error))
            goto done;
    for (size_t n = take_below(&run->b, 6), first = 1; n-- > 0; first = 0) {
        if (!first) {
            next_batch(run, t);
            g_idx = g_idx && t->ndim > 0 && t->shape[t->ndim - 1] == g_idx->shape[0] ? g_idx : NULL;
        }
        const qobs_tensor value = view_of(t);
        const size_t kind = take_below(&run->b, 16);
        qobs_observer *to = o[take_below(&run->b, 4) == 0];
        if (kind == 0)
            record_status(&run->record, qobs_observer_observe_importance(to, &value, &error), &error);
        else if (kind == 1)
            record_status(&run->record, qobs_observer_set_reference_amax(to, &value, &error), &error);
        else if (kind == 2)
            qobs_observer_reset(to);
        else if (kind == 3)
            record_status(&run->record, qobs_observer_set_global_amax(to, take_double(&run->b), &error), &error);
        else if (kind == 4)
            record_status(&run->record, qobs_observer_record_tokens(to, &value, &error), &error);
        else if (kind == 5)
            set_hessian(run, to, &value);
        else
            observe(run, to, t, g_idx);
    }
    if (take_below(&run->b, 4) == 0)
        record_status(&run->record, qobs_observers_fuse(o, 2, &error), &error);
    if (take_below(&run->b, 2))
        record_status(&run->record, qobs_observer_merge(o[0], (const qobs_observer *const *)&o[1], 1, &error), &error);
    read_results(run, o[0]);
    read_results(run, o[1]);
    if (run->first)
        reload(o[0]);
done:
    qobs_observer_destroy(o[0]);
    qobs_observer_destroy(o[1]);
}
