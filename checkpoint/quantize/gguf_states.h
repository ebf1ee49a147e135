/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Saved states of calibration by the names of llama.cpp: mean squares and Hessians of the inputs of matrices. */
#pragma once

#include <pthread.h>

#include "activations/column_importance.h"
#include "files/text.h"

struct gguf_state {
    char *key; /* the tensor's name and the number of the matrix */
    const struct saved_state *first;
    size_t count;
};

/* The states of all matrices. Zero-initialize it. */
struct gguf_states {
    struct saved_states saved;
    struct gguf_state *items; /* sorted by key */
    size_t count;
    pthread_mutex_t lock; /* one thread loads states */
};

int gguf_states_open(struct gguf_states *states, const struct texts *directories, struct fail *f);
void gguf_states_close(struct gguf_states *states);

/* Returns the state of a matrix of a tensor; NULL: there is none. */
const struct gguf_state *gguf_states_find(const struct gguf_states *states, const char *tensor, uint64_t matrix);

/* Writes the mean square of each column; 1 without a state. */
int gguf_states_means(const struct gguf_state *state, int64_t columns, float *mean, struct fail *f);

/* The Hessian of a matrix while its rows are in work. */
struct gguf_hessian {
    const struct gguf_state *state; /* NULL: none */
    double *sum;                    /* NULL: it is not loaded */
    int64_t shape[3], tokens, left; /* rows that are not out yet */
};

/* Loads a Hessian that is not, and frees one whose last rows are out. Any thread may call both. */
int gguf_hessian_take(struct gguf_states *states, struct gguf_hessian *h, int64_t columns, struct fail *f);
void gguf_hessian_give(struct gguf_states *states, struct gguf_hessian *h, int64_t rows);
