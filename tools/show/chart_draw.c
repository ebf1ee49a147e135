/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Draws a chart as a picture with cairo, if the program was built with it. */
#include "chart.h"
#include "program.h"

#ifndef HAVE_CAIRO

int chart_check_picture(const char *path)
{
    return print_error(EXIT_USAGE, "--out: %s: this program was built without cairo and draws no pictures", path);
}

int chart_draw(const struct chart *c, const char *path)
{
    (void)c;
    return chart_check_picture(path);
}

#else

#include <cairo-svg.h>
#include <cairo.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "files/output.h"

static bool ends_with(const char *path, const char *ending)
{
    const size_t length = strlen(path), end = strlen(ending);
    return length > end && strcasecmp(path + length - end, ending) == 0;
}

int chart_check_picture(const char *path)
{
    if (!ends_with(path, ".svg") && !ends_with(path, ".png"))
        return print_error(EXIT_USAGE, "--out: %s: must end in .svg or .png", path);
    return check_output(path);
}

enum { WIDTH = 960, HEIGHT = 540, LEFT = 90, RIGHT = 30, TOP = 64, BOTTOM = 76 };

static double x_of(const struct chart *c, double value)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (value - c->first) / (c->last - c->first);
}

static double y_of(double share) { return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share; }

/* across: -1 starts the text at x, 0 centres it on x, 1 ends it at x. */
static void write_text(cairo_t *cr, double x, double y, int across, const char *text)
{
    cairo_text_extents_t e;
    cairo_text_extents(cr, text, &e);
    cairo_move_to(cr, across < 0 ? x : across > 0 ? x - e.x_advance : x - e.x_advance / 2, y);
    cairo_show_text(cr, text);
}

static void draw_bars(cairo_t *cr, const struct chart *c)
{
    uint64_t max_count = 1;
    const double width = (c->last - c->first) / (double)c->bins;
    for (size_t i = 0; i < c->bins; i++)
        max_count = c->counts[i] > max_count ? c->counts[i] : max_count;
    for (size_t i = 0; i < c->bins; i++) {
        if (c->counts[i] == 0)
            continue;
        const double low = c->first + width * (double)i, high = low + width;
        const bool clipped = high <= c->widest.low || low >= c->widest.high;
        const double x = x_of(c, low), y = y_of(chart_bar(c, c->counts[i], max_count));
        cairo_set_source_rgb(cr, clipped ? 0.84 : 0.20, clipped ? 0.37 : 0.45, clipped ? 0.05 : 0.70);
        cairo_rectangle(cr, x, y, x_of(c, high) - x, y_of(0) - y);
        cairo_fill(cr);
    }
    char text[64];
    cairo_set_source_rgb(cr, 0.25, 0.25, 0.25);
    snprintf(text, sizeof text, "%llu", (unsigned long long)max_count);
    write_text(cr, LEFT - 8, y_of(1) + 5, 1, text);
    write_text(cr, LEFT - 8, y_of(0) + 5, 1, "0");
    write_text(cr, LEFT - 8, y_of(0.5) + 5, 1, c->logarithmic ? "log count" : "count");
}

/* Returns a round step that gives four to ten ticks. */
static double tick_step(double range)
{
    const double step = pow(10, floor(log10(range))), ticks = range / step;
    return ticks < 2 ? step / 5 : ticks < 5 ? step / 2 : step;
}

static void draw_axis(cairo_t *cr, const struct chart *c)
{
    const double step = tick_step(c->last - c->first);
    cairo_set_source_rgb(cr, 0.25, 0.25, 0.25);
    cairo_set_line_width(cr, 1);
    cairo_move_to(cr, LEFT, y_of(0) + 0.5);
    cairo_line_to(cr, WIDTH - RIGHT, y_of(0) + 0.5);
    const double first = ceil(c->first / step);
    for (int i = 0; (first + i) * step <= c->last; i++) {
        char text[32];
        const double value = (first + i) * step, x = x_of(c, value);
        snprintf(text, sizeof text, "%.6g", value + 0.0); /* + 0.0 turns -0 into 0 */
        cairo_move_to(cr, x, y_of(0));
        cairo_line_to(cr, x, y_of(0) + 5);
        write_text(cr, x, y_of(0) + 20, 0, text);
    }
    cairo_stroke(cr);
}

