/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Any bytes as a saved state, as they are and with size and checksum made right: refused with a message, or an observer
 * comes of them that gives the same bytes when it is saved, and that can be read, observed with, merged and reset. */
#include "fuzz.h"
#include "qobs/qobs.h"

static void repair(uint8_t *state, size_t size)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < 8 && size >= 16; i++)
        state[8 + i] = (uint8_t)((uint64_t)size >> 8 * i);
    for (size_t i = 0; i + 8 < size; i++)
        h = (h ^ state[i]) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < 8 && size >= 24; i++)
        state[size - 8 + i] = (uint8_t)(h >> 8 * i);
}

static void read_results(const qobs_observer *o)
{
    const size_t n = qobs_observer_result_count(o);
    qobs_error error;
    for (size_t i = 0; i < n; i++) {
        qobs_result result = {.struct_size = sizeof result}, found = {.struct_size = sizeof found};
        if (qobs_observer_result_info(o, i, &result, &error) != QOBS_OK)
            finding("result %zu of %zu: %s", i, n, error.message);
        must(memchr(result.name, '\0', sizeof result.name) && qobs_dtype_size(result.dtype) > 0);
        must(qobs_observer_result_find(o, result.name, &found, &error) == QOBS_OK && found.size == result.size);
        size_t size = qobs_dtype_size(result.dtype);
        for (int d = 0; d < result.ndim; d++)
            size *= (size_t)result.shape[d];
        must(size == result.size);
        unsigned char *out = workspace(size);
        const int status = qobs_observer_read(o, result.name, out, size, &error);
        must(status == error.status);
        free(out);
    }
    qobs_search_report report = {.struct_size = sizeof report};
    qobs_observer_search_report(o, &report, &error);
    qobs_counts counts = {.struct_size = sizeof counts};
    must(qobs_observer_counts(o, &counts, &error) == QOBS_OK);
}

static unsigned char *save(const qobs_observer *o, size_t *size)
{
    *size = qobs_observer_save_size(o);
    unsigned char *saved = workspace(*size);
    must(qobs_observer_save(o, saved, *size, NULL) == QOBS_OK);
    return saved;
}

static void observe(qobs_observer *o, int ndim, const int64_t *shape, qobs_dtype dtype)
{
    static const double data[32] = {1.5, -2.25, 3e-3, 0.1, -7, 0, 1e9, 2};
    const qobs_tensor value = {.struct_size = sizeof value, .data = data, .dtype = dtype, .ndim = ndim, .shape = shape};
    qobs_error error;
    size_t size, size_after;
    unsigned char *before = save(o, &size);
    if (qobs_observer_observe(o, &value, NULL, &error) != QOBS_OK) {
        unsigned char *after = save(o, &size_after);
        if (size_after != size || memcmp(before, after, size) != 0)
            finding("a batch refused (%s) has changed the state", error.message);
        free(after);
    }
    free(before);
}

static void use(qobs_observer *o, const uint8_t *state, size_t size)
{
    qobs_observer *other = NULL;
    qobs_error error;
    size_t saved_size;
    unsigned char *saved = save(o, &saved_size);
    if (saved_size < size ||
        (saved_size == size && memcmp(saved, state, size) != 0)) /* settings of later versions may be missing */
        finding("the state is taken, but saved it is another");
    must(qobs_observer_load(&other, saved, saved_size, NULL, &error) == QOBS_OK);
    size_t again_size;
    unsigned char *again = save(other, &again_size);
    must(again_size == saved_size && memcmp(saved, again, saved_size) == 0);
    qobs_observer_destroy(other);
    other = NULL;
    free(again);
    free(saved);
    read_results(o);
    must(qobs_observer_load(&other, state, size, NULL, &error) == QOBS_OK);
    qobs_observer_merge(o, (const qobs_observer *const *)&other, 1, &error);
    read_results(o);
    observe(o, 2, (const int64_t[]){4, 8}, QOBS_F32);
    observe(o, 2, (const int64_t[]){2, 16}, QOBS_F64);
    observe(o, 3, (const int64_t[]){2, 4, 4}, QOBS_BF16);
    read_results(o);
    qobs_observers_fuse((qobs_observer *[]){o, other}, 2, &error);
    read_results(o);
    qobs_observer_reset(o);
    read_results(o);
    observe(o, 2, (const int64_t[]){4, 8}, QOBS_F32);
    read_results(o);
    qobs_observer_destroy(other);
}

static void load(const uint8_t *state, size_t size)
{
    qobs_observer *o = NULL;
    qobs_error error;
    const int status = qobs_observer_load(&o, state, size, NULL, &error);
    must(status == error.status && (status == QOBS_OK) == (o != NULL) &&
         (status == QOBS_OK) == (error.message[0] == '\0'));
    if (o)
        use(o, state, size);
    qobs_observer_destroy(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = workspace(size);
    memcpy(copy, data, size);
    load(copy, size);
    repair(copy, size);
    load(copy, size);
    free(copy);
    return 0;
}
