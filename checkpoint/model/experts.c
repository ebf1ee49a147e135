/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The layouts of experts: transformers' models multiply from the left or from the right, and join gate_proj and up_proj
 * as halves or, in gpt-oss, in turns. */
#include "model/experts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/names.h"

/* The place of the rows of one part (gate_proj, up_proj) in the tensor of all. */
struct expert_layout {
    bool transposed;  /* [E, in, out], as Llama 4 and gpt-oss have them; else [E, out, in] */
    bool interleaved; /* rows of gate_proj and up_proj alternate */
};

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static const char blocks[] = "_blocks", scales[] = "_scales", bias[] = "_bias";

static bool is_joined(const char *name) { return strstr(name, "gate_up_proj") != NULL; }

/* Returns `name` with the text from the word "gate_up_proj" or "down_proj" to `ending` replaced by
 * "<expert>.<part>", and `last` at its end. NULL: no memory. */
static char *expert_name(const char *name, const char *ending, int64_t expert, const char *part, const char *last)
{
    const char *word = is_joined(name) ? "gate_up_proj" : "down_proj", *at = strstr(name, word);
    const size_t length = strlen(name), size = length + strlen(part) + 64;
    char *made = malloc(size);
    if (!made)
        return NULL;
    int n = snprintf(made, size, "%.*s%" PRId64 ".%s%s", (int)(at - name), name, expert, part, at + strlen(word));
    n -= (int)strlen(ending);
    made[n] = '\0';
    if (!ends_with(made, last))
        snprintf(made + n, size - (size_t)n, "%s", last);
    return made;
}

/* Returns the name with another ending, or NULL if it is too long. */
static const char *other_name(char *text, size_t size, const char *name, const char *ending, const char *other)
{
    const size_t length = strlen(name) - strlen(ending);
    const int n = snprintf(text, size, "%.*s%s", (int)length, name, other);
    return n > 0 && (size_t)n < size ? text : NULL;
}

/* ---- Kinds ------------------------------------------------------------------------------------------------------- */

static bool is_gpt_oss(const struct model *model)
{
    const json_object *type = model_config_item(model, "model_type");
    return json_is_string(type) && strncmp(json_text(type), "gpt_oss", 7) == 0;
}

/* Returns true if tensors <stem>_blocks and <stem>_scales are there as bytes of experts. */
static bool has_mxfp4(const struct model *model, const char *name, const char *ending)
{
    char text[512];
    const char *wanted[2] = {blocks, scales};
    for (int i = 0; i < 2; i++) {
        const char *other = other_name(text, sizeof text, name, ending, wanted[i]);
        const struct model_tensor *t = other ? model_find(model, other) : NULL;
        if (!t || strcmp(t->stored->dtype, "U8") != 0 || t->stored->ndim != 4 - i)
            return false;
    }
    return true;
}

enum expert_kind experts_kind(const struct model *model, const struct model_tensor *source, qobs_compat compat)
{
    const struct st_tensor *s = source->stored;
    const bool named = is_joined(s->name) || strstr(s->name, "down_proj");
    if (!named)
        return EXPERTS_NONE;
    if (compat == QOBS_COMPAT_VLLM) {
        if (ends_with(s->name, blocks) && has_mxfp4(model, s->name, blocks))
            return EXPERTS_MXFP4;
        if (ends_with(s->name, scales) && has_mxfp4(model, s->name, scales))
            return EXPERTS_SCALES;
        if (ends_with(s->name, bias) && s->ndim == 2 && is_gpt_oss(model))
            return EXPERTS_BIAS;
    }
    const bool both = is_joined(s->name) && strstr(s->name, "down_proj");
    return s->ndim == 3 || (both && s->ndim >= 2) ? EXPERTS_PLAIN : EXPERTS_NONE;
}

