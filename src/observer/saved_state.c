/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Saving, loading and copying an observer: the frame around its state. */
#include "observer/state_parts.h"

#include <stdio.h>

#include "config/settings.h"

int qobs_damaged(qobs_error *error, const char *what)
{
    return qobs_invalid(error, "buffer: is no saved state: %s", what);
}

bool qobs_is_observable(qobs_dtype dtype)
{
    enum kernel_dtype unused;
    return qobs_kernel_dtype_of(dtype, &unused);
}

/* ---- Save -------------------------------------------------------------------------------------------------------- */

/* The preset and its settings. Returns the length. */
static size_t print_settings(const qobs_config *config, char text[MOST_TEXT])
{
    size_t n = (size_t)snprintf(text, MOST_TEXT, "%s\n", config->preset->name);
    const struct setting *setting;
    for (size_t i = 0; (setting = qobs_setting_at(config->preset, i)); i++) {
        char value[QOBS_SETTING_VALUE];
        qobs_setting_print(setting, config, false, value);
        if (qobs_setting_is_saved(setting, config))
            n += (size_t)snprintf(text + n, MOST_TEXT - n, "%s=%s\n", setting->key, value);
    }
    return n;
}

/* Returns the number of bytes; writes them if `buffer` is not NULL. */
static size_t save(const qobs_observer *o, unsigned char *buffer, size_t size)
{
    char text[MOST_TEXT], magic[] = {'q', 'o', 'b', 's'};
    const size_t length = print_settings(&o->config, text);
    struct codec codec = {.format = FORMAT, .to = buffer};
    qobs_code_elements(&codec, magic, sizeof magic, 1);
    qobs_code_u32(&codec, FORMAT);
    qobs_code_u64(&codec, size);
    qobs_code_u32(&codec, (uint32_t)length);
    qobs_code_elements(&codec, text, length, 1);
    qobs_code_state(&codec, (qobs_observer *)o, NULL);
    qobs_code_u64(&codec, buffer ? qobs_hash(buffer, codec.size) : 0);
    return codec.size;
}

size_t qobs_observer_save_size(const qobs_observer *o) { return o ? save(o, NULL, 0) : 0; }

int qobs_observer_save(const qobs_observer *o, void *buffer, size_t size, qobs_error *error)
{
    if (!o || !buffer)
        return qobs_invalid(error, "%s: is NULL", o ? "buffer" : "observer");
    const size_t expected = qobs_observer_save_size(o);
    if (size != expected)
        return qobs_invalid(error, "size: is %zu bytes, expected %zu", size, expected);
    save(o, buffer, size);
    return qobs_succeed(error);
}

/* ---- Load -------------------------------------------------------------------------------------------------------- */

enum { SHORT_NUMBERS = 3 }; /* the first format in which real numbers cannot have 17 digits */

static bool is_as_saved(const qobs_config *config, uint32_t format, const char *key, const char *value)
{
    const struct setting *setting = qobs_setting_find(config->preset, key);
    char saved[QOBS_SETTING_VALUE];
    qobs_setting_print(setting, config, false, saved);
    if (strcmp(saved, value) == 0 || format >= SHORT_NUMBERS)
        return strcmp(saved, value) == 0;
    qobs_setting_print(setting, config, true, saved);
    return strcmp(saved, value) == 0;
}

/* Settings are as they would be saved, each at most once and in the preset's order: *index is the first that may
 * follow. */
static int load_setting(qobs_config *config, uint32_t format, const char *key, const char *value, size_t *index,
                        qobs_error *error)
{
    RETURN_IF_FAILED(qobs_config_set(config, key, value, error));
    const char *known;
    while ((known = qobs_config_key(config, *index)) && strcmp(known, key) != 0)
        ++*index;
    ++*index;
    const bool good = known && is_as_saved(config, format, key, value);
    return good ? QOBS_OK : qobs_damaged(error, "a setting is not as it would be saved");
}

/* The lines of settings into a new configuration. */
static int load_config(qobs_config **config, uint32_t format, char *text, const qobs_runtime *runtime,
                       qobs_error *error)
{
    char *line = strchr(text, '\n');
    if (!line)
        return qobs_damaged(error, "its settings have no end");
    *line++ = '\0';
    int status = qobs_config_create(config, text, runtime, error);
    if (status == QOBS_OK)
        qobs_config_set_unsaved(*config);
    size_t index = 0;
    while (status == QOBS_OK && *line) {
        char *end = strchr(line, '\n'), *equals = strchr(line, '=');
        if (!end || !equals || equals > end) {
            status = qobs_damaged(error, "a setting is not key=value");
            break;
        }
        *end = *equals = '\0';
        status = load_setting(*config, format, line, equals + 1, &index, error);
        line = end + 1;
    }
    return status;
}

