/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The layouts of experts. Names say which tensors form a layer, their shapes together which dimension is which. */
#include "model/experts.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"

static const char blocks[] = "_blocks", scales[] = "_scales", weight[] = ".weight", joined[] = "gate_up_proj";

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static bool is_number(const char *text, size_t size)
{
    size_t n = 0;
    while (n < size && isdigit((unsigned char)text[n]))
        n++;
    return size > 0 && n == size;
}

static bool ends_in_experts(const char *name, size_t end)
{
    static const char word[] = "experts";
    const size_t begin = component_start(name, end), size = sizeof word - 1;
    return end - begin >= size && memcmp(name + end - size, word, size) == 0;
}

/* Returns the length of the name up to the last component that ends in "experts" if no number follows; 0: none. */
static size_t experts_module(const char *name, size_t length)
{
    for (size_t end = length; end > 0;) {
        const size_t begin = component_start(name, end);
        if (is_number(name + begin, end - begin))
            return 0;
        if (ends_in_experts(name, end))
            return end;
        end = begin > 0 ? begin - 1 : 0;
    }
    return 0;
}

size_t experts_layer(const char *module, size_t length, size_t *number)
{
    for (size_t end = length; end > 0;) {
        const size_t begin = component_start(module, end), layer = begin > 0 ? begin - 1 : 0;
        if (end < length && is_number(module + begin, end - begin) && ends_in_experts(module, layer)) {
            *number = end;
            return layer;
        }
        end = layer;
    }
    return 0;
}

/* Returns the name with the text [from, to) replaced by `text`. NULL: no memory. */
static char *replaced(const char *name, size_t from, size_t to, const char *text)
{
    return text_format("%.*s%s%s", (int)from, name, text, name + to);
}

