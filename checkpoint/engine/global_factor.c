/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* compressed-tensors divides the scales of NVFP4 by a global scale, Model-Optimizer multiplies them (weight_scale_2).
 * The reciprocal of a float is seldom exact: of the candidates that one counts which gives the same numbers in BF16. */
#include <math.h>

#include "engine/engine_steps.h"
#include "qobs/format.h"

/* Returns true if all scales give the same numbers both ways. */
static bool is_same(const qobs_format *grid, float global_scale, float factor)
{
    const qobs_format *scales = qobs_format_find("fp8_e4m3"), *dtype = qobs_format_find("bf16");
    bool same = true;
    for (uint32_t s = 1; same && s <= qobs_format_encode(scales, (float)qobs_format_max(scales), true); s++)
        for (uint32_t code = 1; same && code < 8; code++) {
            const float scale = qobs_format_decode(scales, s), number = qobs_format_decode(grid, code);
            same = qobs_format_round(dtype, number * (scale / global_scale), false) ==
                   qobs_format_round(dtype, number * (scale * factor), false);
        }
    return same;
}

/* Returns the factor that a source brings with it; 0: it has none. */
static float own_factor(const struct weight_job *job)
{
    const struct source_codes *c = &job->weight->source_codes;
    return job->cast && c->format->global.name && !c->format->global.divides ? c->global_scale : 0;
}

/* The first candidate is better if it has the global scale for its reciprocal: then the way back gives the same bytes.
 */
float job_global_factor(const struct weight_job *job, float global_scale)
{
    const struct quant_format_row *row = quant_format_row(job->group->quant->stored);
    if (!row->global.name || row->global.divides)
        return 0;
    if (own_factor(job) > 0)
        return own_factor(job);
    const qobs_format *grid = qobs_format_find(row->code.grid);
    const float inverse = 1 / global_scale, near[] = {inverse, nextafterf(inverse, 0), nextafterf(inverse, INFINITY)};
    for (int exact = 1; exact >= 0; exact--)
        for (size_t i = 0; i < sizeof near / sizeof *near; i++)
            if ((!exact || 1 / near[i] == global_scale) && is_same(grid, global_scale, near[i]))
                return near[i];
    return inverse;
}
