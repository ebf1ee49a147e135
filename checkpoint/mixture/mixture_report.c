/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The report of a plan as JSON. */
#include <stdio.h>

#include "files/json.h"
#include "mixture/mixture.h"

/* The mean of both halves, or the half that has not chosen. */
static double predicted_kl(const struct mixture_cost *cost, bool chosen)
{
    return chosen ? cost->loss[1] : (cost->loss[0] + cost->loss[1]) / 2;
}

/* Adds bytes, the bits of an element of `elements`, the KL divergence and the error. */
static void put_cost(json_object *to, const struct mixture *p, const struct mixture_cost *cost, double elements,
                     bool chosen)
{
    json_put_count(to, "bytes", (uint64_t)cost->bytes);
    json_put(to, "bits", json_number(8 * cost->bytes / elements));
    json_put(to, "kl", p->unknown == 0 ? json_number(predicted_kl(cost, chosen)) : NULL);
    json_put(to, "error", json_number(cost->error));
}

static void put_module_name(json_object *to, const struct weight *w)
{
    json_put(to, "name", json_object_new_string_len(w->name, (int)w->module));
}

static void put_schemes(json_object *report, const struct mixture *p)
{
    json_object *schemes = json_put_array(report, "schemes");
    for (size_t k = 0; k < p->args->scheme_count; k++) {
        json_object *scheme = json_object_new_object();
        const struct mixture_cost total = mixture_total(p, k);
        json_put_text(scheme, "scheme", p->schemes[k].choice.scheme);
        put_cost(scheme, p, &total, p->elements, false);
        json_object *layers = json_put_array(scheme, "layers");
        for (size_t i = 0; i < p->module_count; i++) {
            const struct weight *w = p->modules[i].weight;
            const struct mixture_cost cost = mixture_cost_of(p, &p->modules[i], k);
            json_object *layer = json_object_new_object();
            put_module_name(layer, w);
            put_cost(layer, p, &cost, (double)w->shape[0] * (double)w->shape[1], false);
            json_append(layers, layer);
        }
        json_append(schemes, scheme);
    }
}

static void put_mixture(json_object *report, const struct mixture *p)
{
    const struct mixture_cost total = mixture_total(p, SIZE_MAX);
    json_object *mixture = json_put_object(report, "mixture");
    put_cost(mixture, p, &total, p->elements, true);
    json_put_bool(mixture, "optimal", p->optimal);
    json_object *layers = json_put_array(mixture, "layers");
    for (size_t i = 0; i < p->module_count; i++) {
        json_object *layer = json_object_new_object();
        put_module_name(layer, p->modules[i].weight);
        json_put_text(layer, "scheme", p->schemes[p->choice[p->modules[i].item]].choice.scheme);
        json_append(layers, layer);
    }
}

static void put_warnings(json_object *report, const struct mixture *p)
{
    char text[400];
    json_object *warnings = json_put_array(report, "warnings");
    for (size_t i = 0; i < p->args->scheme_count; i++)
        if (engine_lacks_importance(&p->schemes[i].engine, text, sizeof text)) {
            json_append_text(warnings, text);
            break; /* one preset serves all */
        }
    if (p->unknown == 0)
        return;
    snprintf(text, sizeof text,
             "no KL divergence is predicted: the states have no sensitivity of %zu of %zu modules, such as "
             "'%.*s'; " SENSITIVITY_WAY,
             p->unknown, p->module_count, (int)(p->first_unknown->module < 200 ? p->first_unknown->module : 200),
             p->first_unknown->name);
    json_append_text(warnings, text);
}

char *mixture_report(const struct mixture *p)
{
    json_object *report = json_report();
    json_put_text(report, "model", p->args->model);
    json_put_count(report, "elements", (uint64_t)p->elements);
    json_put_count(report, "modules", p->module_count);
    json_put(report, "prediction_limit", json_number(PREDICTION_LIMIT_NATS));
    json_put(report, "seconds", json_number(p->seconds));
    put_schemes(report, p);
    if (p->choice)
        put_mixture(report, p);
    put_warnings(report, p);
    quant_config_report_unused(&p->schemes[0].selection.config, report);
    char *text = json_print(report, JSON_INDENTED);
    json_object_put(report);
    return text;
}
