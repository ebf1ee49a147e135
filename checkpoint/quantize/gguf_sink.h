/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The sink that writes a GGUF file: rows become blocks, with the importance of their matrix. */
#pragma once

#include "engine/sink.h"
#include "files/imatrix.h"
#include "files/output.h"
#include "quantize/gguf_states.h"
#include "schemes/gguf_types.h"

/* The importance of one tensor, and the Hessians by which its codes are rounded. */
struct gguf_importance {
    const struct imatrix *file;
    const struct imatrix_entry *entry; /* NULL: none */
    bool stated, rounded;              /* importance, or its Hessians, are those of states */
    float *means;                      /* of all its matrices, while it is in work */
    struct gguf_hessian *hessians;     /* the same */
};

/* The relative error of one tensor, and d H d^T before and after its codes were rounded. */
struct gguf_error {
    double error, energy; /* sums of squares */
    double rounding_before, rounding, changed;
};

struct gguf_sink {
    struct sink sink;
    const struct gguf_choice *choices;
    const struct gguf_tensor *tensors;  /* of the output, with their offsets */
    struct gguf_importance *importance; /* of each tensor */
    struct gguf_error *errors;          /* of each tensor that has another type */
    const struct output *out;
    uint64_t data_start; /* of the output */
    bool optimal;        /* the search of blocks; else ggml's */
    bool rounds;         /* codes by descent */
    struct gguf_states states;
};

/* Adds (x - y)^2 and x^2 of all elements. */
int gguf_add_error(struct gguf_error *sums, const float *x, const float *y, int64_t count, qobs_error *error);

/* Frees what a tensor in work has. */
void gguf_importance_free(struct gguf_importance *of, uint64_t matrices);

void gguf_sink_open(struct gguf_sink *s);

/* Returns the rows of one matrix of a tensor, such as one expert, and the number of matrices. */
int64_t gguf_matrix_rows(const struct gguf_tensor *t);
uint64_t gguf_matrices(const struct gguf_tensor *t);
