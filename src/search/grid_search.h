/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* llm-compressor's mse observers (_grid_search_mse and _grid_search): every range shrinks in steps, and the step with
 * the smallest error wins. The error of a qparam is sum weight * |q - x|^norm over its elements. q is x after
 * fake-quantize with the scale and zero point of the step's range, in float. There are two differences to
 * fake-quantize: x * (1 / scale) stands for x / scale, and q is not rounded to the dtype of x. Between candidates whose
 * errors differ by less than about 2e-7, the choice may therefore differ from upstream. */
#pragma once

#include "plan/block_reader.h"
#include "search/search_errors.h"

/* The arguments of a grid search. */
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

/* Candidates of the grid search: a range shrunk step by step, and its scale and zero point. They come from a SIMD
 * kernel if one implements the formula, else from the formula itself; both give the same numbers. */

/* Candidate i < steps is step i. Candidate `before` is the range that is searched, for its error; it may be step 0. */
struct shrink {
    const struct runtime *runtime;
    const struct grid_params *params;
    struct formula formula;
    qobs_dtype dtype; /* of ranges */
    bool integers;
    size_t before, candidates;
    bool without_before;           /* the error of `before` is not needed, so kernels skip it if it is no step */
    size_t padded;                 /* candidates rounded up to a multiple of 4 */
    const float *global_scale;     /* NULL: there is none */
    qobs_search_shrink_fn *kernel; /* NULL: none implements the formula */
    struct shrink_rule how;
    float *p;             /* [padded] factor of each step, 1 for other candidates; then [padded] 1 / p */
    float *global_scales; /* [candidates] with each_global_scale, else NULL */
};

/* Ranges of up to QOBS_SEARCH_LANES qparams, as numbers of shrink's dtype, and the exponent their elements are
 * multiplied by. */
struct range_batch {
    size_t n;
    double min[QOBS_SEARCH_LANES], max[QOBS_SEARCH_LANES];
    int prescale_exp[QOBS_SEARCH_LANES];
    bool finite[QOBS_SEARCH_LANES]; /* false: the lane has arbitrary finite candidates */
};

/* Their candidates for prescaled elements, [padded][QOBS_SEARCH_LANES], as kernels read them. */
struct shrunk {
    float *scale, *inverse, *offset;
    bool finite[QOBS_SEARCH_LANES];                        /* true: all candidates of the lane are finite */
    unsigned char *min, *max, *raw_scale, *raw_zero_point; /* [padded], input and output of the formula */
};

/* The number of candidates; the range before the search is one more if it is no step. */
size_t qobs_shrink_candidates(const struct grid_params *params);

/* search->min and max are read with each_global_scale only. */
int qobs_shrink_begin(struct shrink *s, const struct grid_search *g, qobs_error *error);
void qobs_shrink_release(struct shrink *shrink);

/* Bytes of memory, aligned to 64, for the arrays of a struct shrunk, and their places in it. */
size_t qobs_shrunk_size(const struct shrink *shrink);
void qobs_shrunk_place(const struct shrink *shrink, unsigned char *memory, struct shrunk *shrunk);

void qobs_shrink(const struct shrink *shrink, const struct range_batch *ranges, struct shrunk *to);

/* A bound (minimum or maximum) at a step; a step below 0 stands for the expanded range. */
double qobs_shrink_bound(const struct shrink *shrink, int step, double bound);

/* The same for n bounds of shrink's dtype, each at its own step. */
void qobs_shrink_bounds(const struct shrink *shrink, const int32_t *step, size_t n, const unsigned char *from,
                        unsigned char *to);

/* A table of errors in upstream's own arithmetic (struct native_rows), for qparams that have the same candidates. BF16
 * has so few numbers that a table costs less than the errors of some thousand elements. */

/* The largest number of candidates, and of floats in a row. */
enum { NATIVE_ROWS_CANDIDATES = 128 };

/* How much a table may hold, and its memory. */
struct row_capacity {
    size_t rows;   /* a multiple of 128; 0: the search has no tables */
    size_t stride; /* floats of a row */
    float *memory; /* aligned to 64 bytes */
};

/* The capacity for tables of a search with that many candidates, without memory. min_p: the smallest factor of a
 * range. Integers without zero points and a norm with a table have tables, others have none. */
struct row_capacity qobs_native_rows_capacity(const struct native_search *native, const struct quantizer *quantizer,
                                              size_t candidates, float min_p);

/* Fills a table for elements up to the BF16 number with the bits `amax`. Returns false if it does not fit, or if a
 * scale is so small or large that quotients may overflow. */
bool qobs_native_rows_fill(const struct kernel_table *kernels, const struct native_search *native,
                           const struct quantizer *quantizer, const struct search_candidates *candidates, size_t count,
                           uint32_t amax, const struct row_capacity *capacity, struct native_rows *rows);

/* Input and results of the grid search of qparams, and its workspace. */

