/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The command line of qobs quantize. */
#ifndef QOBS_TOOLS_QUANTIZE_OPTIONS_H
#define QOBS_TOOLS_QUANTIZE_OPTIONS_H

#include "options.h"
#include "progress.h"
#include "qobs/checkpoint.h"

struct quantize_options {
    qobs_checkpoint_quantize_args args;
    struct option_list targets, ignore, settings, activations, states, importance;
    const char *report, *isa, *threads;
    bool quiet, table;
    const char *finish;
    struct progress progress;
    uint64_t shown; /* bytes that the progress bar shows */
};

/* Parses the command line into a zeroed structure. If it has printed help, sets *done. Returns an exit code. */
int quantize_options_parse(struct quantize_options *options, int argc, char **argv, bool *done);

/* Runs the command. */
int quantize_run(int argc, char **argv);

/* Prints the error of a failed run. If a scheme, a preset or a setting is unknown and a known one is near, names that
 * one. Returns an exit code. */
int quantize_print_error(const struct quantize_options *options, const qobs_error *error, int code);

void quantize_options_free(struct quantize_options *options);

#endif
