/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_checkpoint_plan: the arguments, the runs, the steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "files/mapped.h"
#include "files/text.h"
#include "mixture/mixture.h"

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

/* The other arguments are checked by the runs. */
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
static int take_settings(struct plan_scheme *s, const qobs_checkpoint_plan_args *a, size_t index, struct fail *f)
{
    s->settings = calloc(a->setting_count + 1, sizeof *s->settings);
    if (!s->settings)
        return NO_MEMORY(f, "the settings");
    for (int own = 0; own < 2; own++)
        for (size_t i = 0; i < a->setting_count; i++) {
            const size_t of = scheme_of_setting(a, a->settings[i]);
            if (of == (own ? index : SIZE_MAX))
                s->settings[s->setting_count++] = a->settings[i] + (own ? strlen(a->schemes[index]) + 1 : 0);
        }
    return QOBS_OK;
}

/* ---- Progress ---------------------------------------------------------------------------------------------------- */

static int report_progress(void *context, const qobs_progress *progress)
{
    const struct plan *p = ((struct plan_scheme *)context)->plan;
    qobs_progress sum = {.struct_size = sizeof sum, .stage = "plan", .layer = progress->layer};
    double work = 0, done = 0;
    for (size_t i = 0; i < p->args->scheme_count; i++) {
        const struct run_meter *m = &p->schemes[i].run->meter;
        sum.bytes_done += m->done;
        sum.bytes_total += m->total;
        sum.searches |= m->search > 0;
        work += (double)m->total + m->search;
        done += m->share * ((double)m->total + m->search);
    }
    sum.share = work > 0 ? done / work : 0;
    return p->args->progress ? p->args->progress(p->args->context, &sum) : 0;
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

static int open_scheme(struct plan *p, size_t index, struct fail *f)
{
    const qobs_checkpoint_plan_args *a = p->args;
    struct plan_scheme *s = &p->schemes[index];
    s->plan = p;
    s->name = a->schemes[index];
    RETURN_IF_NOT_OK(take_settings(s, a, index, f));
    s->args = (qobs_checkpoint_quantize_args){ARGUMENTS_OF(a),
                                              .out = "", /* nothing is written */
                                              .scheme = s->name,
                                              .preset = a->preset,
                                              .settings = s->settings,
                                              .setting_count = s->setting_count,
                                              .progress = report_progress,
                                              .context = s};
    RETURN_IF_NOT_OK(run_create(&s->run, &s->args, CONTENTS_MODEL, f));
    s->run->planning = true;
    RETURN_IF_NOT_OK(run_read_config(s->run, f));
    RETURN_IF_NOT_OK(run_open(s->run, NULL, f));
    RETURN_IF_NOT_OK(run_prepare(s->run, f));
    return QOBS_OK;
}

/* Runs the batches of all schemes in turn. */
static int run_schemes(struct plan *p, struct fail *f)
{
    for (bool left = true; left;) {
        left = false;
        for (size_t i = 0; i < p->args->scheme_count; i++) {
            struct plan_scheme *s = &p->schemes[i];
            if (s->next < s->run->job_count)
                RETURN_IF_NOT_OK(run_next_batch(s->run, &s->next, f));
            left |= s->next < s->run->job_count;
        }
    }
    return QOBS_OK;
}

/* The failure of a scheme names it, if there are several; that of an unknown one has its name. */
static int scheme_failure(const struct plan *p, size_t index, int status, struct fail *f)
{
    static const char unknown[] = "scheme: ";
    const struct fail reason = *f;
    if (strncmp(reason.message, unknown, sizeof unknown - 1) == 0)
        return report_failure(f, status, "schemes: %s", reason.message + sizeof unknown - 1);
    if (p->args->scheme_count == 1)
        return status;
    return report_failure(f, status, "%.60s: %.400s", p->schemes[index].name, reason.message);
}

static int plan_steps(struct plan *p, struct fail *f)
{
    const qobs_checkpoint_plan_args *a = p->args;
    p->schemes = calloc(a->scheme_count, sizeof *p->schemes);
    if (!p->schemes)
        return NO_MEMORY(f, "the schemes");
    for (size_t i = 0; i < a->scheme_count; i++) {
        const int status = open_scheme(p, i, f);
        if (status != QOBS_OK)
            return scheme_failure(p, i, status, f);
    }
    if (a->out)
        RETURN_IF_NOT_OK(run_check_out(p->schemes[0].run, a->out, f));
    const double start = seconds_now();
    RETURN_IF_NOT_OK(run_schemes(p, f));
    p->seconds = seconds_now() - start;
    RETURN_IF_NOT_OK(plan_gather(p, f));
    RETURN_IF_NOT_OK(plan_choose(p, f));
    return a->out ? plan_write_recipe(p, f) : QOBS_OK;
}

static void plan_free(struct plan *p)
{
    for (size_t i = 0; p->schemes && i < p->args->scheme_count; i++) {
        run_free(p->schemes[i].run);
        free(p->schemes[i].settings);
    }
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
    struct plan p = {.args = args};
    int status = CHECK_STRUCT(args, &f);
    if (status == QOBS_OK)
        status = check_args(args, &f);
    if (status == QOBS_OK)
        status = plan_steps(&p, &f);
    if (status == QOBS_OK && args->report)
        *args->report = plan_report(&p);
    plan_free(&p);
    return give_error(error, status, &f);
}
