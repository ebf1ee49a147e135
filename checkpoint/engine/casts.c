/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Weights in codes that their scheme can hold keep them: the scales of the scheme are those of the source. Integers are
 * copied with their zero points, e4m3 with its scales (kept_floats.c). MXFP4 fits NVFP4 as Model-Optimizer 0.48 casts
 * it (mxfp4_to_nvfp4_global_amax and mxfp4_to_nvfp4_per_block_amax): the global scale is a power of two that puts the
 * largest scale at the top of e4m3, and then all within 17 binades are exact. A block that does not fit gets the scale
 * of its largest code, as near as e4m3 has it, and is quantized. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_steps.h"
#include "files/text.h"
#include "model/qparam_facts.h"
#include "model/stored_qparams.h"
#include "qobs/format.h"

/* The exponents of the largest and the smallest power of two of e4m3. */
enum { LARGEST_SCALE = 8, SMALLEST_SCALE = -9 };

static bool is_power_of_two(const struct source_codes *c) { return c->format->scale_dtype == FILE_U8; }

/* Returns true if the scheme has the source's numbers under scales of one byte. */
static bool holds_floats(const struct source_codes *c, const struct quant_group *g)
{
    const char *grid = g->weights.type == QUANT_FLOAT ? quant_grid(&g->weights) : NULL;
    const enum file_dtype scale = quant_format_row(g->format)->scale_dtype;
    return c->format->code.floats && grid && strcmp(grid, c->format->code.grid) == 0 &&
           (scale == FILE_F8_E4M3 || (scale == FILE_U8 && is_power_of_two(c)));
}

/* Returns true if the scheme has floats of more bits, whose scales can be powers of two: each unit of the scheme holds
 * whole blocks of the source. */
static bool widens(const struct source_codes *c, const struct quant_group *g)
{
    const struct quant_args *a = &g->weights;
    const enum file_dtype scale = quant_format_row(g->format)->scale_dtype;
    const int64_t columns = a->strategy == QUANT_BLOCK ? a->block_structure[1] : a->group_size;
    const bool whole = a->strategy == QUANT_CHANNEL ||
                       ((a->strategy == QUANT_BLOCK || a->strategy == QUANT_GROUP) && columns % c->block[1] == 0);
    return c->format->code.floats && is_power_of_two(c) && a->type == QUANT_FLOAT && quant_grid(a) &&
           a->num_bits > c->format->code.bits && whole && (scale == FILE_NONE || scale == FILE_U8);
}

/* Returns true if the scheme can have these scales and zero points. A negative scale, which AutoRound writes, turns its
 * codes around: (q - z) s = (~q - ~z) |s|. */
static bool holds_qparams(const struct weight *w, const struct quant_args *a)
{
    const int half = 1 << (a->num_bits - 1);
    struct qparam_facts facts;
    if (weight_qparam_facts(w, &facts, NULL) != QOBS_OK || !facts.usable)
        return false;
    return a->symmetric ? !facts.negative && facts.low == 0 && facts.high == 0
                        : facts.low >= -half && facts.high < half;
}

/* Returns true if the scheme has the source's integers, and its scales in the dtype of the weight. */
static bool holds_integers(const struct weight *w, const struct quant_args *a)
{
    const struct source_codes *c = &w->source_codes;
    return c->format->code.ints && a->type == QUANT_INT && c->bits <= a->num_bits && c->scales->dtype == w->dtype &&
           !c->group_index && holds_qparams(w, a);
}

/* Returns true if the scheme holds codes of the source in groups that its blocks hold, and nobody asks for an
 * observer. */
static bool is_castable(const struct weight *w, const struct quant_config *config)
{
    const struct source_codes *c = &w->source_codes;
    if (w->reason != WEIGHT_TAKEN || !c->format || config->compat != QOBS_COMPAT_VLLM)
        return false;
    const struct quant_group *g = &config->groups[w->group];
    const struct quant_args *a = &g->weights;
    const int64_t group = a->strategy == QUANT_CHANNEL ? w->shape[1] : a->group_size;
    if (a->observer || json_count(a->observer_kwargs) > 0)
        return false;
    if (weight_keeps_floats(w, g))
        return true;
    if (c->block[0] != 1 || c->block[1] * c->scale_columns != w->shape[1])
        return false;
    return widens(c, g) || (group > 0 && c->block[1] % group == 0 && (holds_floats(c, g) || holds_integers(w, a)));
}

