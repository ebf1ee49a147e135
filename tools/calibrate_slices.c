/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The weights, slice by slice, straight into the output file. Memory is bounded by the slice: neither a tensor nor its scales
 * are ever held whole. */
#include <stdlib.h>
#include <string.h>

#include "calibrate_run.h"
#include "results.h"

enum { SLICE_BYTES = 1 << 20 };

struct slice {
    size_t layer;
    int64_t row, rows;
};

struct slices {
    struct run *run;
    struct slice *items; /* of the layers that can be cut */
    size_t count;
    bool measuring; /* the first of two passes: only the largest magnitudes, for the global scales */
};

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
        run_note_refusal(run, s->layer, error);
        return;
    }
    const double least = reading_value(&(struct reading){.dtype = l->tensor.dtype, .data = &min}, 0);
    const double greatest = reading_value(&(struct reading){.dtype = l->tensor.dtype, .data = &max}, 0);
    pthread_mutex_lock(&run->lock);
    l->amax = run_larger(l->amax, run_larger(-least, greatest));
    pthread_mutex_unlock(&run->lock);
}

static void calibrate_rows(struct run *run, const struct slice *s, const qobs_runtime *runtime)
{
    struct layer *l = &run->c->layers.items[s->layer];
    struct part part;
    qobs_observer *observer = NULL;
    qobs_error error;
    if (qobs_observer_create(&observer, run->weights->config, runtime, &error) != QOBS_OK ||
        qobs_observer_observe(observer, take_part(&part, l, s), NULL, &error) != QOBS_OK ||
        (run->weights->global_scales && qobs_observer_set_amax(observer, l->amax, &error) != QOBS_OK))
        run_note_refusal(run, s->layer, error);
    else /* where the slice's first row of units begins */
        run_write_qparams(run, s->layer, observer, (uint64_t)(s->row / l->rows_per_unit * l->qparams_per_unit));
    qobs_observer_destroy(observer);
}

static void do_slice(const struct slices *slices, const struct slice *s, const qobs_runtime *runtime)
{
    struct run *run = slices->run;
    const struct layer *l = &run->c->layers.items[s->layer];
    if (!run_failed_before(run, s->layer))
        (slices->measuring ? measure_rows : calibrate_rows)(run, s, runtime);
    progress_add(&run->progress, l->ref->bytes / (uint64_t)l->ref->shape[0] * (uint64_t)s->rows);
}

static void do_indexed_slice(void *argument, size_t index)
{
    const struct slices *slices = argument;
    do_slice(slices, &slices->items[index], NULL);
}

/* ---- All slices ----------------------------------------------------------------------------------------------------------- */

static int cut(struct slices *slices, const struct layers *layers)
{
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
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
            return complain(EXIT_TROUBLE, "no memory for %zu slices", n);
    }
    return EXIT_OK;
}

static void do_all(struct slices *slices, struct threads *threads)
{
    const struct layers *layers = &slices->run->c->layers;
    threads_run(threads, do_indexed_slice, slices, slices->count);
    /* What is one range for the whole tensor is cut by the library. */
    for (size_t i = 0; i < layers->count; i++)
        if (!layers->items[i].sliced)
            do_slice(slices, &(struct slice){i, 0, layers->items[i].ref->shape[0]}, &threads->runtime);
}

/* Layers that run as one share the largest magnitude of them all. */
static void share_magnitudes(struct layers *layers)
{
    struct layer *items = layers->items;
    for (size_t i = 0; i < layers->count; i++)
        items[items[i].group].amax = run_larger(items[items[i].group].amax, items[i].amax);
    for (size_t i = 0; i < layers->count; i++)
        items[i].amax = items[items[i].group].amax;
}

/* The first pass over all weights, then a global scale for each layer. */
static int make_global_scales(struct slices *slices, struct threads *threads)
{
    struct run *run = slices->run;
    struct layers *layers = &run->c->layers;
    slices->measuring = true;
    do_all(slices, threads);
    slices->measuring = false;
    if (run->failed_layer < layers->count)
        return EXIT_OK; /* the caller tells it */
    share_magnitudes(layers);
    int code = EXIT_OK;
    for (size_t i = 0; code == EXIT_OK && i < layers->count; i++) {
        struct layer *l = &layers->items[i];
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

int run_slices(struct run *run, struct threads *threads)
{
    struct slices slices = {.run = run};
    int code = cut(&slices, &run->c->layers);
    if (code == EXIT_OK && run->weights->global_scales)
        code = make_global_scales(&slices, threads);
    if (code == EXIT_OK && run->failed_layer == run->c->layers.count)
        do_all(&slices, threads);
    free(slices.items);
    return code;
}
