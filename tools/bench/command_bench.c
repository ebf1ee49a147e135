/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs bench: measures this processor for some seconds and prints a table. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench/works.h"
#include "commands.h"
#include "files/json.h"
#include "files/text.h"
#include "program.h"
#include "results.h"

enum { MAX_ISAS = 4, MAX_WORKS = 8 };
/* A 32-bit system has no larger array. */
enum { MAX_MEGABYTES = (SIZE_MAX >> 21) < 16384 ? 2047 : 16384 };

struct bench_options {
    struct machine_options machine;
    int64_t seconds, megabytes;
    bool json;
};

#define AT(member) offsetof(struct bench_options, member)
static const struct option_row rows[] = {
    INTEGER_ROW("seconds", "N", seconds, 1, 3600, "processor time to take (default 10)", "longer runs vary less"),
    INTEGER_ROW("megabytes", "N", megabytes, 1, MAX_MEGABYTES, "size of the tensor (default 64)",
                "smaller ones stay in caches"),
    JSON_ROW("the figures", NULL),
    THREADS_ROW,
};

/* ---- Measurement ------------------------------------------------------------------------------------------------- */

/* Elements per second of each work: on one thread by instruction set, and on all threads. 0: not measured. */
struct measured {
    double isas[MAX_WORKS][MAX_ISAS], threads[MAX_WORKS], limits[BENCH_LIMITS];
    const char *isa_names[MAX_ISAS];
    size_t isa_count;
    char missing[MAX_WORKS][sizeof((qobs_error *)NULL)->message]; /* why this build lacks a work */
};

