/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A sink takes what the engine makes of weights: it says what it wants of each, and its functions receive that. The
 * engine knows nothing else of it. A new kind of output is a new sink. */
#pragma once

#include "activations/column_importance.h"
#include "model/weights.h"
#include "qobs/quantizer.h"
#include "schemes/quant_config.h"

/* ---- Weights in work --------------------------------------------------------------------------------------------- */

/* How the weights of one group are quantized. */
struct weight_group {
    const struct quant_group *quant;
    const struct quant_format_row *format;
    qobs_config *config;
    qobs_config_needs needs; /* of its observer */
};

/* The range of a weight, in its dtype. */
struct job_range {
    double min, max;    /* of the complete weight, if strategy and set need it; of a cast, of its scales */
    void *lows, *highs; /* found by search, one for each qparam; NULL: no search */
    double set_amax;    /* the largest magnitude of its set, if there is a global scale */
    float global_scale;
    float global_factor; /* in its place where the format stored multiplies; 0: it divides, too */
};

/* Scales and zero points of the complete weight; NULL: those of each slice are found from its rows. */
struct job_qparams {
    void *scale, *zero_point;
    qobs_dtype scale_dtype, zero_point_dtype;
};

/* The Hessian of the inputs, by which codes are rounded. */
struct job_hessian {
    double *sum; /* NULL: nearest codes */
    int64_t shape[3], count;
};

/* Searches and codes of a weight leave these behind. */
enum { SINK_SUMS = 3 };
struct job_result {
    double search_error_before, search_error;     /* that the optimal observer makes small, before and after */
    bool rounded;                                 /* codes by descent; they are out */
    double rounding_error_before, rounding_error; /* that the descent makes small, of nearest codes and after */
    uint64_t rounding_changed;                    /* codes */
    double error, energy;                         /* of codes: sums of squares of x - dequantized x, and of x */
    uint64_t blocks, lossless; /* of a cast: scales of the source, and those under which all numbers stay */
    double sums[SINK_SUMS];    /* that the sink adds up over slices, in their order */
};

/* The sink moves words: move() in place of codes(); and with them scales and zero points, in place of scales(). */
struct job_moves {
    bool words, qparams;
};

struct weight_job {
    const struct weight *weight;
    size_t index;                     /* of the weight */
    const struct weight_group *group; /* NULL: the tensor stays as it is */
    unsigned wants;                   /* of the sink, see below; 0: its set alone needs its range */
    int64_t unit_rows;                /* rows that cannot be separated */
    int64_t unit_qparams;             /* qparams of a unit */
    bool cast;                        /* it is in codes that the scheme holds (casts.c) */
    struct job_moves moved;           /* from the source, by the sink */
    bool borrowed;                    /* its bytes are safe to read in place (weight_borrow) */
    bool weighted;                    /* the search weighs columns by importance */
    struct importance_found importance;
    struct job_range range;
    struct job_qparams qparams;
    struct job_hessian hessian;
    qobs_quantizer *quantizer; /* of its slices, while they are in work */
    struct job_result result;
};

/* Rows [first, first + count) of a weight, or bytes of a tensor that is copied. */
struct row_slice {
    struct weight_job *job;
    int64_t first, count;
    double min, max, error, energy, sums[SINK_SUMS];
    uint64_t blocks, lossless;
};

/* The rows of a slice as the library sees them. */
struct rows {
    qobs_tensor tensor;
    int64_t shape[2], strides[2];
};

/* The qparams of a slice, `first` being the first among those of the weight. */
struct slice_qparams {
    int64_t first, count;
    void *scale, *zero_point;
    qobs_dtype scale_dtype, zero_point_dtype;
    bool has_zero_point;
};

