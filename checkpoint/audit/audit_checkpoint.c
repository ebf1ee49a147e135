/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Opens the checkpoint, runs the checks and makes the report. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "files/json.h"
#include "files/mapped.h"
#include "files/text.h"
#include "model/stated_schemes.h"
#include "schemes/dialects.h"
#include "schemes/runtimes.h"

/* Says who loads embeddings that are quantized. That is no fault: upstream writes them. */
static void add_embedding_note(json_object *report, const struct audit *audit)
{
    const struct audit_module *first = NULL;
    bool loads = true;
    char text[512];
    for (size_t i = 0; i < audit->module_count; i++) {
        const struct audit_module *m = &audit->modules[i];
        if (!m->quantized || architecture_kind(&audit->architectures, m->name, m->length, m->rows) != MODULE_TABLE)
            continue;
        first = first ? first : m;
        loads = loads && runtime_embeddings(m->group) != 0;
    }
    if (!first)
        return;
    snprintf(text, sizeof text,
             "embeddings are quantized, such as '%.200s': vLLM " RUNTIMES_VLLM
             " alone loads embeddings quantized, integers in pack-quantized on GPUs%s",
             first->name, loads ? "" : ", which these are not");
    json_append_text(json_put_array(report, "notes"), text);
}

static void add_gguf_notes(json_object *report, const struct findings *notes)
{
    json_object *array = notes->count > 0 ? json_put_array(report, "notes") : NULL;
    for (size_t i = 0; i < notes->count; i++)
        json_append_text(array, notes->items[i].text);
}

static void add_layer(json_object *layers, const struct audit *audit, const struct audit_module *m)
{
    const struct audit_pair *pair = m->group ? NULL : &audit->gguf.pairs[m - audit->modules];
    json_object *layer = json_object_new_object();
    json_put_text(layer, "name", m->name);
    json_put_text(layer, "format", pair ? pair->stored->type.name : quant_format_title(m->group->format));
    if (!pair)
        json_put(layer, "codes_used", json_number(m->use.range > 0 ? (double)m->use.used / m->use.range : 0));
    if (m->difference.known && m->difference.energy != 0)
        json_put(layer, "relative_error",
                 json_number(isfinite(m->difference.energy) ? sqrt(m->difference.error / m->difference.energy)
                                                            : (double)NAN));
    if (m->difference.codes > 0)
        json_put_count(layer, "codes_not_nearest", m->difference.further);
    json_append(layers, layer);
}

static void add_nearest(json_object *report, const struct audit *audit)
{
    uint64_t codes = 0, further = 0;
    for (size_t i = 0; i < audit->module_count; i++) {
        codes += audit->modules[i].difference.codes;
        further += audit->modules[i].difference.further;
    }
    if (codes == 0)
        return;
    json_put_count(report, "codes_compared", codes);
    json_put_count(report, "codes_not_nearest", further);
}

json_object *audit_report(const struct audit *audit)
{
    json_object *report = json_report();
    json_put_text(report, "checkpoint", audit->args->checkpoint);
    json_object *layers = json_put_array(report, "layers");
    for (size_t i = 0; i < audit->module_count; i++)
        if (audit->modules[i].quantized)
            add_layer(layers, audit, &audit->modules[i]);
    add_nearest(report, audit);
    if (audit->gguf.file.file_count == 0)
        add_embedding_note(report, audit);
    add_gguf_notes(report, &audit->gguf.notes);
    if (layers && findings_report(&audit->findings, report))
        return report;
    json_object_put(report);
    return NULL;
}

static int read_configuration(struct audit *audit, struct fail *f)
{
    const struct model *m = &audit->model;
    if (!m->config_path)
        return INVALID(f, "%s: has no config.json, which says how a model is quantized", m->tree.root);
    const json_object *config = json_get(m->config, "quantization_config");
    if (audit_is_of_words(audit))
        return QOBS_OK;
    RETURN_IF_NOT_OK(stated_schemes_read(&audit->config, &audit->maker, m, f));
    if (audit->maker && audit->config.group_count > 0 && audit->config.groups->weights.type == QUANT_INT)
        return INVALID(f, "%s/%s: audit does not read integers of %s; convert and quantize do", m->tree.root,
                       m->config_path, audit->maker);
    if (!audit->maker && !model_is_described(m))
        return INVALID(f, "%s: is not quantized: %s has no quantization_config; audit reads what quantize writes",
                       m->tree.root, m->config_path);
    if (!audit->maker && strcmp(json_text_of(config, "quant_method"), DIALECT_DEFAULT) != 0)
        return INVALID(
            f,
            "%s/%s: quantization_config: quant_method is %s; compressed-tensors, modelopt, quark, awq, gptq, "
            "auto-round and fp8 with a weight_block_size are read",
            m->tree.root, m->config_path, JSON_WORDS(json_get(config, "quant_method")));
    return quant_config_finish(&audit->config, QOBS_COMPAT_VLLM, f);
}

