/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Builds the report as a cJSON tree. */
#include "quantize/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "model/names.h"

static cJSON *text_of(const char *text, size_t length)
{
    char *copy = strndup(text, length);
    cJSON *item = copy ? cJSON_CreateString(copy) : NULL;
    free(copy);
    return item;
}

static void add_layers(cJSON *layers, const struct quantize_run *run)
{
    for (size_t i = 0; i < run->job_count; i++) {
        const struct weight_job *job = &run->jobs[i];
        if (!job->plan || job->range_only)
            continue;
        cJSON *layer = cJSON_CreateObject();
        uint64_t bytes = 0;
        for (int part = 0; part < OUTPUT_PARTS; part++)
            if (run->layout.parts[job->index][part] != SIZE_MAX)
                bytes += run->layout.tensors[run->layout.parts[job->index][part]].bytes;
        cJSON_AddItemToObject(layer, "name", text_of(job->weight->name, job->weight->module));
        cJSON_AddStringToObject(layer, "group", job->plan->group->name);
        cJSON_AddStringToObject(layer, "format", quant_format_name(job->plan->group->format));
        if (job->weighted)
            cJSON_AddItemToObject(layer, "importance", cJSON_CreateBool(true));
        cJSON_AddItemToObject(layer, "bytes_before", cJSON_CreateNumber((double)job->weight->bytes));
        cJSON_AddItemToObject(layer, "bytes_after", cJSON_CreateNumber((double)bytes));
        cJSON_AddItemToObject(layer, "relative_error",
                              json_number(!isfinite(job->energy) ? (double)NAN
                                          : job->energy > 0      ? sqrt(job->error / job->energy)
                                                                 : 0));
        if (job->plan->optimal) {
            cJSON *search = cJSON_AddObjectToObject(layer, "search");
            cJSON_AddItemToObject(search, "error_before", json_number(job->search_error_before));
            cJSON_AddItemToObject(search, "error", json_number(job->search_error));
            cJSON_AddItemToObject(search, "weighted", cJSON_CreateBool(job->weighted));
        }
        if (job->plan->group->weights.strategy == QUANT_TENSOR_GROUP)
            cJSON_AddItemToObject(layer, "global_scale", json_number((double)job->global_scale));
        cJSON_AddItemToArray(layers, layer);
    }
}

static void add_left_out(cJSON *left_out, const struct quantize_run *run)
{
    for (size_t i = 0; i < run->weights.count; i++) {
        const struct weight *w = &run->weights.items[i];
        if (w->reason == WEIGHT_TAKEN || w->reason == WEIGHT_NOT_A_WEIGHT || w->ndim < 2)
            continue;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddItemToObject(item, "name", text_of(w->name, w->module));
        cJSON_AddStringToObject(item, "reason", weight_reason_name(w->reason));
        cJSON_AddItemToArray(left_out, item);
    }
}

/* Names searched weights whose columns all count alike although others have importance. */
static void add_importance_warning(cJSON *warnings, const struct quantize_run *run)
{
    const struct weight_job *first = NULL;
    size_t searched = 0, unweighted = 0;
    for (size_t i = 0; i < run->job_count; i++) {
        const struct weight_job *job = &run->jobs[i];
        if (!job->plan || !(job->plan->searches || job->plan->optimal))
            continue;
        searched++;
        if (!job->weighted && unweighted++ == 0)
            first = job;
    }
    char text[512];
    if (unweighted == 0 || unweighted == searched)
        return;
    snprintf(text, sizeof text, "importance: %zu of %zu searched weights have none, such as '%.300s'", unweighted,
             searched, first->weight->name);
    make_printable(text);
    cJSON_AddItemToArray(warnings, cJSON_CreateString(text));
}

static void add_warnings(cJSON *warnings, const struct quantize_run *run)
{
    static const char *const endings[] = {".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack"};
    char text[512];
    for (size_t i = 0; i < run->model.unnamed_count; i++) {
        snprintf(text, sizeof text, "%.400s: is no part of the model; left out", run->model.unnamed[i]);
        make_printable(text);
        cJSON_AddItemToArray(warnings, cJSON_CreateString(text));
    }
    for (size_t i = 0; i < run->model.tree.count; i++)
        for (size_t e = 0; e < sizeof endings / sizeof *endings; e++)
            if (ends_with(run->model.tree.files[i].path, endings[e])) {
                snprintf(text, sizeof text, "%.400s: copied as it is; it may hold unquantized weights",
                         run->model.tree.files[i].path);
                make_printable(text);
                cJSON_AddItemToArray(warnings, cJSON_CreateString(text));
            }
    const struct tensor_ref *first;
    const size_t unused = recordings_unused(&run->activations.sources.recordings, &first);
    if (unused > 0) {
        snprintf(text, sizeof text, "%zu recorded tensors are not used, such as '%.300s'", unused, first->name);
        make_printable(text);
        cJSON_AddItemToArray(warnings, cJSON_CreateString(text));
    }
    add_importance_warning(warnings, run);
    if (!run->model.config_path)
        cJSON_AddItemToArray(warnings, cJSON_CreateString("the model has no config.json, so that no loader knows that "
                                                          "the output is quantized"));
}

char *report_make(const struct quantize_run *run)
{
    cJSON *report = cJSON_CreateObject();
    cJSON_AddStringToObject(report, "model", run->args->model);
    cJSON_AddStringToObject(report, "out", run->args->out);
    if (run->args->part_count > 0) {
        cJSON_AddNumberToObject(report, "part", (double)run->args->part);
        cJSON_AddNumberToObject(report, "parts", (double)run->args->part_count);
    }
    cJSON_AddItemToObject(report, "bytes_before", cJSON_CreateNumber((double)run->model.bytes));
    cJSON_AddItemToObject(report, "bytes_after", cJSON_CreateNumber((double)run->layout.data_bytes));
    cJSON *layers = cJSON_AddArrayToObject(report, "layers");
    cJSON *left_out = cJSON_AddArrayToObject(report, "left_out");
    cJSON *warnings = cJSON_AddArrayToObject(report, "warnings");
    char *text = NULL;
    if (layers && left_out && warnings) {
        add_layers(layers, run);
        add_left_out(left_out, run);
        add_warnings(warnings, run);
        text = cJSON_Print(report);
    }
    cJSON_Delete(report);
    return text;
}
