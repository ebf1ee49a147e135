/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Exact names are in a sorted list; patterns are tried in their order. */
#include "schemes/match.h"

#include "files/text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 1000000, MAX_PATTERN = 1 << 16 };

struct exact_entry {
    const char *text;
    size_t length, index;
};

struct pattern_entry {
    pcre2_code *code;
    size_t index;
    atomic_bool exceeded; /* its limit of steps */
};

struct matcher {
    char **texts; /* copies of the entries */
    size_t count;
    struct exact_entry *exact; /* sorted by length, bytes and index */
    size_t exact_count;
    struct pattern_entry *patterns;
    size_t pattern_count;
    pcre2_match_context *limits;
};

static int compare_text(const char *a, size_t a_length, const char *b, size_t b_length)
{
    if (a_length != b_length)
        return a_length < b_length ? -1 : 1;
    return memcmp(a, b, a_length);
}

static int compare_exact(const void *a, const void *b)
{
    const struct exact_entry *s = a, *t = b;
    const int order = compare_text(s->text, s->length, t->text, t->length);
    return order ? order : ORDER(s->index, t->index);
}

static int add_pattern(struct matcher *m, size_t index, const char *pattern, const char *what, struct fail *f)
{
    int code;
    PCRE2_SIZE at;
    const size_t length = strlen(pattern);
    if (length > MAX_PATTERN)
        return fail(f, "%s: a pattern has %zu bytes; at most %d are allowed", what, length, MAX_PATTERN);
    struct pattern_entry *p = &m->patterns[m->pattern_count];
    p->index = index;
    p->code = pcre2_compile((PCRE2_SPTR)pattern, length, PCRE2_ANCHORED | PCRE2_UTF, &code, &at, NULL);
    if (!p->code) {
        unsigned char reason[128];
        pcre2_get_error_message(code, reason, sizeof reason);
        return fail(f, "%s: 're:%.100s' is no regular expression: %s at its byte %zu", what, pattern, (char *)reason,
                    (size_t)at);
    }
    m->pattern_count++;
    return 0;
}

static int fill(struct matcher *m, const char *const *entries, size_t count, const char *what, struct fail *f)
{
    m->texts = calloc(count + 1, sizeof *m->texts);
    m->exact = calloc(count + 1, sizeof *m->exact);
    m->patterns = calloc(count + 1, sizeof *m->patterns);
    m->limits = pcre2_match_context_create(NULL);
    if (!m->texts || !m->exact || !m->patterns || !m->limits)
        return fail_system(f, "%s: no memory for %zu entries", what, count);
    pcre2_set_match_limit(m->limits, MAX_STEPS);
    pcre2_set_depth_limit(m->limits, MAX_STEPS);
    for (size_t i = 0; i < count; i++) {
        m->texts[i] = strdup(entries[i]);
        if (!m->texts[i])
            return fail_system(f, "%s: no memory for %zu entries", what, count);
        m->count++;
        if (strncmp(entries[i], "re:", 3) != 0)
            m->exact[m->exact_count++] =
                (struct exact_entry){.text = m->texts[i], .length = strlen(m->texts[i]), .index = i};
        else
            RETURN_IF_NOT_OK(add_pattern(m, i, m->texts[i] + 3, what, f));
    }
    if (m->exact_count > 0)
        qsort(m->exact, m->exact_count, sizeof *m->exact, compare_exact);
    return 0;
}

int matcher_create(struct matcher **matcher, const char *const *entries, size_t count, const char *what, struct fail *f)
{
    *matcher = calloc(1, sizeof **matcher);
    if (!*matcher)
        return fail_system(f, "%s: no memory", what);
    const int result = fill(*matcher, entries, count, what, f);
    if (result != 0)
        matcher_release(matcher);
    return result;
}

void matcher_free(struct matcher *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->pattern_count; i++)
        pcre2_code_free(m->patterns[i].code);
    pcre2_match_context_free(m->limits);
    named_free(m->texts, m->count, sizeof *m->texts, 1);
    free(m->exact);
    free(m->patterns);
    free(m);
}

void matcher_release(struct matcher **matcher)
{
    matcher_free(*matcher);
    *matcher = NULL;
}

static ptrdiff_t find_exact(const struct matcher *m, const char *name, size_t length)
{
    size_t low = 0, high = m->exact_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_text(m->exact[middle].text, m->exact[middle].length, name, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const bool found =
        low < m->exact_count && compare_text(m->exact[low].text, m->exact[low].length, name, length) == 0;
    return found ? (ptrdiff_t)m->exact[low].index : -1;
}

ptrdiff_t matcher_find(const struct matcher *m, const char *name, size_t length)
{
    ptrdiff_t found = find_exact(m, name, length);
    for (size_t i = 0; i < m->pattern_count && (found < 0 || (size_t)found > m->patterns[i].index); i++) {
        if (atomic_load(&m->patterns[i].exceeded))
            continue;
        pcre2_match_data *data = pcre2_match_data_create(1, NULL);
        const int result =
            data ? pcre2_match(m->patterns[i].code, (PCRE2_SPTR)name, length, 0, 0, data, m->limits) : -1;
        pcre2_match_data_free(data);
        if (result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_DEPTHLIMIT || result == PCRE2_ERROR_HEAPLIMIT)
            atomic_store(&m->patterns[i].exceeded, true);
        if (result >= 0)
            found = (ptrdiff_t)m->patterns[i].index;
    }
    return found;
}

int matcher_check(const struct matcher *m, const char *what, struct fail *f)
{
    for (size_t i = 0; i < m->pattern_count; i++)
        if (atomic_load(&m->patterns[i].exceeded))
            return fail(f, "%s: '%.200s' takes more than %d steps for a name; a simpler pattern is needed", what,
                        m->texts[m->patterns[i].index], MAX_STEPS);
    return 0;
}

bool matcher_has(const struct matcher *matcher, const char *text)
{
    return find_exact(matcher, text, strlen(text)) >= 0;
}
