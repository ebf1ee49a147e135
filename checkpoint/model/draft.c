/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "model/draft.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rule without a row: numbers behind those of the model's layers, and the names of *_mtp.py in vLLM 0.32. */
static const char general[] = "layers.+ mtp mtp_layers.* mtp_block.* mtp_linear_proj.*";

/* Returns the row of config.json that knows its draft layers; NULL: none. */
static const struct architecture *row_of(const struct architectures *found)
{
    for (size_t i = 0; i < found->count; i++)
        if (found->root[i] && found->rows[i]->draft)
            return found->rows[i];
    return NULL;
}

static size_t component_end(const char *text, size_t length, size_t at)
{
    while (at < length && text[at] != '.')
        at++;
    return at;
}

/* Returns true if the component is the number of a layer behind those of the model. */
static bool is_behind(const struct architectures *found, const char *name, size_t length)
{
    char *end;
    if (length == 0 || !isdigit((unsigned char)*name) || found->layers == 0)
        return false;
    const long long number = strtoll(name, &end, 10);
    return end == name + length && number >= found->layers && number < found->layers + found->draft_layers;
}

/* A `*` stands for any component. */
static bool is_component(const struct architectures *found, const char *pattern, size_t size, const char *name,
                         size_t length)
{
    if (size == 1 && *pattern == '*')
        return true;
    if (size == 1 && *pattern == '+')
        return is_behind(found, name, length);
    return size == length && memcmp(pattern, name, size) == 0;
}

/* Returns true if the components of the pattern begin at byte `at` of the name. */
static bool begins(const struct architectures *found, const char *name, size_t length, size_t at, const char *pattern,
                   size_t size)
{
    for (size_t begin = 0; begin < size;) {
        const size_t end = component_end(pattern, size, begin), stop = component_end(name, length, at);
        if (at >= length || !is_component(found, pattern + begin, end - begin, name + at, stop - at))
            return false;
        begin = end + 1;
        at = stop + 1;
    }
    return true;
}

bool draft_holds(const struct architectures *found, const char *module, size_t length)
{
    const struct architecture *row = row_of(found);
    for (const char *p = row ? row->draft : general; *p;) {
        const size_t size = strcspn(p, " ");
        for (size_t at = 0; at < length; at = component_end(module, length, at) + 1)
            if (begins(found, module, length, at, p, size))
                return true;
        p += size + (p[size] == ' ');
    }
    return false;
}

bool draft_loads(const struct architectures *found)
{
    const struct architecture *row = row_of(found);
    return row && !row->draft_plain;
}

/* Writes a pattern as a regular expression for the module and everything below it; `number` stands for a `+`. */
static void write_entry(const char *pattern, size_t length, int64_t number, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "re:(.*[.])?");
    for (size_t i = 0; i < length && n + 24 < size; i++) {
        if (pattern[i] == '+')
            n += (size_t)snprintf(text + n, size - n, "%" PRId64, number);
        else if (pattern[i] == '*')
            n += (size_t)snprintf(text + n, size - n, "[^.]+");
        else
            n += (size_t)snprintf(text + n, size - n, pattern[i] == '.' ? "[.]" : "%c", pattern[i]);
    }
    snprintf(text + n, size - n, "([.].*)?$");
}

/* Entry `index` of a list; NULL: there are fewer. */
static const char *entry_of(const char *list, size_t index, size_t *length)
{
    for (const char *p = list; p && *p; p += *length + (p[*length] == ' ')) {
        *length = strcspn(p, " ");
        if (index-- == 0)
            return p;
    }
    return NULL;
}

static size_t count_of(const char *list)
{
    size_t count = 0, length;
    while (entry_of(list, count, &length))
        count++;
    return count;
}

/* vLLM numbers draft layers after those of the model, whatever their names in the file. */
bool draft_ignore(const struct architectures *found, size_t index, char *text, size_t size)
{
    static const char numbered[] = "layers.+";
    const struct architecture *row = row_of(found);
    const char *list = row ? row->draft : general, *entry;
    const size_t patterns = count_of(list),
                 numbers = found->layers > 0 ? (size_t)found->draft_layers + (found->draft_layers == 0) : 0;
    size_t length = 0;
    if (index < numbers) {
        write_entry(numbered, sizeof numbered - 1, found->layers + (int64_t)index, text, size);
        return true;
    }
    index -= numbers;
    if (index < patterns) {
        entry = entry_of(list, index, &length);
        write_entry(entry, length, found->layers, text, size);
        return true;
    }
    entry = row ? entry_of(row->draft_ignore, index - patterns, &length) : NULL;
    return entry && snprintf(text, size, "%.*s", (int)length, entry) > 0;
}