/* Draws a bound of a range. A bound outside the data appears only in the text below the picture. */
static void draw_bound(cairo_t *cr, const struct chart *c, double value, bool narrowest)
{
    static const double dashes[] = {5, 4};
    if (!(value >= c->first && value <= c->last))
        return;
    cairo_set_dash(cr, dashes, narrowest ? 2 : 0, 0);
    cairo_set_source_rgb(cr, 0.70, 0.10, 0.10);
    cairo_set_line_width(cr, 1.5);
    cairo_move_to(cr, x_of(c, value), y_of(0));
    cairo_line_to(cr, x_of(c, value), y_of(1) - 8);
    cairo_stroke(cr);
    cairo_set_dash(cr, NULL, 0, 0);
}

static void draw_words(cairo_t *cr, const struct chart *c)
{
    char text[320];
    cairo_set_source_rgb(cr, 0.1, 0.1, 0.1);
    cairo_set_font_size(cr, 17);
    write_text(cr, LEFT, 26, -1, c->title);
    cairo_set_font_size(cr, 13);
    write_text(cr, LEFT, 45, -1, c->preset);
    if (c->qparams == 1)
        snprintf(text, sizeof text, "range %.6g to %.6g", c->widest.low, c->widest.high);
    else
        snprintf(text, sizeof text, "%zu ranges, the widest %.6g to %.6g, the narrowest (dashed) %.6g to %.6g",
                 c->qparams, c->widest.low, c->widest.high, c->narrowest.low, c->narrowest.high);
    write_text(cr, LEFT, HEIGHT - 32, -1, text);
    snprintf(text, sizeof text, "%llu of %llu elements are clipped, %.4g %%",
             (unsigned long long)c->below + (unsigned long long)c->above, (unsigned long long)c->elements,
             100 * chart_clipped(c));
    write_text(cr, LEFT, HEIGHT - 12, -1, text);
}

/* The output file and the number of bytes that cairo has written to it. */
struct picture_file {
    struct output output;
    uint64_t written;
};

static cairo_status_t receive(void *closure, const unsigned char *data, unsigned length)
{
    struct picture_file *s = closure;
    if (output_write(&s->output, data, length, s->written) != 0)
        return CAIRO_STATUS_WRITE_ERROR;
    s->written += length;
    return CAIRO_STATUS_SUCCESS;
}

static cairo_status_t draw(const struct chart *c, bool svg, struct picture_file *s)
{
    cairo_surface_t *surface = svg ? cairo_svg_surface_create_for_stream(receive, s, WIDTH, HEIGHT)
                                   : cairo_image_surface_create(CAIRO_FORMAT_RGB24, WIDTH, HEIGHT);
    cairo_t *cr = cairo_create(surface);
    cairo_set_source_rgb(cr, 1, 1, 1);
    cairo_paint(cr);
    cairo_select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cr, 13);
    draw_bars(cr, c);
    draw_axis(cr, c);
    draw_bound(cr, c, c->widest.low, false);
    draw_bound(cr, c, c->widest.high, false);
    if (c->qparams > 1) {
        draw_bound(cr, c, c->narrowest.low, true);
        draw_bound(cr, c, c->narrowest.high, true);
    }
    draw_words(cr, c);
    cairo_status_t status = cairo_status(cr);
    cairo_destroy(cr);
    if (status == CAIRO_STATUS_SUCCESS && !svg)
        status = cairo_surface_write_to_png_stream(surface, receive, s);
    cairo_surface_finish(surface);
    if (status == CAIRO_STATUS_SUCCESS)
        status = cairo_surface_status(surface);
    cairo_surface_destroy(surface);
    return status;
}

int chart_draw(const struct chart *c, const char *path)
{
    struct picture_file s = {0};
    struct fail f;
    int code = EXIT_OK;
    if (output_open(&s.output, path, &f) != 0)
        return print_error(EXIT_SYSTEM, "%s", f.message);
    errno = 0;
    const cairo_status_t status = draw(c, ends_with(path, ".svg"), &s);
    if (status != CAIRO_STATUS_SUCCESS)
        code =
            print_error(EXIT_SYSTEM, "%s: cannot draw: %s", path,
                        status == CAIRO_STATUS_WRITE_ERROR && errno ? strerror(errno) : cairo_status_to_string(status));
    else if (output_commit(&s.output, &f) != 0)
        code = print_error(EXIT_SYSTEM, "%s", f.message);
    output_abort(&s.output);
    cairo_debug_reset_static_data();
    return code;
}
#endif
