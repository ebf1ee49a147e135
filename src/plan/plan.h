/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A plan is a granularity applied to one shape and its strides: the flattened value (num_observations, *qparam_shape,
 * group_size) described by axes over the caller's memory. */
#pragma once

#include "base/runtime.h"
#include "stages/granularity.h"

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
    /* A split dimension is a qparam axis and a group axis. `outer` of the group axis is the index of the qparam axis;
     * -1: the axis is a dimension of its own. The element of the dimension is outer * extent + inner. The dimension has
     * `unpadded` elements, so the last group may be short. */
    int outer;
    int64_t unpadded;
};

struct qobs_plan {
    struct runtime runtime;
    struct view value; /* the shape and strides the plan is for; data is not used */
    qobs_dtype dtype;
    /* The shapes upstream gives the ranges and the scale. By default that of the qparam axes, and a scale of at least
     * one dimension. */
    struct shape range, scale;
    enum keying keying;
    bool as_f32; /* elements will be converted to f32: those beyond its limits count as infinite */
    int ndim;
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    bool padded; /* short groups are filled up with zeros */
    int64_t qparams;
    /* g_idx: the columns (the last group axis with its outer axis) sorted by group, and the position in that order at
     * which each group starts; start has one entry more than groups. NULL: memory order. */
    int64_t *order, *start;
    int axes;
    struct axis axis[MAX_AXES]; /* observations, then qparams, then group */
};
