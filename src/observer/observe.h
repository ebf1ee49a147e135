/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One batch through the stages of an observer. */
#pragma once

#include "observer/observer.h"

/* Results the caller reads after the batch. Sizes that do not fit are an error before anything changes. */
struct request {
    bool ranges;
    void *min, *max;
    size_t range_size;                  /* bytes of min, and of max */
    const qobs_qparam_buffers *qparams; /* of this version; NULL: not wanted */
};

struct observed_batch {
    const qobs_tensor *value, *g_idx; /* g_idx may be NULL */
    const struct axes *axes;          /* dimensions to keep instead of the granularity's; NULL */
    bool forward;                     /* everything upstream's forward does; false: what its get_qparams does */
    const struct request *request;    /* NULL: nothing is read */
};

/* Accepts the batch and reads what is requested. An empty batch, and one that the preset ignores, changes nothing.
 * After a failure nothing has changed. */
int qobs_accept_batch(qobs_observer *observer, const struct observed_batch *batch, qobs_error *error);

/* Checks that ranges of that dtype go with the batches before. `first`: the batch starts a new state. */
int qobs_check_batch_dtype(const qobs_observer *observer, qobs_dtype dtype, bool first, qobs_error *error);

void qobs_add_tokens(qobs_observer *observer, const struct view *value);
