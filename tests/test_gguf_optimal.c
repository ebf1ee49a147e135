/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of GGUF types by the search "optimal": no block has a larger error than that of ggml, the bytes are those of
 * every instruction set, and the scales are the best of all that can be stored, tried one by one in double. */
#include <math.h>

#include "gguf_rows.h"
#include "kernels/dispatch.h"
#include "number/gguf_scales.h"
#include "qobs/gguf.h"
#include "repeats.h"
#include "unit.h"

/* The rows that are not refused have WHOLE_BLOCKS blocks of 256 at least. */
enum { WHOLE_ROWS = 64, COLUMNS = 512, MOST = WHOLE_ROWS * COLUMNS, WHOLE_BLOCKS = 10000 };

static int rows = 1;
static size_t compared; /* blocks of a type */
static float value[MOST], numbers[MOST], importance[COLUMNS];
static unsigned char blocks[4 * MOST], other[4 * MOST];

static size_t elements(void) { return (size_t)rows * COLUMNS; }

static int quantize(const struct gguf_type *type, const float *weights, const char *search, unsigned char *out)
{
    const qobs_gguf_quantize_args a = {.struct_size = sizeof a,
                                       .type = type->name,
                                       .dtype = QOBS_F32,
                                       .rows = rows,
                                       .columns = COLUMNS,
                                       .value = value,
                                       .importance = weights,
                                       .out = out,
                                       .out_size = elements() / type->elements * type->bytes,
                                       .search = search};
    return qobs_gguf_quantize(&a, NULL);
}

/* Writes the error of each block. */
static void measure(const struct gguf_type *type, const float *weights, const unsigned char *from, double *error)
{
    const qobs_gguf_dequantize_args a = {.struct_size = sizeof a,
                                         .type = type->name,
                                         .rows = rows,
                                         .columns = COLUMNS,
                                         .blocks = from,
                                         .blocks_size = elements() / type->elements * type->bytes,
                                         .out = numbers,
                                         .out_size = elements() * sizeof *numbers};
    assert_int_equal(qobs_gguf_dequantize(&a, NULL), QOBS_OK);
    for (size_t b = 0; b < elements() / type->elements; b++) {
        error[b] = 0;
        for (size_t i = b * type->elements; i < (b + 1) * type->elements; i++) {
            const double e = (double)value[i] - (double)numbers[i];
            error[b] += weights ? (double)weights[i % COLUMNS] * (e * e) : e * e;
        }
    }
}

static const float *fill(int kind, int weights)
{
    gguf_fill(value, elements(), kind);
    if (weights < 0)
        return NULL;
    gguf_fill_importance(importance, COLUMNS, weights);
    return importance;
}

/* ---- Never worse than ggml, on every instruction set ------------------------------------------------------------- */

/* Returns whether the sum of all errors falls by more than rounding. */
static bool check_errors(const struct gguf_type *type, int kind, int weights)
{
    static double before[MOST], after[MOST];
    const size_t n = elements() / type->elements;
    double before_all = 0, after_all = 0;
    const float *const w = fill(kind, weights);
    const int status = quantize(type, w, "ggml", blocks);
    if (status == QOBS_OK)
        measure(type, w, blocks, before);
    for (size_t i = 0; i < qobs_isa_count(); i++) {
        if (!qobs_isa_usable(i) || (i && i + 1 < qobs_isa_count() && weights > 0))
            continue;
        assert_int_equal(qobs_isa_select(qobs_isa_name(i), NULL), QOBS_OK);
        assert_int_equal(quantize(type, w, "optimal", i ? other : blocks), status);
        if (status == QOBS_OK && i && memcmp(blocks, other, n * type->bytes) != 0)
            fail_msg("%s, importance %d, rows %d: %s has other bytes", type->name, weights, kind, qobs_isa_name(i));
    }
    qobs_isa_select(NULL, NULL);
    if (status != QOBS_OK)
        return false;
    measure(type, w, blocks, after);
    compared += n;
    for (size_t b = 0; b < n; b++) {
        if (after[b] > before[b] * (1 + 1e-13))
            fail_msg("%s, importance %d, rows %d, block %zu: error %.17g, that of ggml is %.17g", type->name, weights,
                     kind, b, after[b], before[b]);
        before_all += before[b];
        after_all += after[b];
    }
    return after_all < before_all * (1 - 1e-4);
}

static void check_type(const struct gguf_type *type)
{
    compared = 0;
    for (int weights = -1; weights < GGUF_WEIGHTS; weights++) {
        int better = 0;
        for (int kind = 0; kind < GGUF_KINDS; kind++)
            better += check_errors(type, kind, weights);
        if (type->elements > 1 && type->code != GGUF_CODE_SIGN && better < 5)
            fail_msg("%s, importance %d: only %d kinds of rows are better", type->name, weights, better);
    }
    if (compared < (size_t)repeats(1, WHOLE_BLOCKS))
        fail_msg("%s: only %zu blocks are compared", type->name, compared);
}

static void test_not_worse(void **state)
{
    rows = repeats(1, WHOLE_ROWS);
    for (const struct gguf_type *type = qobs_gguf_types; !type->refused; type++)
        check_type(type);
}

/* ---- Every scale, one by one ------------------------------------------------------------------------------------- */

/* A run, its weights, and the numbers that its elements may become. */
struct run {
    const struct gguf_type *type;
    const float *x, *h;
    double number[256];
    size_t n, count;
};

