/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints trees as Python does: json-c prints neither its indentation nor ASCII alone. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "files/utf8.h"

struct buffer {
    char *data;
    size_t length, capacity;
    bool failed;
    enum json_style style;
};

static void put(struct buffer *b, const char *text, size_t length)
{
    if (!b->failed && b->length + length + 1 > b->capacity) {
        const size_t capacity = 2 * b->capacity + length + 256;
        char *grown = realloc(b->data, capacity);
        if (grown) {
            b->data = grown;
            b->capacity = capacity;
        } else {
            b->failed = true;
        }
    }
    if (b->failed)
        return;
    memcpy(b->data + b->length, text, length);
    b->length += length;
    b->data[b->length] = '\0';
}

static void put_text(struct buffer *b, const char *text) { put(b, text, strlen(text)); }

static void put_unit(struct buffer *b, unsigned unit)
{
    char text[8];
    snprintf(text, sizeof text, "\\u%04x", unit);
    put_text(b, text);
}

/* Writes one code point beyond ASCII, in two UTF-16 units if it needs them. */
static void put_code_point(struct buffer *b, const unsigned char *p, size_t length)
{
    unsigned code = p[0] & (0xff >> (length + 1));
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (p[i] & 0x3f);
    if (code < 0x10000) {
        put_unit(b, code);
        return;
    }
    put_unit(b, 0xd800 + ((code - 0x10000) >> 10));
    put_unit(b, 0xdc00 + ((code - 0x10000) & 0x3ff));
}

static void put_string(struct buffer *b, const char *string)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const unsigned char *p = (const unsigned char *)string;
    size_t left = strlen(string);
    put_text(b, "\"");
    while (left > 0) {
        const char *known = strchr(special, *p);
        const size_t sequence = *p < 0x80 ? 1 : utf8_sequence(p, left), step = sequence ? sequence : 1;
        if (known) {
            put(b, "\\", 1);
            put(b, &letters[known - special], 1);
        } else if (*p >= 0x20 && *p < 0x7f) {
            put(b, (const char *)p, 1);
        } else if (sequence > 1) {
            put_code_point(b, p, sequence);
        } else {
            put_unit(b, *p);
        }
        p += step;
        left -= step;
    }
    put_text(b, "\"");
}

static void put_newline(struct buffer *b, int depth)
{
    if (b->style == JSON_LINE)
        return;
    put_text(b, "\n");
    for (int i = 0; i < depth; i++)
        put_text(b, "  ");
}

static void put_value(struct buffer *b, const json_object *v, int depth);

static void put_member(struct buffer *b, const struct json_item *item, bool first, int depth)
{
    put_text(b, first ? "" : ",");
    put_newline(b, depth + 1);
    if (item->key) {
        put_string(b, item->key);
        put_text(b, b->style == JSON_LINE ? ":" : ": ");
    }
    put_value(b, item->value, depth + 1);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct json_item *)a)->key, ((const struct json_item *)b)->key);
}

static void put_sorted(struct buffer *b, const json_object *object, int depth)
{
    struct json_item *sorted = malloc((json_count(object) + 1) * sizeof *sorted);
    size_t n = 0;
    if (!sorted) {
        b->failed = true;
        return;
    }
    json_each(item, object) sorted[n++] = item;
    qsort(sorted, n, sizeof *sorted, compare_keys); /* bytes of UTF-8 order as code points do */
    for (size_t i = 0; i < n; i++)
        put_member(b, &sorted[i], i == 0, depth);
    free(sorted);
}

static void put_members(struct buffer *b, const json_object *parent, int depth)
{
    const bool object = json_is_object(parent);
    put_text(b, object ? "{" : "[");
    if (object && b->style == JSON_SORTED)
        put_sorted(b, parent, depth);
    else
        json_each(item, parent) put_member(b, &item, item.next == 1, depth);
    if (json_count(parent) > 0)
        put_newline(b, depth);
    put_text(b, object ? "}" : "]");
}

static void put_value(struct buffer *b, const json_object *v, int depth)
{
    if (json_is_object(v) || json_is_array(v))
        put_members(b, v, depth);
    else if (json_is_string(v))
        put_string(b, json_text(v));
    else if (v)
        put_text(b, json_object_get_string((json_object *)(uintptr_t)v)); /* json-c keeps the text in the value */
    else
        put_text(b, "null");
}

char *json_print(const json_object *root, enum json_style style)
{
    struct buffer b = {.style = style};
    put_value(&b, root, 0);
    if (!b.failed)
        return b.data;
    free(b.data);
    return NULL;
}
