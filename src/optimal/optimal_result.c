/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "optimal/optimal_result.h"

#include <string.h>

#include "base/error.h"
#include "number/convert.h"

static size_t size_of(size_t qparams, size_t rows)
{
    return qparams * (3 * sizeof(double) + sizeof(float) + sizeof(int32_t)) + rows * 2 * sizeof(double);
}

int qobs_optimal_result_reserve(const struct runtime *runtime, struct optimal_result *result, size_t qparams,
                                size_t rows, qobs_error *error)
{
    double *const memory = qobs_allocate_state(runtime, size_of(qparams, rows));
    if (!memory)
        return qobs_no_memory(error, "search: no memory for %zu bytes of results", size_of(qparams, rows));
    memset(memory, 0, size_of(qparams, rows));
    double *const after = memory + 3 * qparams + 2 * rows;
    *result = (struct optimal_result){.qparams = qparams,
                                      .error = memory,
                                      .minmax_error = memory + qparams,
                                      .energy = memory + 2 * qparams,
                                      .rows = rows,
                                      .row_error = memory + 3 * qparams,
                                      .start_row_error = memory + 3 * qparams + rows,
                                      .scale = (float *)after,
                                      .zero_point = (int32_t *)after + qparams};
    return QOBS_OK;
}

int qobs_optimal_result_copy(const struct runtime *runtime, struct optimal_result *to,
                             const struct optimal_result *from, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_optimal_result_reserve(runtime, to, from->qparams, from->rows, error));
    memcpy(to->error, from->error, size_of(from->qparams, from->rows));
    to->amax = from->amax;
    to->fused = from->fused;
    to->weighted = from->weighted;
    to->fault = from->fault;
    return QOBS_OK;
}

void qobs_optimal_result_release(const struct runtime *runtime, struct optimal_result *result)
{
    qobs_release(runtime, result->error, size_of(result->qparams, result->rows));
    *result = (struct optimal_result){0};
}

void qobs_optimal_result_write(const struct optimal_result *r, qobs_dtype dtype, void *scale, void *zero_point)
{
    const size_t size = qobs_dtype_size(dtype);
    for (size_t q = 0; scale && q < r->qparams; q++)
        qobs_put_element((unsigned char *)scale + q * size, dtype, (double)r->scale[q]);
    for (size_t q = 0; zero_point && q < r->qparams; q++)
        ((int8_t *)zero_point)[q] = (int8_t)r->zero_point[q];
}
