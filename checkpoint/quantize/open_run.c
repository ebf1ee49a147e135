/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The first steps of a run: the configuration, the model, its weights and activations, the layout of the output. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/text.h"
#include "model/experts.h"
#include "model/draft.h"
#include "model/fused.h"
#include "quantize/runtime_support.h"
#include "files/status.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static int check_args(const qobs_checkpoint_quantize_args *a, struct fail *f)
{
    if (!a->model || !a->out)
        return INVALID(f, "%s: is NULL", a->model ? "out" : "model");
    const struct list_argument lists[] = {{"targets", a->targets, a->target_count},
                                          {"ignore", a->ignore, a->ignore_count},
                                          {"settings", a->settings, a->setting_count},
                                          {"states", a->states, a->state_count},
                                          {"activations", a->activations, a->activation_count},
                                          {"importance", a->importance, a->importance_count}};
    RETURN_IF_NOT_OK(check_lists(lists, sizeof lists / sizeof *lists, f));
    if (a->part_count > MAX_PARTS)
        return INVALID(f, "part_count: is %zu, allowed are 0 to %d", a->part_count, MAX_PARTS);
    if (a->part_count > 0 ? a->part < 1 || a->part > a->part_count : a->part != 0)
        return INVALID(f, "part: is %zu of %zu; a number from 1 to part_count is needed", a->part, a->part_count);
    if (!quant_release_of(a->compat))
        return INVALID(f, "compat: is %d, allowed are 0 to %d", (int)a->compat, (int)QOBS_COMPAT_NEXT);
    if (a->fill_experts < QOBS_FILL_REFUSE || a->fill_experts > QOBS_FILL_MEDIAN)
        return INVALID(f, "fill_experts: is %d, allowed are 0, 1 and 2", (int)a->fill_experts);
    if (a->draft < QOBS_DRAFT_AS_LOADED || a->draft > QOBS_DRAFT_QUANTIZE)
        return INVALID(f, "draft: is %d, allowed are 0, 1 and 2", (int)a->draft);
    return check_runtime(a->runtime, f);
}

int run_create(struct quantize_run **run, const qobs_checkpoint_quantize_args *args, enum layout_contents contents,
               struct fail *f)
{
    RETURN_IF_NOT_OK(check_args(args, f));
    *run = calloc(1, sizeof **run);
    if (!*run)
        return NO_MEMORY(f, "a run");
    (*run)->args = args;
    (*run)->contents = contents;
    pthread_mutex_init(&(*run)->lock, NULL);
    return QOBS_OK;
}

/* ---- Configuration ----------------------------------------------------------------------------------------------- */

/* Gives the weights of a group another observer: "llmc.NAME", which configurations call NAME, or "qobs.NAME". */
static int set_observer(struct quant_args *weights, const char *preset, struct fail *f)
{
    OWNED_CONFIG qobs_config *known = NULL;
    qobs_error error = {0};
    const bool own = strncmp(preset, "qobs.", 5) == 0;
    if (strncmp(preset, "llmc.", 5) != 0 && !own)
        return INVALID(f, "preset: is '%.100s'; a checkpoint of compressed-tensors has observers llmc.* and qobs.*",
                       preset);
    const bool alias = strcmp(preset, "llmc.fouroversix") == 0;
    if (qobs_config_create(&known, alias ? "llmc.nvfp4_expanded_mse" : preset, NULL, &error) != QOBS_OK)
        return INVALID(f, "preset: %s", error.message);
    return text_set(&weights->observer, own ? preset : preset + 5) ? QOBS_OK : NO_MEMORY(f, "the scheme");
}

static int apply_setting(struct quant_group *group, const char *setting, struct fail *f)
{
    static const char format[] = "format=";
    if (strncmp(setting, "base_name=", 10) == 0)
        return INVALID(f, "setting: is '%.100s', but the base name of weights is weight", setting);
    return strncmp(setting, format, sizeof format - 1) == 0
               ? quant_config_set_format(&group->format, setting + sizeof format - 1, "--set", f)
               : quant_args_assign(&group->weights, setting, f);
}

static int read_source(struct quant_config *config, const qobs_checkpoint_quantize_args *a, struct fail *f)
{
    const int given = (a->scheme != NULL) + (a->config != NULL) + (a->recipe != NULL);
    if (given != 1)
        return INVALID(f, "%s of scheme, config and recipe is set; exactly one is needed",
                       given == 0 ? "none" : "more than one");
    if (a->target_count > 0 && !a->scheme)
        return INVALID(f, "targets: belong to a scheme; a configuration and a recipe have their own");
    if (a->scheme && strcmp(a->scheme, "UNQUANTIZED") == 0)
        return INVALID(f, "scheme: UNQUANTIZED has no scheme for weights");
    return a->scheme   ? quant_config_add_scheme(config, a->scheme, a->targets, a->target_count, f)
           : a->config ? argument_failure("config", quant_config_read(config, a->config, f), f)
                       : argument_failure("recipe", quant_config_read_recipe(config, a->recipe, f), f);
}