/* A model says by the size of its hidden states how its experts lie: [E, hidden_size, 2I] or [E, 2I, hidden_size]. */
static struct expert_layout layout_of(const struct model *model, const struct st_tensor *s)
{
    const json_object *hidden = model_config_item(model, "hidden_size"), *type = model_config_item(model, "model_type");
    const bool joined = is_joined(s->name), gpt_oss = is_gpt_oss(model);
    struct expert_layout layout = {.transposed = gpt_oss, .interleaved = gpt_oss};
    if (!json_is_number(hidden) || gpt_oss)
        return layout;
    const int64_t in = s->shape[joined ? 2 : 1], other = s->shape[joined ? 1 : 2];
    const bool by_rows = (double)in == json_object_get_double(hidden),
               transposed = (double)other == json_object_get_double(hidden);
    const bool llama4 = json_is_string(type) && strncmp(json_text(type), "llama4", 6) == 0;
    layout.transposed = by_rows != transposed ? transposed : by_rows && llama4;
    return layout;
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

static int check_even(const struct st_tensor *s, int dimension, struct fail *f)
{
    if (!is_joined(s->name) || s->shape[dimension] % 2 == 0)
        return QOBS_OK;
    return INVALID(f,
                   "tensor '%.200s': gate_proj and up_proj share dimension %d, which has %" PRId64
                   " elements; an even number is needed",
                   s->name, dimension, s->shape[dimension]);
}

/* The matrix of part `part` of `parts` of one expert. */
static struct weight of_expert(const struct model_tensor *source, int64_t expert, struct expert_layout layout,
                               int64_t part, int64_t parts)
{
    const struct st_tensor *s = source->stored;
    const int64_t element = (int64_t)dtype_size(s->dtype), rows = s->shape[1], columns = s->shape[2];
    const int64_t out = (layout.transposed ? columns : rows) / parts, in = layout.transposed ? rows : columns;
    const int64_t step = layout.transposed ? element : columns * element; /* between neighbouring outputs */
    const bool turns = layout.interleaved && parts > 1;
    struct weight w = {.source = source, .dtype = s->dtype, .ndim = 2, .shape = {out, in}};
    w.data = (const unsigned char *)s->data + expert * rows * columns * element + part * (turns ? 1 : out) * step;
    w.row_bytes = turns ? parts * step : step;
    w.column_bytes = layout.transposed ? columns * element : element;
    w.bytes = (uint64_t)(out * in * element);
    return w;
}

/* The same for experts in MXFP4; gate_proj and up_proj alternate. */
static struct weight of_mxfp4(const struct model_tensor *source, const struct st_tensor *exponents, int64_t expert,
                              int64_t part, int64_t parts)
{
    const struct st_tensor *s = source->stored;
    const int64_t rows = s->shape[1], groups = s->shape[2], row = 16 * groups;
    struct weight w = {.source = source, .dtype = "BF16", .ndim = 2};
    w.shape[0] = rows / parts;
    w.shape[1] = 32 * groups;
    w.source_codes = (struct source_codes){.format = &source_mxfp4_blocks,
                                           .scales = exponents,
                                           .block = {1, 32},
                                           .scale_columns = groups,
                                           .first_row = expert * rows + part,
                                           .row_step = parts};
    w.data = (const unsigned char *)s->data + w.source_codes.first_row * row;
    w.row_bytes = parts * row;
    w.bytes = (uint64_t)(w.shape[0] * w.shape[1] * 2);
    return w;
}

/* The bias of one expert: one column of numbers that may lie apart. */
static struct weight of_bias(const struct model_tensor *source, int64_t expert, int64_t part, int64_t parts)
{
    const struct st_tensor *s = source->stored;
    const int64_t element = (int64_t)dtype_size(s->dtype);
    struct weight w = {.source = source, .dtype = s->dtype, .ndim = 1, .shape = {s->shape[1] / parts, 1}};
    w.data = (const unsigned char *)s->data + (expert * s->shape[1] + part) * element;
    w.row_bytes = w.column_bytes = parts * element;
    w.bytes = (uint64_t)(w.shape[0] * element);
    return w;
}

static int check_mxfp4(const struct st_tensor *s, const struct st_tensor *exponents, struct fail *f)
{
    bool fits = s->shape[3] == 16;
    for (int d = 0; d < 3; d++)
        fits &= exponents->shape[d] == s->shape[d];
    if (fits)
        return QOBS_OK;
    struct shape_words is, other;
    return INVALID(
        f, "tensor '%.150s': has shape %s, and its scales %s; [E,rows,groups,16] and [E,rows,groups] are needed",
        s->name, shape_describe(s->ndim, s->shape, &is), shape_describe(exponents->ndim, exponents->shape, &other));
}

int experts_list(struct weight_list *list, const struct model *model, const struct model_tensor *source,
                 enum expert_kind kind, qobs_compat compat, struct fail *f)
{
    static const char *const gate_up[] = {"gate_proj", "up_proj"}, *const down[] = {"down_proj"};
    static const char *const endings[] = {[EXPERTS_PLAIN] = "", [EXPERTS_MXFP4] = blocks, [EXPERTS_BIAS] = bias};
    const struct st_tensor *s = source->stored, *exponents = NULL;
    const bool joined = is_joined(s->name);
    const int64_t parts = joined ? 2 : 1;
    struct expert_layout layout = {0};
    char text[512];
    if (kind == EXPERTS_SCALES)
        return QOBS_OK;
    if (joined && strstr(s->name, "down_proj"))
        return INVALID(f, "tensor '%.200s': its name has gate_up_proj and down_proj, so that it cannot be split",
                       s->name);
    if (kind == EXPERTS_PLAIN && compat == QOBS_COMPAT_VLLM)
        layout = layout_of(model, s);
    RETURN_IF_NOT_OK(check_even(s, layout.transposed ? 2 : 1, f));
    if (kind == EXPERTS_MXFP4) {
        exponents = model_find(model, other_name(text, sizeof text, s->name, blocks, scales))->stored;
        RETURN_IF_NOT_OK(check_mxfp4(s, exponents, f));
    }
    for (int64_t e = 0; e < s->shape[0]; e++)
        for (int64_t p = 0; p < parts; p++) {
            const struct weight w = kind == EXPERTS_MXFP4  ? of_mxfp4(source, exponents, e, p, parts)
                                    : kind == EXPERTS_BIAS ? of_bias(source, e, p, parts)
                                                           : of_expert(source, e, layout, p, parts);
            char *name = expert_name(s->name, endings[kind], e, joined ? gate_up[p] : down[p],
                                     kind == EXPERTS_BIAS ? ".bias" : ".weight");
            RETURN_IF_NOT_OK(weight_list_append(list, w, name, f));
        }
    return QOBS_OK;
}
