/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Processes weights whose observer searches the range with the smallest error. All scales of a tensor are searched
 * together, because the search stops only when no scale improves any more. The library splits the work among
 * threads. Memory use is proportional to the number of scales of one group of fused layers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate_run.h"
#include "qobs/stateless.h"
#include "results.h"

/* Gives the observer the importance of a file of llama.cpp, as one token: its squares are the mean squares, for those
 * are floats and a rounding of double is lost in them. */
static int observe_mean_squares(qobs_observer *observer, const struct importance_sources *sources,
                                const struct importance_found *found, const struct layer *l, struct fail *f)
{
    const int64_t columns = l->ref->shape[l->ref->ndim - 1];
    float *mean = malloc(((size_t)columns + 1) * sizeof *mean);
    double *token = malloc(((size_t)columns + 1) * sizeof *token);
    qobs_error error;
    int result =
        mean && token ? importance_read(sources, found, columns, mean, f) : fail(f, "no memory for importance");
    for (int64_t j = 0; result == 0 && j < columns; j++)
        token[j] = sqrt((double)mean[j]);
    const qobs_tensor tensor = {
        .struct_size = sizeof tensor, .data = token, .dtype = QOBS_F64, .ndim = 1, .shape = &columns};
    if (result == 0 && qobs_observer_observe_importance(observer, &tensor, &error) != QOBS_OK)
        result = fail(f, "--importance: %s: '%s': %s", found->file->map.path, found->entry->name, error.message);
    free(mean);
    free(token);
    return result;
}

/* Observes the activations that weigh the columns of a layer. Returns false after a recorded failure. */
static bool observe_importance(struct run *run, size_t index, qobs_observer *observer)
{
    const struct layer *l = &run->c->layers.items[index];
    const struct recordings *recordings = &run->c->importance.recordings;
    struct importance_found in_file;
    const struct tensor_ref *found = NULL;
    struct fail f;
    if (recordings->count > 0 &&
        find_recorded_input(recordings, &run->c->layers, l->ref->name, l->module, l->group, &found, &f) != 0) {
        run_record_failure(run, index, EXIT_SYSTEM, f.message);
        return false;
    }
    for (size_t i = 0; found && i < recordings->count; i++) {
        const struct tensor_ref *batch = recordings_batch(recordings, i, found);
        qobs_tensor tensor;
        qobs_error error;
        int result = batch ? tensor_of_ref(batch, &tensor, &f) : 0;
        if (batch && result == 0 && qobs_observer_observe_importance(observer, &tensor, &error) != QOBS_OK)
            result = fail(&f, "--importance: %s: tensor '%s': %s", batch->file, batch->name, error.message);
        if (result != 0) {
            run_record_failure(run, index, EXIT_USAGE, f.message);
            return false;
        }
    }
    run->c->layers.items[index].importance = found ? found->name : NULL;
    if (!found && importance_find(&run->c->importance, NULL, l->ref->name, l->module, &in_file) && in_file.entry) {
        run->c->layers.items[index].importance = in_file.entry->name;
        if (run->weights->hessian)
            fail(&f, "--importance: %s: has mean squares; %s needs recorded activations", in_file.file->map.path,
                 run->weights->preset);
        if (run->weights->hessian || observe_mean_squares(observer, &run->c->importance, &in_file, l, &f) != 0) {
            run_record_failure(run, index, EXIT_USAGE, f.message);
            return false;
        }
    }
    return true;
}

/* Counts how often each candidate was chosen, if they are a list that all scales share. */
static bool count_candidates(struct run *run, size_t index, const qobs_observer *observer)
{
    struct layer *l = &run->c->layers.items[index];
    struct results results = {0};
    if (l->search.steps == 0)
        return true;
    bool ok = results_read_one(&results, observer, "best_step", l->ref->name) == EXIT_OK;
    l->candidates = ok ? calloc((size_t)l->search.steps + 1, sizeof *l->candidates) : NULL;
    for (size_t i = 0; l->candidates && i < results.items[0].size / sizeof(int32_t); i++) {
        const int step = (int)result_value(&results.items[0], i);
        l->candidates[step < 0 ? l->search.steps : step]++;
    }
    if (!l->candidates)
        run_record_failure(run, index, EXIT_SYSTEM, "no memory for a layer's candidates");
    results_free(&results);
    return l->candidates != NULL;
}

