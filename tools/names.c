/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names of layers differ at both ends: a long one loses its middle. */
#include "names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/fail.h"
#include "files/text.h"
#include "options.h"

const char *clean_name(struct label name, int width, char text[MAX_NAME + 1])
{
    const int most = width < MAX_NAME ? width : MAX_NAME, head = most / 2 - 2, tail = most - head - 3;
    if (name.length <= (size_t)most)
        snprintf(text, MAX_NAME + 1, "%.*s", (int)name.length, name.text);
    else
        snprintf(text, MAX_NAME + 1, "%.*s...%.*s", head, name.text, tail, name.text + name.length - (size_t)tail);
    make_printable(text);
    return text;
}

/* Returns the length of what both names begin with, up to a '.'. */
static size_t common_start(struct label a, struct label b)
{
    size_t common = 0;
    for (size_t i = 0; i < a.length && i < b.length && a.text[i] == b.text[i]; i++)
        if (a.text[i] == '.')
            common = i + 1;
    return common;
}

int fit_names(struct label *names, size_t count, int others, bool all)
{
    const int most = output_columns() - others;
    size_t longest = strlen("module"), common = count > 1 ? names[0].length : 0;
    for (size_t i = 0; i < count; i++) {
        longest = names[i].length > longest ? names[i].length : longest;
        const size_t start = common_start(names[0], names[i]);
        common = start < common ? start : common;
    }
    if ((all && !isatty(STDOUT_FILENO)) || longest <= (size_t)most)
        return (int)(longest < MAX_NAME ? longest : MAX_NAME);
    if (common > 0) {
        char text[MAX_NAME + 1];
        printf("names begin with %s\n", clean_name((struct label){names[0].text, common}, MAX_NAME, text));
    }
    longest = strlen("module");
    for (size_t i = 0; i < count; i++) {
        names[i].text += common;
        names[i].length -= common;
        longest = names[i].length > longest ? names[i].length : longest;
    }
    return (int)(longest < (size_t)most ? longest : (size_t)most);
}

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->badness != y->badness ? ORDER(y->badness, x->badness) : ORDER(x->index, y->index);
}

struct ranked *rank(const json_object *items, const char *key, double (*badness)(const json_object *item))
{
    struct ranked *ranked = malloc((json_count(items) + 1) * sizeof *ranked);
    for (size_t i = 0; ranked && i < json_count(items); i++) {
        const json_object *item = json_at(items, i);
        const char *name = json_text_of(item, key);
        ranked[i] = (struct ranked){item, badness(item), i, {name, strlen(name)}};
    }
    if (ranked && json_count(items) > 0)
        qsort(ranked, json_count(items), sizeof *ranked, compare_ranked);
    return ranked;
}

int fit_ranked(struct ranked *ranked, size_t shown, int others, bool all)
{
    struct label *names = malloc((shown + 1) * sizeof *names);
    int width = MAX_NAME;
    for (size_t i = 0; names && i < shown; i++)
        names[i] = ranked[i].name;
    if (names)
        width = fit_names(names, shown, others, all);
    for (size_t i = 0; names && i < shown; i++)
        ranked[i].name = names[i];
    free(names);
    return width;
}
