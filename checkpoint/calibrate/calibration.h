/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One call of qobs_checkpoint_calibrate. */
#pragma once

#include "calibrate/scale_sink.h"
#include "engine/engine.h"
#include "quantize/selection.h"

/* ---- Bases ------------------------------------------------------------------------------------------------------- */

/* The observers by base name: the weight, the input and the output of a layer, and the states q, k and v of attention.
 * Presets are "[BASE=]NAME", settings "[BASE.]KEY=VALUE"; kv stands for k and v. */
enum { BASE_WEIGHT = ACTIVATION_KINDS, BASES }; /* the others are the kinds of activations */

struct base {
    const char *preset;    /* NULL: the default; "none": no observer */
    const char **settings; /* "KEY=VALUE", without the base */
    size_t setting_count;
    bool requested; /* a preset or a setting names it */
};

/* Zero-initialize it. */
struct bases {
    struct base items[BASES];
    struct quant_args states[3]; /* of q, k and v */
    const struct quant_args *used_states[3];
};

/* Sorts presets and settings by base; the texts stay the caller's. Returns a status. */
int bases_read(struct bases *bases, const qobs_checkpoint_calibrate_args *args, struct fail *f);

/* Gives the groups of a configuration their schemes of inputs and outputs, and the configuration those of states.
 *  - Inputs have one if the scheme quantizes them or they were requested; outputs and q if they were requested.
 *  - Keys and values have e4m3 with one scale for each tensor.
 * Fails if a preset or a setting does not fit. */
int bases_apply(struct bases *bases, struct quant_config *config, struct fail *f);

/* Names presets and settings of activations that have no need, as their scales are not stored. */
int bases_name_unused(const struct bases *bases, const qobs_checkpoint_calibrate_args *args,
                      const struct activation_needs *needs, struct quant_config *config, struct fail *f);

/* Returns the preset of a base: "llmc.static_minmax". */
const char *base_preset(const struct bases *bases, size_t base);

void bases_free(struct bases *bases);

/* ---- The calibration --------------------------------------------------------------------------------------------- */

struct calibration {
    const qobs_checkpoint_calibrate_args *args;
    struct bases bases;
    struct input_paths paths;
    struct scheme_choice choice;
    struct inputs inputs;
    struct selection selection;
    struct activation_scales activations;
    struct output_layout layout;
    struct scale_sink sink;
    struct engine engine;
    struct meter meter;
    double seconds;      /* time for the weights */
    json_object *report; /* NULL: nobody wants it, or there is no memory for it */
};

/* The modules that need scales of a kind of activations, and those that nothing was recorded for. */
struct kind_counts {
    size_t modules, missing;
    const struct activation_need *first_missing; /* NULL: none */
};
struct kind_counts count_kind(const struct calibration *c, enum activation_kind kind);

/* Returns the report. NULL: no memory. */
json_object *calibration_report(const struct calibration *c);
