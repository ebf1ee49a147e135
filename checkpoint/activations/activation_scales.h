/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales of activations that a checkpoint stores: <module>.input_scale, .input_global_scale, <attention>.k_scale and
 * similar, as llm-compressor's oneshot writes them. They come from saved states or from recorded activations. */
#pragma once

#include "activations/streams.h"
#include "files/text.h"

/* A tensor of the output. */
struct activation_scale {
    char *name;
    enum file_dtype dtype;
    int ndim;
    int64_t shape[QOBS_MAX_NDIM];
    void *data;
    float factor; /* of a global scale that divides: its reciprocal, as a model brings it; 0: none does */
    uint64_t bytes;
    size_t weight; /* in whose shard it is stored */
    size_t need;   /* of which it is a result */
};

/* Zero-initialize it. */
struct activation_scales {
    struct activation_sources *sources; /* NULL: nothing was asked for */
    struct activation_scale *items;     /* sorted by weight */
    size_t count;
    uint64_t bytes; /* of the recordings */
    size_t filled;  /* scales of experts that no token reached */
    struct activation_needs needs;
    struct activation_streams streams; /* empty if there are no sources */
    bool absent[ACTIVATION_KINDS];     /* states that were not requested and are recorded for no module */
};

/* Opens the directories with states and the files with recorded activations. This and the following functions return a
 * status of qobs/qobs.h. */
int activation_sources_open(struct activation_sources *sources, const struct texts *states,
                            const struct texts *recordings, struct fail *f);
void activation_sources_free(struct activation_sources *sources);
bool activation_sources_are_there(const struct activation_sources *sources);

/* Gives the configuration a kv_cache_scheme (e4m3, one scale for each tensor) if it has none and keys or values of an
 * attention module of the model are there. */
void activation_sources_add_kv_cache(const struct activation_sources *sources, const struct weights *weights,
                                     struct quant_config *config);

struct activation_request {
    qobs_fill_experts fill;
    /* NULL, or for each activation_kind whether it was asked for. Then modules without a recording are left out, unless
     * their kind was requested and nothing at all was recorded for it. Inputs count as requested. */
    const bool *requested;
    const qobs_runtime *runtime;
    struct activation_progress progress;
};

/* Finds all scales. Fails if nothing was recorded for a module, and if something was recorded and no scheme stores
 * scales of it. */
int activation_scales_find(struct activation_scales *scales, struct activation_sources *sources,
                           const struct weights *weights, const struct quant_config *config,
                           const struct activation_request *request, struct fail *f);

void activation_scales_free(struct activation_scales *scales);
