/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One scale of a tensor has one name and one meaning in all formats. Global scales of e2m1 divide in compressed-tensors
 * and multiply in Model-Optimizer's files, under the name of a scale. */
#include "quantize/source_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/stated_schemes.h"
#include "model/stored_qparams.h"

/* A need, and the tensor that serves it. */
struct source_input {
    const struct activation_need *need;
    const struct weight *weight;
    const struct st_tensor *stored;
    unsigned char number[4];
};

/* Returns the tensor <module>.<part>; NULL: none. */
static const struct st_tensor *part_of(const struct model *m, const struct weight *w, const char *part)
{
    OWNED char *name = text_format("%.*s.%s", (int)w->module, w->name, part);
    const struct model_tensor *found = name ? model_find(m, name) : NULL;
    return found ? found->stored : NULL;
}

static bool is_global(const struct activation_need *n) { return n->args->strategy == QUANT_TENSOR_GROUP; }

/* Returns true if the global scale of the source multiplies. */
static bool multiplies(const struct weight *w) { return w->source_codes.format->modelopt.input_scale; }

static int add(struct activation_scales *s, const struct source_input *in, const char *part, float global,
               struct fail *f)
{
    struct activation_scale *t = list_add(&s->items, &s->count, sizeof *t);
    if (!t)
        return NO_MEMORY(f, "the scales");
    *t = (struct activation_scale){.dtype = global > 0 ? FILE_F32 : in->stored->dtype,
                                   .ndim = 1,
                                   .shape = {1},
                                   .weight = in->need->weight,
                                   .need = (size_t)(in->need - s->needs.items)};
    t->bytes = dtype_size(t->dtype);
    t->name = text_format("%.*s.%s", (int)in->weight->module, in->weight->name, part);
    t->data = malloc(t->bytes);
    if (!t->name || !t->data)
        return NO_MEMORY(f, "the scales");
    if (global > 0)
        memcpy(t->data, &global, sizeof global);
    else
        memcpy(t->data, in->number, t->bytes);
    return QOBS_OK;
}

static int read_number(struct source_input *in, file_dtypes dtypes, struct fail *f)
{
    const struct st_tensor *t = in->stored;
    if (!dtype_is_in(t->dtype, dtypes) || t->end - t->begin != dtype_size(t->dtype))
        return INVALID(f, "tensor '%.200s': is %s %s; one number of %s is needed", t->name, dtype_name(t->dtype),
                       SHAPE_WORDS(t->ndim, t->shape), DTYPE_WORDS(dtypes));
    RETURN_IF_NOT_OK(st_borrow(t, f));
    memcpy(in->number, t->data, dtype_size(t->dtype));
    st_release(t);
    return QOBS_OK;
}

/* Reads a scale. It is above 0 and finite. */
static int read_scale(float *scale, struct source_input *in, struct fail *f)
{
    RETURN_IF_NOT_OK(read_number(in, is_global(in->need) ? IN_FILE(F32) : HALVES_AND_FLOATS, f));
    *scale = (float)number_at(in->number, dtype_in_library(in->stored->dtype));
    return *scale > 0 && isfinite(*scale)
               ? QOBS_OK
               : INVALID(f, "tensor '%.200s': is %g; a scale above 0 is needed", in->stored->name, (double)*scale);
}

static int add_scales(struct activation_scales *s, struct source_input *in, const struct model *m, struct fail *f)
{
    float scale;
    RETURN_IF_NOT_OK(read_scale(&scale, in, f));
    if (is_global(in->need)) {
        RETURN_IF_NOT_OK(add(s, in, "input_global_scale", multiplies(in->weight) ? 1 / scale : scale, f));
        s->items[s->count - 1].factor = multiplies(in->weight) ? scale : 0;
        return QOBS_OK;
    }
    RETURN_IF_NOT_OK(add(s, in, "input_scale", 0, f));
    if (in->need->args->symmetric)
        return QOBS_OK;
    in->stored = part_of(m, in->weight, "input_zero_point");
    if (!in->stored)
        return INVALID(f, "%.200s: has no input_zero_point, which its scheme needs", in->weight->name);
    RETURN_IF_NOT_OK(read_number(in, IN_FILE(I8), f));
    return add(s, in, "input_zero_point", 0, f);
}

