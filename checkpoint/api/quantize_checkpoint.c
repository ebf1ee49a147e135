/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_checkpoint_quantize: reads the arguments and runs the steps in order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/publish.h"
#include "parts/parts.h"
#include "quantize/report.h"
#include "quantize/run.h"
#include "quantize/side_files.h"

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

/* Decides which shards this part writes. */
static int choose_part(struct quantize_run *run, struct fail *f)
{
    const size_t count = run->args->part_count;
    if (count == 0)
        return QOBS_OK;
    run->part_of_shard = calloc(run->layout.shard_count + 1, sizeof *run->part_of_shard);
    return run->part_of_shard ? parts_assign(&run->layout, count, run->part_of_shard, f) : NO_MEMORY(f, "the parts");
}

static int open_output(struct quantize_run *run, struct fail *f)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    if (a->part_count > 0)
        return part_open(run, f);
    return output_directory_open(&run->out, a->out, run->model.tree.root, a->replace, f) == 0 ? QOBS_OK
                                                                                              : failure_status(f);
}

/* Writes all but the shards. Among parts the first does so. */
static int write_side_files(struct quantize_run *run, struct fail *f)
{
    if (run->args->part > 1)
        return QOBS_OK;
    RETURN_IF_NOT_OK(side_files_copy(run, f));
    RETURN_IF_NOT_OK(side_files_write_index(run, f));
    return side_files_write_config(run, f);
}

static int run_steps(struct quantize_run *run, struct fail *f)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    RETURN_IF_NOT_OK(run_read_config(run, f));
    RETURN_IF_NOT_OK(run_open(run, NULL, f));
    RETURN_IF_NOT_OK(choose_part(run, f));
    RETURN_IF_NOT_OK(run_prepare(run, f));
    RETURN_IF_NOT_OK(open_output(run, f));
    RETURN_IF_NOT_OK(run_tensors(run, f));
    RETURN_IF_NOT_OK(write_side_files(run, f));
    if (a->part_count > 0)
        return part_publish(run, f);
    const struct publish_options options = {.runtime = a->runtime,
                                            .keep_findings = a->keep_findings,
                                            .compatible = a->compat == QOBS_COMPAT_LLM_COMPRESSOR};
    return publish(&run->out, &options, &run->findings, f);
}

static int check_args(const qobs_checkpoint_quantize_args *a, struct fail *f)
{
    if (!a)
        return INVALID(f, "args: is NULL");
    if (a->struct_size != sizeof *a)
        return INVALID(f, "args: struct_size is %zu, allowed is %zu", a->struct_size, sizeof *a);
    if (!a->model || !a->out)
        return INVALID(f, "%s: is NULL", a->model ? "out" : "model");
    const struct list_argument lists[] = {{"targets", a->targets, a->target_count},
                                          {"ignore", a->ignore, a->ignore_count},
                                          {"settings", a->settings, a->setting_count},
                                          {"states", a->states, a->state_count},
                                          {"activations", a->activations, a->activation_count},
                                          {"importance", a->importance, a->importance_count}};
    RETURN_IF_NOT_OK(check_lists(lists, sizeof lists / sizeof *lists, f));
    if (a->part_count > 0 ? a->part < 1 || a->part > a->part_count : a->part != 0)
        return INVALID(f, "part: is %zu of %zu; a number from 1 to part_count is needed", a->part, a->part_count);
    if (a->compat != QOBS_COMPAT_VLLM && a->compat != QOBS_COMPAT_LLM_COMPRESSOR)
        return INVALID(f, "compat: is %d, allowed are 0 and 1", (int)a->compat);
    if (a->fill_experts < QOBS_FILL_REFUSE || a->fill_experts > QOBS_FILL_MEDIAN)
        return INVALID(f, "fill_experts: is %d, allowed are 0, 1 and 2", (int)a->fill_experts);
    return check_runtime(a->runtime, f);
}

int qobs_checkpoint_quantize(const qobs_checkpoint_quantize_args *args, qobs_error *error)
{
    struct fail f = {.message = ""};
    int status = check_args(args, &f);
    struct quantize_run *run = status == QOBS_OK ? calloc(1, sizeof *run) : NULL;
    if (status == QOBS_OK && !run)
        status = NO_MEMORY(&f, "a run");
    if (status == QOBS_OK) {
        run->args = args;
        pthread_mutex_init(&run->lock, NULL);
        status = run_steps(run, &f);
        if ((status == QOBS_OK || status == QOBS_ERROR_FINDINGS) && args->report)
            *args->report = report_make(run);
        pthread_mutex_destroy(&run->lock);
        run_free(run);
        free(run);
    }
    if (error) {
        error->status = status;
        snprintf(error->message, sizeof error->message, "%.*s", (int)sizeof error->message - 1,
                 status == QOBS_OK ? "" : f.message);
    }
    return status;
}
