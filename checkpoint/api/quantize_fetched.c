/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A run that stops leaves its parts, and the same call goes on with the next one. */
#include "api/quantize_fetched.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "files/output_directory.h"
#include "files/status.h"
#include "files/text.h"
#include "parts/fetched_model.h"
#include "parts/parts.h"

struct fetched_run {
    const qobs_checkpoint_quantize_args *args;
    char *parts; /* OUT.parts */
    struct fetched_model model;
    size_t part, count;
    pthread_mutex_t lock; /* for what follows; the caller's function is called by one thread at a time */
    qobs_progress last;   /* that was reported */
    uint64_t before;      /* bytes of the parts before this one */
    bool stopped;
};

/* ---- Progress ---------------------------------------------------------------------------------------------------- */

static bool report(struct fetched_run *run, const qobs_progress *progress)
{
    run->last = *progress;
    run->last.layer = NULL;
    if (run->args->progress && !run->stopped)
        run->stopped = run->args->progress(run->args->context, progress) != 0;
    return run->stopped;
}

/* Reports that a file is being fetched. */
static bool is_stopped(void *context, const char *name)
{
    struct fetched_run *run = context;
    pthread_mutex_lock(&run->lock);
    qobs_progress progress = run->last;
    progress.struct_size = sizeof progress;
    progress.stage = "fetch";
    progress.layer = name;
    progress.bytes_total = progress.bytes_total ? progress.bytes_total : 1; /* the sizes are not known yet */
    const bool stopped = report(run, &progress);
    pthread_mutex_unlock(&run->lock);
    return stopped;
}

/* Reports the progress of a part as that of the model. */
static int forward(void *context, const qobs_progress *of_part)
{
    struct fetched_run *run = context;
    qobs_progress progress = *of_part;
    pthread_mutex_lock(&run->lock);
    progress.bytes_done += run->before;
    progress.bytes_total += run->before;
    progress.share = fmax(run->last.share, ((double)(run->part - 1) + of_part->share) / (double)run->count);
    const bool stopped = report(run, &progress);
    pthread_mutex_unlock(&run->lock);
    return stopped;
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

static bool is_done(const struct fetched_run *run, size_t part)
{
    OWNED char *path = text_format("%s/part-%zu-of-%zu/" PART_MANIFEST, run->parts, part, run->count);
    return path && access(path, F_OK) == 0;
}

static int make_part(struct fetched_run *run, size_t part, quantize_function *quantize, qobs_error *error)
{
    const bool alone = run->args->part_count > 0;
    qobs_checkpoint_quantize_args args = *run->args;
    run->part = alone ? 1 : part;
    run->before = run->last.bytes_done;
    args.model = run->model.view;
    args.part = part;
    args.part_count = alone ? run->args->part_count : run->count;
    args.replace = alone && run->args->replace;
    args.progress = forward;
    args.context = run;
    args.report = alone ? run->args->report : NULL;
    const int status = quantize(&args, error);
    const struct fetched_shards *shards = &run->model.shards;
    return shards->status != QOBS_OK ? give_error(error, shards->status, &shards->failure) : status;
}

static int make_parts(struct fetched_run *run, quantize_function *quantize, qobs_error *error)
{
    if (run->args->part_count > 0) {
        run->count = 1;
        return make_part(run, run->args->part, quantize, error);
    }
    run->count = run->model.shard_count;
    for (size_t part = 1; part <= run->count; part++)
        if (!is_done(run, part))
            RETURN_IF_NOT_OK(make_part(run, part, quantize, error));
    return QOBS_OK;
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

static int check(const struct fetched_run *run, struct fail *f)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    if (a->keep_numbers)
        return INVALID(f, "fetch: is set beside keep_numbers, which needs the whole model at once");
    RETURN_IF_NOT_OK(fetch_command_check(a->fetch, f));
    return argument_failure("out", output_directory_check(a->out, a->model, a->replace || a->part_count > 0, f), f);
}

static int open_model(struct fetched_run *run, struct fail *f)
{
    const struct fetch_command command = {.text = run->args->fetch, .stopped = is_stopped, .context = run};
    RETURN_IF_NOT_OK(check(run, f));
    run->parts = parts_directory(run->args->out);
    return run->parts ? fetched_model_open(&run->model, run->args->model, run->parts, &command, f)
                      : NO_MEMORY(f, "the parts");
}

int quantize_fetched(const qobs_checkpoint_quantize_args *args, quantize_function *quantize, qobs_error *error)
{
    struct fail f = {.message = ""};
    struct fetched_run run = {.args = args};
    pthread_mutex_init(&run.lock, NULL);
    int status = open_model(&run, &f);
    if (status != QOBS_OK)
        give_error(error, status, &f);
    else
        status = make_parts(&run, quantize, error);
    if (run.model.root)
        fetched_model_close(&run.model);
    free(run.parts);
    pthread_mutex_destroy(&run.lock);
    if (status != QOBS_OK || args->part_count > 0)
        return status;
    const qobs_checkpoint_finish_args finish = {.struct_size = sizeof finish,
                                                .out = args->out,
                                                .replace = args->replace,
                                                .keep_findings = args->keep_findings,
                                                .report = args->report};
    return qobs_checkpoint_finish(&finish, error);
}
