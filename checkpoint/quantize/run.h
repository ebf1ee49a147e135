/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The state of one run of qobs_checkpoint_quantize. Weights are processed in batches of a few hundred MB, a batch in
 * slices of rows that threads take in any order: first the ranges that need complete tensors or sets, then the codes.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "activations/column_importance.h"
#include "files/output_directory.h"
#include "files/safetensors.h"
#include "model/architecture.h"
#include "model/findings.h"
#include "qobs/quantizer.h"
#include "quantize/layout.h"

/* How the weights of one group are quantized. */
struct group_plan {
    const struct quant_group *group;
    struct group_storage storage;
    qobs_config *config;
    qobs_config_needs needs; /* of its observer */
    bool descends;           /* codes are rounded by descent (setting rounding) */
};

/* The lines of a calibration's report about a weight. */
struct job_statistics {
    double min_scale, max_scale;
    qobs_counts counts;
    qobs_search_report search; /* steps is 0 if nothing was searched */
    uint64_t *candidates; /* number of qparams that chose each step, then of those that chose none; NULL: no list */
};

/* A weight in work. Ranges have the dtype of the weight. */
struct weight_job {
    const struct weight *weight;
    size_t index;                  /* of the weight */
    const struct group_plan *plan; /* NULL: it is copied */
    bool range_only;               /* another part writes it; its set needs its range */
    int64_t unit_rows;             /* rows that cannot be separated */
    int64_t unit_qparams;          /* qparams of a unit */
    double min, max;               /* of the complete weight, if strategy and set need it */
    float global_scale;
    void *search_min, *search_max; /* ranges found by search, one for each qparam */
    double set_amax;               /* the largest magnitude of its set, if there is a global scale */
    void *scale, *zero_point;      /* one for each qparam; NULL: those of each slice are found from its rows */
    qobs_dtype scale_dtype, zero_point_dtype;
    qobs_quantizer *quantizer;                /* of its slices, while they are in work */
    double search_error_before, search_error; /* that the optimal observer makes small, before and after */
    double *hessian;                          /* of its inputs, to round codes by; NULL: nearest codes */
    int64_t hessian_shape[3], hessian_count;
    bool descended;                               /* its codes are written */
    double rounding_error_before, rounding_error; /* that the descent makes small, of nearest codes and after */
    uint64_t rounding_changed;                    /* codes */
    bool weighted;                                /* the search weighs columns by importance */
    struct importance_found importance;
    double error, energy;              /* sums of the squares of x - dequantized x, and of x */
    struct job_statistics *statistics; /* NULL: none are wanted */
};

/* What quantizing a weight costs, for a plan. A half: F was estimated from one half of the sequences. */
enum { HALVES = 2 };
struct weight_costs {
    float *importance;   /* mean square of each column of the inputs, while the weight is in work; NULL: none */
    float *row[HALVES];  /* F, the sensitivity of each row; NULL: none */
    int64_t tokens;      /* of the second half of a recording, which measure; 0: none */
    bool known;          /* `loss` is */
    double error;        /* sum of d H d^T over the rows, with what is known of H */
    double loss[HALVES]; /* half of the sum of F d H d^T: the KL divergence for each token, in nats */
};

/* Rows [first, first + count) of a weight, or bytes of a tensor that is copied. */
struct row_slice {
    struct weight_job *job;
    int64_t first, count;
    double min, max, error, energy;
    double loss[HALVES]; /* of a plan; `error` is that of the costs then */
};

/* An output file. */
struct output_file {
    int fd; /* -1: not open */
    bool done;
    size_t batch;          /* the last batch that writes to it; 0: none */
    _Atomic uint64_t left; /* bytes that are not written yet */
};

/* Memory of one thread; grows to what its slices need. */
enum workspace_part { WORK_ROWS, WORK_SCALE, WORK_ZERO_POINT, WORK_CODES, WORK_PACKED, WORK_NUMBERS, WORK_PARTS };
struct workspace {
    void *data[WORK_PARTS];
    size_t size[WORK_PARTS];
    struct workspace *next;
};

/* The work that is done, for progress. */
struct run_meter {
    uint64_t done, total;    /* bytes of the input */
    double searched, search; /* work of searches, done and in all */
    double share;            /* of all work; never less than it was */
    char layer[256];         /* whose rows were the last; "": none */
};

/* A pass over a slice. */
struct quantize_run;
typedef int slice_pass(struct quantize_run *run, struct row_slice *slice, struct workspace *workspace, struct fail *f);

