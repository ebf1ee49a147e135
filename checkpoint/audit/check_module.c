/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One module: dtypes and shapes, values of its scales, use of its codes, and its error against the original. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "audit/nearest_codes.h"
#include "files/bus_errors.h"
#include "files/mapped.h"
#include "qobs/format.h"
#include "qobs/stateless.h"
#include "model/stored_qparams.h"
#include "files/status.h"

/* ---- Dtypes and shapes ------------------------------------------------------------------------------------------- */

/* squeezed: dimensions of size 1 do not count. */
static bool has_shape(const struct st_tensor *t, int ndim, const int64_t *shape, bool squeezed)
{
    bool same = squeezed || t->ndim == ndim || (ndim == 1 && t->ndim == 0 && shape[0] == 1); /* a scalar is a number */
    int e = 0;
    for (int d = 0; same && d < t->ndim; d++) {
        if (squeezed && t->shape[d] == 1)
            continue;
        while (squeezed && e < ndim && shape[e] == 1)
            e++;
        same = e < ndim && t->shape[d] == shape[e];
        e++;
    }
    for (; same && e < ndim && squeezed; e++)
        same = shape[e] == 1;
    return same;
}

/* Checks one tensor of the module, whose dtype is one of a set. */
static bool check_part(struct audit *audit, const struct audit_module *m, const char *part, const struct st_tensor *t,
                       file_dtypes dtypes, int ndim, const int64_t *shape)
{
    part = audit_part_name(audit, part);
    if (!t) {
        audit_find(audit, m, "has no %s", part);
        return false;
    }
    if (dtype_is_in(t->dtype, dtypes) && has_shape(t, ndim, shape, audit->maker != NULL))
        return true;
    audit_find(audit, m, "%s is %s %s, expected %s %s", part, dtype_name(t->dtype), SHAPE_WORDS(t->ndim, t->shape),
               DTYPE_WORDS(dtypes), SHAPE_WORDS(ndim, shape));
    return false;
}

/* Finds the shape of the weight: from weight_shape, or from the codes. */
static bool find_shape(struct audit *audit, struct audit_module *m, const struct group_storage *s)
{
    const struct quant_args *a = &m->group->weights;
    static const int64_t two[1] = {2};
    const int word_bits = quant_word_bits(s->format);
    if (m->codes->ndim != 2) {
        audit_find(audit, m, "%s has %d dimensions, expected 2", s->format->codes, m->codes->ndim);
        return false;
    }
    m->rows = m->codes->shape[0];
    m->columns = m->codes->shape[1];
    if (s->format->has_shape) {
        int64_t shape[2];
        if (!check_part(audit, m, "weight_shape", m->shape, IN_FILE(I64) | IN_FILE(I32), 1, two))
            return false;
        if (m->shape->dtype == FILE_I64) {
            bus_errors_copy(shape, m->shape->data, sizeof shape);
        } else {
            int32_t narrow[2];
            bus_errors_copy(narrow, m->shape->data, sizeof narrow);
            shape[0] = narrow[0];
            shape[1] = narrow[1];
        }
        if (shape[0] != m->rows || shape[1] < 1 || (shape[1] * a->num_bits + word_bits - 1) / word_bits != m->columns) {
            audit_find(audit, m, "weight_shape is [%" PRId64 ",%" PRId64 "], which does not fit weight_packed",
                       shape[0], shape[1]);
            return false;
        }
        m->columns = shape[1];
    } else if (word_bits > 0) {
        m->columns = m->columns * word_bits / a->num_bits;
    }
    return true;
}

static bool check_parts(struct audit *audit, struct audit_module *m)
{
    const struct quant_args *a = &m->group->weights;
    const struct group_storage s = group_storage(m->group, CONTENTS_MODEL);
    static const int64_t one[1] = {1};
    int64_t shape[2];
    if (!find_shape(audit, m, &s))
        return false;
    const bool grouped = a->strategy == QUANT_GROUP || a->strategy == QUANT_TENSOR_GROUP;
    if (grouped && m->columns % a->group_size != 0) {
        audit_find(audit, m, "has %" PRId64 " columns, which groups of %" PRId64 " do not divide", m->columns,
                   a->group_size);
        return false;
    }
    const int64_t matrix[2] = {m->rows, m->columns};
    const int ndim = scale_shape(a, matrix, shape);
    bool sound = check_part(audit, m, s.format->codes, m->codes, 1u << s.codes_dtype, 2, m->codes->shape);
    sound &= check_part(audit, m, "weight_scale", m->scale,
                        s.format->scale_dtype ? 1u << s.format->scale_dtype : HALVES_AND_FLOATS, ndim, shape);
    if (s.packed_zero_points)
        shape[0] = (shape[0] * a->num_bits + quant_word_bits(s.format) - 1) / quant_word_bits(s.format);
    if (s.zero_point_dtype)
        sound &= check_part(audit, m, "weight_zero_point", m->zero_point, 1u << s.zero_point_dtype, ndim, shape);
    if (a->strategy == QUANT_TENSOR_GROUP)
        sound &= check_part(audit, m, "weight_global_scale", m->global_scale, IN_FILE(F32), 1, one);
    return sound;
}

