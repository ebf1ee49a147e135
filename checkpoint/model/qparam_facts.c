/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales and words of zero points are looked at in the order of the file. */
#include "model/qparam_facts.h"

#include <limits.h>
#include <string.h>

#include "model/read_words.h"

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

enum { WORD_BITS = 32, WORD_BYTES = 4 };

bool zero_points_fill_words(const struct weight *w)
{
    const struct source_codes *c = &w->source_codes;
    return c->zero_points && c->zero_points->dtype == FILE_I32 && !(c->format->words && c->format->words->twos) &&
           CHAR_BIT % c->bits == 0 && w->shape[0] % (WORD_BITS / c->bits) == 0 &&
           c->zero_points->end - c->zero_points->begin ==
               (uint64_t)(w->shape[0] * c->bits / WORD_BITS * c->scale_columns * WORD_BYTES);
}

/* Codes of 1, 2, 4 and 8 bits lie in bytes, whose order does not matter. */
static void scan_words(const struct source_codes *c, struct qparam_facts *facts)
{
    const unsigned char *data = c->zero_points->data;
    const size_t bytes = c->zero_points->end - c->zero_points->begin;
    const unsigned char mask = (unsigned char)((1u << c->bits) - 1);
    unsigned char low = mask, high = 0;
    for (int place = 0; place < CHAR_BIT; place += c->bits)
        for (size_t i = 0; i < bytes; i++) {
            const unsigned char code = data[i] >> place & mask;
            low = code < low ? code : low;
            high = code > high ? code : high;
        }
    const int offset = (c->format->words ? c->format->words->zero_offset : 0) - (1 << (c->bits - 1));
    facts->low = low + offset;
    facts->high = high + offset;
}

enum { ROWS = 32 }; /* at a time */

static void scan_codes(const struct weight *w, struct qparam_facts *facts)
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
    if (zero_points_fill_words(w))
        scan_words(&w->source_codes, facts);
    else if (w->source_codes.zero_points)
        scan_codes(w, facts);
    source_codes_release(&w->source_codes);
    return QOBS_OK;
}
