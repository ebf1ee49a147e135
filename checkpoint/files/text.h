/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Texts and lists that grow. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool ends_with(const char *text, const char *ending);

/* Returns true if a word is one of several that spaces separate. */
bool is_one_of(const char *word, const char *words);

/* Length of the UTF-8 sequence at p, 1 to 4, or 0 if it is invalid: overlong, a surrogate, beyond U+10FFFF,
 * truncated. Reads at most `left` bytes; `left` > 0. */
size_t utf8_sequence(const unsigned char *p, size_t left);

/* Formats a text of any length, to be freed. NULL: no memory. */
char *text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns "<directory>/<name>", to be freed; the name alone if the directory is "". NULL: no memory. */
char *path_join(const char *directory, const char *name);

/* Returns the text that occurs twice among `count`; NULL: none. Sorts them. */
const char *text_repeated(const char **texts, size_t count);

/* Gives a list of `count` elements room for one more, and returns it; NULL: no memory, the list stays. Lists grow here
 * alone, to twice their size. */
void *list_grow(void *items, size_t count, size_t size);
