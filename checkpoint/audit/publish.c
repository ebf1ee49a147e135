/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A model without config.json, which only the compatible mode writes, has nothing that an audit could compare. */
#include "audit/publish.h"

#include "audit/audit.h"

static int audit_output(const char *path, const struct publish_options *options, struct audited *audited,
                        struct fail *f)
{
    const qobs_checkpoint_audit_args args = {.struct_size = sizeof args,
                                             .checkpoint = path,
                                             .runtime = options->runtime,
                                             .architectures = options->architectures};
    struct audit audit = {.args = &args, .is_output = true, .lock = PTHREAD_MUTEX_INITIALIZER};
    int status = audit_run(&audit, f);
    if (status != QOBS_OK && options->compatible && audit.model.count > 0) {
        audit.failed = false;
        if (audit.model.config_path)
            audit_find(&audit, NULL, "cannot be audited: %s", f->message);
        status = audit.failed ? NO_MEMORY(f, "the audit") : QOBS_OK;
    }
    *audited = (struct audited){audit.findings, audit.gguf.notes};
    audit.findings = audit.gguf.notes = (struct findings){0};
    audit_free(&audit);
    return status;
}

/* Audits the output in `staged`, whose name will be `path`. Fails if findings stop the run. */
static int check(const char *staged, const char *path, const struct publish_options *options, struct audited *audited,
                 struct fail *f)
{
    RETURN_IF_NOT_OK(audit_output(staged, options, audited, f));
    const struct findings *findings = &audited->findings;
    if (findings->count > 0 && !options->keep_findings && !options->compatible)
        return report_failure(f, QOBS_ERROR_FINDINGS,
                              "%.60s: the audit finds %zu fault%s in the output, which is not written "
                              "(--keep-findings writes it); %s%s%s",
                              path, findings->count, findings->count == 1 ? "" : "s", findings->items[0].module,
                              *findings->items[0].module ? ": " : "", findings->items[0].text);
    return QOBS_OK;
}

int publish(struct output_directory *out, const struct publish_options *options, struct findings *findings,
            struct fail *f)
{
    struct audited audited = {.findings = {0}}; /* directories have none */
    const int status = check(out->staging, out->path, options, &audited, f);
    *findings = audited.findings;
    return status == QOBS_OK ? output_directory_commit(out, f) : status;
}

int publish_file(struct output *out, const struct publish_options *options, struct audited *audited, struct fail *f)
{
    RETURN_IF_NOT_OK(check(out->temporary, out->path, options, audited, f));
    return output_commit(out, f);
}
