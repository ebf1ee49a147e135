/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Builds the report as a tree of JSON. */
#include "quantize/quantize_call.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "files/file_kind.h"
#include "files/json.h"
#include "files/text.h"
#include "quantize/runtime_support.h"
#include "schemes/dialects.h"
#include "schemes/runtimes.h"

static void add_layers(json_object *layers, const struct quantize_call *run)
{
    for (size_t i = 0; i < run->engine.job_count; i++) {
        const struct weight_job *job = &run->engine.jobs[i];
        if (!job->group || !job->wants)
            continue;
        json_object *layer = json_object_new_object();
        json_put(layer, "name", json_object_new_string_len(job->weight->name, (int)job->weight->module));
        json_put_text(layer, "group", job->group->quant->name);
        json_put_text(layer, "format", quant_format_title(job->group->quant->stored));
        if (job->weighted)
            json_put_bool(layer, "importance", true);
        json_put_count(layer, "bytes_before", job->weight->bytes);
        json_put_count(layer, "bytes_after", layout_weight_bytes(&run->layout, job->index));
        json_put(layer, "relative_error",
                 json_number(!isfinite(job->result.energy) ? (double)NAN
                             : job->result.energy > 0      ? sqrt(job->result.error / job->result.energy)
                                                           : 0));
        if (job->cast) {
            json_object *cast = json_put_object(layer, "cast");
            json_put_text(cast, "source", job->weight->source_codes.format->read.title);
            json_put_count(cast, "blocks", job->result.blocks);
            json_put_count(cast, "lossless", job->result.lossless);
        }
        if (job->group->needs.searches_scale) {
            json_object *search = json_put_object(layer, "search");
            json_put(search, "error_before", json_number(job->result.search_error_before));
            json_put(search, "error", json_number(job->result.search_error));
            json_put_bool(search, "weighted", job->weighted);
        }
        if (job->result.rounded) {
            json_object *rounding = json_put_object(layer, "rounding");
            json_put(rounding, "error_before", json_number(job->result.rounding_error_before));
            json_put(rounding, "error", json_number(job->result.rounding_error));
            json_put_count(rounding, "changed", job->result.rounding_changed);
        }
        if (job_args(job)->strategy == QUANT_TENSOR_GROUP)
            json_put(layer, "global_scale", json_number((double)job->range.global_scale));
        json_append_printed(layers, layer, JSON_INDENTED, 2);
    }
}

static void add_left_out(json_object *left_out, const struct quantize_call *run)
{
    for (size_t i = 0; i < run->selection.weights.count; i++) {
        const struct weight *w = &run->selection.weights.items[i];
        if (w->reason == WEIGHT_TAKEN || w->reason == WEIGHT_NOT_A_WEIGHT || w->ndim < 2)
            continue;
        json_object *item = json_object_new_object();
        json_put(item, "name", json_object_new_string_len(w->name, (int)w->module));
        json_put_text(item, "reason", weight_reason_name(w->reason));
        json_append(left_out, item);
    }
}

/* Counts the weights that were quantized before and lose their codes, by format. */
static void add_dequantized(json_object *report, const struct quantize_call *run)
{
    json_object *formats = NULL;
    for (size_t i = 0; i < run->selection.weights.count; i++) {
        const struct quant_format_row *format = run->selection.weights.items[i].source_codes.format;
        if (!format || run->engine.cast[i])
            continue;
        formats = formats ? formats : json_put_object(report, "dequantized");
        const json_object *count = json_get(formats, format->read.title);
        json_put_count(formats, format->read.title, 1 + (count ? (uint64_t)json_object_get_int64(count) : 0));
    }
}

/* Names of files and tensors in a warning may have any bytes. */
__attribute__((format(printf, 2, 3))) static void warn(json_object *warnings, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    make_printable(text);
    json_append_text(warnings, text);
}

/* Names searched weights whose columns all count alike although others have importance. Returns true if an observer
 * needs importance and there is none at all: the result is not the one that was asked for. */
static bool add_importance_warning(json_object *warnings, const struct quantize_call *run)
{
    const struct weight_job *first = NULL;
    size_t searched = 0, unweighted = 0;
    char missing[400];
    const bool lacks = engine_lacks_importance(&run->engine, missing, sizeof missing);
    if (lacks)
        warn(warnings, "%s", missing);
    for (size_t i = 0; i < run->engine.job_count; i++) {
        const struct weight_job *job = &run->engine.jobs[i];
        if (!job->group || !(job->group->needs.searches_range || job->group->needs.searches_scale))
            continue;
        searched++;
        if (!job->weighted && unweighted++ == 0)
            first = job;
    }
    if (unweighted > 0 && unweighted < searched)
        warn(warnings, "importance: %zu of %zu searched weights have none, such as '%.300s'%s", unweighted, searched,
             first->weight->name, first->group->needs.rounds_codes ? "; they keep the nearest codes" : "");
    return lacks;
}

