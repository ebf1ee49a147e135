/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One call: outputs fenced, both functions run, everything compared. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "exercised.h"
#include "memory.h"
#include "reference.h"
#include "upper_halves.h"

#define FENCE 128          /* bytes before and behind the outputs */
#define FENCE_PATTERN 0xa5 /* also between outputs */
#define OUTPUT_BYTES ((size_t)1 << 20)

const char *const form_names[FORMS] = {"minmax_rows",    "minmax_row_panels", "minmax_columns",
                                       "minmax_indexed", "absmax_rows",       "absmax_columns"};

static const char *const fill_names[FILLS] = {"identities", "earlier results", "zeros"};

/* The caller's min or max: what the function under test writes, ending at a no-access page or beginning behind one,
 * and what the reference writes, in ordinary memory. */
struct output {
    struct arena arena;
    unsigned char *expected;
    unsigned char *begin, *end; /* with fences, in the arena; `expected` mirrors this */
    unsigned char *first;       /* lowest element */
};

static struct output outputs[2]; /* min, max */

/* Further arguments of the indexed form: the group of each column, before a no-access page, and scratch memory. */
enum { MOST_GROUPS = 150, MOST_COLUMNS = (2 << 20) / 2 };
static struct arena index_arena;
static unsigned char *scratch;

void call_init(void)
{
    for (int i = 0; i < 2; i++) {
        outputs[i].arena = arena_new(OUTPUT_BYTES);
        outputs[i].expected = malloc(OUTPUT_BYTES);
        if (!outputs[i].expected)
            abort();
    }
    index_arena = arena_new(MOST_COLUMNS * sizeof(uint32_t));
    scratch = malloc(QOBS_INDEXED_SCRATCH(MOST_GROUPS) + 64);
    if (!scratch)
        abort();
    fault_init();
}

bool form_is_there(const struct kernel_table *table, enum form form, int dtype)
{
    return form == ROWS             ? table->minmax_rows[dtype] != NULL
           : form == ROW_PANELS     ? table->minmax_row_panels[dtype] != NULL
           : form == COLUMNS        ? table->minmax_columns[dtype] != NULL
           : form == INDEXED        ? table->minmax_indexed[dtype] != NULL
           : form == ABSMAX_ROWS    ? table->absmax_rows[dtype] != NULL
           : form == ABSMAX_COLUMNS ? table->absmax_columns[dtype] != NULL
                                    : false;
}

size_t call_extent(const struct check *check, const struct call *call, size_t *below)
{
    *below = 0;
    if (call->count == 0 || call->length == 0)
        return 0;
    const size_t step = (size_t)(call->stride < 0 ? -call->stride : call->stride) * (call->count - 1);
    if (call->stride < 0)
        *below = step;
    return step + call->length * check->dtype->size;
}

static void report(struct check *check, const struct call *call, const char *format, ...)
{
    const char *form = form_names[check->form];
    va_list arguments;
    va_start(arguments, format);
    check->failed = true;
    printf("FAIL %s %s_%s, %s: ", check->subject->table->isa, form, check->dtype->name, check->aspect);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n     %zu %s of %zu elements, stride %td bytes", call->count, is_rows(check->form) ? "runs" : "rows",
           call->length, call->stride);
    if (is_rows(check->form))
        printf(", out_stride %td", call->out_stride);
    printf("\n     x at 64k+%d, elements %s, %s %zu bytes %s no-access memory; min and max hold %s\n",
           (int)((uintptr_t)call->x % 64), data_names[call->data], call->at_end ? "ending" : "beginning", call->offset,
           call->at_end ? "before" : "behind", fill_names[call->fill]);
}

static uint64_t initial(struct check *check, enum fill fill, bool is_max)
{
    const struct dtype *dtype = check->dtype;
    uint64_t bits;
    switch (fill) {
    case IDENTITIES:
        return is_absmax(check->form) ? 0 : is_max ? dtype->infinity | dtype->sign : dtype->infinity;
    case ZEROS:
        return is_absmax(check->form) ? 0 : rng_below(&check->rng, 2) ? dtype->sign : 0;
    default:
        bits = draw(&check->rng, dtype, (enum kind)rng_below(&check->rng, INFINITE + 1));
    }
    return is_absmax(check->form) ? bits & ~dtype->sign : bits == dtype->sign ? 0 : bits;
}

/* Lays out `n` outputs, `apart` elements from one to the next, and fills them. */
static void prepare(struct check *check, const struct call *call, struct output *out, size_t n, size_t apart,
                    bool is_max)
{
    const size_t size = check->dtype->size;
    const size_t bytes = n == 0 ? 0 : ((n - 1) * apart + 1) * size;
    const size_t offset = rng_below(&check->rng, 4) == 0 ? rng_below(&check->rng, 64) : 0;
    out->first = arena_place(&out->arena, bytes, rng_below(&check->rng, 2), offset);
    out->begin = out->first - out->arena.begin < FENCE ? out->arena.begin : out->first - FENCE;
    out->end = out->arena.end - out->first < (ptrdiff_t)(bytes + FENCE) ? out->arena.end : out->first + bytes + FENCE;
    memset(out->begin, FENCE_PATTERN, (size_t)(out->end - out->begin));
    for (size_t i = 0; i < n; i++)
        store_bits(check->dtype, out->first + i * apart * size, initial(check, call->fill, is_max));
    memcpy(out->expected, out->begin, (size_t)(out->end - out->begin));
}

