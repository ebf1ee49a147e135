/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The writing half of safetensors.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "files/json.h"
#include "files/safetensors.h"
#include "files/text.h"

static int is_utf8(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t left = strlen(text), step; left > 0; p += step, left -= step)
        if ((step = utf8_sequence(p, left)) == 0)
            return 0;
    return 1;
}

int st_writer_add(struct st_writer *w, const char *name, enum file_dtype dtype, int ndim, const int64_t *shape,
                  struct fail *f)
{
    if (!is_utf8(name) || strcmp(name, "__metadata__") == 0)
        return fail(f, "tensor '%.200s': the name must be UTF-8 and not __metadata__", name);
    if (ndim < 0 || ndim > TENSOR_MAX_DIMS)
        return fail(f, "tensor '%.200s': %d dimensions; 0 to %d are supported", name, ndim, TENSOR_MAX_DIMS);
    struct st_tensor t = {.dtype = dtype, .ndim = ndim};
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || (uint64_t)shape[i] > JSON_MAX_INTEGER)
            return fail(f, "tensor '%.200s': shape[%d] is %" PRId64 "; 0 to 2^53 - 1 are allowed", name, i, shape[i]);
        t.shape[i] = shape[i];
    }
    uint64_t bytes;
    if (tensor_bytes(dtype_bits(dtype), ndim, shape, &bytes) != 0 || bytes > JSON_MAX_INTEGER - w->total)
        return fail(f, "tensor '%.200s': with shape %s of %s the file would have more than 2^53 - 1 bytes of data",
                    name, SHAPE_WORDS(ndim, shape), dtype_name(dtype));
    t.begin = w->total;
    t.end = w->total += bytes;
    struct st_tensor *added = list_add(&w->tensors, &w->count, sizeof *added);
    t.name = added ? strdup(name) : NULL;
    if (added)
        *added = t;
    return t.name ? 0 : fail_system(f, "tensor '%.200s': out of memory", name);
}

int st_writer_metadata(struct st_writer *w, const char *name, const char *value, struct fail *f)
{
    if (!is_utf8(name) || !is_utf8(value))
        return fail(f, "metadata '%.200s': name and value must be UTF-8", name);
    for (size_t i = 0; i < w->metadata_count; i++)
        if (strcmp(w->metadata[i].name, name) == 0)
            return fail(f, "metadata '%.200s': is there already", name);
    struct st_pair *pair = list_add(&w->metadata, &w->metadata_count, sizeof *pair);
    if (pair)
        *pair = (struct st_pair){.name = strdup(name), .value = strdup(value)};
    return pair && pair->name && pair->value ? 0 : fail_system(f, "metadata '%.200s': out of memory", name);
}

static int check_names(const struct st_writer *w, const char *path, struct fail *f)
{
    bool failed;
    const char *twice = named_repeated(w->tensors, w->count, sizeof *w->tensors, &failed);
    return failed  ? fail_system(f, "%s: out of memory for %zu tensors", path, w->count)
           : twice ? fail(f, "%s: tensor '%.200s' would occur twice", path, twice)
                   : 0;
}

/* Prints the JSON without a tree: it may have 400,000 tensors. */
static void print_header(struct text_buffer *out, const struct st_tensor *tensors, size_t count,
                         const struct st_pair *metadata, size_t metadata_count)
{
    const char *comma = "";
    text_puts(out, "{");
    for (size_t i = 0; i < metadata_count; i++) {
        text_puts(out, i == 0 ? "\"__metadata__\":{" : ",");
        json_print_string(out, metadata[i].name, false);
        text_puts(out, ":");
        json_print_string(out, metadata[i].value, false);
        comma = ",";
    }
    if (metadata_count)
        text_puts(out, "}");
    for (size_t i = 0; i < count; i++, comma = ",") {
        const struct st_tensor *t = &tensors[i];
        text_puts(out, comma);
        json_print_string(out, t->name, false);
        text_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype_name(t->dtype));
        for (int d = 0; d < t->ndim; d++)
            text_printf(out, "%s%" PRId64, d ? "," : "", t->shape[d]);
        text_printf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->begin, t->end);
    }
    text_puts(out, "}");
}

