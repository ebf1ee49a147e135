/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_checkpoint_audit: the audit; against an original also another run with the settings that the output tells. */
#include <string.h>

#include "api/attest.h"
#include "api/compare.h"
#include "audit/mend.h"
#include "files/json.h"
#include "files/mapped.h"
#include "files/text.h"

/* ---- Reproduction ------------------------------------------------------------------------------------------------ */

/* config.json has the scheme of each layer, observers and what is ignored. It does not have these. */
struct attempt {
    const char *options;
    qobs_compat compat;
    qobs_draft draft;
    bool split_experts;
};

static const struct attempt attempts[] = {
    {"", QOBS_COMPAT_VLLM, QOBS_DRAFT_AS_LOADED, false},
    {" --draft quantize", QOBS_COMPAT_VLLM, QOBS_DRAFT_QUANTIZE, false},
    {" --split-experts", QOBS_COMPAT_VLLM, QOBS_DRAFT_AS_LOADED, true},
    {" --compat llm-compressor", QOBS_COMPAT_LLM_COMPRESSOR, QOBS_DRAFT_AS_LOADED, false},
    {" --compat next", QOBS_COMPAT_NEXT, QOBS_DRAFT_AS_LOADED, false},
};

/* The result: the attempt that gave the bytes, or why the first one did not. */
struct reproduction {
    bool tried; /* a run reached bytes that could be compared */
    const struct attempt *found;
    struct fail why;
};

static int compare(const struct audit *audit, const char *config, const struct attempt *attempt, struct fail *f)
{
    const qobs_checkpoint_quantize_args args = {.struct_size = sizeof args,
                                                .model = audit->args->against,
                                                .out = audit->args->checkpoint,
                                                .config = config,
                                                .split_experts = attempt->split_experts,
                                                .compat = attempt->compat,
                                                .keep_findings = true,
                                                .allow_mixed_sets = true,
                                                .runtime = audit->args->runtime,
                                                .architectures = audit->args->architectures,
                                                .draft = attempt->draft};
    return quantize_compare(&args, f);
}

static int try_all(const struct audit *audit, const char *config, struct reproduction *r, struct fail *f)
{
    for (size_t i = 0; !r->found && i < sizeof attempts / sizeof *attempts; i++) {
        struct fail why = {.message = ""};
        const int status = compare(audit, config, &attempts[i], &why);
        if (status == QOBS_OK)
            r->found = &attempts[i];
        if (status == QOBS_ERROR_OUT_OF_MEMORY || status == QOBS_ERROR_SYSTEM)
            return report_failure(f, status, "%s", why.message);
        r->tried |= status == QOBS_OK || status == QOBS_ERROR_FINDINGS;
        if (i == 0)
            r->why = why;
    }
    return QOBS_OK;
}

static int reproduce(const struct audit *audit, struct reproduction *r, struct fail *f)
{
    const json_object *config = json_get(audit->model.config, "quantization_config");
    if (strcmp(json_text_of(config, "quant_method"), "compressed-tensors") != 0) {
        fail(&r->why, "%s does not tell the observers of the weights",
             audit->gguf.file.file_count > 0 ? "a GGUF file" : "the configuration");
        return QOBS_OK;
    }
    OWNED char *path = path_join(audit->model.tree.root, audit->model.config_path);
    return path ? try_all(audit, path, r, f) : NO_MEMORY(f, "a path");
}

/* "reproduced" is null if nothing could be compared. */
static void add_reproduction(json_object *report, const struct reproduction *r)
{
    json_put(report, "reproduced", r->tried ? json_object_new_boolean(r->found != NULL) : NULL);
    if (r->found)
        json_put_text(report, "reproduced_options", r->found->options);
    else
        json_put_text(report, "reproduced_why", r->why.message);
}

/* ---- Audit ------------------------------------------------------------------------------------------------------- */

/* Makes the report, to be freed with free(), and the statement. */
static int make_report(const struct audit *audit, struct fail *f)
{
    struct reproduction r = {0};
    if (audit->args->against)
        RETURN_IF_NOT_OK(reproduce(audit, &r, f));
    OWNED_JSON json_object *report = audit_report(audit);
    if (!report)
        return NO_MEMORY(f, "the report");
    if (audit->args->against)
        add_reproduction(report, &r);
    if (audit->args->attest)
        RETURN_IF_NOT_OK(attest(audit, report, audit->args->attest, f));
    if (audit->args->report)
        *audit->args->report = json_print(report, JSON_INDENTED);
    return !audit->args->report || *audit->args->report ? QOBS_OK : NO_MEMORY(f, "the report");
}