struct quantize_run {
    const qobs_checkpoint_quantize_args *args;
    enum layout_contents contents;
    struct st_writer *scales; /* receives CONTENTS_SCALES in place of `out` */
    struct model model;
    struct architecture_file given;     /* rows of the arguments */
    struct architectures architectures; /* of the model */
    struct quant_config config;
    json_object *existing_config; /* what stays of the model's quantization_config; NULL: none */
    struct weights weights;
    struct mixed_sets mixed_sets;
    bool drafts_left; /* draft layers stay because no activations of them are recorded */
    struct activation_scales activations;
    struct importance_sources importance;
    struct output_layout layout;
    struct output_directory out;
    struct findings findings;          /* of the audit of the output */
    struct group_plan *plans;          /* one for each group */
    struct weight_job *jobs;           /* in the order of work */
    size_t weighted;                   /* weights that have importance, also of other parts */
    struct job_statistics *statistics; /* one for each job; NULL: none are wanted */
    bool planning;                     /* nothing is written; set before run_open */
    struct weight_costs *costs;        /* one for each weight while planning, else NULL */
    size_t job_count;
    struct output_file *files; /* one for each shard */
    size_t *part_of_shard;     /* which part writes it, from 1; NULL: there are no parts */
    struct row_slice *slices;  /* of the pass at hand */
    size_t slice_count;
    slice_pass *pass;

    pthread_mutex_t lock; /* protects the members below */
    struct workspace *free_workspaces;
    struct run_meter meter;
    bool stopped;
    size_t failed; /* index of the first slice that failed; SIZE_MAX: none */
    int status;
    struct fail failure;
};

/* The arguments that calibrate and plan hand to a run as they are. */
#define ARGUMENTS_OF(a)                                                                                                \
    .struct_size = sizeof(qobs_checkpoint_quantize_args), .model = (a)->model, .targets = (a)->targets,                \
    .target_count = (a)->target_count, .ignore = (a)->ignore, .ignore_count = (a)->ignore_count,                       \
    .states = (a)->states, .state_count = (a)->state_count, .importance = (a)->importance,                             \
    .importance_count = (a)->importance_count, .runtime = (a)->runtime, .architectures = (a)->architectures

enum { MAX_PARTS = 100000 }; /* of one model */

/* Checks the arguments, which have the right size, and makes a run. */
int run_create(struct quantize_run **run, const qobs_checkpoint_quantize_args *args, enum layout_contents contents,
               struct fail *f);

/* Fails for actorder with values that runtimes refuse, and notes the others, which change nothing. */
int settings_check_orders(struct quantize_run *run, struct fail *f);

/* Names settings and presets that change nothing in the finished configuration. */
int settings_name_unused(struct quantize_run *run, struct fail *f);

/* Reads the scheme, configuration or recipe of the arguments. */
int run_read_config(struct quantize_run *run, struct fail *f);

/* The steps from the configuration to the layout of the output. requested: as in activation_scales_find. */
int run_open(struct quantize_run *run, const bool *requested, struct fail *f);

/* Adds to run->config.unused the entries of `ignore` and `targets` that match no module, each with what would, and the
 * groups that get nothing because earlier ones have it. After choose_weights, before the ignore list is completed. */
int run_name_unused(struct quantize_run *run, struct fail *f);

/* Names states, recordings and options that the run does not use. After run_prepare. */
int run_name_unused_inputs(struct quantize_run *run, struct fail *f);

/* Fails if an output file would replace a file of the model or of the recordings. */
int run_check_out(const struct quantize_run *run, const char *path, struct fail *f);

/* Decides which codes stay as they are, and fills run->existing_config with the quantization_config that describes
 * them. Else completes run->config: its ignore list then fits the old layers and the new ones. The chosen weights and
 * the ignore list of the new configuration must be there. In the compatible mode all is as upstream has it: codes stay
 * unless they are quantized anew, and one list of groups is put beside the other. */
int existing_config_merge(struct quantize_run *run, struct fail *f);

/* Keeps the scheme of keys and values, and their scales, if every layer is quantized anew: in run->existing_config,
 * which then has no groups. A scheme that compressed-tensors does not have is left out with a note. */
int existing_config_keep_cache(struct quantize_run *run, struct fail *f);

/* Finds the importance of the weights whose range is searched. Fails if importance was given and none has any. */
int run_find_importance(struct quantize_run *run, struct fail *f);

/* Returns true if an observer weighs columns by importance and no weight of the model has any, and says so. */
bool run_lacks_importance(const struct quantize_run *run, char *text, size_t size);

/* Makes the plans and the jobs. */
int run_prepare(struct quantize_run *run, struct fail *f);

/* Reports bytes of activations that are done to the caller, from any thread; `context` is a quantize_run. Returns 1 if
 * the caller wants to stop. */
int run_progress(void *context, uint64_t bytes);

/* Counts the work of all jobs, after run_find_importance. */
void run_count_work(struct quantize_run *run);

/* The work of the search of a job's scales and of the descent over its codes, in bytes of the input that cost the same
 * time. */
struct search_work {
    double scales, codes;
};
struct search_work job_search_work(const struct quantize_run *run, const struct weight_job *job);

