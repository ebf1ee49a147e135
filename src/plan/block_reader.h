/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reading the elements of qparams as floats, in the order of the flattened value. A block is the elements of one
 * qparam, or of a few adjacent ones. Those are read together: memory is then read in order whether the elements of a
 * qparam or the qparams themselves (channels along the last dimension) are adjacent in it. */
#pragma once

#include "kernels/kernels.h"
#include "plan/plan.h"

enum {
    BLOCK_QPARAMS = 16,  /* at most; more is no faster */
    BLOCK_ELEMENTS = 512 /* of each qparam that are read at a time */
};

struct qparam_block {
    int64_t offset;                             /* of the first element of the first qparam, in bytes */
    int64_t elements;                           /* of each qparam, without the zeros that pad a group */
    int axes;                                   /* of the elements of a qparam */
    int64_t extent[MAX_AXES], stride[MAX_AXES]; /* bytes; g_idx: [0] is from column to column */
    const int64_t *order;                       /* g_idx: the columns of the elements; else NULL */
    int64_t column;                             /* of the first element, without g_idx */
    int64_t position[MAX_AXES];                 /* of the first qparam */
    size_t qparam;                              /* the first one */
    size_t next;                                /* from one qparam to the next, as an index */
    int64_t between;                            /* from one qparam to the next, in bytes */
    int qparams;
};

/* ---- Blocks of adjacent qparams, in plain C ---------------------------------------------------------------------- */

/* The blocks of a plan. A plan with g_idx has none. */
struct qparam_blocks {
    const qobs_plan *plan;
    int most;      /* qparams of a block */
    int along;     /* the axis of the qparams of a block; -1: there is one qparam */
    int64_t parts; /* blocks along it */
    size_t count;
};

/* Blocks of at most `most` qparams each, 1 to BLOCK_QPARAMS. */
void qobs_blocks_of(struct qparam_blocks *blocks, const qobs_plan *plan, int most);
void qobs_block_at(const struct qparam_blocks *blocks, size_t index, struct qparam_block *block);

/* Reads elements of qparam i of a block into out[i], from `first` on: BLOCK_ELEMENTS, or up to `end`; returns how many.
 * F64 is rounded once. finite_only: NaN and infinities become 0. */
size_t qobs_block_read(const struct qparam_block *block, qobs_dtype dtype, const unsigned char *data, int64_t first,
                       int64_t end, bool finite_only, float out[][BLOCK_ELEMENTS]);

/* A task of a search is a block. With few blocks it is a part of the elements of each qparam of a block: the sums of a
 * part are private and then added in an order that depends on the shape alone. */
struct block_tasks {
    struct qparam_blocks blocks;
    size_t parts; /* of a block */
    int64_t part; /* elements of each qparam in a part: a multiple of `chunk` */
    size_t count; /* of tasks */
};
void qobs_block_tasks_of(struct block_tasks *tasks, const qobs_plan *plan, int most, int64_t chunk);

/* Sets the block and the elements of a task; returns the number of the part. */
size_t qobs_block_task_at(const struct block_tasks *tasks, size_t index, struct qparam_block *block, int64_t *from,
                          int64_t *end);

/* All elements of a plan with one qparam and without g_idx. `from` and `to` may be narrowed after the opening. */
struct element_reader {
    struct qparam_block block;
    qobs_dtype dtype;
    const unsigned char *data;
    int64_t from, to;           /* elements that are not read yet */
    size_t n;                   /* elements read by the last call */
    float x[1][BLOCK_ELEMENTS]; /* those */
};

void qobs_element_reader_open(struct element_reader *reader, const qobs_plan *plan, const unsigned char *data);

/* Reads the next elements; false if there are none left. */
bool qobs_element_reader_next(struct element_reader *reader);

/* ---- One qparam after the other, by kernels ---------------------------------------------------------------------- */

/* In memory order or in that of g_idx. */
struct element_source {
    const qobs_plan *plan;
    const unsigned char *data;
    const float *column_weight; /* one for each column; NULL: all 1 */
    qobs_search_load_fn *load;
    bool finite_only; /* NaN and infinities become 0 */
};

/* The most elements a qparam has. */
int64_t qobs_elements_most(const qobs_plan *plan);

/* The block of one qparam. */
void qobs_block_of_qparam(const struct element_source *source, int64_t qparam, struct qparam_block *block);

/* The memory of elements first to end, as far as there are any, if they are contiguous; else nothing. */
struct prefetch_ahead qobs_block_memory(const struct element_source *source, const struct qparam_block *block,
                                        int64_t first, int64_t end);

/* n <= QOBS_SEARCH_MOST elements from `first` on, times factor, padded with zeros to a multiple of QOBS_SEARCH_LANES.
 */
void qobs_block_load(const struct element_source *source, const struct qparam_block *block, int64_t first, size_t n,
                     double factor, float *out);

/* Their weights, padded in the same way; all 1 without column_weight. */
void qobs_block_weights(const struct element_source *source, const struct qparam_block *block, int64_t first, size_t n,
                        float *out);
