/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The command line of qobs quantize. */
#ifndef QOBS_TOOLS_QUANTIZE_OPTIONS_H
#define QOBS_TOOLS_QUANTIZE_OPTIONS_H

#include "progress.h"
#include "qobs/checkpoint.h"

struct option_list {
    const char **items;
    size_t count;
};

struct quantize_options {
    qobs_checkpoint_quantize_args args;
    struct option_list targets, ignore, settings, activations, states, importance;
    const char *report, *isa, *threads;
    bool quiet, table, help;
    const char *finish;
    struct progress progress;
    uint64_t shown; /* bytes that the progress bar shows */
};

/* Parses the command line into a zeroed structure. Returns an exit code. */
int quantize_options_parse(struct quantize_options *options, int argc, char **argv);

void quantize_options_help(void);

void quantize_options_free(struct quantize_options *options);

#endif
