/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Draws with cairo, if the program was built with it. */
#include "program.h"
#include "show/chart.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "files/output.h"
#include "outputs.h"
#include "show/canvas.h"

const struct colour canvas_inside = {0.20, 0.45, 0.70}, canvas_clipped = {0.84, 0.37, 0.05};
const struct colour canvas_bound = {0.70, 0.10, 0.10}, canvas_ink = {0.15, 0.15, 0.15};

/* ---- Drawing ----------------------------------------------------------------------------------------------------- */

double canvas_x(const struct canvas *c, double value)
{
    return c->left + (c->right - c->left) * (value - c->axis.low) / (c->axis.high - c->axis.low);
}

/* Returns the place of a share, 0 to 1, of the height. */
static double canvas_y(const struct canvas *c, double share) { return c->bottom - (c->bottom - c->top) * share; }

void canvas_colour(const struct canvas *c, struct colour colour)
{
    cairo.set_source_rgb(c->cr, colour.red, colour.green, colour.blue);
}

void canvas_text(const struct canvas *c, double x, double y, int across, const char *text)
{
    cairo_text_extents_t e;
    cairo.text_extents(c->cr, text, &e);
    cairo.move_to(c->cr, across < 0 ? x : across > 0 ? x - e.x_advance : x - e.x_advance / 2, y);
    cairo.show_text(c->cr, text);
}

static void line(const struct canvas *c, double x, double y, double to_x, double to_y)
{
    cairo.move_to(c->cr, x, y);
    cairo.line_to(c->cr, to_x, to_y);
    cairo.stroke(c->cr);
}

/* Returns a round step that gives four to ten ticks. */
static double tick_step(double range)
{
    const double step = pow(10, floor(log10(range))), ticks = range / step;
    return ticks < 2 ? step / 5 : ticks < 5 ? step / 2 : step;
}

static void draw_x_axis(const struct canvas *c)
{
    const double step = tick_step(c->axis.high - c->axis.low), first = ceil(c->axis.low / step);
    line(c, c->left, c->bottom + 0.5, c->right, c->bottom + 0.5);
    for (int i = 0; (first + i) * step <= c->axis.high; i++) {
        char text[32];
        const double value = (first + i) * step, x = canvas_x(c, value);
        snprintf(text, sizeof text, "%.6g", value + 0.0); /* + 0.0 turns -0 into 0 */
        line(c, x, c->bottom, x, c->bottom + 5);
        canvas_text(c, x, c->bottom + 18, 0, text);
    }
    canvas_text(c, c->right, c->bottom + 33, 1, "value of an element");
}

/* Writes a count as 1200 or 1.2e+06. */
static void draw_y_tick(const struct canvas *c, const struct chart *chart, double count, uint64_t max_count)
{
    char text[32];
    const double y = canvas_y(c, chart_bar(chart, (uint64_t)count, max_count));
    snprintf(text, sizeof text, "%.4g", count);
    line(c, c->left - 5, y, c->left, y);
    canvas_text(c, c->left - 8, y + 4, 1, text);
}

/* Ticks are round counts, or powers of ten if the axis is logarithmic. */
static void draw_y_axis(const struct canvas *c, const struct chart *chart, uint64_t max_count)
{
    const double step = fmax(1, tick_step((double)max_count));
    line(c, c->left - 0.5, c->bottom, c->left - 0.5, c->top);
    draw_y_tick(c, chart, 0, max_count);
    for (int i = 0;; i++) {
        const double count = chart->logarithmic ? pow(10, i) : step * (i + 1);
        if (count > (double)max_count)
            break;
        draw_y_tick(c, chart, count, max_count);
    }
    canvas_text(c, c->left - 66, c->top - 12, -1,
                chart->logarithmic ? "elements in a bin, logarithm" : "elements in a bin");
}

