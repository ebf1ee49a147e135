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
#include "safetensors.h"

enum { SLICE_BYTES = 1 << 20 };

struct slice {
    size_t layer;
    int64_t row, rows;
};

struct run {
    struct calibration *c;
    const qobs_config *config;
    qobs_config *whole; /* everything as one range */
    struct st_writer writer;
    struct slice *slices;
    size_t slice_count;
    struct progress progress;
    pthread_mutex_t lock; /* over what follows and the layers' smallest and largest scale */
    bool measuring;       /* the first of two passes: only the largest magnitudes, for the global scales */
    size_t failed_layer;  /* the first of the layers that failed; c->count: none */
    struct fail failure;
    int code;
};

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
    const struct layer *l = &run->c->layers[layer];
    double min, max; /* room for any dtype */
    struct fail f;
    if (error.status == QOBS_ERROR_NONFINITE)
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

/* Scales as the checkpoint stores them: e4m3 numbers and powers of two as their 8-bit codes. In place; returns the bytes. */
static size_t encode_scales(const struct layer *l, unsigned char *scales, size_t size)
{
    const size_t element = qobs_dtype_size(l->scale_dtype), n = size / element;
    const bool e4m3 = strcmp(l->stored_scale, "F8_E4M3") == 0;
    if (!e4m3 && strcmp(l->stored_scale, "U8") != 0)
        return size;
    for (size_t i = 0; i < n; i++) {
        const double s = reading_value(&(struct reading){.dtype = l->scale_dtype, .data = scales + i * element}, 0);
        int exponent;
        const double fraction = frexp(s, &exponent); /* s = fraction * 2^exponent, fraction from 0.5 */
        if (!e4m3)
            scales[i] = (unsigned char)(isfinite(s) ? exponent - 1 + 127 : 255);
        else if (isnan(s))
            scales[i] = 0x7f;
        else
            scales[i] = (unsigned char)(s < 0x1p-6 ? s * 512 : (exponent - 1 + 7) * 8 + (int)((fraction - 0.5) * 16));
    }
    return n;
}

/* A slice's results go where its first row of units begins. */
static int put(struct run *run, const struct layer *l, const struct slice *s, unsigned char *scale, size_t scale_size,
               const unsigned char *zero_point, size_t zero_point_size, struct fail *f)
{
    const uint64_t first = (uint64_t)(s->row / l->rows_per_unit * l->qparams_per_unit);
    const size_t size = encode_scales(l, scale, scale_size);
    int status = st_writer_put(&run->writer, l->scale_index, first * dtype_size(l->stored_scale), scale, size, f);
    if (status == 0 && zero_point)
        status = st_writer_put(&run->writer, l->zero_point_index, first * qobs_dtype_size(l->zero_point_dtype), zero_point,
                               zero_point_size, f);
    return status;
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
    struct layer *l = &run->c->layers[s->layer];
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
    l->amax = fmax(l->amax, fmax(-least, greatest));
    pthread_mutex_unlock(&run->lock);
}

static void calibrate_rows(struct run *run, const struct slice *s, const qobs_runtime *runtime)
{
    struct layer *l = &run->c->layers[s->layer];
    struct part part;
    qobs_observer *observer = NULL;
    qobs_result scale = {.struct_size = sizeof scale}, zero_point = scale;
    qobs_error error;
    if (qobs_observer_create(&observer, run->config, runtime, &error) != QOBS_OK ||
        qobs_observer_observe(observer, take_part(&part, l, s), NULL, &error) != QOBS_OK ||
        (run->c->global_scales && qobs_observer_set_amax(observer, l->amax, &error) != QOBS_OK) ||
        qobs_observer_find(observer, "scale", &scale, &error) != QOBS_OK ||
        qobs_observer_find(observer, "zero_point", &zero_point, &error) != QOBS_OK) {
        note_refusal(run, s->layer, error);
        qobs_observer_destroy(observer);
        return;
    }
    unsigned char *scales = malloc(scale.size), *zero_points = run->c->zero_points ? malloc(zero_point.size) : NULL;
    struct fail f;
    if (!scales || (run->c->zero_points && !zero_points))
        note_failure(run, s->layer, EXIT_TROUBLE, "no memory for the scales of a slice");
    else if (qobs_observer_qparams(observer, scales, scale.size, zero_points, zero_point.size, &error) != QOBS_OK)
        note_refusal(run, s->layer, error);
    else {
        note_scales(run, l, scales, scale.size);
        if (put(run, l, s, scales, scale.size, zero_points, zero_point.size, &f) != 0)
            note_failure(run, s->layer, EXIT_TROUBLE, f.message);
    }
    free(scales);
    free(zero_points);
    qobs_observer_destroy(observer);
}