/* The counters, with fences. */
struct counters {
    uint64_t before[4];
    struct nonfinite_count nonfinite;
    uint64_t behind[4];
};

/* Arguments of the two functions. */
struct job {
    const struct check *check;
    const struct call *call;
    const uint32_t *group; /* indexed only */
    size_t groups;
    size_t panels, runs; /* panels only: of all rows, and of a row */
    unsigned char *min, *max, *expected_min, *expected_max;
    struct counters got, expected;
};

static void call_table(const struct job *job, const struct kernel_table *table, unsigned char *min, unsigned char *max,
                       struct nonfinite_count *nonfinite)
{
    const struct check *check = job->check;
    const struct call *call = job->call;
    if (check->form == ROWS)
        CALL(table, minmax_rows[check->index])
        (call->x, call->stride, call->count, call->length, min, max, call->out_stride, nonfinite);
    else if (check->form == ROW_PANELS)
        CALL(table, minmax_row_panels[check->index])
        (call->x, call->stride, job->panels, call->count / job->panels, job->runs, call->length / job->runs, min, max,
         nonfinite);
    else if (check->form == COLUMNS)
        CALL(table, minmax_columns[check->index])
        (call->x, call->stride, call->count, call->length, min, max, nonfinite);
    else if (check->form == INDEXED)
        CALL(table, minmax_indexed[check->index])
        (call->x, call->stride, call->count, call->length, job->group, job->groups, min, max,
         scratch + call->offset % 64, nonfinite);
    else if (check->form == ABSMAX_ROWS)
        CALL(table, absmax_rows[check->index])
        (call->x, call->stride, call->count, call->length, max, call->out_stride, nonfinite);
    else
        CALL(table, absmax_columns[check->index])(call->x, call->stride, call->count, call->length, max, nonfinite);
    check_upper_halves(table->isa, form_names[check->form]);
}

static void call_reference(const struct job *job, struct nonfinite_count *nonfinite)
{
    const struct check *check = job->check;
    const struct call *call = job->call;
    if (check->form == ROWS)
        reference_rows(check->dtype, call->x, call->stride, call->count, call->length, job->expected_min,
                       job->expected_max, call->out_stride, nonfinite);
    else if (check->form == ROW_PANELS)
        reference_row_panels(check->dtype, call->x, call->stride, job->panels, call->count / job->panels, job->runs,
                             call->length / job->runs, job->expected_min, job->expected_max, nonfinite);
    else if (check->form == COLUMNS)
        reference_columns(check->dtype, call->x, call->stride, call->count, call->length, job->expected_min,
                          job->expected_max, nonfinite);
    else if (check->form == INDEXED)
        reference_indexed(check->dtype, call->x, call->stride, call->count, call->length, job->group, job->groups,
                          job->expected_min, job->expected_max, nonfinite);
    else if (check->form == ABSMAX_ROWS)
        reference_absmax_rows(check->dtype, call->x, call->stride, call->count, call->length, job->expected_max,
                              call->out_stride, nonfinite);
    else
        reference_absmax_columns(check->dtype, call->x, call->stride, call->count, call->length, job->expected_max,
                                 nonfinite);
}

static void call_both(void *argument)
{
    struct job *job = argument;
    const struct kernel_table *reference = job->check->subject->reference;
    if (reference)
        call_table(job, reference, job->expected_min, job->expected_max, &job->expected.nonfinite);
    else
        call_reference(job, &job->expected.nonfinite);
    call_table(job, job->check->subject->table, job->min, job->max, &job->got.nonfinite);
}

/* Draws which group each column belongs to; where the outputs hold zeros each group has one. */
static void draw_groups(struct check *check, struct job *job)
{
    const struct call *call = job->call;
    const size_t workspace = OUTPUT_BYTES / 4 / check->dtype->size / (call->count + 1),
                 most = workspace < MOST_GROUPS ? workspace : MOST_GROUPS;
    const size_t fitting = most < call->length ? most : call->length;
    job->groups = call->length == 0 ? 1 : 1 + rng_below(&check->rng, fitting);
    uint32_t *group = (uint32_t *)(void *)arena_place(&index_arena, call->length * sizeof *group, true, 0);
    const size_t turn = rng_below(&check->rng, job->groups);
    for (size_t j = 0; j < call->length; j++)
        group[j] = (uint32_t)(call->fill == ZEROS && j < job->groups ? (j + turn) % job->groups
                                                                     : rng_below(&check->rng, job->groups));
    job->group = group;
}

