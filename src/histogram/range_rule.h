/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A range rule turns what was measured into the range of every qparam. There are five kinds:
 *   as it is        neither search nor find: the range is the measured one
 *   SEARCH_BATCH    the grid search (grid_search.h) replaces the range of a batch before it is accumulated
 *   SEARCH_STATE    candidates around the ranges of all batches; their errors are those of the batch just accumulated
 *   SEARCH_OPTIMAL  scale and zero point with the smallest error replace those of the formula (optimal/optimal.h)
 *   find            the range comes from a histogram (histogram/from_histogram.h)
 * A member of struct range_ops that is NULL or false does not apply to the rule. An observer calls check and allocates
 * the workspace before it changes its state, because both may fail. It calls search after it has accumulated the batch.
 */
#pragma once

#include "formula/formula.h"
#include "histogram/histogram.h"
#include "measure/gram.h"
#include "measure/accumulators.h"
#include "plan/plan.h"
#include "qobs/plan.h"
#include "histogram/range_params.h"

/* Set by the caller before the first batch (Model-Optimizer). */
struct search_record;
struct search_reference {
    struct shape shape; /* of amax */
    qobs_dtype dtype;   /* of amax, or of the first batch; multiplied amax is rounded to it */
    float *amax;        /* one for each qparam, or for qobs_range_e4m3 one for the tensor; NULL: not set */
    float *weight;      /* of the error of an element, one for each index of the last dimension; NULL: all 1 */
    size_t count, weights;
};

/* The part of an observer that a search of its state reads and writes. */
struct search_state {
    const struct range_params *params;
    size_t qparams;
    qobs_dtype dtype;         /* of min and max */
    unsigned char *min, *max; /* ranges of all batches */
    enum rank rank;           /* of these ranges in upstream */
    struct search_reference *reference;
    double *sums;                  /* [qparams][steps], if ops->sums */
    struct mode_count *mode_count; /* has capacity for one more candidate, if ops->counts_mode */
    struct search_record *record;  /* has arrays for all qparams */
};

/* The batch that is searched. */
struct search_batch {
    const struct runtime *runtime;
    const struct kernel_table *kernels;
    const struct formula *formula;
    const qobs_plan *plan;
    const unsigned char *data;
    uint64_t batches;        /* observed before it */
    const struct gram *gram; /* of the activations that weigh errors, in whole blocks of a row; NULL: none */
    double *workspace;       /* ops->workspace() doubles */
};

/* The arguments of a grid search; see grid_search.h. */
struct grid_search {
    const struct runtime *runtime; /* its executor runs the search */
    const struct kernel_table *kernels;
    const struct grid_params *params;
    const struct formula *formula;
    enum nonfinite_mode nonfinite;
    const qobs_plan *plan;
    const unsigned char *data;
    const float *column_weight;   /* one for each index of the last dimension, normalised; NULL: all 1 */
    const float *global_scale;    /* NULL: there is none */
    bool each_global_scale;       /* every candidate has the global scale of its own range */
    bool find_ranges;             /* the search finds the ranges first; min and max are output only */
    void *min, *max;              /* in the plan's dtype: the range of each qparam, in; its best range, out */
    struct search_record *record; /* output, with arrays that may be NULL; or NULL */
};

/* Settings that a rule reads beside those of its family, as bits. */
enum range_settings {
    READS_BINS = 1, /* and what else torch's histogram has */
    READS_PERCENTILE = 2,
    READS_START_BIN = 4,
    READS_METHOD = 8,
    READS_SCOPE = 16,
    READS_MULTIPLIERS = 32,
    READS_FOUR_OVER_SIX = 64,
    READS_HEADROOM = 128,
    READS_QUANTIZED_BINS = 256,
    READS_LINE = 512
};

enum search_stage { SEARCH_NONE, SEARCH_BATCH, SEARCH_STATE, SEARCH_OPTIMAL };

struct range_ops {
    int reads; /* enum range_settings */

    /* ---- All searches */
    enum search_stage stage;
    size_t (*steps)(const struct range_params *params); /* candidates of each qparam */
    int32_t min_step;                                   /* the smallest best_step; -1: no candidate improved */

    /* ---- SEARCH_OPTIMAL */
    bool importance; /* columns are weighted by activations */
    bool hessian;    /* errors of columns go together as the activations do; needs importance, too */

