/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs audit: parses the options and prints the findings. The work is in checkpoint/. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "files/json.h"
#include "files/text.h"
#include "names.h"
#include "program.h"
#include "qobs/checkpoint.h"
#include "schemes.h"

enum { AUDIT_WORST = 10 };

struct audit_options {
    struct machine_options machine;
    qobs_checkpoint_audit_args args;
    bool json, table, fix;
};

#define AT(member) offsetof(struct audit_options, member)
static const struct option_row rows[] = {
    TEXT_ROW("against", "MODEL_DIR", args.against, "the model before it was quantized",
             "prints the error of each layer, the largest first, and whether quantize makes the same files; a GGUF "
             "file for a GGUF file"),
    TEXT_ROW("attest", "FILE", args.attest, "a statement of in-toto about the files, for --against",
             "has their SHA-256, those of the model before it was quantized, and the results"),
    FLAG_ROW(
        "fix", fix, "mends in DIR what needs no original, for --out",
        "names of tensors of another dialect, entries that ignore lacks or has too many, global scales that differ "
        "within what vLLM runs as one matrix, input scales that other experts have; names what is mended, and then "
        "what is left, which makes the exit status 3"),
    OUT_ROW("DIR", args.out, "a new directory for what --fix mends", "is not written if nothing can be mended"),
    ARCHITECTURES_ROW,
    JSON_ROW("the report", NULL),
    TABLE_ROW(table),
    ISA_ROW,
    THREADS_ROW,
};

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

/* One that is not finite is null and the largest; a layer that was not compared has none. */
static double error_of(const json_object *layer)
{
    return json_number_of(layer, "relative_error", json_has(layer, "relative_error") ? (double)INFINITY : -1);
}

static int print_layers(const json_object *layers, bool all)
{
    OWNED struct ranked *sorted = rank(layers, "name", error_of);
    const size_t n = json_count(layers);
    size_t compared = 0;
    if (!sorted)
        return print_error(EXIT_SYSTEM, "no memory for the table");
    while (compared < n && sorted[compared].badness >= 0)
        compared++;
    if (compared == 0)
        return EXIT_OK;
    const size_t shown = all || compared < AUDIT_WORST ? compared : AUDIT_WORST;
    const int width = fit_ranked(sorted, shown, 18, all);
    printf("error of weights  layer\n");
    for (size_t i = 0; i < shown; i++) {
        char name[MAX_NAME + 1];
        clean_name(sorted[i].name, width, name);
        if (isinf(sorted[i].badness))
            printf("%16s  %s\n", "not finite", name);
        else
            printf("%14.3f %%  %s\n", 100 * sorted[i].badness, name);
    }
    if (shown < compared)
        printf("... %zu more layers; --table lists all\n", compared - shown);
    explain_error_of_weights();
    return EXIT_OK;
}

static void print_nearest(const json_object *report)
{
    if (json_has(report, "codes_compared"))
        printf("codes that are not nearest: %.0f of %.0f\n", json_number_of(report, "codes_not_nearest", 0),
               json_number_of(report, "codes_compared", 0));
}

/* Says whether quantize makes the same files of the original. */
static void print_reproduced(const json_object *report)
{
    char why[1024];
    if (!json_has(report, "reproduced"))
        return;
    const json_object *reproduced = json_get(report, "reproduced");
    const bool yes = json_is_true(reproduced);
    snprintf(why, sizeof why, "%s", json_text_of(report, yes ? "reproduced_options" : "reproduced_why"));
    make_printable(why);
    if (yes)
        printf("reproduced: yes%s%s\n", *why ? ", with" : "", why);
    else
        printf("reproduced: %s: %s\n", reproduced ? "no" : "unknown", why);
}

static void print_mended(const json_object *mended)
{
    json_each(item, mended)
    {
        char line[2048];
        snprintf(line, sizeof line, "mended: %s: %s", json_text_of(item.value, "module"),
                 json_text_of(item.value, "mend"));
        make_printable(line);
        printf("%s\n", line);
    }
}

