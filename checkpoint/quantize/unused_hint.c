/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Each form of entry that people write and that matches nothing has a rule; the first that helps counts. */
#include "quantize/unused.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/suggest.h"
#include "files/text.h"
#include "schemes/match.h"

enum { MAX_ENTRY = 300 };

struct hint {
    char *text;
    size_t size;
    const struct module_names *names;
    const char *entry;
    bool target;
};

size_t names_matched(const struct module_names *names, const char *entry)
{
    OWNED_MATCHER struct matcher *m = NULL;
    size_t count = 0;
    if (matcher_create(&m, &entry, 1, "entry", NULL) != 0)
        return 0;
    for (size_t i = 0; i < names->count; i++)
        count += matcher_find(m, names->items[i].text, names->items[i].length) >= 0;
    return count;
}

#define SAY(h, ...) (snprintf((h)->text, (h)->size, __VA_ARGS__), true)
#define FITS(h, text) (names_matched((h)->names, text) > 0)

static bool is_pattern(const char *entry) { return strncmp(entry, "re:", 3) == 0; }

/* ---- Entries that are something else ----------------------------------------------------------------------------- */

static bool say_quoted(const struct hint *h)
{
    const size_t length = strlen(h->entry);
    char inner[MAX_ENTRY];
    if (length < 3 || !strchr("'\"", h->entry[0]) || h->entry[length - 1] != h->entry[0])
        return false;
    snprintf(inner, sizeof inner, "%.*s", (int)length - 2, h->entry + 1);
    return SAY(h, "the quotes are a part of it; without them it is %s", inner);
}

/* Writes the first name of a list as text to `name`: what stands before a comma, without brackets, quotes, spaces. */
static void first_of_list(const char *entry, char *name, size_t size)
{
    const char *begin = entry + strspn(entry, "[(\"' ");
    size_t length = strcspn(begin, ",");
    while (length > 0 && strchr("])\"' ", begin[length - 1]))
        length--;
    snprintf(name, size, "%.*s", (int)length, begin);
}

static bool say_list(const struct hint *h)
{
    char first[MAX_ENTRY];
    const bool bracket = h->entry[0] == '[' && ends_with(h->entry, "]") && strpbrk(h->entry, "'\",");
    const char *comma = strchr(h->entry, ',');
    if (!bracket && (!comma || (is_pattern(h->entry) && !strstr(h->entry, ",re:"))))
        return false;
    first_of_list(h->entry, first, sizeof first);
    return SAY(h, "it is a list in one text; each name is an entry of its own, first '%s'", first);
}

/* ---- Patterns ---------------------------------------------------------------------------------------------------- */

/* Writes "re:" and the glob as a regular expression. */
static void of_glob(const char *glob, char *pattern, size_t size)
{
    size_t n = (size_t)snprintf(pattern, size, "re:");
    for (; *glob && n + 4 < size; glob++) {
        const char *as = *glob == '*' ? ".*" : *glob == '?' ? "." : NULL;
        n += as ? (size_t)snprintf(pattern + n, size - n, "%s", as) : 1;
        if (!as)
            pattern[n - 1] = *glob;
    }
    pattern[n] = '\0';
    if (!ends_with(pattern, ".*") && n + 1 < size)
        snprintf(pattern + n, size - n, "$");
}

static bool say_pattern(const struct hint *h)
{
    char pattern[MAX_ENTRY];
    if (is_pattern(h->entry) || !strpbrk(h->entry, "*?+[](|)^$\\"))
        return false;
    snprintf(pattern, sizeof pattern, "re:%s", h->entry);
    if (FITS(h, pattern))
        return SAY(h, "a regular expression begins with re: and is %s", pattern);
    of_glob(h->entry, pattern, sizeof pattern);
    if (FITS(h, pattern))
        return SAY(h, "it is a glob; the regular expression is %s", pattern);
    return false;
}

/* ".weight" is of tensors. */
static bool say_weight(const struct hint *h)
{
    static const char *const endings[] = {".weight", "[.]weight", "\\.weight", ".weight$", "[.]weight$", "\\.weight$"};
    char bare[MAX_ENTRY];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (!ends_with(h->entry, endings[i]))
            continue;
        snprintf(bare, sizeof bare, "%.*s", (int)(strlen(h->entry) - strlen(endings[i])), h->entry);
        if (FITS(h, bare))
            return SAY(h, "it is a tensor; the module is %s", bare);
    }
    return false;
}

/* ---- Parts of names ---------------------------------------------------------------------------------------------- */

/* Counts names that end with ".<part>". */
static size_t count_ends(const struct module_names *names, const char *part)
{
    const size_t size = strlen(part);
    size_t count = 0;
    for (size_t i = 0; i < names->count; i++) {
        const struct module_name *n = &names->items[i];
        count += n->length > size && n->text[n->length - size - 1] == '.' &&
                 memcmp(n->text + n->length - size, part, size) == 0;
    }
    return count;
}

static bool say_start(const struct hint *h)
{
    static const char from_start[] = "names match from their start";
    char pattern[MAX_ENTRY];
    if (is_pattern(h->entry)) {
        snprintf(pattern, sizeof pattern, "re:.*%s", h->entry + 3 + (h->entry[3] == '^'));
        return FITS(h, pattern) && SAY(h, "%s: %s finds more", from_start, pattern);
    }
    const size_t ends = count_ends(h->names, h->entry);
    if (ends > 0) {
        snprintf(pattern, sizeof pattern, "re:.*%s", h->entry);
        if (names_matched(h->names, pattern) > ends)
            snprintf(pattern, sizeof pattern, "re:.*[.]%s$", h->entry);
        return SAY(h, "%s: %s finds every %s", from_start, pattern, h->entry);
    }
    for (int k = 0; k < 2; k++) {
        snprintf(pattern, sizeof pattern, "re:%s%s[.].*", k ? ".*[.]" : "", h->entry);
        if (FITS(h, pattern))
            return SAY(h, "it holds modules and is none that has a weight: %s finds what it holds", pattern);
    }
    return false;
}

