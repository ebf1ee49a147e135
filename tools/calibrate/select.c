/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Matches module names with POSIX extended regular expressions. */
#include "select.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct patterns {
    size_t count;
    regex_t *expressions;
};

static int add(struct patterns **patterns, const char *option, const char *expression, struct fail *f)
{
    const char *bare = strncmp(expression, "re:", 3) == 0 ? expression + 3 : expression;
    const size_t size = strlen(bare) + 4;
    struct patterns *p = *patterns ? *patterns : calloc(1, sizeof *p);
    char *anchored = malloc(size);
    regex_t *grown = p ? realloc(p->expressions, (p->count + 1) * sizeof *grown) : NULL;
    *patterns = p;
    if (grown)
        p->expressions = grown;
    if (!anchored || !grown) {
        free(anchored);
        return fail(f, "%s: no memory", option);
    }
    snprintf(anchored, size, "^(%s)", bare);
    const int status = regcomp(&p->expressions[p->count], anchored, REG_EXTENDED | REG_NOSUB);
    free(anchored);
    if (status != 0) {
        char reason[128];
        regerror(status, &p->expressions[p->count], reason, sizeof reason);
        return fail(f, "%s: '%s' is no regular expression: %s", option, expression, reason);
    }
    p->count++;
    return 0;
}

int selection_add_target(struct selection *selection, const char *expression, struct fail *f)
{
    if (!selection->first_target)
        selection->first_target = expression;
    if (strcmp(expression, "Linear") == 0) {
        selection->linear = true;
        return 0;
    }
    return add(&selection->targets, "--targets", expression, f);
}

int selection_add_ignore(struct selection *selection, const char *expression, struct fail *f)
{
    return add(&selection->ignore, "--ignore", expression, f);
}

static void free_patterns(struct patterns *p)
{
    for (size_t i = 0; p && i < p->count; i++)
        regfree(&p->expressions[i]);
    if (p)
        free(p->expressions);
    free(p);
}

void selection_free(struct selection *selection)
{
    free_patterns(selection->targets);
    free_patterns(selection->ignore);
    *selection = (struct selection){0};
}

static bool matches(const struct patterns *p, const char *name)
{
    for (size_t i = 0; p && i < p->count; i++)
        if (regexec(&p->expressions[i], name, 0, NULL, 0) == 0)
            return true;
    return false;
}

/* False for the names that embeddings and norms have in published checkpoints. */
static bool is_linear(const char *module)
{
    static const char *const others[] = {"embed", "wte", "wpe", "norm", "lm_head", "ln_"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(module, others[i]))
            return false;
    return true;
}

bool selection_ignores(const struct selection *selection, const char *module, size_t length)
{
    char *name = selection->ignore ? strndup(module, length) : NULL;
    const bool ignored = name && matches(selection->ignore, name);
    free(name);
    return ignored;
}

bool selection_includes(const struct selection *selection, const struct tensor_ref *ref, size_t *module)
{
    static const char suffix[] = ".weight";
    const size_t length = strlen(ref->name), ending = sizeof suffix - 1;
    if (length <= ending || strcmp(ref->name + length - ending, suffix) != 0 || ref->ndim < 2)
        return false;
    *module = length - ending;
    char *name = strndup(ref->name, *module);
    if (!name)
        return false;
    const bool linear = (selection->linear || !selection->targets) && ref->ndim == 2 && is_linear(name);
    const bool target = linear || matches(selection->targets, name);
    const bool selected = target && !matches(selection->ignore, name);
    free(name);
    return selected;
}
