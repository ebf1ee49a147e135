/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A range rule turns what was measured into the range of every qparam. There are five kinds, of which struct range_ops
 * points to one; a rule without any takes the measured range as it is:
 *   batch      the grid search (grid_search.h) replaces the range of a batch before it is accumulated
 *   state      candidates around the ranges of all batches; their errors are those of the batch just accumulated
 *   optimal    scale and zero point with the smallest error replace those of the formula (optimal/optimal.h)
 *   histogram  the range comes from a histogram (histogram/from_histogram.h)
 * Members that are NULL or false do not apply. An observer calls check and allocates the workspace before it changes
 * its state, because both may fail. It calls search after it has accumulated the batch. */
#pragma once

#include "stages/range_params.h"

struct gram;          /* measure/gram.h */
struct importance;    /* measure/importance.h */
struct kernel_table;  /* kernels/kernels.h */
struct mode_count;    /* measure/accumulators.h */
struct search_record; /* search/search_record.h */

/* Set by the caller before the first batch (Model-Optimizer). */
struct search_reference {
    struct shape shape; /* of amax */
    qobs_dtype dtype;   /* of amax, or of the first batch; multiplied amax is rounded to it */
    float *amax;        /* one for each qparam, or one for the tensor; NULL: not set */
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
    double *sums;                  /* [qparams][steps], if the rule has sums */
    struct mode_count *mode_count; /* has capacity for one more candidate, if modes are counted */
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
    const struct importance *importance;
    double *workspace; /* of the size that the rule asks for */
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

/* Candidates of each qparam. */
typedef size_t range_steps(const struct range_params *params);

struct batch_range {
    range_steps *steps;
};

enum amax_reference {
    REFERENCE_NONE,
    REFERENCE_OF_QPARAMS, /* accepts a struct search_reference */
    REFERENCE_OF_TENSOR   /* the same with one amax, that of the tensor */
};

struct state_range {
    range_steps *steps;
    int32_t min_step; /* the smallest best_step; -1: no candidate improved */
    enum amax_reference reference;
    bool sums; /* keeps the error of every candidate, summed over all batches */
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
};

/* How errors are weighted, and the search (optimal/optimal.h). */
struct optimal_search;
struct optimal_result;
struct optimal_weights {
    bool importance; /* columns are weighted by activations */
    bool hessian;    /* errors of columns go together as the activations do; needs importance, too */
    int (*search)(const struct optimal_search *search, struct optimal_result *result, qobs_error *error);
};

/* The result of a histogram's rule. */
enum found_range {
    FOUND_BESIDE_DATA, /* a range beside that of the data */
    FOUND_WITHIN_DATA, /* the same, cut to that of the data */
    FOUND_MIN_MAX,     /* a minimum and a maximum */
    FOUND_AMAX,        /* find writes it to max */
    FOUND_MOMENTS      /* mean and standard deviation, which find writes to min and max */
};

struct range_request; /* histogram/from_histogram.h */
struct histogram_range {
    /* The range of every qparam. It fails for settings that upstream refuses only here. NULL: upstream has no range,
     * and the formula gets that of an observer without data. */
    int (*find)(const struct range_request *request, float *min, float *max, qobs_error *error);
    enum found_range found;
    bool zero_min;      /* upstream's minimum is the integer 0 */
    bool empty_is_list; /* the range of an empty histogram is a tensor with a dimension in upstream */
};

struct range_ops {
    int reads; /* enum range_settings */
    const struct batch_range *batch;
    const struct state_range *state;
    const struct optimal_weights *optimal;
    const struct histogram_range *histogram;
};

extern const struct range_ops qobs_range_measured;         /* as it is */
extern const struct range_ops qobs_range_grid;             /* llm-compressor */
extern const struct range_ops qobs_range_mse_optimal;      /* the least error of all scales and zero points */
extern const struct range_ops qobs_range_imatrix_optimal;  /* the same, weighted by activations */
extern const struct range_ops qobs_range_local_hessian;    /* the same for the outputs on activations */
extern const struct range_ops qobs_range_scale_estimation; /* NNCF: weighted means of quotients */
extern const struct range_ops qobs_range_power_of_2;       /* Quark: scales around a power of two */
extern const struct range_ops qobs_range_exponent;         /* Quark: exponents of a block's scale */
extern const struct range_ops qobs_range_multiplier;       /* Model-Optimizer: multipliers of an amax */
extern const struct range_ops qobs_range_e4m3;             /* Model-Optimizer: e4m3 scales */
extern const struct range_ops qobs_range_line;             /* torchao: thresholds in equal steps */
extern const struct range_ops qobs_range_octav;            /* ai-edge-quantizer: an iterated clipping scalar */
extern const struct range_ops qobs_range_oscar;            /* ai-edge-quantizer: the least expected error */
extern const struct range_ops qobs_range_non_linear;       /* torch */
extern const struct range_ops qobs_range_percentile;       /* Quark */
extern const struct range_ops qobs_range_mse;              /* Quark */
extern const struct range_ops qobs_range_never;            /* Quark: a histogram without a range */
extern const struct range_ops qobs_range_ort_percentile, qobs_range_ort_entropy; /* ONNX Runtime */
extern const struct range_ops qobs_range_ort_distribution;
extern const struct range_ops qobs_range_headroom; /* Model-Optimizer: room above the magnitudes of blocks */
extern const struct range_ops qobs_range_amax;     /* Model-Optimizer: by params->bins.method */

struct range_rule {
    const struct range_ops *ops;
    struct range_params params;
};

/* True if candidates are steps, of which a search record tells the best. */
static inline bool qobs_range_has_record(const struct range_ops *ops) { return ops->batch || ops->state; }

/* True if a search needs the elements of a batch. */
static inline bool qobs_range_searches(const struct range_ops *ops)
{
    return qobs_range_has_record(ops) || ops->optimal;
}

static inline bool qobs_range_has_sums(const struct range_ops *ops) { return ops->state && ops->state->sums; }

static inline bool qobs_range_has_reference(const struct range_ops *ops)
{
    return ops->state && ops->state->reference != REFERENCE_NONE;
}

/* True if the range that a histogram gives is of that form. */
static inline bool qobs_range_finds(const struct range_ops *ops, enum found_range found)
{
    return ops->histogram && ops->histogram->find && ops->histogram->found == found;
}

/* Candidates of each qparam; 0: the rule has no steps. */
static inline size_t qobs_range_steps(const struct range_rule *rule)
{
    range_steps *const steps = rule->ops->batch   ? rule->ops->batch->steps
                               : rule->ops->state ? rule->ops->state->steps
                                                  : NULL;
    return steps ? steps(&rule->params) : 0;
}
