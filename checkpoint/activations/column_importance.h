/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Importance of the columns of weights: the mean square of what each column is multiplied with. It comes from recorded
 * inputs, from importance matrices of llama.cpp, or from saved observers <module>.importance. */
#pragma once

#include "activations/recordings.h"
#include "activations/saved_states.h"
#include "files/imatrix.h"

/* Zero-initialize it. */
struct importance_sources {
    struct recordings recordings; /* "<module>.input" */
    struct imatrix *files;        /* of llama.cpp */
    size_t file_count;
};

/* The source of the importance of one weight; NULL members: another source. */
struct importance_found {
    const struct saved_state *states;
    size_t state_count;
    const struct tensor_ref *recorded;
    const struct imatrix *file;
    const struct imatrix_entry *entry;
    uint64_t matrix; /* of the entry */
};

/* Returns the path of what was found. */
const char *importance_path(const struct importance_found *found);

/* Opens a file: an importance matrix of llama.cpp, or recorded activations. Returns -1 on failure. */
int importance_add(struct importance_sources *sources, const char *path, struct fail *f);

/* Finds the importance of a module: saved states first, then recordings, then importance matrices, where the last one
 * counts. For a Hessian recordings come first, because states of plan have mean squares. states may be NULL. Returns
 * false if there is none. */
bool importance_find(const struct importance_sources *sources, const struct saved_states *states, const char *module,
                     size_t length, bool hessian, struct importance_found *found);

/* Half of the tokens of a recording: of the first dimension of each batch, or every second batch if it has one row. */
enum importance_half { ALL_TOKENS, FIRST_HALF, SECOND_HALF };

/* The tokens of one batch that belong to a half. */
struct importance_batch {
    qobs_tensor tensor;
    int64_t shape[TENSOR_MAX_DIMS];
    int64_t tokens; /* 0: none */
};

/* Finds the tokens of batch `index` of a recording. Returns a status. */
int importance_batch_of(const struct recordings *recordings, size_t index, const struct tensor_ref *recorded,
                        enum importance_half half, struct importance_batch *batch, struct fail *f);

/* Gives an observer every batch of a recording as importance. Returns a status. */
int importance_observe(const struct recordings *recordings, const struct tensor_ref *recorded,
                       enum importance_half half, qobs_observer *observer, struct fail *f);

/* Writes the mean square of each column; recordings are observed now. Returns a status. */
int importance_read(const struct importance_sources *sources, const struct importance_found *found, int64_t columns,
                    float *mean, struct fail *f);

/* Loads and merges states of mean squares, and writes the mean square of each of `n` numbers: of llmc.imatrix_mse, or
 * the diagonal of a Hessian of qobs.local_hessian. what: "columns" or "rows" of the weight. Returns a status. */
int means_of_states(const struct saved_state *first, size_t count, const char *what, int64_t n, float *mean,
                    struct fail *f);

void importance_free(struct importance_sources *sources);

/* ---- Names of llama.cpp ------------------------------------------------------------------------------------------ */

/* The name of a weight in llama.cpp: "model.layers.0.self_attn.q_proj" is blk.0.attn_q.weight. */
struct llama_name {
    char text[96];
    uint64_t matrix; /* number of the expert within the weight; else 0 */
};

/* Translates the name of a module; false: llama.cpp has no such weight. Its converter permutes rows of q_proj and
 * k_proj, but no columns, so that importance belongs to the same columns. Source: gguf-py/gguf/tensor_mapping.py. */
bool llama_name_of(const char *module, size_t length, struct llama_name *name);
