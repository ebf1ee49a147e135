/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NNCF: settings (fields of WeightCompressionConfig and WeightCompressionParameters), checks and parameters. */
#include <math.h>

#include "config/families.h"

enum nncf_mode { INT8_ASYM, INT8_SYM, INT4_ASYM, INT4_SYM, INT3_SYM, INT2_SYM };
static const struct word modes[] = {{"INT8_ASYM", INT8_ASYM},
                                    {"INT8_SYM", INT8_SYM},
                                    {"INT4_ASYM", INT4_ASYM},
                                    {"INT4_SYM", INT4_SYM},
                                    {"INT3_SYM", INT3_SYM},
                                    {"INT2_SYM", INT2_SYM},
                                    {0}};
static const struct {
    int bits;
    bool symmetric;
} numbers[] = {[INT8_ASYM] = {8, false}, [INT8_SYM] = {8, true}, [INT4_ASYM] = {4, false},
               [INT4_SYM] = {4, true},   [INT3_SYM] = {3, true}, [INT2_SYM] = {2, true}};

static bool estimates(const struct preset *preset) { return preset->range->optimal; }

static bool takes_axes(const struct preset *preset) { return !estimates(preset); }

static const struct setting settings[] = {
    BASE_NAME,
    NONFINITE(EVERY, qobs_nonfinite_modes),
    WORD("mode", EVERY, nncf.mode, modes, "the integers to quantize to"),
    NUMBER("group_size", EVERY, KIND_LONG, group_size, -1, 0x1p53,
           "elements of a group along the reduction axis; -1: all of the reduction axes"),
    OPTIONAL("reduction_axes", takes_axes, KIND_AXES, nncf.reduction_axes, nncf.has_reduction_axes, LEAST_AXIS,
             MOST_AXIS, "dimensions whose elements share a scale; `null`: the last"),
    NUMBER("initial_steps", estimates, KIND_INTEGER, nncf.initial_steps, 0, 1000,
           "candidates from the codes of the best scale so far"),
    NUMBER("scale_steps", estimates, KIND_INTEGER, nncf.scale_steps, 0, 20,
           "candidates from the codes of the first scale, times 1, 0.95, 0.9, ..."),
    NUMBER("weight_penalty", estimates, KIND_REAL, nncf.weight_penalty, -1, 1e38,
           "factor of the mean squared error of the weights, which is added to that of the outputs; to 0: none"),
};

static void set_defaults(struct qobs_config *config)
{
    config->group_size = -1;
    config->nncf.mode = estimates(config->preset) ? INT4_ASYM : INT8_ASYM;
    config->nncf.initial_steps = 5;
    config->nncf.scale_steps = 10;
    config->nncf.weight_penalty = -1;
}

static int check(const qobs_config *config, qobs_error *error)
{
    const int axes = config->nncf.has_reduction_axes ? config->nncf.reduction_axes.count : 1;
    if (config->group_size == 0)
        return qobs_invalid(error, "group_size: is 0, allowed are -1 and numbers from 1");
    if (estimates(config->preset) && numbers[config->nncf.mode].bits > 4)
        return qobs_invalid(error, "mode: is %s, %s takes those of at most 4 bits",
                            qobs_word_text(modes, config->nncf.mode), config->preset->name);
    if (config->group_size > 0 && axes != 1)
        return qobs_invalid(error, "reduction_axes: has %d axes, group_size %lld takes one", axes,
                            (long long)config->group_size);
    return QOBS_OK;
}

static void granularity(const qobs_config *config, struct granularity *g)
{
    static const struct axes last = {.count = 1, .axis = {-1}};
    g->params.strategy = config->group_size < 0 ? STRATEGY_CHANNEL : STRATEGY_GROUP;
    g->params.axes = config->nncf.has_reduction_axes ? config->nncf.reduction_axes : last;
}

static const struct formula_ops *formula(const qobs_config *config, struct formula_params *p)
{
    const int bits = numbers[config->nncf.mode].bits;
    const bool symmetric = numbers[config->nncf.mode].symmetric;
    p->mapping = symmetric ? MAPPING_SYMMETRIC : MAPPING_AFFINE;
    p->no_zero_point = symmetric;
    p->quant_min = symmetric ? -ldexp(1, bits - 1) : 0;
    p->quant_max = ldexp(1, symmetric ? bits - 1 : bits) - 1;
    return &qobs_formula_nncf;
}

static void range(const qobs_config *config, struct range_rule *rule)
{
    struct formula_params numbers_of;
    formula(config, &numbers_of);
    rule->params.importance = rule->params.hessian = rule->params.peaks = estimates(config->preset);
    rule->params.estimation = (struct estimation_params){.quant_min = (float)numbers_of.quant_min,
                                                         .quant_max = (float)numbers_of.quant_max,
                                                         .initial_steps = config->nncf.initial_steps,
                                                         .scale_steps = config->nncf.scale_steps,
                                                         .weight_penalty = config->nncf.weight_penalty};
}

const struct family_ops qobs_family_nncf = {
    SETTINGS_OF(settings), .set_defaults = set_defaults, .check = check, .granularity = granularity, .in_f32 = true,
    .range = range,        .formula = formula,
};
