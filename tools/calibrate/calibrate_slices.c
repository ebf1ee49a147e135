/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Processes the weights in slices of rows and writes the scales of each slice to the output file. Memory use is
 * bounded by the slice size: neither a tensor nor its scales are held completely. */
#include <stdlib.h>
#include <string.h>

#include "calibrate_run.h"
#include "qobs/stateless.h"
#include "results.h"

enum { SLICE_BYTES = 1 << 20 };

struct slice {
    size_t layer;
    int64_t row, rows;
};

struct slices {
    struct run *run;
    struct slice *items; /* slices of the layers that can be sliced */
    size_t count;
    bool measuring; /* first of two passes: only the largest magnitudes, for the global scales */
};

/* A view of the rows of a slice. */
struct slice_view {
    int64_t shape[QOBS_MAX_NDIM];
    qobs_tensor tensor;
};

static const qobs_tensor *slice_tensor(struct slice_view *slice_view, const struct layer *l, const struct slice *s)
{
    memcpy(slice_view->shape, l->ref->shape, sizeof slice_view->shape);
    slice_view->shape[0] = s->rows;
    slice_view->tensor = l->tensor;
    slice_view->tensor.shape = slice_view->shape;
    slice_view->tensor.data = (const unsigned char *)l->tensor.data + s->row * l->ref->strides[0];
    return &slice_view->tensor;
}

/* The first pass: records the largest magnitude of a slice. */
static void measure_rows(struct run *run, const struct slice *s, const qobs_runtime *runtime)
{
    struct layer *l = &run->c->layers.items[s->layer];
    struct slice_view slice_view;
    qobs_error error;
    double min, max; /* large enough for any dtype */
    const qobs_tensor *rows = slice_tensor(&slice_view, l, s);
    const qobs_minmax_args args = {.struct_size = sizeof args,
                                   .config = run->minmax_config,
                                   .value = rows,
                                   .min = &min,
                                   .max = &max,
                                   .size = qobs_dtype_size(rows->dtype),
                                   .runtime = runtime};
    if (qobs_minmax(&args, &error) != QOBS_OK) {
        run_record_error(run, s->layer, error);
        return;
    }
    const double min_value = result_value(&(struct result){.dtype = l->tensor.dtype, .data = &min}, 0);
    const double max_value = result_value(&(struct result){.dtype = l->tensor.dtype, .data = &max}, 0);
    pthread_mutex_lock(&run->lock);
    l->amax = run_max_or_nan(l->amax, run_max_or_nan(-min_value, max_value));
    pthread_mutex_unlock(&run->lock);
}

static void calibrate_rows(struct run *run, const struct slice *s, const qobs_runtime *runtime)
{
    struct layer *l = &run->c->layers.items[s->layer];
    struct slice_view slice_view;
    qobs_observer *observer = NULL;
    qobs_error error;
    if (qobs_observer_create(&observer, run->weights->config, runtime, &error) != QOBS_OK ||
        qobs_observer_observe(observer, slice_tensor(&slice_view, l, s), NULL, &error) != QOBS_OK ||
        (run->weights->global_scales && qobs_observer_set_global_amax(observer, l->amax, &error) != QOBS_OK))
        run_record_error(run, s->layer, error);
    else /* the index of the first qparam of the slice */
        run_write_qparams(run, s->layer, observer, (uint64_t)(s->row / l->rows_per_unit * l->qparams_per_unit));
    qobs_observer_destroy(observer);
}

static void process_slice(const struct slices *slices, const struct slice *s, const qobs_runtime *runtime)
{
    struct run *run = slices->run;
    const struct layer *l = &run->c->layers.items[s->layer];
    if (!run_failed_before(run, s->layer))
        (slices->measuring ? measure_rows : calibrate_rows)(run, s, runtime);
    progress_add(&run->progress, l->ref->bytes / (uint64_t)l->ref->shape[0] * (uint64_t)s->rows);
}

static void process_slice_task(void *argument, size_t index)
{
    const struct slices *slices = argument;
    process_slice(slices, &slices->items[index], NULL);
}

/* ---- All slices -------------------------------------------------------------------------------------------------- */

static int make_slices(struct slices *slices, const struct layers *layers)
{
    for (int pass = 0; pass < 2; pass++) { /* first pass: count; second pass: fill */
        size_t n = 0;
        for (size_t i = 0; i < layers->count; i++) {
            const struct layer *l = &layers->items[i];
            const int64_t rows = l->ref->shape[0], row_bytes = (int64_t)l->ref->bytes / rows;
            const int64_t units = SLICE_BYTES / (row_bytes * l->rows_per_unit);
            const int64_t step = (units > 0 ? units : 1) * l->rows_per_unit;
            for (int64_t row = 0; l->sliced && row < rows; row += step, n++)
                if (pass == 1)
                    slices->items[n] = (struct slice){i, row, rows - row < step ? rows - row : step};
        }
        slices->count = n;
        if (pass == 0 && !(slices->items = malloc((n ? n : 1) * sizeof *slices->items)))
            return print_error(EXIT_SYSTEM, "no memory for %zu slices", n);
    }
    return EXIT_OK;
}

static void process_all(struct slices *slices, struct threads *threads)
{
    const struct layers *layers = &slices->run->c->layers;
    threads_run(threads, process_slice_task, slices, slices->count);
    /* Layers that cannot be sliced are split by the library. */
    for (size_t i = 0; i < layers->count; i++)
        if (!layers->items[i].sliced)
            process_slice(slices, &(struct slice){i, 0, layers->items[i].ref->shape[0]}, &threads->runtime);
}

/* Fused layers share the largest magnitude of all of them. */
static void share_magnitudes(struct layers *layers)
{
    struct layer *items = layers->items;
    for (size_t i = 0; i < layers->count; i++)
        items[items[i].group].amax = run_max_or_nan(items[items[i].group].amax, items[i].amax);
    for (size_t i = 0; i < layers->count; i++)
        items[i].amax = items[items[i].group].amax;
}

/* Runs the first pass, then writes a global scale for each layer. */
static int make_global_scales(struct slices *slices, struct threads *threads)
{
    struct run *run = slices->run;
    struct layers *layers = &run->c->layers;
    slices->measuring = true;
    process_all(slices, threads);
    slices->measuring = false;
    if (run->failed_layer < layers->count)
        return EXIT_OK; /* the caller reports the failure */
    share_magnitudes(layers);
    int code = EXIT_OK;
    for (size_t i = 0; code == EXIT_OK && i < layers->count; i++) {
        struct layer *l = &layers->items[i];
        qobs_error error;
        struct fail f;
        float value;
        if (qobs_global_scale(run->weights->config, l->tensor.dtype, -l->amax, l->amax, &value, &error) != QOBS_OK)
            code = print_status_error(&error, l->ref->name);
        else if (st_writer_put(&run->c->writer, l->global_scale_index, 0, &value, sizeof value, &f) != 0)
            code = print_error(EXIT_SYSTEM, "%s", f.message);
    }
    return code;
}

int run_slices(struct run *run, struct threads *threads)
{
    struct slices slices = {.run = run};
    int code = make_slices(&slices, &run->c->layers);
    if (code == EXIT_OK && run->weights->global_scales)
        code = make_global_scales(&slices, threads);
    if (code == EXIT_OK && run->failed_layer == run->c->layers.count)
        process_all(&slices, threads);
    free(slices.items);
    return code;
}
