/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names inputs and options that a run has not used. */
#include <string.h>

#include "model/experts.h"
#include "quantize/unused.h"

static bool uses_states(const struct unused_inputs *u)
{
    const struct activation_streams *s = &u->activations->streams;
    for (size_t i = 0; i < s->count; i++)
        if (s->items[i].states)
            return true;
    return u->engine->weighted > 0 && u->paths->importance.count == 0;
}

static bool uses_recordings(const struct activation_streams *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->items[i].recorded)
            return true;
    return false;
}

static bool stores_scales_of_experts(const struct activation_needs *n)
{
    size_t number;
    for (size_t i = 0; i < n->count; i++)
        if (experts_layer(n->items[i].module, n->items[i].length, &number) > 0)
            return true;
    return false;
}

/* Returns true if experts are split that otherwise stay in one tensor. */
static bool splits_experts(const struct selection *selection)
{
    for (size_t i = 0; i < selection->weights.count; i++) {
        const struct weight *w = &selection->weights.items[i];
        const char *source = w->source->stored->name;
        if (w->experts == EXPERTS_OF_ONE &&
            architecture_kind_of_experts(&selection->inputs->architectures, source, module_length(source)) ==
                MODULE_STACKED_EXPERTS)
            return true;
    }
    return false;
}

int inputs_name_unused(const struct unused_inputs *u, struct fail *f)
{
    struct quant_config *config = &u->selection->config;
    char missing[400];
    const bool named = engine_lacks_importance(u->engine, missing, sizeof missing);
    if (u->selection->silent)
        return QOBS_OK;
    if (u->paths->states.count > 0 && !uses_states(u) && !named)
        RETURN_IF_NOT_OK(quant_config_add_unused(config, f,
                                                 "states: nothing in them is used: no scheme of this run stores scales "
                                                 "that they are of, and no observer weighs columns by them; "
                                                 "--preset qobs.imatrix_optimal does by mean squares, "
                                                 "qobs.local_hessian by a Hessian"));
    if (u->paths->activations.count > 0 && !uses_recordings(&u->activations->streams))
        RETURN_IF_NOT_OK(quant_config_add_unused(config, f,
                                                 "activations: nothing in them is used: no scheme of this run stores "
                                                 "scales of activations; FP8, W8A8_STATIC, NVFP4 and a "
                                                 "kv_cache_scheme do"));
    if (u->fill_experts != QOBS_FILL_REFUSE && !stores_scales_of_experts(&u->activations->needs))
        RETURN_IF_NOT_OK(quant_config_add_note(config, f,
                                               "fill_experts: changes nothing: no scale of an expert's activations is "
                                               "stored"));
    if (u->selection->choice->split_experts && !splits_experts(u->selection))
        RETURN_IF_NOT_OK(quant_config_add_note(config, f,
                                               "split_experts: changes nothing: the model has no experts that "
                                               "vLLM alone loads one by one, or they are left out"));
    return QOBS_OK;
}
