/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of adjacent qparams, whose elements are read together as floats. Memory is then read in order whether the
 * elements of a qparam or the qparams themselves (channels along the last dimension) are adjacent in it. */
#pragma once

#include "plan/plan.h"

enum {
    BLOCK_QPARAMS = 16,  /* at most; more is no faster */
    BLOCK_ELEMENTS = 512 /* of each qparam that are read at a time */
};

/* The blocks of a plan. A plan with g_idx has none. */
struct gather_blocks {
    const qobs_plan *plan;
    int most;      /* qparams of a block */
    int along;     /* the axis of the qparams of a block; -1: there is one qparam */
    int64_t parts; /* blocks along it */
    size_t count;
};

struct gather_block {
    int64_t offset;  /* of the first element of the first qparam, in bytes */
    size_t qparam;   /* the first one */
    size_t next;     /* from one qparam to the next, as an index */
    int64_t between; /* from one qparam to the next, in bytes */
    int qparams;
    int axes; /* of the elements of a qparam, in the order of the flattened value without padding */
    int64_t extent[MAX_AXES], stride[MAX_AXES]; /* bytes */
    int64_t elements;                           /* of each qparam */
};

/* Blocks of at most `most` qparams each, 1 to BLOCK_QPARAMS. */
void qobs_gather_blocks_of(struct gather_blocks *blocks, const qobs_plan *plan, int most);
void qobs_gather_block_at(const struct gather_blocks *blocks, size_t index, struct gather_block *block);

/* Reads elements first to first + n <= BLOCK_ELEMENTS of qparam i of block s into out[i]. F64 is rounded once. */
void qobs_gather_block_read(const struct gather_block *s, qobs_dtype dtype, const unsigned char *data, int64_t first,
                            size_t n, float out[][BLOCK_ELEMENTS]);

/* All elements of a plan with one qparam and without g_idx, as floats, in order. `from` and `to` may be narrowed after
 * the opening. */
struct gather_elements {
    struct gather_block block;
    qobs_dtype dtype;
    const unsigned char *data;
    int64_t from, to;           /* elements that are not read yet */
    size_t n;                   /* elements read by the last call */
    float x[1][BLOCK_ELEMENTS]; /* those */
};

void qobs_gather_elements_open(struct gather_elements *e, const qobs_plan *plan, const unsigned char *data);

/* Reads the next elements; false if there are none left. */
bool qobs_gather_elements_next(struct gather_elements *e);
