/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs calibrate: parses the options, shows progress and prints the report. The work is in checkpoint/. */
#include "commands.h"
#include "files/text.h"
#include "program.h"
#include "schemes.h"

struct calibrate_options {
    struct machine_options machine;
    qobs_checkpoint_calibrate_args args;
    struct table_run run;
};

#define AT(member) offsetof(struct calibrate_options, member)
static const struct option_row rows[] = {
    SCHEME_ROW,
    CONFIG_ROW,
    RECIPE_ROW,
    ACTIVATIONS_ROW(
        "in any form of MODEL, or a directory of batches that python -m libqobs.record has written; may be repeated, "
        "batches in that order. Tensors: <module>.input, <module>.output, "
        "<attention>.k_states, .v_states, .q_states. If a module's input is missing, that of a fused module is used "
        "(q_proj, k_proj, v_proj; gate_proj, up_proj). Recorded k and v get e4m3 scales, one for each tensor"),
    STATES_ROW,
    FILL_ROW("refuse (default): they are left out; max, median: the largest or median scale of their layer's others"),
    IMPORTANCE_ROW("for presets that support it (llmc.imatrix_mse, qobs.imatrix_optimal, qobs.local_hessian): an "
                   "imatrix file of llama.cpp (GGUF, .dat, .imatrix; not for qobs.local_hessian), or recorded "
                   "activations, where <module>.input is found in the same way. May be repeated"),
    LIST_ROW("preset", "[BASE=]NAME", args.presets, args.preset_count, "the observer (qobs info lists them)",
             "for the weights (default llmc.memoryless_minmax) or for one of the bases input, output, q, k, v, kv "
             "(default llmc.static_minmax); BASE=none: no observer"),
    LIST_ROW("set", "[BASE.]KEY=VALUE", args.settings, args.setting_count, "a setting of that observer",
             "overrides the scheme: group_size=64, kv.strategy=attn_head, input.averaging_constant=0.1. Outputs and q "
             "are calibrated if an option names them"),
    TARGETS_ROW("modules to calibrate"),
    IGNORE_ROW("modules to leave out"),
    ARCHITECTURES_ROW,
    OUT_ROW("FILE", args.out, "the output", "it appears when it is complete"),
    REPORT_ROW,
    TABLE_ROW(run.table),
    FLAG_ROW("quiet", run.quiet, "print no table", NULL),
    ISA_ROW,
    THREADS_ROW,
};

/* ---- Run --------------------------------------------------------------------------------------------------------- */

static int check_arguments(const struct calibrate_options *o, int count)
{
    if (count != 1)
        return print_error(EXIT_USAGE, "calibrate: expected one model, got %d (see qobs calibrate -h)", count);
    if (!o->args.out)
        return print_error(EXIT_USAGE, "calibrate: -o OUT.safetensors is missing");
    if (!o->args.scheme && !o->args.config && !o->args.recipe)
        return print_missing_scheme("--scheme");
    return table_run_check(&o->run);
}

static int print_calibrate_error(const struct calibrate_options *o, const qobs_error *error)
{
    const struct scheme_words words = {.command = "calibrate",
                                       .scheme = o->args.scheme,
                                       .presets = o->args.presets,
                                       .preset_count = o->args.preset_count,
                                       .settings = o->args.settings,
                                       .setting_count = o->args.setting_count};
    return print_member_error(
        &words, "scheme config recipe targets ignore preset setting states activations importance", error);
}

static int run(void *options, int count, char **models, struct threads *threads)
{
    struct calibrate_options *o = options;
    RELEASED_BY(report_close) struct report_file report = {0};
    OWNED char *text = NULL;
    qobs_error error;
    o->run.out = o->args.out;
    RETURN_IF_NOT_OK(check_arguments(o, count));
    RETURN_IF_NOT_OK(check_model(models[0]));
    RETURN_IF_NOT_OK(report_open(&report, o->run.report));
    o->args.struct_size = sizeof o->args;
    o->args.model = models[0];
    o->args.runtime = &threads->runtime;
    o->args.progress = table_run_progress;
    o->args.context = &o->run;
    o->args.report = &text;
    const int status = qobs_checkpoint_calibrate(&o->args, &error);
    progress_stop(&o->run.progress);
    return status == QOBS_OK        ? table_run_finish(&o->run, &report, text, calibrate_print, calibrate_warn)
           : o->run.code != EXIT_OK ? o->run.code
                                    : print_calibrate_error(o, &error);
}

const struct command command_calibrate = {
    .name = "calibrate",
    .run = run,
    .size = sizeof(struct calibrate_options),
    .threaded = true,
    .summary = "scales and zero points for the weights of a checkpoint",
    .usage = "MODEL --scheme NAME -o OUT.safetensors [OPTION]...",
    .description =
        "Observes the weights of a checkpoint and writes <module>.weight_scale for each (and .weight_zero_point, "
        ".weight_global_scale). From recorded activations it also writes <module>.input_scale (.input_zero_point, "
        ".input_global_scale) and <attention>.k_scale and .v_scale. MODEL is .safetensors, "
        "*.safetensors.index.json or a directory with one of them.\n"
        "If the scheme needs scales that nothing was recorded for, a warning names them and the exit status is 3.",
    OPTION_ROWS(rows),
    .example = "qobs calibrate model.safetensors --scheme W4A16 -o scales.safetensors",
    .print_more = print_schemes};
