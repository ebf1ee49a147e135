/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The row of the dialect says which members there are. */
#include "quantize/dialect_config.h"

#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "files/text.h"
#include "model/stored_qparams.h"
#include "schemes/dialects.h"
#include "schemes/match.h"

#define KV_CACHE "{\"dynamic\": false, \"num_bits\": 8, \"type\": \"float\"}"

/* Returns true if a runtime would take the weight for a quantized layer if nothing excluded it. */
static bool is_excluded(const struct selection *s, const struct matcher *ignore, const struct weight *w)
{
    return w->reason != WEIGHT_TAKEN && w->ndim == 2 && w->module < strlen(w->name) &&
           architecture_kind(&s->inputs->architectures, w->name, w->module, w->shape[0]) != MODULE_TABLE &&
           matcher_find(ignore, w->name, w->module) >= 0;
}

static int make_ignore(struct matcher **ignore, const struct quant_config *c, struct fail *f)
{
    return matcher_create(ignore, (const char *const *)c->ignore, c->ignore_count, "ignore", f);
}

/* Returns the first quantized weight in whose module's name the name of another module is; NULL: none. */
static const struct weight *find_within(const struct weights *all, const struct weight *excluded)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct weight *w = &all->items[i];
        for (size_t k = 0; w->reason == WEIGHT_TAKEN && k + excluded->module <= w->module; k++)
            if (memcmp(w->name + k, excluded->name, excluded->module) == 0)
                return w;
    }
    return NULL;
}

int dialect_config_check(const struct selection *s, struct fail *f)
{
    const struct dialect_row *d = s->config.dialect;
    OWNED_MATCHER struct matcher *ignore = NULL;
    if (!d)
        return QOBS_OK;
    if (s->existing_config)
        return INVALID(f,
                       "dialect: %s cannot describe what stays of the model's quantization_config, layers that nothing "
                       "quantizes anew or scales of keys and values; --dialect " DIALECT_DEFAULT " does",
                       d->name);
    RETURN_IF_NOT_OK(make_ignore(&ignore, &s->config, f));
    for (size_t i = 0; i < s->weights.count && !d->config.patterns; i++) {
        const struct weight *w = &s->weights.items[i];
        const struct weight *within = is_excluded(s, ignore, w) ? find_within(&s->weights, w) : NULL;
        if (within)
            return INVALID(f,
                           "dialect: %s excludes layers by a part of their names, and '%.*s', which stays, is in "
                           "'%.*s', which does not; --dialect " DIALECT_DEFAULT " excludes whole names",
                           d->name, (int)w->module, w->name, (int)within->module, within->name);
    }
    return QOBS_OK;
}

/* Adds "-:^NAME$", with the characters of the name as they are. */
static bool put_pattern(json_object *list, const struct weight *w)
{
    OWNED char *pattern = malloc(2 * w->module + sizeof "-:^$");
    if (!pattern)
        return false;
    char *to = pattern + sizeof "-:^" - 1;
    memcpy(pattern, "-:^", sizeof "-:^");
    for (size_t i = 0; i < w->module; i++) {
        if (strchr(".[]()+?^$|\\{}*", w->name[i]))
            *to++ = '\\';
        *to++ = w->name[i];
    }
    memcpy(to, "$", sizeof "$");
    return json_put_object(list, pattern) != NULL;
}

static bool put_excluded(json_object *json, const char *key, const struct selection *s)
{
    OWNED_MATCHER struct matcher *ignore = NULL;
    struct fail f;
    const bool patterns = s->config.dialect->config.patterns;
    json_object *list = patterns ? json_put_object(json, key) : json_put_array(json, key);
    bool complete = list && make_ignore(&ignore, &s->config, &f) == QOBS_OK;
    for (size_t i = 0; complete && i < s->weights.count; i++) {
        const struct weight *w = &s->weights.items[i];
        if (is_excluded(s, ignore, w))
            complete = patterns ? put_pattern(list, w)
                                : json_append(list, json_object_new_string_len(w->name, (int)w->module));
    }
    return complete;
}

/* Adds the members of a text of JSON. */
static bool put_members(json_object *json, const char *members)
{
    OWNED_JSON json_object *from = NULL;
    bool complete = !members || json_parse_value(&from, members) == 0;
    json_each(item, from) complete = complete && json_put(json, item.key, json_object_get(item.value));
    return complete;
}