/* Shared by all threads. */
struct qparam_search {
    const struct kernel_table *kernels;
    const qobs_plan *plan;
    struct element_source source;
    struct quantizer quantizer;
    struct search_norm norm;
    struct shrink shrink;
    struct native_search native;
    bool shifted;                 /* zero points may be other than 0 */
    bool weighted;                /* kernels need weights */
    struct row_capacity capacity; /* for tables of qparams with the same amax; without memory */
    size_t row; /* elements of a qparam in a batch, rounded up to QOBS_SEARCH_LANES; 0: too many for a batch */
    unsigned char *min, *max;           /* ranges to search */
    unsigned char *best_min, *best_max; /* results */
    size_t size;                        /* bytes of an element of the four arrays */
    int32_t *best_step;
    double *error, *error_before; /* may be NULL */
    int32_t stop;                 /* only steps below it count */
};

/* Private to a thread. */
struct qparam_workspace {
    float *x, *weight;              /* elements of a batch, or of a block */
    float *sum;                     /* [candidate][QOBS_SEARCH_LANES], or [candidate] */
    size_t most;                    /* the largest number of elements of a qparam in the batch */
    double *total;                  /* [candidate], of one qparam */
    float *rows;                    /* memory of a table */
    struct prefetch_ahead prefetch; /* memory to prefetch during the search */
    struct range_batch ranges;
    struct shrunk shrunk;
};

/* Bytes of a workspace's arrays, at any address, and their places in it. */
size_t qobs_qparam_workspace_size(const struct qparam_search *search);
void qobs_qparam_workspace_place(const struct qparam_search *search, unsigned char *memory,
                                 struct qparam_workspace *workspace);

/* The grid search of some qparams by one thread: the errors of all their candidates, and the best step of each. */

/* Searches n <= QOBS_SEARCH_LANES qparams from `first` on. `e` has the elements of the first one, afterwards those of
 * the last one. Writes best_step, range and errors, and sets a bit in `improved` for each step at which one of the
 * qparams improved. */
void qobs_search_qparams(struct qparam_search *search, struct qparam_workspace *workspace, struct qparam_block *e,
                         size_t first, size_t n, uint64_t *improved);

/* Writes the ranges of the best steps of n qparams from `first` on. */
void qobs_store_ranges(struct qparam_search *search, size_t first, size_t n);

/* For a qparam that is searched in blocks: writes the sums of all candidates over elements first to end to
 * workspace->total. Returns false, without sums, if the range is not finite. */
bool qobs_sum_block(struct qparam_search *search, struct qparam_workspace *workspace, struct qparam_block *e,
                    size_t qparam, int64_t first, int64_t end);

/* Chooses the best step by sums over all elements, and writes what qobs_search_qparams writes. */
void qobs_choose_step(struct qparam_search *search, size_t qparam, double *total, uint64_t *improved);

/* Qparams in order of the largest magnitude of their ranges. */

/* The amax of ranges that are not finite. */
enum { AMAX_NONFINITE = 0x7f80 };

/* The bits of the larger magnitude of a BF16 range, or AMAX_NONFINITE. */
uint32_t qobs_amax_bits(const unsigned char *min, const unsigned char *max, size_t qparam);

/* Memory for the order of n qparams, in elements; n is below 2^32. */
static inline size_t amax_order_size(size_t n) { return n + AMAX_NONFINITE + 1; }

/* Writes qparams 0 to n - 1 to `order`, those with the same amax one after the other. Returns how many of them share
 * their amax with at least `enough` qparams. */
size_t qobs_amax_order(const unsigned char *min, const unsigned char *max, size_t n, size_t enough, uint32_t *order);

/* How many of n qparams have that amax, after qobs_amax_order. */
size_t qobs_amax_count(const uint32_t *order, size_t n, uint32_t amax);

/* The grid search of qparams with the same amax in upstream's own arithmetic, by one thread. */

/* Qparams that have to share an amax before a table is worth it, if each has that many elements. */
size_t qobs_enough_for_table(const struct qparam_search *search, size_t elements);

/* Writes what qobs_search_qparams writes, but for ranges, for n qparams of the same amax in any order. by_table: enough
 * share it. */
void qobs_search_same_amax(struct qparam_search *search, struct qparam_workspace *workspace, const uint32_t *qparam,
                           size_t n, bool by_table, uint64_t *improved);

/* Writes the range of the best step of every qparam, or the expanded range if no step improved on the largest finite
 * float. F64 is searched as float. Elements that are not finite count as 0 with NONFINITE_IGNORE; otherwise their
 * qparams never improve. With find_ranges and NONFINITE_REFUSE such elements make the search fail.
 * QOBS_ERROR_UNSUPPORTED: the norm is not 1, 2, 2.4 or 3 and this build is without SLEEF. */
int qobs_grid_search(const struct grid_search *g, qobs_error *error);
