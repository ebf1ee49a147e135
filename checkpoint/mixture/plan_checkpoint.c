/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_checkpoint_plan: the arguments, the schemes, the steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "files/mapped.h"
#include "files/text.h"
#include "mixture/mixture.h"
#include "quantize/runtime_support.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static int check_limit(const char *name, double limit, struct fail *f)
{
    return isfinite(limit) && limit >= 0
               ? QOBS_OK
               : INVALID(f, "%s: is %g, allowed are numbers above 0, or 0: none", name, limit);
}

static int check_schemes(const qobs_checkpoint_plan_args *a, struct fail *f)
{
    if (a->scheme_count == 0)
        return INVALID(f, "schemes: is empty; names such as W4A16 are needed");
    for (size_t i = 0; i < a->scheme_count; i++)
        if (!*a->schemes[i])
            return INVALID(f, "schemes: name %zu of %zu is empty", i + 1, a->scheme_count);
    for (size_t i = 0; i < a->scheme_count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcasecmp(a->schemes[i], a->schemes[j]) == 0)
                return INVALID(f, "schemes: has '%.100s' twice", a->schemes[i]);
    return QOBS_OK;
}

/* The other arguments are checked with the schemes. */
static int check_args(const qobs_checkpoint_plan_args *a, struct fail *f)
{
    const struct list_argument lists[] = {{"schemes", a->schemes, a->scheme_count},
                                          {"settings", a->settings, a->setting_count}};
    RETURN_IF_NOT_OK(check_lists(lists, sizeof lists / sizeof *lists, f));
    RETURN_IF_NOT_OK(settings_check_once(a->settings, a->setting_count, f));
    RETURN_IF_NOT_OK(check_schemes(a, f));
    RETURN_IF_NOT_OK(check_limit("budget", a->budget, f));
    RETURN_IF_NOT_OK(check_limit("max_kl", a->max_kl, f));
    if (a->budget > 0 && a->max_kl > 0)
        return INVALID(f, "budget and max_kl: are both given; one of them is needed");
    if (a->out && a->budget == 0 && a->max_kl == 0)
        return INVALID(f, "out: is a recipe for a budget or a max_kl, and neither is given");
    return QOBS_OK;
}

/* Returns the index of the scheme that a setting begins with, "W4A16.group_size=64"; SIZE_MAX: none. */
static size_t scheme_of_setting(const qobs_checkpoint_plan_args *a, const char *setting)
{
    const size_t length = strcspn(setting, ".=");
    for (size_t i = 0; i < a->scheme_count && setting[length] == '.'; i++)
        if (strlen(a->schemes[i]) == length && strncasecmp(a->schemes[i], setting, length) == 0)
            return i;
    return SIZE_MAX;
}

/* Takes the settings of all schemes, then those of this one. */
static int take_settings(struct mixture_scheme *s, const qobs_checkpoint_plan_args *a, size_t index, struct fail *f)
{
    size_t count = 0;
    s->settings = calloc(a->setting_count + 1, sizeof *s->settings);
    if (!s->settings)
        return NO_MEMORY(f, "the settings");
    for (int own = 0; own < 2; own++)
        for (size_t i = 0; i < a->setting_count; i++) {
            const size_t of = scheme_of_setting(a, a->settings[i]);
            if (of == (own ? index : SIZE_MAX))
                s->settings[count++] = a->settings[i] + (own ? strlen(a->schemes[index]) + 1 : 0);
        }
    s->choice.settings = (struct texts){s->settings, count};
    return QOBS_OK;
}

/* ---- Schemes ----------------------------------------------------------------------------------------------------- */

static int read_scheme(struct mixture *p, size_t index, struct fail *f)
{
    const qobs_checkpoint_plan_args *a = p->args;
    struct mixture_scheme *s = &p->schemes[index];
    s->choice = (struct scheme_choice){.scheme = a->schemes[index],
                                       .preset = a->preset,
                                       .targets = {a->targets, a->target_count},
                                       .ignore = {a->ignore, a->ignore_count}};
    s->selection = (struct selection){.choice = &s->choice, .inputs = &p->inputs, .contents = CONTENTS_MODEL};
    RETURN_IF_NOT_OK(take_settings(s, a, index, f));
    RETURN_IF_NOT_OK(selection_check(&s->choice, f));
    return selection_read_config(&s->selection, f);
}

/* Counts the bytes of the output of each weight. */
static int count_bytes(struct mixture *p, struct mixture_scheme *s, struct fail *f)
{
    static const struct activation_scales none;
    const struct weights *weights = &s->selection.weights;
    RELEASED_BY(layout_free) struct output_layout layout = {0};
    s->bytes = calloc(weights->count + 1, sizeof *s->bytes);
    if (!s->bytes)
        return NO_MEMORY(f, "the costs");
    RETURN_IF_NOT_OK(layout_list(&layout, &p->inputs.model, weights, &s->selection.config, &none, CONTENTS_MODEL, f));
    for (size_t i = 0; i < layout.count; i++)
        s->bytes[layout.tensors[i].weight] += layout.tensors[i].bytes;
    return QOBS_OK;
}

static int select_weights(struct mixture *p, size_t index, struct fail *f)
{
    struct mixture_scheme *s = &p->schemes[index];
    RETURN_IF_NOT_OK(selection_make(&s->selection, f));
    RETURN_IF_NOT_OK(runtime_support_check(&s->selection, false, false, f));
    return count_bytes(p, s, f);
}

