/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Statistics of several observers as one, and statistics as bytes.
 *
 * A saved state, all numbers little-endian: "qobs", u32 format version, u64 size of the whole, u32 length of the settings and their
 * text (the preset's name, then "key=value", a line each), u64 batches, elements, NaN, infinite, u32 dtype, u32 ndim,
 * i64 shape[ndim], the minima, the maxima, and the FNV-1a hash of all that. */
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "fpenv.h"
#include "number.h"
#include "observer.h"
#include "statistic/update.h"
#include "tensor.h"

enum { FORMAT = 1, MOST_TEXT = 4096 };

/* The preset and its settings; equal texts are equal configurations. Returns the length. */
static size_t describe(const qobs_config *config, char text[MOST_TEXT])
{
    size_t n = (size_t)snprintf(text, MOST_TEXT, "%s\n", config->preset->name);
    for (size_t i = 0; i < qobs_config_key_count(config); i++) {
        char value[64] = "";
        qobs_config_get(config, qobs_config_key(config, i), value, sizeof value, NULL);
        n += (size_t)snprintf(text + n, MOST_TEXT - n, "%s=%s\n", qobs_config_key(config, i), value);
    }
    return n;
}

/* ---- Merge ---------------------------------------------------------------------------------------------------------------- */

static int check_settings(const qobs_observer *o, const qobs_observer *other, size_t index, qobs_error *error)
{
    char ours[MOST_TEXT], theirs[MOST_TEXT];
    describe(&o->config, ours);
    describe(&other->config, theirs);
    if (strcmp(ours, theirs) != 0)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "others[%zu]: its settings are not those of the observer", index);
    return QOBS_OK;
}

static int check_shape(const qobs_observer *model, const qobs_observer *other, size_t index, qobs_error *error)
{
    bool same = model->dtype == other->dtype && model->ndim == other->ndim;
    for (int d = 0; same && d < model->ndim; d++)
        same = model->shape[d] == other->shape[d];
    if (!same)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT,
                         "others[%zu]: has %zu qparams of %s in %d dimensions, the observer %zu of %s in %d", index,
                         other->qparams, qobs_dtype_name(other->dtype), other->ndim, model->qparams,
                         qobs_dtype_name(model->dtype), model->ndim);
    return QOBS_OK;
}

static bool has_data(const qobs_observer *o)
{
    return o->counts.batches > 0;
}

/* The first with data, from which an empty observer learns dtype and shape. */
static const qobs_observer *first_with_data(const qobs_observer *o, const qobs_observer *const *others, size_t count)
{
    if (has_data(o))
        return o;
    for (size_t i = 0; i < count; i++)
        if (has_data(others[i]))
            return others[i];
    return NULL;
}

static int copy_statistics(qobs_observer *to, const qobs_observer *from, qobs_error *error)
{
    const int status = qobs_allocate_ranges(&to->runtime, &to->state, from->dtype, from->entries, error);
    if (status != QOBS_OK)
        return status;
    memcpy(to->state.min, from->state.min, from->entries * qobs_dtype_size(from->dtype));
    memcpy(to->state.max, from->state.max, from->entries * qobs_dtype_size(from->dtype));
    to->dtype = from->dtype;
    to->qparams = from->qparams;
    to->entries = from->entries;
    to->ndim = from->ndim;
    memcpy(to->shape, from->shape, sizeof to->shape);
    return QOBS_OK;
}

static void merge_means(qobs_observer *o, const qobs_observer *const *others, size_t count, bool own)
{
    const size_t size = qobs_dtype_size(o->dtype);
    for (int bound = 0; bound < 2; bound++)
        for (size_t q = 0; q < o->entries; q++) {
            unsigned char *to = (bound ? o->state.max : o->state.min) + q * size;
            double sum = own ? qobs_element(to, o->dtype) : 0, n = own ? 1 : 0;
            for (size_t i = 0; i < count; i++)
                if (has_data(others[i])) {
                    sum += qobs_element((bound ? others[i]->state.max : others[i]->state.min) + q * size, o->dtype);
                    n++;
                }
            qobs_put_element(to, o->dtype, sum / n);
        }
}

