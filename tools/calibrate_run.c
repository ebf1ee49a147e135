/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The weights, slice by slice, straight into the output file. Memory is bounded by the slice: neither a tensor nor its scales
 * are ever held whole. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate.h"
#include "progress.h"
#include "results.h"
#include "stored.h"

enum { SLICE_BYTES = 1 << 20 };

struct slice {
    size_t layer;
    int64_t row, rows;
};

struct run {
    struct calibration *c;
    const struct base_observer *weights;
    qobs_config *whole; /* everything as one range */
    struct slice *slices;
    size_t slice_count;
    struct progress progress;
    pthread_mutex_t lock; /* over what follows and the layers' smallest and largest scale */
    bool measuring;       /* the first of two passes: only the largest magnitudes, for the global scales */
    size_t failed_layer;  /* the first of the layers that failed; c->layers.count: none */
    struct fail failure;
    int code;
};

static double larger(double a, double b)
{
    return isnan(a) || a > b ? a : b; /* unlike fmax: NaN if one is */
}

/* Of several failures the one of the first layer is told, so that the message does not depend on the threads. */
static void note_failure(struct run *run, size_t layer, int code, const char *message)
{
    pthread_mutex_lock(&run->lock);
    if (layer < run->failed_layer) {
        run->failed_layer = layer;
        run->code = code;
        fail(&run->failure, "%s", message);
    }
    pthread_mutex_unlock(&run->lock);
}

static bool failed_before(struct run *run, size_t layer)
{
    pthread_mutex_lock(&run->lock);
    const bool failed = run->failed_layer <= layer;
    pthread_mutex_unlock(&run->lock);
    return failed;
}

/* The library speaks of the slice; NaN is told by its place in the whole tensor. */
static void note_refusal(struct run *run, size_t layer, qobs_error error)
{
    const struct layer *l = &run->c->layers.items[layer];
    double min, max; /* room for any dtype */
    struct fail f;
    if (error.status == QOBS_ERROR_NONFINITE) /* which whole refuses, too */
        qobs_minmax(run->whole, &l->tensor, NULL, &min, &max, NULL, NULL, &error);
    fail(&f, "%s: tensor '%s': %s", l->ref->file, l->ref->name, error.message);
    note_failure(run, layer, error.status == QOBS_ERROR_OUT_OF_MEMORY ? EXIT_TROUBLE : EXIT_WRONG, f.message);
}

static void note_scales(struct run *run, struct layer *l, const void *scale, size_t size)
{
    const int64_t n = (int64_t)(size / qobs_dtype_size(l->scale_dtype));
    const qobs_tensor view = {.struct_size = sizeof view, .data = scale, .dtype = l->scale_dtype, .ndim = 1, .shape = &n};
    double min, max; /* room for any dtype */
    if (qobs_minmax(run->whole, &view, NULL, &min, &max, NULL, NULL, NULL) != QOBS_OK)
        return;
    const double least = reading_value(&(struct reading){.dtype = l->scale_dtype, .data = &min}, 0);
    const double greatest = reading_value(&(struct reading){.dtype = l->scale_dtype, .data = &max}, 0);
    pthread_mutex_lock(&run->lock);
    l->least_scale = fmin(l->least_scale, least);
    l->greatest_scale = fmax(l->greatest_scale, greatest);
    pthread_mutex_unlock(&run->lock);
}

/* A slice's results go where its first row of units begins. */
static int put(struct run *run, const struct layer *l, const struct slice *s, unsigned char *scale, size_t scale_size,
               const unsigned char *zero_point, size_t zero_point_size, struct fail *f)
{
    const uint64_t first = (uint64_t)(s->row / l->rows_per_unit * l->qparams_per_unit);
    const size_t size = stored_encode(l->stored_scale, l->scale_dtype, scale, scale_size);
    int status = st_writer_put(&run->c->writer, l->scale_index, first * dtype_size(l->stored_scale), scale, size, f);
    if (status == 0 && zero_point)
        status = st_writer_put(&run->c->writer, l->zero_point_index, first * qobs_dtype_size(l->zero_point_dtype), zero_point,
                               zero_point_size, f);
    return status;
}

static void note_counts(struct run *run, struct layer *l, const qobs_observer *observer)
{
    qobs_counts counts = {.struct_size = sizeof counts};
    if (qobs_observer_counts(observer, &counts, NULL) != QOBS_OK)
        return;
    pthread_mutex_lock(&run->lock);
    l->counts.elements += counts.elements;
    l->counts.nan += counts.nan;
    l->counts.inf += counts.inf;
    pthread_mutex_unlock(&run->lock);
}

/* The part of a layer's weight that a slice is. */
struct part {
    int64_t shape[QOBS_MAX_NDIM];
    qobs_tensor tensor;
};

static const qobs_tensor *take_part(struct part *part, const struct layer *l, const struct slice *s)
{
    memcpy(part->shape, l->ref->shape, sizeof part->shape);
    part->shape[0] = s->rows;
    part->tensor = l->tensor;
    part->tensor.shape = part->shape;
    part->tensor.data = (const unsigned char *)l->tensor.data + s->row * l->ref->strides[0];
    return &part->tensor;
}

