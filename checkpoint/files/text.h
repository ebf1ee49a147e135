/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Texts and lists that grow. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>

bool ends_with(const char *text, const char *ending);

/* Returns true if a word, or `length` bytes, are one of several words that spaces separate. */
bool is_one_of(const char *word, const char *words);
bool are_one_of(const char *bytes, size_t length, const char *words);

/* Returns the start of the component of a dotted name that ends at byte `end`. */
size_t component_start(const char *name, size_t end);

/* Length of the UTF-8 sequence at p, 1 to 4, or 0 if it is invalid: overlong, a surrogate, beyond U+10FFFF,
 * truncated. Reads at most `left` bytes; `left` > 0. */
size_t utf8_sequence(const unsigned char *p, size_t left);

/* Formats a text of any length, to be freed. NULL: no memory. */
char *text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A text that grows; zero-initialize it. It is no open_memstream: that of glibc cuts a text without an error if memory
 * is missing. text_printf is for at most 255 bytes. */
struct text_buffer {
    char *text;        /* with a '\0' behind it, to be freed; NULL: nothing was put */
    size_t size, room; /* room: bytes of the allocation */
    bool failed;       /* no memory: something is missing */
};
void text_put(struct text_buffer *buffer, const void *bytes, size_t count);
void text_puts(struct text_buffer *buffer, const char *text);
void text_printf(struct text_buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends to a text in `size` bytes what fits. Returns false if it is cut. */
bool text_append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Copies a text to `size` bytes. A longer one loses the middle of its longest word, if that is enough, else its end;
 * sequences of UTF-8 stay whole. */
void text_cut(char *to, size_t size, const char *text);

/* Replaces an owned text by a copy. Returns false, and the text is NULL, if there is no memory. */
bool text_set(char **text, const char *value);

/* Returns "<directory>/<name>", to be freed; the name alone if the directory is "". NULL: no memory. */
char *path_join(const char *directory, const char *name);

/* Lists whose elements begin with their name, a char *, and may be texts alone. Sort by name; find a name in a sorted
 * list, NULL: it is not there; return a name that a sorted list has twice, NULL: none. */
void named_sort(void *items, size_t count, size_t size);
const void *named_find(const void *items, size_t count, size_t size, const char *name);
const char *named_twice(const void *items, size_t count, size_t size);

/* Frees a list, and of each element the first `texts` members, which are char *. */
void named_free(void *items, size_t count, size_t size, size_t texts);

/* Returns the name that occurs twice among those of a list that keeps its order; NULL: none. *failed: no memory. */
const char *named_repeated(const void *items, size_t count, size_t size, bool *failed);

/* A variable whose memory is freed, or that a function releases, when its block ends. */
#define OWNED __attribute__((cleanup(free_owned)))
#define RELEASED_BY(function) __attribute__((cleanup(function)))
void free_owned(void *variable);

/* The same for a descriptor, if it is not negative, and for a directory, if it is open. */
#define OWNED_DESCRIPTOR RELEASED_BY(descriptor_close)
#define OWNED_DIRECTORY RELEASED_BY(directory_close)
void descriptor_close(const int *descriptor);
void directory_close(DIR **directory);

/* A list of texts that belong to the caller. */
struct texts {
    const char *const *items;
    size_t count;
};

/* The order of two numbers or pointers for qsort. */
#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/* Appends an element of zeroes to a list, whose pointer is at `items`, and returns it; NULL: no memory, the list stays.
 * Lists grow here alone, to twice their size. */
void *list_add(void *items, size_t *count, size_t size);

/* Appends a copy of an element. Returns false if there is no memory. */
bool list_append(void *items, size_t *count, size_t size, const void *element);
