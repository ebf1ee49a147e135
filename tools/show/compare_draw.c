/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Draws a comparison: the histogram, below it a line for each observer with its grid, and the table. */
#include "show/compare.h"

#include <stdio.h>
#include <string.h>

#include "show/canvas.h"

enum { WIDTH = 960, HISTOGRAM_BOTTOM = 370, LANE = 34, ROW = 20, MAX_TEXT = 160 };

/* Colours that people with any colour vision tell apart (Okabe and Ito, 2008), without the yellow. */
static const struct colour lane_colours[MAX_CANDIDATES] = {{0.00, 0.45, 0.70}, {0.84, 0.37, 0.00}, {0.00, 0.62, 0.45},
                                                           {0.80, 0.47, 0.65}, {0.90, 0.62, 0.00}, {0.34, 0.71, 0.91},
                                                           {0.40, 0.40, 0.40}, {0.10, 0.10, 0.10}};

static void rectangle(const struct canvas *c, double x, double y, double width, double height)
{
    cairo.rectangle(c->cr, x, y, width, height);
    cairo.fill(c->cr);
}

/* Draws the widest range as a line that ends in strokes, and a short stroke for each number of the grid if they are at
 * least 3 apart. An end beyond the axis is an arrow. */
static void draw_lane(const struct canvas *c, const struct compared *candidate, double y)
{
    const struct span *range = &candidate->chart.widest;
    const double left = canvas_x(c, range->low < c->axis.low ? c->axis.low : range->low);
    const double right = canvas_x(c, range->high > c->axis.high ? c->axis.high : range->high);
    rectangle(c, left, y - 1.5, right - left, 3);
    if (range->low >= c->axis.low)
        rectangle(c, left - 1, y - 10, 2, 20);
    else
        canvas_text(c, left - 4, y + 4, 1, "<");
    if (range->high <= c->axis.high)
        rectangle(c, right - 1, y - 10, 2, 20);
    else
        canvas_text(c, right + 4, y + 4, -1, ">");
    double last = -WIDTH;
    for (size_t i = 0; i < candidate->level_count; i++) {
        const double level = candidate->levels[i], x = canvas_x(c, level);
        if (level < c->axis.low || level > c->axis.high || x - last < 3)
            continue;
        rectangle(c, x - 0.5, y - 6, 1, 12);
        last = x;
    }
}

static void draw_table(const struct canvas *c, const struct comparison *comparison, double y)
{
    static const double columns[COMPARE_COLUMNS] = {445, 605, 740, 820, 900};
    char texts[COMPARE_COLUMNS][COMPARE_TEXT], name[MAX_TEXT];
    canvas_colour(c, canvas_ink);
    canvas_text(c, 24, y, -1, "observer");
    for (int k = 0; k < compare_columns(comparison); k++)
        canvas_text(c, columns[k], y, 0, compare_headings[k]);
    for (size_t i = 0; i < comparison->count; i++) {
        const struct compared *candidate = &comparison->items[i];
        compare_texts(candidate, texts);
        y += ROW;
        canvas_colour(c, lane_colours[i]);
        rectangle(c, 24, y - 9, 10, 10);
        canvas_colour(c, canvas_ink);
        const int preset = (int)strcspn(candidate->name, " ");
        snprintf(name, sizeof name, "%c  %.*s", (char)('A' + i), preset, candidate->name);
        canvas_text(c, 40, y, -1, name);
        for (int k = 0; k < compare_columns(comparison); k++)
            canvas_text(c, columns[k], y, 0, texts[k]);
        y += ROW - 4;
        const char *settings = candidate->name + preset + (candidate->name[preset] == ' ');
        snprintf(name, sizeof name, "%.*s%s%s%s", MAX_TEXT - 50, settings, *settings && *candidate->lacks ? "; " : "",
                 *candidate->lacks ? "has no " : "", candidate->lacks);
        canvas_text(c, 56, y, -1, name);
    }
    canvas_text(c, 24, y + ROW + 6, -1,
                "lines: the widest range of each observer with the numbers of its grid; clipped: elements outside of "
                "their range;");
    canvas_text(c, 24, y + 2 * ROW + 2, -1,
                comparison->weighted
                    ? "error: root of the squared error over the root of the squares; weighted: columns by the mean "
                      "squares of activations"
                    : "error: root of the squared error over the root of the squares");
}

static void draw(cairo_t *cr, const void *context)
{
    const struct comparison *comparison = context;
    const struct chart *chart = &comparison->items[0].chart;
    const struct canvas c = {
        .cr = cr, .left = 90, .right = WIDTH - 30, .top = 76, .bottom = HISTOGRAM_BOTTOM, .axis = chart->axis};
    canvas_colour(&c, canvas_ink);
    cairo.set_font_size(cr, 17);
    canvas_text(&c, 24, 28, -1, chart->title);
    cairo.set_font_size(cr, 12);
    canvas_histogram(&c, chart, false);
    const double first = HISTOGRAM_BOTTOM + 54;
    for (size_t i = 0; i < comparison->count; i++) {
        const double y = first + LANE * (double)i;
        const char letter[2] = {(char)('A' + i), '\0'};
        canvas_colour(&c, lane_colours[i]);
        canvas_text(&c, c.left - 30, y + 4, 0, letter);
        draw_lane(&c, &comparison->items[i], y);
    }
    draw_table(&c, comparison, first + LANE * (double)comparison->count + 10);
}

int compare_draw(const struct comparison *c, const char *path)
{
    const int lanes = (int)c->count;
    return canvas_write(path, WIDTH, HISTOGRAM_BOTTOM + 54 + lanes * (LANE + 2 * ROW - 4) + 70, draw, c);
}
