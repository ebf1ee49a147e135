/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The row of the dialect says which members there are. */
#include "quantize/dialect_config.h"

#include <string.h>

#include "files/json.h"
#include "files/text.h"
#include "schemes/dialects.h"
#include "schemes/match.h"

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

/* Writes "-:^NAME$", with its characters as they are. */
static void put_pattern(char *pattern, size_t size, const struct weight *w)
{
    size_t n = 3;
    memcpy(pattern, "-:^", n);
    for (size_t i = 0; i < w->module && n + 4 < size; i++) {
        if (strchr(".[]()+?^$|\\{}*", w->name[i]))
            pattern[n++] = '\\';
        pattern[n++] = w->name[i];
    }
    memcpy(pattern + n, "$", 2);
}

static bool put_excluded(json_object *json, const struct dialect_row *d, const struct selection *s)
{
    OWNED_MATCHER struct matcher *ignore = NULL;
    struct fail f;
    json_object *list =
        d->config.patterns ? json_put_object(json, d->config.excluded) : json_put_array(json, d->config.excluded);
    bool complete = list && make_ignore(&ignore, &s->config, &f) == QOBS_OK;
    for (size_t i = 0; complete && i < s->weights.count; i++) {
        const struct weight *w = &s->weights.items[i];
        char pattern[2100];
        if (!is_excluded(s, ignore, w))
            continue;
        if (d->config.patterns) {
            put_pattern(pattern, sizeof pattern, w);
            complete = json_put_object(list, pattern) != NULL;
        } else {
            complete = json_append(list, json_object_new_string_len(w->name, (int)w->module));
        }
    }
    return complete;
}

json_object *dialect_config_json(const struct selection *s)
{
    const struct dialect_row *d = s->config.dialect;
    const struct quant_args *a = &s->config.groups->weights;
    json_object *json = NULL;
    const bool complete =
        json_parse_value(&json, d->config.members) == 0 && json_put_count(json, "bits", (uint64_t)a->num_bits) &&
        json_put(json, "group_size", json_object_new_int64(a->strategy == QUANT_CHANNEL ? -1 : a->group_size)) &&
        (!d->config.symmetric || json_put_bool(json, d->config.symmetric, a->symmetric)) && put_excluded(json, d, s);
    if (complete)
        return json;
    json_object_put(json);
    return NULL;
}
