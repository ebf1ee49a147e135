/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The result of a search of one batch: the chosen candidate of every qparam and its error. */
#pragma once

#include "measure/importance.h"

struct search_record {
    size_t qparams;              /* 0: nothing has been searched */
    int32_t steps, stop_step;    /* candidates, and how many of them were tried until no qparam improved */
    int32_t *best_step;          /* [qparams]; -1: no candidate improved on the largest finite float */
    double *error;               /* [qparams], of the chosen range; without one, of the range before the search */
    double *error_before;        /* [qparams], of the range before the search */
    bool weighted;               /* errors are weighted by column importance */
    enum importance_fault fault; /* the reason if they are not, though the observer weighs columns */
};

/* Allocates arrays for `qparams` qparams in an empty record. */
int qobs_search_record_reserve(const struct runtime *runtime, struct search_record *record, size_t qparams,
                               qobs_error *error);
void qobs_search_record_release(const struct runtime *runtime, struct search_record *record);

/* The public form: checks struct_size of the caller's report, and fills it with sums over all qparams. */
int qobs_search_report_check(const qobs_search_report *report, qobs_error *error);
void qobs_search_report_of(const struct search_record *record, qobs_search_report *report);

/* Allocates the column weights of the grid search, `columns` floats that the caller releases. *weights is NULL if the
 * rule does not weigh columns or the importance is unusable. In the second case record->fault is the reason, or, with
 * params->strict, the call fails. Reproduces the checks of llm-compressor's imatrix_mse observer. */
int qobs_search_weights(const struct runtime *runtime, const struct range_params *params, const struct view *value,
                        const struct importance *importance, struct search_record *record, float **weights,
                        int64_t *columns, qobs_error *error);
