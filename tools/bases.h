/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What is observed in a model goes by base names: the weights, inputs and outputs of its layers, and the states of its
 * attention. Each has an observer of its own. */
#ifndef QOBS_TOOLS_BASES_H
#define QOBS_TOOLS_BASES_H

#include "program.h"
#include "scheme.h"

enum base { BASE_WEIGHT, BASE_INPUT, BASE_OUTPUT, BASE_Q, BASE_K, BASE_V, BASES };

/* "weight", "input", ... */
extern const char *const base_names[BASES];

/* Which of an observer's results a checkpoint holds. */
enum needs {
    NEEDS_NOTHING,      /* is not quantized */
    NEEDS_DYNAMIC,      /* is quantized with scales made while the model runs */
    NEEDS_GLOBAL_SCALE, /* the same, but under a global scale made before */
    NEEDS_SCALES
};

struct base_observer {
    const char *preset;   /* NULL: none was asked for */
    bool asked;           /* --preset or --set speak of it */
    qobs_config *config;  /* NULL where needs is NEEDS_NOTHING */
    enum needs needs;
    bool zero_points, global_scales; /* among the results */
    bool searches;                   /* for the range with the least error */
    bool weighs;                     /* errors by the importance of columns */
};

/* Zero it first. */
struct bases {
    struct base_observer of[BASES];
    const char **assignments; /* of --set, as given */
    size_t count;
};

/* --preset [BASE=]NAME and --set [BASE.]KEY=VALUE; without a base they are for the weights, the base kv stands for k and v.
 * Return an exit code, complained about. */
int bases_preset(struct bases *bases, const char *given);
int bases_set(struct bases *bases, const char *given);

/* Makes the configurations: preset, then what the scheme wants, then the assignments. Weights always have one; inputs where
 * the scheme quantizes them or they were asked for; outputs and q where they were asked for; k and v always, by default as
 * e4m3 with a scale a tensor. Preset "none" takes one away. Returns an exit code, complained about. */
int bases_make(struct bases *bases, const struct scheme *scheme);

void bases_free(struct bases *bases);

#endif
