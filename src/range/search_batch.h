/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From a configuration to the search for the range with the least error, and what is remembered of it. Reproduces
 * _grid_search_mse and _grid_search of llm-compressor. */
#ifndef QOBS_SEARCH_BATCH_H
#define QOBS_SEARCH_BATCH_H

#include "plan/plan.h"
#include "measure/importance.h"

/* What the search of one batch found, an entry a qparam. */
struct search_record {
    size_t qparams; /* 0: nothing has been searched */
    int32_t steps, stop_step;
    int32_t *best_step;
    double *error, *error_before;
    bool weighted;               /* by importance */
    enum importance_fault fault; /* why not, where the preset would have */
};

int qobs_search_record_reserve(const struct runtime *runtime, struct search_record *record, size_t qparams,
                               qobs_error *error);
void qobs_search_record_release(const struct runtime *runtime, struct search_record *record);

/* What the caller is told of it: `report` is one, and is filled. */
int qobs_search_report_check(const qobs_search_report *report, qobs_error *error);
void qobs_search_report_of(const struct search_record *record, qobs_search_report *report);

/* Does the preset search? */
bool qobs_searches(const qobs_config *config);

/* And weighs columns by importance? */
bool qobs_weighs_columns(const qobs_config *config);

/* The candidates there are. */
int qobs_search_steps(const qobs_config *config);

/* The weights of the plan's columns, which the caller releases (`columns` of them), or NULL where the preset has none or
 * they cannot be used: then record->fault says why, or, with strict=true, the call fails. */
int qobs_search_weights(const struct runtime *runtime, const qobs_config *config, const qobs_plan *plan,
                        const struct importance *importance, struct search_record *record, float **weights, int64_t *columns,
                        qobs_error *error);

/* min and max hold the range of the batch, unless it is to be found, too, and receive the one with the least error, one for each
 * qparam of the plan, under the global scale given, if any. record has room for them. */
int qobs_search_batch(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_config *config,
                      const qobs_plan *plan, const unsigned char *data, const float *weights, const float *global_scale, bool find,
                      void *min, void *max, struct search_record *record, qobs_error *error);

/* The same for the whole tensor's range, under a global scale that each candidate makes anew. */
int qobs_search_whole(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_config *config,
                      const qobs_tensor *value, void *min, void *max, qobs_error *error);

#endif
