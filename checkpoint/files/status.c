/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Checks what every function is given. */
#include "files/status.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "files/text.h"

int give_error(qobs_error *error, int status, const struct fail *f)
{
    if (error) {
        error->status = status;
        text_cut(error->message, sizeof error->message, status == QOBS_OK ? "" : f->message);
        make_printable(error->message);
    }
    return status;
}

int check_struct(const void *args, size_t struct_size, size_t needed, struct fail *f)
{
    if (!args)
        return INVALID(f, "args: is NULL");
    return struct_size == needed ? QOBS_OK
                                 : INVALID(f, "args: struct_size is %zu, allowed is %zu", struct_size, needed);
}

int argument_failure(const char *name, int status, struct fail *f)
{
    const struct fail reason = *f;
    const size_t length = strlen(name);
    if (status == QOBS_OK || (strncmp(reason.message, name, length) == 0 && reason.message[length] == ':'))
        return status;
    return report_failure(f, status, "%s: %s%s", name, reason.message[0] == ':' ? "''" : "", reason.message);
}

void run_tasks(const qobs_runtime *runtime, void (*task)(void *argument, size_t i), void *argument, size_t count)
{
    const qobs_executor *executor = runtime ? runtime->executor : NULL;
    if (executor && count > 1)
        executor->parallel_for(executor->context, task, argument, count);
    else
        for (size_t i = 0; i < count; i++)
            task(argument, i);
}

char *config_text(const qobs_config *config)
{
    size_t size = 0;
    qobs_config_text(config, NULL, 0, &size, NULL);
    char *text = malloc(size + 1);
    if (text && qobs_config_text(config, text, size, NULL, NULL) == QOBS_OK)
        return text;
    free(text);
    return NULL;
}

/* libqobs checks the runtime of an object that it makes. */
int check_runtime(const qobs_runtime *runtime, struct fail *f)
{
    qobs_config *config;
    qobs_error error = {0};
    if (qobs_config_create(&config, "llmc.minmax", runtime, &error) != QOBS_OK)
        return report_failure(f, error.status, "%s", error.message);
    qobs_config_destroy(config);
    return QOBS_OK;
}

int check_lists(const struct list_argument *lists, size_t count, struct fail *f)
{
    for (size_t i = 0; i < count; i++) {
        if (!lists[i].items && lists[i].count > 0)
            return INVALID(f, "%s: is NULL, but its count is %zu", lists[i].name, lists[i].count);
        for (size_t k = 0; k < lists[i].count; k++)
            if (!lists[i].items[k])
                return INVALID(f, "%s: [%zu] is NULL", lists[i].name, k);
    }
    return QOBS_OK;
}

void config_release(qobs_config **config) { qobs_config_destroy(*config); }

void observer_release(qobs_observer **observer) { qobs_observer_destroy(*observer); }

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
