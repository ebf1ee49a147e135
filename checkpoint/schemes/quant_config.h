/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The quantization of a whole model: groups of targets with their schemes, what is ignored, and the JSON of
 * quantization_config in config.json (compressed_tensors/quantization/quant_config.py). */
#pragma once

#include "qobs/checkpoint.h"
#include "schemes/formats.h"
#include "schemes/releases.h"

struct quant_group {
    char *name;     /* of the scheme, or the key in config_groups that the user gave */
    bool changed;   /* the scheme is no longer that of its name: config.json calls it config_group_N */
    char **targets; /* names, "re:" patterns, class names */
    size_t target_count;
    bool has_weights, has_inputs, has_outputs;
    bool other_inputs; /* the model that states the scheme quantizes its inputs in a way that no scheme does */
    struct quant_args weights, inputs, outputs;
    enum quant_format format; /* as given; else quant_config_finish chooses it */
    enum quant_format stored; /* the same, or that of a dialect (dialects.h) */
    bool used;                /* a tensor was quantized with it; set by the caller, else its format is null */
};

struct quant_config {
    struct quant_group *groups; /* the first that names a tensor has it, else the first that targets its class */
    size_t group_count;
    enum quant_format format; /* of groups that have none of their own; NONE: by their schemes */
    char **ignore;            /* as given, then what was found (choose_list_ignored) */
    size_t ignore_count;
    char **notes; /* what a recipe says and what changes nothing */
    size_t note_count;
    char **unused; /* what the user gives and nothing uses, so that the result is not what it says */
    size_t unused_count;
    bool ignore_is_complete; /* it has what an earlier configuration ignores; upstream has the earlier list alone */
    qobs_compat compat;      /* quant_config_finish sets it; it decides how the JSON is written */
    bool has_kv_cache;
    struct quant_args kv_cache;
    /* Schemes of the states q, k and v of attention in place of kv_cache, each NULL if it has none; they belong to the
     * caller. NULL: kv_cache counts. */
    const struct quant_args *const *states;
    const struct dialect_row *dialect; /* of the output; NULL: compressed-tensors */
};

/* Words of messages: the way to round codes against the inputs. */
#define DESCENT_WAY                                                                                                    \
    "--preset qobs.local_hessian --set rounding=descent --states DIR; c.save(DIR) of libqobs.calibration(model, "      \
    "\"W4A16\", importance=\"qobs.local_hessian\") as c in Python writes them"

/* Adds a group with a preset scheme of compressed-tensors, in any case. With no targets it targets "Linear".
 * Fails for unknown names with the list of known ones, nearest first. */
int quant_config_add_scheme(struct quant_config *config, const char *scheme, const char *const *targets,
                            size_t target_count, struct fail *f);

/* Adds a group with the scheme of another configuration's, for one target. It has no observers, and the name of the
 * preset that it is, if it is one. */
int quant_config_add_copy(struct quant_config *config, const struct quant_group *from, const char *target,
                          struct fail *f);

/* Adds a target to a group. */
int quant_config_add_target(struct quant_group *group, const char *target, struct fail *f);

/* Empties the ignore list. */
void quant_config_clear_ignore(struct quant_config *config);

/* Sets a format by its name in config.json. Fails for unknown names with the list of known ones. */
int quant_config_set_format(enum quant_format *format, const char *name, const char *where, struct fail *f);

/* Adds an entry to the ignore list. */
int quant_config_add_ignore(struct quant_config *config, const char *entry, struct fail *f);