/* Says how much of the model its experts are if they stay as they are though nobody ignores them. */
static void add_left_experts_warning(json_object *warnings, const struct quantize_call *run)
{
    const struct weight *first = NULL;
    uint64_t bytes = 0, all = 0;
    for (size_t i = 0; i < run->selection.weights.count; i++) {
        const struct weight *w = &run->selection.weights.items[i];
        const bool left = w->reason == WEIGHT_EXPERTS || w->reason == WEIGHT_STACKED;
        all += w->bytes;
        bytes += left ? w->bytes : 0;
        first = left && !first ? w : first;
    }
    if (!first)
        return;
    warn(warnings, "experts stay as they are, %.0f %% of the model, such as '%.300s': %s",
         100 * (double)bytes / (double)all, first->name,
         first->reason == WEIGHT_EXPERTS ? "no runtime loads them quantized"
                                         : "--split-experts quantizes them for vLLM alone");
}

/* Names modules of a kind that model_free_ptq quantizes and that choose_weights refuses otherwise. */
static void add_class_warning(json_object *warnings, const struct quantize_call *run, enum module_kind wanted,
                              const char *loads)
{
    const struct weight *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < run->selection.weights.count; i++) {
        const struct weight *w = &run->selection.weights.items[i];
        const enum module_kind kind = architecture_kind(&run->inputs.architectures, w->name, w->module, w->shape[0]);
        if (w->reason != WEIGHT_TAKEN || w->ndim != 2 || kind != wanted)
            continue;
        first = count++ == 0 ? w : first;
    }
    if (count > 0)
        warn(warnings, "%zu %s are quantized, such as '%.300s': %s; --ignore leaves them out", count,
             wanted == MODULE_TABLE ? "embeddings" : "Conv1D", first->name, loads);
}

/* Names what a runtime does not load. A scheme that none loads was asked for (runtime_support_check). */
static void add_runtime_warnings(json_object *warnings, const struct quantize_call *run)
{
    struct runtime_support support;
    runtime_support_find(&support, &run->selection);
    const struct refusal *vllm = &support.vllm, *transformers = &support.transformers;
    const bool known = !run->inputs.architectures.unknown && !run->inputs.architectures.no_model;
    if (vllm->why[0] && transformers->why[0])
        warn(warnings, "no runtime loads this: %s, %s%s%.150s", vllm->why, transformers->why,
             transformers->first ? ", such as " : "", transformers->first ? transformers->first : "");
    else if (known && vllm->list)
        warn(warnings, "%s, such as '%.150s'; transformers does. For vLLM: --ignore 're:(.*[.])?(%s)([.].*)?$'",
             vllm->why, vllm->first, vllm->list);
    else if (known && transformers->first)
        warn(warnings, "%s, such as '%.150s'; vLLM loads this%s", transformers->why, transformers->first,
             transformers->list && !transformers->always ? ", and transformers loads it in FP8_DYNAMIC and W8A8" : "");
}

/* Says how much weights grow that are quantized in the model, such as experts in MXFP4; scales alone may grow a little.
 */
static void add_growth_warning(json_object *warnings, const struct quantize_call *run)
{
    const struct weight *first = NULL;
    uint64_t before = 0, after = 0;
    size_t count = 0;
    for (size_t i = 0; i < run->selection.weights.count; i++) {
        const struct weight *w = &run->selection.weights.items[i];
        const uint64_t stored = weight_stored_bytes(w), written = layout_weight_bytes(&run->layout, i);
        if (!w->source_codes.format || written <= stored + stored / 10)
            continue;
        first = first ? first : w;
        before += stored;
        after += written;
        count++;
    }
    if (count > 0)
        warn(warnings, "%zu weight%s from %.1f to %.1f MB: %s in the model, %.80s here, such as '%.200s'", count,
             count == 1 ? " grows" : "s grow", (double)before * 1e-6, (double)after * 1e-6,
             first->source_codes.format->read.title,
             first->reason == WEIGHT_TAKEN ? run->selection.config.groups[first->group].name : "unquantized",
             first->name);
}

