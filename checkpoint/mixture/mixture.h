/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One call of qobs_checkpoint_plan: an engine for each scheme on one model, batch by batch in turn, so that a model
 * that memory does not hold is read once. */
#pragma once

#include "engine/engine.h"
#include "mixture/cost_sink.h"
#include "quantize/selection.h"

/* Second order does not tell a KL divergence above this one, in nats. */
#define PREDICTION_LIMIT_NATS 2

/* Words of messages: the way to states with sensitivity. */
#define SENSITIVITY_WAY                                                                                                \
    "c.save(DIR) of libqobs.calibration(model, \"W4A16\", sensitivity=True) as c in Python writes it"

/* A scheme and what it makes of the weights. */
struct mixture_scheme {
    const char **settings;
    struct scheme_choice choice; /* its scheme is a preset */
    struct selection selection;
    uint64_t *bytes; /* of the output, for each weight */
    struct cost_sink sink;
    struct engine engine;
};

/* A weight, with what each scheme makes of it. */
struct mixture_module {
    const struct weight *weight; /* of the first scheme */
    size_t item;                 /* modules with one scheme have one item */
};

/* Sums over modules under one scheme. */
struct mixture_cost {
    double bytes, error, loss[HALVES];
};

struct mixture {
    const qobs_checkpoint_plan_args *args;
    struct input_paths paths;
    struct inputs inputs;
    struct weighing weighing;
    struct meter meter;
    struct mixture_scheme *schemes;
    struct mixture_module *modules; /* that a scheme quantizes, in the order of their names */
    size_t module_count;
    size_t item_count;
    struct mixture_cost *costs; /* item_count rows of one for each scheme */
    size_t *choice;          /* scheme of each item; NULL: no mixture was asked for */
    bool optimal;
    size_t unknown; /* modules without sensitivity or importance */
    const struct weight *first_unknown;
    double elements;
    double seconds;
};

/* Lists the modules, before the engines run. Returns a status. */
int mixture_list_modules(struct mixture *p, struct fail *f);

/* Finds their items and their costs. */
int mixture_gather(struct mixture *p, struct fail *f);

/* Returns the cost of a module under a scheme. */
struct mixture_cost mixture_cost_of(const struct mixture *p, const struct mixture_module *module, size_t scheme);

/* Returns the cost of the model under one scheme, or with SIZE_MAX that of the mixture. */
struct mixture_cost mixture_total(const struct mixture *p, size_t scheme);

/* Chooses a scheme for each item, if a budget or a limit is given. Fails if it cannot be met. */
int mixture_choose(struct mixture *p, struct fail *f);

/* Writes the recipe of the mixture to args->out. */
int mixture_write_recipe(const struct mixture *p, struct fail *f);

/* Returns the report as a JSON text, to be freed with free(). NULL: no memory. */
char *mixture_report(const struct mixture *p);
