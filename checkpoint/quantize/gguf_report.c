/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The report of a GGUF file as a tree of JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quantize/gguf_call.h"

static void add_rounding(json_object *layer, const struct gguf_error *error)
{
    json_object *rounding = json_put_object(layer, "rounding");
    json_put(rounding, "error_before", json_number(error->rounding_before));
    json_put(rounding, "error", json_number(error->rounding));
    json_put_count(rounding, "changed", (uint64_t)error->changed);
}

static void add_tensors(json_object *layers, const struct gguf_call *call)
{
    for (size_t i = 0; i < call->model.tensor_count; i++) {
        const struct gguf_choice *c = &call->choices[i];
        const struct gguf_error *error = &call->sink.errors[i];
        if (!gguf_choice_changes(c))
            continue;
        json_object *layer = json_object_new_object();
        json_put_text(layer, "name", c->tensor->name);
        json_put_text(layer, "source", c->tensor->type.name);
        json_put_text(layer, "format", c->type.name);
        const struct gguf_importance *of = &call->sink.importance[i];
        if (of->entry || of->stated)
            json_put_bool(layer, "importance", true);
        if (c->fell_back)
            json_put_bool(layer, "fell_back", true);
        json_put_count(layer, "bytes_before", c->tensor->bytes);
        json_put_count(layer, "bytes_after", gguf_choice_bytes(c));
        if (!call->args->dry_run)
            json_put(layer, "relative_error",
                     json_number(error->energy > 0 ? sqrt(error->error / error->energy) : error->energy));
        if (of->rounded && !call->args->dry_run)
            add_rounding(layer, error);
        json_append_printed(layers, layer, JSON_INDENTED, 2);
    }
}

/* Adds what each type takes in the output. */
static void add_types(json_object *types, const struct gguf_call *call)
{
    const char *name;
    for (size_t i = 0; (name = qobs_gguf_type_name(i)); i++) {
        uint64_t tensors = 0, bytes = 0, elements = 0;
        for (size_t t = 0; t < call->model.tensor_count; t++)
            if (strcmp(call->choices[t].type.name, name) == 0) {
                tensors++;
                bytes += gguf_choice_bytes(&call->choices[t]);
                elements += call->choices[t].tensor->elements;
            }
        if (tensors == 0)
            continue;
        json_object *item = json_object_new_object();
        json_put_text(item, "type", name);
        json_put_count(item, "tensors", tensors);
        json_put_count(item, "bytes", bytes);
        json_put_count(item, "elements", elements);
        json_append(types, item);
    }
}

static void warn(json_object *warnings, char *text)
{
    if (text) {
        make_printable(text);
        json_append_text(warnings, text);
    }
    free(text);
}

/* Counts tensors that get importance, and those whose types use it. */
static void add_importance_warning(json_object *warnings, const struct gguf_call *call)
{
    size_t users = 0, found = 0;
    const char *first = NULL;
    for (size_t i = 0; i < call->model.tensor_count; i++) {
        const struct gguf_choice *c = &call->choices[i];
        if (!gguf_choice_changes(c) || !gguf_uses_importance(call, c) || gguf_name_is_embedding(c->tensor->name))
            continue;
        users++;
        if (call->sink.importance[i].entry || call->sink.importance[i].stated)
            found++;
        else
            first = first ? first : c->tensor->name;
    }
    if (call->imatrix_count + call->args->states.count > 0 && found < users)
        warn(warnings,
             text_format("importance: %zu of %zu tensors have none, such as '%.200s'", users - found, users, first));
}

/* Names tensors in blocks whose codes stay those of the search. */
static void add_rounding_warning(json_object *warnings, const struct gguf_call *call)
{
    size_t blocks = 0, left = 0;
    const struct gguf_choice *first = NULL;
    for (size_t i = 0; call->sink.rounds && i < call->model.tensor_count; i++) {
        const struct gguf_choice *c = &call->choices[i];
        if (!gguf_choice_changes(c) || c->type.block_elements == 1)
            continue;
        blocks++;
        if (!call->sink.importance[i].rounded && left++ == 0)
            first = c;
    }
    if (first)
        warn(warnings, text_format("rounding: %zu of %zu tensors keep their nearest codes, such as '%.200s', %s", left,
                                   blocks, first->tensor->name,
                                   first->type.rounds ? "which has no state" : "whose type is not rounded by descent"));
}

