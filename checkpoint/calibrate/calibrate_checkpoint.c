/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_checkpoint_calibrate: the arguments and the steps. */
#include <stdio.h>
#include <string.h>

#include "calibrate/calibration.h"
#include "files/mapped.h"
#include "files/text.h"
#include "quantize/unused.h"

/* ---- Output ------------------------------------------------------------------------------------------------------ */

/* Writes the settings of a group's observer to the metadata, as qobs_config_parse reads them. */
static int add_settings(struct calibration *c, const struct weight_group *group, struct fail *f)
{
    char key[256];
    OWNED char *text = config_text(group->config);
    if (!text)
        return NO_MEMORY(f, "the settings");
    const bool one = c->selection.config.group_count == 1;
    snprintf(key, sizeof key, one ? "settings" : "settings.%.200s", group->quant->name);
    return st_writer_metadata(&c->sink.file, key, text, f);
}

/* The scheme, or the file that describes it, without its folder: the same input has the same bytes anywhere. */
static const char *scheme_of(const qobs_checkpoint_calibrate_args *args)
{
    if (args->scheme)
        return args->scheme;
    const char *path = args->config ? args->config : args->recipe, *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Declares the tensors of the layout and creates the file. */
static int begin(struct calibration *c, struct fail *f)
{
    const struct output_layout *layout = &c->layout;
    RETURN_IF_NOT_OK(st_writer_metadata(&c->sink.file, "format", "pt", f));
    RETURN_IF_NOT_OK(st_writer_metadata(&c->sink.file, "qobs_version", qobs_version(), f));
    RETURN_IF_NOT_OK(st_writer_metadata(&c->sink.file, "scheme", scheme_of(c->args), f));
    RETURN_IF_NOT_OK(st_writer_metadata(&c->sink.file, "preset", base_preset(&c->bases, BASE_WEIGHT), f));
    for (size_t i = 0; i < c->selection.config.group_count; i++)
        RETURN_IF_NOT_OK(add_settings(c, &c->engine.groups[i], f));
    for (size_t i = 0; i < layout->count; i++) {
        const struct output_tensor *t = &layout->tensors[i];
        RETURN_IF_NOT_OK(st_writer_add(&c->sink.file, t->name, t->dtype, t->ndim, t->shape, f));
    }
    return st_writer_begin(&c->sink.file, c->args->out, f);
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static int check_chosen(const struct calibration *c, struct fail *f)
{
    const struct weights *all = &c->selection.weights;
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].reason == WEIGHT_TAKEN)
            return QOBS_OK;
    return INVALID(f,
                   "targets: %s holds %zu tensors, but none that is selected and can be observed; a target is a whole "
                   "name, or re: and a pattern that matches from the start, such as 're:.*q_proj'",
                   c->args->model, all->count);
}

/* Finds the scales that are stored. */
static int select_weights(struct calibration *c, struct fail *f)
{
    struct selection *s = &c->selection;
    bool requested[ACTIVATION_KINDS];
    const struct activation_request request = {
        .fill = c->args->fill_experts, .requested = requested, .runtime = c->args->runtime};
    for (size_t k = 0; k < ACTIVATION_KINDS; k++)
        requested[k] = c->bases.items[k].requested;
    RETURN_IF_NOT_OK(selection_read_config(s, f));
    RETURN_IF_NOT_OK(bases_apply(&c->bases, &s->config, f));
    RETURN_IF_NOT_OK(inputs_open(&c->inputs, &c->paths, CONTENTS_SCALES, f));
    RETURN_IF_NOT_OK(selection_make(s, f));
    RETURN_IF_NOT_OK(selection_find_activations(s, &c->activations, request, &c->meter, f));
    RETURN_IF_NOT_OK(
        layout_make(&c->layout, &c->inputs.model, &s->weights, &s->config, &c->activations, CONTENTS_SCALES, f));
    RETURN_IF_NOT_OK(check_chosen(c, f));
    return inputs_check_out(&c->inputs, c->args->out, f);
}

