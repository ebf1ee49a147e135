/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Results of an observer: which there are (known.c), their dtype and shape (describe.c), scale and zero point (qparams.c) and
 * reading them (read.c). */
#ifndef QOBS_RESULT_H
#define QOBS_RESULT_H

#include "observer/observer.h"

enum result {
    RESULT_MIN,
    RESULT_MAX,
    RESULT_AMAX,
    RESULT_INIT_SCALE,
    RESULT_GLOBAL_MIN,
    RESULT_GLOBAL_MAX,
    RESULT_GLOBAL_SCALE,
    RESULT_SCALE,
    RESULT_ZERO_POINT,
    RESULT_TOKENS,
    RESULT_BEST_STEP,
    RESULT_ERRORS,
    RESULT_ERRORS_BEFORE,
    RESULT_STOP_STEP,
    RESULT_IMATRIX_SUM,
    RESULT_IMATRIX_COUNT,
    RESULT_HISTOGRAM,
    RESULT_CALIB_HIST,
    RESULT_CALIB_BIN_EDGES,
    RESULT_NEW_MIN,
    RESULT_NEW_MAX,
    RESULTS
};

/* A result, and which part of it where upstream keeps the ranges in parts. */
struct item {
    enum result which;
    size_t part;
};

/* In how many parts upstream keeps it; how many of these there are now. */
size_t qobs_result_parts(const qobs_observer *observer, enum result which);
size_t qobs_result_count_of(const qobs_observer *observer, enum result which);

/* Under upstream's names. */
void qobs_result_name(const qobs_observer *observer, struct item item, char name[QOBS_RESULT_NAME]);

/* The result of that name, if it is there. */
int qobs_result_find_item(const qobs_observer *observer, const char *name, struct item *item, qobs_error *error);

/* Fills all but struct_size. */
void qobs_result_describe(const qobs_observer *observer, struct item item, qobs_result *result);

/* Of a layout whose ranges are kept in blocks or groups: the blocks beside one another. */
size_t qobs_blocks_across(const qobs_observer *observer);

/* Is a range looked for in bins of the same width? */
bool qobs_finds_range(const qobs_observer *observer);

/* Upstream's percentile of an empty histogram is a list of one range. */
bool qobs_found_is_list(const qobs_observer *observer);

/* Upstream's minimum is an integer 0 where only the maximum is looked for. */
bool qobs_min_is_integer(const qobs_observer *observer);

/* Made of the range of the whole, where upstream averages that on its own. Is what it is made of there? */
float qobs_read_global_scale(const qobs_observer *observer);
bool qobs_global_scale_is_known(const qobs_observer *observer);

/* Either may be NULL; with both it only says whether there are any. */
int qobs_compute_qparams(const qobs_observer *observer, void *scale, void *zero_point, qobs_error *error);

/* What scale and zero point of such a layout are; `observed`: of ranges, not of upstream's answer without data. */
void qobs_qparam_dtypes(const qobs_observer *observer, const struct layout *layout, bool observed, qobs_dtype *scale,
                        qobs_dtype *zero_point);

/* Is it a buffer of the size that the result of that name has? */
int qobs_check_size(size_t size, const char *name, size_t expected, qobs_error *error);

static inline bool is_llmc(const qobs_observer *o)
{
    return o->config.preset->family == FAMILY_LLMC;
}

#endif