/* Names experts without a state, in tensors whose others have one. */
static void add_missing_warning(json_object *warnings, const struct gguf_call *call)
{
    size_t missing = 0;
    const char *first = NULL;
    for (size_t i = 0; i < call->model.tensor_count; i++) {
        const struct gguf_tensor *t = call->choices[i].tensor;
        const struct gguf_importance *of = &call->sink.importance[i];
        for (uint64_t m = 0; (of->stated || of->rounded) && m < gguf_matrices(t); m++)
            if (!gguf_states_find(&call->sink.states, t->name, m) && missing++ == 0)
                first = t->name;
    }
    if (first)
        warn(warnings,
             text_format("states: %zu matrices have none, such as one of '%.200s': their columns count alike, "
                         "and their codes are the nearest",
                         missing, first));
}

static void add_requantized_warning(json_object *warnings, const struct gguf_call *call)
{
    if (call->weights.requantized == 0)
        return;
    const struct gguf_tensor *first = NULL;
    for (size_t i = 0; !first && i < call->model.tensor_count; i++)
        if (gguf_choice_changes(&call->choices[i]) && call->choices[i].tensor->type.block_elements > 1)
            first = call->choices[i].tensor;
    warn(warnings,
         text_format(
             "%zu tensors were quantized already, such as '%.200s' in %s: their errors stay and those shown here "
             "come on top; F16 or BF16 of the same model costs nothing of this",
             call->weights.requantized, first ? first->name : "", first ? first->type.name : ""));
}

static void add_fallback_warning(json_object *warnings, const struct gguf_call *call)
{
    size_t count = 0;
    const struct gguf_choice *first = NULL;
    for (size_t i = 0; i < call->model.tensor_count; i++)
        if (call->choices[i].fell_back && count++ == 0)
            first = &call->choices[i];
    if (first)
        warn(warnings,
             text_format("%zu tensors have columns that do not fit their type, such as '%.200s', which gets %s", count,
                         first->tensor->name, first->type.name));
}

static void add_doubts(json_object *warnings, const struct findings *doubts)
{
    for (size_t i = 0; i < doubts->count; i++)
        warn(warnings, text_format("%s%s%s", doubts->items[i].module, *doubts->items[i].module ? ": " : "",
                                   doubts->items[i].text));
}

char *gguf_report(const struct gguf_call *call)
{
    OWNED_JSON json_object *report = json_report();
    json_put_text(report, "model", call->args->model);
    json_put_text(report, "out", call->args->dry_run ? NULL : call->args->out);
    json_put_text(report, "scheme", call->scheme->name);
    json_put_text(report, "search", call->args->optimal ? "optimal" : "ggml");
    json_put_text(report, "rounding", call->sink.rounds ? "descent" : "nearest");
    uint64_t before = 0;
    for (size_t i = 0; i < call->model.file_count; i++)
        before += call->model.files[i].map.size;
    json_put_count(report, "bytes_before", before);
    json_put_count(report, "bytes_after", call->header.file_bytes);
    json_put_count(report, "tensors", call->model.tensor_count);
    add_types(json_put_array(report, "types"), call);
    json_object *layers = json_put_array(report, "layers"), *warnings = json_put_array(report, "warnings");
    if (!layers || !warnings)
        return NULL;
    add_tensors(layers, call);
    add_requantized_warning(warnings, call);
    add_fallback_warning(warnings, call);
    add_importance_warning(warnings, call);
    add_rounding_warning(warnings, call);
    add_missing_warning(warnings, call);
    add_doubts(warnings, &call->audited.doubts);
    return findings_report(&call->audited.findings, report) ? json_print(report, JSON_INDENTED) : NULL;
}