static int print_report(const char *report, bool all)
{
    OWNED_JSON json_object *json = NULL;
    if (json_parse(&json, "audit", "report", report, strlen(report), NULL) != 0)
        return print_error(EXIT_SYSTEM, "no memory for the table");
    const json_object *layers = json_get(json, "layers");
    const json_object *findings = json_get(json, "findings");
    print_mended(json_get(json, "mended"));
    printf("%zu quantized layers, %zu findings\n", json_count(layers), json_count(findings));
    json_each(item, findings)
    {
        char line[2048];
        const char *module = json_text_of(item.value, "module");
        snprintf(line, sizeof line, "%s%s%s", module, *module ? ": " : "", json_text_of(item.value, "finding"));
        make_printable(line);
        printf("%s\n", line);
    }
    json_each(item, json_get(json, "notes"))
    {
        char line[2048];
        snprintf(line, sizeof line, "note: %s", json_text(item.value));
        make_printable(line);
        printf("%s\n", line);
    }
    const int code = print_layers(layers, all);
    print_nearest(json);
    print_reproduced(json);
    return code;
}

/* ---- Run --------------------------------------------------------------------------------------------------------- */

static int run(void *options, int count, char **directories, struct threads *threads)
{
    struct audit_options *o = options;
    qobs_error error;
    OWNED char *report = NULL;
    size_t findings = 0;
    if (count != 1)
        return print_error(EXIT_USAGE, "audit: expected one directory or file, got %d (see qobs audit -h)", count);
    if (o->fix != (o->args.out != NULL))
        return print_error(EXIT_USAGE,
                           o->fix ? "audit: --fix needs -o DIR, a new directory" : "audit: --out is for --fix");
    o->args.struct_size = sizeof o->args;
    o->args.checkpoint = directories[0];
    o->args.runtime = &threads->runtime;
    o->args.report = &report;
    o->args.findings = &findings;
    warn_of_table(o->table, o->json);
    const int status = qobs_checkpoint_audit(&o->args, &error);
    int code = status == QOBS_OK ? EXIT_OK : print_error(exit_code_of(status), "%s", error.message);
    if (report && o->json)
        puts(report);
    else if (report)
        code = print_report(report, o->table);
    else if (code == EXIT_OK)
        code = print_error(EXIT_SYSTEM, "no memory for the report");
    return code == EXIT_OK && findings > 0 ? EXIT_INCOMPLETE : code;
}

const struct command command_audit = {
    .name = "audit",
    .run = run,
    .size = sizeof(struct audit_options),
    .threaded = true,
    .summary = "what is wrong with a quantized model, and the error of its layers",
    .usage = "DIR [OPTION]...\n"
             "FILE.gguf [OPTION]...",
    .description =
        "Checks a quantized checkpoint of anybody in the format of compressed-tensors, of Model-Optimizer (FP8, "
        "NVFP4), of Quark (FP8, MXFP4), or in words of AWQ and GPTQ: tensors that are missing, unknown or do not fit "
        "the configuration, "
        "scales that are no scales, "
        "schemes and global scales that differ within what vLLM runs as one matrix, modules and tied heads that are "
        "claimed but not quantized, experts that are quantized in part, sizes that config.json contradicts, codes and "
        "scales that do not vary, codes that use less than half of their range, and typing errors in names. With "
        "--against it finds errors that are not finite, or not below "
        "those of zeros, counts codes that are not the nearest, and says whether quantize makes the same files.\n"
        "In a GGUF file it checks scales and numbers that are not finite, types that general.file_type does not give, "
        "and layers, experts, embeddings and tokens that keys count otherwise. With --against it finds tensors that "
        "are missing, and tensors of the original's type whose bytes differ.\n"
        "Exit status: 0 nothing found, 3 something found, 1 system failure, 2 wrong options or input.",
    OPTION_ROWS(rows),
    .example = "qobs audit model-W4A16 --against model"};
