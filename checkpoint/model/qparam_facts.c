/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales are looked at as bits, in the order of the file. */
#include "model/qparam_facts.h"

#include <string.h>

#include "model/read_words.h"

/* ---- Facts ------------------------------------------------------------------------------------------------------- */

static void scan_halves(const unsigned char *data, size_t count, uint16_t exponent, struct qparam_facts *facts)
{
    unsigned bad = 0, signs = 0;
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, data + i * sizeof bits, sizeof bits);
        bad |= (unsigned)((bits & exponent) == exponent) | (unsigned)((bits & 0x7fff) == 0);
        signs |= bits;
    }
    facts->usable = bad == 0;
    facts->negative = signs & 0x8000;
}

static void scan_floats(const unsigned char *data, size_t count, struct qparam_facts *facts)
{
    uint32_t bad = 0, signs = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, data + i * sizeof bits, sizeof bits);
        bad |= (uint32_t)((bits & 0x7f800000) == 0x7f800000) | (uint32_t)((bits & 0x7fffffff) == 0);
        signs |= bits;
    }
    facts->usable = bad == 0;
    facts->negative = signs & 0x80000000;
}

static void scan_scales(const struct st_tensor *s, struct qparam_facts *facts)
{
    const size_t count = (s->end - s->begin) / dtype_size(s->dtype);
    if (s->dtype == FILE_F32)
        scan_floats(s->data, count, facts);
    else
        scan_halves(s->data, count, s->dtype == FILE_F16 ? 0x7c00 : 0x7f80, facts);
}

enum { ROWS = 32 }; /* at a time */

static void scan_zero_points(const struct weight *w, struct qparam_facts *facts)
{
    int16_t zero_points[ROWS];
    const int64_t groups = w->source_codes.scale_columns;
    int low = INT16_MAX, high = INT16_MIN;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t r = 0; r < w->shape[0]; r += ROWS) {
            const int64_t count = w->shape[0] - r < ROWS ? w->shape[0] - r : ROWS;
            source_zero_points(&w->source_codes, r, count, g, zero_points);
            for (int64_t i = 0; i < count; i++) {
                low = zero_points[i] < low ? zero_points[i] : low;
                high = zero_points[i] > high ? zero_points[i] : high;
            }
        }
    facts->low = low;
    facts->high = high;
}

int weight_qparam_facts(const struct weight *w, struct qparam_facts *facts, struct fail *f)
{
    *facts = (struct qparam_facts){0};
    RETURN_IF_NOT_OK(source_codes_borrow(&w->source_codes, f));
    scan_scales(w->source_codes.scales, facts);
    if (w->source_codes.zero_points)
        scan_zero_points(w, facts);
    source_codes_release(&w->source_codes);
    return QOBS_OK;
}

/* ---- Moves ------------------------------------------------------------------------------------------------------- */

/* Elements of a matrix of qparams in the file: place of a row and a group, and their distances. */
struct places {
    const unsigned char *data;
    int64_t row, group; /* distances */
};

static void move_halves(const struct places *p, int64_t rows, int64_t groups, int64_t repeats, unsigned char *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++)
            for (int64_t i = 0; i < repeats; i++, to += 2)
                memcpy(to, p->data + 2 * (r * p->row + g * p->group), 2);
}

static void move_floats(const struct places *p, int64_t rows, int64_t groups, int64_t repeats, unsigned char *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++)
            for (int64_t i = 0; i < repeats; i++, to += 4)
                memcpy(to, p->data + 4 * (r * p->row + g * p->group), 4);
}

void weight_move_scales(const struct weight *w, int64_t first, int64_t count, int64_t repeats, void *scales)
{
    const struct source_codes *c = &w->source_codes;
    const int64_t size = (int64_t)dtype_size(c->scales->dtype), rows = w->shape[0];
    struct places p = {.row = c->format->words ? 1 : c->scale_columns, .group = c->format->words ? rows : 1};
    p.data = (const unsigned char *)c->scales->data + size * first * p.row;
    (size == 2 ? move_halves : move_floats)(&p, count, c->scale_columns, repeats, scales);
}

void weight_move_zero_points(const struct weight *w, int64_t first, int64_t count, int64_t repeats,
                             signed char *zero_points)
{
    const int64_t groups = w->source_codes.scale_columns;
    if (!w->source_codes.zero_points) {
        memset(zero_points, 0, (size_t)(count * groups * repeats));
        return;
    }
    for (int64_t g = 0; g < groups; g++)
        for (int64_t r = 0; r < count; r += ROWS) {
            const int64_t rows = count - r < ROWS ? count - r : ROWS;
            int16_t chunk[ROWS];
            source_zero_points(&w->source_codes, first + r, rows, g, chunk);
            for (int64_t i = 0; i < rows; i++)
                for (int64_t k = 0; k < repeats; k++)
                    zero_points[((r + i) * groups + g) * repeats + k] = (signed char)chunk[i];
        }
}
