/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The mixture as a recipe of llm-compressor: JSON, which YAML includes. */
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "files/output.h"
#include "mixture/mixture.h"

/* Makes the group of a scheme, with the modules that have it. Its targets point to `names`. *used: it has any. */
static struct quant_group make_group(const struct mixture *p, size_t scheme, char **names)
{
    struct quant_group g = p->schemes[scheme].selection.config.groups[0];
    g.targets = names;
    g.changed = false; /* a recipe may call a group as its scheme, whatever its settings */
    g.target_count = 0;
    for (size_t i = 0; i < p->module_count; i++) {
        const struct weight *w = weights_find(&p->schemes[scheme].selection.weights, p->modules[i].weight->name);
        if (p->choice[p->modules[i].item] == scheme && w->reason == WEIGHT_TAKEN)
            g.target_count++;
    }
    return g;
}

/* Fills `names` with the modules of a scheme. Returns false if there is no memory. */
static bool list_names(const struct mixture *p, size_t scheme, char **names)
{
    size_t n = 0;
    for (size_t i = 0; i < p->module_count; i++) {
        const struct weight *w = weights_find(&p->schemes[scheme].selection.weights, p->modules[i].weight->name);
        if (p->choice[p->modules[i].item] != scheme || w->reason != WEIGHT_TAKEN)
            continue;
        names[n] = strndup(w->name, w->module);
        if (!names[n++])
            return false;
    }
    return true;
}

/* Returns the members of QuantizationModifier; NULL: no memory. */
static json_object *modifier_json(const struct mixture *p)
{
    const size_t schemes = p->args->scheme_count;
    struct quant_group *groups = calloc(schemes + 1, sizeof *groups);
    char **names = calloc(schemes * (p->module_count + 1), sizeof *names);
    struct quant_config config = {.groups = groups};
    json_object *whole = NULL, *modifier = NULL;
    bool done = groups && names;
    for (size_t k = 0; done && k < schemes; k++) {
        char **own = names + k * (p->module_count + 1);
        const struct quant_group g = make_group(p, k, own);
        done = list_names(p, k, own);
        if (g.target_count > 0)
            groups[config.group_count++] = g;
    }
    if (done && (whole = quant_config_json(&config, NULL)) && (modifier = json_object_new_object()))
        done = json_put(modifier, "config_groups", json_copy(json_get(whole, "config_groups")));
    json_object_put(whole);
    for (size_t i = 0; names && i < schemes * (p->module_count + 1); i++)
        free(names[i]);
    free(names);
    free(groups);
    if (done)
        return modifier;
    json_object_put(modifier);
    return NULL;
}

static char *recipe_text(const struct mixture *p)
{
    json_object *modifier = modifier_json(p), *recipe = json_object_new_object();
    json_object *stage = modifier ? json_put_object(recipe, "quant_stage") : NULL;
    json_object *modifiers = stage ? json_put_object(stage, "quant_modifiers") : NULL;
    char *text =
        modifiers && json_put(modifiers, "QuantizationModifier", modifier) ? json_print(recipe, JSON_INDENTED) : NULL;
    json_object_put(recipe);
    return text;
}

int mixture_write_recipe(const struct mixture *p, struct fail *f)
{
    struct output out = {0};
    char *text = recipe_text(p);
    if (!text)
        return NO_MEMORY(f, "the recipe");
    const size_t length = strlen(text);
    text[length] = '\n'; /* in place of the final NUL */
    int status = output_open(&out, p->args->out, f) == 0 ? QOBS_OK : failure_status(f);
    if (status == QOBS_OK && output_write(&out, text, length + 1, 0) != 0)
        status = SYSTEM_FAILURE(f, "out: %s: cannot be written", p->args->out);
    if (status == QOBS_OK && output_commit(&out, f) != 0)
        status = failure_status(f);
    output_abort(&out);
    free(text);
    return status;
}