/* The index names every tensor of its shards. */
static void check_index(struct audit *audit)
{
    for (size_t i = 0; i < audit->model.unnamed.count; i++)
        audit_find(audit, NULL, "%s: is no part of the model", audit->model.unnamed.items[i]);
    for (size_t i = 0; audit->model.index && i < audit->model.shard_count; i++) {
        size_t named = 0;
        for (size_t k = 0; k < audit->model.count; k++)
            named += audit->model.tensors[k].shard == i && !audit->model.tensors[k].omitted;
        if (named != audit->model.shards[i].file.count)
            audit_find(audit, NULL, "%s: has %zu tensors, but the index names %zu of them", audit->model.shards[i].path,
                       audit->model.shards[i].file.count, named);
    }
}

static int check_modules(struct audit *audit, struct fail *f)
{
    const bool words = audit_is_of_words(audit);
    RETURN_IF_NOT_OK(words ? audit_list_words(audit, f) : audit_list_modules(audit, f));
    run_tasks(audit->args->runtime, words ? audit_check_words : audit_check_module, audit, audit->module_count);
    if (!audit->is_output)
        audit_check_same_scales(audit);
    if (words)
        return QOBS_OK;
    audit_check_activations(audit);
    return audit_check_sets(audit, false, f);
}

static int run_directory(struct audit *audit, struct fail *f)
{
    const qobs_checkpoint_audit_args *a = audit->args;
    RETURN_IF_NOT_OK(argument_failure("architectures", architecture_file_read(&audit->given, a->architectures, f), f));
    RETURN_IF_NOT_OK(argument_failure("checkpoint", model_open(&audit->model, a->checkpoint, f), f));
    architectures_find(&audit->architectures, &audit->model, &audit->given);
    RETURN_IF_NOT_OK(read_configuration(audit, f));
    if (a->against) {
        RETURN_IF_NOT_OK(argument_failure("against", model_open(&audit->original, a->against, f), f));
        struct architectures found;
        architectures_find(&found, &audit->original, &audit->given);
        RETURN_IF_NOT_OK(weights_list(&audit->originals[0], &audit->original, &found, QOBS_COMPAT_VLLM, true, f));
        RETURN_IF_NOT_OK(
            weights_list(&audit->originals[1], &audit->original, &found, QOBS_COMPAT_LLM_COMPRESSOR, false, f));
    }
    check_index(audit);
    return check_modules(audit, f);
}

static int run_gguf(struct audit *audit, struct fail *f)
{
    const qobs_checkpoint_audit_args *a = audit->args;
    if (a->architectures)
        return INVALID(f, "architectures: changes nothing here; %s is a GGUF file", a->checkpoint);
    RETURN_IF_NOT_OK(argument_failure("checkpoint", gguf_open_model(&audit->gguf.file, a->checkpoint, f), f));
    if (a->against)
        RETURN_IF_NOT_OK(argument_failure("against", gguf_open_model(&audit->gguf.original, a->against, f), f));
    RETURN_IF_NOT_OK(audit_list_gguf(audit, f));
    run_tasks(a->runtime, audit_check_blocks, audit, audit->module_count);
    return QOBS_OK;
}

int audit_run(struct audit *audit, struct fail *f)
{
    RETURN_IF_NOT_OK(is_gguf_file(audit->args->checkpoint) ? run_gguf(audit, f) : run_directory(audit, f));
    RETURN_IF_NOT_OK(mapped_check(f));
    findings_sort(&audit->findings);
    findings_sort(&audit->gguf.notes);
    return audit->failed ? NO_MEMORY(f, "the audit") : QOBS_OK;
}

void audit_free(struct audit *audit)
{
    named_free(audit->modules, audit->module_count, sizeof *audit->modules, 1);
    findings_free(&audit->findings);
    findings_free(&audit->gguf.notes);
    free(audit->gguf.pairs);
    gguf_close_model(&audit->gguf.file);
    gguf_close_model(&audit->gguf.original);
    weights_free(&audit->words);
    weights_free(&audit->originals[0]);
    weights_free(&audit->originals[1]);
    quant_config_free(&audit->config);
    model_close(&audit->original);
    model_close(&audit->model);
    architecture_file_free(&audit->given);
    pthread_mutex_destroy(&audit->lock);
}
