/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Fake-quantizes tensors with the qparams of an observer, and compares. */
#include "show/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "program.h"
#include "qobs/stateless.h"

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

static double element(const qobs_tensor *t, int64_t offset)
{
    return number_at((const unsigned char *)t->data + offset, t->dtype);
}

/* True if the tensor has C order without gaps. */
static bool is_contiguous(const qobs_tensor *t)
{
    int64_t stride = (int64_t)qobs_dtype_size(t->dtype);
    for (int d = t->ndim - 1; t->strides && d >= 0; d--) {
        if (t->shape[d] > 1 && t->strides[d] != stride)
            return false;
        stride *= t->shape[d];
    }
    return true;
}

static int64_t columns_of(const qobs_tensor *t) { return t->ndim > 0 ? t->shape[t->ndim - 1] : 1; }

int column_weights_make(struct column_weights *w, const struct chart_source *s)
{
    int64_t rows = 0;
    if (s->importance_count == 0)
        return EXIT_OK;
    w->count = columns_of(&s->importance[0]);
    w->items = calloc((size_t)w->count + 1, sizeof *w->items);
    if (!w->items)
        return print_error(EXIT_SYSTEM, "no memory for %lld weights", (long long)w->count);
    for (size_t i = 0; i < s->count; i++)
        if (columns_of(&s->tensors[i]) != w->count || !is_contiguous(&s->tensors[i]))
            return print_error(EXIT_USAGE, "--importance: has %lld columns, %s has %lld", (long long)w->count,
                               s->names[i], (long long)columns_of(&s->tensors[i]));
    for (size_t i = 0; i < s->importance_count; i++) {
        const qobs_tensor *t = &s->importance[i];
        if (columns_of(t) != w->count || !is_contiguous(t) || t->dtype > QOBS_F64)
            return print_error(EXIT_USAGE, "--importance: tensors need %lld columns, in C order and floating point",
                               (long long)w->count);
        for (int64_t k = 0; k < elements_of(t); k++) {
            const double x = element(t, k * (int64_t)qobs_dtype_size(t->dtype));
            w->items[k % w->count] += x * x;
        }
        rows += w->count > 0 ? elements_of(t) / w->count : 0;
    }
    for (int64_t k = 0; k < w->count; k++)
        w->items[k] = rows > 0 ? w->items[k] / (double)rows : 0;
    return EXIT_OK;
}

void column_weights_free(struct column_weights *w)
{
    free(w->items);
    *w = (struct column_weights){0};
}

/* ---- Qparams ----------------------------------------------------------------------------------------------------- */

/* Scales, zero points and global scale as tensors. */
struct qparams {
    qobs_tensor scale, zero_point;
    int64_t count;
    float *own; /* scales that the observer leaves to its user; NULL: it has them */
    float global_scale;
    bool has_zero_points, has_global_scale;
    const qobs_format *format; /* NULL: that of the configuration */
};

static qobs_tensor flat(const struct result *r, int64_t *count)
{
    *count = (int64_t)(r->size / qobs_dtype_size(r->dtype));
    return tensor_of_array(r->data, r->dtype, count);
}

/* Calibrators that give an amax have the scale amax / largest number. Returns false if there is no memory. */
static bool scales_of_amax(struct qparams *q, const struct result *amax, const qobs_format *format)
{
    q->count = (int64_t)(amax->size / qobs_dtype_size(amax->dtype));
    q->own = malloc(((size_t)q->count + 1) * sizeof *q->own);
    for (int64_t i = 0; q->own && i < q->count; i++)
        q->own[i] = (float)(result_value(amax, (size_t)i) / qobs_format_max(format));
    q->scale = tensor_of_array(q->own, QOBS_F32, &q->count);
    return q->own != NULL;
}

/* Returns false if the results give no scale. */
static bool find_qparams(struct qparams *q, const qobs_config *config, const struct results *results, int *code)
{
    const struct result *scale = result_named(results, "scale"), *zero_point = result_named(results, "zero_point");
    const struct result *global = result_named(results, "global_scale"), *amax = result_named(results, "amax");
    const char *preset = qobs_config_preset(config);
    const qobs_format *format = grid_format(config);
    const bool own_format =
        strncmp(preset, "llmc.", 5) == 0 || strncmp(preset, "qobs.", 5) == 0 || strncmp(preset, "torch.", 6) == 0;
    q->format = own_format ? NULL : format;
    if (!own_format && !format)
        return false;
    if (scale) {
        q->scale = flat(scale, &q->count);
    } else if (amax && format) {
        if (!scales_of_amax(q, amax, format)) {
            *code = print_error(EXIT_SYSTEM, "no memory for %lld scales", (long long)q->count);
            return false;
        }
    } else {
        return false;
    }
    q->has_zero_points =
        scale && zero_point && zero_point->size / qobs_dtype_size(zero_point->dtype) == (size_t)q->count;
    if (q->has_zero_points)
        q->zero_point = flat(zero_point, &q->count);
    q->has_global_scale = global && result_value(global, 0) > 0;
    q->global_scale = q->has_global_scale ? (float)result_value(global, 0) : 1;
    return true;
}

