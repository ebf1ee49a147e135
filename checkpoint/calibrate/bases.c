/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Parses the bases of presets and settings, and turns them into members of schemes. */
#include "calibrate/calibration.h"

#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "activations/streams.h"
#include "files/status.h"

static const char weight_name[] = "weight";

/* Returns the bases that a name stands for, one bit for each; 0: unknown name. */
static unsigned parse_base(const char *name, size_t length)
{
    for (unsigned b = 0; b < BASES; b++) {
        const char *known = b == BASE_WEIGHT ? weight_name : activation_bases[b];
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return 1u << b;
    }
    return length == 2 && memcmp(name, "kv", 2) == 0 ? 1u << ACTIVATION_K | 1u << ACTIVATION_V : 0;
}

static int unknown_base(const char *what, const char *text, size_t length, struct fail *f)
{
    return INVALID(f, "%s: '%.*s' is no base name; known are weight, input, output, q, k, v and kv", what,
                   length > 60 ? 60 : (int)length, text);
}

static int read_preset(struct bases *bases, const char *text, struct fail *f)
{
    const char *equals = strchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : 0;
    const unsigned mask = equals ? parse_base(text, length) : 1u << BASE_WEIGHT;
    if (mask == 0)
        return unknown_base("preset", text, length, f);
    for (size_t b = 0; b < BASES; b++)
        if (mask & 1u << b) {
            bases->items[b].preset = equals ? equals + 1 : text;
            bases->items[b].requested = true;
        }
    return QOBS_OK;
}

static int read_setting(struct bases *bases, const char *text, struct fail *f)
{
    const size_t length = strcspn(text, ".=");
    const bool dotted = text[length] == '.';
    const char *rest = dotted ? text + length + 1 : text;
    const unsigned mask = dotted ? parse_base(text, length) : 1u << BASE_WEIGHT;
    if (mask == 0)
        return unknown_base("setting", text, length, f);
    if (strncmp(rest, "base_name=", 10) == 0)
        return INVALID(f, "setting: is '%.100s', but the base name is what stands before the setting: input.num_bits=8",
                       text);
    for (size_t b = 0; b < BASES; b++) {
        struct base *base = &bases->items[b];
        if (!(mask & 1u << b))
            continue;
        const char **added = list_add(&base->settings, &base->setting_count, sizeof *added);
        if (!added)
            return NO_MEMORY(f, "the settings");
        *added = rest;
        base->requested = true;
    }
    return QOBS_OK;
}

int bases_read(struct bases *bases, const qobs_checkpoint_calibrate_args *args, struct fail *f)
{
    for (size_t i = 0; i < args->preset_count; i++)
        RETURN_IF_NOT_OK(read_preset(bases, args->presets[i], f));
    for (size_t i = 0; i < args->setting_count; i++)
        RETURN_IF_NOT_OK(read_setting(bases, args->settings[i], f));
    for (size_t b = 0; b < ACTIVATION_KINDS && args->activation_count + args->state_count == 0; b++)
        if (bases->items[b].requested && strcmp(base_preset(bases, b), "none") != 0)
            return INVALID(f, "activations: there are none, but a preset or a setting is for %s", activation_bases[b]);
    return QOBS_OK;
}

const char *base_preset(const struct bases *bases, size_t base)
{
    const char *preset = bases->items[base].preset;
    return preset ? preset : base == BASE_WEIGHT ? "llmc.memoryless_minmax" : "llmc.static_minmax";
}

/* ---- Schemes ----------------------------------------------------------------------------------------------------- */

/* Gives the scheme of a kind its observer and settings, and checks that they fit. */
static int complete(const struct bases *bases, enum activation_kind kind, struct quant_args *args, const char *what,
                    struct fail *f)
{
    const struct base *base = &bases->items[kind];
    const char *preset = base_preset(bases, kind);
    OWNED_CONFIG qobs_config *known = NULL, *config = NULL;
    qobs_error error = {0};
    if (qobs_config_create(&known, preset, NULL, &error) != QOBS_OK)
        return INVALID(f, "preset %s: %s", activation_bases[kind], error.message);
    if (strncmp(preset, "llmc.", 5) != 0)
        return INVALID(f, "preset %s: %.100s cannot serve %.100s; observers llmc.* can", activation_bases[kind], preset,
                       what);
    if (!text_set(&args->observer, preset + 5))
        return NO_MEMORY(f, "the scheme");
    for (size_t i = 0; i < base->setting_count; i++)
        RETURN_IF_NOT_OK(quant_args_assign(args, base->settings[i], f));
    if (args->group_size > 0 && args->strategy == QUANT_TENSOR) /* as the validators of QuantizationArgs have it */
        args->strategy = QUANT_GROUP;
    if (args->dynamic == QUANT_DYNAMIC)
        return QOBS_OK;
    const struct activation_need need = {.kind = kind, .args = args};
    struct fail reason;
    return activation_config(&config, &need, &reason) == QOBS_OK
               ? QOBS_OK
               : INVALID(f, "%s%s", base->setting_count > 0 ? "setting: " : "", reason.message);
}

