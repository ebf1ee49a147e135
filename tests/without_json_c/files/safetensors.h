/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The part of checkpoint/files/safetensors.h that golden suites need, with files that are read as a whole. */
#ifndef QOBS_TEST_WITHOUT_JSON_C_SAFETENSORS_H
#define QOBS_TEST_WITHOUT_JSON_C_SAFETENSORS_H

#include "files/json.h"
#include "qobs/qobs.h"
#include "whole_file.h"

enum { TENSOR_MAX_DIMS = 8 };

struct fail {
    char message[1100];
};

struct st_tensor {
    const char *name;
    qobs_dtype dtype; /* 0: none of the library */
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    uint64_t begin, end;
    const void *data;
};

struct st_file {
    char *bytes;
    json_object *header;
    struct st_tensor *tensors;
    size_t count;
};

static inline qobs_dtype dtype_in_library(qobs_dtype dtype) { return dtype; }
static inline qobs_dtype dtype_in_file(qobs_dtype dtype) { return dtype; }
static inline const char *dtype_name(qobs_dtype dtype) { return dtype ? qobs_dtype_name(dtype) : ""; }

static inline struct st_tensor st_described(const struct json_item *item, const char *data)
{
    struct st_tensor t = {.name = item->key};
    const char *dtype = json_text(json_get(item->value, "dtype"));
    for (int d = 1; dtype && qobs_dtype_size((qobs_dtype)d) > 0; d++)
        if (strcmp(qobs_dtype_name((qobs_dtype)d), dtype) == 0)
            t.dtype = (qobs_dtype)d;
    json_each(extent, json_get(item->value, "shape")) if (t.ndim < TENSOR_MAX_DIMS) t.shape[t.ndim++] =
        strtoll(extent.value, NULL, 10);
    const json_object *offsets = json_get(item->value, "data_offsets");
    t.begin = (uint64_t)json_object_get_double(json_at(offsets, 0));
    t.end = (uint64_t)json_object_get_double(json_at(offsets, 1));
    t.data = data + t.begin;
    return t;
}

static inline void st_close(struct st_file *file)
{
    free(file->bytes);
    json_object_put(file->header);
    free(file->tensors);
}

static inline int st_open(struct st_file *file, const char *path, struct fail *f)
{
    size_t size;
    uint64_t length = 0;
    char *bytes = whole_file(path, &size), *text = NULL;
    *file = (struct st_file){.bytes = bytes};
    if (bytes && size > sizeof length)
        memcpy(&length, bytes, sizeof length);
    if (length > 0 && length < size && (text = malloc(length + 1)) != NULL) {
        memcpy(text, bytes + sizeof length, length);
        text[length] = 0;
    }
    if (text && json_parse_value(&file->header, text) == 0)
        file->tensors = calloc(json_count(file->header) + 1, sizeof *file->tensors);
    free(text);
    if (!file->tensors) {
        snprintf(f->message, sizeof f->message, "%s: cannot be read", path);
        st_close(file);
        return -1;
    }
    json_each(item, file->header) file->tensors[file->count++] = st_described(&item, bytes + sizeof length + length);
    return 0;
}

static inline const struct st_tensor *st_find(const struct st_file *file, const char *name)
{
    for (size_t i = 0; name && i < file->count; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}

#endif