/* On one thread the clock is that of the thread: it stands while another process has the processor. */
static double read_clock(const qobs_runtime *runtime)
{
    struct timespec t;
    clock_gettime(runtime ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Runs the work once, then for about `budget` seconds, and sets *speed to that of the fastest run in elements per
 * second: what else runs makes others slower. A run on which the clock stood does not count: that of a thread leaves
 * out the time that is stolen from a virtual machine. Returns a qobs_status. */
static int measure(const struct bench_work *work, struct bench_data *data, const qobs_runtime *runtime, double budget,
                   double *speed, qobs_error *error)
{
    double best = 0, sum = 0;
    int runs = 0;
    int status = work->run(data, runtime, error);
    for (; status == QOBS_OK && (sum < budget || (runs < 3 && sum < 2 * budget)); runs++) {
        const double start = read_clock(runtime);
        status = work->run(data, runtime, error);
        const double time = read_clock(runtime) - start;
        best = time > 0 && (best == 0 || time < best) ? time : best;
        sum += time;
    }
    if (status == QOBS_OK)
        *speed = bench_elements(work, data) / best;
    return status;
}

static size_t count_works(void)
{
    size_t works = 0;
    while (bench_work_at(works)->run)
        works++;
    return works;
}

/* Measures one row: by instruction set, then with threads on the fastest instruction set. */
static int measure_work(size_t index, struct measured *m, struct bench_data *data, const qobs_runtime *runtime,
                        double seconds)
{
    const struct bench_work *work = bench_work_at(index);
    qobs_error error;
    int status = QOBS_OK;
    for (size_t i = 0; status == QOBS_OK && i < m->isa_count; i++) {
        status = qobs_isa_select(m->isa_names[i], &error);
        if (status == QOBS_OK)
            status = measure(work, data, NULL, seconds, &m->isas[index][i], &error);
    }
    if (status == QOBS_OK && runtime->executor)
        status = measure(work, data, runtime, seconds, &m->threads[index], &error);
    if (status == QOBS_ERROR_UNSUPPORTED)
        snprintf(m->missing[index], sizeof m->missing[index], "%s", error.message);
    return status == QOBS_OK || status == QOBS_ERROR_UNSUPPORTED ? EXIT_OK : print_status_error(&error, work->name);
}

static int measure_all(struct measured *m, struct bench_data *data, const struct threads *threads, double seconds)
{
    const size_t works = count_works();
    qobs_error error;
    for (size_t i = 0; i < qobs_isa_count() && m->isa_count < MAX_ISAS; i++)
        if (qobs_isa_usable(i))
            m->isa_names[m->isa_count++] = qobs_isa_name(i);
    const size_t measurements = works * (m->isa_count + (threads->runtime.executor ? 1 : 0)) + BENCH_LIMITS - 1;
    const double share = seconds / (double)measurements;
    int code = EXIT_OK;
    for (int limit = BENCH_READ; limit < BENCH_LIMITS; limit++)
        measure(bench_limit_loop((enum bench_limit)limit), data, NULL, share, &m->limits[limit], &error);
    if (m->limits[BENCH_READ_BY_SEARCH] > m->limits[BENCH_READ])
        m->limits[BENCH_READ] = m->limits[BENCH_READ_BY_SEARCH];
    for (size_t i = 0; code == EXIT_OK && i < works; i++)
        code = measure_work(i, m, data, &threads->runtime, share);
    return code;
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

/* Converts to units of 10^9 bytes per second. */
static double gigabytes(const struct bench_work *work, double speed)
{
    return speed * (double)work->element_size * 1e-9;
}

/* Returns the share of the limit that the fastest instruction set reaches on one thread; 0: there is none. */
static double share_of(const struct measured *m, size_t index)
{
    const struct bench_work *work = bench_work_at(index), *loop = bench_limit_loop(work->limit);
    double best = 0;
    for (size_t i = 0; i < m->isa_count; i++)
        best = m->isas[index][i] > best ? m->isas[index][i] : best;
    if (work->limit == BENCH_READ) /* counts bytes; the count loop counts elements */
        return gigabytes(work, best) / gigabytes(loop, m->limits[BENCH_READ]);
    return work->limit == BENCH_COUNT ? best / m->limits[BENCH_COUNT] : 0;
}

static void print_number(double gigabytes_per_second)
{
    if (gigabytes_per_second > 0)
        printf(" %8.*f", gigabytes_per_second < 10 ? 2 : 1, gigabytes_per_second);
    else
        printf(" %8s", "-");
}

static void print_row(const struct measured *m, size_t index)
{
    const struct bench_work *work = bench_work_at(index);
    printf("%-25s", work->name);
    if (m->missing[index][0]) {
        printf(" not in this build: %s\n", m->missing[index]);
        return;
    }
    for (size_t i = 0; i < m->isa_count; i++)
        print_number(gigabytes(work, m->isas[index][i]));
    print_number(gigabytes(work, m->threads[index]));
    if (work->limit != BENCH_NO_LIMIT)
        printf(" %4.0f %% %s", 100 * share_of(m, index), bench_limit_loop(work->limit)->name);
    else
        printf("      -");
    printf("\n");
}

static void print_table(const struct measured *m, size_t bytes, size_t threads)
{
    char cpu[64], with[32];
    cpu_name(cpu, sizeof cpu);
    printf("qobs %s on %s\nGB/s from a tensor of %zu MB, one thread and %zu\n\n", qobs_version(), cpu, bytes >> 20,
           threads);
    printf("%-25s", "");
    for (size_t i = 0; i < m->isa_count; i++)
        printf(" %8s", m->isa_names[i]);
    snprintf(with, sizeof with, "x%zu", threads);
    printf(" %8s %s\n%-25s", with, " share of limit", bench_limit_loop(BENCH_READ)->name);
    print_number(gigabytes(bench_limit_loop(BENCH_READ), m->limits[BENCH_READ]));
    printf("\n%-25s", bench_limit_loop(BENCH_COUNT)->name);
    print_number(gigabytes(bench_limit_loop(BENCH_COUNT), m->limits[BENCH_COUNT]));
    printf("\n");
    for (size_t i = 0; i < count_works(); i++)
        print_row(m, i);
    printf("\nx%zu: %zu threads with %s. Groups have 128 elements. The limits are loops on one\n"
           "thread that only read, or only count known bins of f32; the search is bound\n"
           "by arithmetic. Each figure is that of the fastest run.\n",
           threads, threads, m->isa_names[m->isa_count - 1]);
}

static int print_as_json(const struct measured *m, size_t bytes, size_t threads)
{
    char cpu[64];
    cpu_name(cpu, sizeof cpu);
    json_object *root = json_report(), *isas = json_put_array(root, "instruction_sets");
    json_put_text(root, "version", qobs_version());
    json_put_text(root, "cpu", cpu);
    json_put_count(root, "threads", (uint64_t)threads);
    json_put_count(root, "bytes", (uint64_t)bytes);
    for (size_t i = 0; i < m->isa_count; i++)
        json_append_text(isas, m->isa_names[i]);
    json_object *limits = json_put_object(root, "limits_gb_s"), *works = json_put_array(root, "works");
    for (int limit = BENCH_READ; limit <= BENCH_COUNT; limit++) {
        const struct bench_work *loop = bench_limit_loop((enum bench_limit)limit);
        json_put(limits, loop->key, json_number(gigabytes(loop, m->limits[limit])));
    }
    for (size_t k = 0; k < count_works(); k++) {
        const struct bench_work *work = bench_work_at(k);
        json_object *item = json_object_new_object(), *speeds = json_put_object(item, "gb_s");
        json_put_text(item, "name", work->key);
        if (m->missing[k][0])
            json_put_text(item, "missing", m->missing[k]);
        for (size_t i = 0; i < m->isa_count; i++)
            json_put(speeds, m->isa_names[i], json_number(gigabytes(work, m->isas[k][i])));
        if (m->threads[k] > 0)
            json_put(item, "threads_gb_s", json_number(gigabytes(work, m->threads[k])));
        if (work->limit != BENCH_NO_LIMIT) {
            json_put_text(item, "limit", bench_limit_loop(work->limit)->key);
            json_put(item, "share", json_number(share_of(m, k)));
        }
        json_append(works, item);
    }
    return print_json(root);
}

/* ---- Command ----------------------------------------------------------------------------------------------------- */

static int run(void *options, int count, char **arguments, struct threads *threads)
{
    const struct bench_options *o = options;
    RELEASED_BY(bench_data_free) struct bench_data data = {0};
    if (count > 0)
        return print_error(EXIT_USAGE, "bench: takes no file, got '%s'", arguments[0]);
    OWNED struct measured *m = calloc(1, sizeof *m);
    if (!m)
        return print_error(EXIT_SYSTEM, "no memory");
    RETURN_IF_NOT_OK(bench_data_make(&data, (size_t)o->megabytes));
    RETURN_IF_NOT_OK(measure_all(m, &data, threads, (double)o->seconds));
    if (o->json)
        return print_as_json(m, bench_bytes(&data), threads->count);
    print_table(m, bench_bytes(&data), threads->count);
    return EXIT_OK;
}

static const struct bench_options defaults = {.seconds = 10, .megabytes = 64};

const struct command command_bench = {
    .name = "bench",
    .run = run,
    .size = sizeof defaults,
    .defaults = &defaults,
    .threaded = true,
    .summary = "ten seconds on this CPU: GB/s by instruction set and task",
    .usage = "[OPTION]...",
    .description = "Measures this CPU for ten seconds: minimum and maximum, histogram, search and quantization on each "
                   "instruction set and on all threads, in GB/s and as a share of the loop that bounds them. It needs "
                   "200 MB of memory.",
    OPTION_ROWS(rows),
    .example = "qobs bench --seconds 60"};
