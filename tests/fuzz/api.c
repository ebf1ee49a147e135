/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "api.h"

#include <fenv.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ---- Records ----------------------------------------------------------------------------------------------------- */

void record(struct record *r, const void *bytes, size_t size)
{
    if (r->size + size > r->workspace) {
        r->workspace = 2 * (r->size + size);
        r->bytes = realloc(r->bytes, r->workspace);
        must(r->bytes);
    }
    if (size > 0)
        memcpy(r->bytes + r->size, bytes, size);
    r->size += size;
}

bool record_status(struct record *r, int status, const qobs_error *error)
{
    must(status == error->status && (status == QOBS_OK) == (error->message[0] == '\0'));
    record(r, &status, sizeof status);
    record(r, error->message, strlen(error->message));
    return status == QOBS_OK;
}

/* Prints a record around a byte: text as it is, other bytes as numbers. */
static void show(const char *name, const struct record *r, size_t at)
{
    const size_t first = at > 120 ? at - 120 : 0;
    fprintf(stderr, "%s: ", name);
    for (size_t i = first; i < r->size && i < at + 120; i++)
        fprintf(stderr, r->bytes[i] >= 0x20 && r->bytes[i] < 0x7f ? "%s%c" : "%s\\%x", i == at ? "[HERE]" : "",
                r->bytes[i]);
    fprintf(stderr, "\n");
}

/* ---- Ways to run ------------------------------------------------------------------------------------------------- */

/* Tasks one after the other, in an order that depends on the number of threads there would be. */
static void parallel_for(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
    const size_t threads = *(const size_t *)context;
    for (size_t first = 0; first < threads; first++)
        for (size_t i = count; i-- > 0;)
            if (i % threads == first)
                task(argument, i);
}

enum { FLUSH_TO_ZERO = 0x8040 }; /* and inputs that are subnormal */

static void set_mode(size_t mode)
{
    static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    fesetround(roundings[mode % 4]);
#if defined(__x86_64__)
    _mm_setcsr((_mm_getcsr() & ~(unsigned)FLUSH_TO_ZERO) | (mode / 4 % 2 ? FLUSH_TO_ZERO : 0));
#endif
}

static struct record run_once(const uint8_t *data, size_t size, const char *isa, size_t threads, size_t mode,
                              bool first)
{
    const qobs_executor executor = {
        .struct_size = sizeof executor, .threads = threads, .parallel_for = parallel_for, .context = &threads};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = &executor};
    struct run run = {.b = {data, size}, .runtime = threads > 1 ? &runtime : NULL, .first = first};
    struct tensor t = {0};
    struct indices indices;
    must(qobs_isa_select(isa, NULL) == QOBS_OK);
    set_mode(mode);
    qobs_config *config = take_config(&run);
    if (config) {
        take_tensor(&run.b, &t);
        const qobs_tensor *g_idx = take_indices(&run.b, &t, &indices);
        if (take_below(&run.b, 2))
            run_direct(&run, config, &t, g_idx);
        else
            run_observer(&run, config, &t, g_idx);
        free(t.memory);
        qobs_config_destroy(config);
    }
    set_mode(0);
    return run.record;
}

static void compare(const struct record *expected, const struct record *got, const char *isa, size_t threads,
                    size_t mode)
{
    const size_t n = expected->size < got->size ? expected->size : got->size;
    size_t i = 0;
    while (i < n && expected->bytes[i] == got->bytes[i])
        i++;
    if (i == n && expected->size == got->size)
        return;
    show("scalar", expected, i);
    show(isa, got, i);
    finding("%s, %zu threads, mode %zu: byte %zu of %zu is not that of scalar on one thread (of %zu)", isa, threads,
            mode, i, got->size, expected->size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t thread_counts[] = {1, 2, 3, 7};
    if (f16_values[1] == 0)
        make_f16_values();
    if (size < 1)
        return 0;
    const size_t ways = data[0];
    struct record expected = run_once(data + 1, size - 1, "scalar", 1, 0, true);
    for (size_t i = 0; i < qobs_isa_count(); i++) {
        const size_t threads = thread_counts[(ways + i) % 4], mode = ways / 4 + 3 * i;
        if (!qobs_isa_usable(i))
            continue;
        struct record got = run_once(data + 1, size - 1, qobs_isa_name(i), threads, mode, false);
        compare(&expected, &got, qobs_isa_name(i), threads, mode % 8);
        free(got.bytes);
    }
    free(expected.bytes);
    return 0;
}