/* Adds a note for the report. */
int quant_config_add_note(struct quant_config *config, struct fail *f, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a text about something that nothing uses. */
int quant_config_add_unused(struct quant_config *config, struct fail *f, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds the array "unused" with these texts to a report. Returns false if there is no memory. */
bool quant_config_report_unused(const struct quant_config *config, json_object *report);

/* A preset scheme; scheme_presets.c is the table. */
struct scheme_preset {
    const char *name;
    const struct quant_args *weights;
    const struct quant_args *inputs; /* NULL: activations are not quantized */
    const char *summary;
};

/* Returns a preset by index; NULL after the last one. */
const struct scheme_preset *scheme_preset_at(size_t index);

/* Returns the preset with that name in any case, or NULL. */
const struct scheme_preset *scheme_preset_find(const char *name);

/* Returns the bits of an element of a preset's weights in a large matrix of a bf16 model: those of its code, and its
 * share of a scale and a zero point. NaN: no memory. */
double scheme_preset_bits(const struct scheme_preset *preset);

/* Reads a whole quantization_config (a JSON text) from a file: "config_groups" of schemes, or of lists of targets under
 * the name of a preset; "ignore"; "kv_cache_scheme", which needs no groups; "format". Messages name the file. */
int quant_config_read(struct quant_config *config, const char *path, struct fail *f);

/* Adds a group with a preset scheme. targets: a text or a list of texts; NULL: linear layers. */
int quant_config_read_scheme(struct quant_config *config, const char *scheme, const json_object *targets,
                             const char *where, struct fail *f);

/* Adds the member "ignore" of an object, a text or a list of texts. */
int quant_config_read_ignore(struct quant_config *config, const json_object *json, const char *where, struct fail *f);

/* Reads it from parsed JSON, as in the config.json of a quantized model. */
int quant_config_parse(struct quant_config *config, const json_object *json, const char *where, struct fail *f);

/* Reads a recipe of llm-compressor in YAML or JSON: stages with a QuantizationModifier (scheme or config_groups,
 * targets, ignore, kv_cache_scheme, observer overrides). Modifiers of other kinds are refused by name. */
int quant_config_read_recipe(struct quant_config *config, const char *path, struct fail *f);

/* Names members of a whole configuration. Fails for those that no configuration has, with the nearest one. */
int unused_members_name(struct quant_config *config, const json_object *json, const char *where, struct fail *f);

/* Names members of a scheme as it was read that its strategy does not use. weights: it is of weights. */
int unused_members_of_args(struct quant_config *config, const struct quant_args *args, const char *where, bool weights,
                           struct fail *f);

/* Fails if one of the settings "KEY=VALUE" is given twice with two values. */
int settings_check_once(const char *const *settings, size_t count, struct fail *f);

/* Completes and checks the groups after --preset and --set were applied: formats, zp_dtype of asymmetric schemes,
 * names of observers ("minmax" becomes "static_minmax", "mse" "memoryless_mse"), combinations that no format stores
 * (fp4 asymmetric). A group without a format gets that of the configuration, else the one that vLLM loads; with
 * the others the one that compressed-tensors infers. Fails for formats that do not hold the scheme, and for those that
 * the release does not have. */
int quant_config_finish(struct quant_config *config, qobs_compat compat, struct fail *f);

/* Returns true if a tensor is quantized alike; observers may differ. */
bool quant_args_alike(const struct quant_args *a, const struct quant_args *b);

/* Returns true if a runtime stores and runs modules of both groups alike; observers and targets may differ. */
bool quant_groups_alike(const struct quant_group *a, const struct quant_group *b);

/* Returns true if a group quantizes weights and inputs as a preset; observers may differ. */
bool quant_group_has_preset(const struct quant_group *group, const struct scheme_preset *preset);

/* Returns true if a weight has a scale of its complete tensor, which the members of its set share: the global scale of
 * NVFP4, and the scale of FP8, which vLLM makes the largest of the set before it quantizes the others again. */
bool shares_scale(const struct quant_args *args, qobs_compat compat);

/* Returns quantization_config. `existing`, if not NULL, is the quantization_config that config.json had: if it is one
 * of compressed-tensors, it is merged as upstream merges it. NULL: no memory. */
json_object *quant_config_json(const struct quant_config *config, const json_object *existing);

void quant_config_free(struct quant_config *config);

/* The compiled entries of a configuration: what it ignores, and the targets of each group. Zero-initialize it; free it
 * also after a failure. */
struct quant_matchers {
    struct matcher *ignore, **groups;
    size_t count;
};
int quant_matchers_create(struct quant_matchers *m, const struct quant_config *config, struct fail *f);
void quant_matchers_free(struct quant_matchers *m);
