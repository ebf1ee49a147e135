/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The functions of cairo that pictures need. cairo is loaded for a picture only, because it and the libraries that it
 * needs double the time of a start. */
#ifndef QOBS_TOOLS_SHOW_LOAD_CAIRO_H
#define QOBS_TOOLS_SHOW_LOAD_CAIRO_H

#include <cairo-svg.h>

#define CAIRO_FUNCTIONS(F)                                                                                             \
    F(create) F(debug_reset_static_data) F(destroy) F(fill) F(image_surface_create) F(line_to) F(move_to) F(paint)     \
    F(rectangle) F(select_font_face) F(set_dash) F(set_font_size) F(set_line_width) F(set_source_rgb) F(show_text)     \
    F(status) F(status_to_string) F(stroke) F(surface_destroy) F(surface_finish) F(surface_status)                     \
    F(surface_write_to_png_stream) F(svg_surface_create_for_stream) F(text_extents)

/* cairo.create is cairo_create, and so on. */
struct cairo_functions {
#define POINTER(name) __typeof__(cairo_##name) *(name);
    CAIRO_FUNCTIONS(POINTER)
#undef POINTER
};

extern struct cairo_functions cairo;

/* Fills `cairo`. Returns an exit code. */
int load_cairo(void);

#endif