/* Says what would keep the numbers of integers whose zero points the scheme does not have. */
static void add_zero_points_warning(json_object *warnings, const struct quantize_call *run)
{
    const struct weight *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < run->selection.weights.count; i++) {
        const struct weight *w = &run->selection.weights.items[i];
        const struct quant_args *a = w->reason == WEIGHT_TAKEN ? &run->selection.config.groups[w->group].weights : NULL;
        if (!a || a->observer || !a->symmetric || a->type != QUANT_INT || run->engine.cast[i] ||
            !w->source_codes.zero_points || w->source_codes.bits != a->num_bits)
            continue;
        first = count++ == 0 ? w : first;
    }
    if (count > 0)
        warn(warnings,
             "%zu weight%s zero points, %s, and %.60s has none, such as '%.200s': --set symmetric=false with groups of "
             "%lld or a divisor of that keeps the numbers",
             count, count == 1 ? " has" : "s have", first->source_codes.format->read.title,
             run->selection.config.groups[first->group].name, first->name, (long long)first->source_codes.block[1]);
}

/* Names weights whose columns are in groups out of order, which the schemes of the output do not have. */
static void add_order_warning(json_object *warnings, const struct quantize_call *run)
{
    const struct weight *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < run->selection.weights.count; i++) {
        const struct weight *w = &run->selection.weights.items[i];
        if (w->reason == WEIGHT_TAKEN && w->source_codes.group_index)
            first = count++ == 0 ? w : first;
    }
    if (count > 0)
        warn(warnings,
             "%zu weight%s columns in groups out of order (desc_act), such as '%.200s': %s quantized anew from "
             "the numbers",
             count, count == 1 ? " has" : "s have", first->name, count == 1 ? "it is" : "they are");
}

/* Names weights that are copied: those of other formats, and those of parts in folders. */
static void add_copied_warning(json_object *warnings, const struct quantize_call *run)
{
    const bool compatible = run->args->compat != QOBS_COMPAT_VLLM;
    const char *first = NULL, *way;
    size_t count = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < run->inputs.model.tree.count; i++) {
        const struct source_file *file = &run->inputs.model.tree.files[i];
        if (!file_kind_of_weights(file->path, &way) && (compatible || !model_has_part(&run->inputs.model, file->path)))
            continue;
        first = first ? first : file->path;
        bytes += file->bytes;
        count++;
    }
    if (count > 0)
        warn(warnings, "%zu file%s copied as before, with weights that stay unquantized, %.1f MB, such as '%.300s'",
             count, count == 1 ? " beside the model is" : "s beside the model are", (double)bytes * 1e-6, first);
}

/* Says that the layers are chosen without knowledge, and how to learn more. */
static void add_unknown_warning(json_object *warnings, const struct quantize_call *run)
{
    const struct architectures *found = &run->inputs.architectures;
    struct versions table;
    architectures_versions(&table);
    if (!found->unknown || found->no_model || run->args->compat != QOBS_COMPAT_VLLM)
        return;
    warn(warnings,
         "'%.100s' is not among the models that were tried (transformers %s, vLLM %s): layers by the general rule. To "
         "learn more: python -m libqobs.architectures %.60s -o rows.json, then --architectures rows.json; python -m "
         "libqobs.check %.60s",
         found->unknown, table.short_transformers, table.short_vllm, run->args->model, run->args->out);
}

/* Returns true if the result lacks something, as a warning says. */
static bool add_warnings(json_object *warnings, const struct quantize_call *run)
{
    for (size_t i = 0; i < run->inputs.model.unnamed.count; i++)
        warn(warnings, "%.400s: is no part of the model; left out", run->inputs.model.unnamed.items[i]);
    for (size_t i = 0; run->args->compat != QOBS_COMPAT_VLLM && i < run->inputs.model.parts.count; i++)
        warn(warnings, "%.400s: is no part of the model; left out, as upstream does", run->inputs.model.parts.items[i]);
    add_copied_warning(warnings, run);
    add_growth_warning(warnings, run);
    add_zero_points_warning(warnings, run);
    add_order_warning(warnings, run);
    if (run->inputs.model.omitted_count > 0)
        warn(warnings, "%.200s: omits %zu tensors of its files; they are %s", run->inputs.model.index,
             run->inputs.model.omitted_count,
             run->args->compat != QOBS_COMPAT_VLLM ? "left out, as upstream does" : "copied or quantized, too");
    const struct tensor_ref *first;
    const size_t unused = recordings_unused(&run->inputs.sources.recordings, &first);
    if (unused > 0)
        warn(warnings,
             "%zu recorded tensors are not used, such as '%.300s'; no layer of this run stores scales of them, "
             "as those of FP8, NVFP4 and W8A8_STATIC do",
             unused, first->name);
    if (run->activations.filled > 0)
        warn(warnings, "%zu scales of experts that no token reached are those of others of their layer",
             run->activations.filled);
    for (size_t i = 0; i < run->selection.config.note_count; i++)
        json_append_text(warnings, run->selection.config.notes[i]);
    const bool incomplete = add_importance_warning(warnings, run);
    add_left_experts_warning(warnings, run);
    add_class_warning(warnings, run, MODULE_TABLE,
                      "vLLM " RUNTIMES_VLLM " alone loads them, integers in pack-quantized on GPUs");
    add_class_warning(warnings, run, MODULE_CONV1D, "no runtime loads them");
    add_runtime_warnings(warnings, run);
    add_unknown_warning(warnings, run);
    if (run->selection.mixed_sets.count > 0)
        json_append_text(warnings, run->selection.mixed_sets.warning.message);
    if (run->selection.drafts_left)
        json_append_text(warnings, "draft layers: no activations of them are recorded, because transformers does not "
                                   "build them; they stay as they are, and vLLM loads them so");
    if (!run->inputs.model.config_path)
        json_append_text(warnings, "the model has no config.json, so that no loader knows that "
                                   "the output is quantized");
    return incomplete;
}