static double qparam(const qobs_tensor *t, int64_t i) { return element(t, i * (int64_t)qobs_dtype_size(t->dtype)); }

static void set_scales(struct compared *c, const struct chart_source *s, const struct qparams *q)
{
    const int64_t first = s->qparam >= 0 ? s->qparam : 0, end = s->qparam >= 0 ? s->qparam + 1 : q->count;
    const int64_t widest = (int64_t)c->chart.widest_index;
    for (int64_t i = first; i < end && i < q->count; i++) {
        const double scale = qparam(&q->scale, i) / (double)q->global_scale;
        c->min_scale = i == first ? scale : fmin(c->min_scale, scale);
        c->max_scale = i == first ? scale : fmax(c->max_scale, scale);
    }
    if (widest < q->count)
        c->level_count = grid_levels(c->config, qparam(&q->scale, widest) / (double)q->global_scale,
                                     q->has_zero_points ? qparam(&q->zero_point, widest) : 0, c->levels);
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

static void add_run(struct compared *c, const qobs_tensor *t, const qobs_tensor *quantized, const qobs_run *run,
                    const struct column_weights *w)
{
    const int64_t size = (int64_t)qobs_dtype_size(t->dtype);
    for (int64_t k = 0; k < run->length; k++) {
        const int64_t offset = run->offset + k * run->stride;
        const double x = element(t, offset), e = element(quantized, offset) - x;
        if (!isfinite(x))
            continue;
        c->squared_error += e * e;
        c->energy += x * x;
        if (w->items) {
            c->weighted_error += w->items[offset / size % w->count] * e * e;
            c->weighted_energy += w->items[offset / size % w->count] * x * x;
        }
    }
}

/* Adds the errors of one tensor. Returns EXIT_OK and makes the error NaN if the library cannot quantize so. */
static int add_errors(struct compared *c, const struct chart_source *s, const qobs_tensor *t, const char *name,
                      const struct qparams *q, const struct column_weights *w)
{
    const size_t bytes = (size_t)elements_of(t) * qobs_dtype_size(t->dtype);
    qobs_tensor quantized = *t;
    OWNED_PLAN qobs_plan *plan = NULL;
    qobs_error error;
    OWNED void *out = malloc(bytes + 1);
    if (!out)
        return print_error(EXIT_SYSTEM, "no memory for %zu bytes", bytes);
    quantized.data = out;
    const qobs_fake_quantize_args args = {.struct_size = sizeof args,
                                          .config = s->config,
                                          .format = q->format,
                                          .value = t,
                                          .scale = &q->scale,
                                          .zero_point = q->has_zero_points ? &q->zero_point : NULL,
                                          .global_scale = q->has_global_scale ? &q->global_scale : NULL,
                                          .out = out,
                                          .out_strides = t->strides,
                                          .out_size = bytes,
                                          .runtime = s->runtime};
    if (qobs_fake_quantize(&args, &error) != QOBS_OK) {
        c->squared_error = (double)NAN;
        return EXIT_OK;
    }
    if (qobs_plan_create(&plan, s->config, t, NULL, s->runtime, &error) != QOBS_OK)
        return print_status_error(&error, name);
    for (int64_t i = 0; i < qobs_plan_run_count(plan); i++) {
        qobs_run run;
        if (qobs_plan_run(plan, i, &run, NULL) == QOBS_OK && run.offset != QOBS_PADDING &&
            (s->qparam < 0 || run.qparam == s->qparam))
            add_run(c, t, &quantized, &run, w);
    }
    return EXIT_OK;
}

int measure_candidate(struct compared *c, const struct column_weights *w)
{
    const struct chart_source *s = &c->source;
    struct qparams q = {0};
    int code = EXIT_OK;
    c->min_scale = c->max_scale = (double)NAN;
    c->squared_error = c->energy = c->weighted_error = c->weighted_energy = 0;
    if (find_qparams(&q, s->config, &c->results, &code)) {
        set_scales(c, s, &q);
        for (size_t i = 0; code == EXIT_OK && i < s->count; i++)
            code = add_errors(c, s, &s->tensors[i], s->names[i], &q, w);
    }
    free(q.own);
    return code;
}