static int open_engine(struct mixture *p, size_t index, struct fail *f)
{
    struct mixture_scheme *s = &p->schemes[index];
    const struct weights *weights = &s->selection.weights;
    const struct engine_input in = {weights, &s->selection.config, p->weighing.importance, p->weighing.states,
                                    p->args->runtime};
    RETURN_IF_NOT_OK(cost_sink_open(&s->sink, &p->weighing, weights->count, f));
    return engine_open(&s->engine, &in, &s->sink.sink, &p->meter, f);
}

/* Runs the batches of all schemes in turn. */
static int run_schemes(struct mixture *p, struct fail *f)
{
    for (bool left = true; left;) {
        left = false;
        for (size_t i = 0; i < p->args->scheme_count; i++) {
            struct engine *e = &p->schemes[i].engine;
            if (e->next < e->job_count)
                RETURN_IF_NOT_OK(engine_run_batch(e, f));
            left |= e->next < e->job_count;
        }
    }
    return QOBS_OK;
}

/* The failure of a scheme names it, if there are several; that of an unknown one has its name. */
static int scheme_failure(const struct mixture *p, size_t index, int status, struct fail *f)
{
    static const char unknown[] = "scheme: ";
    const struct fail reason = *f;
    if (strncmp(reason.message, unknown, sizeof unknown - 1) == 0)
        return report_failure(f, status, "schemes: %s", reason.message + sizeof unknown - 1);
    if (p->args->scheme_count == 1)
        return status;
    return report_failure(f, status, "%.60s: %.400s", p->args->schemes[index], reason.message);
}

/* Takes a step with each scheme. */
static int each_scheme(struct mixture *p, int (*step)(struct mixture *p, size_t index, struct fail *f), struct fail *f)
{
    for (size_t i = 0; i < p->args->scheme_count; i++) {
        const int status = step(p, i, f);
        if (status != QOBS_OK)
            return scheme_failure(p, i, status, f);
    }
    return QOBS_OK;
}

static int mixture_steps(struct mixture *p, struct fail *f)
{
    const qobs_checkpoint_plan_args *a = p->args;
    p->schemes = calloc(a->scheme_count, sizeof *p->schemes);
    if (!p->schemes)
        return NO_MEMORY(f, "the schemes");
    RETURN_IF_NOT_OK(inputs_check(&p->paths, f));
    RETURN_IF_NOT_OK(check_runtime(a->runtime, f));
    RETURN_IF_NOT_OK(each_scheme(p, read_scheme, f));
    RETURN_IF_NOT_OK(inputs_open(&p->inputs, &p->paths, CONTENTS_MODEL, f));
    p->inputs.several = a->scheme_count > 1;
    RETURN_IF_NOT_OK(each_scheme(p, select_weights, f));
    RETURN_IF_NOT_OK(mixture_list_modules(p, f));
    if (a->out)
        RETURN_IF_NOT_OK(inputs_check_out(&p->inputs, a->out, f));
    p->weighing = (struct weighing){.weights = &p->schemes[0].selection.weights,
                                    .importance = &p->inputs.importance,
                                    .states = &p->inputs.sources.states};
    RETURN_IF_NOT_OK(weighing_open(&p->weighing, f));
    RETURN_IF_NOT_OK(each_scheme(p, open_engine, f));
    const double start = seconds_now();
    RETURN_IF_NOT_OK(run_schemes(p, f));
    p->seconds = seconds_now() - start;
    RETURN_IF_NOT_OK(mixture_gather(p, f));
    RETURN_IF_NOT_OK(mixture_choose(p, f));
    return a->out ? mixture_write_recipe(p, f) : QOBS_OK;
}

static void mixture_free(struct mixture *p)
{
    for (size_t i = 0; p->schemes && i < p->args->scheme_count; i++) {
        struct mixture_scheme *s = &p->schemes[i];
        engine_close(&s->engine);
        cost_sink_close(&s->sink);
        free(s->bytes);
    }
    weighing_close(&p->weighing);
    for (size_t i = 0; p->schemes && i < p->args->scheme_count; i++) {
        selection_free(&p->schemes[i].selection);
        free(p->schemes[i].settings);
    }
    inputs_free(&p->inputs);
    meter_close(&p->meter);
    free(p->schemes);
    free(p->modules);
    free(p->costs);
    free(p->choice);
}

int qobs_checkpoint_plan(const qobs_checkpoint_plan_args *args, qobs_error *error)
{
    RELEASED_BY(mapped_files_end) struct mapped_files files;
    mapped_files_begin(&files);
    struct fail f = {.message = ""};
    struct mixture p = {.args = args};
    const int usable = CHECK_STRUCT(args, &f);
    if (usable != QOBS_OK)
        return give_error(error, usable, &f);
    p.paths = (struct input_paths){.model = args->model,
                                   .architectures = args->architectures,
                                   .states = {args->states, args->state_count},
                                   .importance = {args->importance, args->importance_count}};
    p.meter = (struct meter){.stage = "plan", .report = args->progress, .context = args->context};
    meter_open(&p.meter);
    int status = check_args(args, &f);
    if (status == QOBS_OK)
        status = mapped_cause(mixture_steps(&p, &f), &f);
    if (status == QOBS_OK)
        status = mapped_check(&f);
    if (status == QOBS_OK && args->report)
        *args->report = mixture_report(&p);
    mixture_free(&p);
    return give_error(error, status, &f);
}
