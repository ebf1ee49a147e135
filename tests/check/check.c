/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Checks every kernel of every usable instruction set against the scalar one, and the scalar one against decoded
 * elements.
 *
 *   check [--isa NAME] [--seed N] [--few | --quick | --whole | --long]
 *
 * --quick draws which lengths meet the limits of large calls, --few also which third of the checks of minimum and
 * maximum run; --whole, the default, has all of them; --long has them 16 times.
 *
 * Exit status: 0 all passed, 1 something failed, 2 bad usage, 77 NAME cannot run on this machine. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "exercised.h"
#include "gptq.h"
#include "gram.h"
#include "kernels/dispatch.h"
#include "histogram.h"
#include "nearly.h"
#include "qobs/qobs.h"
#include "squared_errors.h"
#include "squares.h"
#include "superblock.h"

#define SKIPPED 77

struct options {
    const char *isa; /* NULL: all */
    uint64_t seed;
    unsigned rounds;
    bool sample, few;
};

struct tally {
    unsigned passed, failed;
};

static void count(struct tally *tally, bool passed)
{
    if (passed)
        tally->passed++;
    else
        tally->failed++;
}

static void usage(FILE *file)
{
    fprintf(file, "usage: check [--isa NAME] [--seed N] [--few | --quick | --whole | --long]\ninstruction sets:");
    for (size_t i = 0; qobs_kernel_tables[i]; i++)
        fprintf(file, " %s", qobs_kernel_tables[i]->isa);
    fprintf(file, "\n");
}

static struct options parse(int argc, char **argv)
{
    struct options options = {NULL, (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid(), 1, false, false};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        char *end = NULL;
        if (strcmp(argv[i], "--few") == 0 || strcmp(argv[i], "--quick") == 0 || strcmp(argv[i], "--whole") == 0 ||
            strcmp(argv[i], "--long") == 0) {
            options.rounds = argv[i][2] == 'l' ? 16 : 1;
            options.few = argv[i][2] == 'f';
            options.sample = argv[i][2] == 'q' || options.few;
        } else if (strcmp(argv[i], "--isa") == 0 && value) {
            options.isa = value;
            i++;
        } else if (strcmp(argv[i], "--seed") == 0 && value && *value >= '0' && *value <= '9') {
            errno = 0;
            options.seed = strtoull(value, &end, 0);
            if (errno || *end) {
                usage(stderr);
                exit(2);
            }
            i++;
        } else {
            const bool help = strcmp(argv[i], "--help") == 0;
            usage(help ? stdout : stderr);
            exit(help ? 0 : 2);
        }
    }
    return options;
}

static const struct kernel_table *find_table(const char *isa)
{
    for (size_t i = 0; qobs_kernel_tables[i]; i++)
        if (strcmp(qobs_kernel_tables[i]->isa, isa) == 0)
            return qobs_kernel_tables[i];
    return NULL;
}

/* The library uses the table that it is asked to use. */
static bool becomes_active(const struct kernel_table *table)
{
    if (qobs_isa_select(table->isa, NULL) == QOBS_OK && qobs_kernels_active() == table &&
        strcmp(qobs_isa_active(), table->isa) == 0)
        return true;
    printf("FAIL %s, dispatch: limited to it, the library uses %s\n", table->isa, qobs_isa_active());
    return false;
}

static struct tally check_table(const struct kernel_table *table, const struct options *options)
{
    struct subject subject = {.table = table, .reference = table == &qobs_kernels_scalar ? NULL : &qobs_kernels_scalar};
    struct tally tally = {0, 0};
    uint64_t calls = 0;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    count(&tally, becomes_active(table));
    for (int dtype = 0; !subject.reference && dtype < QOBS_KERNEL_DTYPES; dtype++) {
        const bool right = order_is_that_of_values(&dtypes[dtype]);
        if (!right)
            printf("FAIL order_of_bits_%s\n", dtypes[dtype].name);
        count(&tally, right);
    }
    for (enum form form = 0; form < FORMS; form++)
        for (int dtype = 0; dtype < QOBS_KERNEL_DTYPES; dtype++) {
            if (!form_is_there(table, form, dtype)) {
                count(&tally, false); /* exercised.c names the slot */
                continue;
            }
            for (size_t a = 0; aspects[a].run; a++) {
                struct check check = {&subject,
                                      form,
                                      (enum kernel_dtype)dtype,
                                      &dtypes[dtype],
                                      aspects[a].name,
                                      {options->seed + (a * FORMS + form) * QOBS_KERNEL_DTYPES + (unsigned)dtype},
                                      options->sample,
                                      false};
                rng_next(&check.rng);
                if (options->few && (options->seed + a + (unsigned)dtype) % 3 > 0)
                    continue;
                aspects[a].run(&check, options->rounds);
                count(&tally, !check.failed);
                fflush(stdout);
            }
        }
    calls += subject.calls;
    calls += check_histograms(table, options->seed, options->rounds, &tally.passed, &tally.failed);
    calls += check_squares(table, options->seed, options->rounds, &tally.passed, &tally.failed);
    calls += check_squared_errors(table, options->seed, options->rounds, &tally.passed, &tally.failed);
    calls += check_gptq(table, options->seed, options->rounds, &tally.passed, &tally.failed);
    calls += check_gram(table, options->seed, options->rounds, &tally.passed, &tally.failed);
    calls += check_nearly(table, options->seed, options->rounds, &tally.passed, &tally.failed);
    calls += check_superblocks(table, options->seed, options->rounds, &tally.passed, &tally.failed);
    unsigned functions;
    const unsigned failed = slots_failed(table, CALLER_CHECK, &functions);
    tally.passed += functions - failed;
    tally.failed += failed;
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%s: %u of %u checks passed, %" PRIu64 " calls, %.1f s\n", table->isa, tally.passed,
           tally.passed + tally.failed, calls,
           (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9);
    return tally;
}

int main(int argc, char **argv)
{
    const struct options options = parse(argc, argv);
    if (options.isa) {
        const struct kernel_table *table = find_table(options.isa);
        if (!table) {
            usage(stderr);
            return 2;
        }
        if (!table->usable()) {
            printf("%s: skipped, needs %s\n", table->isa, table->summary);
            return SKIPPED;
        }
    }
    printf("seed %" PRIu64 "\n", options.seed);
    call_init();
    aspects_init();
    struct tally total = {0, 0};
    for (size_t i = 0; qobs_kernel_tables[i]; i++) {
        const struct kernel_table *table = qobs_kernel_tables[i];
        if (options.isa && strcmp(options.isa, table->isa) != 0)
            continue;
        if (!table->usable()) {
            printf("%s: skipped, needs %s\n", table->isa, table->summary);
            continue;
        }
        const struct tally tally = check_table(table, &options);
        total.passed += tally.passed;
        total.failed += tally.failed;
    }
    printf("%u passed, %u failed\n", total.passed, total.failed);
    return total.failed ? 1 : 0;
}