/* A number that n is divided by without a rest, at most `most`; of none any. */
static size_t draw_divisor(struct check *check, size_t n, size_t most)
{
    size_t divisors[256], found = 0;
    if (n == 0)
        return 1 + rng_below(&check->rng, 3);
    for (size_t i = 1; i <= most && i <= n && found < 256; i++)
        if (n % i == 0)
            divisors[found++] = i;
    return divisors[rng_below(&check->rng, found)];
}

/* Names the first byte that differs: an output, or something no function may write. */
static void compare(struct check *check, const struct call *call, const struct output *out, size_t n, size_t apart,
                    const char *name)
{
    const size_t bytes = (size_t)(out->end - out->begin);
    if (check->failed || memcmp(out->begin, out->expected, bytes) == 0)
        return;
    size_t at = 0;
    while (out->begin[at] == out->expected[at])
        at++;
    const ptrdiff_t from_first = out->begin + at - out->first, size = (ptrdiff_t)check->dtype->size;
    const ptrdiff_t element = from_first / size;
    if (from_first < 0 || element > (ptrdiff_t)((n - 1) * apart) || element % (ptrdiff_t)apart != 0)
        report(check, call, "wrote %td bytes from the lowest %s, where none is", from_first, name);
    else {
        const unsigned char *got = out->first + element * size;
        report(check, call, "%s of %s %zu is 0x%" PRIx64 ", expected 0x%" PRIx64, name,
               is_rows(check->form)        ? "run"
               : is_columns(check->form)   ? "column"
               : check->form == ROW_PANELS ? "panel times runs plus run"
                                           : "row times groups plus group",
               call->out_stride < 0 ? n - 1 - (size_t)element / apart : (size_t)element / apart,
               load_bits(check->dtype, got), load_bits(check->dtype, out->expected + (got - out->begin)));
    }
}

static void compare_counters(struct check *check, const struct call *call, const struct counters *got,
                             const struct counters *expected)
{
    if (check->failed || memcmp(got, expected, sizeof *got) == 0)
        return;
    if (memcmp(&got->nonfinite, &expected->nonfinite, sizeof got->nonfinite) == 0)
        report(check, call, "wrote beside the counters");
    else
        report(check, call,
               "NaN counter is %" PRIu64 ", expected %" PRIu64 ", Inf counter is %" PRIu64 ", expected %" PRIu64,
               got->nonfinite.nan, expected->nonfinite.nan, got->nonfinite.inf, expected->nonfinite.inf);
}

static void report_fault(struct check *check, const struct call *call)
{
    if (!fault_address()) {
        report(check, call, "faulted without an address, as a misaligned access does");
        return;
    }
    const char *what = "x";
    const unsigned char *from = call->x;
    for (int i = 0; i < 2; i++)
        if (arena_holds(&outputs[i].arena, fault_address())) {
            what = i == 0 ? "the lowest min" : "the lowest max";
            from = outputs[i].first;
        }
    report(check, call, "touched memory %td bytes from %s", (ptrdiff_t)((uintptr_t)fault_address() - (uintptr_t)from),
           what);
}

void call_run(struct check *check, const struct call *call)
{
    struct subject *subject = check->subject;
    if (check->failed)
        return;
    size_t n = call->length, apart = 1, highest = 0;
    if (is_rows(check->form)) {
        apart = (size_t)(call->out_stride < 0 ? -call->out_stride : call->out_stride);
        n = apart == 0 && call->count > 0 ? 1 : call->count;
        apart = apart == 0 ? 1 : apart;
        highest = call->out_stride < 0 && n > 0 ? (n - 1) * apart * check->dtype->size : 0;
    }
    struct job job = {.check = check, .call = call};
    if (check->form == INDEXED) {
        draw_groups(check, &job);
        n = call->count * job.groups;
    }
    if (check->form == ROW_PANELS) {
        job.panels = draw_divisor(check, call->count, 40);
        job.runs = draw_divisor(check, call->length, MOST_GROUPS);
        n = job.panels * job.runs;
    }
    prepare(check, call, &outputs[0], n, apart, false);
    prepare(check, call, &outputs[1], n, apart, true);
    job.min = outputs[0].first + highest;
    job.max = outputs[1].first + highest;
    job.expected_min = outputs[0].expected + (job.min - outputs[0].begin);
    job.expected_max = outputs[1].expected + (job.max - outputs[1].begin);
    memset(&job.got, FENCE_PATTERN, sizeof job.got);
    job.got.nonfinite.nan = rng_next(&check->rng) >> 1;
    job.got.nonfinite.inf = rng_next(&check->rng) >> 1;
    job.expected = job.got;
    if (!survives(call_both, &job)) {
        report_fault(check, call);
        return;
    }
    subject->calls++;

    compare(check, call, &outputs[0], n, apart, "min");
    compare(check, call, &outputs[1], n, apart, "max");
    compare_counters(check, call, &job.got, &job.expected);
}
