/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Writes into a growing buffer. */
#include "files/json_print.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/utf8.h"

struct buffer {
    char *data;
    size_t length, capacity;
    bool failed;
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
    put(b, text, (size_t)snprintf(text, sizeof text, "\\u%04x", unit));
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

/* Writes the shortest decimal that reads back as the same double. */
static void shortest(char *text, size_t size, double value)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

static void put_number(struct buffer *b, const cJSON *item)
{
    char text[40];
    if (item->valuestring) {
        put_text(b, item->valuestring);
        return;
    }
    shortest(text, sizeof text, item->valuedouble);
    put_text(b, isfinite(item->valuedouble) ? text : "null");
}

static void put_newline(struct buffer *b, int depth)
{
    put_text(b, "\n");
    for (int i = 0; i < depth; i++)
        put_text(b, "  ");
}

static void put_value(struct buffer *b, const cJSON *item, int depth);

static int compare_keys(const void *a, const void *b)
{
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

static void put_object(struct buffer *b, const cJSON *object, int depth)
{
    const size_t count = (size_t)cJSON_GetArraySize(object);
    const cJSON **sorted = malloc((count + 1) * sizeof *sorted), *item;
    size_t n = 0;
    if (!sorted) {
        b->failed = true;
        return;
    }
    cJSON_ArrayForEach(item, object) { sorted[n++] = item; }
    qsort(sorted, n, sizeof *sorted, compare_keys); /* bytes of UTF-8 order as code points do */
    put_text(b, "{");
    for (size_t i = 0; i < n; i++) {
        put_text(b, i ? "," : "");
        put_newline(b, depth + 1);
        put_string(b, sorted[i]->string);
        put_text(b, ": ");
        put_value(b, sorted[i], depth + 1);
    }
    if (n > 0)
        put_newline(b, depth);
    put_text(b, "}");
    free(sorted);
}

static void put_array(struct buffer *b, const cJSON *array, int depth)
{
    const cJSON *item;
    put_text(b, "[");
    cJSON_ArrayForEach(item, array)
    {
        put_text(b, item == array->child ? "" : ",");
        put_newline(b, depth + 1);
        put_value(b, item, depth + 1);
    }
    if (array->child)
        put_newline(b, depth);
    put_text(b, "]");
}

static void put_value(struct buffer *b, const cJSON *item, int depth)
{
    if (cJSON_IsObject(item))
        put_object(b, item, depth);
    else if (cJSON_IsArray(item))
        put_array(b, item, depth);
    else if (cJSON_IsString(item))
        put_string(b, item->valuestring);
    else if (cJSON_IsNumber(item))
        put_number(b, item);
    else if (cJSON_IsRaw(item))
        put_text(b, item->valuestring);
    else
        put_text(b, cJSON_IsTrue(item) ? "true" : cJSON_IsFalse(item) ? "false" : "null");
}

char *json_print_sorted(const cJSON *root)
{
    struct buffer b = {0};
    put_value(&b, root, 0);
    if (!b.failed)
        return b.data;
    free(b.data);
    return NULL;
}

cJSON *json_exact_number(const char *text)
{
    cJSON *item = cJSON_CreateNumber(strtod(text, NULL));
    if (!item)
        return NULL;
    item->valuestring = cJSON_malloc(strlen(text) + 1);
    if (!item->valuestring) {
        cJSON_Delete(item);
        return NULL;
    }
    memcpy(item->valuestring, text, strlen(text) + 1);
    return item;
}

cJSON *json_python_float(double value)
{
    char text[40];
    shortest(text, sizeof text - 3, value);
    if (!strpbrk(text, ".en"))
        memcpy(text + strlen(text), ".0", 3);
    return json_exact_number(text);
}
