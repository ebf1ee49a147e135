/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Draws a chart: the histogram, the range, what they mean. */
#include "show/chart.h"

#include <stdio.h>

#include "show/canvas.h"

enum { WIDTH = 960, HEIGHT = 540 };

/* Explains the colours, above the histogram at its right end. */
static void draw_legend(const struct canvas *c, const struct chart *chart)
{
    const double y = c->top - 22;
    double x = c->right - (chart->qparams > 1 ? 430 : 300);
    const struct {
        struct colour colour;
        const char *text;
        bool bar;
    } items[] = {{canvas_inside, "in the range", true},
                 {canvas_clipped, "clipped", true},
                 {canvas_bound, chart->qparams > 1 ? "widest and narrowest (dashed) range" : "range", false}};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        canvas_colour(c, items[i].colour);
        cairo.rectangle(c->cr, x, y - 10, items[i].bar ? 10 : 2, 12);
        cairo.fill(c->cr);
        canvas_colour(c, canvas_ink);
        canvas_text(c, x + 15, y, -1, items[i].text);
        x += items[i].bar ? 110 : 0;
    }
}

static void draw_words(const struct canvas *c, const struct chart *chart)
{
    char text[320];
    canvas_colour(c, canvas_ink);
    cairo.set_font_size(c->cr, 17);
    canvas_text(c, 24, 26, -1, chart->title);
    cairo.set_font_size(c->cr, 13);
    canvas_text(c, 24, 46, -1, chart->preset);
    if (chart->qparams == 1)
        snprintf(text, sizeof text, "range %.6g to %.6g", chart->widest.low, chart->widest.high);
    else
        snprintf(text, sizeof text, "%zu ranges, the widest %.6g to %.6g, the narrowest (dashed) %.6g to %.6g",
                 chart->qparams, chart->widest.low, chart->widest.high, chart->narrowest.low, chart->narrowest.high);
    canvas_text(c, c->left, HEIGHT - 30, -1, text);
    snprintf(text, sizeof text, "%llu of %llu elements are clipped, %.4g %%",
             (unsigned long long)chart->below + (unsigned long long)chart->above, (unsigned long long)chart->elements,
             100 * chart_clipped(chart));
    canvas_text(c, c->left, HEIGHT - 12, -1, text);
}

static void draw(cairo_t *cr, const void *context)
{
    const struct chart *chart = context;
    const struct canvas c = {
        .cr = cr, .left = 90, .right = WIDTH - 30, .top = 96, .bottom = HEIGHT - 92, .axis = chart->axis};
    canvas_histogram(&c, chart, true);
    canvas_vertical(&c, chart->widest.low, canvas_bound, false);
    canvas_vertical(&c, chart->widest.high, canvas_bound, false);
    if (chart->qparams > 1) {
        canvas_vertical(&c, chart->narrowest.low, canvas_bound, true);
        canvas_vertical(&c, chart->narrowest.high, canvas_bound, true);
    }
    draw_legend(&c, chart);
    draw_words(&c, chart);
}

int chart_draw(const struct chart *c, const char *path) { return canvas_write(path, WIDTH, HEIGHT, draw, c); }
