/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The entry for several layers is the first of some patterns that matches no other layer. */
#include "model/layer_words.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "schemes/match.h"

enum { MOST_ENDS = 6 };

struct marked_layers {
    const struct weights *weights;
    const bool *marked;
    size_t count;
    const struct weight *first;
};

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Lists the first names: as many as fit, one at least. */
static void write_names(struct layer_words *words, const struct marked_layers *m)
{
    size_t shown = 0, used;
    if (m->count == 1) {
        snprintf(words->names, sizeof words->names, "tensor '%.150s'", m->first->name);
        return;
    }
    used = (size_t)snprintf(words->names, sizeof words->names, "%zu layers", m->count);
    for (size_t i = 0; i < m->weights->count; i++) {
        const struct weight *w = &m->weights->items[i];
        if (!m->marked[i])
            continue;
        if (shown > 0 && used + w->module + 12 > 130)
            break;
        used += (size_t)snprintf(words->names + used, sizeof words->names - used, ", '%.*s'",
                                 w->module < 150 ? (int)w->module : 150, w->name);
        shown++;
    }
    if (shown < m->count)
        snprintf(words->names + used, sizeof words->names - used, ", ...");
}

/* ---- Patterns ---------------------------------------------------------------------------------------------------- */

/* Returns true if an entry covers all layers that are marked and no other one that is quantized. */
static bool is_exact(const struct marked_layers *m, const char *entry, bool *covers)
{
    OWNED_MATCHER struct matcher *matcher = NULL;
    bool exact = true;
    *covers = matcher_create(&matcher, &entry, 1, "ignore", NULL) == 0;
    for (size_t i = 0; i < m->weights->count && *covers; i++) {
        const struct weight *w = &m->weights->items[i];
        const bool matches = matcher_find(matcher, w->name, w->module) >= 0;
        *covers &= matches || !m->marked[i];
        exact &= !matches || m->marked[i] || w->reason != WEIGHT_TAKEN;
    }
    return *covers && exact;
}

/* Returns the start of the last `components` components of a module's name. */
static size_t start_of_end(const struct weight *w, int components)
{
    size_t start = component_start(w->name, w->module);
    for (; components > 1 && start > 0; components--)
        start = component_start(w->name, start - 1);
    return start;
}

/* Writes components with dots in brackets, and with `any` numbers as patterns. */
static bool put_components(char *text, size_t size, const char *name, size_t from, size_t to, bool any)
{
    bool fits = true;
    for (size_t i = from; i < to; i++) {
        const bool number = any && isdigit((unsigned char)name[i]) && (i == 0 || name[i - 1] == '.');
        size_t end = i;
        while (number && end < to && isdigit((unsigned char)name[end]))
            end++;
        if (number && (end == to || name[end] == '.')) {
            fits &= text_append(text, size, "[0-9]+");
            i = end - 1;
        } else {
            fits &= text_append(text, size, name[i] == '.' ? "[.]" : "%c", name[i]);
        }
    }
    return fits;
}

/* Writes "re:.*[.](a|b)$" of the different ends of the layers, with `any` for all numbers. Returns false if there are
 * too many. */
static bool write_ends(const struct marked_layers *m, int components, bool any, char *entry, size_t size)
{
    char ends[MOST_ENDS][80] = {""};
    size_t count = 0;
    bool whole = false;
    for (size_t i = 0; i < m->weights->count; i++) {
        const struct weight *w = &m->weights->items[i];
        char end[80] = "";
        size_t k = 0;
        if (!m->marked[i])
            continue;
        const size_t start = start_of_end(w, components);
        whole |= start == 0;
        if (!put_components(end, sizeof end, w->name, start, w->module, any))
            return false;
        while (k < count && strcmp(ends[k], end) != 0)
            k++;
        if (k == MOST_ENDS)
            return false;
        if (k == count)
            memcpy(ends[count++], end, sizeof end);
    }
    bool fits = text_append(entry, size, "re:%s%s", whole ? "(.*[.])?" : ".*[.]", count > 1 ? "(" : "");
    for (size_t k = 0; k < count; k++)
        fits &= text_append(entry, size, "%s%s", k > 0 ? "|" : "", ends[k]);
    return text_append(entry, size, "%s$", count > 1 ? ")" : "") && fits;
}

/* Returns the length of the first `components` components, without the dot behind them; 0: the name has fewer. */
static size_t length_of_beginning(const struct weight *w, int components)
{
    for (size_t i = 0; i < w->module; i++)
        if (w->name[i] == '.' && --components == 0)
            return i;
    return 0;
}

/* Writes "re:a[.].*" of what all layers begin with. */
static bool write_beginning(const struct marked_layers *m, int components, char *entry, size_t size)
{
    const size_t length = length_of_beginning(m->first, components);
    return length > 0 && text_append(entry, size, "re:") &&
           put_components(entry, size, m->first->name, 0, length, false) && text_append(entry, size, "[.].*");
}

/* The patterns that may do, the shortest first. Returns false after the last one, and leaves `entry` empty if one does
 * not fit. */
static bool write_pattern(const struct marked_layers *m, int index, char *entry, size_t size)
{
    enum { BEGINNINGS = 4, ENDS = 4 };
    const int end = index - BEGINNINGS - 1;
    *entry = '\0';
    const bool fits = index == 0            ? write_ends(m, 1, true, entry, size)
                      : index <= BEGINNINGS ? write_beginning(m, index, entry, size)
                                            : write_ends(m, end % ENDS + 2, end < ENDS, entry, size);
    if (!fits)
        *entry = '\0';
    return end < 2 * ENDS;
}

/* Without a pattern that is exact the first that covers all layers counts, else the name of the first layer. */
static void write_entry(struct layer_words *words, const struct marked_layers *m)
{
    char entry[sizeof words->entry];
    bool covers, found = false;
    snprintf(words->entry, sizeof words->entry, "%.*s", (int)m->first->module, m->first->name);
    for (int i = 0; m->count > 1 && write_pattern(m, i, entry, sizeof entry); i++) {
        if (!*entry)
            continue;
        const bool exact = is_exact(m, entry, &covers);
        if (exact || (covers && !found))
            memcpy(words->entry, entry, sizeof entry);
        found |= covers;
        if (exact)
            return;
    }
}

void layer_words_make(struct layer_words *words, const struct weights *weights, const bool *marked)
{
    struct marked_layers m = {.weights = weights, .marked = marked};
    for (size_t i = 0; i < weights->count; i++) {
        m.first = marked[i] && !m.first ? &weights->items[i] : m.first;
        m.count += marked[i];
    }
    words->count = m.count;
    write_names(words, &m);
    write_entry(words, &m);
}