/* Applies a base to the inputs or outputs of a group. */
static int apply(const struct bases *bases, enum activation_kind kind, const char *group, bool *has,
                 struct quant_args *args, struct fail *f)
{
    if (strcmp(base_preset(bases, kind), "none") == 0)
        *has = false;
    else if (bases->items[kind].requested && !*has) {
        *args = (struct quant_args){.num_bits = 8, .symmetric = true, .strategy = QUANT_TENSOR};
        *has = true;
    }
    return *has ? complete(bases, kind, args, group, f) : QOBS_OK;
}

/* config.json calls the observer of llmc.mse by a name under which none is registered. No config.json follows here. */
static int restore_observer(struct quant_args *weights, struct fail *f)
{
    const bool renamed = weights->observer && strcmp(weights->observer, "static_mse") == 0;
    return !renamed || text_set(&weights->observer, "mse") ? QOBS_OK : NO_MEMORY(f, "the scheme");
}

int bases_apply(struct bases *bases, struct quant_config *config, struct fail *f)
{
    for (size_t g = 0; g < config->group_count; g++) {
        struct quant_group *group = &config->groups[g];
        RETURN_IF_NOT_OK(restore_observer(&group->weights, f));
        RETURN_IF_NOT_OK(apply(bases, ACTIVATION_INPUT, group->name, &group->has_inputs, &group->inputs, f));
        RETURN_IF_NOT_OK(apply(bases, ACTIVATION_OUTPUT, group->name, &group->has_outputs, &group->outputs, f));
    }
    for (enum activation_kind kind = ACTIVATION_Q; kind <= ACTIVATION_V; kind++) {
        struct quant_args *state = &bases->states[kind - ACTIVATION_Q];
        if (strcmp(base_preset(bases, kind), "none") == 0 || (kind == ACTIVATION_Q && !bases->items[kind].requested))
            continue;
        if (config->has_kv_cache)
            RETURN_IF_NOT_OK(quant_args_copy(state, &config->kv_cache, f));
        else
            *state =
                (struct quant_args){.num_bits = 8, .type = QUANT_FLOAT, .symmetric = true, .strategy = QUANT_TENSOR};
        RETURN_IF_NOT_OK(complete(bases, kind, state, "states of attention", f));
        bases->used_states[kind - ACTIVATION_Q] = state;
    }
    config->states = bases->used_states;
    return QOBS_OK;
}

/* ---- Without effect ---------------------------------------------------------------------------------------------- */

static bool is_needed(const struct activation_needs *n, enum activation_kind kind)
{
    for (size_t i = 0; i < n->count; i++)
        if (n->items[i].kind == kind)
            return true;
    return false;
}

/* Returns true if the base that a text begins with, up to `mark`, stands for activations alone, and none is needed. */
static bool is_idle(const struct bases *bases, const struct activation_needs *needs, const char *text, char mark)
{
    const size_t length = strcspn(text, ".=");
    const unsigned mask = text[length] == mark ? parse_base(text, length) : 0;
    bool idle = mask != 0 && !(mask & 1u << BASE_WEIGHT);
    for (enum activation_kind k = ACTIVATION_INPUT; k < ACTIVATION_KINDS && idle; k++)
        if (mask & 1u << k)
            idle = !is_needed(needs, k) && strcmp(base_preset(bases, k), "none") != 0;
    return idle;
}

int bases_name_unused(const struct bases *bases, const qobs_checkpoint_calibrate_args *args,
                      const struct activation_needs *needs, struct quant_config *config, struct fail *f)
{
    static const char why[] = "no scales of these activations are stored";
    for (size_t i = 0; i < args->preset_count; i++)
        if (strchr(args->presets[i], '=') && is_idle(bases, needs, args->presets[i], '='))
            RETURN_IF_NOT_OK(
                quant_config_add_unused(config, f, "preset: %.100s changes nothing: %s", args->presets[i], why));
    for (size_t i = 0; i < args->setting_count; i++)
        if (is_idle(bases, needs, args->settings[i], '.'))
            RETURN_IF_NOT_OK(
                quant_config_add_unused(config, f, "setting: %.100s changes nothing: %s", args->settings[i], why));
    return QOBS_OK;
}

void bases_free(struct bases *bases)
{
    for (size_t b = 0; b < BASES; b++)
        free(bases->items[b].settings);
    for (size_t i = 0; i < 3; i++)
        quant_args_free(&bases->states[i]);
    *bases = (struct bases){0};
}
