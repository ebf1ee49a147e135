/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Typing errors in names of the configuration. Recipes name parts that a model lacks, so that a name alone is no fault:
 * it has to have a component that is nearly one of the model's. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "files/json.h"
#include "files/suggest.h"
#include "files/text.h"

enum { SHORTEST = 5 }; /* shorter words are near to each other by chance */

/* The components of the names of all tensors, each once, without numbers. */
struct components {
    char **items;
    size_t count;
};

static const char *component_at(const void *context, size_t index)
{
    const struct components *c = context;
    return index < c->count ? c->items[index] : NULL;
}

static bool is_known(const struct components *c, const char *word)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->items[i], word) == 0)
            return true;
    return false;
}

static void components_free(struct components *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->items[i]);
    free(c->items);
}

/* Cuts the next component off a name: copies it to `word` and returns what follows; NULL: there is none, or it is too
 * long. */
static const char *next_component(const char *name, char *word, size_t size)
{
    const size_t length = strcspn(name, ".");
    if (length == 0 || length >= size)
        return NULL;
    memcpy(word, name, length);
    word[length] = '\0';
    return name + length + (name[length] == '.');
}

enum { MAX_WORD = 100 };

/* Returns false without memory. */
static bool add_components(struct components *c, const char *name)
{
    char word[MAX_WORD];
    while ((name = next_component(name, word, sizeof word))) {
        if (isdigit((unsigned char)*word) || is_known(c, word))
            continue;
        char **item = list_add(&c->items, &c->count, sizeof *c->items);
        if (!item || !(*item = strdup(word)))
            return false;
    }
    return true;
}

static void check_entry(struct audit *audit, const struct components *c, const char *list, const char *entry)
{
    char word[MAX_WORD];
    const bool pattern = strpbrk(entry, "*?[](|)^$\\+") || strncmp(entry, "re:", 3) == 0;
    for (const char *rest = entry; !pattern && strchr(entry, '.') && (rest = next_component(rest, word, MAX_WORD));) {
        const char *near =
            strlen(word) < SHORTEST || is_known(c, word) ? NULL : suggest(word, component_at, (const void *)c);
        if (!near || *near != *word)
            continue;
        audit_find(audit, NULL, "%s: '%.150s' names nothing: no tensor has '%s'; did you mean '%s'?", list, entry, word,
                   near);
        return;
    }
}

void audit_check_entries(struct audit *audit)
{
    RELEASED_BY(components_free) struct components c = {0};
    for (size_t i = 0; i < audit->model.count; i++)
        if (!add_components(&c, audit->model.tensors[i].stored->name)) {
            audit->failed = true;
            return;
        }
    for (size_t i = 0; i < audit->config.ignore_count; i++)
        check_entry(audit, &c, "ignore", audit->config.ignore[i]);
    for (size_t g = 0; g < audit->config.group_count; g++)
        for (size_t i = 0; i < audit->config.groups[g].target_count; i++)
            check_entry(audit, &c, "targets", audit->config.groups[g].targets[i]);
    json_each(item, json_get(json_get(audit->model.config, "quantization_config"), "extra_config"))
    {
        check_entry(audit, &c, "extra_config", item.key);
    }
}