/* Says where vLLM has kernels. */
static void add_devices(json_object *item, unsigned devices)
{
    struct device_words words;
    json_put_text(item, "vllm", devices ? devices_describe(devices, &words) : NULL);
    json_put_text(item, "vllm_version", RUNTIMES_VLLM);
    json_put_bool(item, "vllm_cpu", (devices & DEVICES_CPU) != 0);
    json_put_bool(item, "this_cpu", (devices & device_here()) != 0);
    json_object *names = json_put_array(item, "devices");
    for (int i = 0; device_name(i); i++)
        if (devices & 1u << i)
            json_append_text(names, device_name(i));
}

/* Says for each scheme where it runs; transformers loads the whole output or nothing of it. Nothing is said of a model
 * that is not known. */
static void add_runtimes(json_object *runtimes, const struct quantize_call *run)
{
    struct runtime_support whole;
    if (run->inputs.architectures.unknown || run->inputs.architectures.no_model)
        return;
    runtime_support_find(&whole, &run->selection);
    for (size_t i = 0; i < run->selection.config.group_count; i++) {
        const struct quant_group *g = &run->selection.config.groups[i];
        if (!g->used)
            continue;
        struct runtime_support support;
        runtime_support_of_group(&support, &run->selection, g);
        json_object *item = json_object_new_object();
        json_put_text(item, "group", g->name);
        add_devices(item, support.devices);
        json_put_bool(item, "transformers", !whole.transformers.why[0]);
        json_put_text(item, "compressed_tensors", runtime_compressed_tensors(g));
        json_put_text(item, "packages", run->selection.config.dialect ? run->selection.config.dialect->needs : NULL);
        json_append(runtimes, item);
    }
}

/* Says where the facts about the architecture come from. */
static void add_knowledge(json_object *report, const struct architectures *found)
{
    json_object *knowledge = json_put_object(report, "knowledge");
    json_put_text(knowledge, "source", knowledge_source_name(found->source));
    json_put_text(knowledge, "transformers", found->versions.transformers);
    json_put_text(knowledge, "vllm", found->versions.vllm);
    if (found->no_model)
        json_put_bool(knowledge, "by_names", true);
    else if (found->unknown)
        json_put_text(knowledge, "unknown", found->unknown);
}

static bool fill_report(json_object *report, const struct quantize_call *run)
{
    json_put_text(report, "model", run->args->model);
    json_put_text(report, "out", run->args->out);
    json_put_text(report, "compat", quant_release_of(run->args->compat)->name);
    if (run->args->part_count > 0) {
        json_put_count(report, "part", (uint64_t)run->args->part);
        json_put_count(report, "parts", (uint64_t)run->args->part_count);
    }
    add_knowledge(report, &run->inputs.architectures);
    json_put_count(report, "bytes_before", run->inputs.model.bytes);
    json_put_count(report, "bytes_after", run->layout.data_bytes);
    json_put_count(report, "activation_scales", run->activations.count);
    json_object *layers = json_put_array(report, "layers");
    json_object *left_out = json_put_array(report, "left_out");
    json_object *warnings = json_put_array(report, "warnings");
    if (!layers || !left_out || !warnings)
        return false;
    add_dequantized(report, run);
    add_layers(layers, run);
    add_left_out(left_out, run);
    if (add_warnings(warnings, run))
        json_put_bool(report, "incomplete", true);
    add_runtimes(json_put_array(report, "runtimes"), run);
    return quant_config_report_unused(&run->selection.config, report);
}

json_object *report_make(const struct quantize_call *run)
{
    json_object *report = json_report();
    if (fill_report(report, run))
        return report;
    json_object_put(report);
    return NULL;
}

char *report_finish(json_object *report, const struct findings *findings)
{
    return report && findings_report(findings, report) ? json_print(report, JSON_INDENTED) : NULL;
}