/* The first pass: the largest magnitude of a slice. */
static void measure_rows(struct run *run, const struct slice *s, const qobs_runtime *runtime)
{
    struct layer *l = &run->c->layers.items[s->layer];
    struct part part;
    qobs_error error;
    double min, max; /* room for any dtype */
    if (qobs_minmax(run->whole, take_part(&part, l, s), NULL, &min, &max, NULL, runtime, &error) != QOBS_OK) {
        note_refusal(run, s->layer, error);
        return;
    }
    const double least = reading_value(&(struct reading){.dtype = l->tensor.dtype, .data = &min}, 0);
    const double greatest = reading_value(&(struct reading){.dtype = l->tensor.dtype, .data = &max}, 0);
    pthread_mutex_lock(&run->lock);
    l->amax = larger(l->amax, larger(-least, greatest));
    pthread_mutex_unlock(&run->lock);
}

static void calibrate_rows(struct run *run, const struct slice *s, const qobs_runtime *runtime)
{
    struct layer *l = &run->c->layers.items[s->layer];
    struct part part;
    qobs_observer *observer = NULL;
    qobs_result scale = {.struct_size = sizeof scale}, zero_point = scale;
    qobs_error error;
    if (qobs_observer_create(&observer, run->weights->config, runtime, &error) != QOBS_OK ||
        qobs_observer_observe(observer, take_part(&part, l, s), NULL, &error) != QOBS_OK ||
        (run->weights->global_scales && qobs_observer_set_amax(observer, l->amax, &error) != QOBS_OK) ||
        qobs_observer_find(observer, "scale", &scale, &error) != QOBS_OK ||
        qobs_observer_find(observer, "zero_point", &zero_point, &error) != QOBS_OK) {
        note_refusal(run, s->layer, error);
        qobs_observer_destroy(observer);
        return;
    }
    unsigned char *scales = malloc(scale.size), *zero_points = run->weights->zero_points ? malloc(zero_point.size) : NULL;
    struct fail f;
    if (!scales || (run->weights->zero_points && !zero_points))
        note_failure(run, s->layer, EXIT_TROUBLE, "no memory for the scales of a slice");
    else if (qobs_observer_qparams(observer, scales, scale.size, zero_points, zero_point.size, &error) != QOBS_OK)
        note_refusal(run, s->layer, error);
    else {
        note_scales(run, l, scales, scale.size);
        note_counts(run, l, observer);
        if (put(run, l, s, scales, scale.size, zero_points, zero_point.size, &f) != 0)
            note_failure(run, s->layer, EXIT_TROUBLE, f.message);
    }
    free(scales);
    free(zero_points);
    qobs_observer_destroy(observer);
}

static void do_slice(struct run *run, const struct slice *s, const qobs_runtime *runtime)
{
    const struct layer *l = &run->c->layers.items[s->layer];
    if (!failed_before(run, s->layer))
        (run->measuring ? measure_rows : calibrate_rows)(run, s, runtime);
    progress_add(&run->progress, l->ref->bytes / (uint64_t)l->ref->shape[0] * (uint64_t)s->rows);
}

static void do_indexed_slice(void *argument, size_t index)
{
    struct run *run = argument;
    do_slice(run, &run->slices[index], NULL);
}

/* ---- All slices ----------------------------------------------------------------------------------------------------------- */

static int cut(struct run *run)
{
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
        size_t n = 0;
        for (size_t i = 0; i < run->c->layers.count; i++) {
            const struct layer *l = &run->c->layers.items[i];
            const int64_t rows = l->ref->shape[0], row_bytes = (int64_t)l->ref->bytes / rows;
            const int64_t units = SLICE_BYTES / (row_bytes * l->rows_per_unit);
            const int64_t step = (units > 0 ? units : 1) * l->rows_per_unit;
            for (int64_t row = 0; l->sliced && row < rows; row += step, n++)
                if (pass == 1)
                    run->slices[n] = (struct slice){i, row, rows - row < step ? rows - row : step};
        }
        run->slice_count = n;
        if (pass == 0 && !(run->slices = malloc((n ? n : 1) * sizeof *run->slices)))
            return complain(EXIT_TROUBLE, "no memory for %zu slices", n);
    }
    return EXIT_OK;
}

static int add_result(struct run *run, size_t *index, const struct layer *l, const char *ending, const char *dtype, int ndim,
                      const int64_t *shape)
{
    struct fail f;
    char *name = join(l->ref->name, strlen(l->ref->name), ending);
    if (!name)
        return complain(EXIT_TROUBLE, "no memory for a name");
    *index = run->c->writer.count;
    const int status = st_writer_add(&run->c->writer, name, dtype, ndim, shape, &f);
    free(name);
    return status == 0 ? EXIT_OK : complain(EXIT_TROUBLE, "%s", f.message);
}

static int declare_layer(struct run *run, struct layer *l)
{
    int code = add_result(run, &l->scale_index, l, "_scale", l->stored_scale, l->ndim, l->shape);
    if (code == EXIT_OK && run->weights->zero_points)
        code = add_result(run, &l->zero_point_index, l, "_zero_point", qobs_dtype_name(l->zero_point_dtype), l->ndim, l->shape);
    if (code == EXIT_OK && run->weights->global_scales)
        code = add_result(run, &l->global_scale_index, l, "_global_scale", "F32", 1, (const int64_t[]){1});
    return code;
}