/* ---- Mending ----------------------------------------------------------------------------------------------------- */

static bool add_mended(json_object *report, const struct findings *made, const char *checkpoint)
{
    json_object *list = json_put_array(report, "mended");
    bool good = list && json_put_text(report, "checkpoint", checkpoint);
    for (size_t i = 0; good && i < made->count; i++) {
        json_object *item = json_object_new_object();
        good = json_put_text(item, "module", made->items[i].module) && json_put_text(item, "mend", made->items[i].text);
        good = json_append(list, item) && good;
    }
    return good;
}

/* Audits the new directory, and tells of it. */
static int audit_mended(const qobs_checkpoint_audit_args *given, const char *staging, const struct findings *made,
                        struct fail *f)
{
    const qobs_checkpoint_audit_args args = {.struct_size = sizeof args,
                                             .checkpoint = staging,
                                             .runtime = given->runtime,
                                             .architectures = given->architectures};
    struct audit audit = {.args = &args, .lock = PTHREAD_MUTEX_INITIALIZER};
    int status = audit_run(&audit, f);
    OWNED_JSON json_object *report = status == QOBS_OK ? audit_report(&audit) : NULL;
    if (status == QOBS_OK && (!report || !add_mended(report, made, given->out)))
        status = NO_MEMORY(f, "the report");
    if (status == QOBS_OK && given->report && !(*given->report = json_print(report, JSON_INDENTED)))
        status = NO_MEMORY(f, "the report");
    if (status == QOBS_OK && given->findings)
        *given->findings = audit.findings.count;
    audit_free(&audit);
    return status;
}

static int write_mended(const struct mends *mends, const struct audit *audit, struct fail *f)
{
    struct output_directory out = {0};
    const char *path = audit->args->out;
    RETURN_IF_NOT_OK(argument_failure("out", output_directory_open(&out, path, audit->model.tree.root, false, f), f));
    int status = mends_write(mends, audit, &out, f);
    if (status == QOBS_OK)
        status = audit_mended(audit->args, out.staging, &mends->made, f);
    if (status == QOBS_OK)
        status = output_directory_commit(&out, f);
    output_directory_abort(&out);
    return status;
}

/* *written: there is a new directory, of which the report tells. */
static int mend(struct audit *audit, bool *written, struct fail *f)
{
    RELEASED_BY(mends_free) struct mends mends = {0};
    RETURN_IF_NOT_OK(mends_find(&mends, audit, f));
    *written = mends.made.count > 0;
    return *written ? write_mended(&mends, audit, f) : QOBS_OK;
}

static int check_args(const qobs_checkpoint_audit_args *args, struct fail *f)
{
    RETURN_IF_NOT_OK(CHECK_STRUCT(args, f));
    if (!args->checkpoint)
        return INVALID(f, "checkpoint: is NULL");
    if (args->attest && !args->against)
        return INVALID(f, "attest: needs against, the model before it was quantized");
    if (args->out && (args->against || is_gguf_file(args->checkpoint)))
        return INVALID(f, "out: is not for %s",
                       args->against ? "against: nothing of the original is needed to mend" : "GGUF files");
    if (args->out)
        RETURN_IF_NOT_OK(argument_failure("out", output_directory_check(args->out, args->checkpoint, false, f), f));
    return check_runtime(args->runtime, f);
}

int qobs_checkpoint_audit(const qobs_checkpoint_audit_args *args, qobs_error *error)
{
    RELEASED_BY(mapped_files_end) struct mapped_files files;
    mapped_files_begin(&files);
    struct audit audit = {.args = args, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct fail f = {.message = ""};
    int status = check_args(args, &f);
    if (status == QOBS_OK)
        status = mapped_cause(audit_run(&audit, &f), &f);
    bool mended = false;
    if (status == QOBS_OK && args->out)
        status = mapped_cause(mend(&audit, &mended, &f), &f);
    if (status == QOBS_OK && !mended && (args->report || args->attest))
        status = make_report(&audit, &f);
    if (status == QOBS_OK && !mended && args->findings)
        *args->findings = audit.findings.count;
    audit_free(&audit);
    return give_error(error, status, &f);
}
