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
    FILE *out;
    bool failed;
    enum json_style style;
};

/* Prints one code point beyond ASCII, in two UTF-16 units if it needs them. */
static void print_code_point(FILE *out, const unsigned char *p, size_t length)
{
    unsigned code = p[0] & (0xff >> (length + 1));
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (p[i] & 0x3f);
    if (code < 0x10000)
        fprintf(out, "\\u%04x", code);
    else
        fprintf(out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
}

void json_print_string(FILE *out, const char *text, bool ascii)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const unsigned char *p = (const unsigned char *)text;
    putc('"', out);
    for (size_t step; *p; p += step) {
        for (step = 0; p[step] >= 0x20 && p[step] != '"' && p[step] != '\\' && (p[step] < 0x7f || !ascii);)
            step++;
        if (step > 0) {
            fwrite(p, 1, step, out);
            continue;
        }
        const char *known = strchr(special, *p);
        const size_t sequence = *p < 0x80 ? 1 : utf8_sequence(p, strlen((const char *)p));
        step = sequence ? sequence : 1;
        if (known)
            fprintf(out, "\\%c", letters[known - special]);
        else if (sequence > 1)
            print_code_point(out, p, sequence);
        else
            fprintf(out, "\\u%04x", *p);
    }
    putc('"', out);
}

static void print_newline(const struct printer *p, int depth)
{
    if (p->style != JSON_LINE)
        fprintf(p->out, "\n%*s", 2 * depth, "");
}

static void print_value(struct printer *p, const json_object *v, int depth);

static void print_member(struct printer *p, const struct json_item *item, bool first, int depth)
{
    fputs(first ? "" : ",", p->out);
    print_newline(p, depth + 1);
    if (item->key) {
        json_print_string(p->out, item->key, true);
        fputs(p->style == JSON_LINE ? ":" : ": ", p->out);
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
        p->failed = true;
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
    putc(object ? '{' : '[', p->out);
    if (object && p->style == JSON_SORTED)
        print_sorted(p, parent, depth);
    else
        json_each(item, parent) print_member(p, &item, item.next == 1, depth);
    if (json_count(parent) > 0)
        print_newline(p, depth);
    putc(object ? '}' : ']', p->out);
}

static void print_value(struct printer *p, const json_object *v, int depth)
{
    if (json_is_object(v) || json_is_array(v))
        print_members(p, v, depth);
    else if (json_is_string(v) && json_object_get_userdata((json_object *)(uintptr_t)v) == printed)
        fputs(json_text(v), p->out);
    else if (json_is_string(v))
        json_print_string(p->out, json_text(v), true);
    else
        fputs(json_scalar(v, &(struct json_scalar){{0}}), p->out);
}

static char *print(const json_object *v, enum json_style style, int depth)
{
    char *text = NULL;
    size_t size;
    struct printer p = {.out = open_memstream(&text, &size), .style = style};
    if (!p.out)
        return NULL;
    print_value(&p, v, depth);
    p.failed |= ferror(p.out) != 0;
    if (fclose(p.out) == 0 && !p.failed)
        return text;
    free(text);
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
