/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* An observer from bytes. */
#include <string.h>

#include "base/error.h"
#include "observer/saved_state.h"
#include "measure/accumulators.h"
#include "base/tensor.h"

int qobs_damaged(qobs_error *error, const char *what)
{
    return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "buffer: is no saved state: %s", what);
}

/* A setting, which is written as it would be saved, at most once and in the order of the preset's: *index is the first it may be. */
static int load_setting(qobs_config *config, const char *key, const char *value, size_t *index, qobs_error *error)
{
    char saved[64];
    int status = qobs_config_set(config, key, value, error);
    if (status == QOBS_OK)
        status = qobs_config_get(config, key, saved, sizeof saved, error);
    if (status != QOBS_OK)
        return status;
    const char *known;
    while ((known = qobs_config_key(config, *index)) && strcmp(known, key) != 0)
        ++*index;
    ++*index;
    return known && strcmp(saved, value) == 0 ? QOBS_OK : qobs_damaged(error, "a setting is not as it would be saved");
}

/* The settings' lines, one by one, into a new configuration. */
static int load_config(qobs_config **config, char *text, const qobs_runtime *runtime, qobs_error *error)
{
    char *line = strchr(text, '\n');
    if (!line)
        return qobs_damaged(error, "its settings have no end");
    *line++ = '\0';
    int status = qobs_config_create(config, text, runtime, error);
    size_t index = 0;
    while (status == QOBS_OK && *line) {
        char *end = strchr(line, '\n'), *equals = strchr(line, '=');
        if (!end || !equals || equals > end) {
            status = qobs_damaged(error, "a setting is not key=value");
            break;
        }
        *end = *equals = '\0';
        status = load_setting(*config, line, equals + 1, &index, error);
        line = end + 1;
    }
    return status;
}

static int load_ranges(qobs_observer *o, qobs_dtype dtype, struct source *source, qobs_error *error)
{
    enum qobs_kernel_dtype unused;
    struct layout layout = {.dtype = dtype};
    layout.qparams = qobs_get_shape(source, &layout.range);
    if (!qobs_kernel_dtype_of(dtype, &unused) || layout.qparams == 0 || qobs_get_shape(source, &layout.scale) != layout.qparams)
        return qobs_damaged(error, "the dtype or the shapes of its ranges cannot be");
    const uint64_t keying = qobs_get(source, 4);
    if (keying > KEYING_BLOCKS || (keying >= KEYING_GROUPS && layout.range.ndim != 2))
        return qobs_damaged(error, "the names of its ranges cannot be");
    layout.keying = (enum keying)keying;
    const size_t element = qobs_dtype_size(dtype);
    if (layout.qparams > (size_t)(source->end - source->at) / element / 2)
        return qobs_damaged(error, "its ranges are not all there");
    const int status = qobs_allocate_ranges(&o->runtime, &o->kept.state, dtype, layout.qparams, error);
    if (status != QOBS_OK)
        return status;
    qobs_copy_elements(o->kept.state.min, qobs_get_bytes(source, layout.qparams * element), layout.qparams, element);
    qobs_copy_elements(o->kept.state.max, qobs_get_bytes(source, layout.qparams * element), layout.qparams, element);
    o->layout = layout;
    return QOBS_OK;
}

static int load_whole(qobs_observer *o, struct source *source, qobs_error *error)
{
    enum qobs_kernel_dtype unused;
    const qobs_dtype dtype = (qobs_dtype)qobs_get(source, 4);
    if (dtype == 0)
        return QOBS_OK;
    if (!qobs_kernel_dtype_of(dtype, &unused) || o->config.preset->family != FAMILY_LLMC)
        return qobs_damaged(error, "its range of the whole cannot be");
    const size_t size = qobs_dtype_size(dtype);
    const unsigned char *bounds = qobs_get_bytes(source, 2 * size);
    if (!bounds)
        return qobs_damaged(error, "it ends early");
    o->whole.dtype = dtype;
    qobs_copy_elements(o->whole.min, bounds, 1, size);
    qobs_copy_elements(o->whole.max, bounds + size, 1, size);
    return QOBS_OK;
}

