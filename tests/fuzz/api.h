/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The public functions with configurations and tensors out of an input. Everything they answer goes into a record; the
 * same input run on another instruction set, for another number of threads and in other rounding modes must make the
 * same record. */
#ifndef QOBS_FUZZ_API_H
#define QOBS_FUZZ_API_H

#include "fuzz.h"
#include "layouts.h"
#include "qobs/qobs.h"

struct record {
    unsigned char *bytes;
    size_t size, workspace;
};

void record(struct record *r, const void *bytes, size_t size);

/* Status and message of a call; returns whether it succeeded. */
bool record_status(struct record *r, int status, const qobs_error *error);

/* One way to run: the input's reading position, and what may not change a result. */
struct run {
    struct bytes b;
    const qobs_runtime *runtime;
    struct record record;
    bool first; /* of the input's runs: what the others would only repeat is looked at */
};

/* Choices out of the input. */
qobs_config *take_config(struct run *run); /* NULL: refused */
void take_tensor(struct bytes *b, struct tensor *t);
void take_shaped(struct bytes *b, struct tensor *t); /* of the dtype and shape it has; elements anew */

/* A g_idx for t's columns; sometimes a wrong one. */
struct indices {
    int32_t narrow[64];
    int64_t shape[1];
    qobs_tensor tensor;
};
const qobs_tensor *take_indices(struct bytes *b, const struct tensor *t, struct indices *indices); /* NULL: none */

/* Calls that need no observer, and all there is to do with observers. */
void run_direct(struct run *run, const qobs_config *config, const struct tensor *t, const qobs_tensor *g_idx);
void run_observer(struct run *run, const qobs_config *config, struct tensor *t, const qobs_tensor *g_idx);

#endif