static int open_engine(struct calibration *c, struct fail *f)
{
    struct selection *s = &c->selection;
    const struct engine_input in = {&s->weights, &s->config, &c->inputs.importance, &c->inputs.sources.states,
                                    c->args->runtime};
    const struct unused_inputs unused = {s, &c->activations, &c->engine, &c->paths, c->args->fill_experts};
    RETURN_IF_NOT_OK(scale_sink_open(&c->sink, &c->layout, &c->activations, s->weights.count, f));
    RETURN_IF_NOT_OK(engine_open(&c->engine, &in, &c->sink.sink, &c->meter, f));
    RETURN_IF_NOT_OK(inputs_name_unused(&unused, f));
    return bases_name_unused(&c->bases, c->args, &c->activations.needs, &s->config, f);
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static int take_args(struct calibration *c, struct fail *f)
{
    const qobs_checkpoint_calibrate_args *a = c->args;
    const struct base *weights = &c->bases.items[BASE_WEIGHT];
    const struct list_argument lists[] = {{"presets", a->presets, a->preset_count},
                                          {"settings", a->settings, a->setting_count}};
    RETURN_IF_NOT_OK(check_lists(lists, sizeof lists / sizeof *lists, f));
    RETURN_IF_NOT_OK(settings_check_once(a->settings, a->setting_count, f));
    c->paths = (struct input_paths){a->model,
                                    a->architectures,
                                    {a->states, a->state_count},
                                    {a->activations, a->activation_count},
                                    {a->importance, a->importance_count}};
    c->selection = (struct selection){.choice = &c->choice, .inputs = &c->inputs, .contents = CONTENTS_SCALES};
    c->choice = (struct scheme_choice){.scheme = a->scheme,
                                       .config = a->config,
                                       .recipe = a->recipe,
                                       .targets = {a->targets, a->target_count},
                                       .ignore = {a->ignore, a->ignore_count}};
    RETURN_IF_NOT_OK(inputs_check(&c->paths, f));
    RETURN_IF_NOT_OK(selection_check(&c->choice, f));
    if (!a->out)
        return INVALID(f, "out: is NULL");
    if (a->fill_experts < QOBS_FILL_REFUSE || a->fill_experts > QOBS_FILL_MEDIAN)
        return INVALID(f, "fill_experts: is %d, allowed are 0, 1 and 2", (int)a->fill_experts);
    RETURN_IF_NOT_OK(check_runtime(a->runtime, f));
    RETURN_IF_NOT_OK(bases_read(&c->bases, a, f));
    c->choice.preset = weights->preset;
    c->choice.settings = (struct texts){weights->settings, weights->setting_count};
    return QOBS_OK;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static int calibrate(struct calibration *c, struct fail *f)
{
    const qobs_checkpoint_calibrate_args *a = c->args;
    RETURN_IF_NOT_OK(take_args(c, f));
    RETURN_IF_NOT_OK(argument_failure("out", output_try(a->out, f), f)); /* recordings may take hours */
    RETURN_IF_NOT_OK(select_weights(c, f));
    RETURN_IF_NOT_OK(open_engine(c, f));
    RETURN_IF_NOT_OK(begin(c, f));
    const double start = seconds_now();
    RETURN_IF_NOT_OK(engine_run(&c->engine, f));
    c->seconds = seconds_now() - start;
    RETURN_IF_NOT_OK(st_writer_finish(&c->sink.file, f));
    if (a->missing) {
        *a->missing = 0;
        for (enum activation_kind k = ACTIVATION_INPUT; k < ACTIVATION_KINDS; k++)
            *a->missing += count_kind(c, k).missing;
    }
    if (a->report)
        c->report = calibration_report(c);
    return QOBS_OK;
}

static void release(struct calibration *c)
{
    engine_close(&c->engine);
    scale_sink_close(&c->sink);
    layout_free(&c->layout);
    activation_scales_free(&c->activations);
    selection_free(&c->selection);
    bases_free(&c->bases);
    inputs_free(&c->inputs);
    meter_close(&c->meter);
}

int qobs_checkpoint_calibrate(const qobs_checkpoint_calibrate_args *args, qobs_error *error)
{
    RELEASED_BY(mapped_files_end) struct mapped_files files;
    mapped_files_begin(&files);
    struct fail f = {.message = ""};
    struct calibration c = {.args = args};
    const int usable = CHECK_STRUCT(args, &f);
    if (usable != QOBS_OK)
        return give_error(error, usable, &f);
    c.meter = (struct meter){.stage = "quantize", .report = args->progress, .context = args->context};
    meter_open(&c.meter);
    const int status = mapped_cause(calibrate(&c, &f), &f);
    release(&c);
    if (status == QOBS_OK && args->report) /* the text is as large as the report */
        *args->report = c.report ? json_print(c.report, JSON_INDENTED) : NULL;
    json_object_put(c.report);
    return give_error(error, status, &f);
}
