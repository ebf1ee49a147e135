/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Runs a calibration: observes activations, declares the output tensors, processes the weights. */
#include "calibrate_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "qobs/stateless.h"
#include "results.h"
#include "stored_scale.h"

/* ---- Records ----------------------------------------------------------------------------------------------------- */

double run_max_or_nan(double a, double b) { return isnan(a) || a > b ? a : b; }

void run_record_failure(struct run *run, size_t layer, int code, const char *message)
{
    pthread_mutex_lock(&run->lock);
    if (layer < run->failed_layer) {
        run->failed_layer = layer;
        run->code = code;
        fail(&run->failure, "%s", message);
    }
    pthread_mutex_unlock(&run->lock);
}

bool run_failed_before(struct run *run, size_t layer)
{
    pthread_mutex_lock(&run->lock);
    const bool failed = run->failed_layer <= layer;
    pthread_mutex_unlock(&run->lock);
    return failed;
}

/* An error of the library refers to the slice it was given. For NaN and infinity the message is made again for the
 * complete tensor, so that it states the position there. */
void run_record_error(struct run *run, size_t layer, qobs_error error)
{
    const struct layer *l = &run->c->layers.items[layer];
    double min, max; /* large enough for any dtype */
    struct fail f;
    const qobs_minmax_args args = {.struct_size = sizeof args,
                                   .config = run->minmax_config,
                                   .value = &l->tensor,
                                   .min = &min,
                                   .max = &max,
                                   .size = qobs_dtype_size(l->tensor.dtype)};
    if (error.status == QOBS_ERROR_NONFINITE) /* fails, too, with the position in the complete tensor */
        qobs_minmax(&args, &error);
    fail(&f, "%s: tensor '%s': %s", l->ref->file, l->ref->name, error.message);
    run_record_failure(run, layer, error.status == QOBS_ERROR_OUT_OF_MEMORY ? EXIT_SYSTEM : EXIT_USAGE, f.message);
}

static void record_scales(struct run *run, struct layer *l, const void *scale, size_t size)
{
    const int64_t n = (int64_t)(size / qobs_dtype_size(l->scale_dtype));
    const qobs_tensor view = {
        .struct_size = sizeof view, .data = scale, .dtype = l->scale_dtype, .ndim = 1, .shape = &n};
    double min, max; /* large enough for any dtype */
    const qobs_minmax_args args = {.struct_size = sizeof args,
                                   .config = run->minmax_config,
                                   .value = &view,
                                   .min = &min,
                                   .max = &max,
                                   .size = qobs_dtype_size(view.dtype)};
    if (qobs_minmax(&args, NULL) != QOBS_OK)
        return;
    const double min_scale = result_value(&(struct result){.dtype = l->scale_dtype, .data = &min}, 0);
    const double max_scale = result_value(&(struct result){.dtype = l->scale_dtype, .data = &max}, 0);
    pthread_mutex_lock(&run->lock);
    l->min_scale = fmin(l->min_scale, min_scale);
    l->max_scale = fmax(l->max_scale, max_scale);
    pthread_mutex_unlock(&run->lock);
}

static void record_counts(struct run *run, struct layer *l, const qobs_observer *observer)
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

static int write_stored_qparams(struct run *run, const struct layer *l, uint64_t first, unsigned char *scale,
                                size_t scale_size, const unsigned char *zero_point, size_t zero_point_size,
                                struct fail *f)
{
    struct st_writer *w = &run->c->writer;
    const size_t size = stored_encode(l->stored_scale, l->scale_dtype, scale, scale_size);
    int status = st_writer_put(w, l->scale_index, first * dtype_size(l->stored_scale), scale, size, f);
    if (status == 0 && zero_point)
        status = st_writer_put(w, l->zero_point_index, first * qobs_dtype_size(l->zero_point_dtype), zero_point,
                               zero_point_size, f);
    return status;
}

void run_write_qparams(struct run *run, size_t layer, const qobs_observer *observer, uint64_t first)
{
    struct layer *l = &run->c->layers.items[layer];
    qobs_result scale = {.struct_size = sizeof scale}, zero_point = scale;
    qobs_error error;
    if (qobs_observer_result_find(observer, "scale", &scale, &error) != QOBS_OK ||
        qobs_observer_result_find(observer, "zero_point", &zero_point, &error) != QOBS_OK) {
        run_record_error(run, layer, error);
        return;
    }
    unsigned char *scales = malloc(scale.size);
    unsigned char *zero_points = run->weights->zero_points ? malloc(zero_point.size) : NULL;
    const qobs_qparam_buffers out = {.struct_size = sizeof out,
                                     .scale = scales,
                                     .scale_size = scale.size,
                                     .zero_point = zero_points,
                                     .zero_point_size = zero_points ? zero_point.size : 0};
    struct fail f;
    if (!scales || (run->weights->zero_points && !zero_points))
        run_record_failure(run, layer, EXIT_SYSTEM, "no memory for a layer's scales");
    else if (qobs_observer_qparams(observer, &out, &error) != QOBS_OK)
        run_record_error(run, layer, error);
    else {
        record_scales(run, l, scales, scale.size);
        record_counts(run, l, observer);
        if (write_stored_qparams(run, l, first, scales, scale.size, zero_points, zero_point.size, &f) != 0)
            run_record_failure(run, layer, EXIT_SYSTEM, f.message);
    }
    free(scales);
    free(zero_points);
}

