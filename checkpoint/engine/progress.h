/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Progress of a call: bytes of the input, and the share of the work, in which layers whose scales or codes are searched
 * count for more than their bytes. Engines of one call share a meter. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "model/weights.h"

/* Zero-initialize it, but for the first members. */
struct meter {
    const char *stage;
    int (*report)(void *context, const qobs_progress *progress); /* of the caller; NULL: nobody listens */
    void *context;
    pthread_mutex_t lock;    /* protects the members below */
    uint64_t done, total;    /* bytes of the input */
    double searched, search; /* work of searches, done and in all, in bytes of the input that cost the same time */
    double share;            /* of all work; never less than it was */
    char layer[256];         /* whose rows were the last; "": none */
    atomic_bool stopped;     /* the caller wants to stop */
};

void meter_open(struct meter *meter);
void meter_close(struct meter *meter);

/* Sets the bytes of all work. */
void meter_set_total(struct meter *meter, uint64_t bytes);

/* Reports from any thread what is done of a weight (NULL: of none). Returns true if the caller wants to stop. */
bool meter_add(struct meter *meter, const struct weight *weight, uint64_t bytes, double search);
