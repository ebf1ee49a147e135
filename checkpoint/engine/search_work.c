/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The work of searches beside the bytes of the input. */
#include <math.h>
#include <stdlib.h>

#include "engine/engine_steps.h"

/* Figures of one thread of a server CPU with AVX-512 or AVX2, which takes about a nanosecond to quantize a byte; see
 * "Data and cost" and "Rounding" in docs/choosing.md. */
#define BYTES_OF_SEARCH 15.0  /* an element whose scale is searched */
#define BYTES_OF_PRODUCT 0.6  /* an element and a column of its block of the Hessian, in that search */
#define BYTES_OF_DESCENT 0.02 /* the same, in a pass over codes */
#define BYTES_OF_GRAM 0.03    /* a product of two columns of a token */

/* Returns a setting that is a number; `fallback` if the preset has none of that name. */
static double setting_of(const qobs_config *config, const char *key, double fallback)
{
    char text[64];
    return qobs_config_get(config, key, text, sizeof text, NULL) == QOBS_OK ? strtod(text, NULL) : fallback;
}

/* Returns the columns of a block of the Hessian that a search weighs products with; 0: none. */
static double block_of(const struct weight_job *job)
{
    const struct quant_args *a = job_args(job);
    const double columns = (double)job->weight->shape[1],
                 given = setting_of(job->group->config, "hessian_block_size", 0);
    if (!job->group->needs.hessian || !job->weighted)
        return 0;
    return fmin(columns, given > 0 ? given : a->group_size > 0 ? (double)a->group_size : columns);
}

static double tokens_of(const struct engine *e, const struct weight_job *job)
{
    const struct tensor_ref *recorded = job->importance.recorded;
    const double row = recorded ? (double)job->weight->shape[1] * (double)dtype_size(recorded->dtype) : 0;
    return row > 0 ? (double)recorded->bytes / row * (double)e->in.importance->recordings.count : 0;
}

struct search_work job_search_work(const struct engine *e, const struct weight_job *job)
{
    if (!job->group || !job->group->needs.searches_scale || !job->wants)
        return (struct search_work){0};
    const double columns = (double)job->weight->shape[1], elements = (double)job->weight->shape[0] * columns;
    const double block = block_of(job);
    const double passes = job_rounds(job) ? setting_of(job->group->config, "rounding_passes", 1) : 0;
    return (struct search_work){.scales = elements * (BYTES_OF_SEARCH + block * BYTES_OF_PRODUCT) +
                                          tokens_of(e, job) * columns * block * BYTES_OF_GRAM,
                                .codes = elements * block * passes * BYTES_OF_DESCENT};
}

int engine_progress(struct engine *e, const struct weight_job *job, uint64_t bytes, double search, struct fail *f)
{
    return meter_add(e->meter, job->weight, bytes, search)
               ? report_failure(f, QOBS_ERROR_CANCELLED, "stopped by the caller")
               : QOBS_OK;
}
