/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observers of activations: one for each recording or saved state that modules need, however many share it. */
#pragma once

#include "activations/needs.h"
#include "activations/recordings.h"
#include "activations/saved_states.h"

struct activation_sources {
    struct recordings recordings;
    struct saved_states states; /* they count before recordings */
};

/* Receives the bytes that are done, from any thread. A result other than 0 stops the work. */
struct activation_progress {
    int (*add)(void *context, uint64_t bytes);
    void *context;
};

struct activation_stream {
    const struct activation_need *need; /* the first that uses it */
    const struct tensor_ref *recorded;  /* first batch; NULL: a state */
    const struct saved_state *states;
    size_t state_count;
    qobs_observer *observer;
    int status; /* of the observation, with its message */
    struct fail failure;
};

struct activation_streams {
    struct activation_stream *items;
    size_t count;
    uint64_t bytes;  /* of the recordings that are used */
    size_t *of_need; /* for each need, the index of its stream; NO_STREAM: there is no source for it */
};
#define NO_STREAM SIZE_MAX

/* Finds a stream for every need. A layer without a recording uses the input of one that vLLM fuses with it. Fails and
 * names the first module without any, and experts that no token reached unless they are filled. `partial`: modules
 * without any have no stream. */
int activation_streams_find(struct activation_streams *s, const struct activation_sources *from,
                            const struct activation_needs *needs, const struct weights *weights, qobs_fill_experts fill,
                            bool partial, struct fail *f);

/* Makes the configuration of the observer of a need, to be destroyed also after a failure; *config is NULL before.
 * Fails if the members of its scheme do not fit each other. */
int activation_config(qobs_config **config, const struct activation_need *need, struct fail *f);

/* Loads the states and observes the recordings, with the executor's threads. */
int activation_streams_observe(struct activation_streams *s, const struct activation_sources *from,
                               const qobs_runtime *runtime, const struct activation_progress *progress, struct fail *f);

/* Reads a result of an observer as floats, to be freed. NULL: *error says why. */
float *activation_numbers(const qobs_observer *observer, const char *result, qobs_result *info, size_t *count,
                          qobs_error *error);

/* Gives the inputs of layers that vLLM fuses one global scale. */
int activation_streams_fuse(struct activation_streams *streams, const struct activation_needs *needs,
                            const struct weights *weights, struct fail *f);

/* Gives experts without a stream that of another of their layer with the largest or median scale. *filled is their
 * number. Fails if no expert of a layer has one. */
int activation_streams_fill(struct activation_streams *streams, const struct activation_needs *needs,
                            qobs_fill_experts fill, size_t *filled, struct fail *f);

void activation_streams_free(struct activation_streams *streams);
