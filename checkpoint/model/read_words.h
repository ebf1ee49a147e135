/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes and zero points in words that lie [columns, rows] (struct word_layout). */
#pragma once

#include "model/source_formats.h"

/* A part of a matrix of codes; `column` is a multiple of 32. */
struct word_tile {
    int64_t row, rows, column, columns;
};

/* Writes the codes of a tile as signed numbers, `stride` elements from row to row. data: all words. */
void words_read(const struct source_codes *c, const unsigned char *data, const struct word_tile *tile,
                signed char *codes, int64_t stride);

/* Writes the zero points of integers of `count` rows and a group as they are subtracted from codes: those in words
 * along the rows, of any format, or of an element each. One of GPTQ may be 128. */
void source_zero_points(const struct source_codes *c, int64_t row, int64_t count, int64_t group, int16_t *zero_points);
