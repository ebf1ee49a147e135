/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_checkpoint_quantize: the steps in order. */
#include <stdlib.h>

#include "api/compare.h"
#include "api/quantize_fetched.h"
#include "audit/publish.h"
#include "files/output_compare.h"
#include "files/mapped.h"
#include "files/text.h"
#include "parts/parts.h"
#include "quantize/dialect_config.h"
#include "quantize/quantize_call.h"
#include "quantize/runtime_support.h"
#include "quantize/source_inputs.h"
#include "quantize/source_schemes.h"
#include "quantize/unused.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static void take_args(struct quantize_call *run)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    run->paths = (struct input_paths){a->model,
                                      a->architectures,
                                      {a->states, a->state_count},
                                      {a->activations, a->activation_count},
                                      {a->importance, a->importance_count}};
    run->choice = (struct scheme_choice){a->scheme,
                                         a->config,
                                         a->recipe,
                                         a->preset,
                                         {a->targets, a->target_count},
                                         {a->ignore, a->ignore_count},
                                         {a->settings, a->setting_count},
                                         a->compat,
                                         a->draft,
                                         a->split_experts,
                                         a->dialect,
                                         a->keep_numbers && !a->scheme && !a->config && !a->recipe};
    run->selection = (struct selection){
        .choice = &run->choice, .inputs = &run->inputs, .contents = CONTENTS_MODEL, .silent = a->part > 1};
    run->meter.stage = "quantize";
    run->meter.report = a->progress;
    run->meter.context = a->context;
}

static int check_args(const struct quantize_call *run, struct fail *f)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    RETURN_IF_NOT_OK(inputs_check(&run->paths, f));
    RETURN_IF_NOT_OK(selection_check(&run->choice, f));
    if (!a->out)
        return INVALID(f, "out: is NULL");
    if (a->part_count > MAX_PARTS)
        return INVALID(f, "part_count: is %zu, allowed are 0 to %d", a->part_count, MAX_PARTS);
    if (a->part_count > 0 ? a->part < 1 || a->part > a->part_count : a->part != 0)
        return INVALID(f, "part: is %zu of %zu; a number from 1 to part_count is needed", a->part, a->part_count);
    if (a->fill_experts < QOBS_FILL_REFUSE || a->fill_experts > QOBS_FILL_MEDIAN)
        return INVALID(f, "fill_experts: is %d, allowed are 0, 1 and 2", (int)a->fill_experts);
    RETURN_IF_NOT_OK(check_runtime(a->runtime, f));
    if (a->keep_numbers && a->compat != QOBS_COMPAT_VLLM)
        return INVALID(f, "keep_numbers: is set; releases of llm-compressor quantize all numbers anew");
    return settings_check_once(a->settings, a->setting_count, f);
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

/* Decides which shards this part writes. */
static int choose_part(struct quantize_call *run, struct fail *f)
{
    const size_t count = run->args->part_count;
    if (count == 0)
        return QOBS_OK;
    run->sink.part = run->args->part;
    run->sink.part_of_shard = calloc(run->layout.shard_count + 1, sizeof *run->sink.part_of_shard);
    return run->sink.part_of_shard ? parts_assign(&run->layout, count, run->sink.part_of_shard, f)
                                   : NO_MEMORY(f, "the parts");
}

/* Finds what is quantized, and how it will be stored. */
static int select_weights(struct quantize_call *run, struct fail *f)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    struct selection *s = &run->selection;
    const struct activation_request request = {.fill = a->fill_experts, .runtime = a->runtime};
    bool by_source;
    if (!run->choice.by_source)
        RETURN_IF_NOT_OK(selection_read_config(s, f));
    RETURN_IF_NOT_OK(inputs_open(&run->inputs, &run->paths, CONTENTS_MODEL, f));
    if (run->choice.by_source) {
        RETURN_IF_NOT_OK(source_schemes_make(s, f));
        RETURN_IF_NOT_OK(selection_read_config(s, f));
    }
    RETURN_IF_NOT_OK(selection_make(s, f));
    RETURN_IF_NOT_OK(dialect_config_check(s, f));
    RETURN_IF_NOT_OK(runtime_support_check(s, a->allow_mixed_sets, a->keep_findings, f));
    RETURN_IF_NOT_OK(source_inputs_find(&run->activations, s, &by_source, f));
    if (!by_source)
        RETURN_IF_NOT_OK(selection_find_activations(s, &run->activations, request, &run->meter, f));
    RETURN_IF_NOT_OK(dialect_convert_activations(&run->activations, s, f));
    return layout_make(&run->layout, &run->inputs.model, &s->weights, &s->config, &run->activations, CONTENTS_MODEL, f);
}

