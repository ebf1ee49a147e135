/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The order is that of safetensors 0.8: dtypes by falling alignment, then names by bytes. */
#include "quantize/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_places(const void *a, const void *b)
{
    const struct output_tensor *s = a, *t = b;
    if (s->shard != t->shard)
        return s->shard < t->shard ? -1 : 1;
    const int ranks = (int)s->dtype - (int)t->dtype;
    return ranks != 0 ? ranks : strcmp(s->name, t->name);
}

static int compare_output_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_unique(const struct output_layout *l, struct fail *f)
{
    const char **names = malloc((l->count + 1) * sizeof *names);
    if (!names)
        return NO_MEMORY(f, "the names");
    for (size_t i = 0; i < l->count; i++)
        names[i] = l->tensors[i].name;
    qsort(names, l->count, sizeof *names, compare_output_names);
    int status = QOBS_OK;
    for (size_t i = 1; status == QOBS_OK && i < l->count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = INVALID(f, "tensor '%.200s' would be there twice", names[i]);
    free(names);
    return status;
}

/* ---- Headers ----------------------------------------------------------------------------------------------------- */

struct header_text {
    char *data;
    size_t length, capacity;
    bool failed;
};

static void put(struct header_text *t, const char *data, size_t length)
{
    if (t->length + length > t->capacity && !t->failed) {
        const size_t capacity = 2 * t->capacity + length + 256;
        char *grown = realloc(t->data, capacity);
        if (grown) {
            t->data = grown;
            t->capacity = capacity;
        } else {
            t->failed = true;
        }
    }
    if (t->failed)
        return;
    memcpy(t->data + t->length, data, length);
    t->length += length;
}

static void put_text(struct header_text *t, const char *text) { put(t, text, strlen(text)); }

static void put_number(struct header_text *t, uint64_t number)
{
    char digits[24];
    put(t, digits, (size_t)snprintf(digits, sizeof digits, "%" PRIu64, number));
}

/* Writes a string as serde_json does: bytes beyond ASCII stay. */
static void put_string(struct header_text *t, const char *string)
{
    put_text(t, "\"");
    for (const char *p = string; *p; p++) {
        static const char names[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
        const char *known = strchr(names, *p);
        char escaped[8];
        if (known) {
            escaped[0] = '\\';
            escaped[1] = letters[known - names];
            put(t, escaped, 2);
        } else if ((unsigned char)*p < 0x20) {
            put(t, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*p));
        } else {
            put(t, p, 1);
        }
    }
    put_text(t, "\"");
}

static void put_tensor(struct header_text *t, const struct output_tensor *o, uint64_t begin)
{
    put_string(t, o->name);
    put_text(t, ":{\"dtype\":\"");
    put_text(t, dtype_name(o->dtype));
    put_text(t, "\",\"shape\":[");
    for (int d = 0; d < o->ndim; d++) {
        put_text(t, d ? "," : "");
        put_number(t, (uint64_t)o->shape[d]);
    }
    put_text(t, "],\"data_offsets\":[");
    put_number(t, begin);
    put_text(t, ",");
    put_number(t, begin + o->bytes);
    put_text(t, "]}");
}

/* transformers up to 4.47 need {"format": "pt"} of the input. */
static void put_metadata(struct header_text *t, const struct st_file *source)
{
    for (size_t i = 0; i < source->metadata_count; i++) {
        put_text(t, i == 0 ? "\"__metadata__\":{" : ",");
        put_string(t, source->metadata[i].name);
        put_text(t, ":");
        put_string(t, source->metadata[i].value);
    }
    put_text(t, source->metadata_count > 0 ? "}," : "");
}

/* Makes the header of a shard whose tensors are [first, end), and their offsets in the file. */
static int make_header(struct output_layout *l, size_t shard, size_t first, size_t end, struct fail *f)
{
    struct header_text t = {0};
    uint64_t at = 0;
    put(&t, "\0\0\0\0\0\0\0", 8);
    put_text(&t, "{");
    if (l->shards[shard].source)
        put_metadata(&t, l->shards[shard].source);
    for (size_t i = first; i < end; i++) {
        put_text(&t, i > first ? "," : "");
        put_tensor(&t, &l->tensors[i], at);
        l->tensors[i].offset = at;
        at += l->tensors[i].bytes;
    }
    put_text(&t, "}");
    while (t.length % 8 != 0 && !t.failed)
        put_text(&t, " ");
    if (t.failed) {
        free(t.data);
        return NO_MEMORY(f, "a header");
    }
    for (int i = 0; i < 8; i++)
        t.data[i] = (char)((t.length - 8) >> 8 * i & 0xff);
    for (size_t i = first; i < end; i++)
        l->tensors[i].offset += t.length;
    l->shards[shard].header = t.data;
    l->shards[shard].header_bytes = t.length;
    l->shards[shard].bytes = t.length + at;
    l->data_bytes += at;
    return QOBS_OK;
}

int layout_make_headers(struct output_layout *layout, size_t weight_count, struct fail *f)
{
    RETURN_IF_NOT_OK(check_unique(layout, f));
    if (layout->count > 0)
        qsort(layout->tensors, layout->count, sizeof *layout->tensors, compare_places);
    for (size_t i = 0; i < weight_count; i++)
        for (int p = 0; p < OUTPUT_PARTS; p++)
            layout->parts[i][p] = SIZE_MAX;
    for (size_t first = 0, end; first < layout->count; first = end) {
        const size_t shard = layout->tensors[first].shard;
        for (end = first; end < layout->count && layout->tensors[end].shard == shard; end++) {
            const struct output_tensor *t = &layout->tensors[end];
            *(t->part == PART_ACTIVATION ? &layout->activations[t->activation] : &layout->parts[t->weight][t->part]) =
                end;
        }
        RETURN_IF_NOT_OK(make_header(layout, shard, first, end, f));
    }
    return QOBS_OK;
}
