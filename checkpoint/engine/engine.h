/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Quantizes the weights of a model: weights and groups become jobs, jobs batches of a few hundred MB, a batch passes
 * over slices of rows that threads take in any order: first the ranges that need complete tensors or sets, then
 * codes. The sink decides what becomes of them. */
#pragma once

#include <pthread.h>

#include "engine/progress.h"
#include "engine/sink.h"

/* The engine works on these; all belong to the caller. */
struct engine_input {
    const struct weights *weights;
    const struct quant_config *config;
    const struct importance_sources *importance;
    const struct saved_states *states;
    const qobs_runtime *runtime;
};

struct engine;
typedef int slice_pass(struct engine *engine, struct row_slice *slice, struct workspace *work, struct fail *f);

/* A pass over slices. */
struct engine_pass {
    slice_pass *function;
    struct row_slice *slices;
    size_t count;
    pthread_mutex_t lock; /* protects the members below */
    struct workspace *workspaces;
    size_t failed; /* index of the first slice that failed; SIZE_MAX: none */
    int status;
    struct fail failure;
};

struct engine {
    struct engine_input in;
    struct sink *sink;
    struct meter *meter;
    struct weight_group *groups; /* one for each group of the configuration */
    size_t *set;                 /* for each weight, the first of those that share its scale */
    bool *cast;                  /* for each weight, true if it is in codes that its scheme holds (casts.c) */
    struct weight_job *jobs;     /* in the order of work */
    size_t job_count;
    size_t next;     /* job that begins the next batch */
    size_t weighted; /* weights that have importance, also of those without a job */
    struct engine_pass pass;
};

/* Makes the jobs that the sink wants, and adds their work to the meter. Close the engine also after a failure. */
int engine_open(struct engine *engine, const struct engine_input *in, struct sink *sink, struct meter *meter,
                struct fail *f);
void engine_close(struct engine *engine);

/* Runs the next batch, or all that are left. */
int engine_run_batch(struct engine *engine, struct fail *f);
int engine_run(struct engine *engine, struct fail *f);

/* Returns true if an observer weighs columns by importance and no weight of the model has any, and says so. */
bool engine_lacks_importance(const struct engine *engine, char *text, size_t size);

/* Returns the dtype of a weight's scales, if the format has none of its own: that of the weight, or of a source whose
 * codes stay. */
enum file_dtype weight_scale_dtype(const struct weight *weight, const struct quant_config *config);
