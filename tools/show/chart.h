/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The data that qobs show presents: a histogram and the ranges that an observer chose. */
#ifndef QOBS_TOOLS_CHART_H
#define QOBS_TOOLS_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "files/fail.h"
#include "files/json.h"
#include "show/spans.h"

struct chart {
    const char *title, *preset;
    size_t bins;
    uint64_t *counts;
    double first, last;    /* outermost edges; all bins have the same width */
    uint64_t elements;     /* finite elements; the histogram counts all of them */
    uint64_t below, above; /* finite elements outside the range of their qparam, which are clipped */
    uint64_t nan, inf;
    size_t qparams;
    struct span narrowest, widest; /* of the ranges; equal if there is one range */
    size_t widest_index;           /* qparam of the widest range */
    struct span include;           /* what the axis of pictures includes besides; empty: nothing */
    struct span axis;              /* of pictures: the data and the ranges, which may be wider */
    bool whole_axis;               /* the bins cover the axis, not the data alone */
    bool logarithmic;              /* bar lengths follow the logarithm of the counts */
};

/* Counts the elements in chart->bins bins of equal width, and those outside of the range of their qparam. Returns an
 * exit code. chart_free is needed in any case. */
int chart_make(struct chart *chart, const struct chart_source *source, const struct spans *spans);
void chart_free(struct chart *chart);

/* Returns the share of elements that are clipped, 0 to 1. */
double chart_clipped(const struct chart *chart);

/* Returns the bar length, 0 to 1, of a bin with `count` elements. `max_count` is that of the fullest bin. */
double chart_bar(const struct chart *chart, uint64_t count, uint64_t max_count);

/* A line of a histogram as text: one or several bins. */
struct chart_line {
    double low, high;
    uint64_t count;
};
enum { CHART_LINES = 40 };

/* Writes the lines and returns their number; *most receives the largest count, at least 1. */
size_t chart_lines(const struct chart *chart, struct chart_line lines[CHART_LINES], uint64_t *most);

/* Add to a JSON object: two numbers; the edges and the counts of the bins. */
void chart_put_pair(json_object *object, const char *name, double low, double high);
void chart_put_bins(json_object *object, const struct chart *chart);

/* Print the chart to standard output: as text as wide as the terminal, or as JSON. */
void chart_print(const struct chart *chart);
int chart_print_json(const struct chart *chart);

/* Draws the chart as SVG or PNG, chosen by the ending of `path`. The file appears when it is complete. */
int chart_draw(const struct chart *chart, const char *path);
/* Fails if this program cannot draw a picture at `path`. Comes before every picture: it loads cairo. */
int chart_check_picture(const char *path);

#endif