static int open_engine(struct quantize_call *run, struct fail *f)
{
    const struct selection *s = &run->selection;
    const struct engine_input in = {&s->weights, &s->config, &run->inputs.importance, &run->inputs.sources.states,
                                    run->args->runtime};
    const struct unused_inputs unused = {&run->selection, &run->activations, &run->engine, &run->paths,
                                         run->args->fill_experts};
    RETURN_IF_NOT_OK(model_sink_open(&run->sink, &run->layout, s->weights.count, &run->activations, &run->out, f));
    RETURN_IF_NOT_OK(choose_part(run, f));
    RETURN_IF_NOT_OK(engine_open(&run->engine, &in, &run->sink.sink, &run->meter, f));
    if (run->args->keep_numbers)
        RETURN_IF_NOT_OK(source_schemes_check(run, f));
    RETURN_IF_NOT_OK(source_inputs_note_dropped(&run->selection, f));
    return inputs_name_unused(&unused, f);
}

static int open_output(struct quantize_call *run, struct fail *f)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    if (run->compares)
        return argument_failure("out", output_compare_start(&run->out, a->out, f), f);
    if (a->part_count > 0)
        return part_open(run, f);
    return argument_failure("out", output_directory_open(&run->out, a->out, run->inputs.model.tree.root, a->replace, f),
                            f);
}

/* Writes all but the shards. Among parts the first does so. */
static int write_side_files(struct quantize_call *run, struct fail *f)
{
    if (run->args->part > 1)
        return QOBS_OK;
    RETURN_IF_NOT_OK(side_files_copy(run, f));
    RETURN_IF_NOT_OK(side_files_write_index(run, f));
    return side_files_write_config(run, f);
}

/* The model, its output and the work, as far as they are known. */
static void release_work(struct quantize_call *run)
{
    engine_close(&run->engine);
    model_sink_close(&run->sink);
    layout_free(&run->layout);
    activation_scales_free(&run->activations);
    selection_free(&run->selection);
    inputs_free(&run->inputs);
    run->engine = (struct engine){0};
    run->sink = (struct model_sink){0};
    run->selection = (struct selection){0};
}

static int quantize(struct quantize_call *run, struct fail *f)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    RETURN_IF_NOT_OK(check_args(run, f));
    RETURN_IF_NOT_OK(select_weights(run, f));
    RETURN_IF_NOT_OK(open_engine(run, f));
    RETURN_IF_NOT_OK(open_output(run, f));
    RETURN_IF_NOT_OK(engine_run(&run->engine, f));
    if (a->keep_numbers)
        RETURN_IF_NOT_OK(source_schemes_check_numbers(run, f));
    RETURN_IF_NOT_OK(write_side_files(run, f));
    if (run->compares)
        return mapped_check(f);
    run->report = a->report || a->part_count > 0 ? report_make(run) : NULL;
    if (a->part_count > 0)
        return part_publish(run, f);
    release_work(run); /* the audit opens the output, which has more tensors than the model */
    const struct publish_options options = {.runtime = a->runtime,
                                            .architectures = a->architectures,
                                            .keep_findings = a->keep_findings,
                                            .compatible = a->compat != QOBS_COMPAT_VLLM};
    return publish(&run->out, &options, &run->findings, f);
}

static void release(struct quantize_call *run)
{
    release_work(run);
    output_directory_abort(&run->out);
    findings_free(&run->findings);
    json_object_put(run->report);
    meter_close(&run->meter);
}

static int quantize_model(const qobs_checkpoint_quantize_args *args, qobs_error *error)
{
    RELEASED_BY(mapped_files_end) struct mapped_files files;
    mapped_files_begin(&files);
    struct fail f = {.message = ""};
    struct quantize_call run = {.args = args};
    meter_open(&run.meter);
    take_args(&run);
    const int status = mapped_cause(quantize(&run, &f), &f);
    if ((status == QOBS_OK || status == QOBS_ERROR_FINDINGS) && args->report)
        *args->report = report_finish(run.report, &run.findings);
    release(&run);
    return give_error(error, status, &f);
}

int quantize_compare(const qobs_checkpoint_quantize_args *args, struct fail *f)
{
    RELEASED_BY(mapped_files_end) struct mapped_files files;
    mapped_files_begin(&files);
    struct quantize_call run = {.args = args, .compares = true};
    meter_open(&run.meter);
    take_args(&run);
    const int status = mapped_cause(quantize(&run, f), f);
    release(&run);
    return status;
}

/* Checks what needs no model. */
static int check_first(const qobs_checkpoint_quantize_args *args, struct fail *f)
{
    struct quantize_call run = {.args = args};
    RETURN_IF_NOT_OK(CHECK_STRUCT(args, f));
    if (!args->fetch)
        return QOBS_OK;
    take_args(&run);
    int status = check_args(&run, f);
    if (status == QOBS_OK && !run.choice.by_source)
        status = selection_read_config(&run.selection, f);
    selection_free(&run.selection);
    return status;
}

int qobs_checkpoint_quantize(const qobs_checkpoint_quantize_args *args, qobs_error *error)
{
    struct fail f = {.message = ""};
    const int usable = check_first(args, &f);
    if (usable != QOBS_OK)
        return give_error(error, usable, &f);
    return args->fetch ? quantize_fetched(args, quantize_model, error) : quantize_model(args, error);
}
