/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names what the user gives and nothing uses. */
#include "quantize/unused.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "model/experts.h"
#include "quantize/selection.h"
#include "schemes/match.h"

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static void names_free(struct module_names *n)
{
    free(n->items);
    named_free(n->owned, n->owned_count, sizeof *n->owned, 1);
}

static int add_name(struct module_names *n, const char *text, size_t length, struct fail *f)
{
    const struct module_name name = {text, length};
    return length == 0 || list_append(&n->items, &n->count, sizeof name, &name) ? QOBS_OK : NO_MEMORY(f, "the names");
}

/* Adds a name that is copied. */
static int add_copy(struct module_names *n, const char *text, struct fail *f)
{
    char **copy = list_add(&n->owned, &n->owned_count, sizeof *copy);
    if (!copy || !(*copy = strdup(text)))
        return NO_MEMORY(f, "the names");
    return add_name(n, *copy, strlen(*copy), f);
}

static int add_modules(struct module_names *n, const struct selection *selection, struct fail *f)
{
    for (size_t i = 0; i < selection->weights.count; i++)
        RETURN_IF_NOT_OK(add_name(n, selection->weights.items[i].name, selection->weights.items[i].module, f));
    return QOBS_OK;
}

/* Adds names of experts that the files have in one tensor, and of its module. */
static int add_sources(struct module_names *n, const struct weight *w, struct fail *f)
{
    struct expert_entry e;
    const char *source = w->source->stored->name;
    const size_t length = module_length(source), parent = component_start(source, length);
    RETURN_IF_NOT_OK(add_name(n, source, length, f));
    RETURN_IF_NOT_OK(add_name(n, source, parent > 0 ? parent - 1 : 0, f));
    for (size_t i = 0; w->experts > EXPERTS_OF_ONE && experts_ignored_as(w, i, &e); i++)
        RETURN_IF_NOT_OK(add_copy(n, e.name, f));
    return QOBS_OK;
}

/* Adds what `ignore` alone can match: other names of modules that stay, attention whose states are calibrated. */
static int add_others(struct module_names *n, const struct selection *selection, const struct weight *w, struct fail *f)
{
    char alias[1024];
    size_t length;
    if (w->experts != EXPERTS_ABSENT && selection->config.compat == QOBS_COMPAT_VLLM)
        RETURN_IF_NOT_OK(add_sources(n, w, f));
    if (selection->config.states && marks_attention(&selection->weights, w, &length))
        RETURN_IF_NOT_OK(add_name(n, w->name, length, f));
    for (size_t i = 0; w->reason != WEIGHT_TAKEN && architecture_alias(&selection->inputs->architectures, w->name,
                                                                       w->module, i, alias, sizeof alias);
         i++)
        RETURN_IF_NOT_OK(add_copy(n, alias, f));
    return QOBS_OK;
}

/* Returns true if a weight is a table of tokens. */
static bool is_vocabulary(const struct selection *selection, const struct weight *w)
{
    return w->ndim == 2 && w->module < strlen(w->name) && (strstr(w->name, "embed") || strstr(w->name, "wte")) &&
           !strstr(w->name, "pos") &&
           architecture_kind(&selection->inputs->architectures, w->name, w->module, w->shape[0]) == MODULE_TABLE;
}

/* Returns true if the model has a head, or may tie one to its embeddings. Sizes of vocabularies have defaults. */
static bool has_head(const struct selection *selection)
{
    bool found = selection->inputs->architectures.vocabulary_count > 0 ||
                 !json_get(selection->inputs->model.config, "architectures");
    for (size_t i = 0; i < selection->weights.count && !found; i++)
        found = is_vocabulary(selection, &selection->weights.items[i]);
    return found;
}

/* Adds the heads, which have no tensor if they are tied. */
static int add_heads(struct module_names *n, const struct selection *selection, struct fail *f)
{
    char entry[512];
    for (size_t i = 0;
         has_head(selection) && architecture_head(&selection->inputs->architectures, i, entry, sizeof entry); i++)
        if (strncmp(entry, "re:", 3) != 0)
            RETURN_IF_NOT_OK(add_copy(n, entry, f));
    return QOBS_OK;
}

static int add_ignored(struct module_names *n, const struct selection *selection, struct fail *f)
{
    for (size_t i = 0; i < selection->weights.count; i++)
        RETURN_IF_NOT_OK(add_others(n, selection, &selection->weights.items[i], f));
    return add_heads(n, selection, f);
}

/* Returns true if an entry is one that choose_list_ignored adds for the model, or names a head by another path. */
static bool is_listed(const struct selection *selection, const char *entry)
{
    char text[512];
    struct expert_entry e;
    struct module_name name = {entry, strlen(entry)};
    const struct module_names one = {.items = &name, .count = 1};
    for (size_t i = 0;
         has_head(selection) && architecture_head(&selection->inputs->architectures, i, text, sizeof text); i++)
        if (strcmp(text, entry) == 0 || names_matched(&one, text) > 0)
            return true;
    for (size_t i = 0; architecture_experts(&selection->inputs->architectures, i, text, sizeof text); i++)
        if (strcmp(text, entry) == 0)
            return true;
    for (size_t k = 0; k < selection->weights.count; k++)
        for (size_t i = 0; selection->weights.items[k].experts != EXPERTS_ABSENT &&
                           experts_ignored_as(&selection->weights.items[k], i, &e);
             i++)
            if (strcmp(e.everywhere, entry) == 0 || strcmp(e.here, entry) == 0)
                return true;
    return false;
}

/* ---- Entries ----------------------------------------------------------------------------------------------------- */

