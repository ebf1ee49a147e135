/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs plan: parses the options, shows progress and prints the tables. The work is in checkpoint/. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "files/text.h"
#include "plan/plan_table.h"
#include "program.h"
#include "schemes.h"

struct plan_options {
    struct machine_options machine;
    qobs_checkpoint_plan_args args;
    const char *schemes;
    struct table_run run;
};

#define AT(member) offsetof(struct plan_options, member)
static const struct option_row rows[] = {
    TEXT_ROW("schemes", "NAME,...", schemes, "the schemes to compare, such as W4A16,W8A16",
             "separated by commas, from the list below, in any case"),
    LIST_ROW("states", "DIR", args.states, args.state_count, "saved observers with importance and sensitivity",
             "libqobs.calibration(..., sensitivity=True) of the Python package saves them; several directories are "
             "merged. Without sensitivity the tables have errors and no KL divergence"),
    IMPORTANCE_ROW("as for quantize, beside that in states"),
    TEXT_ROW("preset", "NAME", args.preset, "observer of the weights", "as for quantize"),
    LIST_ROW("set", "[SCHEME.]KEY=VALUE", args.settings, args.setting_count, "a setting of the schemes or of one",
             "as for quantize; W4A16.group_size=64 is of W4A16 alone; may be repeated"),
    NUMBER_ROW("budget", "BITS", args.budget, "mix schemes in so many bits an element",
               "scales included; the mixture with the smallest KL divergence"),
    NUMBER_ROW("max-kl", "NATS", args.max_kl, "mix schemes up to this KL divergence a token",
               "the mixture with the fewest bytes"),
    TARGETS_ROW("modules to quantize"),
    IGNORE_ROW("modules to leave as they are"),
    ARCHITECTURES_ROW,
    OUT_ROW("RECIPE", args.out, "write the mixture as a recipe",
            "for qobs quantize --recipe; with a --preset that searches, with the same states or importance"),
    REPORT_ROW,
    FLAG_ROW("table", run.table, "list all layers, not the ten that cost most", NULL),
    FLAG_ROW("quiet", run.quiet, "print no table", NULL),
    ISA_ROW,
    THREADS_ROW,
};

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static int check_arguments(const struct plan_options *o, int count)
{
    if (count != 1)
        return print_error(EXIT_USAGE, "plan: expected one model, got %d (see qobs plan -h)", count);
    if (!o->schemes || !*o->schemes)
        return print_missing_scheme("--schemes");
    return table_run_check(&o->run);
}

/* Cuts the names at commas. *text and *names are to be freed. */
static int split_schemes(struct plan_options *o, char **text, const char ***names)
{
    size_t count = 1;
    for (const char *at = o->schemes; *at; at++)
        count += *at == ',';
    *text = strdup(o->schemes);
    *names = calloc(count, sizeof **names);
    if (!*text || !*names)
        return print_error(EXIT_SYSTEM, "no memory for the schemes");
    char *at = *text;
    for (size_t i = 0; i < count; i++) {
        (*names)[i] = at;
        at += strcspn(at, ",");
        *at++ = '\0';
    }
    o->args.schemes = *names;
    o->args.scheme_count = count;
    return EXIT_OK;
}

/* ---- Run --------------------------------------------------------------------------------------------------------- */

static int print_plan_error(const struct plan_options *o, const qobs_error *error)
{
    const struct scheme_words words = {.command = "plan",
                                       .presets = &o->args.preset,
                                       .preset_count = o->args.preset != NULL,
                                       .settings = o->args.settings,
                                       .setting_count = o->args.setting_count};
    return print_member_error(&words, "schemes budget max_kl targets ignore preset setting states importance", error);
}

static int run(void *options, int count, char **models, struct threads *threads)
{
    struct plan_options *o = options;
    RELEASED_BY(report_close) struct report_file report = {0};
    OWNED char *schemes = NULL, *text = NULL;
    OWNED const char **names = NULL;
    qobs_error error;
    o->run.out = o->args.out;
    RETURN_IF_NOT_OK(check_arguments(o, count));
    RETURN_IF_NOT_OK(check_model(models[0]));
    RETURN_IF_NOT_OK(split_schemes(o, &schemes, &names));
    RETURN_IF_NOT_OK(report_open(&report, o->run.report));
    o->args.struct_size = sizeof o->args;
    o->args.model = models[0];
    o->args.runtime = &threads->runtime;
    o->args.progress = table_run_progress;
    o->args.context = &o->run;
    o->args.report = &text;
    const int status = qobs_checkpoint_plan(&o->args, &error);
    progress_stop(&o->run.progress);
    return status == QOBS_OK        ? table_run_finish(&o->run, &report, text, plan_print, plan_warn)
           : o->run.code != EXIT_OK ? o->run.code
                                    : print_plan_error(o, &error);
}

const struct command command_plan = {
    .name = "plan",
    .run = run,
    .size = sizeof(struct plan_options),
    .threaded = true,
    .summary = "what schemes will cost a model, and the best mixture",
    .usage = "MODEL --schemes NAME,... --states DIR [OPTION]...",
    .description =
        "Tells the size of a model under each scheme, and the KL divergence of its next token to that of the "
        "unquantized model, in nats a token, before anything is written. It is that of the weights' errors to second "
        "order; quantized activations are not in it. With --budget or --max-kl it mixes the schemes, layers that vLLM "
        "runs as one matrix together.\n"
        "If the states lack sensitivity, a warning says so and the exit status is 3.",
    OPTION_ROWS(rows),
    .example = "qobs plan model --schemes W3A16,W4A16,W8A16 --budget 4.5 -o recipe.yaml",
    .print_more = print_schemes};
