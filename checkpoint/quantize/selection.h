/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The inputs of a call, opened once, and what one configuration makes of them: which weights it quantizes, and how. A
 * plan has a selection for each scheme. */
#pragma once

#include "activations/activation_scales.h"
#include "activations/column_importance.h"
#include "engine/progress.h"
#include "model/architecture.h"
#include "quantize/layout.h"

/* ---- Inputs ------------------------------------------------------------------------------------------------------ */

/* The arguments that name them. */
struct input_paths {
    const char *model, *architectures; /* architectures: NULL: those of the library */
    struct texts states, activations, importance;
};

/* Zero-initialize it. */
struct inputs {
    struct model model;
    struct weights listed;              /* of the model; the selection takes it, or copies it if there are several */
    bool several;                       /* selections choose from the list */
    struct architecture_file given;     /* rows of the arguments */
    struct architectures architectures; /* of the model */
    struct activation_sources sources;
    struct importance_sources importance;
};

/* Fails if the model or an entry is NULL. */
int inputs_check(const struct input_paths *paths, struct fail *f);

/* Opens them. contents: CONTENTS_SCALES takes a file of any name for a model. Returns a status. */
int inputs_open(struct inputs *inputs, const struct input_paths *paths, enum layout_contents contents, struct fail *f);

/* Fails if an output file would replace a file of the model or of the recordings. */
int inputs_check_out(const struct inputs *inputs, const char *path, struct fail *f);
void inputs_free(struct inputs *inputs);

/* ---- Selections -------------------------------------------------------------------------------------------------- */

/* The arguments that choose weights and their schemes; those of qobs_checkpoint_quantize_args. */
struct scheme_choice {
    const char *scheme, *config, *recipe, *preset;
    struct texts targets, ignore, settings;
    qobs_compat compat;
    qobs_draft draft;
    bool split_experts;
    const char *dialect; /* NULL: compressed-tensors */
    bool by_source;      /* the scheme is that of the model, which is quantized already (source_schemes.h) */
};

/* Zero-initialize it, but for the first members. */
struct selection {
    const struct scheme_choice *choice;
    struct inputs *inputs;
    enum layout_contents contents; /* CONTENTS_SCALES: nothing loads the output, which has no configuration */
    bool silent;                   /* another part names what is not used */
    struct quant_config config;
    struct weights weights;
    json_object *existing_config; /* what stays of the model's quantization_config; NULL: none */
    struct mixed_sets mixed_sets;
    bool drafts_left; /* draft layers stay because no activations of them are recorded */
};

/* Fails if a member of the choice is wrong or missing. */
int selection_check(const struct scheme_choice *choice, struct fail *f);

/* Reads the scheme, configuration or recipe, and completes the configuration. by_source: the configuration is there. */
int selection_read_config(struct selection *selection, struct fail *f);

/* Lists the weights of the opened model and chooses those that are quantized. */
int selection_make(struct selection *selection, struct fail *f);

/* Finds the scales of activations that the schemes store. `request` needs no progress: the meter gets it. */
int selection_find_activations(struct selection *selection, struct activation_scales *activations,
                               struct activation_request request, struct meter *meter, struct fail *f);
void selection_free(struct selection *selection);

/* Fails for actorder with values that runtimes refuse, and notes the others, which change nothing. */
int settings_check_orders(struct selection *selection, struct fail *f);

/* Names settings and presets that change nothing in the finished configuration. */
int settings_name_unused(struct selection *selection, struct fail *f);

/* Adds to the configuration's `unused` the entries of `ignore` and `targets` that match no module, each with what
 * would, and the groups that get nothing because earlier ones have it. After choose_weights, before the ignore list is
 * completed. */
int selection_name_unused(struct selection *selection, struct fail *f);

/* Decides which codes stay as they are, and fills existing_config with the quantization_config that describes them.
 * Else completes the configuration: its ignore list then fits the old layers and the new ones. The chosen weights and
 * the ignore list of the new configuration must be there. In the compatible mode all is as upstream has it: codes stay
 * unless they are quantized anew, and one list of groups is put beside the other. */
int existing_config_merge(struct selection *selection, struct fail *f);

/* Keeps the scheme of keys and values, and their scales, if every layer is quantized anew: in existing_config, which
 * then has no groups. A scheme that compressed-tensors does not have is left out with a note. */
int existing_config_keep_cache(struct selection *selection, struct fail *f);
