/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The first steps of a call: the inputs, the configuration, the model's weights and which of them it quantizes. */
#include "quantize/selection.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/status.h"
#include "model/draft.h"
#include "model/experts.h"
#include "model/fused.h"
#include "schemes/dialects.h"

/* ---- Inputs ------------------------------------------------------------------------------------------------------ */

int inputs_check(const struct input_paths *paths, struct fail *f)
{
    const struct list_argument lists[] = {{"states", paths->states.items, paths->states.count},
                                          {"activations", paths->activations.items, paths->activations.count},
                                          {"importance", paths->importance.items, paths->importance.count}};
    return paths->model ? check_lists(lists, sizeof lists / sizeof *lists, f) : INVALID(f, "model: is NULL");
}

int inputs_open(struct inputs *in, const struct input_paths *paths, enum layout_contents contents, struct fail *f)
{
    struct fail reason;
    RETURN_IF_NOT_OK(argument_failure("architectures", architecture_file_read(&in->given, paths->architectures, f), f));
    RETURN_IF_NOT_OK(activation_sources_open(&in->sources, &paths->states, &paths->activations, f));
    for (size_t i = 0; i < paths->importance.count; i++)
        if (importance_add(&in->importance, paths->importance.items[i], &reason) != 0)
            return report_failure(f, failure_status(&reason), "importance: %s", reason.message);
    RETURN_IF_NOT_OK(argument_failure(
        "model", (contents == CONTENTS_SCALES ? model_open_files : model_open)(&in->model, paths->model, f), f));
    architectures_find(&in->architectures, &in->model, &in->given);
    return QOBS_OK;
}

/* Returns true if the path exists and is the file `name` below `root`. */
static bool is_file(const struct stat *file, const char *root, const char *name)
{
    struct stat status;
    OWNED char *path = name ? path_join(root, name) : NULL;
    return path && stat(path, &status) == 0 && is_same_file(&status, file);
}

