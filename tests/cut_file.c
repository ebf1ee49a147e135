/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A host program of libqobs-checkpoint with a SIGBUS handler of its own. It cuts a file while a call reads it, before
 * the allocation of a number.
 *
 *     cut_file quantize|calibrate|plan|audit MODEL OTHER SCHEME FILE ALLOCATION
 * [activations|importance|states|preset=VALUE]
 *
 * OTHER: the output, or the original that audit compares with. Prints whether it has cut, the
 * number of allocations, the status and the message.
 * Exit status 9: the handler was called; 8: it is another one than before. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "qobs/checkpoint.h"

static const char *file;
static atomic_long left, allocations; /* until the cut, 0: none follows; of the whole call */
static atomic_bool cut;

static void count(void)
{
    atomic_fetch_add(&allocations, 1);
    if (left > 0 && atomic_fetch_sub(&left, 1) == 1 && truncate(file, 0) == 0)
        cut = true;
}

/* The linker gives these the calls of the library. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t number, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t number, size_t size);

void *__wrap_malloc(size_t size)
{
    count();
    return __real_malloc(size);
}

void *__wrap_calloc(size_t number, size_t size)
{
    count();
    return __real_calloc(number, size);
}

static void own_handler(int number)
{
    (void)number;
    _exit(9);
}

/* Returns the value of an option, NULL: it is not there. */
static const char *option(char **argv, const char *name)
{
    for (; *argv; argv++)
        if (strncmp(*argv, name, strlen(name)) == 0)
            return *argv + strlen(name);
    return NULL;
}

static int call(char **argv, qobs_error *error)
{
    const char *verb = argv[1], *model = argv[2], *other = argv[3], *scheme = argv[4];
    const char *activations = option(argv + 7, "activations="), *importance = option(argv + 7, "importance=");
    const char *states = option(argv + 7, "states="), *preset = option(argv + 7, "preset=");
    char *report = NULL;
    const qobs_checkpoint_quantize_args quantize = {.struct_size = sizeof quantize,
                                                    .model = model,
                                                    .out = other,
                                                    .scheme = scheme,
                                                    .preset = preset,
                                                    .keep_findings = true,
                                                    .activations = &activations,
                                                    .activation_count = activations != NULL,
                                                    .importance = &importance,
                                                    .importance_count = importance != NULL,
                                                    .states = &states,
                                                    .state_count = states != NULL};
    const qobs_checkpoint_calibrate_args calibrate = {.struct_size = sizeof calibrate,
                                                      .model = model,
                                                      .out = other,
                                                      .scheme = scheme,
                                                      .activations = &activations,
                                                      .activation_count = activations != NULL};
    const qobs_checkpoint_plan_args plan = {.struct_size = sizeof plan,
                                            .model = model,
                                            .schemes = &scheme,
                                            .scheme_count = 1,
                                            .preset = preset,
                                            .importance = &importance,
                                            .importance_count = importance != NULL,
                                            .report = &report};
    const qobs_checkpoint_audit_args audit = {
        .struct_size = sizeof audit, .checkpoint = model, .against = *other ? other : NULL, .report = &report};
    const int status = strcmp(verb, "quantize") == 0    ? qobs_checkpoint_quantize(&quantize, error)
                       : strcmp(verb, "calibrate") == 0 ? qobs_checkpoint_calibrate(&calibrate, error)
                       : strcmp(verb, "plan") == 0      ? qobs_checkpoint_plan(&plan, error)
                                                        : qobs_checkpoint_audit(&audit, error);
    free(report);
    return status;
}

int main(int argc, char **argv)
{
    struct sigaction now;
    qobs_error error = {0};
    if (argc < 7)
        return 2;
    signal(SIGBUS, own_handler);
    file = argv[5];
    left = strtol(argv[6], NULL, 10);
    allocations = 0;
    const int status = call(argv, &error);
    const long count = allocations;
    left = 0;
    if (sigaction(SIGBUS, NULL, &now) != 0 || now.sa_handler != own_handler)
        return 8;
    printf("%d %ld %d %s\n", (int)cut, count, status, status == QOBS_OK ? "" : error.message);
    return 0;
}