/* ---- Run --------------------------------------------------------------------------------------------------------- */

static int add_result(struct run *run, size_t *index, const struct layer *l, const char *ending, const char *dtype,
                      int ndim, const int64_t *shape)
{
    struct fail f;
    char *name = join(l->ref->name, strlen(l->ref->name), ending);
    if (!name)
        return print_error(EXIT_SYSTEM, "no memory for a name");
    *index = run->c->writer.count;
    const int status = st_writer_add(&run->c->writer, name, dtype, ndim, shape, &f);
    free(name);
    return status == 0 ? EXIT_OK : print_error(EXIT_SYSTEM, "%s", f.message);
}

static int declare_layer(struct run *run, struct layer *l)
{
    int code = add_result(run, &l->scale_index, l, "_scale", l->stored_scale, l->ndim, l->shape);
    if (code == EXIT_OK && run->weights->zero_points)
        code = add_result(run, &l->zero_point_index, l, "_zero_point", qobs_dtype_name(l->zero_point_dtype), l->ndim,
                          l->shape);
    if (code == EXIT_OK && run->weights->global_scales)
        code = add_result(run, &l->global_scale_index, l, "_global_scale", "F32", 1, (const int64_t[]){1});
    return code;
}

/* Writes the settings of the weights' observer to the metadata, as qobs_config_parse reads them. */
static int declare_settings(struct run *run)
{
    const qobs_config *config = run->weights->config;
    size_t needed = 0;
    qobs_error error;
    struct fail f;
    qobs_config_text(config, NULL, 0, &needed, NULL);
    char *text = malloc(needed + 1);
    int code = text ? EXIT_OK : print_error(EXIT_SYSTEM, "no memory for the settings");
    if (code == EXIT_OK && qobs_config_text(config, text, needed, NULL, &error) != QOBS_OK)
        code = print_status_error(&error, NULL);
    if (code == EXIT_OK && st_writer_metadata(&run->c->writer, "settings", text, &f) != 0)
        code = print_error(EXIT_SYSTEM, "%s", f.message);
    free(text);
    return code;
}

static int declare(struct run *run)
{
    struct calibration *c = run->c;
    struct st_writer *w = &c->writer;
    struct fail f;
    int code = EXIT_OK;
    if (st_writer_metadata(w, "format", "pt", &f) != 0 ||
        st_writer_metadata(w, "qobs_version", qobs_version(), &f) != 0 ||
        st_writer_metadata(w, "scheme", c->scheme->name, &f) != 0 ||
        st_writer_metadata(w, "preset", run->weights->preset, &f) != 0)
        code = print_error(EXIT_SYSTEM, "%s", f.message);
    if (code == EXIT_OK)
        code = declare_settings(run);
    for (size_t i = 0; code == EXIT_OK && i < c->layers.count; i++)
        code = declare_layer(run, &c->layers.items[i]);
    if (code == EXIT_OK)
        code = activations_declare(&c->activations, &c->bases, w);
    if (code == EXIT_OK && st_writer_begin(w, c->out, &f) != 0)
        code = print_error(EXIT_SYSTEM, "%s", f.message);
    return code;
}

/* Creates the min/max configuration. It treats NaN and infinity as the observer of the weights does. */
static int make_minmax_config(struct run *run)
{
    char nonfinite[64];
    qobs_error error;
    if (qobs_config_create(&run->minmax_config, "llmc.memoryless_minmax", NULL, &error) != QOBS_OK ||
        qobs_config_get(run->weights->config, "nonfinite", nonfinite, sizeof nonfinite, &error) != QOBS_OK ||
        qobs_config_set(run->minmax_config, "nonfinite", nonfinite, &error) != QOBS_OK)
        return print_status_error(&error, NULL);
    return EXIT_OK;
}

static int run_weights(struct run *run, struct threads *threads)
{
    const double start = seconds_now();
    int code = (run->weights->searches ? run_searches : run_slices)(run, threads);
    progress_stop(&run->progress);
    if (code == EXIT_OK && run->failed_layer < run->c->layers.count)
        code = print_error(run->code, "%s", run->failure.message);
    run->c->seconds = seconds_now() - start;
    return code;
}

int calibration_run(struct calibration *c, struct threads *threads)
{
    struct run run = {.c = c,
                      .weights = &c->bases.observers[BASE_WEIGHT],
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .failed_layer = c->layers.count};
    const bool two_passes = run.weights->global_scales && !run.weights->searches;
    int code = make_minmax_config(&run);
    progress_start(&run.progress, (two_passes ? 2 : 1) * c->layers.bytes + c->activations.bytes);
    if (code == EXIT_OK)
        code = activations_observe(&c->activations, &c->bases, c->layers.count, threads, &run.progress);
    if (code == EXIT_OK)
        code = declare(&run);
    if (code == EXIT_OK)
        code = run_weights(&run, threads);
    if (code == EXIT_OK)
        code = activations_write(&c->activations, &c->bases, &c->writer);
    progress_stop(&run.progress);
    qobs_config_destroy(run.minmax_config);
    return code;
}
