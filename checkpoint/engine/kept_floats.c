/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes of e4m3 keep their numbers under scales of any dtype in a scheme whose units lie within the blocks of the
 * source. Such scales stay as they are: F32 in F32, also where a scheme's own scales have the dtype of the weight. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_steps.h"
#include "files/text.h"

/* Returns the columns that share a scale of a scheme. */
static int64_t unit_columns(const struct quant_args *a, const int64_t *shape)
{
    return a->strategy == QUANT_BLOCK ? a->block_structure[1] : a->strategy == QUANT_GROUP ? a->group_size : shape[1];
}

static int64_t unit_rows(const struct quant_args *a, const int64_t *shape)
{
    return a->strategy == QUANT_BLOCK ? a->block_structure[0] : a->strategy == QUANT_TENSOR ? shape[0] : 1;
}

/* Returns true if no unit has numbers of two blocks. */
static bool lies_within(int64_t unit, int64_t block, int64_t size)
{
    return block >= size || (unit < size && block % unit == 0);
}

static bool has_usable_scales(const struct weight *w)
{
    const struct source_codes *c = &w->source_codes;
    OWNED float *scales = malloc((size_t)c->scale_columns * sizeof *scales);
    bool usable = scales && source_codes_borrow(c, NULL) == QOBS_OK;
    const bool borrowed = usable;
    for (int64_t r = 0; usable && r < w->shape[0]; r += c->block[0]) {
        weight_read_scales(w, r, 1, scales, NULL);
        for (int64_t i = 0; usable && i < c->scale_columns; i++)
            usable = isfinite(scales[i]) && scales[i] > 0;
    }
    if (borrowed)
        source_codes_release(c);
    return usable;
}

bool weight_keeps_floats(const struct weight *w, const struct quant_group *g)
{
    const struct source_codes *c = &w->source_codes;
    const struct quant_args *a = &g->weights;
    const char *grid = a->type == QUANT_FLOAT && a->symmetric ? quant_grid(a) : NULL;
    return c->format && c->format->code.floats && c->format->group_size == 0 && !c->zero_points && grid &&
           strcmp(grid, c->format->code.grid) == 0 && quant_format_row(g->format)->group_size == 0 &&
           c->first_row == 0 && c->row_step == 1 && lies_within(unit_rows(a, w->shape), c->block[0], w->shape[0]) &&
           lies_within(unit_columns(a, w->shape), c->block[1], w->shape[1]) && has_usable_scales(w);
}

void keep_floats(struct row_slice *s, const float *scales, float *unit_scales)
{
    const struct weight *w = s->job->weight;
    const struct source_codes *c = &w->source_codes;
    const int64_t columns = unit_columns(job_args(s->job), w->shape), units = s->job->unit_qparams;
    for (int64_t r = 0; r < s->count; r++) {
        const uint64_t blocks = (s->first + r) % c->block[0] == 0 ? (uint64_t)c->scale_columns : 0;
        s->blocks += blocks;
        s->lossless += blocks;
        for (int64_t u = 0; (s->first + r) % s->job->unit_rows == 0 && u < units; u++)
            *unit_scales++ = scales[r * c->scale_columns + u * columns / c->block[1]];
    }
}

int check_floats(const struct row_slice *s, const unsigned char *codes, struct fail *f)
{
    const int64_t columns = s->job->weight->shape[1], count = s->count * columns;
    unsigned found = 0;
    for (int64_t i = 0; i < count; i++)
        found |= (codes[i] & 0x7f) == 0x7f;
    if (!found)
        return QOBS_OK;
    int64_t first = 0;
    while ((codes[first] & 0x7f) != 0x7f)
        first++;
    return report_failure(f, QOBS_ERROR_NONFINITE,
                          "tensor '%.150s': the code of row %" PRId64 " and column %" PRId64 " is NaN",
                          s->job->weight->name, s->first + first / columns, first % columns);
}