static void do_slice(struct run *run, const struct slice *s, const qobs_runtime *runtime)
{
    const struct layer *l = &run->c->layers[s->layer];
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
        for (size_t i = 0; i < run->c->count; i++) {
            const struct layer *l = &run->c->layers[i];
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

static int declare(struct run *run)
{
    struct calibration *c = run->c;
    struct fail f;
    bool ok = st_writer_metadata(&run->writer, "format", "pt", &f) == 0 &&
              st_writer_metadata(&run->writer, "qobs_version", qobs_version(), &f) == 0 &&
              st_writer_metadata(&run->writer, "scheme", c->scheme->name, &f) == 0 &&
              st_writer_metadata(&run->writer, "preset", c->preset, &f) == 0;
    size_t next = 0;
    for (size_t i = 0; ok && i < c->count; i++) {
        struct layer *l = &c->layers[i];
        char name[1024];
        l->least_scale = INFINITY;
        l->greatest_scale = 0;
        snprintf(name, sizeof name, "%s_scale", l->ref->name);
        l->scale_index = next++;
        ok = st_writer_add(&run->writer, name, l->stored_scale, l->ndim, l->shape, &f) == 0;
        if (ok && c->zero_points) {
            snprintf(name, sizeof name, "%s_zero_point", l->ref->name);
            l->zero_point_index = next++;
            ok = st_writer_add(&run->writer, name, qobs_dtype_name(l->zero_point_dtype), l->ndim, l->shape, &f) == 0;
        }
        if (ok && c->global_scales) {
            snprintf(name, sizeof name, "%s_global_scale", l->ref->name);
            l->global_scale_index = next++;
            ok = st_writer_add(&run->writer, name, "F32", 1, (const int64_t[]){1}, &f) == 0;
        }
    }
    ok = ok && st_writer_begin(&run->writer, c->out, &f) == 0;
    return ok ? EXIT_OK : complain(EXIT_TROUBLE, "%s", f.message);
}

static void do_all(struct run *run, struct threads *threads)
{
    threads_run(threads, do_indexed_slice, run, run->slice_count);
    /* What is one range for the whole tensor is cut by the library. */
    for (size_t i = 0; i < run->c->count; i++)
        if (!run->c->layers[i].sliced)
            do_slice(run, &(struct slice){i, 0, run->c->layers[i].ref->shape[0]}, &threads->runtime);
}

/* The part of a module's name before its last component, and which fused set that component belongs to. */
static int fused_set(const struct layer *l, size_t *parent)
{
    const char *name = l->ref->name;
    size_t at = l->module;
    while (at > 0 && name[at - 1] != '.')
        at--;
    *parent = at;
    return scheme_fused_set(name + at, l->module - at);
}

struct member {
    struct layer *layer;
    size_t parent;
    int set;
};

/* Members of the same set under the same parent become neighbours. */
static int compare_members(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    const size_t shorter = a->parent < b->parent ? a->parent : b->parent;
    const int order = memcmp(a->layer->ref->name, b->layer->ref->name, shorter);
    if (order != 0 || a->parent != b->parent)
        return order != 0 ? order : a->parent < b->parent ? -1 : 1;
    return (a->set > b->set) - (a->set < b->set);
}

/* Layers that run as one share the largest magnitude of them all. */
static int share_magnitudes(struct calibration *c)
{
    struct member *members = malloc(c->count * sizeof *members);
    if (!members)
        return complain(EXIT_TROUBLE, "no memory for %zu layers", c->count);
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++) {
        struct member m = {.layer = &c->layers[i]};
        m.set = fused_set(m.layer, &m.parent);
        if (m.set >= 0)
            members[n++] = m;
    }
    qsort(members, n, sizeof *members, compare_members);
    for (size_t first = 0, end; first < n; first = end) {
        double amax = 0;
        for (end = first; end < n && compare_members(&members[first], &members[end]) == 0; end++)
            amax = fmax(amax, members[end].layer->amax);
        for (size_t i = first; i < end; i++)
            members[i].layer->amax = amax;
    }
    free(members);
    return EXIT_OK;
}

/* The first pass over all weights, then a global scale for each layer. */
static int make_global_scales(struct run *run, struct threads *threads)
{
    struct calibration *c = run->c;
    run->measuring = true;
    do_all(run, threads);
    run->measuring = false;
    if (run->failed_layer < c->count)
        return EXIT_OK; /* told where the second pass would be */
    int code = share_magnitudes(c);
    for (size_t i = 0; code == EXIT_OK && i < c->count; i++) {
        struct layer *l = &c->layers[i];
        qobs_error error;
        struct fail f;
        float value;
        if (qobs_global_scale(run->config, l->tensor.dtype, -l->amax, l->amax, &value, &error) != QOBS_OK)
            code = complain_status(&error, l->ref->name);
        else if (st_writer_put(&run->writer, l->global_scale_index, 0, &value, sizeof value, &f) != 0)
            code = complain(EXIT_TROUBLE, "%s", f.message);
    }
    return code;
}

int calibration_run(struct calibration *c, const qobs_config *config, struct threads *threads)
{
    struct run run = {.c = c, .config = config, .lock = PTHREAD_MUTEX_INITIALIZER, .failed_layer = c->count};
    qobs_error error;
    int code = EXIT_OK;
    if (qobs_config_create(&run.whole, "llmc.memoryless_minmax", NULL, &error) != QOBS_OK)
        return complain_status(&error, NULL);
    code = cut(&run);
    if (code == EXIT_OK)
        code = declare(&run);
    if (code == EXIT_OK) {
        progress_start(&run.progress, (c->global_scales ? 2 : 1) * c->bytes);
        if (c->global_scales)
            code = make_global_scales(&run, threads);
        if (code == EXIT_OK && run.failed_layer == c->count)
            do_all(&run, threads);
        progress_stop(&run.progress);
        struct fail f;
        if (code == EXIT_OK && run.failed_layer < c->count)
            code = complain(run.code, "%s", run.failure.message);
        else if (code == EXIT_OK && st_writer_finish(&run.writer, &f) != 0)
            code = complain(EXIT_TROUBLE, "%s", f.message);
    }
    st_writer_abort(&run.writer);
    free(run.slices);
    qobs_config_destroy(run.whole);
    return code;
}