    /* ---- SEARCH_STATE */
    bool reference;   /* accepts a struct search_reference */
    bool one_amax;    /* its amax is that of the tensor */
    bool sums;        /* keeps the error of every candidate, summed over all batches */
    bool counts_mode; /* adds its result to state->mode_count */
    /* Fails if the search has no answer for a batch, whose ranges start at `min`. `name` is the observer's, for
     * messages. */
    int (*check)(const struct search_batch *batch, const struct search_state *state, const void *min, const char *name,
                 qobs_error *error);
    size_t (*workspace)(const struct range_params *params, const qobs_plan *plan); /* in doubles */
    void (*search)(const struct search_batch *batch, const struct search_state *state);
    /* Merging of observers: before and after the ranges and sums of others are merged into the state. */
    void (*before_merge)(const struct search_state *state);
    void (*after_merge)(const struct search_state *state);
    /* Results. scale: changes the scales of the formula, which are NULL if only the error is wanted. init_scale: the
     * scales before the search. amax: the magnitudes. */
    int (*scale)(const struct search_state *state, qobs_dtype dtype, void *scale, qobs_error *error);
    void (*init_scale)(const struct search_state *state, float *scale);
    void (*amax)(const struct search_state *state, float *amax);

    /* ---- Histograms */
    /* The range of every qparam. It fails for settings that upstream refuses only here. */
    int (*find)(const struct runtime *runtime, const struct range_params *params, const struct formula *formula,
                const struct histogram *histogram, float *min, float *max, qobs_error *error);
    bool found_min_max;   /* the result is a minimum and a maximum */
    bool found_amax;      /* the result is an amax, which find writes to max */
    bool found_threshold; /* the result is a range beside that of the data */
    bool within_data;     /* it is cut to the range of the data */
    bool found_moments;   /* the result is mean and standard deviation, which find writes to min and max */
    bool zero_min;        /* upstream's minimum is the integer 0 */
    bool never_found;     /* upstream has no range: the formula gets that of an observer without data */
    bool empty_is_list;   /* the range of an empty histogram is a tensor with a dimension in upstream */
};

extern const struct range_ops qobs_range_measured;        /* as it is */
extern const struct range_ops qobs_range_grid;            /* llm-compressor */
extern const struct range_ops qobs_range_mse_optimal;     /* the least error of all scales and zero points */
extern const struct range_ops qobs_range_imatrix_optimal; /* the same, weighted by activations */
extern const struct range_ops qobs_range_local_hessian;   /* the same for the outputs on activations */
extern const struct range_ops qobs_range_power_of_2;      /* Quark: scales around a power of two */
extern const struct range_ops qobs_range_exponent;        /* Quark: exponents of a block's scale */
extern const struct range_ops qobs_range_multiplier;      /* Model-Optimizer: multipliers of an amax */
extern const struct range_ops qobs_range_e4m3;            /* Model-Optimizer: e4m3 scales */
extern const struct range_ops qobs_range_line;            /* torchao: thresholds in equal steps */
extern const struct range_ops qobs_range_non_linear;      /* torch */
extern const struct range_ops qobs_range_percentile;      /* Quark */
extern const struct range_ops qobs_range_mse;             /* Quark */
extern const struct range_ops qobs_range_never;           /* Quark: a histogram without a range */
extern const struct range_ops qobs_range_ort_percentile, qobs_range_ort_entropy; /* ONNX Runtime */
extern const struct range_ops qobs_range_ort_distribution;
extern const struct range_ops qobs_range_headroom; /* Model-Optimizer: room above the magnitudes of blocks */
extern const struct range_ops qobs_range_amax;     /* Model-Optimizer: by params->bins.method */

struct range_rule {
    const struct range_ops *ops;
    struct range_params params;
};

/* True if candidates are steps, of which a search record tells the best. */
static inline bool qobs_range_has_record(const struct range_ops *ops)
{
    return ops->stage == SEARCH_BATCH || ops->stage == SEARCH_STATE;
}

/* Candidates of each qparam; 0: the rule does not search. */
static inline size_t qobs_range_steps(const struct range_rule *rule)
{
    return rule->ops->steps ? rule->ops->steps(&rule->params) : 0;
}
