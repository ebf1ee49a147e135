/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads the results of the observers in the dtypes that a checkpoint stores. */
#include "activations/activation_scales.h"

#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "qobs/format.h"
#include "model/stored_qparams.h"

/* ---- Sources ----------------------------------------------------------------------------------------------------- */

int activation_sources_open(struct activation_sources *sources, const struct texts *states,
                            const struct texts *recordings, struct fail *f)
{
    struct fail reason;
    for (size_t i = 0; i < states->count; i++)
        RETURN_IF_NOT_OK(argument_failure("states", saved_states_add(&sources->states, states->items[i], f), f));
    for (size_t i = 0; i < recordings->count; i++)
        if (recordings_add(&sources->recordings, recordings->items[i], &reason) != 0)
            return report_failure(f, failure_status(&reason), "activations: %s", reason.message);
    return QOBS_OK;
}

void activation_sources_free(struct activation_sources *sources)
{
    recordings_free(&sources->recordings);
    saved_states_free(&sources->states);
}

void activation_scales_free(struct activation_scales *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->items[i].name);
        free(s->items[i].data);
    }
    free(s->items);
    activation_streams_free(&s->streams);
    activation_needs_free(&s->needs);
    *s = (struct activation_scales){0};
}

bool activation_sources_are_there(const struct activation_sources *sources)
{
    return saved_states_of_activations(&sources->states) || sources->recordings.count > 0;
}

