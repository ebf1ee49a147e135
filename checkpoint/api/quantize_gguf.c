/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* gguf_quantize: the steps in order. */
#include "audit/publish.h"
#include "files/mapped.h"
#include "quantize/gguf_call.h"

static int quantize(struct gguf_call *call, struct fail *f)
{
    const struct publish_options options = {.runtime = call->args->runtime, .keep_findings = call->args->keep_findings};
    RETURN_IF_NOT_OK(gguf_call_run(call, f));
    return call->args->dry_run ? QOBS_OK : publish_file(&call->out, &options, &call->audited, f);
}

int gguf_quantize(const struct gguf_quantize_args *args, char **report, struct fail *f)
{
    RELEASED_BY(mapped_files_end) struct mapped_files files;
    struct gguf_call call = {.args = args,
                             .meter = {.stage = "quantize", .report = args->progress, .context = args->context}};
    mapped_files_begin(&files);
    meter_open(&call.meter);
    int status = mapped_cause(quantize(&call, f), f);
    const bool reports = status == QOBS_OK || status == QOBS_ERROR_FINDINGS;
    *report = reports ? gguf_report(&call) : NULL;
    if (reports && !*report)
        status = NO_MEMORY(f, "the report");
    gguf_call_release(&call);
    return status;
}
