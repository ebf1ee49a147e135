/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Compares what several observers do to the same tensors: ranges, grids, clipped elements, errors. */
#ifndef QOBS_TOOLS_SHOW_COMPARE_H
#define QOBS_TOOLS_SHOW_COMPARE_H

#include "show/measure.h"

enum { MAX_CANDIDATES = 8 };

struct comparison {
    struct compared items[MAX_CANDIDATES];
    size_t count;
    bool weighted; /* there are activations */
};

/* Input of a comparison: the arguments of --compare, --set and --base-name, and the tensors. It does not use
 * source->config. */
struct compare_request {
    const char *presets; /* "NAME [KEY=VALUE]..., ..." */
    const char *const *settings;
    size_t setting_count;
    const char *base; /* NULL: the default of each preset */
    const struct chart_source *source;
    struct chart chart; /* title, bins and bars of all charts */
};

/* Returns an exit code. compare_free is needed in any case. */
int compare_make(struct comparison *comparison, const struct compare_request *request);
void compare_free(struct comparison *comparison);

/* Returns the root of the squared error over the root of the energy; NaN: not known. */
double compare_error(const struct compared *candidate);
double compare_weighted_error(const struct compared *candidate);

/* Print the comparison to standard output, as text as wide as the terminal or as JSON, or draw it to a file. */
void compare_print(const struct comparison *comparison);
int compare_print_json(const struct comparison *comparison);
int compare_draw(const struct comparison *comparison, const char *path);

/* Writes the table's columns of one candidate: range, scale, clipped share, errors. */
enum { COMPARE_COLUMNS = 5, COMPARE_TEXT = 48 };
int compare_columns(const struct comparison *comparison); /* the last one needs activations */
extern const char *const compare_headings[COMPARE_COLUMNS];
void compare_texts(const struct compared *candidate, char texts[COMPARE_COLUMNS][COMPARE_TEXT]);

#endif
