/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observes tensors and finds the range of each qparam in the results. */
#include "show/spans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files/status.h"
#include "program.h"
#include "qobs/format.h"

/* ---- Ranges ------------------------------------------------------------------------------------------------------ */

/* Returns the range that quantization covers. It is symmetric for symmetric settings and includes 0 otherwise. */
static struct span effective_span(const qobs_config *config, double low, double high)
{
    char qscheme[64] = "";
    qobs_config_get(config, "qscheme", qscheme, sizeof qscheme, NULL);
    const double magnitude = fmax(fabs(low), fabs(high));
    if (config_is(config, "symmetric", "true") || strstr(qscheme, "symmetric"))
        return (struct span){-magnitude, magnitude};
    return (struct span){fmin(low, 0), fmax(high, 0)};
}

/* Returns the number format if the scales are powers of two. NULL: the scales follow the range. */
static const qobs_format *power_of_two_format(const qobs_config *config, const char *preset)
{
    char name[64] = "null";
    if (config_is(config, "scale_dtype", "uint8"))
        return qobs_format_find(config_is(config, "num_bits", "4")   ? "fp4_e2m1"
                                : config_is(config, "num_bits", "6") ? "fp6_e2m3"
                                                                     : "fp8_e4m3");
    if (!strstr(preset, "PowOf2") && !config_is(config, "scale_format", "e8m0"))
        return NULL;
    qobs_config_get(config, "mx_element_dtype", name, sizeof name, NULL);
    if (strcmp(name, "null") == 0)
        qobs_config_get(config, "dtype", name, sizeof name, NULL);
    return qobs_format_find(strcmp(name, "null") != 0 ? name : strstr(preset, "PowOf2") ? "int8" : "fp4");
}

/* Replaces the ranges with those that the number format covers under the observed scales. */
static void spans_from_format(struct spans *spans, const struct results *results, const qobs_format *format)
{
    const struct result *scale = result_named(results, "scale"), *zero_point = result_named(results, "zero_point");
    const struct result *global = result_named(results, "global_scale");
    const double divisor = global && result_value(global, 0) > 0 ? result_value(global, 0) : 1;
    if (!scale || scale->size / qobs_dtype_size(scale->dtype) != spans->count)
        return;
    for (size_t i = 0; i < spans->count; i++) {
        const double s = result_value(scale, i) / divisor, z = zero_point ? result_value(zero_point, i) : 0;
        const double low = (qobs_format_min(format) - z) * s, high = (qobs_format_max(format) - z) * s;
        spans->items[i] = (struct span){fmin(low, high), fmax(low, high)}; /* a scale may be negative */
    }
}

/* Takes the range that a range rule found, or else the observed extrema. For power-of-two scales it is the range of
 * the number format. */
static int choose_spans(struct spans *spans, const struct results *results, const qobs_config *config,
                        const char *preset)
{
    static const char *const bounds[][2] = {{"new_min", "new_max"},
                                            {"min_vals", "max_vals"},
                                            {"min_val", "max_val"},
                                            {"min_val[default]", "max_val[default]"}};
    const struct result *low = NULL, *high = NULL, *amax = result_named(results, "amax");
    for (size_t i = 0; !low && i < sizeof bounds / sizeof *bounds; i++) {
        low = result_named(results, bounds[i][0]);
        high = result_named(results, bounds[i][1]);
    }
    const struct result *any = low ? low : amax, *scale = result_named(results, "scale");
    const qobs_format *format = power_of_two_format(config, preset);
    const qobs_format *grid = grid_format(config);
    if (config_searches_scale(config) && scale && grid) { /* the scale was searched, not a range */
        any = scale;
        format = grid;
    }
    if (!any)
        return print_error(EXIT_USAGE, "%s: has no range that could be shown", preset);
    spans->count = any->size / qobs_dtype_size(any->dtype);
    spans->items = calloc(spans->count ? spans->count : 1, sizeof *spans->items);
    if (!spans->items)
        return print_error(EXIT_SYSTEM, "no memory for %zu ranges", spans->count);
    for (size_t i = 0; i < spans->count; i++) {
        const double magnitude = amax && !low ? result_value(amax, i) : 0;
        if (low && !(result_value(low, i) <= result_value(high, i)))
            return print_error(EXIT_USAGE, "%s: has chosen no range", preset);
        spans->items[i] = low ? effective_span(config, result_value(low, i), result_value(high, i))
                              : (struct span){config_is(config, "unsigned", "true") ? 0 : -magnitude, magnitude};
    }
    if (format)
        spans_from_format(spans, results, format);
    return EXIT_OK;
}

void plan_release(qobs_plan **plan) { qobs_plan_destroy(*plan); }

int64_t elements_of(const qobs_tensor *t)
{
    int64_t elements = 1;
    for (int d = 0; d < t->ndim; d++)
        elements *= t->shape[d];
    return elements;
}

static bool is_empty(const struct chart_source *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (elements_of(&s->tensors[i]) > 0)
            return false;
    return true;
}

int spans_observe(struct spans *spans, struct results *results, const struct chart_source *s)
{
    const char *preset = qobs_config_preset(s->config);
    OWNED_OBSERVER qobs_observer *observer = NULL;
    qobs_error error;
    if (is_empty(s))
        return print_error(EXIT_USAGE, "the tensors have no elements: there is nothing to show");
    if (qobs_observer_create(&observer, s->config, s->runtime, &error) != QOBS_OK)
        return print_status_error(&error, NULL);
    for (size_t i = 0; config_weighs_columns(s->config) && i < s->importance_count; i++)
        if (qobs_observer_observe_importance(observer, &s->importance[i], &error) != QOBS_OK)
            return print_status_error(&error, "--importance");
    for (size_t i = 0; i < s->count; i++)
        if (qobs_observer_observe(observer, &s->tensors[i], NULL, &error) != QOBS_OK)
            return print_status_error(&error, s->names[i]);
    warn_if_ignored(observer);
    RETURN_IF_NOT_OK(results_read(results, observer, ""));
    return choose_spans(spans, results, s->config, preset);
}

void spans_free(struct spans *spans)
{
    free(spans->items);
    *spans = (struct spans){0};
}
