/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The parts that pictures of charts and comparisons share: axes, bars, legends, the file. Only with cairo. */
#ifndef QOBS_TOOLS_SHOW_CANVAS_H
#define QOBS_TOOLS_SHOW_CANVAS_H

#include "show/chart.h"
#include "show/load_cairo.h"

struct colour {
    double red, green, blue;
};

/* Lines and bars. Ink is for text and axes. */
extern const struct colour canvas_inside, canvas_clipped, canvas_bound, canvas_ink;

/* A picture, and the rectangle in it whose width is the axis and whose height is the fullest bin. */
struct canvas {
    cairo_t *cr;
    double left, right, top, bottom;
    struct span axis;
};

/* Returns the place of a number of the axis. */
double canvas_x(const struct canvas *canvas, double value);

void canvas_colour(const struct canvas *canvas, struct colour colour);

/* across: -1 starts the text at x, 0 centres it on x, 1 ends it at x. */
void canvas_text(const struct canvas *canvas, double x, double y, int across, const char *text);

/* Draws a bar for each bin that has elements, in another colour outside of the widest range if `clipped`, and both
 * axes with ticks and their units. */
void canvas_histogram(const struct canvas *canvas, const struct chart *chart, bool clipped);

/* Draws a line across the rectangle, and up to 8 above it; dashed if wanted. */
void canvas_vertical(const struct canvas *canvas, double value, struct colour colour, bool dashed);

/* Draws a picture and writes it to `path`, as SVG or PNG by its ending. Returns an exit code. */
int canvas_write(const char *path, int width, int height, void (*draw)(cairo_t *cr, const void *context),
                 const void *context);

#endif