int st_make_header(const struct st_tensor *tensors, size_t count, const struct st_pair *metadata, size_t metadata_count,
                   const char *path, char **header, size_t *size, struct fail *f)
{
    struct text_buffer out = {0};
    uint64_t length = 0;
    text_put(&out, &length, sizeof length);
    print_header(&out, tensors, count, metadata, metadata_count);
    while (!out.failed && out.size % 8 != 0)
        text_puts(&out, " ");
    *header = out.text;
    *size = out.size;
    if (out.failed)
        return fail_system(f, "%s: out of memory for the header", path);
    length = *size - sizeof length;
    memcpy(*header, &length, sizeof length);
    if (length > JSON_MAX_BYTES)
        return fail(f, "%s: the header would have %" PRIu64 " bytes; at most %d are allowed", path, length,
                    JSON_MAX_BYTES);
    return 0;
}

int st_writer_begin(struct st_writer *w, const char *path, struct fail *f)
{
    OWNED char *header = NULL;
    size_t size;
    if (w->output.path)
        return SYSTEM_FAILURE(f, "%s: st_writer_begin was called before", w->output.path);
    int result = check_names(w, path, f);
    if (result == 0)
        result = st_make_header(w->tensors, w->count, w->metadata, w->metadata_count, path, &header, &size, f);
    if (result == 0)
        result = output_open(&w->output, path, f);
    if (result == 0 &&
        (ftruncate(w->output.fd, (off_t)(size + w->total)) != 0 || output_write(&w->output, header, size, 0) != 0))
        result = SYSTEM_FAILURE(f, "%s: cannot write %" PRIu64 " bytes: %s", path, size + w->total, strerror(errno));
    if (result == 0)
        w->data_start = size;
    else
        st_writer_abort(w);
    return result;
}

static int put(struct st_writer *w, size_t index, uint64_t offset, const void *data, size_t bytes, struct fail *f)
{
    if (!w->output.path)
        return SYSTEM_FAILURE(f, "st_writer_put without st_writer_begin");
    if (index >= w->count)
        return SYSTEM_FAILURE(f, "%s: tensor %zu of %zu does not exist", w->output.path, index, w->count);
    const struct st_tensor *t = &w->tensors[index];
    if (offset > t->end - t->begin || bytes > t->end - t->begin - offset)
        return SYSTEM_FAILURE(f, "%s: tensor '%.200s': %zu bytes at %" PRIu64 " do not fit into its %" PRIu64,
                              w->output.path, t->name, bytes, offset, t->end - t->begin);
    if (output_write(&w->output, data, bytes, w->data_start + t->begin + offset) != 0)
        return SYSTEM_FAILURE(f, "%s: tensor '%.200s': cannot write: %s", w->output.path, t->name, strerror(errno));
    atomic_fetch_add(&w->written, bytes);
    return 0;
}

int st_writer_put(struct st_writer *w, size_t index, uint64_t offset, const void *data, size_t bytes, struct fail *f)
{
    const int result = put(w, index, offset, data, bytes, f);
    if (result != 0)
        atomic_store(&w->failed, true);
    return result;
}

int st_writer_finish(struct st_writer *w, struct fail *f)
{
    const int result =
        !w->output.path           ? SYSTEM_FAILURE(f, "st_writer_finish without st_writer_begin")
        : atomic_load(&w->failed) ? SYSTEM_FAILURE(f, "%s: not written: a write failed before", w->output.path)
        : atomic_load(&w->written) < w->total
            ? SYSTEM_FAILURE(f, "%s: not written: %" PRIu64 " bytes of data came, the tensors have %" PRIu64,
                             w->output.path, atomic_load(&w->written), w->total)
            : output_commit(&w->output, f);
    st_writer_abort(w);
    return result;
}

void st_writer_abort(struct st_writer *w)
{
    output_abort(&w->output);
    named_free(w->tensors, w->count, sizeof *w->tensors, 1);
    named_free(w->metadata, w->metadata_count, sizeof *w->metadata, 2);
    *w = (struct st_writer){0};
}