/* Words of 32 bits of both have codes of one number of bits, which no sign of a scale turns around. */
static bool moves_words(const struct weight_job *job, const struct qparam_facts *facts)
{
    const struct source_codes *c = &job->weight->source_codes;
    return quant_format_row(job->group->quant->stored)->word == FILE_I32 && c->bits == job_args(job)->num_bits &&
           job->weight->shape[1] * c->bits % 32 == 0 && !facts->negative;
}

/* Returns true if the format has zero points as they are in whole words, or none. */
static bool moves_zero_points(const struct weight_job *job, const struct qparam_facts *facts)
{
    const struct source_codes *c = &job->weight->source_codes;
    const struct quant_group *g = job->group->quant;
    const struct word_layout *words = quant_format_row(g->stored)->words;
    const bool fills = 32 % c->bits == 0 && job->weight->shape[0] % (32 / c->bits) == 0;
    if (words)
        return fills && (!c->zero_points || zero_points_fill_words(job->weight)) &&
               facts->low + (1 << (c->bits - 1)) >= words->zero_offset;
    return job_args(job)->symmetric ||
           (quant_packs_zero_points(g->stored, &g->weights) && zero_points_fill_words(job->weight));
}

/* Returns true if scales and zero points of the weight's tensors are those of the output, each once. */
static bool moves_qparams(const struct weight_job *job, const struct qparam_facts *facts)
{
    const struct source_codes *c = &job->weight->source_codes;
    const uint64_t count = (uint64_t)(job->weight->shape[0] * c->scale_columns);
    return job->unit_rows == 1 && job->unit_qparams == c->scale_columns && c->scales->dtype == job->weight->dtype &&
           c->scales->end - c->scales->begin == count * dtype_size(c->scales->dtype) && moves_zero_points(job, facts);
}

void job_find_moves(struct weight_job *job)
{
    const struct source_codes *c = &job->weight->source_codes;
    struct qparam_facts facts;
    if (!job->cast || !c->format->code.ints || c->format->word != FILE_I32 ||
        (c->format->words && c->format->words->twos) || weight_qparam_facts(job->weight, &facts, NULL) != QOBS_OK)
        return;
    job->moved.words = moves_words(job, &facts);
    job->moved.qparams = job->moved.words && moves_qparams(job, &facts);
}

static bool keeps_floats(const struct weight_job *job)
{
    const struct quant_format_row *row = job->weight->source_codes.format;
    return job->cast && row->code.floats && row->group_size == 0;
}

bool job_keeps_codes(const struct weight_job *job)
{
    return keeps_floats(job) || (job->cast && job->weight->source_codes.format->code.ints);
}

enum file_dtype weight_scale_dtype(const struct weight *w, const struct quant_config *config)
{
    const struct st_tensor *scales = w->source_codes.format ? w->source_codes.scales : NULL;
    const bool kept = scales && scales->dtype == FILE_F32 && w->source_codes.format->code.floats;
    return kept && is_castable(w, config) ? FILE_F32 : w->dtype;
}

/* Returns the global scale that a source brings with it, as it divides scales; 0: it has none. */
static float own_global_scale(const struct source_codes *c)
{
    return !c->format || !c->format->global.name ? 0
           : c->format->global.divides           ? c->global_scale
                                                 : 1 / c->global_scale;
}

/* Returns true if a weight has one scale. */
static bool is_of_tensors(const struct engine *e, size_t i)
{
    const struct weight *w = &e->in.weights->items[i];
    return w->reason == WEIGHT_TAKEN && e->in.config->groups[w->group].weights.strategy == QUANT_TENSOR;
}