void canvas_histogram(const struct canvas *c, const struct chart *chart, bool clipped)
{
    uint64_t max_count = 1;
    const double width = (chart->last - chart->first) / (double)chart->bins;
    for (size_t i = 0; i < chart->bins; i++)
        max_count = chart->counts[i] > max_count ? chart->counts[i] : max_count;
    for (size_t i = 0; i < chart->bins; i++) {
        if (chart->counts[i] == 0)
            continue;
        const double low = chart->first + width * (double)i, high = low + width;
        const bool outside = clipped && (high <= chart->widest.low || low >= chart->widest.high);
        const double x = canvas_x(c, low), y = canvas_y(c, chart_bar(chart, chart->counts[i], max_count));
        canvas_colour(c, outside ? canvas_clipped : canvas_inside);
        cairo.rectangle(c->cr, x, y, canvas_x(c, high) - x, c->bottom - y);
        cairo.fill(c->cr);
    }
    canvas_colour(c, canvas_ink);
    cairo.set_line_width(c->cr, 1);
    draw_x_axis(c);
    draw_y_axis(c, chart, max_count);
}

void canvas_vertical(const struct canvas *c, double value, struct colour colour, bool dashed)
{
    static const double dashes[] = {5, 4};
    if (!(value >= c->axis.low && value <= c->axis.high))
        return;
    cairo.set_dash(c->cr, dashes, dashed ? 2 : 0, 0);
    canvas_colour(c, colour);
    cairo.set_line_width(c->cr, 1.5);
    line(c, canvas_x(c, value), c->bottom, canvas_x(c, value), c->top - 8);
    cairo.set_dash(c->cr, NULL, 0, 0);
}

/* ---- File -------------------------------------------------------------------------------------------------------- */

/* In any case. */
static bool has_extension(const char *path, const char *extension)
{
    const size_t length = strlen(path), tail = strlen(extension);
    return length > tail && strcasecmp(path + length - tail, extension) == 0;
}

int chart_check_picture(const char *path)
{
    if (!has_extension(path, ".svg") && !has_extension(path, ".png"))
        return print_error(EXIT_USAGE, "--out: %s: must end in .svg or .png", path);
    const int code = check_outputs(&(struct output_option){"--out", path, false}, 1);
    return code == EXIT_OK ? load_cairo() : code;
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

static cairo_status_t draw_to(struct picture_file *s, bool svg, int width, int height,
                              void (*draw)(cairo_t *cr, const void *context), const void *context)
{
    cairo_surface_t *surface = svg ? cairo.svg_surface_create_for_stream(receive, s, width, height)
                                   : cairo.image_surface_create(CAIRO_FORMAT_RGB24, width, height);
    cairo_t *cr = cairo.create(surface);
    cairo.set_source_rgb(cr, 1, 1, 1);
    cairo.paint(cr);
    cairo.select_font_face(cr, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo.set_font_size(cr, 13);
    draw(cr, context);
    cairo_status_t status = cairo.status(cr);
    cairo.destroy(cr);
    if (status == CAIRO_STATUS_SUCCESS && !svg)
        status = cairo.surface_write_to_png_stream(surface, receive, s);
    cairo.surface_finish(surface);
    if (status == CAIRO_STATUS_SUCCESS)
        status = cairo.surface_status(surface);
    cairo.surface_destroy(surface);
    return status;
}

int canvas_write(const char *path, int width, int height, void (*draw)(cairo_t *cr, const void *context),
                 const void *context)
{
    struct picture_file s = {0};
    struct fail f;
    int code = EXIT_OK;
    if (output_open(&s.output, path, &f) != 0)
        return print_error(EXIT_SYSTEM, "%s", f.message);
    errno = 0;
    const cairo_status_t status = draw_to(&s, has_extension(path, ".svg"), width, height, draw, context);
    if (status != CAIRO_STATUS_SUCCESS)
        code = print_error(EXIT_SYSTEM, "%s: cannot draw: %s", path,
                           status == CAIRO_STATUS_WRITE_ERROR && errno ? strerror(errno)
                                                                       : cairo.status_to_string(status));
    else if (output_commit(&s.output, &f) != 0)
        code = print_error(EXIT_SYSTEM, "%s", f.message);
    output_abort(&s.output);
    cairo.debug_reset_static_data();
    return code;
}
