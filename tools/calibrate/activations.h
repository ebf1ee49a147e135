/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Computes scales from recorded activations: <module>.input_scale, <attention>.k_scale and similar. */
#ifndef QOBS_TOOLS_ACTIVATIONS_H
#define QOBS_TOOLS_ACTIVATIONS_H

#include "bases.h"
#include "layers.h"
#include "activations/recordings.h"
#include "progress.h"
#include "results.h"
#include "files/safetensors.h"
#include "select.h"

/* All batches recorded under one name, and their results. */
struct stream {
    const struct tensor_ref *found;
    enum base base;
    int64_t features;        /* required size of the last dimension; -1: any */
    const char *features_of; /* name of the weight that requires it */
    qobs_observer *observer;
    qobs_counts counts;
    struct results results; /* those of scale, zero_point and global_scale that the checkpoint needs */
    int code;               /* exit code of the observation */
    struct fail failure;    /* its message */
};

/* A module that needs scales for a base name. */
struct target {
    const char *module;
    size_t length;
    enum base base;
    size_t stream;       /* index; NOT_RECORDED: no tensor was recorded for the module */
    size_t group;        /* layers with the same number share a global scale (layers.h) */
    size_t first_output; /* index of its first tensor in the output file */
};

#define NOT_RECORDED ((size_t)-1)

/* Zero-initialize it. */
struct activations {
    struct recordings recordings;
    struct stream *streams;
    size_t stream_count;
    struct target *targets; /* sorted by base name, then in the order of the model */
    size_t target_count;
    uint64_t bytes;
};

/* Finds the recordings for the layers and the attention modules of the model. Fails if a base name was requested and
 * nothing was recorded for it. This and the following functions return an exit code. */
int activations_find(struct activations *activations, const struct bases *bases, const struct layers *layers,
                     const struct tensor_set *model, const struct selection *selection);

/* Finds the recording "<module>.input" and returns its first batch, which stands for all batches. If it was not
 * recorded, finds the input of a module that is fused with this one: a layer of `group`. NULL: there is none. */
int find_recorded_input(const struct recordings *recordings, const struct layers *layers, const char *module,
                        size_t length, size_t group, const struct tensor_ref **found, struct fail *f);

/* Observes all recordings and reads their results. */
int activations_observe(struct activations *activations, const struct bases *bases, size_t layers,
                        struct threads *threads, struct progress *progress);

/* Declares the results in the output file, and later writes them. */
int activations_declare(struct activations *activations, const struct bases *bases, struct st_writer *writer);
int activations_write(const struct activations *activations, const struct bases *bases, struct st_writer *writer);

/* Number of modules that need scales for a base name, and of those without a recording. */
struct base_counts {
    size_t modules, missing;
    const struct target *first_missing;
};
struct base_counts activations_count(const struct activations *activations, enum base base);

/* target_stream returns the recording for a module, stream_result a result of a recording. NULL: there is none. */
const struct stream *target_stream(const struct activations *activations, const struct target *target);
const struct result *stream_result(const struct stream *stream, const char *name);

void activations_free(struct activations *activations);

#endif