/* Sets have one global scale, which their members bring with them or all get. Members of FP8 keep their own scales. */
int engine_find_casts(struct engine *e, struct fail *f)
{
    const struct weights *all = e->in.weights;
    OWNED bool *shared = malloc((all->count + 1) * sizeof *shared);
    e->cast = malloc((all->count + 1) * sizeof *e->cast);
    if (!e->cast || !shared)
        return NO_MEMORY(f, "the weights");
    memset(shared, true, all->count);
    for (size_t i = 0; i < all->count; i++) {
        const float own = own_global_scale(&all->items[i].source_codes);
        const float first = own_global_scale(&all->items[e->set[i]].source_codes);
        e->cast[i] = is_castable(&all->items[i], e->in.config);
        shared[e->set[i]] &= e->cast[i] && own == first && isfinite(own);
    }
    for (size_t i = 0; i < all->count; i++)
        if (!is_of_tensors(e, i))
            e->cast[i] = shared[e->set[i]];
    return QOBS_OK;
}

/* Reads the scales of a slice, and the zero points behind them. */
static float *read_scales(const struct row_slice *s, struct workspace *work)
{
    const struct weight *w = s->job->weight;
    const size_t count = (size_t)(s->count * w->source_codes.scale_columns);
    float *scales = workspace_reserve(work, WORK_CODES, 2 * count * sizeof *scales);
    if (scales)
        weight_read_scales(w, s->first, s->count, scales, scales + count);
    return scales;
}

/* The smallest power of two stands for a block of zeros. */
int cast_range(struct row_slice *s, struct workspace *work, struct fail *f)
{
    const float *scales = read_scales(s, work);
    const int64_t count = s->count * s->job->weight->source_codes.scale_columns;
    if (!scales)
        return NO_MEMORY(f, "scales");
    s->min = INFINITY;
    s->max = 0;
    for (int64_t i = 0; i < count; i++)
        if (scales[i] > 0x1p-127f) {
            s->min = fmin(s->min, (double)scales[i]);
            s->max = fmax(s->max, (double)scales[i]);
        }
    return QOBS_OK;
}