static void list_numbers(struct run *r)
{
    const struct gguf_type *const type = r->type;
    const bool bytes = type->plane[0].bits == 8, trits = strncmp(type->name, "TQ", 2) == 0;
    r->count = 0;
    if (type->code == GGUF_CODE_CODEBOOK)
        while (r->count < 16)
            r->number[r->count] = qobs_iq4_numbers[r->count], r->count++;
    else if (type->code == GGUF_CODE_E2M1)
        for (int k = 0; k < 16; k++)
            r->number[r->count++] = (k & 1 ? -1 : 1) * qobs_e2m1_doubled[k / 2];
    else if (type->code == GGUF_CODE_SIGN)
        r->number[r->count++] = -1, r->number[r->count++] = 1;
    else
        for (int k = bytes ? -127 : -type->low; k <= (bytes ? 127 : trits ? 1 : type->top - type->low); k++)
            r->number[r->count++] = k;
}

static bool has_integers(const struct run *r) { return r->number[r->count - 1] - r->number[0] == (double)r->count - 1; }

static double error_of(const struct run *r, double scale, double minimum)
{
    double error = 0;
    const double low = r->number[0], high = r->number[r->count - 1];
    for (size_t i = 0; i < r->n; i++) {
        const double x = (double)r->x[i] + minimum;
        double least = HUGE_VAL;
        if (has_integers(r)) {
            const double q = scale == 0 ? 0 : fmax(low, fmin(high, rint(x / scale)));
            least = (x - scale * q) * (x - scale * q);
        } else {
            for (size_t k = 0; k < r->count; k++)
                least = fmin(least, (x - scale * r->number[k]) * (x - scale * r->number[k]));
        }
        error += (r->h ? (double)r->h[i] : 1) * least;
    }
    return error;
}

static double best_stored_scale(const struct run *r)
{
    double best = HUGE_VAL;
    if (r->type->scales == GGUF_SCALES_E4M3)
        for (int k = 0; k < 127; k++)
            best = fmin(best, error_of(r, (double)gguf_half_of_e4m3((uint8_t)k), 0));
    else if (r->type->scales == GGUF_SCALES_E8M0)
        for (int k = 0; k < 255; k++)
            best = fmin(best, error_of(r, (double)gguf_half_of_e8m0((uint8_t)k), 0));
    else
        for (unsigned k = 0; k < 0x7c00; k++) {
            const double scale = (double)float_of_f16((uint16_t)k);
            best = fmin(
                best, fmin(error_of(r, scale, 0), r->type->code == GGUF_CODE_SIGN ? HUGE_VAL : error_of(r, -scale, 0)));
        }
    return best;
}

/* The best integers for the f16 scales of a block. */
static double best_integers(const struct run *r, const unsigned char *block)
{
    const struct gguf_type *const type = r->type;
    const bool pairs = type->minimum_at >= 0;
    const double d = (double)float_of_f16(gguf_load16(block + type->scale_at));
    const double m = pairs ? (double)float_of_f16(gguf_load16(block + type->minimum_at)) : 0;
    const int most = type->scales == GGUF_SCALES_NIBBLES ? 15
                     : type->scales == GGUF_SCALES_4     ? 63
                     : type->scales == GGUF_SCALES_BYTES ? 127
                                                         : 31;
    double best = HUGE_VAL;
    for (int s = pairs ? 0 : -most - 1; s <= most; s++)
        for (int k = 0; k <= (pairs ? most : 0); k++)
            best = fmin(best, error_of(r, d * s, m * k));
    return best;
}

/* Compares runs of the first and of a later block. */
static void check_block(const struct gguf_type *type, int kind, int weights, const float *w, size_t b)
{
    const unsigned char *const block = blocks + b * type->bytes;
    const size_t first = b * type->elements, each = type->run;
    float scale[GGUF_MOST_RUNS], minimum[GGUF_MOST_RUNS];
    struct run r = {.type = type, .n = each};
    list_numbers(&r);
    gguf_run_scales(type, block, scale, minimum);
    for (size_t k = 0; k < (type->scale_at >= 0 && type->scales_at < 0 ? 1U : 3U) && k * each < type->elements; k++) {
        double noise = 0, most = 0;
        r.x = value + first + k * each;
        r.h = w ? w + (first + k * each) % COLUMNS : NULL;
        for (size_t i = 0; i < type->elements; i++)
            most = fmax(most, w ? (double)w[(first + i) % COLUMNS] : 1);
        if (most == 0)
            r.h = NULL;
        for (size_t i = 0; i < each; i++)
            noise += (double)r.x[i] * (double)r.x[i];
        const double best =
            type->scale_at >= 0 && type->scales_at >= 0 ? best_integers(&r, block) : best_stored_scale(&r);
        const double got = error_of(&r, (double)scale[k], (double)minimum[k]);
        if (got > best * (1 + 0x1p-15) + 1e-11 * most * noise)
            fail_msg("%s, importance %d, rows %d, block %zu, run %zu: error %.9g, the least is %.9g", type->name,
                     weights, kind, b, k, got, best);
    }
}

static void test_brute_force(void **state)
{
    static const int kinds[] = {1, 2, 7, 12, 15};
    rows = 1;
    for (const struct gguf_type *type = qobs_gguf_types; !type->refused; type++) {
        const bool fitted = type->elements == 1 || (type->minimum_at >= 0 && type->scales_at < 0);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds && !fitted; k++)
            for (int weights = -1; weights < GGUF_WEIGHTS; weights++) {
                const float *const w = fill(kinds[k], weights);
                if (weights != 1 && quantize(type, w, "optimal", blocks) == QOBS_OK) {
                    check_block(type, kinds[k], weights, w, 0);
                    check_block(type, kinds[k], weights, w, elements() / type->elements - 2);
                }
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_worse),
        cmocka_unit_test(test_brute_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
