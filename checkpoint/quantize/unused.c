/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names what the user gives and nothing uses. */
#include "quantize/unused.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "model/experts.h"
#include "quantize/run.h"
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

static int add_modules(struct module_names *n, const struct quantize_run *run, struct fail *f)
{
    for (size_t i = 0; i < run->weights.count; i++)
        RETURN_IF_NOT_OK(add_name(n, run->weights.items[i].name, run->weights.items[i].module, f));
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
static int add_others(struct module_names *n, const struct quantize_run *run, const struct weight *w, struct fail *f)
{
    char alias[1024];
    size_t length;
    if (w->experts != EXPERTS_ABSENT && run->args->compat == QOBS_COMPAT_VLLM)
        RETURN_IF_NOT_OK(add_sources(n, w, f));
    if (run->config.states && marks_attention(&run->weights, w, &length))
        RETURN_IF_NOT_OK(add_name(n, w->name, length, f));
    for (size_t i = 0; w->reason != WEIGHT_TAKEN &&
                       architecture_alias(&run->architectures, w->name, w->module, i, alias, sizeof alias);
         i++)
        RETURN_IF_NOT_OK(add_copy(n, alias, f));
    return QOBS_OK;
}

/* Returns true if a weight is a table of tokens. */
static bool is_vocabulary(const struct quantize_run *run, const struct weight *w)
{
    return w->ndim == 2 && w->module < strlen(w->name) && (strstr(w->name, "embed") || strstr(w->name, "wte")) &&
           !strstr(w->name, "pos") &&
           architecture_kind(&run->architectures, w->name, w->module, w->shape[0]) == MODULE_TABLE;
}

/* Returns true if the model has a head, or may tie one to its embeddings. Sizes of vocabularies have defaults. */
static bool has_head(const struct quantize_run *run)
{
    bool found = run->architectures.vocabulary_count > 0 || !json_get(run->model.config, "architectures");
    for (size_t i = 0; i < run->weights.count && !found; i++)
        found = is_vocabulary(run, &run->weights.items[i]);
    return found;
}

/* Adds the heads, which have no tensor if they are tied. */
static int add_heads(struct module_names *n, const struct quantize_run *run, struct fail *f)
{
    char entry[512];
    for (size_t i = 0; has_head(run) && architecture_head(&run->architectures, i, entry, sizeof entry); i++)
        if (strncmp(entry, "re:", 3) != 0)
            RETURN_IF_NOT_OK(add_copy(n, entry, f));
    return QOBS_OK;
}

static int add_ignored(struct module_names *n, const struct quantize_run *run, struct fail *f)
{
    for (size_t i = 0; i < run->weights.count; i++)
        RETURN_IF_NOT_OK(add_others(n, run, &run->weights.items[i], f));
    return add_heads(n, run, f);
}

/* Returns true if an entry is one that choose_list_ignored adds for the model, or names a head by another path. */
static bool is_listed(const struct quantize_run *run, const char *entry)
{
    char text[512];
    struct expert_entry e;
    struct module_name name = {entry, strlen(entry)};
    const struct module_names one = {.items = &name, .count = 1};
    for (size_t i = 0; has_head(run) && architecture_head(&run->architectures, i, text, sizeof text); i++)
        if (strcmp(text, entry) == 0 || names_matched(&one, text) > 0)
            return true;
    for (size_t i = 0; architecture_experts(&run->architectures, i, text, sizeof text); i++)
        if (strcmp(text, entry) == 0)
            return true;
    for (size_t k = 0; k < run->weights.count; k++)
        for (size_t i = 0;
             run->weights.items[k].experts != EXPERTS_ABSENT && experts_ignored_as(&run->weights.items[k], i, &e); i++)
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

static bool is_module(const struct quantize_run *run, const char *entry)
{
    OWNED char *name = text_format("%s.weight", entry);
    return name && weights_find(&run->weights, name);
}

static bool is_used(const struct quantize_run *run, const struct module_names *names, const struct entries *e,
                    const char *entry)
{
    if (is_module(run, entry) || (e->targets && strcmp(entry, "Linear") == 0) || names_matched(names, entry) > 0)
        return true;
    return !e->targets && is_listed(run, entry);
}

static int name_entry(struct quantize_run *run, const struct module_names *names, const struct entries *e,
                      const char *entry, struct fail *f)
{
    char hint[400];
    if (e->targets && is_listed(run, entry))
        snprintf(hint, sizeof hint, "the head is tied to the embeddings, which stay as they are");
    else
        unused_hint(hint, sizeof hint, names, entry, e->targets);
    return quant_config_add_unused(&run->config, f, "%s: '%.100s' matches no module; %s", e->where, entry, hint);
}

/* Names entries that match nothing, the first of many. */
static int name_entries(struct quantize_run *run, const struct module_names *names, const struct entries *e,
                        struct fail *f)
{
    enum { MOST = 10 };
    size_t unused = 0;
    for (size_t i = 0; i < e->count; i++)
        if (!is_used(run, names, e, e->items[i]) && unused++ < MOST)
            RETURN_IF_NOT_OK(name_entry(run, names, e, e->items[i], f));
    return unused <= MOST ? QOBS_OK
                          : quant_config_add_unused(&run->config, f, "%s: %zu more entries match no module", e->where,
                                                    unused - MOST);
}

static const char *source_file(const struct quantize_run *run)
{
    return run->args->config ? run->args->config : run->args->recipe;
}

static int name_targets(struct quantize_run *run, const struct module_names *names, struct fail *f)
{
    for (size_t g = 0; g < run->config.group_count; g++) {
        const struct quant_group *group = &run->config.groups[g];
        char where[400] = "targets";
        if (source_file(run))
            snprintf(where, sizeof where, "%.200s: %.100s: targets", source_file(run), group->name);
        const struct entries e = {where, group->targets, group->target_count, true};
        RETURN_IF_NOT_OK(name_entries(run, names, &e, f));
    }
    return QOBS_OK;
}

/* The list has the entries of the file, then those of the arguments. */
static int name_ignored(struct quantize_run *run, const struct module_names *names, struct fail *f)
{
    char where[300];
    const struct quant_config *c = &run->config;
    const size_t own = run->args->ignore_count, of_file = c->ignore_count - own;
    snprintf(where, sizeof where, "%.200s: ignore", source_file(run) ? source_file(run) : "scheme");
    const struct entries file = {where, c->ignore, of_file, false}, given = {"ignore", c->ignore + of_file, own, false};
    if (of_file > 0)
        RETURN_IF_NOT_OK(name_entries(run, names, &file, f));
    return own > 0 ? name_entries(run, names, &given, f) : QOBS_OK;
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
static int name_group(struct quantize_run *run, const struct quant_matchers *m, size_t g, struct fail *f)
{
    const struct weight *hidden = NULL;
    for (size_t i = 0; i < run->weights.count; i++) {
        const struct weight *w = &run->weights.items[i];
        if (w->reason == WEIGHT_TAKEN && w->group == g)
            return QOBS_OK;
        hidden = !hidden && is_hidden(m, g, w) ? w : hidden;
    }
    if (!hidden)
        return QOBS_OK;
    return quant_config_add_unused(&run->config, f,
                                   "%.100s: %.60s: quantizes nothing: what it targets is in earlier groups, '%.*s' in "
                                   "%.60s; the first group that names a module has it",
                                   source_file(run) ? source_file(run) : "targets", run->config.groups[g].name,
                                   hidden->module < 150 ? (int)hidden->module : 150, hidden->name,
                                   run->config.groups[hidden->group].name);
}

static int name_groups(struct quantize_run *run, struct fail *f)
{
    RELEASED_BY(quant_matchers_free) struct quant_matchers m = {0};
    if (run->config.group_count < 2)
        return QOBS_OK;
    RETURN_IF_NOT_OK(quant_matchers_create(&m, &run->config, f));
    for (size_t g = 0; g < run->config.group_count; g++)
        RETURN_IF_NOT_OK(name_group(run, &m, g, f));
    return QOBS_OK;
}

int run_name_unused(struct quantize_run *run, struct fail *f)
{
    RELEASED_BY(names_free) struct module_names names = {0};
    if (run->args->part > 1) /* the first part tells */
        return QOBS_OK;
    RETURN_IF_NOT_OK(add_modules(&names, run, f));
    RETURN_IF_NOT_OK(name_targets(run, &names, f));
    RETURN_IF_NOT_OK(add_ignored(&names, run, f));
    RETURN_IF_NOT_OK(name_ignored(run, &names, f));
    return name_groups(run, f);
}
