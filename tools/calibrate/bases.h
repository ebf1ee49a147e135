/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The observers of a calibration, one for each base name: weights, inputs and outputs of the layers, and the states
 * q, k and v of attention. */
#ifndef QOBS_TOOLS_BASES_H
#define QOBS_TOOLS_BASES_H

#include "program.h"
#include "scheme.h"

enum base { BASE_WEIGHT, BASE_INPUT, BASE_OUTPUT, BASE_Q, BASE_K, BASE_V, BASES };

/* "weight", "input", ..., indexed by enum base. */
extern const char *const base_names[BASES];

/* The results that a checkpoint stores for a base name. */
enum needs {
    NEEDS_NOTHING,      /* the tensor is not quantized */
    NEEDS_DYNAMIC,      /* scales are computed while the model runs */
    NEEDS_GLOBAL_SCALE, /* as NEEDS_DYNAMIC, with a stored global scale */
    NEEDS_SCALES        /* scales, and zero points if the configuration has them */
};

struct base_observer {
    const char *preset;  /* NULL: the base name has no observer */
    bool requested;      /* --preset or --set names this base */
    qobs_config *config; /* NULL if needs is NEEDS_NOTHING */
    enum needs needs;
    bool zero_points, global_scales; /* among the results */
    bool searches;                   /* the observer searches the range with the smallest error */
    bool optimal;                    /* it tries every scale, under the final global scale */
    bool hessian;                    /* it needs recorded activations, not their mean squares */
    bool uses_importance;            /* errors are weighted by the importance of columns */
};

/* Zero-initialize it. */
struct bases {
    struct base_observer observers[BASES];
    const char **assignments; /* arguments of --set, in the order given */
    size_t count;
};

/* Apply the arguments of --preset and --set: [BASE=]NAME and [BASE.]KEY=VALUE. The default base is weight, and kv
 * stands for k and v. Both return an exit code. */
int bases_preset(struct bases *bases, const char *argument);
int bases_set(struct bases *bases, const char *argument);

/* Creates the configurations: the preset, then the settings of the scheme, then the assignments of --set.
 *  - Weights always have one.
 *  - Inputs have one if the scheme quantizes them or they were requested.
 *  - Outputs and q have one if they were requested.
 *  - k and v always have one, by default e4m3 with one scale for each tensor.
 * The preset "none" removes the observer of a base other than weight. Returns an exit code. */
int bases_make(struct bases *bases, const struct scheme *scheme);

void bases_free(struct bases *bases);

#endif