/* Memory of one thread, which grows to what its slices need. WORK_SINK and WORK_PACKED are free for sinks. */
enum workspace_part { WORK_ROWS, WORK_SCALE, WORK_ZERO_POINT, WORK_CODES, WORK_PACKED, WORK_SINK, WORK_PARTS };
struct workspace {
    void *data[WORK_PARTS];
    size_t size[WORK_PARTS];
    struct workspace *next;
};

/* Returns `size` bytes of the workspace, aligned for any type. NULL: no memory. */
void *workspace_reserve(struct workspace *w, enum workspace_part part, size_t size);

/* Packs codes or zero points of a slice along a dimension into `size` bytes of words, in the workspace. */
int slice_pack(const struct row_slice *s, struct workspace *work, int dim, int64_t columns, void *codes, size_t size,
               void **packed, struct fail *f);

/* Returns the members of its scheme that say how a job is quantized. */
const struct quant_args *job_args(const struct weight_job *job);

/* ---- Sinks ------------------------------------------------------------------------------------------------------- */

enum sink_wants {
    WANTS_SCALES = 1,       /* scales() */
    WANTS_CODES = 2,        /* codes(); their error is in the result */
    WANTS_NUMBERS = 4,      /* numbers(), in place of codes */
    WANTS_COUNTS = 8,       /* counts() and searched() */
    WANTS_RESULT = 16,      /* the result of searches and of codes by descent */
    WANTS_COPY = 32,        /* copy(): the tensor as it is */
    WANTS_ROWS = 64,        /* rows(): the numbers, and nothing is made of them; of weights without a group */
    WANTS_FIRST_HALF = 128, /* searches see the first half of the recorded tokens; the sink measures with the other */
    WANTS_MANY_ROWS = 256,  /* with WANTS_ROWS: some hundred rows at a time, which share what their matrix needs */
};

/* Functions return a status. Functions of slices are called from any thread, the others from one. Functions for what a
 * sink never wants may be NULL, and so may begin and done. */
struct sink;
struct sink_functions {
    /* Says what is wanted of a weight whose group and importance are known. *wants is 0 before. */
    int (*wants)(struct sink *sink, const struct weight_job *job, unsigned *wants, struct fail *f);

    /* Before anything is known of a job, and when all is out. */
    int (*begin)(struct sink *sink, const struct weight_job *job, struct fail *f);
    int (*done)(struct sink *sink, struct weight_job *job, struct fail *f);

    /* A search is done. steps: the best one of `count` qparams, which follow report->steps, -1: none; NULL: no list. */
    int (*searched)(struct sink *sink, const struct weight_job *job, const qobs_search_report *report,
                    const int32_t *steps, size_t count, struct fail *f);

    /* Results of slices: NaN and infinities; qparams; codes, packed as the format has them, `bytes` of them from offset
     * on; in their place, if the sink has the function, the share of a source's words that a slice stands for, which
     * the sink reads itself (weight_job.moved); dequantized numbers in C order; a tensor that stays, from offset on;
     * rows as they are read. */
    int (*counts)(struct sink *sink, const struct weight_job *job, const qobs_counts *counts, struct fail *f);
    int (*scales)(struct sink *sink, const struct row_slice *slice, const struct slice_qparams *qparams,
                  struct workspace *work, struct fail *f);
    int (*codes)(struct sink *sink, const struct weight_job *job, uint64_t offset, const void *codes, size_t bytes,
                 struct fail *f);
    int (*move)(struct sink *sink, const struct row_slice *slice, struct workspace *work, struct fail *f);
    int (*numbers)(struct sink *sink, struct row_slice *slice, const struct rows *rows, const void *numbers,
                   struct workspace *work, struct fail *f);
    int (*copy)(struct sink *sink, const struct weight_job *job, uint64_t offset, const void *data, size_t bytes,
                struct fail *f);
    int (*rows)(struct sink *sink, struct row_slice *slice, const struct rows *rows, struct workspace *work,
                struct fail *f);
};

/* The first member of what a sink knows. */
struct sink {
    const struct sink_functions *functions;
};