/* Returns the stored tensor whose name has `text` in place of [from, to); NULL: there is none. */
static const struct st_tensor *sibling(const struct model *model, const char *name, size_t from, size_t to,
                                       const char *text)
{
    OWNED char *other = replaced(name, from, to, text);
    const struct model_tensor *found = other ? model_find(model, other) : NULL;
    return found ? found->stored : NULL;
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

/* The names of the tensors of a layer, each with three dimensions. */
enum { JOINED, SEPARATE, GRANITE, ARIA, LAYERS };
static const char *const layers[LAYERS][3] = {[JOINED] = {joined, "down_proj"},
                                              [SEPARATE] = {"gate_proj", "up_proj", "down_proj"},
                                              [GRANITE] = {"input_linear", "output_linear"},
                                              [ARIA] = {"fc1", "fc2"}};

/* A layer: its tensors in the order of the names. */
struct expert_layer {
    int kind; /* LAYERS: none */
    const struct st_tensor *tensors[3];
};

static struct expert_layer find_layer(const struct model *model, const char *name, const struct expert_listing *p)
{
    struct expert_layer l = {.kind = 0};
    for (; l.kind < LAYERS; l.kind++) {
        bool named = false, complete = true;
        for (int i = 0; i < 3 && layers[l.kind][i]; i++) {
            const char *word = layers[l.kind][i];
            named |= p->size == strlen(word) && memcmp(name + p->word, word, p->size) == 0;
            l.tensors[i] = sibling(model, name, p->word, p->word + p->size, word);
            complete &= l.tensors[i] && l.tensors[i]->ndim == 3;
        }
        if (named && complete)
            break;
    }
    return l;
}

static bool has_biases(const struct model *model, const char *name, const struct expert_listing *p)
{
    const size_t end = p->word + p->size;
    return sibling(model, name, end, strlen(name), "_bias") || sibling(model, name, end, strlen(name), ".bias");
}

enum order { ORDER_UNCLEAR, ORDER_ROWS, ORDER_COLUMNS };

/* gate_up_proj is twice as long as down_proj in one dimension and as long in the other: their shapes say which. */
static enum order order_of_joined(const int64_t *up, const int64_t *down)
{
    if (up[2] == down[1] && up[1] == 2 * down[2])
        return ORDER_ROWS;
    return up[1] == down[2] && up[2] == 2 * down[1] ? ORDER_COLUMNS : ORDER_UNCLEAR;
}

/* A projection of its own does not say which of its dimensions is hidden_size: the configurations do. */
static enum order order_of_separate(const struct model *model, const int64_t *up, const int64_t *down)
{
    if (up[2] != down[1] || up[1] != down[2])
        return ORDER_UNCLEAR;
    for (size_t i = 0; i < model->config_count; i++) {
        uint64_t size;
        if (json_integer(json_get(model->configs[i].object, "hidden_size"), &size) != 0)
            continue;
        if (((uint64_t)up[2] == size) != ((uint64_t)up[1] == size))
            return (uint64_t)up[2] == size ? ORDER_ROWS : ORDER_COLUMNS;
    }
    return ORDER_UNCLEAR;
}

static enum order order_of(const struct model *model, const struct expert_layer *l)
{
    const bool separate = l->kind == SEPARATE;
    const struct st_tensor *first = l->tensors[0], *down = l->tensors[separate ? 2 : 1];
    const bool alike = !separate || memcmp(first->shape, l->tensors[1]->shape, 3 * sizeof *first->shape) == 0;
    const bool numbers = dtype_is_in(first->dtype, HALVES_AND_FLOATS);
    if (!numbers || !alike || first->shape[0] != down->shape[0] || first->dtype != down->dtype)
        return ORDER_UNCLEAR;
    return separate ? order_of_separate(model, first->shape, down->shape) : order_of_joined(first->shape, down->shape);
}

/* Returns true if tensors <stem>_blocks and <stem>_scales are there as bytes of experts. */
static bool has_mxfp4(const struct model *model, const char *name, size_t stem)
{
    const struct st_tensor *b = sibling(model, name, stem, strlen(name), blocks);
    const struct st_tensor *s = sibling(model, name, stem, strlen(name), scales);
    return b && s && b->dtype == FILE_U8 && dtype_is_in(s->dtype, quant_format_row(QUANT_MXFP4_BLOCKS)->read.scales) &&
           b->ndim == 4 && s->ndim == 3;
}

/* Returns true for tensors of experts that form no known layer: more than two dimensions below a module called
 * "experts", or matrices there that are no weight of a module (DBRX: experts.mlp.w1). */
static bool is_unknown_layer(const struct st_tensor *s, size_t stem)
{
    if (experts_module(s->name, stem) == 0)
        return false;
    return s->ndim >= 3 || (s->ndim == 2 && s->name[stem] == '\0' && stem >= 3 && s->name[stem - 3] == '.' &&
                            isdigit((unsigned char)s->name[stem - 1]));
}

struct expert_listing experts_listing(const struct model *model, const struct architectures *found,
                                      const struct model_tensor *source, qobs_compat compat, bool split)
{
    const struct st_tensor *s = source->stored;
    const char *name = s->name;
    const size_t stem = module_length(name), length = strlen(name), tail = sizeof blocks - 1;
    struct expert_listing p = {.word = component_start(name, stem)};
    p.size = stem - p.word;
    if (compat != QOBS_COMPAT_VLLM) {
        const char *up = strstr(name, joined), *down = strstr(name, "down_proj"), *at = up ? up : down;
        if (!at || dtype_size(s->dtype) == 0 || (s->ndim != 3 && !(up && down && s->ndim >= 2)))
            return p;
        p.kind = EXPERTS_SPLIT;
        p.word = (size_t)(at - name);
        p.size = up ? sizeof joined - 1 : strlen("down_proj");
        p.both = up != NULL;
        return p;
    }
    if (ends_with(name, blocks) && has_mxfp4(model, name, length - tail))
        p.kind = EXPERTS_MXFP4;
    else if (ends_with(name, scales) && has_mxfp4(model, name, length - tail))
        p.kind = EXPERTS_SCALES;
    const enum module_kind kind = architecture_kind_of_experts(found, name, stem);
    if (kind == MODULE_ATTENTION && s->ndim == 2 && s->shape[0] % 3 == 0)
        p.kind = EXPERTS_ATTENTION;
    if (p.kind != EXPERTS_NONE)
        return p;
    const struct expert_layer l = s->ndim == 3 ? find_layer(model, name, &p) : (struct expert_layer){.kind = LAYERS};
    const bool stacked = kind == MODULE_STACKED_EXPERTS && l.kind < LAYERS;
    const bool known = l.kind == JOINED || l.kind == SEPARATE || stacked;
    p.why = stacked ? EXPERTS_STACKED : EXPERTS_WHOLE;
    if (!known || (stacked && !split) || kind == MODULE_EXPERTS || has_biases(model, name, &p)) {
        p.kind = l.kind < LAYERS || is_unknown_layer(s, stem) ? EXPERTS_LEFT : EXPERTS_NONE;
        return p;
    }
    const enum order order = order_of(model, &l);
    p.kind = order == ORDER_UNCLEAR ? EXPERTS_LEFT : EXPERTS_SPLIT;
    p.why = EXPERTS_UNCLEAR;
    p.transposed = order == ORDER_COLUMNS;
    p.down = l.kind != SEPARATE && p.size == strlen(layers[l.kind][1]) &&
             memcmp(name + p.word, layers[l.kind][1], p.size) == 0;
    p.both = l.kind != SEPARATE && !p.down;
    p.nested = p.word > 0 && !ends_in_experts(name, p.word - 1);
    return p;
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

static int check_even(const struct st_tensor *s, int dimension, struct fail *f)
{
    if (s->shape[dimension] % 2 == 0)
        return QOBS_OK;
    return INVALID(f,
                   "tensor '%.200s': gate_proj and up_proj share dimension %d, which has %" PRId64
                   " elements; an even number is needed",
                   s->name, dimension, s->shape[dimension]);
}

/* The matrix of part `part` of `parts` of one expert. */
static struct weight of_expert(const struct model_tensor *source, int64_t expert, bool transposed, int64_t part,
                               int64_t parts)
{
    const struct st_tensor *s = source->stored;
    const int64_t element = (int64_t)dtype_size(s->dtype), rows = s->shape[1], columns = s->shape[2];
    const int64_t out = (transposed ? columns : rows) / parts, in = transposed ? rows : columns;
    struct weight w = {.source = source, .dtype = s->dtype, .ndim = 2, .shape = {out, in}, .experts = EXPERTS_OF_ONE};
    w.row_bytes = transposed ? element : columns * element;
    w.column_bytes = transposed ? columns * element : element;
    w.data = (const unsigned char *)s->data + expert * rows * columns * element + part * out * w.row_bytes;
    w.bytes = (uint64_t)(out * in * element);
    return w;
}

static int list_split(struct weights *list, const struct model_tensor *source, const struct expert_listing *p,
                      struct fail *f)
{
    static const char *const gate_up[] = {"gate_proj", "up_proj"};
    const struct st_tensor *s = source->stored;
    if (p->both && strstr(s->name, "down_proj"))
        return INVALID(f, "tensor '%.200s': its name has gate_up_proj and down_proj, so that it cannot be split",
                       s->name);
    if (p->both)
        RETURN_IF_NOT_OK(check_even(s, p->transposed ? 2 : 1, f));
    for (int64_t e = 0; e < s->shape[0]; e++)
        for (int64_t part = 0; part < 1 + p->both; part++) {
            const char *own = p->both ? gate_up[part] : p->down ? "down_proj" : s->name + p->word;
            const int size = p->both || p->down ? (int)strlen(own) : (int)p->size;
            char *name =
                text_format("%.*s%s%" PRId64 ".%.*s%s%s", (int)p->word, s->name, p->nested ? "experts." : "", e, size,
                            own, s->name + p->word + p->size, ends_with(s->name, weight) ? "" : weight);
            const struct weight w = of_expert(source, e, p->transposed, part, 1 + p->both);
            RETURN_IF_NOT_OK(weights_append(list, w, name, f));
        }
    return QOBS_OK;
}

static int list_attention(struct weights *list, const struct model_tensor *source, const struct expert_listing *p,
                          struct fail *f)
{
    static const char *const names[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight"};
    for (int64_t i = 0; i < 3; i++) {
        struct weight w = weight_of_tensor(source);
        w.shape[0] /= 3;
        w.bytes /= 3;
        w.data += i * w.shape[0] * w.row_bytes;
        w.experts = EXPERTS_OF_ONE;
        char *name = replaced(source->stored->name, p->word, p->word + p->size, names[i]);
        RETURN_IF_NOT_OK(weights_append(list, w, name, f));
    }
    return QOBS_OK;
}

static int check_mxfp4(const struct st_tensor *s, const struct st_tensor *exponents, struct fail *f)
{
    bool fits = s->shape[3] == 16;
    for (int d = 0; d < 3; d++)
        fits &= exponents->shape[d] == s->shape[d];
    if (fits)
        return QOBS_OK;
    return INVALID(
        f, "tensor '%.150s': has shape %s, and its scales %s; [E,rows,groups,16] and [E,rows,groups] are needed",
        s->name, SHAPE_WORDS(s->ndim, s->shape), SHAPE_WORDS(exponents->ndim, exponents->shape));
}

/* The tensor [E, in, out] that gpt-oss has in BF16. */
static int list_mxfp4(struct weights *list, const struct model *model, const struct model_tensor *source,
                      struct fail *f)
{
    const struct st_tensor *s = source->stored;
    const size_t stem = strlen(s->name) - strlen(blocks);
    const struct st_tensor *exponents = sibling(model, s->name, stem, strlen(s->name), scales);
    struct weight w = {.source = source, .dtype = FILE_BF16, .ndim = 3, .data = s->data, .experts = EXPERTS_WHOLE};
    w.source_codes = (struct source_codes){.format = quant_format_row(QUANT_MXFP4_BLOCKS),
                                           .bits = quant_format_row(QUANT_MXFP4_BLOCKS)->code.bits,
                                           .scales = exponents,
                                           .block = {1, 32},
                                           .scale_columns = s->shape[2],
                                           .row_step = 1};
    RETURN_IF_NOT_OK(check_mxfp4(s, exponents, f));
    w.shape[0] = s->shape[0];
    w.shape[1] = 32 * s->shape[2];
    w.shape[2] = s->shape[1];
    w.bytes = 2 * (uint64_t)(w.shape[0] * w.shape[1] * w.shape[2]);
    return weights_append(list, w, replaced(s->name, stem, strlen(s->name), ""), f);
}

int experts_list(struct weights *list, const struct model *model, const struct model_tensor *source,
                 const struct expert_listing *listing, struct fail *f)
{
    switch (listing->kind) {
    case EXPERTS_SPLIT:
        return list_split(list, source, listing, f);
    case EXPERTS_ATTENTION:
        return list_attention(list, source, listing, f);
    case EXPERTS_MXFP4:
        return list_mxfp4(list, model, source, f);
    case EXPERTS_LEFT: {
        struct weight w = weight_of_tensor(source);
        w.experts = listing->why;
        return weights_append(list, w, strdup(source->stored->name), f);
    }
    default:
        return QOBS_OK;
    }
}

/* ---- Whole or not at all ----------------------------------------------------------------------------------------- */

static bool is_attention(const struct weight *w)
{
    return w->experts == EXPERTS_OF_ONE && w->source->stored->ndim == 2;
}

/* Fails for a layer that is quantized in part, the first of `count`. */
static int refuse(const struct weight *taken, const struct weight *other, size_t layer, size_t count, struct fail *f)
{
    char layers[48] = "";
    if (count > 1)
        snprintf(layers, sizeof layers, ", the first of %zu layers", count);
    const char *what = is_attention(taken) ? "attention" : "experts", *name = taken->name;
    const char *one = name + layer + 1, *two = other->name + layer + 1;
    const size_t last = component_start(name, layer);
    if (other->reason == WEIGHT_TAKEN)
        return INVALID(f,
                       "%s of '%.*s'%s: '%.80s' and '%.80s' get different schemes; runtimes load a layer of %s in one",
                       what, (int)layer, name, layers, one, two, what);
    return INVALID(f,
                   "%s of '%.*s'%s: '%.80s' would be quantized and '%.80s' not; runtimes load a layer of %s whole. "
                   "--ignore 're:.*%.*s.*' leaves all of them out",
                   what, (int)layer, name, layers, one, two, what, (int)(layer - last), name + last);
}

/* Returns the length of the name of the weight's layer, all of which is quantized or none; 0: it is in none. */
static size_t layer_of(const struct weight *w)
{
    size_t number;
    if (w->ndim != 2 || w->module == strlen(w->name))
        return 0;
    return is_attention(w) ? component_start(w->name, w->module) - 1 : experts_layer(w->name, w->module, &number);
}

int experts_check_layers(const struct weights *weights, struct fail *f)
{
    const struct weight *first = NULL, *refused[2] = {NULL, NULL};
    size_t layer = 0, refused_layer = 0, count = 0;
    bool counted = false;
    for (size_t i = 0; i < weights->count; i++) { /* sorted: a layer is one run of names, with others between */
        const struct weight *w = &weights->items[i];
        const size_t length = layer_of(w);
        if (length == 0)
            continue;
        if (!first || length != layer || memcmp(first->name, w->name, layer) != 0) {
            first = w;
            layer = length;
            counted = false;
            continue;
        }
        const bool taken = w->reason == WEIGHT_TAKEN;
        if (counted || (taken == (first->reason == WEIGHT_TAKEN) && !(taken && w->group != first->group)))
            continue;
        counted = true;
        if (count++ == 0) {
            refused[0] = taken ? w : first;
            refused[1] = taken ? first : w;
            refused_layer = layer;
        }
    }
    return count == 0 ? QOBS_OK : refuse(refused[0], refused[1], refused_layer, count, f);
}

static bool stays_split(const struct architectures *found, const struct weight *w)
{
    const char *source = w->source->stored->name;
    return w->reason == WEIGHT_TAKEN ||
           architecture_kind_of_experts(found, source, module_length(source)) == MODULE_SINGLE_EXPERTS;
}

int experts_join(struct weights *weights, const struct architectures *found, struct fail *f)
{
    size_t kept = 0;
    for (size_t i = 0; i < weights->count; i++) {
        struct weight *w = &weights->items[i];
        if (w->experts != EXPERTS_OF_ONE || stays_split(found, w)) {
            weights->items[kept++] = *w;
            continue;
        }
        if (w->data != w->source->stored->data) { /* not the first matrix of its tensor */
            free(w->name);
            continue;
        }
        struct weight whole = weight_of_tensor(w->source);
        whole.reason = w->reason;
        whole.experts = is_attention(w) ? EXPERTS_ABSENT : EXPERTS_WHOLE;
        whole.name = strdup(w->source->stored->name);
        free(w->name);
        if (!whole.name) {
            memmove(&weights->items[kept], &weights->items[i + 1], (weights->count - i - 1) * sizeof *w);
            weights->count -= i + 1 - kept;
            return NO_MEMORY(f, "the list of tensors");
        }
        whole.module = module_length(whole.name);
        weights->items[kept++] = whole;
    }
    weights->count = kept;
    weights_sort(weights);
    return QOBS_OK;
}

/* ---- Names of experts that stay ---------------------------------------------------------------------------------- */

/* Writes "re:", `before`, the text with its dots in brackets, and `after`. */
static void put_pattern(char *out, size_t size, const char *before, const char *text, size_t length, const char *after)
{
    int n = snprintf(out, size, "re:%s", before);
    for (size_t i = 0; i < length; i++)
        n += snprintf(out + n, size - (size_t)n, text[i] == '.' ? "[.]" : "%c", text[i]);
    snprintf(out + n, size - (size_t)n, "%s", after);
}

bool experts_ignored_as(const struct weight *w, size_t index, struct expert_entry *e)
{
    const size_t stem = w->module < 240 ? w->module : 240, module = experts_module(w->name, stem);
    const size_t begin = component_start(w->name, stem), parent = begin > 0 ? begin - 1 : 0;
    const size_t from = component_start(w->name, module > 0 ? module : parent);
    if (index > 1 || (index == 1 && module > 0))
        return false;
    if (module > 0) { /* <module>.0.gate_proj, <module>.gate_up_proj */
        snprintf(e->name, sizeof e->name, "%.*s.0.gate_proj", (int)module, w->name);
        put_pattern(e->everywhere, sizeof e->everywhere, "(.*[.])?", w->name + from, module - from, "([.].*)?$");
        put_pattern(e->here, sizeof e->here, "", w->name, module, "([.].*)?$");
    } else if (index == 0) { /* <parent>.input_linear, as the file has it */
        snprintf(e->name, sizeof e->name, "%.*s", (int)stem, w->name);
        put_pattern(e->everywhere, sizeof e->everywhere, "(.*[.])?", w->name + from, stem - from, "$");
        snprintf(e->here, sizeof e->here, "%s", e->name);
    } else { /* <parent>.experts.0.gate_proj, as vLLM has it */
        snprintf(e->name, sizeof e->name, "%.*s.experts.0.gate_proj", (int)parent, w->name);
        put_pattern(e->everywhere, sizeof e->everywhere, "(.*[.])?", w->name + from, parent - from,
                    "[.]experts([.].*)?$");
        put_pattern(e->here, sizeof e->here, "", w->name, parent, "[.]experts([.].*)?$");
    }
    return true;
}