int inputs_check_out(const struct inputs *in, const char *path, struct fail *f)
{
    const struct model *m = &in->model;
    const struct recordings *const all[] = {&in->sources.recordings, &in->importance.recordings};
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

void inputs_free(struct inputs *in)
{
    activation_sources_free(&in->sources);
    importance_free(&in->importance);
    weights_free(&in->listed);
    model_close(&in->model);
    architecture_file_free(&in->given);
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

int selection_check(const struct scheme_choice *c, struct fail *f)
{
    const struct list_argument lists[] = {{"targets", c->targets.items, c->targets.count},
                                          {"ignore", c->ignore.items, c->ignore.count},
                                          {"settings", c->settings.items, c->settings.count}};
    RETURN_IF_NOT_OK(check_lists(lists, sizeof lists / sizeof *lists, f));
    if (!quant_release_of(c->compat))
        return INVALID(f, "compat: is %d, allowed are 0 to %d", (int)c->compat, (int)QOBS_COMPAT_NEXT);
    if (c->draft < QOBS_DRAFT_AS_LOADED || c->draft > QOBS_DRAFT_QUANTIZE)
        return INVALID(f, "draft: is %d, allowed are 0, 1 and 2", (int)c->draft);
    return QOBS_OK;
}

static int read_source(struct quant_config *config, const struct scheme_choice *c, struct fail *f)
{
    const int given = (c->scheme != NULL) + (c->config != NULL) + (c->recipe != NULL);
    if (given != 1)
        return INVALID(f, "%s of scheme, config and recipe is set; exactly one is needed",
                       given == 0 ? "none" : "more than one");
    if (c->targets.count > 0 && !c->scheme)
        return INVALID(f, "targets: belong to a scheme; a configuration and a recipe have their own");
    if (c->scheme && strcmp(c->scheme, "UNQUANTIZED") == 0)
        return INVALID(f, "scheme: UNQUANTIZED has no scheme for weights");
    return c->scheme   ? quant_config_add_scheme(config, c->scheme, c->targets.items, c->targets.count, f)
           : c->config ? argument_failure("config", quant_config_read(config, c->config, f), f)
                       : argument_failure("recipe", quant_config_read_recipe(config, c->recipe, f), f);
}

int selection_read_config(struct selection *selection, struct fail *f)
{
    const struct scheme_choice *c = selection->choice;
    struct quant_config *config = &selection->config;
    const struct dialect_row *dialect;
    if (!c->by_source)
        RETURN_IF_NOT_OK(read_source(config, c, f));
    for (size_t i = 0; i < c->ignore.count; i++)
        RETURN_IF_NOT_OK(quant_config_add_ignore(config, c->ignore.items[i], f));
    for (size_t g = 0; g < config->group_count; g++) {
        if (c->preset)
            RETURN_IF_NOT_OK(set_observer(&config->groups[g].weights, c->preset, f));
        for (size_t i = 0; i < c->settings.count; i++)
            RETURN_IF_NOT_OK(apply_setting(&config->groups[g], c->settings.items[i], f));
    }
    if (c->scheme)
        config->groups[0].changed = c->preset || c->settings.count > 0 || c->targets.count > 0;
    RETURN_IF_NOT_OK(quant_config_finish(config, c->compat, f));
    RETURN_IF_NOT_OK(dialect_find(&dialect, c->dialect, f));
    RETURN_IF_NOT_OK(dialect_apply(config, dialect, f));
    RETURN_IF_NOT_OK(settings_check_orders(selection, f));
    return settings_name_unused(selection, f);
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
static int check_known(const struct selection *selection, struct fail *f)
{
    const struct model *m = &selection->inputs->model;
    const char *class_name = json_text(json_get(m->config, "_class_name"));
    if (!selection->inputs->architectures.no_model || targets_names(&selection->config))
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
static int check_model(struct selection *selection, struct fail *f)
{
    struct model *m = &selection->inputs->model;
    if (selection->config.compat != QOBS_COMPAT_VLLM)
        return QOBS_OK;
    RETURN_IF_NOT_OK(source_check_configs(m, f));
    RETURN_IF_NOT_OK(check_known(selection, f));
    if (m->config_path)
        return QOBS_OK;
    m->config_path = "config.json";
    m->config = json_object_new_object();
    return m->config ? QOBS_OK : NO_MEMORY(f, "config.json");
}

static void mark_used_groups(struct selection *selection)
{
    for (size_t i = 0; i < selection->weights.count; i++)
        if (selection->weights.items[i].reason == WEIGHT_TAKEN)
            selection->config.groups[selection->weights.items[i].group].used = true;
}

/* ---- Experts ----------------------------------------------------------------------------------------------------- */

/* Fails if a layer of experts is quantized in part. A tensor of experts that all stay as they are is whole again. */
static int check_experts(struct selection *selection, struct fail *f)
{
    if (selection->config.compat != QOBS_COMPAT_VLLM)
        return QOBS_OK;
    RETURN_IF_NOT_OK(experts_check_layers(&selection->weights, f));
    return experts_join(&selection->weights, &selection->inputs->architectures, f);
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
static bool mark_unrecorded_drafts(struct selection *selection)
{
    bool needed = false, recorded = false;
    for (size_t i = 0; i < selection->weights.count; i++) {
        struct weight *w = &selection->weights.items[i];
        w->unrecorded = draft_holds(&selection->inputs->architectures, w->name, w->module);
        const struct quant_group *g =
            w->unrecorded && w->reason == WEIGHT_TAKEN ? &selection->config.groups[w->group] : NULL;
        needed |= g && ((g->has_inputs && g->inputs.dynamic != QUANT_DYNAMIC) ||
                        (g->has_outputs && g->outputs.dynamic != QUANT_DYNAMIC));
        recorded |= w->unrecorded && is_recorded(&selection->inputs->sources, w);
    }
    for (size_t i = 0; recorded && i < selection->weights.count; i++)
        selection->weights.items[i].unrecorded = false;
    return needed && !recorded;
}

/* A model that runs in transformers has no draft layers, so that a calibration records none. They stay as they are if
 * their scheme has stored scales of activations. */
static void leave_unrecorded_drafts(struct selection *selection)
{
    selection->drafts_left = mark_unrecorded_drafts(selection);
    if (selection->drafts_left)
        choose_leave_drafts(&selection->weights, &selection->inputs->architectures);
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static int take_list(struct weights *weights, struct inputs *in, struct fail *f)
{
    if (in->several)
        return weights_copy(weights, &in->listed, f);
    *weights = in->listed;
    in->listed = (struct weights){0};
    return QOBS_OK;
}

int selection_make(struct selection *selection, struct fail *f)
{
    struct inputs *in = selection->inputs;
    struct weights *weights = &selection->weights;
    struct quant_config *config = &selection->config;
    const struct scheme_choice *c = selection->choice;
    const bool vllm = c->compat == QOBS_COMPAT_VLLM, model = selection->contents == CONTENTS_MODEL;
    if (model)
        RETURN_IF_NOT_OK(check_model(selection, f));
    if (!in->listed.items)
        RETURN_IF_NOT_OK(weights_list(&in->listed, &in->model, &in->architectures, c->compat, c->split_experts, f));
    RETURN_IF_NOT_OK(take_list(weights, in, f));
    RETURN_IF_NOT_OK(choose_weights(weights, &in->architectures, config, c->compat, c->draft, f));
    if (vllm)
        leave_unrecorded_drafts(selection);
    RETURN_IF_NOT_OK(selection_name_unused(selection, f));
    RETURN_IF_NOT_OK(check_experts(selection, f));
    if (vllm && model)
        RETURN_IF_NOT_OK(choose_list_ignored(weights, &in->architectures, config, f));
    RETURN_IF_NOT_OK(existing_config_merge(selection, f));
    RETURN_IF_NOT_OK(weights_find_sets(weights, &in->architectures, f));
    /* The list keeps its order from here. */
    RETURN_IF_NOT_OK(mixed_sets_find(&selection->mixed_sets, weights, config, f));
    mark_used_groups(selection);
    return layout_check_shapes(weights, config, f);
}

struct activation_report {
    struct meter *meter;
    const struct activation_scales *activations;
    uint64_t model;
};

/* The layers are not known yet: the model counts as a whole. */
static int report_activations(void *context, uint64_t bytes)
{
    const struct activation_report *r = context;
    meter_set_total(r->meter, r->model + r->activations->bytes);
    return meter_add(r->meter, NULL, bytes, 0);
}

int selection_find_activations(struct selection *selection, struct activation_scales *activations,
                               struct activation_request request, struct meter *meter, struct fail *f)
{
    struct quant_config *config = &selection->config;
    struct inputs *in = selection->inputs;
    struct activation_report report = {meter, activations, in->model.bytes};
    request.progress = (struct activation_progress){report_activations, &report};
    if (!config->states && (!config->dialect || config->dialect->config.kv_cache))
        activation_sources_add_kv_cache(&in->sources, &selection->weights, config);
    RETURN_IF_NOT_OK(activation_scales_find(activations, &in->sources, &selection->weights, config, &request, f));
    selection->weights.drops_attention_scales |= config->compat == QOBS_COMPAT_VLLM && config->has_kv_cache;
    meter_set_total(meter, activations->bytes); /* the jobs follow */
    return QOBS_OK;
}

void selection_free(struct selection *selection)
{
    json_object_put(selection->existing_config);
    weights_free(&selection->weights);
    quant_config_free(&selection->config);
}