/* Everything but the state: an empty observer of the saved configuration. */
static int load_observer(qobs_observer **o, uint32_t format, struct codec *codec, const qobs_runtime *runtime,
                         qobs_error *error)
{
    char text[MOST_TEXT];
    const uint32_t length = qobs_code_u32(codec, 0);
    if (length >= MOST_TEXT || !qobs_codec_holds(codec, length, 1) || memchr(codec->from, '\0', length))
        return qobs_damaged(error, "its settings are impossible");
    qobs_code_elements(codec, text, length, 1);
    text[length] = '\0';
    qobs_config *config = NULL;
    int status = load_config(&config, format, text, runtime, error);
    if (status == QOBS_OK)
        status = qobs_observer_create(o, config, runtime, error);
    qobs_config_destroy(config);
    return status;
}

int qobs_observer_load(qobs_observer **result, const void *buffer, size_t size, const qobs_runtime *runtime,
                       qobs_error *error)
{
    RETURN_IF_LEFT_OUT(observers, error);
    const unsigned char *begin = buffer;
    RETURN_IF_FAILED(qobs_require(result, "observer", error));
    if (!buffer || size < 4 + 4 + 8 + 4 + HASH || size > PTRDIFF_MAX || memcmp(begin, "qobs", 4) != 0)
        return qobs_damaged(error, "it does not begin as one");
    struct codec codec = {.loading = true, .from = begin + 4, .end = begin + size - HASH};
    struct codec tail = {.loading = true, .from = codec.end, .end = begin + size};
    codec.format = qobs_code_u32(&codec, 0);
    if (codec.format < MIN_FORMAT || codec.format > FORMAT)
        return qobs_fail(error, QOBS_ERROR_UNSUPPORTED, "buffer: is a state of format %u, this library reads %d to %d",
                         (unsigned)codec.format, MIN_FORMAT, FORMAT);
    const uint64_t saved_size = qobs_code_u64(&codec, 0);
    if (size < saved_size)
        return qobs_invalid(error,
                            "buffer: is cut or damaged: has %zu of the %llu bytes that were saved; copy or save it "
                            "again",
                            size, (unsigned long long)saved_size);
    if (size > saved_size || qobs_code_u64(&tail, 0) != qobs_hash(begin, size - HASH))
        return qobs_invalid(error, "buffer: is damaged: %s; copy or save it again",
                            size > saved_size ? "it has more bytes than were saved" : "its checksum is another");
    qobs_observer *o = NULL;
    int status = load_observer(&o, codec.format, &codec, runtime, error);
    if (status == QOBS_OK)
        status = qobs_code_state(&codec, o, error);
    if (status == QOBS_OK && (codec.ends_early || codec.from != codec.end))
        status = qobs_damaged(error, codec.ends_early ? "it ends early" : "it is too long");
    if (status != QOBS_OK) {
        qobs_observer_destroy(o);
        return status;
    }
    *result = o;
    return qobs_succeed(error);
}

/* ---- Clone ------------------------------------------------------------------------------------------------------- */

/* The parts of a state that are not saved. */
static void copy_unsaved(qobs_observer *to, const qobs_observer *from)
{
    to->kernels = from->kernels;
    to->fused = from->fused;
    to->fused_amax = from->fused_amax;
    to->state.histogram.outside = from->state.histogram.outside;
}

/* The state passes through the codec, so that no part that is saved can be forgotten. */
static int copy_state(qobs_observer *to, const qobs_observer *from, qobs_error *error)
{
    qobs_observer *source = (qobs_observer *)from; /* which saving does not change */
    struct codec count = {.format = FORMAT};
    qobs_code_state(&count, source, NULL);
    unsigned char *bytes = qobs_allocate(&to->runtime, count.size);
    RETURN_IF_FAILED(qobs_require_memory(bytes, "clone", count.size, error));
    struct codec writer = {.format = FORMAT, .to = bytes};
    struct codec reader = {.loading = true, .format = FORMAT, .from = bytes, .end = bytes + count.size};
    qobs_code_state(&writer, source, NULL);
    const int status = qobs_code_state(&reader, to, error);
    qobs_release(&to->runtime, bytes, count.size);
    if (status == QOBS_OK)
        copy_unsaved(to, from);
    return status;
}

int qobs_observer_clone(qobs_observer **clone, const qobs_observer *o, const qobs_runtime *runtime, qobs_error *error)
{
    if (!clone || !o)
        return qobs_invalid(error, "%s: is NULL", clone ? "observer" : "clone");
    qobs_observer *made;
    RETURN_IF_FAILED(qobs_observer_create(&made, &o->config, runtime, error));
    const int status = copy_state(made, o, error);
    if (status != QOBS_OK) {
        qobs_observer_destroy(made);
        return status;
    }
    *clone = made;
    return qobs_succeed(error);
}
