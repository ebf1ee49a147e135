/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Lists the tensors of the output. layout_headers.c orders them and makes the headers. */
#include "quantize/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "files/text.h"
#include "model/fused.h"
#include "model/layer_words.h"

struct group_storage group_storage(const struct quant_group *group, enum layout_contents contents)
{
    const struct quant_args *w = &group->weights;
    const struct quant_format_row *row = quant_format_row(group->stored);
    const enum file_dtype element = quant_code_dtype(w);
    const bool packed_zero_points = contents == CONTENTS_MODEL && quant_packs_zero_points(group->stored, w);
    return (struct group_storage){.format = row,
                                  .codes_dtype = row->word ? row->word : element,
                                  .packed_zero_points = packed_zero_points,
                                  .zero_point_dtype = w->symmetric         ? FILE_NONE
                                                      : packed_zero_points ? row->word
                                                                           : element};
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

struct builder {
    struct output_layout *layout;
    const struct weights *weights;
    const struct quant_config *config;
    enum layout_contents contents;
};

/* Adds a tensor. suffix: what follows the module's name; of activations the whole name. */
static int add(struct builder *b, size_t weight, enum output_part part, const char *suffix, enum file_dtype dtype,
               int ndim, const int64_t *shape, size_t shard, struct fail *f)
{
    struct output_layout *l = b->layout;
    const struct weight *w = &b->weights->items[weight];
    struct output_tensor *t = list_add(&l->tensors, &l->count, sizeof *t);
    if (!t)
        return NO_MEMORY(f, "the list of tensors");
    *t = (struct output_tensor){.dtype = dtype, .ndim = ndim, .shard = shard, .weight = weight, .part = part};
    t->name = part == PART_SAME         ? strdup(w->name)
              : part == PART_ACTIVATION ? strdup(suffix)
                                        : text_format("%.*s.%s", (int)w->module, w->name, suffix);
    if (!t->name)
        return NO_MEMORY(f, "the list of tensors");
    memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    tensor_bytes(dtype_bits(dtype), ndim, t->shape, &t->bytes); /* not larger than a few times the input */
    l->shards[shard].tensors++;
    return QOBS_OK;
}

/* Returns the largest power of two below the group size that divides the columns of all weights of a group of schemes;
 * 0 if it is below 16 or the format has one group size. */
static int64_t fitting_group(const struct builder *b, size_t group)
{
    const struct quant_group *g = &b->config->groups[group];
    int64_t size = 16;
    if (quant_format_row(g->format)->group_size > 0)
        return 0;
    while (2 * size < g->weights.group_size)
        size *= 2;
    for (size_t i = 0; i < b->weights->count; i++)
        while (b->weights->items[i].reason == WEIGHT_TAKEN && b->weights->items[i].group == group && size > 0 &&
               b->weights->items[i].shape[1] % size != 0)
            size = size > 16 ? size / 2 : 0;
    return size;
}

/* Why a shape cannot be quantized. */
enum misfit { FITS_SCHEME, HAS_NO_ELEMENTS, HAS_UNEVEN_COLUMNS, HAS_UNEVEN_WORDS, HAS_UNEVEN_ROWS };

static enum misfit misfit_of(const struct builder *b, const struct weight *w)
{
    const struct quant_group *group = &b->config->groups[w->group];
    const struct quant_args *a = &group->weights;
    const struct quant_format_row *row = quant_format_row(group->stored);
    const bool grouped = a->strategy == QUANT_GROUP || a->strategy == QUANT_TENSOR_GROUP;
    if (w->shape[0] == 0 || w->shape[1] == 0)
        return HAS_NO_ELEMENTS;
    if (grouped && w->shape[1] % a->group_size != 0)
        return HAS_UNEVEN_COLUMNS;
    if (row->word && !row->has_shape && w->shape[1] * a->num_bits % quant_word_bits(row) != 0)
        return HAS_UNEVEN_WORDS;
    return row->words && w->shape[0] * a->num_bits % quant_word_bits(row) != 0 ? HAS_UNEVEN_ROWS : FITS_SCHEME;
}

/* Describes all weights of a group of schemes that have one misfit. Returns true if their rows or columns are as many.
 */
static bool describe_misfits(struct layer_words *words, const struct builder *b, const struct weight *w,
                             enum misfit misfit, bool *marked)
{
    bool alike = true;
    for (size_t i = 0; i < b->weights->count; i++) {
        const struct weight *other = &b->weights->items[i];
        marked[i] = other->reason == WEIGHT_TAKEN && other->group == w->group && misfit_of(b, other) == misfit;
        alike &= !marked[i] || other->shape[misfit != HAS_UNEVEN_ROWS] == w->shape[misfit != HAS_UNEVEN_ROWS];
    }
    layer_words_make(words, b->weights, marked);
    return alike;
}

static int refuse_misfit(const struct builder *b, const struct weight *w, enum misfit misfit, struct fail *f)
{
    const struct quant_group *group = &b->config->groups[w->group];
    const struct quant_args *a = &group->weights;
    struct layer_words l;
    char setting[64] = "";
    OWNED bool *marked = calloc(b->weights->count, sizeof *marked);
    if (!marked)
        return NO_MEMORY(f, "the layers");
    const char *others = describe_misfits(&l, b, w, misfit, marked) ? "" : " and other";
    if (misfit == HAS_NO_ELEMENTS)
        return INVALID(f, "%s: %s no elements. --ignore '%s' leaves %s out", l.names, HAS_OR_HAVE(&l), l.entry,
                       IT_OR_THEM(&l));
    if (misfit == HAS_UNEVEN_WORDS || misfit == HAS_UNEVEN_ROWS)
        return INVALID(f,
                       "%s: %s %" PRId64 "%s %s of %d bits, which do not fill words of %d bits. "
                       "--ignore '%s' leaves %s out",
                       l.names, HAS_OR_HAVE(&l), w->shape[misfit == HAS_UNEVEN_WORDS], others,
                       misfit == HAS_UNEVEN_WORDS ? "columns" : "rows", a->num_bits,
                       quant_word_bits(quant_format_row(group->stored)), l.entry, IT_OR_THEM(&l));
    const int64_t fitting = fitting_group(b, w->group);
    if (fitting > 0)
        snprintf(setting, sizeof setting, "--set group_size=%" PRId64 " or ", fitting);
    return INVALID(f, "%s: %s%" PRId64 "%s columns, groups of %" PRId64 ": %s--ignore '%s'", l.names,
                   l.count > 1 ? "have " : "", w->shape[1], others, a->group_size, setting, l.entry);
}

int layout_check_shapes(const struct weights *weights, const struct quant_config *config, struct fail *f)
{
    const struct builder b = {.weights = weights, .config = config};
    for (size_t i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->items[i];
        const enum misfit misfit = w->reason == WEIGHT_TAKEN ? misfit_of(&b, w) : FITS_SCHEME;
        if (misfit != FITS_SCHEME)
            return refuse_misfit(&b, w, misfit, f);
    }
    return QOBS_OK;
}

/* Adds the tensors of a weight in words that lie [columns, rows]. Runtimes want zero points also where all are one. */
static int add_words(struct builder *b, size_t index, size_t shard, struct fail *f)
{
    const struct weight *w = &b->weights->items[index];
    const struct quant_args *a = &b->config->groups[w->group].weights;
    const struct quant_format_row *row = quant_format_row(b->config->groups[w->group].stored);
    const struct word_layout *words = row->words;
    const int word_bits = quant_word_bits(row);
    int64_t scale[2];
    scale_shape(a, w->shape, scale);
    const int64_t packed = w->shape[0] * a->num_bits / word_bits;
    const int64_t codes[2] = {words->along_rows ? w->shape[1] : w->shape[1] * a->num_bits / word_bits,
                              words->along_rows ? packed : w->shape[0]};
    const int64_t scales[2] = {scale[1], w->shape[0]}, zero_points[2] = {scale[1], packed};
    RETURN_IF_NOT_OK(add(b, index, PART_CODES, row->codes, row->word, 2, codes, shard, f));
    RETURN_IF_NOT_OK(add(b, index, PART_SCALE, row->scale, w->dtype, 2, scales, shard, f));
    RETURN_IF_NOT_OK(add(b, index, PART_ZERO_POINT, words->zero_points, row->word, 2, zero_points, shard, f));
    return words->group_index ? add(b, index, PART_GROUP_INDEX, words->group_index, FILE_I32, 1, &w->shape[1], shard, f)
                              : QOBS_OK;
}

/* Gives scales Model-Optimizer's shape. Returns its dimensions. */
static int make_bare(const struct quant_args *a, int ndim, int64_t *shape)
{
    if (a->strategy == QUANT_TENSOR || a->strategy == QUANT_CHANNEL)
        return a->strategy == QUANT_CHANNEL;
    if (a->strategy != QUANT_BLOCK)
        return ndim;
    shape[2] = shape[1];
    shape[1] = shape[3] = 1;
    return 4;
}

/* Adds the tensors of a quantized weight. */
static int add_quantized(struct builder *b, size_t index, size_t shard, struct fail *f)
{
    const struct weight *w = &b->weights->items[index];
    const struct quant_group *group = &b->config->groups[w->group];
    const struct quant_args *a = &group->weights;
    const struct group_storage s = group_storage(group, b->contents);
    static const int64_t one[1] = {1}, two[1] = {2};
    int64_t codes[2] = {w->shape[0], w->shape[1]}, scale[4];
    if (s.format->words)
        return add_words(b, index, shard, f);
    const int word_bits = quant_word_bits(s.format);
    if (word_bits > 0)
        codes[1] = (codes[1] * a->num_bits + word_bits - 1) / word_bits;
    const int plain = scale_shape(a, w->shape, scale),
              ndim = s.format->modelopt.bare_scales ? make_bare(a, plain, scale) : plain;
    if (b->contents == CONTENTS_MODEL)
        RETURN_IF_NOT_OK(add(b, index, PART_CODES, s.format->codes, s.codes_dtype, 2, codes, shard, f));
    const enum file_dtype scale_dtype =
        s.format->scale_dtype ? s.format->scale_dtype : weight_scale_dtype(w, b->config);
    RETURN_IF_NOT_OK(add(b, index, PART_SCALE, s.format->scale, scale_dtype, ndim, scale, shard, f));
    if (s.packed_zero_points)
        scale[0] = (scale[0] * a->num_bits + word_bits - 1) / word_bits;
    if (s.zero_point_dtype)
        RETURN_IF_NOT_OK(
            add(b, index, PART_ZERO_POINT, "weight_zero_point", s.zero_point_dtype, ndim, scale, shard, f));
    if (s.format->has_shape && b->contents == CONTENTS_MODEL)
        RETURN_IF_NOT_OK(add(b, index, PART_SHAPE, "weight_shape", FILE_I64, 1, two, shard, f));
    if (s.format->global.name)
        RETURN_IF_NOT_OK(add(b, index, PART_GLOBAL_SCALE, s.format->global.name, FILE_F32,
                             !s.format->modelopt.bare_scales, one, shard, f));
    return QOBS_OK;
}

/* ---- Shards ------------------------------------------------------------------------------------------------------ */

static bool any_global_scale(const struct quant_config *config)
{
    for (size_t i = 0; i < config->group_count; i++)
        if (config->groups[i].weights.strategy == QUANT_TENSOR_GROUP)
            return true;
    return false;
}

/* Finds the weight in whose shard each weight is written: its own, but for fused ones of llm-compressor. */
static int find_homes(const struct weights *weights, const struct quant_config *config, size_t *home, struct fail *f)
{
    for (size_t i = 0; i < weights->count; i++)
        home[i] = i;
    if (config->compat == QOBS_COMPAT_VLLM || !any_global_scale(config))
        return QOBS_OK;
    OWNED const char **names = malloc((weights->count + 1) * sizeof *names);
    if (!names)
        return NO_MEMORY(f, "the names");
    for (size_t i = 0; i < weights->count; i++)
        names[i] = weights->items[i].name;
    return fused_homes(names, weights->count, quant_release_of(config->compat)->fused, home, f);
}

/* Returns the shard of a weight. Scales alone are in one file. */
static size_t shard_of(const struct builder *b, size_t weight)
{
    return b->contents == CONTENTS_SCALES ? 0 : b->weights->items[weight].source->shard;
}

static int add_all(struct builder *b, const size_t *home, struct fail *f)
{
    for (size_t i = 0; i < b->weights->count; i++) {
        const struct weight *w = &b->weights->items[i];
        const size_t shard = shard_of(b, home[i]);
        if (w->reason == WEIGHT_TAKEN)
            RETURN_IF_NOT_OK(add_quantized(b, i, shard, f));
        else if (b->contents == CONTENTS_MODEL && !weight_is_consumed(b->weights, w, b->config->compat))
            RETURN_IF_NOT_OK(add(b, i, PART_SAME, "", w->dtype, w->ndim, w->shape, shard, f));
    }
    return QOBS_OK;
}

/* Adds the scales of activations to the shards of their weights. */
static int add_activations(struct builder *b, const struct activation_scales *activations, const size_t *home,
                           struct fail *f)
{
    for (size_t i = 0; i < activations->count; i++) {
        const struct activation_scale *a = &activations->items[i];
        const size_t shard = shard_of(b, home[a->weight]);
        RETURN_IF_NOT_OK(add(b, a->weight, PART_ACTIVATION, a->name, a->dtype, a->ndim, a->shape, shard, f));
        b->layout->tensors[b->layout->count - 1].activation = i;
    }
    return QOBS_OK;
}

static int check_unique(const struct output_layout *l, struct fail *f)
{
    bool failed;
    const char *twice = named_repeated(l->tensors, l->count, sizeof *l->tensors, &failed);
    return failed  ? NO_MEMORY(f, "the names")
           : twice ? INVALID(f, "tensor '%.200s' would be there twice", twice)
                   : QOBS_OK;
}

int layout_list(struct output_layout *layout, const struct model *model, const struct weights *weights,
                const struct quant_config *config, const struct activation_scales *activations,
                enum layout_contents contents, struct fail *f)
{
    struct builder b = {.layout = layout, .weights = weights, .config = config, .contents = contents};
    *layout = (struct output_layout){.shard_count = model->shard_count,
                                     .shards = calloc(model->shard_count + 1, sizeof *layout->shards),
                                     .parts = malloc((weights->count + 1) * sizeof *layout->parts),
                                     .activations = malloc((activations->count + 1) * sizeof *layout->activations)};
    OWNED size_t *home = calloc(weights->count + 1, sizeof *home);
    if (!layout->shards || !layout->parts || !layout->activations || !home)
        return NO_MEMORY(f, "the layout");
    for (size_t i = 0; i < model->shard_count; i++)
        layout->shards[i] =
            (struct output_shard){.path = model->shards[i].path,
                                  .source = config->compat != QOBS_COMPAT_VLLM ? NULL : &model->shards[i].file};
    RETURN_IF_NOT_OK(find_homes(weights, config, home, f));
    RETURN_IF_NOT_OK(add_all(&b, home, f));
    RETURN_IF_NOT_OK(add_activations(&b, activations, home, f));
    return check_unique(layout, f);
}

int layout_make(struct output_layout *layout, const struct model *model, const struct weights *weights,
                const struct quant_config *config, const struct activation_scales *activations,
                enum layout_contents contents, struct fail *f)
{
    RETURN_IF_NOT_OK(layout_list(layout, model, weights, config, activations, contents, f));
    layout_sort(layout, weights->count);
    return contents == CONTENTS_MODEL ? layout_make_headers(layout, f) : QOBS_OK;
}

uint64_t layout_weight_bytes(const struct output_layout *layout, size_t weight)
{
    uint64_t bytes = 0;
    for (int part = 0; part < OUTPUT_PARTS; part++)
        if (layout->parts[weight][part] != SIZE_MAX)
            bytes += layout->tensors[layout->parts[weight][part]].bytes;
    return bytes;
}

void layout_free(struct output_layout *layout)
{
    for (size_t i = 0; layout->shards && i < layout->shard_count; i++)
        free(layout->shards[i].header);
    named_free(layout->tensors, layout->count, sizeof *layout->tensors, 1);
    free(layout->shards);
    free(layout->parts);
    free(layout->activations);
    *layout = (struct output_layout){0};
}
