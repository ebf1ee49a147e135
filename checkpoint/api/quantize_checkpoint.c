/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_checkpoint_quantize: the steps in order. */
#include <stdlib.h>

#include "audit/publish.h"
#include "files/mapped.h"
#include "files/text.h"
#include "parts/parts.h"
#include "quantize/run.h"

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
    return argument_failure("out", output_directory_open(&run->out, a->out, run->model.tree.root, a->replace, f), f);
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
    RETURN_IF_NOT_OK(run_name_unused_inputs(run, f));
    RETURN_IF_NOT_OK(open_output(run, f));
    RETURN_IF_NOT_OK(run_tensors(run, f));
    RETURN_IF_NOT_OK(write_side_files(run, f));
    if (a->part_count > 0)
        return part_publish(run, f);
    const struct publish_options options = {.runtime = a->runtime,
                                            .architectures = a->architectures,
                                            .keep_findings = a->keep_findings,
                                            .compatible = a->compat != QOBS_COMPAT_VLLM};
    return publish(&run->out, &options, &run->findings, f);
}

int qobs_checkpoint_quantize(const qobs_checkpoint_quantize_args *args, qobs_error *error)
{
    RELEASED_BY(mapped_files_end) struct mapped_files files;
    mapped_files_begin(&files);
    struct fail f = {.message = ""};
    struct quantize_run *run = NULL;
    int status = CHECK_STRUCT(args, &f);
    if (status == QOBS_OK)
        status = run_create(&run, args, CONTENTS_MODEL, &f);
    if (status == QOBS_OK)
        status = settings_check_once(args->settings, args->setting_count, &f);
    if (status == QOBS_OK)
        status = run_steps(run, &f);
    if ((status == QOBS_OK || status == QOBS_ERROR_FINDINGS) && args->report)
        *args->report = report_make(run);
    run_free(run);
    return give_error(error, status, &f);
}
