/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints trees as Python does: json-c prints neither its indentation nor ASCII alone. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "files/text.h"

/* The user data of a string that is the text of a value. */
static char printed[1];

struct printer {
    struct text_buffer *out;
    enum json_style style;
};

/* Prints one code point beyond ASCII, in two UTF-16 units if it needs them. */
static void print_code_point(struct text_buffer *out, const unsigned char *p, size_t length)
{
    unsigned code = p[0] & (0xff >> (length + 1));
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (p[i] & 0x3f);
    if (code < 0x10000)
        text_printf(out, "\\u%04x", code);
    else
        text_printf(out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
}

void json_print_string(struct text_buffer *out, const char *text, bool ascii)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const unsigned char *p = (const unsigned char *)text;
    text_puts(out, "\"");
    for (size_t step; *p; p += step) {
        for (step = 0; p[step] >= 0x20 && p[step] != '"' && p[step] != '\\' && (p[step] < 0x7f || !ascii);)
            step++;
        if (step > 0) {
            text_put(out, p, step);
            continue;
        }
        const char *known = strchr(special, *p);
        const size_t sequence = *p < 0x80 ? 1 : utf8_sequence(p, strlen((const char *)p));
        step = sequence ? sequence : 1;
        if (known)
            text_printf(out, "\\%c", letters[known - special]);
        else if (sequence > 1)
            print_code_point(out, p, sequence);
        else
            text_printf(out, "\\u%04x", *p);
    }
    text_puts(out, "\"");
}

static void print_newline(const struct printer *p, int depth)
{
    if (p->style == JSON_LINE)
        return;
    text_puts(p->out, "\n");
    for (int i = 0; i < depth; i++)
        text_puts(p->out, "  ");
}

static void print_value(struct printer *p, const json_object *v, int depth);

static void print_member(struct printer *p, const struct json_item *item, bool first, int depth)
{
    text_puts(p->out, first ? "" : ",");
    print_newline(p, depth + 1);
    if (item->key) {
        json_print_string(p->out, item->key, true);
        text_puts(p->out, p->style == JSON_LINE ? ":" : ": ");
    }
    print_value(p, item->value, depth + 1);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct json_item *)a)->key, ((const struct json_item *)b)->key);
}

static void print_sorted(struct printer *p, const json_object *object, int depth)
{
    struct json_item *sorted = malloc((json_count(object) + 1) * sizeof *sorted);
    size_t n = 0;
    if (!sorted) {
        p->out->failed = true;
        return;
    }
    json_each(item, object) sorted[n++] = item;
    qsort(sorted, n, sizeof *sorted, compare_keys); /* bytes of UTF-8 order as code points do */
    for (size_t i = 0; i < n; i++)
        print_member(p, &sorted[i], i == 0, depth);
    free(sorted);
}

static void print_members(struct printer *p, const json_object *parent, int depth)
{
    const bool object = json_is_object(parent);
    text_puts(p->out, object ? "{" : "[");
    if (object && p->style == JSON_SORTED)
        print_sorted(p, parent, depth);
    else
        json_each(item, parent) print_member(p, &item, item.next == 1, depth);
    if (json_count(parent) > 0)
        print_newline(p, depth);
    text_puts(p->out, object ? "}" : "]");
}

static void print_value(struct printer *p, const json_object *v, int depth)
{
    if (json_is_object(v) || json_is_array(v))
        print_members(p, v, depth);
    else if (json_is_string(v) && json_object_get_userdata((json_object *)(uintptr_t)v) == printed)
        text_puts(p->out, json_text(v));
    else if (json_is_string(v))
        json_print_string(p->out, json_text(v), true);
    else
        text_puts(p->out, json_scalar(v, &(struct json_scalar){{0}}));
}

static char *print(const json_object *v, enum json_style style, int depth)
{
    struct text_buffer text = {0};
    struct printer p = {.out = &text, .style = style};
    print_value(&p, v, depth);
    if (!text.failed)
        return text.text;
    free(text.text);
    return NULL;
}

char *json_print(const json_object *root, enum json_style style) { return print(root, style, 0); }

bool json_append_printed(json_object *array, json_object *element, enum json_style style, int depth)
{
    OWNED char *text = print(element, style, depth);
    json_object *value = text ? json_object_new_string(text) : NULL;
    json_object_put(element);
    if (value)
        json_object_set_userdata(value, printed, NULL);
    return value && json_append(array, value);
}
