/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Column weights of the grid search, from importance. Reproduces the checks of llm-compressor's imatrix_mse observer. */
#ifndef QOBS_SEARCH_BATCH_H
#define QOBS_SEARCH_BATCH_H

#include "base/tensor.h"
#include "range/range_rule.h"
#include "range/search_record.h"

/* Allocates the weights of the columns of value, `columns` floats that the caller releases. *weights is NULL if the rule does not
 * weigh columns or the importance is unusable. In the second case record->fault has the reason, or, with params->strict, the
 * call fails. */
int qobs_search_weights(const struct runtime *runtime, const struct grid_params *params, const struct view *value,
                        const struct importance *importance, struct search_record *record, float **weights, int64_t *columns,
                        qobs_error *error);

#endif
