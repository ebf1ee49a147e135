/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observes recorded activations and writes their scales. */
#include "activations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stored_scale.h"

/* ---- Observation ------------------------------------------------------------------------------------------------- */

struct observe_job {
    struct activations *a;
    const struct bases *bases;
    struct progress *progress;
};

static void set_failure(struct stream *s, int code, const char *message)
{
    s->code = code;
    fail(&s->failure, "%s", message);
}

static void set_error(struct stream *s, const struct tensor_ref *batch, const qobs_error *error)
{
    struct fail f;
    fail(&f, "%s: tensor '%s': %s", batch->file, batch->name, error->message);
    set_failure(s, error->status == QOBS_ERROR_OUT_OF_MEMORY ? EXIT_SYSTEM : EXIT_USAGE, f.message);
}

static bool observe_batch(struct stream *s, const struct tensor_ref *batch)
{
    qobs_tensor tensor;
    qobs_error error;
    struct fail f;
    if (tensor_of_ref(batch, &tensor, &f) != 0) {
        set_failure(s, EXIT_USAGE, f.message);
        return false;
    }
    if (s->features >= 0 && (batch->ndim < 2 || batch->shape[batch->ndim - 1] != s->features)) {
        struct shape_words words;
        fail(&f, "%s: tensor '%s' has shape %s, but '%s' goes with a last dimension of %lld", batch->file, batch->name,
             shape_describe(batch->ndim, batch->shape, &words), s->features_of, (long long)s->features);
        set_failure(s, EXIT_USAGE, f.message);
        return false;
    }
    if (qobs_observer_observe(s->observer, &tensor, NULL, &error) != QOBS_OK) {
        set_error(s, batch, &error);
        return false;
    }
    return true;
}

