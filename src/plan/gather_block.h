/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The elements of every qparam of a plan as floats, for what has to look at all elements of a qparam more than once. Qparams
 * that are neighbours in memory are read together, so that memory is walked in order where it is the qparams that follow
 * each other there (channels along the last dimension) as well as where it is the elements of one. */
#ifndef QOBS_SEARCH_STRIPS_H
#define QOBS_SEARCH_STRIPS_H

#include "plan/plan.h"

enum {
    STRIP_QPARAMS = 16, /* at most; more would not make memory faster */
    STRIP_WORKSPACE = 512    /* elements of each that are read at a time */
};

/* How the qparams of a plan make strips. Plans with an order of columns (g_idx) have none. */
struct strips {
    const qobs_plan *plan;
    int most;       /* qparams of a strip */
    int along;      /* the axis along which the qparams of a strip lie; -1: there is one qparam */
    int64_t pieces; /* strips along it */
    size_t count;
};

struct strip {
    int64_t offset;  /* of the first element of the first qparam, in bytes */
    size_t qparam;   /* the first one */
    size_t next;     /* how far the next one is, as an index */
    int64_t between; /* and in bytes */
    int qparams;
    int axes; /* of the elements of a qparam, in the order of the flattened value; zeros that pad a block are left out */
    int64_t extent[MAX_AXES], stride[MAX_AXES];
    int64_t elements; /* of each qparam */
};

/* Of at most that many qparams each, 1 to STRIP_QPARAMS. */
void qobs_strips_of(struct strips *strips, const qobs_plan *plan, int most);
void qobs_strip_at(const struct strips *strips, size_t index, struct strip *strip);

/* Elements first to first + n <= STRIP_WORKSPACE of qparam i of the strip into out[i], rounded once if they are F64. */
void qobs_strip_read(const struct strip *strip, qobs_dtype dtype, const unsigned char *data, int64_t first, size_t n,
                     float out[][STRIP_WORKSPACE]);

#endif