static int load_votes(qobs_observer *o, struct source *source, qobs_error *error)
{
    const size_t n = o->layout.qparams, candidates = (size_t)qobs_get(source, 4);
    struct mode_count *mode_count = &o->kept.mode_count;
    uint64_t count = 0;
    if (candidates == 0)
        return QOBS_OK;
    if (!qobs_votes(&o->config) || candidates > (size_t)(source->end - source->at) / 8 / (1 + n))
        return qobs_damaged(error, "its votes cannot be");
    const int status = qobs_mode_reserve(&o->runtime, mode_count, n, candidates, error);
    for (size_t i = 0; status == QOBS_OK && i < candidates; i++) {
        mode_count->count[i] = qobs_get(source, 8);
        count += mode_count->count[i];
        qobs_copy_elements(qobs_mode_scale(mode_count, i), qobs_get_bytes(source, n * 4), n, 4);
        qobs_copy_elements(qobs_mode_zero_point(mode_count, i), qobs_get_bytes(source, n * 4), n, 4);
        mode_count->candidates++;
    }
    return status == QOBS_OK && count > o->counts.batches ? qobs_damaged(error, "there are more votes than batches") : status;
}

static int load_statistics(qobs_observer *o, struct source *source, qobs_error *error)
{
    o->counts.batches = qobs_get(source, 8);
    o->counts.elements = qobs_get(source, 8);
    o->counts.nan = qobs_get(source, 8);
    o->counts.inf = qobs_get(source, 8);
    o->counts.tokens = qobs_get(source, 8);
    o->counts.nonzero_tokens = qobs_get(source, 8);
    int status = load_whole(o, source, error);
    if (status != QOBS_OK)
        return status;
    const uint64_t dtype = qobs_get(source, 4);
    if ((dtype != 0) != (o->counts.batches > 0 && qobs_keeps(&o->config) != KEEPS_NOTHING))
        return qobs_damaged(error, "its number of batches does not go with its ranges");
    if (dtype != 0)
        status = load_ranges(o, (qobs_dtype)dtype, source, error);
    if (status == QOBS_OK && dtype != 0)
        status = load_votes(o, source, error);
    if (status == QOBS_OK && qobs_searches(&o->config))
        status = qobs_load_search(o, source, error);
    if (status == QOBS_OK && dtype != 0 && o->stages.histogram.ops)
        status = qobs_load_histogram(o, source, error);
    if (status == QOBS_OK && qobs_searches_kept(&o->config) && qobs_has_ranges(o) && o->searched.qparams == 0)
        return qobs_damaged(error, "its ranges have not been searched");
    if (status == QOBS_OK && qobs_is_told(o))
        status = qobs_load_told(o, source, error);
    if (status == QOBS_OK && (source->short_of || source->at != source->end))
        return qobs_damaged(error, source->short_of ? "it ends early" : "it is too long");
    return status;
}

int qobs_observer_load(qobs_observer **result, const void *buffer, size_t size, const qobs_runtime *runtime,
                       qobs_error *error)
{
    const unsigned char *begin = buffer;
    if (!result)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "observer: is NULL");
    if (!buffer || size < 4 + 4 + 8 + 4 + HASH || memcmp(begin, "qobs", 4) != 0)
        return qobs_damaged(error, "it does not begin as one");
    struct source source = {.at = begin + 4, .end = begin + size - HASH}, tail = {.at = source.end, .end = begin + size};
    const uint64_t format = qobs_get(&source, 4);
    if (format != FORMAT)
        return qobs_fail(error, QOBS_ERROR_UNSUPPORTED, "buffer: is a state of format %llu, this library reads %d",
                         (unsigned long long)format, FORMAT);
    if (qobs_get(&source, 8) != size || qobs_get(&tail, HASH) != qobs_hash(begin, size - HASH))
        return qobs_damaged(error, "its size or checksum is wrong");
    char text[MOST_TEXT];
    const uint64_t length = qobs_get(&source, 4);
    const unsigned char *settings = length < MOST_TEXT ? qobs_get_bytes(&source, (size_t)length) : NULL;
    if (!settings || memchr(settings, '\0', (size_t)length))
        return qobs_damaged(error, "its settings cannot be");
    memcpy(text, settings, (size_t)length);
    text[length] = '\0';
    qobs_config *config = NULL;
    qobs_observer *o = NULL;
    int status = load_config(&config, text, runtime, error);
    if (status == QOBS_OK)
        status = qobs_observer_create(&o, config, runtime, error);
    qobs_config_destroy(config);
    if (status == QOBS_OK)
        status = load_statistics(o, &source, error);
    if (status != QOBS_OK) {
        qobs_observer_destroy(o);
        return status;
    }
    *result = o;
    return qobs_succeed(error);
}
