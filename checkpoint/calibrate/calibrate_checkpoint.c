/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_checkpoint_calibrate: the steps of quantize with one file of scales in place of a model. */
#include <stdio.h>
#include <string.h>

#include "calibrate/calibration.h"
#include "files/mapped.h"
#include "files/text.h"

/* ---- Output ------------------------------------------------------------------------------------------------------ */

/* Writes the settings of a group's observer to the metadata, as qobs_config_parse reads them. */
static int add_settings(struct calibration *c, const struct group_plan *plan, struct fail *f)
{
    char key[256];
    OWNED char *text = config_text(plan->config);
    if (!text)
        return NO_MEMORY(f, "the settings");
    const bool one = c->run->config.group_count == 1;
    snprintf(key, sizeof key, one ? "settings" : "settings.%.200s", plan->group->name);
    return st_writer_metadata(&c->writer, key, text, f);
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
    const struct output_layout *layout = &c->run->layout;
    RETURN_IF_NOT_OK(st_writer_metadata(&c->writer, "format", "pt", f));
    RETURN_IF_NOT_OK(st_writer_metadata(&c->writer, "qobs_version", qobs_version(), f));
    RETURN_IF_NOT_OK(st_writer_metadata(&c->writer, "scheme", scheme_of(c->args), f));
    RETURN_IF_NOT_OK(st_writer_metadata(&c->writer, "preset", base_preset(&c->bases, BASE_WEIGHT), f));
    for (size_t i = 0; i < c->run->config.group_count; i++)
        RETURN_IF_NOT_OK(add_settings(c, &c->run->plans[i], f));
    for (size_t i = 0; i < layout->count; i++) {
        const struct output_tensor *t = &layout->tensors[i];
        RETURN_IF_NOT_OK(st_writer_add(&c->writer, t->name, t->dtype, t->ndim, t->shape, f));
    }
    return st_writer_begin(&c->writer, c->args->out, f);
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static int check_chosen(const struct calibration *c, struct fail *f)
{
    const struct weights *all = &c->run->weights;
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].reason == WEIGHT_TAKEN)
            return QOBS_OK;
    return INVALID(f,
                   "targets: %s holds %zu tensors, but none that is selected and can be observed; a target is a whole "
                   "name, or re: and a pattern that matches from the start, such as 're:.*q_proj'",
                   c->args->model, all->count);
}

static int run_steps(struct calibration *c, struct fail *f)
{
    struct quantize_run *run = c->run;
    bool requested[ACTIVATION_KINDS];
    RETURN_IF_NOT_OK(bases_read(&c->bases, c->args, f));
    c->quantize.preset = c->bases.items[BASE_WEIGHT].preset;
    c->quantize.settings = c->bases.items[BASE_WEIGHT].settings;
    c->quantize.setting_count = c->bases.items[BASE_WEIGHT].setting_count;
    RETURN_IF_NOT_OK(argument_failure("out", output_try(c->args->out, f), f)); /* recordings may take hours */
    RETURN_IF_NOT_OK(run_read_config(run, f));
    RETURN_IF_NOT_OK(bases_apply(&c->bases, &run->config, f));
    for (size_t k = 0; k < ACTIVATION_KINDS; k++)
        requested[k] = c->bases.items[k].requested;
    RETURN_IF_NOT_OK(run_open(run, requested, f));
    RETURN_IF_NOT_OK(check_chosen(c, f));
    RETURN_IF_NOT_OK(run_check_out(run, c->args->out, f));
    RETURN_IF_NOT_OK(run_prepare(run, f));
    RETURN_IF_NOT_OK(run_name_unused_inputs(run, f));
    RETURN_IF_NOT_OK(bases_name_unused(&c->bases, c->args, run, f));
    RETURN_IF_NOT_OK(begin(c, f));
    const double start = seconds_now();
    RETURN_IF_NOT_OK(run_tensors(run, f));
    c->seconds = seconds_now() - start;
    return st_writer_finish(&c->writer, f);
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* The arguments of the run; presets and settings of weights follow when they are parsed. */
static qobs_checkpoint_quantize_args arguments_of_run(const qobs_checkpoint_calibrate_args *a)
{
    return (qobs_checkpoint_quantize_args){ARGUMENTS_OF(a),
                                           .out = a->out,
                                           .scheme = a->scheme,
                                           .config = a->config,
                                           .recipe = a->recipe,
                                           .activations = a->activations,
                                           .activation_count = a->activation_count,
                                           .allow_mixed_sets = true, /* nothing is loaded */
                                           .fill_experts = a->fill_experts,
                                           .progress = a->progress,
                                           .context = a->context};
}

static int calibrate(struct calibration *c, struct fail *f)
{
    const qobs_checkpoint_calibrate_args *a = c->args;
    const struct list_argument lists[] = {{"presets", a->presets, a->preset_count},
                                          {"settings", a->settings, a->setting_count}};
    RETURN_IF_NOT_OK(check_lists(lists, sizeof lists / sizeof *lists, f));
    RETURN_IF_NOT_OK(settings_check_once(a->settings, a->setting_count, f));
    c->quantize = arguments_of_run(a);
    RETURN_IF_NOT_OK(run_create(&c->run, &c->quantize, CONTENTS_SCALES, f));
    c->run->scales = &c->writer;
    RETURN_IF_NOT_OK(run_steps(c, f));
    if (a->missing) {
        *a->missing = 0;
        for (enum activation_kind k = ACTIVATION_INPUT; k < ACTIVATION_KINDS; k++)
            *a->missing += count_kind(c, k).missing;
    }
    if (a->report)
        *a->report = calibration_report(c);
    return QOBS_OK;
}

int qobs_checkpoint_calibrate(const qobs_checkpoint_calibrate_args *args, qobs_error *error)
{
    RELEASED_BY(mapped_files_end) struct mapped_files files;
    mapped_files_begin(&files);
    struct fail f = {.message = ""};
    struct calibration c = {.args = args};
    int status = CHECK_STRUCT(args, &f);
    if (status == QOBS_OK)
        status = calibrate(&c, &f);
    run_free(c.run);
    bases_free(&c.bases);
    st_writer_abort(&c.writer);
    return give_error(error, status, &f);
}