/* A global scale is finite, which 2^128 is not. */
float cast_global_scale(const struct weight_job *job, double largest)
{
    const float own = own_global_scale(&job->weight->source_codes);
    const int exponent = largest > 0 ? ilogb(largest) : 0;
    return own > 0 ? own : ldexpf(1, exponent - LARGEST_SCALE < -127 ? 127 : LARGEST_SCALE - exponent);
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

/* The blocks of a slice. */
struct caster {
    const struct weight *weight;
    const qobs_format *grid, *dtype, *stored; /* of codes, of the weight, of scales; NULL: powers of two */
    float global_scale;                       /* divides scales */
    float factor;                             /* multiplies them in the output; 0: global_scale divides them there */
};

static struct caster open_caster(const struct weight_job *job)
{
    if (job_keeps_codes(job))
        return (struct caster){.weight = job->weight};
    const bool global = job_args(job)->strategy == QUANT_TENSOR_GROUP;
    return (struct caster){.weight = job->weight,
                           .grid = qobs_format_find(quant_grid(job_args(job))),
                           .dtype = qobs_format_find("bf16"), /* of all sources whose scales have one byte */
                           .stored = global ? qobs_format_find("fp8_e4m3") : NULL,
                           .global_scale = global ? job->range.global_scale : 1,
                           .factor = global ? job->range.global_factor : 0};
}

/* Returns true if each number of the grid is the same under both scales. */
static bool is_same(const struct caster *c, float a, float b)
{
    bool same = true;
    for (uint32_t code = 0; a != b && same && code < 8; code++) {
        const float number = qobs_format_decode(c->grid, code);
        same = qobs_format_round(c->dtype, number * a, false) == qobs_format_round(c->dtype, number * b, false);
    }
    return same;
}

/* Returns the largest number of a block, by its codes. */
static float largest_of(const struct caster *c, const unsigned char *codes)
{
    float largest = 0;
    for (int64_t i = 0; i < c->weight->source_codes.block[1]; i++)
        largest = fmaxf(largest, fabsf(qobs_format_decode(c->grid, codes[i])));
    return largest;
}

static float stored_scale(const struct caster *c, float scale)
{
    const float low = ldexpf(1, SMALLEST_SCALE);
    return c->stored ? qobs_format_round(c->stored, scale < low ? low : scale, true) : scale;
}

/* Returns the scale of a block in the scheme. Model-Optimizer counts blocks by their scales alone, and takes the
 * smallest power of two for a block of zeros. */
static float cast_block(const struct caster *c, int64_t row, int64_t block, float scale, unsigned char *codes,
                        bool *lossless)
{
    const struct source_codes *source = &c->weight->source_codes;
    const float same = stored_scale(c, scale * c->global_scale);
    *lossless = is_same(c, c->factor > 0 ? same * c->factor : same / c->global_scale, scale);
    if (*lossless || !is_power_of_two(source))
        return same;
    weight_read_codes(c->weight, row, 1, codes);
    const float largest = largest_of(c, codes + block * source->block[1]);
    *lossless = largest == 0 && scale == 0x1p-127f;
    return stored_scale(c, largest * scale / ((float)qobs_format_max(c->grid) / c->global_scale));
}

/* Returns the dtype of scales; NULL: F32. */
static const qobs_format *scale_dtype_of(const struct slice_qparams *q)
{
    return q->scale_dtype == QOBS_F32 ? NULL : qobs_format_find(q->scale_dtype == QOBS_F16 ? "f16" : "bf16");
}

/* Returns a scale as the dtype of scales has it; dtype NULL: F32. */
static uint32_t scale_bits(const qobs_format *dtype, float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    return dtype ? qobs_format_encode(dtype, scale, false) : bits;
}

/* Writes a scale `count` times, `number` being its code in the dtype of scales. */
static void put_scales(const struct slice_qparams *q, int64_t first, int64_t count, uint32_t number, int zero_point)
{
    const size_t size = qobs_dtype_size(q->scale_dtype);
    const uint16_t half = (uint16_t)number;
    for (int64_t k = first; k < first + count; k++) {
        memcpy((unsigned char *)q->scale + (size_t)k * size, size == 2 ? (const void *)&half : &number, size);
        if (q->has_zero_point)
            ((signed char *)q->zero_point)[k] = (signed char)zero_point;
    }
}

/* ---- Floats of more bits ----------------------------------------------------------------------------------------- */

/* Returns the place of a scale of the source among the qparams of a slice. */
static int64_t unit_of(const struct row_slice *s, int64_t i)
{
    const struct source_codes *c = &s->job->weight->source_codes;
    const struct quant_args *a = job_args(s->job);
    const int64_t row = i / c->scale_columns / s->job->unit_rows, column = i % c->scale_columns * c->block[1];
    const int64_t columns = a->strategy == QUANT_BLOCK   ? a->block_structure[1]
                            : a->strategy == QUANT_GROUP ? a->group_size
                                                         : s->job->weight->shape[1];
    return row * s->job->unit_qparams + column / columns;
}

/* The largest scale of a unit decides: its largest number is below that of the scheme by less than half. All numbers of
 * a source are multiples of its smallest, which is lossless if it is a multiple of the scheme's smallest. */
static int widen_scales(struct row_slice *s, const struct slice_qparams *q, struct workspace *work, struct fail *f)
{
    const struct weight *w = s->job->weight;
    const struct caster c = {.weight = w, .grid = qobs_format_find(w->source_codes.format->code.grid)};
    const qobs_format *grid = qobs_format_find(quant_grid(job_args(s->job)));
    const int up = ilogb(qobs_format_max(grid) / qobs_format_max(c.grid));
    const float smallest = qobs_format_decode(grid, 1) / qobs_format_decode(c.grid, 1);
    const int64_t blocks = w->source_codes.scale_columns;
    const float *scales = read_scales(s, work);
    unsigned char *codes = workspace_reserve(work, WORK_PACKED, (size_t)w->shape[1]);
    float *unit = workspace_reserve(work, WORK_SINK, (size_t)q->count * sizeof *unit);
    if (!scales || !codes || !unit)
        return NO_MEMORY(f, "scales");
    for (int64_t i = 0; i < q->count; i++)
        unit[i] = 0;
    for (int64_t i = 0; i < s->count * blocks; i++)
        unit[unit_of(s, i)] = fmaxf(unit[unit_of(s, i)], scales[i] > 0x1p-127f ? scales[i] : 0);
    for (int64_t i = 0; i < q->count; i++) {
        unit[i] = unit[i] > 0 ? fmaxf(ldexpf(unit[i], -up), 0x1p-126f) : 1;
        put_scales(q, i, 1, scale_bits(scale_dtype_of(q), unit[i]), 0);
    }
    for (int64_t i = 0; i < s->count * blocks; i++) {
        bool same = scales[i] / unit[unit_of(s, i)] >= smallest;
        if (!same && scales[i] == 0x1p-127f) {
            weight_read_codes(w, s->first + i / blocks, 1, codes);
            same = largest_of(&c, codes + i % blocks * w->source_codes.block[1]) == 0;
        }
        s->lossless += same;
    }
    s->blocks += (uint64_t)(s->count * blocks);
    return QOBS_OK;
}

static int keep_scales(struct row_slice *s, const struct slice_qparams *q, struct workspace *work, struct fail *f)
{
    const float *scales = read_scales(s, work);
    float *units = workspace_reserve(work, WORK_SINK, (size_t)q->count * sizeof *units);
    if (!scales || !units)
        return NO_MEMORY(f, "scales");
    for (int64_t i = 0; i < q->count; i++)
        units[i] = 1; /* of rows in the midst of a matrix with one scale, which is written with the first ones */
    keep_floats(s, scales, units);
    for (int64_t i = 0; i < q->count; i++)
        put_scales(q, i, 1, scale_bits(scale_dtype_of(q), units[i]), 0);
    return QOBS_OK;
}

void cast_moved(struct row_slice *s)
{
    const uint64_t blocks = (uint64_t)(s->count * s->job->weight->source_codes.scale_columns);
    s->blocks += blocks;
    s->lossless += blocks;
}

int cast_scales(struct row_slice *s, const struct slice_qparams *q, struct workspace *work, struct fail *f)
{
    const struct weight *w = s->job->weight;
    const bool kept = job_keeps_codes(s->job);
    if (widens(&w->source_codes, s->job->group->quant))
        return widen_scales(s, q, work, f);
    if (keeps_floats(s->job))
        return keep_scales(s, q, work, f);
    const struct caster c = open_caster(s->job);
    const int64_t blocks = w->source_codes.scale_columns, repeats = s->job->unit_qparams / blocks;
    const float *scales = read_scales(s, work);
    const qobs_format *dtype = scale_dtype_of(q);
    unsigned char *codes = workspace_reserve(work, WORK_PACKED, (size_t)w->shape[1]);
    if (!scales || !codes)
        return NO_MEMORY(f, "scales");
    for (int64_t i = 0; i < s->count * blocks; i++) {
        bool lossless = true;
        const float scale =
            kept ? scales[i] : cast_block(&c, s->first + i / blocks, i % blocks, scales[i], codes, &lossless);
        const int zero_point = (int)scales[s->count * blocks + i];
        put_scales(q, i * repeats, repeats, scale_bits(dtype, fabsf(scale)), scale < 0 ? ~zero_point : zero_point);
        s->lossless += lossless;
    }
    s->blocks += (uint64_t)(s->count * blocks);
    return QOBS_OK;
}

int cast_codes(const struct row_slice *s, unsigned char *codes, struct workspace *work, struct fail *f)
{
    const struct weight *w = s->job->weight;
    const int64_t blocks = w->source_codes.scale_columns, block = w->source_codes.block[1];
    if (keeps_floats(s->job)) {
        weight_read_codes(w, s->first, s->count, codes);
        return check_floats(s, codes, f);
    }
    float *scales = workspace_reserve(work, WORK_ROWS, (size_t)(s->count * blocks) * sizeof *scales);
    if (!scales)
        return NO_MEMORY(f, "scales");
    weight_read_scales(w, s->first, s->count, scales, NULL);
    weight_read_codes(w, s->first, s->count, codes);
    for (int64_t i = 0; i < s->count * blocks; i++)
        for (int64_t k = 0; scales[i] < 0 && k < block; k++)
            codes[i * block + k] = (unsigned char)~codes[i * block + k];
    return QOBS_OK;
}