int run_read_config(struct quantize_run *run, struct fail *f)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    struct quant_config *config = &run->config;
    RETURN_IF_NOT_OK(read_source(config, a, f));
    for (size_t i = 0; i < a->ignore_count; i++)
        RETURN_IF_NOT_OK(quant_config_add_ignore(config, a->ignore[i], f));
    for (size_t g = 0; g < config->group_count; g++) {
        if (a->preset)
            RETURN_IF_NOT_OK(set_observer(&config->groups[g].weights, a->preset, f));
        for (size_t i = 0; i < a->setting_count; i++)
            RETURN_IF_NOT_OK(apply_setting(&config->groups[g], a->settings[i], f));
    }
    if (a->scheme)
        config->groups[0].changed = a->preset || a->setting_count > 0 || a->target_count > 0;
    RETURN_IF_NOT_OK(quant_config_finish(config, a->compat, f));
    RETURN_IF_NOT_OK(settings_check_orders(run, f));
    return settings_name_unused(run, f);
}

/* ---- Checks of the model ----------------------------------------------------------------------------------------- */

/* Returns true if the targets are names or patterns, so that nothing depends on the classes of modules. */
static bool targets_names(const struct quant_config *config)
{
    for (size_t g = 0; g < config->group_count; g++)
        for (size_t i = 0; i < config->groups[g].target_count; i++)
            if (strcmp(config->groups[g].targets[i], "Linear") == 0)
                return false;
    return true;
}

/* Fails if nothing says what builds the model and the targets are no names. */
static int check_known(const struct quantize_run *run, struct fail *f)
{
    const struct model *m = &run->model;
    const char *class_name = json_text(json_get(m->config, "_class_name"));
    if (!run->architectures.no_model || targets_names(&run->config))
        return QOBS_OK;
    if (!m->config_path)
        return model_refuse_without_config(m, f);
    return INVALID(f,
                   "%.200s/%s: %s%.60s%s, so that no runtime is known to build the model; --targets with the names of "
                   "modules, or re: and a pattern, converts those, and nothing says what loads them",
                   m->tree.root, m->config_path, class_name ? "is of diffusers, '" : "has no model_type",
                   class_name ? class_name : "", class_name ? "'" : "");
}

/* Fails if the model is none that is understood. A conversion by names makes the config.json that the model lacks. */
static int check_model(struct quantize_run *run, struct fail *f)
{
    struct model *m = &run->model;
    if (run->args->compat != QOBS_COMPAT_VLLM)
        return QOBS_OK;
    RETURN_IF_NOT_OK(source_check_configs(m, f));
    RETURN_IF_NOT_OK(check_known(run, f));
    if (m->config_path)
        return QOBS_OK;
    m->config_path = "config.json";
    m->config = json_object_new_object();
    return m->config ? QOBS_OK : NO_MEMORY(f, "config.json");
}

static void mark_used_groups(struct quantize_run *run)
{
    for (size_t i = 0; i < run->weights.count; i++)
        if (run->weights.items[i].reason == WEIGHT_TAKEN)
            run->config.groups[run->weights.items[i].group].used = true;
}

/* ---- Fused sets -------------------------------------------------------------------------------------------------- */

static int check_sets(struct quantize_run *run, struct fail *f)
{
    RETURN_IF_NOT_OK(weights_find_sets(&run->weights, &run->architectures, f));
    RETURN_IF_NOT_OK(mixed_sets_find(&run->mixed_sets, &run->weights, &run->config, f));
    if (run->mixed_sets.count == 0 || run->args->allow_mixed_sets || run->args->compat != QOBS_COMPAT_VLLM)
        return QOBS_OK;
    return INVALID(f, "%s", run->mixed_sets.refusal.message);
}

/* ---- Activations ------------------------------------------------------------------------------------------------- */

static int find_activations(struct quantize_run *run, const bool *requested, struct fail *f)
{
    const struct activation_progress progress = {run_progress, run};
    if (!run->config.states)
        activation_scales_add_kv_cache(&run->activations, &run->weights, &run->config);
    return activation_scales_find(&run->activations, &run->weights, &run->config, run->args, requested, &progress, f);
}

/* ---- Experts ------------------------------------------------------------------------------------------------------
 */

/* Fails if a layer of experts is quantized in part. A tensor of experts that all stay as they are is whole again. */
static int check_experts(struct quantize_run *run, struct fail *f)
{
    if (run->args->compat != QOBS_COMPAT_VLLM)
        return QOBS_OK;
    RETURN_IF_NOT_OK(experts_check_layers(&run->weights, f));
    return experts_join(&run->weights, &run->architectures, f);
}

/* Returns true if activations of the module are recorded. */
static bool is_recorded(const struct activation_sources *sources, const struct weight *w)
{
    for (enum activation_kind k = ACTIVATION_INPUT; k < ACTIVATION_KINDS; k++) {
        const struct tensor_ref *found = NULL;
        size_t count, length = w->module;
        if (k >= ACTIVATION_Q)
            length = component_start(w->name, length) - (component_start(w->name, length) > 0);
        if (saved_states_find(&sources->states, w->name, length, activation_suffixes[k], &count) ||
            (recordings_find(&sources->recordings, w->name, length, activation_suffixes[k], &found, NULL) == 0 &&
             found))
            return true;
    }
    return false;
}