void activation_sources_add_kv_cache(const struct activation_sources *sources, const struct weights *weights,
                                     struct quant_config *config)
{
    for (size_t i = 0; i < weights->count && !config->has_kv_cache; i++) {
        size_t length, count;
        if (!marks_attention(weights, &weights->items[i], &length))
            continue;
        for (enum activation_kind k = ACTIVATION_K; k <= ACTIVATION_V && !config->has_kv_cache; k++) {
            const struct tensor_ref *recorded = NULL;
            const char *module = weights->items[i].name, *suffix = activation_suffixes[k];
            if (!saved_states_find(&sources->states, module, length, suffix, &count) &&
                (recordings_find(&sources->recordings, module, length, suffix, &recorded, NULL) != 0 || !recorded))
                continue;
            config->has_kv_cache = true;
            config->kv_cache = (struct quant_args){.num_bits = 8,
                                                   .type = QUANT_FLOAT,
                                                   .symmetric = true,
                                                   .strategy = QUANT_TENSOR,
                                                   .observer = strdup("static_minmax")};
        }
    }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Stores a result as the checkpoint has it: scales in the dtype of the weight, to nearest with ties to even, or of the
 * scheme, zero points as codes, global scales as float. */
static int store(struct activation_scale *t, const struct activation_need *n, const char *result, const float *numbers,
                 size_t count, enum file_dtype weight_dtype, struct fail *f)
{
    const bool global = strcmp(result, "global_scale") == 0, zero_point = strcmp(result, "zero_point") == 0;
    const bool codes = zero_point || (!global && n->args->scale_dtype != FILE_NONE);
    t->dtype = global ? FILE_F32 : zero_point ? quant_code_dtype(n->args) : codes ? n->args->scale_dtype : weight_dtype;
    t->bytes = count * dtype_size(t->dtype);
    t->data = malloc(t->bytes + 1);
    if (!t->data)
        return NO_MEMORY(f, "a scale");
    if (codes)
        (zero_point ? stored_zero_points : stored_scales)(numbers, QOBS_F32, count, t->dtype, t->data);
    for (size_t i = 0; i < count && !codes; i++)
        stored_put_number((char *)t->data + i * dtype_size(t->dtype), dtype_in_library(t->dtype), (double)numbers[i]);
    return QOBS_OK;
}

/* Reads one result of a need's observer and adds its tensor. */
static int add_result(struct activation_scales *s, size_t need, const qobs_observer *observer, const char *result,
                      const struct weight *w, struct fail *f)
{
    const struct activation_need *n = &s->needs.items[need];
    qobs_result info = {.struct_size = sizeof info};
    qobs_error error = {0};
    struct activation_scale *t = list_add(&s->items, &s->count, sizeof *t);
    if (!t)
        return NO_MEMORY(f, "the scales");
    *t = (struct activation_scale){.weight = n->weight, .need = need};
    t->name = text_format("%.*s.%s_%s", (int)n->length, n->module, activation_bases[n->kind], result);
    if (!t->name)
        return NO_MEMORY(f, "the scales");
    size_t count;
    OWNED float *numbers = activation_numbers(observer, result, &info, &count, &error);
    if (!numbers)
        return report_failure(f, error.status, "%.200s: %s", t->name, error.message);
    t->ndim = info.ndim > 0 ? info.ndim : 1;
    t->shape[0] = 1;
    memcpy(t->shape, info.shape, (size_t)info.ndim * sizeof *t->shape);
    for (size_t i = 0; i < count && strcmp(result, "global_scale") == 0; i++)
        if (!(numbers[i] > 0))
            return INVALID(f, "%.200s: is %g; the activations are too large for it", t->name, (double)numbers[i]);
    return store(t, n, result, numbers, count, w->dtype, f);
}

/* Adds the tensors of one need: under dynamic "local" the global scale alone. */
static int add_results(struct activation_scales *s, size_t need, const qobs_observer *observer, const struct weight *w,
                       struct fail *f)
{
    const struct quant_args *a = s->needs.items[need].args;
    if (a->dynamic == QUANT_STATIC) {
        RETURN_IF_NOT_OK(add_result(s, need, observer, "scale", w, f));
        if (!a->symmetric)
            RETURN_IF_NOT_OK(add_result(s, need, observer, "zero_point", w, f));
    }
    return a->strategy == QUANT_TENSOR_GROUP ? add_result(s, need, observer, "global_scale", w, f) : QOBS_OK;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

/* Returns the name of the first group that stores scales of the inputs or outputs of layers. */
static const char *first_of_layers(const struct activation_needs *needs, const struct quant_config *config)
{
    for (size_t i = 0; i < needs->count; i++)
        for (size_t g = 0; g < config->group_count; g++)
            if (needs->items[i].args == &config->groups[g].inputs || needs->items[i].args == &config->groups[g].outputs)
                return config->groups[g].name;
    return "the scheme";
}

/* Decides whether there is anything to do: *needed. */
static int check_sources(const struct activation_scales *s, const struct activation_needs *needs,
                         const struct quant_config *config, qobs_compat compat, bool *needed, struct fail *f)
{
    bool layers = false;
    for (size_t i = 0; i < needs->count; i++)
        layers |= needs->items[i].kind <= ACTIVATION_OUTPUT;
    *needed = activation_sources_are_there(s->sources);
    if (*needed)
        return needs->count > 0 ? QOBS_OK
                                : INVALID(f, "activations: no scheme of this run stores scales of activations; FP8, "
                                             "NVFP4 and a kv_cache_scheme do");
    if (needs->count == 0 || (!layers && compat != QOBS_COMPAT_VLLM))
        return QOBS_OK;
    if (!layers)
        return INVALID(f, "kv_cache_scheme: has stored scales, which need recorded activations or states "
                          "(<attention>.k_states, .v_states)");
    return INVALID(f,
                   "%.40s needs scales of activations: --states DIR, which libqobs.calibration in Python saves, or "
                   "--activations DIR of python -m libqobs.record; FP8_DYNAMIC, W8A8 and NVFP4A16 need none",
                   first_of_layers(needs, config));
}

/* Fails if a kind that was requested is recorded for no module. */
static int check_kinds(struct activation_scales *s, const bool *requested, struct fail *f)
{
    for (enum activation_kind k = ACTIVATION_INPUT; k < ACTIVATION_KINDS; k++) {
        size_t modules = 0, recorded = 0;
        for (size_t i = 0; i < s->needs.count; i++)
            if (s->needs.items[i].kind == k) {
                modules++;
                recorded += s->streams.of_need[i] != NO_STREAM;
            }
        if (modules == 0 || recorded > 0)
            continue;
        if (k <= ACTIVATION_Q || requested[k])
            return INVALID(f,
                           "activations: nothing is recorded as <module>%s for any of %zu modules; the preset "
                           "%s=none leaves it out",
                           activation_suffixes[k], modules, activation_bases[k]);
        s->absent[k] = true;
    }
    return QOBS_OK;
}

static int find_all(struct activation_scales *s, const struct weights *weights, qobs_compat compat,
                    const struct activation_request *request, struct fail *f)
{
    const bool *requested = request->requested;
    RETURN_IF_NOT_OK(
        activation_streams_find(&s->streams, s->sources, &s->needs, weights, request->fill, requested != NULL, f));
    if (requested)
        RETURN_IF_NOT_OK(check_kinds(s, requested, f));
    s->bytes = s->streams.bytes;
    RETURN_IF_NOT_OK(activation_streams_observe(&s->streams, s->sources, request->runtime, &request->progress, f));
    if (compat == QOBS_COMPAT_VLLM)
        RETURN_IF_NOT_OK(activation_streams_fuse(&s->streams, &s->needs, weights, f));
    if (!requested || request->fill != QOBS_FILL_REFUSE)
        RETURN_IF_NOT_OK(activation_streams_fill(&s->streams, &s->needs, request->fill, &s->filled, f));
    for (size_t i = 0; i < s->needs.count; i++) {
        const size_t stream = s->streams.of_need[i];
        if (stream != NO_STREAM)
            RETURN_IF_NOT_OK(
                add_results(s, i, s->streams.items[stream].observer, &weights->items[s->needs.items[i].weight], f));
    }
    return QOBS_OK;
}

int activation_scales_find(struct activation_scales *s, struct activation_sources *sources,
                           const struct weights *weights, const struct quant_config *config,
                           const struct activation_request *request, struct fail *f)
{
    s->sources = sources;
    bool needed = activation_sources_are_there(sources);
    RETURN_IF_NOT_OK(activation_needs_list(&s->needs, weights, config, f));
    if (!request->requested)
        RETURN_IF_NOT_OK(check_sources(s, &s->needs, config, config->compat, &needed, f));
    return needed ? find_all(s, weights, config->compat, request, f) : QOBS_OK;
}
