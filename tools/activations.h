/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From recorded activations to scales: <module>.input_scale, <attention>.k_scale and their like. */
#ifndef QOBS_TOOLS_ACTIVATIONS_H
#define QOBS_TOOLS_ACTIVATIONS_H

#include "bases.h"
#include "layers.h"
#include "progress.h"
#include "recordings.h"
#include "results.h"
#include "safetensors.h"
#include "select.h"

/* Everything recorded under one name, batch by batch, and what it gives. */
struct stream {
    const struct tensor_ref *found;
    enum base base;
    int64_t features;      /* that the last dimension must have; -1: any */
    const char *features_of; /* the weight that says so */
    qobs_observer *observer;
    qobs_counts counts;
    struct readings results; /* scale, zero_point, global_scale: those that are needed */
    int code;                /* what became of it: an exit code, and why */
    struct fail failure;
};

/* A module that needs scales of a base. */
struct target {
    const char *module;
    size_t length;
    enum base base;
    size_t stream; /* NOT_RECORDED: nothing was recorded for it */
    size_t group;  /* layers that share a global scale have the same one (layers.h) */
    size_t first;  /* of its tensors in the output file */
};

#define NOT_RECORDED ((size_t)-1)

/* Zero it first. */
struct activations {
    struct recordings recordings;
    struct stream *streams;
    size_t stream_count;
    struct target *targets; /* base by base, in the order of the model */
    size_t target_count;
    uint64_t bytes;
};

/* Finds what is recorded for the layers, and for the model's attention. What is asked for and nowhere recorded is refused.
 * Returns an exit code, complained about, as the others do. */
int activations_find(struct activations *activations, const struct bases *bases, const struct layers *layers,
                     const struct tensor_set *model, const struct selection *selection);

/* Observes it. */
int activations_observe(struct activations *activations, const struct bases *bases, size_t layers, struct threads *threads,
                        struct progress *progress);

/* Declares the results in the output, and puts them there. */
int activations_declare(struct activations *activations, const struct bases *bases, struct st_writer *writer);
int activations_put(const struct activations *activations, const struct bases *bases, struct st_writer *writer);

/* How many modules need scales of a base, and for how many nothing was recorded. */
struct tally {
    size_t modules, missing;
    const struct target *first_missing;
};
struct tally activations_tally(const struct activations *activations, enum base base);

/* What was recorded for a module, or NULL; and of that a result, or NULL. */
const struct stream *target_stream(const struct activations *activations, const struct target *target);
const struct reading *stream_result(const struct stream *stream, const char *name);

void activations_free(struct activations *activations);

#endif
