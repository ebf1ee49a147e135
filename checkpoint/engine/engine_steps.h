/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Functions that the files of this folder give each other; others include engine.h. */
#pragma once

#include "engine/engine.h"

/* Finds the importance of the weights whose range is searched. Fails if importance was given and none has any. */
struct weight_importance {
    bool searched; /* its range is searched, and columns can be weighed */
    bool weighted;
    struct importance_found found;
};
int engine_find_importance(struct engine *engine, struct weight_importance *of_weight, struct fail *f);

/* Fails if a job needs importance and has none. */
int engine_check_importance(const struct engine *engine, struct fail *f);

/* Returns true if the codes of a job are rounded by descent, given a Hessian; what a pass over slices has yet to give;
 * adds what a slice sums up to the result. */
bool job_rounds(const struct weight_job *job);
unsigned job_left(const struct weight_job *job);
void slice_sum(const struct row_slice *slice);

/* Returns true if a job without a group goes by rows: its numbers are wanted, or its bytes do not lie together. */
bool job_takes_rows(const struct weight_job *job);

/* Returns the number of qparams of a complete weight; the bytes of the input that a job, or a slice, stands for. */
size_t job_qparams(const struct weight_job *job);
uint64_t job_bytes(const struct weight_job *job);
uint64_t slice_bytes(const struct row_slice *slice);

/* The work of the search of a job's scales and of the descent over its codes, in bytes of the input that cost the same
 * time. */
struct search_work {
    double scales, codes;
};
struct search_work job_search_work(const struct engine *engine, const struct weight_job *job);

/* Reports what is done of a job from any thread. Fails if the caller wants to stop. */
int engine_progress(struct engine *engine, const struct weight_job *job, uint64_t bytes, double search, struct fail *f);

/* Returns the status of a library error, with the name of the weight before its message. rows_failure: an error states
 * the place of NaN in the rows it was given; this makes the message again for the complete weight. */
int weight_failure(const struct weight_job *job, const qobs_error *error, struct fail *f);
int rows_failure(const struct weight_job *job, qobs_error error, struct fail *f);

int rows_open(struct rows *rows, const struct row_slice *slice, struct workspace *work, struct fail *f);
void workspace_clear(struct workspace *work);

/* Searches the ranges of a complete weight with all threads; gives the sets [jobs, jobs + count) what they share. */
int job_search_range(struct engine *engine, struct weight_job *job, struct fail *f);
int set_share(const struct engine *engine, struct weight_job *jobs, size_t count, struct fail *f);

/* Finds scales and zero points of a complete weight, and codes by descent, once its set has a global scale. */
int job_find_scales(struct engine *engine, struct weight_job *job, const qobs_tensor *weight, struct fail *f);
int job_optimal(struct engine *engine, struct weight_job *job, struct fail *f);

/* Finds the weights that are cast, and returns true if the codes of one are copied. Takes the scales of a cast for the
 * range of a slice, makes the global scale of a set of casts, and writes the scales of a slice, which it counts, and
 * its codes. */
int engine_find_casts(struct engine *engine, struct fail *f);
bool job_keeps_codes(const struct weight_job *job);
int cast_range(struct row_slice *slice, struct workspace *work, struct fail *f);
float cast_global_scale(const struct weight_job *job, double largest);

/* Returns what multiplies scales in the output in place of a global scale that divides them; 0: there is none
 * (global_factor.c). */
float job_global_factor(const struct weight_job *job, float global_scale);

int cast_scales(struct row_slice *slice, const struct slice_qparams *qparams, struct workspace *work, struct fail *f);
int cast_codes(const struct row_slice *slice, unsigned char *codes, struct workspace *work, struct fail *f);

/* Weights of e4m3 that keep codes and scales (kept_floats.c): returns true if a scheme holds one. Writes the scales of
 * the units that begin in a slice, given those of its rows, and counts them. Fails if a code is NaN. */
bool weight_keeps_floats(const struct weight *weight, const struct quant_group *group);
void keep_floats(struct row_slice *slice, const float *scales, float *unit_scales);
int check_floats(const struct row_slice *slice, const unsigned char *codes, struct fail *f);

/* Finds whether the words of a cast in integers, and its qparams, move as they are. Counts the scales of a slice whose
 * qparams moved. */
void job_find_moves(struct weight_job *job);
void cast_moved(struct row_slice *slice);

/* Makes the quantizer of the slices, once the set has its ranges and its global scale. */
int job_prepare(struct weight_job *job, struct fail *f);

/* The passes: the range of rows, their codes, bytes as they are. */
slice_pass slice_range, slice_quantize, slice_copy;
