/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The distance of two words is that of optimal string alignment. */
#include "files/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_WORD = 127 };

static int smaller(int a, int b) { return a < b ? a : b; }

static bool same(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

/* Counts the characters to insert, delete, replace or exchange with their neighbour. Words of at most MAX_WORD. */
static int distance(const char *a, const char *b)
{
    const int n = (int)strlen(a), m = (int)strlen(b);
    int rows[3][MAX_WORD + 1];
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            int *row = rows[i % 3], *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];
            if (i == 0 || j == 0) {
                row[j] = i + j;
                continue;
            }
            row[j] = smaller(smaller(before[j], row[j - 1]) + 1, before[j - 1] + !same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                row[j] = smaller(row[j], two_before[j - 2] + 1);
        }
    return rows[n % 3][m];
}

static int distance_to_name(const char *word, const char *name)
{
    const char *dot = strrchr(name, '.');
    if (strcasecmp(word, name) == 0 || (dot && strcasecmp(word, dot + 1) == 0))
        return 0;
    int d = distance(word, name);
    if (dot)
        d = smaller(d, distance(word, dot + 1));
    return strlen(word) >= 3 && strncasecmp(word, name, strlen(word)) == 0 ? smaller(d, 1) : d;
}

const char *suggest(const char *word, suggest_names *names, const void *context)
{
    const char *best = NULL, *name;
    const size_t length = strlen(word);
    int best_distance = 1 + (int)length / 5;
    if (length == 0 || length > MAX_WORD)
        return NULL;
    for (size_t i = 0; (name = names(context, i)) != NULL; i++) {
        if (strlen(name) > MAX_WORD)
            continue;
        const int d = distance_to_name(word, name);
        if (d < best_distance || (d == best_distance && !best)) {
            best = name;
            best_distance = d;
        }
    }
    /* A word of one or two characters is near to every other. */
    return length > 2 || best_distance == 0 ? best : NULL;
}

static const char *word_at(const void *context, size_t index)
{
    const char *const *words = context;
    return words[index];
}

const char *suggest_of(const char *word, const char *const *words) { return suggest(word, word_at, words); }

const char *did_you_mean(char text[HINT_SIZE], const char *word, const char *const *words)
{
    const char *near = suggest_of(word, words);
    snprintf(text, HINT_SIZE, "%s%.100s%s", near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return text;
}