static bool put_integers(json_object *json, const struct selection *s)
{
    const struct dialect_row *d = s->config.dialect;
    const struct quant_args *a = &s->config.groups->weights;
    return json_put_count(json, d->config.bits, (uint64_t)a->num_bits) &&
           json_put(json, "group_size", json_object_new_int64(a->strategy == QUANT_CHANNEL ? -1 : a->group_size)) &&
           (!d->config.symmetric || json_put_bool(json, d->config.symmetric, a->symmetric));
}

/* Adds the algorithm, if it has a name, and its groups. */
static bool put_algorithm(json_object *json, const struct dialect_form *form)
{
    return !form->algorithm ||
           (json_put_text(json, "quant_algo", form->algorithm) &&
            (form->group_size == 0 || json_put_count(json, "group_size", (uint64_t)form->group_size)));
}

json_object *dialect_config_json(const struct selection *s)
{
    const struct dialect_row *d = s->config.dialect;
    const struct dialect_form *form = dialect_form(d, s->config.groups);
    json_object *json = json_object_new_object();
    if (json && put_members(json, form->members) && put_members(json, d->config.members) &&
        (d->config.bits ? put_integers(json, s) : put_algorithm(json, form)) &&
        (!s->config.has_kv_cache || put_members(json, "{\"kv_cache_scheme\": " KV_CACHE "}")) &&
        put_excluded(json, d->config.excluded, s))
        return json;
    json_object_put(json);
    return NULL;
}

json_object *dialect_file_json(const struct selection *s)
{
    json_object *json = json_object_new_object();
    json_object *quantization = NULL;
    if (json && put_members(json, s->config.dialect->config.members)) {
        json_object_object_del(json, "quant_method");
        quantization = json_put_object(json, "quantization");
    }
    if (quantization && put_algorithm(quantization, dialect_form(s->config.dialect, s->config.groups)) &&
        (s->config.has_kv_cache ? json_put_text(quantization, "kv_cache_quant_algo", "FP8")
                                : json_put(quantization, "kv_cache_quant_algo", NULL)) &&
        put_excluded(quantization, "exclude_modules", s))
        return json;
    json_object_put(json);
    return NULL;
}

/* ---- Scales of activations --------------------------------------------------------------------------------------- */

/* Returns the name of a scale: Model-Optimizer puts those of keys and values below their layers. */
static char *name_of(const struct activation_scale *a, const struct activation_need *need, const struct weight *w,
                     const char *part, const struct weights *all)
{
    if (need->kind == ACTIVATION_INPUT)
        return text_format("%.*s.%s", (int)w->module, w->name, part);
    const char *base = activation_bases[need->kind];
    OWNED char *layer = text_format("%.*s.%s_proj.weight", (int)need->length, need->module, base);
    return layer && weights_find(all, layer)
               ? text_format("%.*s.%s_proj.%s_scale", (int)need->length, need->module, base, base)
               : strdup(a->name);
}

/* Global scales of inputs divide, and these multiply. Takes the name. */
static int convert(struct activation_scale *a, char *name, struct fail *f)
{
    const bool global = ends_with(a->name, "_global_scale");
    const double number = number_of(a->data, dtype_in_library(a->dtype), 0);
    const float stored = a->factor > 0 ? a->factor : (float)(global ? 1 / number : number);
    void *data = malloc(sizeof stored);
    if (!name || !data) {
        free(name);
        free(data);
        return NO_MEMORY(f, "the scales");
    }
    memcpy(data, &stored, sizeof stored);
    free(a->name);
    free(a->data);
    a->name = name;
    a->data = data;
    a->dtype = FILE_F32;
    a->bytes = sizeof stored;
    a->ndim = 0;
    return QOBS_OK;
}

int dialect_convert_activations(struct activation_scales *activations, const struct selection *s, struct fail *f)
{
    for (size_t i = 0; i < activations->count; i++) {
        struct activation_scale *a = &activations->items[i];
        const struct activation_need *need = &activations->needs.items[a->need];
        const struct weight *w = &s->weights.items[a->weight];
        const char *part = w->reason == WEIGHT_TAKEN
                               ? quant_format_row(s->config.groups[w->group].stored)->modelopt.input_scale
                               : NULL;
        if (part || (s->config.dialect && s->config.dialect->config.kv_cache))
            RETURN_IF_NOT_OK(convert(a, name_of(a, need, w, part, &s->weights), f));
    }
    return QOBS_OK;
}
