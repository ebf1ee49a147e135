/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs quantize: shows progress and prints the summary. The work is in checkpoint/. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "outputs.h"
#include "parts/parts.h"
#include "program.h"
#include "quantize_options.h"
#include "quantize_summary.h"
#include "report_file.h"

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

/* The signal that asks to stop; 0: none. */
static volatile sig_atomic_t stop_signal;

static void request_stop(int signal_number) { stop_signal = signal_number; }

/* Lets the run end in order, so that it removes its directory. Signals that were ignored stay ignored. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = request_stop}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < OUTPUT_SIGNALS; i++)
        if (output_signals[i] != SIGABRT && sigaction(output_signals[i], NULL, &before) == 0 &&
            before.sa_handler != SIG_IGN)
            sigaction(output_signals[i], &action, NULL);
}

/* Ends the program by the signal that was caught. */
static void end_by_signal(void)
{
    signal(stop_signal, SIG_DFL);
    raise(stop_signal);
}

/* ---- Run --------------------------------------------------------------------------------------------------------- */

static int show_progress(void *context, const qobs_progress *progress)
{
    struct quantize_options *o = context;
    if (o->shown == 0)
        progress_start(&o->progress, progress->bytes_total);
    progress_add(&o->progress, progress->bytes_done - o->shown);
    o->shown = progress->bytes_done;
    return stop_signal != 0;
}

/* The report is no part of the model, of the output, and no other input. */
static int check_report(const struct quantize_options *o)
{
    const struct output_option report = {"--json", o->report, true};
    const qobs_checkpoint_quantize_args *a = &o->args;
    const struct option_list *const lists[] = {&o->activations, &o->states, &o->importance};
    struct stat status;
    const char *slash = a->model ? strrchr(a->model, '/') : NULL;
    const bool file = a->model && stat(a->model, &status) == 0 && S_ISREG(status.st_mode);
    char *model = !file ? NULL : slash ? join(a->model, (size_t)(slash - a->model) + 1, "") : join(".", 1, "");
    char *parts = parts_directory(o->finish ? o->finish : a->out);
    int code = check_outputs(&report, 1);
    const char *const directories[] = {file ? model : a->model, a->out, o->finish, parts}, *const files[] = {a->config,
                                                                                                             a->recipe};
    for (size_t i = 0; code == EXIT_OK && i < sizeof directories / sizeof *directories; i++)
        code = check_output_apart(&report, directories[i], true);
    for (size_t i = 0; code == EXIT_OK && i < sizeof files / sizeof *files; i++)
        code = check_output_apart(&report, files[i], false);
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (size_t i = 0; code == EXIT_OK && i < lists[k]->count; i++)
            code = check_output_apart(&report, lists[k]->items[i], false);
    free(model);
    free(parts);
    return code;
}

static int exit_code_of(int status)
{
    return status == QOBS_OK                                                   ? EXIT_OK
           : status == QOBS_ERROR_FINDINGS                                     ? EXIT_INCOMPLETE
           : status == QOBS_ERROR_SYSTEM || status == QOBS_ERROR_OUT_OF_MEMORY ? EXIT_SYSTEM
                                                                               : EXIT_USAGE;
}

static int run(struct quantize_options *o, struct threads *threads)
{
    struct report_file report = {0};
    qobs_error error;
    char *text = NULL;
    const bool to_stdout = o->report && strcmp(o->report, "-") == 0;
    if (o->isa && qobs_isa_select(o->isa, &error) != QOBS_OK)
        return print_status_error(&error, "--isa");
    int code = o->finish ? EXIT_OK : check_model(o->args.model);
    if (code == EXIT_OK)
        code = check_report(o);
    if (code == EXIT_OK)
        code = report_open(&report, o->report);
    if (code != EXIT_OK)
        return code;
    o->args.runtime = &threads->runtime;
    o->args.progress = show_progress;
    o->args.context = o;
    o->args.report = &text;
    const double start = seconds_now();
    const qobs_checkpoint_finish_args finish = {.struct_size = sizeof finish,
                                                .out = o->finish,
                                                .replace = o->args.replace,
                                                .keep_findings = o->args.keep_findings,
                                                .report = &text};
    const int status = o->finish ? qobs_checkpoint_finish(&finish, &error) : qobs_checkpoint_quantize(&o->args, &error);
    progress_stop(&o->progress);
    code = exit_code_of(status);
    if (status == QOBS_ERROR_FINDINGS)
        quantize_print_findings(text);
    if (status == QOBS_ERROR_CANCELLED)
        code = EXIT_SYSTEM;
    else if (status != QOBS_OK)
        code = quantize_print_error(o, &error, code);
    else if (!text)
        code = print_error(EXIT_SYSTEM, "no memory for the report");
    if (code == EXIT_OK && o->report)
        code = report_write(&report, text);
    if (code == EXIT_OK)
        code = report_publish(&report, text);
    if (code == EXIT_OK)
        code = quantize_summary(text, o->finish ? 0 : seconds_now() - start, o->table, o->quiet || to_stdout);
    report_close(&report);
    o->args.report = NULL;
    free(text);
    return code;
}

int quantize_run(int argc, char **argv)
{
    struct quantize_options o = {0};
    struct threads threads = {0};
    bool done;
    int code = quantize_options_parse(&o, argc, argv, &done);
    if (code == EXIT_OK && !done) {
        catch_signals();
        code = threads_start(&threads, o.threads);
        if (code == EXIT_OK)
            code = run(&o, &threads);
        threads_stop(&threads);
    }
    quantize_options_free(&o);
    if (stop_signal)
        end_by_signal();
    return code;
}
