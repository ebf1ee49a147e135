/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observes with each candidate, quantizes with its qparams, and adds up the errors in double. */
#include "show/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/status.h"
#include "files/text.h"
#include "program.h"

/* ---- Candidates -------------------------------------------------------------------------------------------------- */

/* Returns the length of the first item of a list: commas within brackets belong to values. */
static size_t item_length(const char *list)
{
    size_t n = 0;
    for (int depth = 0; list[n] && (list[n] != ',' || depth > 0); n++)
        depth += (list[n] == '[') - (list[n] == ']');
    return n;
}

/* Creates the configuration of "NAME [KEY=VALUE]...". */
static int parse_candidate(struct compared *candidate, const char *text, size_t length)
{
    OWNED char *copy = strndup(text, length);
    char *name = copy;
    qobs_error error;
    if (!copy)
        return print_error(EXIT_SYSTEM, "no memory");
    name += strspn(name, " ");
    const size_t end = strcspn(name, " ");
    char *settings = name[end] ? name + end + 1 : name + end;
    name[end] = '\0';
    if (qobs_config_create(&candidate->config, name, NULL, &error) != QOBS_OK)
        return print_preset_error(&error, "--compare", name);
    return qobs_config_set_all(candidate->config, settings, &error) == QOBS_OK
               ? EXIT_OK
               : print_status_error(&error, "--compare");
}

/* Applies --set to the candidates that have the setting. One must have it. */
static int apply_setting(struct comparison *c, const char *assignment)
{
    char key[64];
    bool known = false;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(assignment, "="), assignment);
    for (size_t i = 0; i < c->count; i++) {
        struct compared *candidate = &c->items[i];
        if (!config_has(candidate->config, key)) {
            text_append(candidate->lacks, sizeof candidate->lacks, "%s%s", *candidate->lacks ? ", " : "", key);
            continue;
        }
        known = true;
        if (set_option(candidate->config, assignment) != EXIT_OK)
            return EXIT_USAGE;
    }
    return known ? EXIT_OK : set_option(c->items[0].config, assignment); /* says what is wrong */
}

static int make_candidates(struct comparison *c, const struct compare_request *request)
{
    qobs_error error;
    for (const char *text = request->presets; *text;) {
        const size_t length = item_length(text);
        if (c->count == MAX_CANDIDATES)
            return print_error(EXIT_USAGE, "--compare: names more than %d observers", MAX_CANDIDATES);
        RETURN_IF_NOT_OK(parse_candidate(&c->items[c->count++], text, length));
        text += length + (text[length] == ',');
    }
    if (c->count == 0)
        return print_error(EXIT_USAGE, "--compare: names no observer");
    for (size_t i = 0; i < request->setting_count; i++)
        RETURN_IF_NOT_OK(apply_setting(c, request->settings[i]));
    for (size_t i = 0; i < c->count; i++) {
        struct compared *candidate = &c->items[i];
        if (request->base && qobs_config_set(candidate->config, "base_name", request->base, &error) != QOBS_OK)
            return print_status_error(&error, "--base-name");
        candidate->name = config_text(candidate->config);
        if (!candidate->name)
            return print_error(EXIT_SYSTEM, "no memory");
    }
    return EXIT_OK;
}

/* ---- Measures ---------------------------------------------------------------------------------------------------- */

static void include(struct span *sum, const struct span *span)
{
    if (!(sum->low < sum->high))
        *sum = *span;
    sum->low = fmin(sum->low, span->low);
    sum->high = fmax(sum->high, span->high);
}

static int observe_all(struct comparison *c, const struct compare_request *request, struct span *all)
{
    for (size_t i = 0; i < c->count; i++) {
        struct compared *o = &c->items[i];
        o->source = *request->source;
        o->source.config = o->config;
        RETURN_IF_NOT_OK(spans_observe(&o->spans, &o->results, &o->source));
        if (o->source.qparam >= (int64_t)o->spans.count)
            return print_error(EXIT_USAGE, "--qparam: is %lld, %s has %zu", (long long)o->source.qparam, o->name,
                               o->spans.count);
        for (size_t k = 0; k < o->spans.count; k++)
            if (o->source.qparam < 0 || o->source.qparam == (int64_t)k)
                include(all, &o->spans.items[k]);
    }
    return EXIT_OK;
}

int compare_make(struct comparison *c, const struct compare_request *request)
{
    RELEASED_BY(column_weights_free) struct column_weights weights = {0};
    struct span all = {0};
    RETURN_IF_NOT_OK(make_candidates(c, request));
    c->weighted = request->source->importance_count > 0;
    RETURN_IF_NOT_OK(column_weights_make(&weights, request->source));
    RETURN_IF_NOT_OK(observe_all(c, request, &all));
    for (size_t i = 0; i < c->count; i++) {
        struct compared *candidate = &c->items[i];
        candidate->chart = request->chart;
        candidate->chart.preset = qobs_config_preset(candidate->config);
        candidate->chart.whole_axis = true;
        candidate->chart.include = all;
        RETURN_IF_NOT_OK(chart_make(&candidate->chart, &candidate->source, &candidate->spans));
        RETURN_IF_NOT_OK(measure_candidate(candidate, &weights));
    }
    return EXIT_OK;
}

void compare_free(struct comparison *c)
{
    for (size_t i = 0; i < c->count; i++) {
        spans_free(&c->items[i].spans);
        results_free(&c->items[i].results);
        chart_free(&c->items[i].chart);
        qobs_config_destroy(c->items[i].config);
        free(c->items[i].name);
    }
}

double compare_error(const struct compared *candidate)
{
    return candidate->energy > 0 ? sqrt(candidate->squared_error / candidate->energy) : (double)NAN;
}

double compare_weighted_error(const struct compared *candidate)
{
    return candidate->weighted_energy > 0 ? sqrt(candidate->weighted_error / candidate->weighted_energy) : (double)NAN;
}

/* ---- Table ------------------------------------------------------------------------------------------------------- */

const char *const compare_headings[COMPARE_COLUMNS] = {"range", "scale", "clipped", "error", "weighted"};

int compare_columns(const struct comparison *c) { return COMPARE_COLUMNS - !c->weighted; }

static void percent_text(double share, char text[COMPARE_TEXT])
{
    if (isnan(share))
        snprintf(text, COMPARE_TEXT, "-");
    else
        snprintf(text, COMPARE_TEXT, "%.3g %%", 100 * share);
}

void compare_texts(const struct compared *candidate, char texts[COMPARE_COLUMNS][COMPARE_TEXT])
{
    const struct chart *chart = &candidate->chart;
    snprintf(texts[0], COMPARE_TEXT, "%.4g to %.4g", chart->widest.low, chart->widest.high);
    if (isnan(candidate->max_scale))
        snprintf(texts[1], COMPARE_TEXT, "-");
    else if (candidate->min_scale == candidate->max_scale)
        snprintf(texts[1], COMPARE_TEXT, "%.4g", candidate->max_scale);
    else
        snprintf(texts[1], COMPARE_TEXT, "%.3g to %.3g", candidate->min_scale, candidate->max_scale);
    percent_text(chart_clipped(chart), texts[2]);
    percent_text(compare_error(candidate), texts[3]);
    percent_text(compare_weighted_error(candidate), texts[4]);
}