static int declare(struct run *run)
{
    struct calibration *c = run->c;
    struct st_writer *w = &c->writer;
    struct fail f;
    int code = EXIT_OK;
    if (st_writer_metadata(w, "format", "pt", &f) != 0 || st_writer_metadata(w, "qobs_version", qobs_version(), &f) != 0 ||
        st_writer_metadata(w, "scheme", c->scheme->name, &f) != 0 ||
        st_writer_metadata(w, "preset", run->weights->preset, &f) != 0)
        code = complain(EXIT_TROUBLE, "%s", f.message);
    for (size_t i = 0; code == EXIT_OK && i < c->layers.count; i++)
        code = declare_layer(run, &c->layers.items[i]);
    if (code == EXIT_OK)
        code = activations_declare(&c->activations, &c->bases, w);
    if (code == EXIT_OK && st_writer_begin(w, c->out, &f) != 0)
        code = complain(EXIT_TROUBLE, "%s", f.message);
    return code;
}

static void do_all(struct run *run, struct threads *threads)
{
    threads_run(threads, do_indexed_slice, run, run->slice_count);
    /* What is one range for the whole tensor is cut by the library. */
    for (size_t i = 0; i < run->c->layers.count; i++)
        if (!run->c->layers.items[i].sliced)
            do_slice(run, &(struct slice){i, 0, run->c->layers.items[i].ref->shape[0]}, &threads->runtime);
}

/* Layers that run as one share the largest magnitude of them all. */
static void share_magnitudes(struct layers *layers)
{
    struct layer *items = layers->items;
    for (size_t i = 0; i < layers->count; i++)
        items[items[i].group].amax = larger(items[items[i].group].amax, items[i].amax);
    for (size_t i = 0; i < layers->count; i++)
        items[i].amax = items[items[i].group].amax;
}

/* The first pass over all weights, then a global scale for each layer. */
static int make_global_scales(struct run *run, struct threads *threads)
{
    struct calibration *c = run->c;
    run->measuring = true;
    do_all(run, threads);
    run->measuring = false;
    if (run->failed_layer < c->layers.count)
        return EXIT_OK; /* told where the second pass would be */
    share_magnitudes(&c->layers);
    int code = EXIT_OK;
    for (size_t i = 0; code == EXIT_OK && i < c->layers.count; i++) {
        struct layer *l = &c->layers.items[i];
        qobs_error error;
        struct fail f;
        float value;
        if (qobs_global_scale(run->weights->config, l->tensor.dtype, -l->amax, l->amax, &value, &error) != QOBS_OK)
            code = complain_status(&error, l->ref->name);
        else if (st_writer_put(&run->c->writer, l->global_scale_index, 0, &value, sizeof value, &f) != 0)
            code = complain(EXIT_TROUBLE, "%s", f.message);
    }
    return code;
}

/* The range of a whole tensor, NaN and infinity treated as the weights' observer does. */
static int make_whole(struct run *run)
{
    char nonfinite[64];
    qobs_error error;
    if (qobs_config_create(&run->whole, "llmc.memoryless_minmax", NULL, &error) != QOBS_OK ||
        qobs_config_get(run->weights->config, "nonfinite", nonfinite, sizeof nonfinite, &error) != QOBS_OK ||
        qobs_config_set(run->whole, "nonfinite", nonfinite, &error) != QOBS_OK)
        return complain_status(&error, NULL);
    return EXIT_OK;
}

static int run_weights(struct run *run, struct threads *threads)
{
    struct calibration *c = run->c;
    const double start = seconds_now();
    int code = run->weights->global_scales ? make_global_scales(run, threads) : EXIT_OK;
    if (code == EXIT_OK && run->failed_layer == c->layers.count)
        do_all(run, threads);
    progress_stop(&run->progress);
    if (code == EXIT_OK && run->failed_layer < c->layers.count)
        code = complain(run->code, "%s", run->failure.message);
    c->seconds = seconds_now() - start;
    return code;
}

int calibration_run(struct calibration *c, struct threads *threads)
{
    struct run run = {.c = c,
                      .weights = &c->bases.of[BASE_WEIGHT],
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .failed_layer = c->layers.count};
    int code = make_whole(&run);
    if (code == EXIT_OK)
        code = cut(&run);
    progress_start(&run.progress, (run.weights->global_scales ? 2 : 1) * c->layers.bytes + c->activations.bytes);
    if (code == EXIT_OK)
        code = activations_observe(&c->activations, &c->bases, c->layers.count, threads, &run.progress);
    if (code == EXIT_OK)
        code = declare(&run);
    if (code == EXIT_OK)
        code = run_weights(&run, threads);
    if (code == EXIT_OK)
        code = activations_put(&c->activations, &c->bases, &c->writer);
    progress_stop(&run.progress);
    free(run.slices);
    qobs_config_destroy(run.whole);
    return code;
}
