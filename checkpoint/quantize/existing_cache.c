/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The quantization of keys and values belongs to no weight. It stays when every layer is quantized anew, in the form of
 * compressed-tensors: a kv_cache_scheme, and k_scale and v_scale of the module of attention (vLLM 0.32 and
 * compressed-tensors 0.19 read them there). */
#include "quantize/selection.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "files/json.h"
#include "files/text.h"

/* ---- The scheme ---------------------------------------------------------------------------------------------------
 */

static bool is_compressed_tensors(const json_object *quantization)
{
    return strcmp(json_text_of(quantization, "quant_method"), "compressed-tensors") == 0;
}

/* Returns true for the one scheme of ModelOpt that runtimes have under compressed-tensors: FP8 with stored scales. */
static bool is_fp8(const json_object *scheme)
{
    return json_number_of(scheme, "num_bits", 0) == 8 && strcmp(json_text_of(scheme, "type"), "float") == 0;
}

static json_object *make_fp8(void)
{
    json_object *scheme = json_object_new_object();
    if (json_put_count(scheme, "num_bits", 8) && json_put_text(scheme, "type", "float"))
        return scheme;
    json_object_put(scheme);
    return NULL;
}

/* Adds the members that vLLM reads and that compressed-tensors has as defaults. */
static bool complete(json_object *scheme)
{
    return scheme && (json_has(scheme, "symmetric") || json_put_bool(scheme, "symmetric", true)) &&
           (json_get(scheme, "strategy") || json_put_text(scheme, "strategy", "tensor")) &&
           (json_has(scheme, "dynamic") || json_put_bool(scheme, "dynamic", false));
}

/* Takes the scheme of a description. *name: that of a scheme that compressed-tensors does not have. */
static int take_scheme(json_object **scheme, const char **name, const json_object *quantization, struct fail *f)
{
    const json_object *stated = json_get(quantization, "kv_cache_scheme");
    const char *algorithm = json_text_of(quantization, "kv_cache_quant_algo");
    const bool states = json_is_object(stated), keeps = is_compressed_tensors(quantization) || is_fp8(stated);
    if (*scheme || (!states && !*algorithm))
        return QOBS_OK;
    if (states ? !keeps : strcasecmp(algorithm, "FP8") != 0) {
        *name = states ? "kv_cache_scheme" : algorithm;
        return QOBS_OK;
    }
    *scheme = states ? json_copy(stated) : make_fp8();
    return complete(*scheme) ? QOBS_OK : NO_MEMORY(f, "kv_cache_scheme");
}

/* ---- Names of scales ----------------------------------------------------------------------------------------------
 */

/* Projections of attention. Other formats name scales of keys and values after them. */
static const char projections[] = "q_proj k_proj v_proj qkv_proj qkqkv_proj";

/* Returns the name that the scale of a projection has in the module of attention; NULL: it is none. outputs:
 * output_scale is one, as vLLM's fp8 has it. *failed: no memory. */
static char *scale_name(const struct weight *w, bool outputs, bool *failed)
{
    const size_t part = component_start(w->name, strlen(w->name)), end = part > 0 ? part - 1 : 0;
    const size_t begin = component_start(w->name, end);
    const char *own = w->name + part;
    const bool output = outputs && strcmp(own, "output_scale") == 0 && end - begin == strlen("k_proj");
    char name[] = "k_scale";
    name[0] = w->name[begin];
    if (w->ndim > 1 || !are_one_of(w->name + begin, end - begin, projections) ||
        (!output && !weight_is_of_attention(w)))
        return NULL;
    char *text = text_format("%.*s%s", (int)begin, w->name, output ? name : own);
    *failed |= !text;
    return text;
}

static void rename_scale(struct weight *w, char *name)
{
    free(w->name);
    w->name = name;
    w->module = strlen(name);
}

/* Gives scales of keys and values the names and the shape that compressed-tensors has. */
static int rename_scales(struct weights *weights, bool outputs, struct fail *f)
{
    bool failed = false;
    for (size_t i = 0; i < weights->count && !failed; i++) {
        char *name = scale_name(&weights->items[i], outputs, &failed);
        if (name)
            rename_scale(&weights->items[i], name);
        if (weight_is_of_attention(&weights->items[i]) && weights->items[i].ndim == 0)
            weights->items[i].shape[weights->items[i].ndim++] = 1;
    }
    weights_sort(weights);
    const char *twice = named_twice(weights->items, weights->count, sizeof *weights->items);
    return failed  ? NO_MEMORY(f, "the list of tensors")
           : twice ? INVALID(f, "tensor '%.200s': is there under two names, one after a projection", twice)
                   : QOBS_OK;
}

/* ---- The selection
 * ----------------------------------------------------------------------------------------------------- */

struct descriptions {
    json_object *scheme;
    const char *unknown; /* a scheme that compressed-tensors does not have; NULL: none */
    bool any, fp8;       /* a configuration describes a quantization; one of the method fp8 */
};

static void release(struct descriptions *d) { json_object_put(d->scheme); }

static int read_descriptions(struct descriptions *d, const struct model *model, struct fail *f)
{
    for (size_t i = 0; i < model->config_count; i++) {
        const json_object *quantization = model_config_quantization(&model->configs[i]);
        d->any |= quantization != NULL;
        d->fp8 |= strcmp(json_text_of(quantization, "quant_method"), "fp8") == 0;
        RETURN_IF_NOT_OK(take_scheme(&d->scheme, &d->unknown, quantization, f));
    }
    return QOBS_OK;
}

static int drop_cache(struct selection *selection, const char *scheme, struct fail *f)
{
    selection->weights.drops_attention_scales = true;
    return quant_config_add_note(&selection->config, f,
                                 "%.60s of keys and values: compressed-tensors has no such scheme; it and its scales "
                                 "are left out",
                                 scheme);
}

int existing_config_keep_cache(struct selection *selection, struct fail *f)
{
    RELEASED_BY(release) struct descriptions d = {0};
    RETURN_IF_NOT_OK(read_descriptions(&d, &selection->inputs->model, f));
    if (!d.any || selection->existing_config || selection->config.has_kv_cache)
        return QOBS_OK;
    if (!d.scheme && d.unknown)
        return drop_cache(selection, d.unknown, f);
    RETURN_IF_NOT_OK(rename_scales(&selection->weights, d.fp8 || d.scheme, f));
    if (!d.scheme)
        return QOBS_OK;
    selection->existing_config = json_object_new_object();
    const bool made = json_put_object(selection->existing_config, "config_groups") &&
                      json_put(selection->existing_config, "kv_cache_scheme", json_object_get(d.scheme));
    return made ? QOBS_OK : NO_MEMORY(f, "kv_cache_scheme");
}