/* Reports what is done of a job (NULL: of none) while the lock is held. Returns true if the caller wants to stop. */
bool run_report_progress(struct quantize_run *run, const struct weight_job *job, uint64_t bytes, double search);

/* The same from any thread without the lock. Fails if the caller wants to stop. */
int run_search_progress(struct quantize_run *run, const struct weight_job *job, uint64_t bytes, double search,
                        struct fail *f);

/* Returns the bytes of the input that a slice stands for. */
uint64_t slice_input_bytes(const struct row_slice *slice);

/* Quantizes and copies every tensor to the files of run->out. */
int run_tensors(struct quantize_run *run, struct fail *f);

/* The same for the batch that begins with job *first, which becomes the first one of the next batch. */
int run_next_batch(struct quantize_run *run, size_t *first, struct fail *f);

/* Writes the files besides the shards: copies of every file that is no shard, index or configuration; the index of the
 * tensors; config.json with quantization_config, the last file of an output. */
int side_files_copy(struct quantize_run *run, struct fail *f);
int side_files_write_index(struct quantize_run *run, struct fail *f);
int side_files_write_config(struct quantize_run *run, struct fail *f);

/* Returns the report, to be freed with free(): sizes, layers with their errors, tensors that were left out, warnings,
 * findings of the audit. NULL: no memory. */
char *report_make(const struct quantize_run *run);

void run_free(struct quantize_run *run);

/* ---- Between the files of this folder ---------------------------------------------------------------------------- */

/* A slice as the library sees it. */
struct rows {
    qobs_tensor tensor;
    int64_t shape[2], strides[2];
};

/* Returns `size` bytes of the workspace, aligned for any type. NULL: no memory. */
void *workspace_reserve(struct workspace *w, enum workspace_part part, size_t size);

void workspace_clear(struct workspace *w);

/* Returns the number of qparams of a complete weight. */
size_t job_qparams(const struct weight_job *job);

/* Returns the bytes of the input that a job reads and writes. */
uint64_t job_bytes(const struct weight_job *job);

/* Frees what the searches of a job have found. */
void job_release(struct weight_job *job);

/* Cut a job into slices of the next pass: rows of a matrix, or bytes of a tensor that is copied. */
int cut_rows(struct quantize_run *run, struct weight_job *job, struct fail *f);
int cut_bytes(struct quantize_run *run, struct weight_job *job, struct fail *f);

/* Runs a pass over all slices on the caller's threads. */
int run_pass(struct quantize_run *run, slice_pass *pass, struct fail *f);

/* The passes over slices: the range of rows, their codes, bytes as they are. */
slice_pass slice_range, slice_quantize, slice_copy;

/* The costs of a job in a plan (costs.c): reads what weighs its errors, adds those of a slice whose numbers after
 * quantization are `numbers`, and sums up. */
int costs_open(struct quantize_run *run, const struct weight_job *job, struct fail *f);
int costs_add(const struct quantize_run *run, struct row_slice *slice, const struct rows *rows, const void *numbers,
              struct workspace *workspace, struct fail *f);
void costs_close(struct quantize_run *run, const struct weight_job *job);

/* Returns true if the search alone measures the error of a weight, under its Hessian. */
bool is_cost_of_search(const struct quantize_run *run, const struct weight_job *job);

/* Opens the files of a job's tensors and writes their headers, and closes those that are complete. */
int open_files(struct quantize_run *run, const struct weight_job *job, struct fail *f);
int close_files(struct quantize_run *run, struct fail *f);

/* Counts the files that a job writes and the batch does not have open yet. With `mark` they belong to the batch. */
size_t count_new_files(struct quantize_run *run, const struct weight_job *job, size_t batch, bool mark);

/* Writes the tensors of a job that are one number or two, and the scales of activations in the shard of the weight. */
int write_small(struct quantize_run *run, const struct weight_job *job, struct fail *f);

/* Searches the ranges of a complete weight with all threads. */
int job_search(struct quantize_run *run, struct weight_job *job, struct fail *f);

/* Finds scales and zero points of a complete weight with all threads, once its set has a global scale. The second is
 * its part for a weight as the library sees it. */
int job_optimal(struct quantize_run *run, struct weight_job *job, struct fail *f);
int job_find_scales(struct quantize_run *run, struct weight_job *job, const qobs_tensor *weight, struct fail *f);

/* Makes the quantizer of the slices, once the set has its ranges and its global scale. */
int job_prepare(const struct quantize_run *run, struct weight_job *job, struct fail *f);

/* Writes a part of a tensor of the output. */
int run_put(struct quantize_run *run, const struct weight_job *job, enum output_part part, uint64_t offset,
            const void *data, size_t bytes, struct fail *f);

/* Returns the status of a library error, with the name of the weight before its message. */
int weight_failure(const struct weight_job *job, const qobs_error *error, struct fail *f);
