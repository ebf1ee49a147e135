/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_checkpoint_audit: the audit; against an original also another run with the settings that the output tells. */
#include <stdio.h>
#include <string.h>

#include "api/attest.h"
#include "api/compare.h"
#include "audit/mend.h"
#include "files/json.h"
#include "files/mapped.h"
#include "files/text.h"
#include "schemes/dialects.h"

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

/* The result: the options of the attempt that gave the bytes, or why the first one did not. */
struct reproduction {
    bool tried;        /* a run reached bytes that could be compared */
    const char *found; /* NULL: none gave them */
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
            r->found = attempts[i].options;
        if (status == QOBS_ERROR_OUT_OF_MEMORY || status == QOBS_ERROR_SYSTEM)
            return report_failure(f, status, "%s", why.message);
        r->tried |= status == QOBS_OK || status == QOBS_ERROR_FINDINGS;
        if (i == 0)
            r->why = why;
    }
    return QOBS_OK;
}

/* ---- Other dialects ---------------------------------------------------------------------------------------------- */

/* Returns the dialect of the checkpoint; NULL: quantize writes none like it. */
static const struct dialect_row *dialect_of(const struct audit *audit)
{
    if (audit->config.group_count != 1 || audit->maker)
        return audit->maker && strcmp(audit->maker, "Model-Optimizer") == 0 ? dialect_of_algorithms() : NULL;
    for (size_t i = 0; dialect_at(i); i++)
        for (const struct dialect_form *form = dialect_at(i)->forms; form->scheme; form++)
            if (form->stored == audit->config.groups->format)
                return dialect_at(i);
    return NULL;
}

/* Adds the modules that the configuration excludes. */
static int read_excluded(struct quant_config *excluded, const json_object *config, const struct dialect_row *d,
                         struct fail *f)
{
    json_each(item, json_get(config, d->config.excluded))
    {
        const bool is_pattern = d->config.patterns && item.key && strncmp(item.key, "-:", 2) == 0;
        OWNED char *name = is_pattern ? text_format("re:%s", item.key + 2) : NULL;
        if (is_pattern && !name)
            return NO_MEMORY(f, "the layers");
        if (is_pattern || json_is_string(item.value))
            RETURN_IF_NOT_OK(quant_config_add_ignore(excluded, name ? name : json_text(item.value), f));
    }
    return QOBS_OK;
}

/* Compares with a run by a scheme and its own observers. NULL: by a conversion. */
static int compare_dialect(const struct audit *audit, const struct dialect_row *d, const char *scheme,
                           const struct quant_config *excluded, struct fail *f)
{
    const json_object *config = json_get(audit->model.config, "quantization_config");
    const double size = json_number_of(config, "group_size", -1);
    char bits[40], group[40] = "strategy=channel";
    snprintf(bits, sizeof bits, "num_bits=%.0f", json_number_of(config, "bits", 4));
    if (size > 0)
        snprintf(group, sizeof group, "group_size=%.0f", size);
    const qobs_checkpoint_quantize_args args = {.struct_size = sizeof args,
                                                .model = audit->args->against,
                                                .out = audit->args->checkpoint,
                                                .scheme = scheme,
                                                .ignore = (const char *const *)excluded->ignore,
                                                .ignore_count = scheme ? excluded->ignore_count : 0,
                                                .settings = (const char *const[]){bits, group},
                                                .setting_count = scheme && d->config.bits ? 2 : 0,
                                                .keep_findings = true,
                                                .allow_mixed_sets = true,
                                                .runtime = audit->args->runtime,
                                                .architectures = audit->args->architectures,
                                                .dialect = d->name,
                                                .keep_numbers = !scheme};
    return quantize_compare(&args, f);
}

/* The configuration of another dialect names no observers: other bytes than those of a scheme's own say nothing. */
static int try_dialect(const struct audit *audit, const struct dialect_row *d, struct reproduction *r, struct fail *f)
{
    static const char *const integers[] = {"W4A16", "W4A16_ASYM"};
    static const char *const options[] = {" --scheme W4A16", " --scheme W4A16_ASYM"};
    RELEASED_BY(quant_config_free) struct quant_config excluded = {0};
    RETURN_IF_NOT_OK(read_excluded(&excluded, json_get(audit->model.config, "quantization_config"), d, f));
    for (int i = -1; !r->found && i < (d->config.bits ? 2 : 1); i++) {
        struct fail why = {.message = ""};
        const char *scheme = i < 0 ? NULL : d->config.bits ? integers[i] : audit->config.groups->name;
        const int status = compare_dialect(audit, d, scheme, &excluded, &why);
        if (status == QOBS_OK)
            r->found = i < 0 ? " convert" : d->config.bits ? options[i] : "";
        if (status == QOBS_ERROR_OUT_OF_MEMORY || status == QOBS_ERROR_SYSTEM)
            return report_failure(f, status, "%s", why.message);
    }
    r->tried = r->found != NULL;
    return QOBS_OK;
}

/* ---- Report ------------------------------------------------------------------------------------------------------ */

static int reproduce(const struct audit *audit, struct reproduction *r, struct fail *f)
{
    const json_object *config = json_get(audit->model.config, "quantization_config");
    if (strcmp(json_text_of(config, "quant_method"), "compressed-tensors") != 0) {
        const struct dialect_row *d = config ? dialect_of(audit) : NULL;
        fail(&r->why, "%s does not tell the observers of the weights",
             audit->gguf.file.file_count > 0 ? "a GGUF file" : "the configuration");
        return d ? try_dialect(audit, d, r, f) : QOBS_OK;
    }
    OWNED char *path = path_join(audit->model.tree.root, audit->model.config_path);
    return path ? try_all(audit, path, r, f) : NO_MEMORY(f, "a path");
}

/* "reproduced" is null if nothing could be compared. */
static void add_reproduction(json_object *report, const struct reproduction *r)
{
    json_put(report, "reproduced", r->tried ? json_object_new_boolean(r->found != NULL) : NULL);
    if (r->found)
        json_put_text(report, "reproduced_options", r->found);
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