int qobs_observer_merge(qobs_observer *o, const qobs_observer *const *others, size_t count, qobs_error *error)
{
    if (!o || (count > 0 && !others))
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", o ? "others" : "observer");
    for (size_t i = 0; i < count; i++)
        if (!others[i] || others[i] == o)
            return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "others[%zu]: is %s", i,
                             others[i] ? "the observer itself" : "NULL");
    const qobs_observer *model = first_with_data(o, others, count);
    const bool own = has_data(o);
    int status = QOBS_OK;
    for (size_t i = 0; status == QOBS_OK && i < count; i++) {
        status = check_settings(o, others[i], i, error);
        if (status == QOBS_OK && has_data(others[i]))
            status = check_shape(model, others[i], i, error);
    }
    if (status == QOBS_OK && model && !own)
        status = copy_statistics(o, model, error);
    if (status != QOBS_OK)
        return status;
    o->fused = false;
    const fp_mode mode = fp_enter();
    switch (o->config.preset->statistic) {
    case STATISTIC_RUNNING:
        for (size_t i = 0; i < count; i++)
            if (has_data(others[i]))
                qobs_update_running(o->dtype, o->entries, o->state.min, o->state.max, others[i]->state.min,
                                    others[i]->state.max);
        break;
    case STATISTIC_AVERAGE_LERP:
    case STATISTIC_AVERAGE_TOWARDS:
        if (model)
            merge_means(o, others, count, own);
        break;
    case STATISTIC_MEMORYLESS:
        break;
    }
    fp_leave(mode);
    for (size_t i = 0; i < count; i++) {
        o->counts.batches += others[i]->counts.batches;
        o->counts.elements += others[i]->counts.elements;
        o->counts.nan += others[i]->counts.nan;
        o->counts.inf += others[i]->counts.inf;
    }
    return qobs_succeed(error);
}

/* ---- Bytes ---------------------------------------------------------------------------------------------------------------- */

static unsigned char *put(unsigned char *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *p++ = (unsigned char)(value >> 8 * i);
    return p;
}

static uint64_t get(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << 8 * i;
    return value;
}

/* Elements in the machine's order to little-endian or back. */
static void copy_elements(unsigned char *to, const unsigned char *from, size_t n, size_t size)
{
    const uint16_t probe = 1;
    const bool little = *(const unsigned char *)&probe == 1;
    for (size_t i = 0; !little && i < n * size; i++)
        to[i] = from[i / size * size + (size - 1 - i % size)];
    if (little && n > 0)
        memcpy(to, from, n * size);
}

static uint64_t hash(const unsigned char *p, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

enum { BEFORE_TEXT = 4 + 4 + 8 + 4, COUNTS = 4 * 8, AFTER_COUNTS = 4 + 4, HASH = 8 };

size_t qobs_observer_save_size(const qobs_observer *o)
{
    char text[MOST_TEXT];
    return BEFORE_TEXT + describe(&o->config, text) + COUNTS + AFTER_COUNTS + 8 * (size_t)o->ndim +
           2 * o->entries * (has_data(o) ? qobs_dtype_size(o->dtype) : 0) + HASH;
}

int qobs_observer_save(const qobs_observer *o, void *buffer, size_t size, qobs_error *error)
{
    char text[MOST_TEXT];
    const size_t expected = qobs_observer_save_size(o), length = describe(&o->config, text);
    if (size != expected)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is %zu bytes, expected %zu", size, expected);
    unsigned char *p = buffer;
    memcpy(p, "qobs", 4);
    p = put(put(put(p + 4, FORMAT, 4), size, 8), length, 4);
    memcpy(p, text, length);
    p = put(put(p + length, o->counts.batches, 8), o->counts.elements, 8);
    p = put(put(p, o->counts.nan, 8), o->counts.inf, 8);
    p = put(put(p, has_data(o) ? (uint64_t)o->dtype : 0, 4), (uint64_t)o->ndim, 4);
    for (int d = 0; d < o->ndim; d++)
        p = put(p, (uint64_t)o->shape[d], 8);
    if (has_data(o)) {
        const size_t element = qobs_dtype_size(o->dtype);
        copy_elements(p, o->state.min, o->entries, element);
        copy_elements(p + o->entries * element, o->state.max, o->entries, element);
        p += 2 * o->entries * element;
    }
    put(p, hash(buffer, size - HASH), 8);
    return qobs_succeed(error);
}

static int damaged(qobs_error *error, const char *what)
{
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "buffer: is no saved state: %s", what);
}