/* Returns true if the inputs of a need are quantized alike by the configuration of the model, with one scale. */
static bool is_stated(const struct activation_need *n, const struct weight *w, const struct quant_config *config,
                      const struct quant_matchers *targets)
{
    bool by_class;
    const struct quant_group *g = stated_group(config, targets, w->name, w->module, &by_class);
    const struct quant_args *a = n->args;
    return n->kind == ACTIVATION_INPUT && w->source_codes.format && g && g->has_inputs &&
           (a->strategy == QUANT_TENSOR || a->strategy == QUANT_TENSOR_GROUP) && quant_args_alike(&g->inputs, a);
}

static int find_all(struct activation_scales *s, const struct selection *sel, const struct quant_config *stated,
                    const struct quant_matchers *targets, bool *found, struct fail *f)
{
    const struct model *m = &sel->inputs->model;
    for (size_t i = 0; i < s->needs.count; i++) {
        const struct activation_need *n = &s->needs.items[i];
        if (!is_stated(n, &sel->weights.items[n->weight], stated, targets))
            return QOBS_OK;
    }
    *found = s->needs.count > 0;
    for (size_t i = 0; i < s->needs.count; i++) {
        struct source_input in = {&s->needs.items[i], &sel->weights.items[s->needs.items[i].weight], NULL, {0}};
        const char *part = is_global(in.need) && !multiplies(in.weight) ? "input_global_scale" : "input_scale";
        in.stored = part_of(m, in.weight, part);
        if (!in.stored)
            return INVALID(f,
                           "%.200s: has no %s, which the scheme of the model stores; qobs audit --fix gives it that of "
                           "a layer with the same input, --states or --activations new ones",
                           in.weight->name, part);
        RETURN_IF_NOT_OK(add_scales(s, &in, m, f));
    }
    return QOBS_OK;
}

int source_inputs_find(struct activation_scales *s, const struct selection *sel, bool *found, struct fail *f)
{
    RELEASED_BY(quant_config_free) struct quant_config stated = {0};
    RELEASED_BY(quant_matchers_free) struct quant_matchers targets = {0};
    const char *maker;
    struct fail reason;
    *found = false;
    if (sel->config.compat != QOBS_COMPAT_VLLM || activation_sources_are_there(&sel->inputs->sources))
        return QOBS_OK;
    if (stated_schemes_read(&stated, &maker, &sel->inputs->model, &reason) != QOBS_OK || stated.group_count == 0)
        return QOBS_OK;
    RETURN_IF_NOT_OK(quant_matchers_create(&targets, &stated, f));
    RETURN_IF_NOT_OK(activation_needs_list(&s->needs, &sel->weights, &sel->config, f));
    RETURN_IF_NOT_OK(find_all(s, sel, &stated, &targets, found, f));
    if (!*found)
        activation_needs_free(&s->needs);
    return QOBS_OK;
}

static bool stores_inputs(const struct quant_group *g) { return g->has_inputs && g->inputs.dynamic != QUANT_DYNAMIC; }

int source_inputs_note_dropped(struct selection *sel, struct fail *f)
{
    const struct weight *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < sel->weights.count; i++) {
        const struct weight *w = &sel->weights.items[i];
        if (w->reason != WEIGHT_TAKEN || !w->source_codes.format || stores_inputs(&sel->config.groups[w->group]) ||
            (!part_of(&sel->inputs->model, w, "input_scale") && !part_of(&sel->inputs->model, w, "input_global_scale")))
            continue;
        first = first ? first : w;
        count++;
    }
    if (count == 0)
        return QOBS_OK;
    return quant_config_add_note(&sel->config, f,
                                 "scales of inputs of %zu layers, such as '%.*s', are left out: %.60s stores none",
                                 count, (int)first->module, first->name, sel->config.groups[first->group].name);
}