static void observe_stream(void *argument, size_t index)
{
    struct observe_job *w = argument;
    struct stream *s = &w->a->streams[index];
    qobs_error error;
    if (qobs_observer_create(&s->observer, w->bases->observers[s->base].config, NULL, &error) != QOBS_OK) {
        set_error(s, s->found, &error);
        return;
    }
    for (size_t i = 0; i < w->a->recordings.count; i++) {
        const struct tensor_ref *batch = recordings_batch(&w->a->recordings, i, s->found);
        if (!batch)
            continue;
        if (!observe_batch(s, batch))
            return;
        progress_add(w->progress, batch->bytes);
    }
    s->counts.struct_size = sizeof s->counts;
    qobs_observer_counts(s->observer, &s->counts, NULL);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* The results that a checkpoint stores, in the order in which they are written. */
static size_t needed_results(const struct base_observer *o, const char *names[3])
{
    size_t n = 0;
    if (o->needs == NEEDS_SCALES)
        names[n++] = "scale";
    if (o->needs == NEEDS_SCALES && o->zero_points)
        names[n++] = "zero_point";
    if (o->global_scales)
        names[n++] = "global_scale";
    return n;
}

/* Fused layers have one input. If several of them were recorded, all use the largest magnitude. */
static int fuse(struct activations *a, size_t layers)
{
    enum { MAX_FUSED = 8 };
    struct fused {
        qobs_observer *observers[MAX_FUSED];
        size_t count;
    } *fused = calloc(layers + 1, sizeof *fused);
    if (!fused)
        return print_error(EXIT_SYSTEM, "no memory for %zu layers", layers);
    int code = EXIT_OK;
    for (size_t i = 0; i < a->target_count; i++) {
        const struct target *t = &a->targets[i];
        if (t->base != BASE_INPUT || t->stream == NOT_RECORDED)
            continue;
        struct fused *f = &fused[t->group];
        qobs_observer *observer = a->streams[t->stream].observer;
        size_t k = 0;
        while (k < f->count && f->observers[k] != observer)
            k++;
        if (k == f->count && k < MAX_FUSED)
            f->observers[f->count++] = observer;
    }
    qobs_error error;
    for (size_t i = 0; code == EXIT_OK && i < layers; i++)
        if (fused[i].count > 1 && qobs_observers_fuse(fused[i].observers, fused[i].count, &error) != QOBS_OK)
            code = print_status_error(&error, "--activations");
    free(fused);
    return code;
}

static int read_needed_results(struct stream *s, const struct base_observer *o)
{
    const char *names[3];
    const size_t n = needed_results(o, names);
    for (size_t i = 0; i < n; i++) {
        char about[640];
        snprintf(about, sizeof about, "%s: tensor '%.300s'", s->found->file, s->found->name);
        const int code = results_read_one(&s->results, s->observer, names[i], about);
        if (code != EXIT_OK)
            return code;
        if (strcmp(names[i], "global_scale") == 0 && result_value(stream_result(s, names[i]), 0) == 0)
            return print_error(EXIT_USAGE, "%s: " ZERO_GLOBAL_SCALE, about);
    }
    return EXIT_OK;
}

int activations_observe(struct activations *a, const struct bases *bases, size_t layers, struct threads *threads,
                        struct progress *progress)
{
    struct observe_job w = {a, bases, progress};
    threads_run(threads, observe_stream, &w, a->stream_count);
    for (size_t i = 0; i < a->stream_count; i++)
        if (a->streams[i].code != EXIT_OK) {
            progress_stop(progress);
            return print_error(a->streams[i].code, "%s", a->streams[i].failure.message);
        }
    int code = bases->observers[BASE_INPUT].global_scales ? fuse(a, layers) : EXIT_OK;
    for (size_t i = 0; code == EXIT_OK && i < a->stream_count; i++)
        code = read_needed_results(&a->streams[i], &bases->observers[a->streams[i].base]);
    return code;
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static const char *dtype_in_file(const struct bases *bases, enum base base, const struct result *r)
{
    const bool is_scale = strcmp(r->name, "scale") == 0;
    return is_scale ? stored_dtype(bases->observers[base].config, r->dtype) : qobs_dtype_name(r->dtype);
}

int activations_declare(struct activations *a, const struct bases *bases, struct st_writer *writer)
{
    struct fail f;
    for (size_t i = 0; i < a->target_count; i++) {
        struct target *t = &a->targets[i];
        t->first_output = writer->count;
        const struct results *results = t->stream == NOT_RECORDED ? NULL : &a->streams[t->stream].results;
        for (size_t k = 0; results && k < results->count; k++) {
            const struct result *r = &results->items[k];
            char end[sizeof r->name + 16];
            snprintf(end, sizeof end, ".%s_%s", base_names[t->base], r->name);
            char *name = join(t->module, t->length, end);
            if (!name)
                return print_error(EXIT_SYSTEM, "no memory for a name");
            const int status = st_writer_add(writer, name, dtype_in_file(bases, t->base, r), r->ndim, r->shape, &f);
            free(name);
            if (status != 0)
                return print_error(EXIT_SYSTEM, "%s", f.message);
        }
    }
    return EXIT_OK;
}

int activations_write(const struct activations *a, const struct bases *bases, struct st_writer *writer)
{
    struct fail f;
    for (size_t i = 0; i < a->target_count; i++) {
        const struct target *t = &a->targets[i];
        const struct results *results = t->stream == NOT_RECORDED ? NULL : &a->streams[t->stream].results;
        for (size_t k = 0; results && k < results->count; k++) {
            const struct result *r = &results->items[k];
            void *copy = malloc(r->size ? r->size : 1);
            if (!copy)
                return print_error(EXIT_SYSTEM, "no memory for a result of %zu bytes", r->size);
            memcpy(copy, r->data, r->size);
            const size_t size = stored_encode(dtype_in_file(bases, t->base, r), r->dtype, copy, r->size);
            const int status = st_writer_put(writer, t->first_output + k, 0, copy, size, &f);
            free(copy);
            if (status != 0)
                return print_error(EXIT_SYSTEM, "%s", f.message);
        }
    }
    return EXIT_OK;
}

/* ---- Queries ----------------------------------------------------------------------------------------------------- */

const struct stream *target_stream(const struct activations *a, const struct target *t)
{
    return t->stream == NOT_RECORDED ? NULL : &a->streams[t->stream];
}

const struct result *stream_result(const struct stream *s, const char *name)
{
    for (size_t i = 0; i < s->results.count; i++)
        if (strcmp(s->results.items[i].name, name) == 0)
            return &s->results.items[i];
    return NULL;
}

struct base_counts activations_count(const struct activations *a, enum base base)
{
    struct base_counts counts = {0};
    for (size_t i = 0; i < a->target_count; i++) {
        if (a->targets[i].base != base)
            continue;
        counts.modules++;
        if (!target_stream(a, &a->targets[i]) && counts.missing++ == 0)
            counts.first_missing = &a->targets[i];
    }
    return counts;
}

void activations_free(struct activations *a)
{
    for (size_t i = 0; i < a->stream_count; i++) {
        qobs_observer_destroy(a->streams[i].observer);
        results_free(&a->streams[i].results);
    }
    free(a->streams);
    free(a->targets);
    recordings_free(&a->recordings);
    *a = (struct activations){0};
}
