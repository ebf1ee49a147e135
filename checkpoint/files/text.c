/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Small things that most files need. */
#include "files/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ends_with(const char *text, const char *ending)
{
    const size_t length = strlen(text), tail = strlen(ending);
    return length >= tail && strcmp(text + length - tail, ending) == 0;
}

bool are_one_of(const char *bytes, size_t length, const char *words)
{
    for (const char *at = words; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (strncmp(at, bytes, length) == 0 && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

bool is_one_of(const char *word, const char *words) { return are_one_of(word, strlen(word), words); }

size_t component_start(const char *name, size_t end)
{
    while (end > 0 && name[end - 1] != '.')
        end--;
    return end;
}

size_t utf8_sequence(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return 1;
    const size_t length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || length > left)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return length;
}

char *text_format(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int length = vsnprintf(NULL, 0, format, values);
    va_end(values);
    char *text = length >= 0 ? malloc((size_t)length + 1) : NULL;
    va_start(values, format);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, values);
    va_end(values);
    return text;
}

/* Makes room for `count` bytes more and the '\0'. */
static bool text_grow(struct text_buffer *b, size_t count)
{
    enum { FIRST = 256 };
    const size_t twice = b->room ? 2 * b->room : FIRST, needed = b->size + count + 1;
    const size_t room = twice > needed ? twice : needed;
    char *text = realloc(b->text, room);
    if (!text)
        return false;
    b->text = text;
    b->room = room;
    return true;
}

void text_put(struct text_buffer *b, const void *bytes, size_t count)
{
    b->failed = b->failed || (count >= b->room - b->size && !text_grow(b, count));
    if (b->failed)
        return;
    memcpy(b->text + b->size, bytes, count);
    b->size += count;
    b->text[b->size] = '\0';
}

void text_puts(struct text_buffer *b, const char *text) { text_put(b, text, strlen(text)); }

void text_printf(struct text_buffer *b, const char *format, ...)
{
    char text[256];
    va_list values;
    va_start(values, format);
    const int length = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    b->failed |= length < 0 || (size_t)length >= sizeof text;
    text_puts(b, text);
}

bool text_append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    const int length = vsnprintf(text + used, size - used, format, values);
    va_end(values);
    return length >= 0 && (size_t)length < size - used;
}

static bool is_continuation(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

/* Returns `at`, or the start of the UTF-8 sequence that it is within. */
static size_t sequence_start(const char *text, size_t at)
{
    for (int i = 0; i < 3 && at > 0 && is_continuation(text[at]); i++)
        at--;
    return at;
}

void text_cut(char *to, size_t size, const char *text)
{
    const size_t length = strlen(text), over = length < size ? 0 : length - size + sizeof "...";
    const char *word = text;
    size_t longest = 0;
    for (const char *p = text; *p;) {
        const size_t bytes = strcspn(p, " ");
        word = bytes > longest ? p : word;
        longest = bytes > longest ? bytes : longest;
        p += bytes + (p[bytes] == ' ');
    }
    if (over == 0 || over > longest) {
        snprintf(to, size, "%.*s", (int)sequence_start(text, length < size ? length : size - 1), text);
        return;
    }
    const size_t head = (size_t)(word - text) + (longest - over) / 2;
    size_t tail = head + over;
    for (int i = 0; i < 3 && is_continuation(text[tail]); i++)
        tail++;
    snprintf(to, size, "%.*s...%s", (int)sequence_start(text, head), text, text + tail);
}

bool text_set(char **text, const char *value)
{
    free(*text);
    *text = strdup(value);
    return *text != NULL;
}

char *path_join(const char *directory, const char *name)
{
    return text_format("%s%s%s", directory, *directory ? "/" : "", name);
}

static const char *name_in(const void *items, size_t size, size_t i)
{
    return *(const char *const *)(const void *)((const char *)items + i * size);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void named_sort(void *items, size_t count, size_t size)
{
    if (count > 0)
        qsort(items, count, size, compare_names);
}

const void *named_find(const void *items, size_t count, size_t size, const char *name)
{
    return count > 0 ? bsearch(&name, items, count, size, compare_names) : NULL;
}

const char *named_twice(const void *items, size_t count, size_t size)
{
    for (size_t i = 1; i < count; i++)
        if (strcmp(name_in(items, size, i - 1), name_in(items, size, i)) == 0)
            return name_in(items, size, i);
    return NULL;
}

const char *named_repeated(const void *items, size_t count, size_t size, bool *failed)
{
    OWNED const char **names = malloc((count + 1) * sizeof *names);
    *failed = !names;
    for (size_t i = 0; names && i < count; i++)
        names[i] = name_in(items, size, i);
    if (!names)
        return NULL;
    named_sort(names, count, sizeof *names);
    return named_twice(names, count, sizeof *names);
}

void named_free(void *items, size_t count, size_t size, size_t texts)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < texts; k++)
            free(((char **)(void *)((char *)items + i * size))[k]);
    free(items);
}

void free_owned(void *variable)
{
    void *memory;
    memcpy(&memory, variable, sizeof memory);
    free(memory);
}

void descriptor_close(const int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
}

void directory_close(DIR **directory)
{
    if (*directory)
        closedir(*directory);
}

void *list_add(void *items, size_t *count, size_t size)
{
    enum { FIRST = 16 };
    const size_t n = *count, room = n ? 2 * n : FIRST;
    char *list;
    memcpy(&list, items, sizeof list); /* a pointer to any type */
    if (n == 0 || (n >= FIRST && (n & (n - 1)) == 0)) {
        list = room <= SIZE_MAX / size ? realloc(list, room * size) : NULL;
        if (!list)
            return NULL;
        memcpy(items, &list, sizeof list);
    }
    ++*count;
    return memset(list + n * size, 0, size);
}

bool list_append(void *items, size_t *count, size_t size, const void *element)
{
    void *added = list_add(items, count, size);
    if (added)
        memcpy(added, element, size);
    return added != NULL;
}