/* ---- Scales ------------------------------------------------------------------------------------------------------ */

float audit_scale_number(const struct st_tensor *t, size_t i)
{
    return (float)stored_scale_number(t->data, t->dtype, i);
}

/* Counts the numbers of a type whose bits, under `mask`, are below `low` or above `high`: no scale, that is, 0,
 * negative, infinite or NaN. The bits of positive numbers have the order of the numbers. Blocks without any are passed
 * over quickly. */
#define COUNT_OUTSIDE(type, mask, low, high)                                                                           \
    do {                                                                                                               \
        enum { BLOCK = 4096 };                                                                                         \
        const unsigned char *data = t->data;                                                                           \
        for (size_t from = 0; from < count; from += BLOCK) {                                                           \
            const size_t end = count - from < BLOCK ? count : from + BLOCK;                                            \
            type any = 0, bits;                                                                                        \
            for (size_t i = from; i < end; i++) {                                                                      \
                memcpy(&bits, data + i * sizeof bits, sizeof bits);                                                    \
                any |= (type)((type)((bits & (mask)) - (low)) > (type)((high) - (low)));                               \
            }                                                                                                          \
            for (size_t i = from; any && i < end; i++) {                                                               \
                memcpy(&bits, data + i * sizeof bits, sizeof bits);                                                    \
                if ((type)((bits & (mask)) - (low)) > (type)((high) - (low)) && wrong++ == 0)                          \
                    *first = i;                                                                                        \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

size_t audit_count_wrong(const struct st_tensor *t, size_t count, bool with_sign, size_t *first)
{
    size_t wrong = 0;
    *first = 0;
    if (t->dtype == FILE_U8)
        COUNT_OUTSIDE(uint8_t, 0xff, 0, 0xfe);
    else if (t->dtype == FILE_F8_E4M3)
        COUNT_OUTSIDE(uint8_t, with_sign ? 0x7f : 0xff, 1, 0x7e);
    else if (t->dtype == FILE_F32)
        COUNT_OUTSIDE(uint32_t, with_sign ? 0x7fffffff : 0xffffffff, 1, 0x7f7fffff);
    else
        COUNT_OUTSIDE(uint16_t, with_sign ? 0x7fff : 0xffff, 1, t->dtype == FILE_BF16 ? 0x7f7f : 0x7bff);
    return wrong;
}

size_t audit_element_count(const struct st_tensor *t)
{
    size_t count = 1;
    for (int d = 0; d < t->ndim; d++)
        count *= (size_t)t->shape[d];
    return count;
}

/* False for observers that are not those of this library. */
static bool has_signed_scales(const struct quant_args *args)
{
    qobs_config_needs needs = {.struct_size = sizeof needs};
    struct fail unused = {0};
    OWNED_CONFIG qobs_config *config = NULL;
    return quant_args_config(args, quant_release_of(QOBS_COMPAT_VLLM)->observers, &config, &unused) == QOBS_OK &&
           qobs_config_get_needs(config, &needs, NULL) == QOBS_OK && needs.signed_scale;
}

/* Reports the scales of weights that are no scales. Every runtime multiplies codes and scales, so that a negative scale
 * is right; but who does not search for it writes it by mistake. The setting in config.json says who does. AutoRound
 * names no observer, and about half of the scales of its integers are negative. */
static void check_scales(struct audit *audit, const struct audit_module *m)
{
    size_t first;
    const struct quant_args *a = &m->group->weights;
    bool with_sign = has_signed_scales(a);
    const size_t count = audit_element_count(m->scale);
    size_t wrong = audit_count_wrong(m->scale, count, with_sign, &first);
    if (!with_sign && wrong > count / 4 && a->type == QUANT_INT && !a->observer) {
        with_sign = true;
        wrong = audit_count_wrong(m->scale, count, with_sign, &first);
    }
    if (wrong > 0)
        audit_find(audit, m, "%zu of %zu scales are not %s and finite; the first, %zu, is %g", wrong, count,
                   with_sign ? "other than 0" : "above 0", first, (double)audit_scale_number(m->scale, first));
}

static float *read_scales(const struct audit_module *m)
{
    const size_t count = audit_element_count(m->scale);
    float *scales = malloc((count + 1) * sizeof *scales);
    for (size_t i = 0; scales && i < count; i++)
        scales[i] = audit_scale_number(m->scale, i);
    return scales;
}

/* ---- Codes ------------------------------------------------------------------------------------------------------- */

struct audit_values {
    float *scales;
    signed char *zero_points; /* NULL: none */
    float global_scale;
    qobs_config *config;
    unsigned char *codes; /* of some rows */
    void *numbers, *rows; /* dequantized and original, in the dtype of the original */
    int64_t unit, count;  /* rows that cannot be separated; rows at a time */
    int64_t unit_qparams;
    const struct weight *original; /* NULL: none */
    bool borrowed;                 /* the original */
};

static int unpack(const struct audit_module *m, int64_t first, int64_t rows, unsigned char *codes)
{
    const struct quant_args *a = &m->group->weights;
    const size_t row = (size_t)((m->codes->end - m->codes->begin) / (uint64_t)m->rows);
    const unsigned char *from = (const unsigned char *)m->codes->data + row * (size_t)first;
    const struct quant_format_row *format = quant_format_row(m->group->format);
    if (!format->word) {
        bus_errors_copy(codes, from, row * (size_t)rows);
        return QOBS_OK;
    }
    const qobs_pack_args args =
        quant_pack_args(format, a->num_bits, 1, rows, m->columns, codes, from, row * (size_t)rows);
    RETURN_IF_NOT_OK(mapped_borrow(from, row * (size_t)rows, NULL));
    const int status = qobs_unpack(&args, NULL);
    mapped_release(from, row * (size_t)rows);
    return status;
}

/* Raises m->use.used to the largest magnitude of the codes. */
static void measure_codes(struct audit_module *m, const unsigned char *codes, size_t n)
{
    const struct quant_args *a = &m->group->weights;
    const int mask = (1 << (a->num_bits - 1)) - 1;
    const char *grid = quant_grid(a);
    m->use.range =
        mask - (grid && isnan(qobs_format_decode(qobs_format_find(grid), (uint32_t)mask))); /* e4m3 ends with NaN */
    for (size_t i = 0; i < n; i++) {
        const int value = a->type == QUANT_INT ? abs((signed char)codes[i]) : codes[i] & mask;
        m->use.used = value > m->use.used && value <= m->use.range + 1 ? value : m->use.used;
    }
}

/* The numbers of the rows are used up: their memory takes codes. Columns in another order are not compared. */
static int count_nearest(struct audit *audit, struct audit_module *m, const struct audit_values *v,
                         const qobs_dequantize_args *stored, const qobs_tensor *original)
{
    const struct quant_args *a = &m->group->weights;
    const char *grid = quant_grid(a);
    const int64_t width = a->strategy == QUANT_BLOCK ? a->block_structure[1]
                          : v->unit_qparams > 1      ? a->group_size
                                                     : m->columns;
    const struct nearest_rows rows = {.args = a,
                                      .grid = grid ? qobs_format_find(grid) : NULL,
                                      .stored = stored,
                                      .original = original,
                                      .block = {v->unit, width},
                                      .block_qparams = v->unit_qparams,
                                      .codes = v->numbers};
    qobs_error error = {0};
    if (audit_part(audit, m, "weight_g_idx"))
        return 0;
    m->difference.codes += (uint64_t)(original->shape[0] * original->shape[1]);
    if (nearest_codes_count(&rows, &m->difference.further, &error) == QOBS_OK)
        return 0;
    audit_find(audit, m, "cannot be compared: %s", error.message);
    return -1;
}

static int compare_rows(struct audit *audit, struct audit_module *m, const struct audit_values *v, int64_t first,
                        int64_t rows)
{
    const int64_t shape[2] = {rows, m->columns}, qparams = (rows + v->unit - 1) / v->unit * v->unit_qparams;
    const int64_t at = v->unit == m->rows ? 0 : first / v->unit * v->unit_qparams;
    const qobs_dtype dtype = dtype_in_library(v->original->dtype);
    const qobs_tensor codes = {
        .struct_size = sizeof codes, .data = v->codes, .dtype = QOBS_I8, .ndim = 2, .shape = shape};
    const qobs_tensor scale = tensor_of_array(v->scales + at, QOBS_F32, &qparams);
    const qobs_tensor zero_point = tensor_of_array(v->zero_points ? v->zero_points + at : NULL, QOBS_I8, &qparams);
    const size_t count = (size_t)(rows * m->columns);
    const qobs_dequantize_args args = {.struct_size = sizeof args,
                                       .config = v->config,
                                       .codes = &codes,
                                       .scale = &scale,
                                       .zero_point = v->zero_points ? &zero_point : NULL,
                                       .global_scale = m->global_scale ? &v->global_scale : NULL,
                                       .out = v->numbers,
                                       .out_size = count * qobs_dtype_size(dtype),
                                       .dtype = dtype};
    qobs_error error = {0};
    if (qobs_dequantize(&args, &error) != QOBS_OK) {
        audit_find(audit, m, "cannot be dequantized: %s", error.message);
        return -1;
    }
    if (!weight_read_rows(v->original, first, rows, v->rows)) {
        audit_find(audit, m, "cannot be compared: the file of the original became shorter while it was read");
        return -1;
    }
    const qobs_tensor original = {sizeof original, v->rows, dtype, 2, shape, NULL};
    const qobs_tensor dequantized = {sizeof dequantized, v->numbers, dtype, 2, shape, NULL};
    double squared_error, energy;
    if (qobs_measure_error(&original, &dequantized, &squared_error, &energy, &error) != QOBS_OK) {
        audit_find(audit, m, "cannot be compared: %s", error.message);
        return -1;
    }
    m->difference.error += squared_error;
    m->difference.energy += energy;
    return count_nearest(audit, m, v, &args, &original);
}

const struct weight *audit_original_of(struct audit *audit, const struct audit_module *m)
{
    char name[1024];
    if (!audit->args->against || (size_t)snprintf(name, sizeof name, "%s.weight", m->name) >= sizeof name)
        return NULL;
    const struct weight *w = NULL;
    for (int layout = 0; layout < 2; layout++) {
        const struct weight *found = weights_find(&audit->originals[layout], name);
        w = found ? found : w;
        if (found && found->ndim == 2 && found->shape[0] == m->rows && found->shape[1] == m->columns)
            return found;
    }
    audit_find(audit, m, "%s", w ? "has another shape than the original" : "is not in the original");
    return NULL;
}

/* Reads the zero points as signed bytes. e4m3 zero points are not compared. */
static bool read_zero_points(const struct audit_module *m, size_t count, struct audit_values *v)
{
    const struct group_storage s = group_storage(m->group, CONTENTS_MODEL);
    if (!s.zero_point_dtype)
        return true;
    if (s.zero_point_dtype == FILE_F8_E4M3 || !(v->zero_points = malloc(count + 1)))
        return false;
    if (!s.packed_zero_points) {
        memcpy(v->zero_points, m->zero_point->data, count);
        return true;
    }
    const qobs_pack_args args =
        quant_pack_args(s.format, m->group->weights.num_bits, 0, m->rows, (int64_t)count / m->rows, v->zero_points,
                        m->zero_point->data, m->zero_point->end - m->zero_point->begin);
    return qobs_unpack(&args, NULL) == QOBS_OK;
}

static bool open_values(struct audit *audit, const struct audit_module *m, struct audit_values *v)
{
    enum { ELEMENTS = 1 << 18 };
    const struct quant_args *a = &m->group->weights;
    char settings[900], text[1000];
    int64_t shape[2];
    struct fail f;
    const int64_t matrix[2] = {m->rows, m->columns};
    const int ndim = scale_shape(a, matrix, shape);
    v->unit = ndim == 1 ? m->rows : a->strategy == QUANT_BLOCK ? a->block_structure[0] : 1;
    v->unit_qparams = ndim == 1 ? 1 : shape[1];
    const int64_t unit = ndim == 1 ? 1 : v->unit, rows = ELEMENTS / m->columns / unit * unit;
    v->count = rows > 0 ? rows : unit;
    v->scales = read_scales(m);
    v->original = audit_original_of(audit, m);
    if (m->global_scale)
        bus_errors_copy(&v->global_scale, m->global_scale->data, sizeof v->global_scale);
    if (audit->maker) /* it multiplies there */
        v->global_scale = 1 / v->global_scale;
    if (v->original && !read_zero_points(m, audit_element_count(m->scale), v))
        v->original = NULL;
    v->codes = malloc((size_t)(v->count * m->columns) + 1);
    v->numbers = malloc((size_t)(v->count * m->columns) * 4 + 1);
    v->rows = malloc((size_t)(v->count * m->columns) * 4 + 1);
    struct quant_args plain = *a;
    plain.observer_kwargs = NULL;
    if (!v->scales || !v->codes || !v->numbers || !v->rows ||
        quant_args_settings(&plain, settings, sizeof settings, &f) != 0)
        return false;
    if (v->original && weight_borrow(v->original, &f) != QOBS_OK)
        return false;
    v->borrowed = v->original != NULL;
    snprintf(text, sizeof text, "llmc.memoryless_minmax %s", settings);
    return qobs_config_parse(&v->config, text, NULL, NULL) == QOBS_OK;
}

/* Returns true if a scale could not be smaller: powers of two end at 2^-127. */
static bool is_smallest(const struct audit_module *m)
{
    const size_t count = m->scale->dtype == FILE_U8 ? audit_element_count(m->scale) : 0;
    return count > 0 && memchr(m->scale->data, 0, count) != NULL;
}

/* Returns false and reports a global scale that is none; nothing can be dequantized with it. */
static bool check_global_scale(struct audit *audit, const struct audit_module *m)
{
    float number = 1;
    if (m->global_scale)
        bus_errors_copy(&number, m->global_scale->data, sizeof number);
    if (number > 0 && isfinite(number))
        return true;
    audit_find(audit, m, "the global scale is %g", (double)number);
    return false;
}

/* Codes to nearest are never worse than zeros. */
void audit_check_error(struct audit *audit, const struct audit_module *m)
{
    enum { ALL = 9999 }; /* hundredths of a percent */
    if (!m->difference.known || !isfinite(m->difference.energy) || m->difference.energy == 0)
        return;
    if (!isfinite(m->difference.error))
        audit_find(audit, m, "its error against the original is not finite: scales times codes are too large");
    else if (sqrt(m->difference.error / m->difference.energy) * 10000 >= ALL)
        audit_find(audit, m, "its error against the original is %.4g %%, which zeros do not exceed",
                   100 * sqrt(m->difference.error / m->difference.energy));
}

static void free_values(struct audit_values *v)
{
    if (v->borrowed)
        weight_release(v->original);
    qobs_config_destroy(v->config);
    free(v->scales);
    free(v->zero_points);
    free(v->codes);
    free(v->numbers);
    free(v->rows);
}

static void check_values(struct audit *audit, struct audit_module *m)
{
    struct audit_values v = {0};
    const bool divides = check_global_scale(audit, m);
    check_scales(audit, m);
    if (audit->is_output)
        return;
    bool good = open_values(audit, m, &v);
    if (!good)
        audit->failed = true;
    for (int64_t first = 0; good && first < m->rows; first += v.count) {
        const int64_t rows = m->rows - first < v.count ? m->rows - first : v.count;
        good = unpack(m, first, rows, v.codes) == QOBS_OK;
        if (good) {
            measure_codes(m, v.codes, (size_t)(rows * m->columns));
            audit_see_codes(m, v.codes, (size_t)(rows * m->columns));
        }
        if (good && v.original && divides)
            m->difference.known = good = compare_rows(audit, m, &v, first, rows) == 0;
    }
    audit_see_scales(m);
    audit_check_error(audit, m);
    if (good)
        audit_check_constant(audit, m);
    if (good && m->use.used > 0 && 2 * m->use.used < m->use.range && !is_smallest(m)) /* zeros have codes of zero */
        audit_find(audit, m, "the largest magnitude of its codes is %d of %d", m->use.used, m->use.range);
    free_values(&v);
}

void audit_check_module(void *argument, size_t index)
{
    struct audit *audit = argument;
    struct audit_module *m = &audit->modules[index];
    m->sound = check_parts(audit, m);
    if (!m->sound)
        return;
    if (st_borrow(m->scale, NULL) != QOBS_OK || st_borrow(m->zero_point, NULL) != QOBS_OK) {
        audit->failed = true;
        return;
    }
    check_values(audit, m);
    st_release(m->scale);
    st_release(m->zero_point);
}