/* Marks the layers of the draft, unless activations of one are recorded. Returns true if a scheme needs them. */
static bool mark_unrecorded_drafts(struct quantize_run *run)
{
    bool needed = false, recorded = false;
    for (size_t i = 0; i < run->weights.count; i++) {
        struct weight *w = &run->weights.items[i];
        w->unrecorded = draft_holds(&run->architectures, w->name, w->module);
        const struct quant_group *g = w->unrecorded && w->reason == WEIGHT_TAKEN ? &run->config.groups[w->group] : NULL;
        needed |= g && ((g->has_inputs && g->inputs.dynamic != QUANT_DYNAMIC) ||
                        (g->has_outputs && g->outputs.dynamic != QUANT_DYNAMIC));
        recorded |= w->unrecorded && is_recorded(&run->activations.sources, w);
    }
    for (size_t i = 0; recorded && i < run->weights.count; i++)
        run->weights.items[i].unrecorded = false;
    return needed && !recorded;
}

/* A model that runs in transformers has no draft layers, so that a calibration records none. They stay as they are if
 * their scheme has stored scales of activations. */
static void leave_unrecorded_drafts(struct quantize_run *run)
{
    run->drafts_left = mark_unrecorded_drafts(run);
    if (run->drafts_left)
        choose_leave_drafts(&run->weights, &run->architectures);
}

/* ---- The first steps --------------------------------------------------------------------------------------------- */

int run_open(struct quantize_run *run, const bool *requested, struct fail *f)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    struct fail reason;
    RETURN_IF_NOT_OK(argument_failure("architectures", architecture_file_read(&run->given, a->architectures, f), f));
    RETURN_IF_NOT_OK(activation_scales_open(&run->activations, a, f));
    for (size_t i = 0; i < a->importance_count; i++)
        if (importance_add(&run->importance, a->importance[i], &reason) != 0)
            return report_failure(f, failure_status(&reason), "importance: %s", reason.message);
    RETURN_IF_NOT_OK(argument_failure(
        "model", (run->contents == CONTENTS_SCALES ? model_open_files : model_open)(&run->model, a->model, f), f));
    architectures_find(&run->architectures, &run->model, &run->given);
    if (run->contents == CONTENTS_MODEL)
        RETURN_IF_NOT_OK(check_model(run, f));
    RETURN_IF_NOT_OK(weights_list(&run->weights, &run->model, &run->architectures, a->compat, a->split_experts, f));
    RETURN_IF_NOT_OK(choose_weights(&run->weights, &run->architectures, &run->config, a->compat, a->draft, f));
    if (a->compat == QOBS_COMPAT_VLLM)
        leave_unrecorded_drafts(run);
    RETURN_IF_NOT_OK(run_name_unused(run, f));
    RETURN_IF_NOT_OK(check_experts(run, f));
    if (a->compat == QOBS_COMPAT_VLLM && run->contents == CONTENTS_MODEL)
        RETURN_IF_NOT_OK(choose_list_ignored(&run->weights, &run->architectures, &run->config, f));
    RETURN_IF_NOT_OK(existing_config_merge(run, f));
    RETURN_IF_NOT_OK(check_sets(run, f)); /* the list keeps its order from here */
    mark_used_groups(run);
    RETURN_IF_NOT_OK(layout_check_shapes(&run->weights, &run->config, f));
    if (run->contents == CONTENTS_MODEL)
        RETURN_IF_NOT_OK(runtime_support_check(run, f));
    if (!run->planning)
        RETURN_IF_NOT_OK(find_activations(run, requested, f));
    run->weights.drops_attention_scales |= a->compat == QOBS_COMPAT_VLLM && run->config.has_kv_cache; /* for new ones */
    return layout_make(&run->layout, &run->model, &run->weights, &run->config, &run->activations, a->compat,
                       run->contents, f);
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

/* Returns true if the path exists and is the file `name` below `root`. */
static bool is_file(const struct stat *file, const char *root, const char *name)
{
    struct stat status;
    OWNED char *path = name ? path_join(root, name) : NULL;
    return path && stat(path, &status) == 0 && is_same_file(&status, file);
}

int run_check_out(const struct quantize_run *run, const char *path, struct fail *f)
{
    const struct model *m = &run->model;
    const struct recordings *const all[] = {&run->activations.sources.recordings, &run->importance.recordings};
    struct stat out;
    if (stat(path, &out) != 0)
        return QOBS_OK;
    bool same = is_file(&out, m->tree.root, m->index) || is_file(&out, m->tree.root, m->config_path);
    for (size_t i = 0; i < m->shard_count; i++)
        same |= is_file(&out, m->tree.root, m->shards[i].path);
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < all[k]->count; i++)
            same |= is_file(&out, ".", all[k]->items[i].set->path);
    return same ? INVALID(f, "out: %s: is an input; another name is needed", path) : QOBS_OK;
}