/* The largest magnitude of the layers. Returns false after a recorded failure. */
static bool measure_amax(struct run *run, const size_t *members, size_t count, const qobs_runtime *runtime,
                         double *amax)
{
    *amax = 0;
    for (size_t i = 0; i < count; i++) {
        const struct layer *l = &run->c->layers.items[members[i]];
        double min, max; /* large enough for any dtype */
        qobs_error error;
        const qobs_minmax_args args = {.struct_size = sizeof args,
                                       .config = run->minmax_config,
                                       .value = &l->tensor,
                                       .min = &min,
                                       .max = &max,
                                       .size = qobs_dtype_size(l->tensor.dtype),
                                       .runtime = runtime};
        if (qobs_minmax(&args, &error) != QOBS_OK) {
            run_record_error(run, members[i], error);
            return false;
        }
        const double low = result_value(&(struct result){.dtype = l->tensor.dtype, .data = &min}, 0);
        const double high = result_value(&(struct result){.dtype = l->tensor.dtype, .data = &max}, 0);
        *amax = run_max_or_nan(*amax, run_max_or_nan(-low, high));
    }
    return true;
}

/* Returns an observer that has searched the layer. NULL: a failure was recorded. amax: of the global scale, or NULL. */
static qobs_observer *search_layer(struct run *run, size_t index, const double *amax, const qobs_runtime *runtime)
{
    struct layer *l = &run->c->layers.items[index];
    qobs_observer *observer = NULL;
    qobs_error error;
    bool ok = qobs_observer_create(&observer, run->weights->config, runtime, &error) == QOBS_OK;
    if (!ok)
        run_record_error(run, index, error);
    ok = ok && observe_importance(run, index, observer);
    if (ok && amax && qobs_observer_set_global_amax(observer, *amax, &error) != QOBS_OK) {
        run_record_error(run, index, error);
        ok = false;
    }
    l->search.struct_size = sizeof l->search;
    if (ok && (qobs_observer_observe(observer, &l->tensor, NULL, &error) != QOBS_OK ||
               qobs_observer_search_report(observer, &l->search, &error) != QOBS_OK)) {
        run_record_error(run, index, error);
        ok = false;
    }
    ok = ok && count_candidates(run, index, observer);
    if (!ok)
        qobs_observer_destroy(observer);
    progress_add(&run->progress, l->ref->bytes);
    return ok ? observer : NULL;
}

static void write_global_scale(struct run *run, size_t index, const qobs_observer *observer)
{
    const struct layer *l = &run->c->layers.items[index];
    qobs_error error;
    struct fail f;
    float value;
    if (qobs_observer_read(observer, "global_scale", &value, sizeof value, &error) != QOBS_OK)
        run_record_error(run, index, error);
    else if (value == 0) {
        fail(&f, "%s: tensor '%s': " ZERO_GLOBAL_SCALE, l->ref->file, l->ref->name);
        run_record_failure(run, index, EXIT_USAGE, f.message);
    } else if (st_writer_put(&run->c->writer, l->global_scale_index, 0, &value, sizeof value, &f) != 0)
        run_record_failure(run, index, EXIT_SYSTEM, f.message);
}

/* Fused layers share the global scale of the largest range found. Optimal scales are searched under that of the largest
 * element. members: indices of the layers. */
static void search_group(struct run *run, const size_t *members, size_t count, qobs_observer **observers,
                         const qobs_runtime *runtime)
{
    const bool early = run->weights->optimal && run->weights->global_scales;
    size_t searched = 0;
    double amax;
    qobs_error error;
    if (early && !measure_amax(run, members, count, runtime, &amax))
        return;
    while (searched < count &&
           (observers[searched] = search_layer(run, members[searched], early ? &amax : NULL, runtime)))
        searched++;
    if (searched == count && count > 1 && !early && qobs_observers_fuse(observers, count, &error) != QOBS_OK) {
        run_record_error(run, members[0], error);
        count = 0;
    }
    for (size_t i = 0; searched == count && i < count; i++) {
        if (run->weights->global_scales)
            write_global_scale(run, members[i], observers[i]);
        run_write_qparams(run, members[i], observers[i], 0);
    }
    for (size_t i = 0; i < searched; i++)
        qobs_observer_destroy(observers[i]);
}

int run_searches(struct run *run, struct threads *threads)
{
    const struct layers *layers = &run->c->layers;
    size_t *members = malloc(layers->count * sizeof *members);
    qobs_observer **observers = malloc(layers->count * sizeof *observers);
    const bool ok = members && observers;
    for (size_t i = 0; ok && i < layers->count && run->failed_layer == layers->count; i++) {
        size_t n = 0;
        if (layers->items[i].group != i && run->weights->global_scales)
            continue; /* processed with the first layer of its group */
        members[n++] = i;
        for (size_t k = i + 1; run->weights->global_scales && k < layers->count; k++)
            if (layers->items[k].group == i)
                members[n++] = k;
        search_group(run, members, n, observers, &threads->runtime);
    }
    free(members);
    free(observers);
    return ok ? EXIT_OK : print_error(EXIT_SYSTEM, "no memory for %zu layers", layers->count);
}
