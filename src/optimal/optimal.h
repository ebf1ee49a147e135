/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search for the scale and zero point with the smallest error of all: every representable scale in a range, times
 * every zero point and sign. The result is a property of the input. It does not depend on the kernels, on the number
 * of threads, or on the order in which candidates are tried:
 *   error            sum h * e * e, or e^T H e, with e = (q - zero_point) * scale - w
 *   q                w / scale + zero_point, one f32 rounding each, limited and rounded to the nearest number
 *   equal errors     the smaller magnitude of the scale, then + before -, then the smaller zero point
 */
#pragma once

#include "measure/gram.h"
#include "number/grid.h"
#include "measure/importance.h"
#include "plan/plan.h"

/* ---- Result ------------------------------------------------------------------------------------------------------ */

/* One entry for each qparam. */
struct optimal_result {
    size_t qparams;                        /* 0: nothing has been searched */
    double *error, *minmax_error, *energy; /* of the result; of the scale of the range; of zeros in its place */
    float *scale;                          /* e4m3: under the global scale, as it is stored */
    int32_t *zero_point;

    /* Blocks of several groups (hessian_block_size above the group), one entry for each row; else rows is 0. */
    size_t rows;
    double *row_error, *start_row_error;

    double amax;                 /* of the global scale; without one 0 */
    bool fused;                  /* that amax is not the tensor's own */
    bool weighted;               /* errors are weighted by activations */
    enum importance_fault fault; /* the reason if they are not, though the preset weighs */
};

/* Allocates arrays in an empty result. */
int qobs_optimal_result_reserve(const struct runtime *runtime, struct optimal_result *result, size_t qparams,
                                size_t rows, qobs_error *error);
int qobs_optimal_result_copy(const struct runtime *runtime, struct optimal_result *to,
                             const struct optimal_result *from, qobs_error *error);
void qobs_optimal_result_release(const struct runtime *runtime, struct optimal_result *result);

/* Writes scales of dtype F32, BF16, F16 or F64, and zero points of dtype I8 or I32, or zeros of one byte. Either may be
 * NULL. */
void qobs_optimal_result_write(const struct optimal_result *result, qobs_dtype dtype, void *scale,
                               qobs_dtype zero_point_dtype, void *zero_point);

/* ---- Search ------------------------------------------------------------------------------------------------------ */

/* The arguments of a search of one weight. */
struct optimal_search {
    const struct runtime *runtime;
    const struct kernel_table *kernels;
    const struct range_params *params;
    const qobs_plan *plan;
    const unsigned char *data;
    const float *global_scale;           /* NULL: there is none */
    const struct importance *importance; /* of the last dimension; may have no columns */
    const struct gram *gram;             /* of the same activations, if the rule has a Hessian */
    const struct formula *formula;       /* of the ranges of the weight */
    const struct range_view *ranges;
};

/* Searches every qparam of the plan and allocates the result, which the caller releases, also after an error. Fails if
 * importance cannot be used and params->strict is set. Runs on the executor. */
int qobs_optimal_search(const struct optimal_search *search, struct optimal_result *result, qobs_error *error);

/* ---- Parts of it ------------------------------------------------------------------------------------------------- */

/* Most candidates for the magnitude of a scale: 22 octaves of 128. */
enum { OPTIMAL_MOST_SCALES = 22 * 128 + 2, OPTIMAL_PADDING = 16 };

/* The elements of a group and their weights. Arrays are aligned to 64 bytes and end with zeros up to a multiple of
 * OPTIMAL_PADDING. */
struct optimal_group {
    const float *w;
    const double *h;
    size_t n;
    float global_scale; /* e4m3 scales are divided by it; without one 1 */
};

struct optimal_choice {
    float scale; /* as it multiplies the quantized numbers, divided by the global scale */
    int32_t zero_point;
    double error, minmax_error, energy;
};

/* min(0, w), max(0, w) and the scale of that range. */
struct optimal_range {
    float lo, hi, scale;
};
struct optimal_range qobs_optimal_range(const struct optimal_params *params, const struct optimal_group *group);
struct optimal_range qobs_optimal_range_of(const struct optimal_params *params, float lo, float hi);

/* False if the range alone decides: there is no element but 0, or the scale is too small to be searched. *choice is
 * then the result. */
bool qobs_optimal_is_searched(const struct optimal_params *params, const struct optimal_range *range,
                              const struct optimal_group *group, struct optimal_choice *choice);

/* The candidates for the magnitude of a scale, ascending. */
struct scale_list {
    const float *scale;
    size_t count;
    float times; /* candidates times this are on the lattice, up to rounding */
    struct hessian_lattice lattice;
};

/* Writes all candidates to `scale`. There is at least one. */
struct scale_list qobs_optimal_scales(const struct optimal_params *params, float range_scale, float global_scale,
                                      float scale[OPTIMAL_MOST_SCALES]);

/* The index of the largest candidate that is not above t; 0 without one. */
size_t qobs_scale_below(const struct scale_list *scales, double t);

/* True if each group has its own candidates: numbers of 8 significant bits around the scale of the range. */
static inline bool optimal_around_range(const struct optimal_params *params)
{
    return params->scales == OPTIMAL_BF16 || params->scales == OPTIMAL_F16;
}

/* The zero point of the range in compressed-tensors' convention. */
int32_t qobs_optimal_zero_point(const struct optimal_params *params, const struct optimal_range *range);

/* A number of the kernels (kernel_optimal.h) for these parameters. */
struct optimal_number qobs_optimal_number(const struct optimal_params *params);

/* The scale as results have it: e4m3 without the global scale. */
static inline float qobs_optimal_stored(const struct optimal_params *params, float scale, float global_scale)
{
    return params->scales == OPTIMAL_E4M3 ? grid_round_e4m3(scale * global_scale) : scale;
}

/* Writes what all groups of at most n elements have in common into their scratch. */
void qobs_optimal_prepare(const struct optimal_params *params, float global_scale, size_t n, void *scratch);

/* The best candidate for errors sum h * e * e. `scratch`: qobs_optimal_scratch() bytes, aligned to 64. */
void qobs_optimal_group(const struct kernel_table *kernels, const struct optimal_params *params,
                        const struct optimal_group *group, void *scratch, struct optimal_choice *choice);
size_t qobs_optimal_scratch(const struct optimal_params *params, size_t n);

/* ---- Places of arrays in one piece of memory --------------------------------------------------------------------- */

/* Arrays one after another, each on a line of the cache. Without memory their size is counted. */
struct array_layout {
    unsigned char *memory; /* from qobs_layout_begin, or NULL */
    size_t used;
};

enum { LAYOUT_LINE = 64 };

/* memory: of the size and LAYOUT_LINE bytes more. */
static inline struct array_layout qobs_layout_begin(void *memory)
{
    unsigned char *const at = memory;
    return (struct array_layout){at ? at + (LAYOUT_LINE - (uintptr_t)at % LAYOUT_LINE) % LAYOUT_LINE : NULL, 0};
}

static inline void *qobs_layout_add(struct array_layout *layout, size_t bytes)
{
    void *const at = layout->memory ? layout->memory + layout->used : NULL;
    layout->used += (bytes + LAYOUT_LINE - 1) / LAYOUT_LINE * LAYOUT_LINE;
    return at;
}