struct entries {
    const char *where; /* begins the messages */
    char *const *items;
    size_t count;
    bool targets;
};

static bool is_module(const struct selection *selection, const char *entry)
{
    OWNED char *name = text_format("%s.weight", entry);
    return name && weights_find(&selection->weights, name);
}

static bool is_used(const struct selection *selection, const struct module_names *names, const struct entries *e,
                    const char *entry)
{
    if (is_module(selection, entry) || (e->targets && strcmp(entry, "Linear") == 0) || names_matched(names, entry) > 0)
        return true;
    return !e->targets && is_listed(selection, entry);
}

static int name_entry(struct selection *selection, const struct module_names *names, const struct entries *e,
                      const char *entry, struct fail *f)
{
    char hint[400];
    if (e->targets && is_listed(selection, entry))
        snprintf(hint, sizeof hint, "the head is tied to the embeddings, which stay as they are");
    else
        unused_hint(hint, sizeof hint, names, entry, e->targets);
    return quant_config_add_unused(&selection->config, f, "%s: '%.100s' matches no module; %s", e->where, entry, hint);
}

/* Names entries that match nothing, the first of many. */
static int name_entries(struct selection *selection, const struct module_names *names, const struct entries *e,
                        struct fail *f)
{
    enum { MOST = 10 };
    size_t unused = 0;
    for (size_t i = 0; i < e->count; i++)
        if (!is_used(selection, names, e, e->items[i]) && unused++ < MOST)
            RETURN_IF_NOT_OK(name_entry(selection, names, e, e->items[i], f));
    return unused <= MOST ? QOBS_OK
                          : quant_config_add_unused(&selection->config, f, "%s: %zu more entries match no module",
                                                    e->where, unused - MOST);
}

static const char *source_file(const struct selection *selection)
{
    return selection->choice->config ? selection->choice->config : selection->choice->recipe;
}

static int name_targets(struct selection *selection, const struct module_names *names, struct fail *f)
{
    for (size_t g = 0; g < selection->config.group_count; g++) {
        const struct quant_group *group = &selection->config.groups[g];
        char where[400] = "targets";
        if (source_file(selection))
            snprintf(where, sizeof where, "%.200s: %.100s: targets", source_file(selection), group->name);
        const struct entries e = {where, group->targets, group->target_count, true};
        RETURN_IF_NOT_OK(name_entries(selection, names, &e, f));
    }
    return QOBS_OK;
}

/* The list has the entries of the file, then those of the arguments. */
static int name_ignored(struct selection *selection, const struct module_names *names, struct fail *f)
{
    char where[300];
    const struct quant_config *c = &selection->config;
    const size_t own = selection->choice->ignore.count, of_file = c->ignore_count - own;
    snprintf(where, sizeof where, "%.200s: ignore", source_file(selection) ? source_file(selection) : "scheme");
    const struct entries file = {where, c->ignore, of_file, false}, given = {"ignore", c->ignore + of_file, own, false};
    if (of_file > 0)
        RETURN_IF_NOT_OK(name_entries(selection, names, &file, f));
    return own > 0 ? name_entries(selection, names, &given, f) : QOBS_OK;
}

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

/* Returns true if group g targets a weight, and an earlier one has it. Groups of classes take what names leave. */
static bool is_hidden(const struct quant_matchers *m, size_t g, const struct weight *w)
{
    if (w->reason != WEIGHT_TAKEN || w->group >= g)
        return false;
    return matcher_find(m->groups[g], w->name, w->module) >= 0 ||
           (matcher_has(m->groups[g], "Linear") && matcher_has(m->groups[w->group], "Linear"));
}

/* Names a group that has no weight because earlier ones have what it targets. */
static int name_group(struct selection *selection, const struct quant_matchers *m, size_t g, struct fail *f)
{
    const struct weight *hidden = NULL;
    for (size_t i = 0; i < selection->weights.count; i++) {
        const struct weight *w = &selection->weights.items[i];
        if (w->reason == WEIGHT_TAKEN && w->group == g)
            return QOBS_OK;
        hidden = !hidden && is_hidden(m, g, w) ? w : hidden;
    }
    if (!hidden)
        return QOBS_OK;
    return quant_config_add_unused(&selection->config, f,
                                   "%.100s: %.60s: quantizes nothing: what it targets is in earlier groups, '%.*s' in "
                                   "%.60s; the first group that names a module has it",
                                   source_file(selection) ? source_file(selection) : "targets",
                                   selection->config.groups[g].name, hidden->module < 150 ? (int)hidden->module : 150,
                                   hidden->name, selection->config.groups[hidden->group].name);
}

static int name_groups(struct selection *selection, struct fail *f)
{
    RELEASED_BY(quant_matchers_free) struct quant_matchers m = {0};
    if (selection->config.group_count < 2)
        return QOBS_OK;
    RETURN_IF_NOT_OK(quant_matchers_create(&m, &selection->config, f));
    for (size_t g = 0; g < selection->config.group_count; g++)
        RETURN_IF_NOT_OK(name_group(selection, &m, g, f));
    return QOBS_OK;
}

int selection_name_unused(struct selection *selection, struct fail *f)
{
    RELEASED_BY(names_free) struct module_names names = {0};
    if (selection->silent) /* the first part tells */
        return QOBS_OK;
    RETURN_IF_NOT_OK(add_modules(&names, selection, f));
    RETURN_IF_NOT_OK(name_targets(selection, &names, f));
    RETURN_IF_NOT_OK(add_ignored(&names, selection, f));
    RETURN_IF_NOT_OK(name_ignored(selection, &names, f));
    return name_groups(selection, f);
}