/* ---- Misspelt names ---------------------------------------------------------------------------------------------- */

/* Names that may be meant, which NULL ends. */
struct near_names {
    char **items;
    size_t count;
};

static void near_names_free(struct near_names *c) { named_free(c->items, c->count, sizeof *c->items, 1); }

static bool has_near_name(const struct near_names *c, const char *text, size_t length)
{
    for (size_t i = 0; i < c->count; i++)
        if (strlen(c->items[i]) == length && memcmp(c->items[i], text, length) == 0)
            return true;
    return false;
}

/* Lists whole names, or the last components of names without those that are numbers. Lists what memory has room for. */
static void list_near_names(struct near_names *c, const struct module_names *names, bool whole)
{
    enum { MOST = 1000 }; /* different last components */
    for (size_t i = 0; i < names->count && (whole || c->count < MOST); i++) {
        const struct module_name *n = &names->items[i];
        const size_t from = whole ? 0 : component_start(n->text, n->length), size = n->length - from;
        if (!whole && (size == 0 || isdigit((unsigned char)n->text[from]) || has_near_name(c, n->text + from, size)))
            continue;
        char *copy = text_format("%.*s", (int)size, n->text + from);
        if (!copy || !list_append(&c->items, &c->count, sizeof copy, &copy)) {
            free(copy);
            break;
        }
    }
    static char *const end = NULL;
    if (list_append(&c->items, &c->count, sizeof end, &end))
        c->count--;
    else
        near_names_free(c);
}

/* Returns the name that is nearest to a word, in `near`; false: none is. */
static bool find_near(const struct module_names *names, const char *word, bool whole, char *near, size_t size)
{
    RELEASED_BY(near_names_free) struct near_names c = {0};
    list_near_names(&c, names, whole);
    const char *found = c.items ? suggest_of(word, (const char *const *)c.items) : NULL;
    snprintf(near, size, "%s", found ? found : "");
    return found != NULL;
}

/* An entry around the plain name that it is about. */
struct entry_parts {
    int before, core; /* lengths */
    const char *after;
};

static struct entry_parts cut_entry(const char *entry)
{
    static const char *const openings[] = {"(.*[.])?", "(.*\\.)?", "(.*[.])", ".*[.]", ".*\\.", ".*", "^"};
    struct entry_parts p = {.before = is_pattern(entry) ? 3 : 0};
    for (size_t i = 0; i < sizeof openings / sizeof *openings && p.before == 3; i++)
        if (strncmp(entry + 3, openings[i], strlen(openings[i])) == 0)
            p.before += (int)strlen(openings[i]);
    while (entry[p.before + p.core] &&
           (isalnum((unsigned char)entry[p.before + p.core]) || strchr("_-.", entry[p.before + p.core])))
        p.core++;
    if (p.before > 0 && p.core > 0 && entry[p.before + p.core] == '*' && entry[p.before + p.core - 1] == '.')
        p.core--; /* ".*" */
    p.after = entry + p.before + p.core;
    return p;
}

/* Returns true for "gate" and "gate_proj", which are two names. */
static bool is_beginning(const char *word, const char *name)
{
    return strlen(name) > strlen(word) + 2 && strncmp(word, name, strlen(word)) == 0;
}

static bool say_near(const struct hint *h)
{
    char core[MAX_ENTRY], near[MAX_ENTRY], wanted[3 * MAX_ENTRY];
    const struct entry_parts p = cut_entry(h->entry);
    snprintf(core, sizeof core, "%.*s", p.core, h->entry + p.before);
    if (p.core == 0 || strlen(p.after) > 8 || (p.before == 0 && *p.after))
        return false;
    const size_t last = component_start(core, strlen(core));
    if (find_near(h->names, core + last, false, near, sizeof near) && !is_beginning(core + last, near)) {
        snprintf(wanted, sizeof wanted, "%.*s%.*s%s%s", p.before, h->entry, (int)last, core, near, p.after);
        if (FITS(h, wanted))
            return SAY(h, "did you mean %s?", wanted);
        snprintf(wanted, sizeof wanted, "re:.*%.*s%s", (int)last, core, near);
        if (p.before == 0 && FITS(h, wanted))
            return SAY(h, "did you mean %s?", wanted);
        if (p.before == 0 && FITS(h, near))
            return SAY(h, "did you mean %s?", near);
    }
    return p.before == 0 && last > 0 && find_near(h->names, core, true, near, sizeof near) &&
           SAY(h, "did you mean %s?", near);
}

static bool say_class(const struct hint *h)
{
    static const char *const classes[] = {"Linear", NULL};
    if (!h->target)
        return isupper((unsigned char)h->entry[0]) && !strchr(h->entry, '.') &&
               SAY(h, "classes are not known here; names are");
    if (suggest_of(h->entry, classes))
        return SAY(h, "did you mean Linear?");
    return isupper((unsigned char)h->entry[0]) && !strchr(h->entry, '.') &&
           SAY(h, "of the classes Linear alone is known; others have names");
}

void unused_hint(char *text, size_t size, const struct module_names *names, const char *entry, bool target)
{
    static bool (*const rules[])(const struct hint *) = {say_quoted, say_list, say_pattern, say_weight,
                                                         say_start,  say_near, say_class};
    const struct hint h = {text, size, names, entry, target};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strlen(entry) < MAX_ENTRY - 8 && rules[i](&h))
            return;
    snprintf(text, size, "an entry is a whole name, or re: and a pattern that matches from the start");
}