/* The settings' lines, one by one, into a new configuration. */
static int load_config(qobs_config **config, char *text, const qobs_runtime *runtime, qobs_error *error)
{
    char *line = strchr(text, '\n');
    if (!line)
        return damaged(error, "its settings have no end");
    *line++ = '\0';
    int status = qobs_config_create(config, text, runtime, error);
    while (status == QOBS_OK && *line) {
        char *end = strchr(line, '\n'), *equals = strchr(line, '=');
        if (!end || !equals || equals > end) {
            status = damaged(error, "a setting is not key=value");
            break;
        }
        *end = *equals = '\0';
        status = qobs_config_set(*config, line, equals + 1, error);
        line = end + 1;
    }
    return status;
}

static int load_statistics(qobs_observer *o, const unsigned char *p, const unsigned char *end, qobs_error *error)
{
    enum qobs_kernel_dtype unused;
    if (end - p < COUNTS + AFTER_COUNTS)
        return damaged(error, "it ends early");
    o->counts.batches = get(p, 8);
    o->counts.elements = get(p + 8, 8);
    o->counts.nan = get(p + 16, 8);
    o->counts.inf = get(p + 24, 8);
    const qobs_dtype dtype = (qobs_dtype)get(p + 32, 4);
    const uint64_t ndim = get(p + 36, 4);
    p += COUNTS + AFTER_COUNTS;
    if (o->counts.batches == 0)
        return p == end && ndim == 0 ? QOBS_OK : damaged(error, "it has statistics of nothing");
    if (!qobs_kernel_dtype_of(dtype, &unused) || ndim > QOBS_MAX_NDIM || (uint64_t)(end - p) < 8 * ndim)
        return damaged(error, "its dtype or number of dimensions cannot be");
    int64_t qparams = 1;
    for (uint64_t d = 0; d < ndim; d++, p += 8) {
        o->shape[d] = (int64_t)get(p, 8);
        if (!qobs_multiply(qparams, o->shape[d], &qparams))
            return damaged(error, "its shape cannot be");
    }
    const size_t element = qobs_dtype_size(dtype), entries = qobs_entries(&o->config, (size_t)qparams);
    if ((uint64_t)qparams > (uint64_t)(end - p) / element / 2 || 2 * entries * element != (size_t)(end - p))
        return damaged(error, "its shape is not that of its ranges");
    const int status = qobs_allocate_ranges(&o->runtime, &o->state, dtype, entries, error);
    if (status != QOBS_OK)
        return status;
    o->dtype = dtype;
    o->ndim = (int)ndim;
    o->qparams = (size_t)qparams;
    o->entries = entries;
    copy_elements(o->state.min, p, entries, element);
    copy_elements(o->state.max, p + entries * element, entries, element);
    return QOBS_OK;
}

int qobs_observer_load(qobs_observer **result, const void *buffer, size_t size, const qobs_runtime *runtime, qobs_error *error)
{
    const unsigned char *p = buffer;
    if (!buffer || size < BEFORE_TEXT + HASH || memcmp(p, "qobs", 4) != 0)
        return damaged(error, "it does not begin as one");
    const unsigned char *end = p + size - HASH;
    if (get(p + 4, 4) != FORMAT)
        return qobs_fail(error, QOBS_ERROR_UNSUPPORTED, "buffer: is a state of format %llu, this library reads %d",
                         (unsigned long long)get(p + 4, 4), FORMAT);
    if (get(p + 8, 8) != size || get(end, 8) != hash(p, size - HASH))
        return damaged(error, "its size or checksum is wrong");
    char text[MOST_TEXT];
    const uint64_t length = get(p + 16, 4);
    p += BEFORE_TEXT;
    if (length >= MOST_TEXT || length > (uint64_t)(end - p) || memchr(p, '\0', (size_t)length))
        return damaged(error, "its settings cannot be");
    memcpy(text, p, (size_t)length);
    text[length] = '\0';
    qobs_config *config = NULL;
    qobs_observer *o = NULL;
    int status = load_config(&config, text, runtime, error);
    if (status == QOBS_OK)
        status = qobs_observer_create(&o, config, runtime, error);
    qobs_config_destroy(config);
    if (status == QOBS_OK)
        status = load_statistics(o, p + length, end, error);
    if (status != QOBS_OK) {
        qobs_observer_destroy(o);
        return status;
    }
    *result = o;
    return qobs_succeed(error);
}
