/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names inputs and options that a run has not used. */
#include <string.h>

#include "model/experts.h"
#include "quantize/run.h"

static bool uses_states(const struct quantize_run *run)
{
    const struct activation_streams *s = &run->activations.streams;
    for (size_t i = 0; i < s->count; i++)
        if (s->items[i].states)
            return true;
    return run->weighted > 0 && run->args->importance_count == 0;
}

static bool uses_recordings(const struct quantize_run *run)
{
    const struct activation_streams *s = &run->activations.streams;
    for (size_t i = 0; i < s->count; i++)
        if (s->items[i].recorded)
            return true;
    return false;
}

static bool stores_scales_of_experts(const struct quantize_run *run)
{
    const struct activation_needs *n = &run->activations.needs;
    size_t number;
    for (size_t i = 0; i < n->count; i++)
        if (experts_layer(n->items[i].module, n->items[i].length, &number) > 0)
            return true;
    return false;
}

/* Returns true if experts are split that otherwise stay in one tensor. */
static bool splits_experts(const struct quantize_run *run)
{
    for (size_t i = 0; i < run->weights.count; i++) {
        const struct weight *w = &run->weights.items[i];
        const char *source = w->source->stored->name;
        if (w->experts == EXPERTS_OF_ONE &&
            architecture_kind_of_experts(&run->architectures, source, module_length(source)) == MODULE_STACKED_EXPERTS)
            return true;
    }
    return false;
}

int run_name_unused_inputs(struct quantize_run *run, struct fail *f)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    struct quant_config *config = &run->config;
    char missing[400];
    const bool named = run_lacks_importance(run, missing, sizeof missing);
    if (a->part > 1) /* the first part tells */
        return QOBS_OK;
    if (a->state_count > 0 && !uses_states(run) && !named)
        RETURN_IF_NOT_OK(quant_config_add_unused(config, f,
                                                 "states: nothing in them is used: no scheme of this run stores scales "
                                                 "that they are of, and no observer weighs columns by them; "
                                                 "--preset qobs.imatrix_optimal does by mean squares, "
                                                 "qobs.local_hessian by a Hessian"));
    if (a->activation_count > 0 && !uses_recordings(run))
        RETURN_IF_NOT_OK(quant_config_add_unused(config, f,
                                                 "activations: nothing in them is used: no scheme of this run stores "
                                                 "scales of activations; FP8, W8A8_STATIC, NVFP4 and a "
                                                 "kv_cache_scheme do"));
    if (a->fill_experts != QOBS_FILL_REFUSE && !stores_scales_of_experts(run))
        RETURN_IF_NOT_OK(quant_config_add_note(config, f,
                                               "fill_experts: changes nothing: no scale of an expert's activations is "
                                               "stored"));
    if (a->split_experts && !splits_experts(run))
        RETURN_IF_NOT_OK(quant_config_add_note(config, f,
                                               "split_experts: changes nothing: the model has no experts that "
                                               "vLLM alone loads one by one, or they are left out"));
    return QOBS_OK;
}
