/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The older form, and what both forms share. */
#include "files/imatrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/byte_reader.h"
#include "files/file_kind.h"
#include "files/gguf.h"
#include "files/text.h"

enum { MAX_NAME = 4096 };

/* ---- Entries ----------------------------------------------------------------------------------------------------- */

struct imatrix_entry *imatrix_add(struct imatrix *im, const unsigned char *name, size_t length, struct fail *f)
{
    struct imatrix_entry *entry = list_add(&im->entries, &im->count, sizeof *entry);
    if (entry)
        entry->name = malloc(length + 1);
    if (!entry || !entry->name) {
        fail_system(f, "%s: no memory for its entries", im->map.path);
        return NULL;
    }
    memcpy(entry->name, name, length);
    entry->name[length] = 0;
    if (length > 0 && strlen(entry->name) == length)
        return entry;
    fail(f, "%s: the name of entry %zu is empty or has a zero byte", im->map.path, im->count - 1);
    return NULL;
}

const struct imatrix_entry *imatrix_find(const struct imatrix *im, const char *name)
{
    return named_find(im->entries, im->count, sizeof *im->entries, name);
}

/* ---- The older form ---------------------------------------------------------------------------------------------- */

/* Reads a number that is not negative; else the reader fails. */
static uint64_t take_count(struct byte_reader *r)
{
    const uint64_t number = take_number(r, 4);
    r->failed |= number > INT32_MAX;
    return number;
}

static int read_entry(struct imatrix *im, struct byte_reader *r, struct fail *f)
{
    const uint64_t length = take_count(r);
    r->failed |= length > MAX_NAME;
    const unsigned char *name = take_bytes(r, length);
    const uint64_t calls = take_count(r), count = take_count(r);
    const unsigned char *values = take_bytes(r, 4 * count);
    if (r->failed)
        return fail(f, "%s: is no importance matrix of llama.cpp: entry %zu is damaged or cut off", im->map.path,
                    im->count);
    struct imatrix_entry *entry = imatrix_add(im, name, (size_t)length, f);
    if (!entry)
        return failure_status(f);
    entry->values = values;
    entry->value_count = count;
    entry->calls = (int32_t)calls;
    return 0;
}

/* Reads where the numbers come from, which old files do not say. */
static void read_origin(struct imatrix *im, struct byte_reader *r)
{
    const uint64_t chunks = take_count(r), length = take_count(r);
    const unsigned char *name = r->failed ? NULL : take_bytes(r, length);
    if (r->failed)
        return;
    im->chunks = (uint32_t)chunks;
    if (length > 0)
        memcpy(im->dataset, name, (size_t)(length < IMATRIX_TEXT ? length : IMATRIX_TEXT));
}

static int read_old_form(struct imatrix *im, struct fail *f)
{
    struct byte_reader r = {.map = &im->map};
    const uint64_t entries = take_count(&r);
    if (r.failed || entries == 0)
        return fail(f, "%s: is no importance matrix of llama.cpp: it has no entries", im->map.path);
    for (uint64_t i = 0; i < entries; i++)
        RETURN_IF_NOT_OK(read_entry(im, &r, f));
    read_origin(im, &r);
    return 0;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

bool imatrix_is(const char *path)
{
    struct stat status;
    RELEASED_BY(mapped_close) struct mapped map = {0};
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return false;
    return ends_with(path, ".dat") || ends_with(path, ".imatrix") ||
           (mapped_open(&map, path, NULL) == 0 && is_gguf(map.data, map.size));
}

int imatrix_open_mapped(struct imatrix *im, struct mapped *map, struct fail *f)
{
    *im = (struct imatrix){.map = *map};
    *map = (struct mapped){0};
    const bool gguf = is_gguf(im->map.data, im->map.size);
    int result = gguf ? imatrix_read_gguf(im, f) : read_old_form(im, f);
    if (result != 0 && im->count == 0 && !gguf && file_kind(im->map.data, im->map.size)) /* a count may look like one */
        result = file_kind_refuse(im->map.path, im->map.data, im->map.size, f);
    if (result == 0)
        named_sort(im->entries, im->count, sizeof *im->entries);
    const char *twice = result == 0 ? named_twice(im->entries, im->count, sizeof *im->entries) : NULL;
    if (twice)
        result = fail(f, "%s: '%.200s' is there twice", im->map.path, twice);
    if (result != 0)
        imatrix_close(im);
    return result;
}

int imatrix_open(struct imatrix *im, const char *path, struct fail *f)
{
    struct mapped map;
    *im = (struct imatrix){0};
    RETURN_IF_NOT_OK(mapped_open_whole(&map, path, f));
    return imatrix_open_mapped(im, &map, f);
}

void imatrix_close(struct imatrix *im)
{
    named_free(im->entries, im->count, sizeof *im->entries, 1);
    mapped_close(&im->map);
    *im = (struct imatrix){0};
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static float float_at(const unsigned char *data, uint64_t index)
{
    float value;
    memcpy(&value, data + 4 * index, sizeof value);
    return value;
}

int imatrix_read(const struct imatrix *im, const struct imatrix_entry *e, uint64_t matrix, int64_t columns, float *mean,
                 struct fail *f)
{
    const uint64_t n = (uint64_t)columns, matrices = e->matrices > 0 ? e->matrices : n > 0 ? e->value_count / n : 0;
    if (n == 0 || matrices == 0 || e->value_count / matrices != n || e->value_count % matrices != 0)
        return fail(f, "%s: '%.200s' has %llu values for %llu matrices; the weight has %lld columns", im->map.path,
                    e->name, (unsigned long long)e->value_count, (unsigned long long)matrices, (long long)columns);
    if (matrix >= matrices)
        return fail(f, "%s: '%.200s' has %llu matrices; number %llu is needed", im->map.path, e->name,
                    (unsigned long long)matrices, (unsigned long long)matrix);
    const float divisor = e->counts ? float_at(e->counts, matrix) : e->calls > 0 ? (float)e->calls : 1;
    bool all_zero = true;
    for (uint64_t j = 0; j < n; j++) {
        const float value = float_at(e->values, matrix * n + j);
        mean[j] = value / divisor;
        all_zero = all_zero && value == 0;
        if (divisor > 0 && (!isfinite(mean[j]) || value < 0))
            return fail(f, "%s: '%.200s': value %llu is %g with count %g; a mean square is finite and not negative",
                        im->map.path, e->name, (unsigned long long)(matrix * n + j), (double)value, (double)divisor);
    }
    if (!(divisor >= 0))
        return fail(f, "%s: '%.200s': count %llu is %g", im->map.path, e->name, (unsigned long long)matrix,
                    (double)divisor);
    for (uint64_t j = 0; (divisor == 0 || all_zero) && j < n; j++)
        mean[j] = 1;
    return 0;
}
