/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Shared by quantize, calibrate and plan: schemes, suggestions, progress, reports. */
#ifndef QOBS_TOOLS_SCHEMES_H
#define QOBS_TOOLS_SCHEMES_H

#include <stdbool.h>
#include <stddef.h>

#include "files/json.h"
#include "outputs.h"
#include "progress.h"
#include "qobs/checkpoint.h"

/* Prints the end of --help: every scheme with a line about it. */
void print_schemes(void);

/* Says that no scheme is given, with the list of known ones. Returns an exit code. */
int print_missing_scheme(const char *option);

/* The words of a command line that an error may call unknown. */
struct scheme_words {
    const char *command, *scheme;
    const char *const *presets, *const *settings; /* "[BASE=]NAME", "[BASE.]KEY=VALUE" */
    size_t preset_count, setting_count;
};

/* Prints the error, with the option in place of the member of the arguments that its message begins with, if that is
 * one of `members`. Returns an exit code. */
int print_member_error(const struct scheme_words *words, const char *members, const qobs_error *error);

/* Prints the warnings of a report, with options in place of members. */
void print_warnings(const json_object *report);

/* Prints what the column "error of weights" of a table is. */
void explain_error_of_weights(void);

/* Prints by how much an object of a layer, such as `rounding`, has changed its error. */
void print_change(const json_object *search);

/* Prints what the column of rounding is, if a layer has one. */
void explain_rounding(const json_object *layers);

/* Prints as warnings what nothing has used, with the option in place of the member. Returns false if there is any. */
bool print_unused(const json_object *report);

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

/* The options of quantize, calibrate and plan beside the arguments of the library, and the state of a run. */
struct table_run {
    const char *out; /* a file; NULL: none */
    const char *report;
    bool quiet, table;
    struct progress progress;
    bool started; /* all inputs are open */
    int code;     /* of the checks that follow their opening */
};

/* Checks the outputs, also against the inputs that have been opened. Returns an exit code. */
int table_run_check(const struct table_run *run);

/* The function of the library that shows progress; `context` is a table_run. */
int table_run_progress(void *context, const qobs_progress *progress);

/* Writes and prints the report of a run that has succeeded. Returns an exit code. */
int table_run_finish(const struct table_run *run, struct report_file *file, const char *text,
                     int (*print)(const json_object *report, bool all), bool (*warn)(const json_object *report));

/* ---- Reports ----------------------------------------------------------------------------------------------------- */

struct summary_options {
    bool all_layers, quiet;
    bool accept_unknown; /* an architecture that is not known leaves the exit status 0 */
};

/* Prints warnings to standard error, and to standard output the sizes, the tensors that were left out and the layers
 * with the largest errors: ten, or all of them. `report` is the JSON of qobs_checkpoint_quantize; seconds 0: not known.
 * Returns an exit code. It is EXIT_INCOMPLETE if no layer was quantized, the audit finds something or the architecture
 * is not known, unless the output has the bytes of upstream, which finds nothing wrong either. */
int quantize_summary(const char *report, double seconds, const struct summary_options *options);

/* Prints what the audit finds as warnings, at most ten. `report` may be NULL. */
void quantize_print_findings(const char *report);

/* The same of the member of a report. */
void print_findings(const json_object *findings);

/* calibrate: prints the ten layers that quantize worst, or all of them, and a summary to standard output. Returns an
 * exit code. */
int calibrate_print(const json_object *report, bool all);

/* Prints warnings to standard error: modules whose scales are missing because nothing was recorded for them. Returns
 * false if there are any. */
bool calibrate_warn(const json_object *report);

#endif
