/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A granularity as strides: the flattened value (num_observations, *qparam_shape, group_size) described by axes over the
 * caller's memory. The rules that make the axes are in llmc.c, llmc_2025_09.c,
 * torch.c, quark.c and trt.c. */
#ifndef QOBS_GRANULARITY_PLAN_H
#define QOBS_GRANULARITY_PLAN_H

#include "base/shape.h"
#include "config/config.h"
#include "base/tensor.h"

enum axis_role {
    AXIS_OBSERVATION, /* part of the first flattened axis */
    AXIS_QPARAM,      /* one axis of qparam_shape */
    AXIS_GROUP        /* part of the last flattened axis */
};

enum { MAX_AXES = QOBS_MAX_NDIM + 6 };

struct axis {
    enum axis_role role;
    int64_t extent;
    int64_t stride; /* bytes */
    /* A group axis may cut a dimension into pieces together with a qparam axis (`coarse`, an index into axes; -1: it does
     * not). Then the element is coarse * extent + this, and there are `unpadded` of them: the last piece may be short. */
    int outer;
    int64_t unpadded;
};

/* Under which names upstream keeps ranges: llm-compressor's tensor_id of September 2025. */
enum keying {
    KEYING_NONE,    /* all together */
    KEYING_DEFAULT, /* all together, as "default" */
    KEYING_GROUPS,  /* a group of all rows each: "default", "1", "2", ... */
    KEYING_BLOCKS   /* each: "block_0_0", ... */
};

struct qobs_plan {
    struct runtime runtime;
    struct view value; /* the shape and strides the plan is for; data is not used */
    qobs_dtype dtype;
    /* The shapes upstream gives the ranges and the scale. A granularity that does not say has that of the qparam axes, and a
     * scale of at least one dimension. */
    struct shape range, scale;
    enum keying keying;
    bool as_f32; /* elements will be converted to f32: those beyond its limits count as infinite */
    int ndim;
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    bool padded; /* short pieces are filled up with zeros */
    int64_t qparams;
    /* g_idx: the columns, which the last group axis and its coarse axis cut, in the order of their groups, and where in that order
     * each group starts (one entry more than groups). NULL: in memory's order. */
    int64_t *order, *start;
    int axes;
    struct axis axis[MAX_AXES]; /* observations, then qparams, then group */
};

/* Appends an axis; returns its index. */
int qobs_plan_add_axis(qobs_plan *plan, enum axis_role role, int64_t extent, int64_t stride);

/* Appends a qparam axis of ceil(length / piece) and returns its index; the group axis of its pieces follows later with
 * qobs_plan_add_inner. */
int qobs_plan_add_outer(qobs_plan *plan, int64_t length, int64_t piece, int64_t stride);
void qobs_plan_add_inner(qobs_plan *plan, int outer, int64_t length, int64_t piece, int64_t stride);

/* As qobs_plan_create, in memory of the caller's; what it has allocated is given back by qobs_plan_unmake, after a failure by itself. */
int qobs_plan_make(qobs_plan *plan, const qobs_config *config, const qobs_tensor *value, const qobs_tensor *g_idx,
                   const struct runtime *runtime, qobs_error *error);
void qobs_plan_unmake(qobs_plan *plan);

/* As qobs_plan_create, but with the dimensions `axes` instead of the configuration's granularity: every other one is reduced to 1.
 * None kept, or all, give one range for the whole. */
int qobs_plan_make_along(qobs_plan *plan, const qobs_config *config, const qobs_tensor *value, const struct axes *axes,
                         const struct runtime *runtime, qobs_error *error);
int qobs_plan_create_along(qobs_plan **result, const qobs_config *config, const qobs_tensor *value, const struct axes *axes,
                           const struct runtime *runtime, qobs_error *error);

/* The dimensions of value among `axes`, where negative ones count from the end. `name` is the argument's name for messages. */
int qobs_plan_find_kept(const qobs_plan *plan, const struct axes *axes, const char *name, bool kept[QOBS_MAX_NDIM], int *count,
                        qobs_error *error);
void qobs_flatten_kept(qobs_plan *plan, const bool kept[QOBS_MAX_NDIM]);
void qobs_flatten_whole(qobs_plan *plan);

/* A part of a plan without gaps: of every axis the entries from `first` on, and how far apart two of them are among the qparams (0:
 * they share one). */
struct tile {
    int64_t first[MAX_AXES], extent[MAX_AXES], qparam[MAX_AXES];
};

/* Whole pieces of cut dimensions and their short ends are different rectangles: each cut dimension, of which there are at most 2,
 * doubles their number. Bit i of `ends`, below that number, chooses the short end of the i-th cut dimension. False: there is nothing
 * for these `ends`. */
unsigned qobs_plan_tiles(const qobs_plan *plan);
bool qobs_plan_tile(const qobs_plan *plan, unsigned ends, struct tile *tile);

/* One per kind of granularity: fill axes, or fail with a message that names what does not go together. */
int qobs_flatten_llmc(qobs_plan *plan, const qobs_config *config, qobs_error *error);
int qobs_flatten_llmc_2025_09(qobs_plan *plan, const qobs_config *config, qobs_error *error);
int qobs_flatten_tensor(qobs_plan *plan, const qobs_config *config, qobs_error *error);
int qobs_flatten_torch_channel(qobs_plan *plan, const qobs_config *config, qobs_error *error);
int qobs_flatten_torch_qscheme(qobs_plan *plan, const qobs_config *config, qobs_error *error);
int qobs_flatten_quark_channel(qobs_plan *plan, const qobs_config *config, qobs_error *error);
int qobs_flatten_quark_group(qobs_plan *plan, const qobs_config *config, qobs_error *error);
int qobs_flatten_quark_block(qobs_plan *plan, const qobs_config *config, qobs_error *error);
int qobs_flatten_modelopt_axes(qobs_plan *plan, const qobs_config *config, qobs_error *error);
int qobs_flatten_modelopt_block(qobs_plan *plan, const qobs_config *config, qobs_error *error);

#endif
