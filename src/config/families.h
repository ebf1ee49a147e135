/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Presets of one upstream and their common rules: one file family_*.c each, with its checks, defaults and the
 * parameters of its stages. A release of llm-compressor that differs is a row of the table in family_llmc.c. */
#pragma once

#include <float.h>

#include "config/dtypes.h"
#include "stages/stages.h"
#include "quantize/fake_quantize.h"

/* Functions but set_defaults may be NULL. The functions of a stage find in it what resolve.c sets for all families. */
struct family_ops {
    const struct setting *settings; /* the order of a preset's settings is that of states */
    size_t setting_count;
    const struct llmc_release *releases; /* whose prefixes name presets; NULL: there are none */
    int finders;                         /* of ranges in a caller's histogram: enum range_finder */
    const char *old_prefix;  /* of names in version 0.1, whose saved states and scripts have it; NULL: the same */
    bool has_scheme;         /* settings are those of a scheme of compressed-tensors */
    bool channel_by_default; /* the strategy without group_size; else tensor */
    bool has_own_quantize;   /* fake-quantize is torch's, to the integers of dtype */
    bool in_f32;             /* tensors are converted to F32 first */
    bool range_is_lowest;    /* as in struct observer_traits */
    bool positive_zero;      /* zeros quantized to e2m1 have no sign */
    void (*set_defaults)(struct qobs_config *config);
    int (*check)(const qobs_config *config, qobs_error *error); /* settings together */
    void (*granularity)(const qobs_config *config, struct granularity *granularity);
    void (*reduction)(const qobs_config *config, struct reduction *reduction);
    void (*accumulator)(const qobs_config *config, struct accumulator *accumulator);
    void (*bins)(const qobs_config *config, struct bins_params *bins); /* those of a histogram's rule */
    void (*range)(const qobs_config *config, struct range_rule *rule); /* those of another rule */
    const struct formula_ops *(*formula)(const qobs_config *config, struct formula_params *params);
    void (*traits)(const qobs_config *config, struct observer_traits *traits);
    /* Codes of its own, of one tensor and by given scales; NULL: those of a scheme, or none. */
    void (*codes)(const qobs_config *config, struct quantizer *quantizer, enum code_kind *kind);
    void (*amax_numbers)(const qobs_config *config, struct amax_numbers *numbers); /* of fake-quantize by an amax */
};

#define SETTINGS_OF(rows) .settings = (rows), .setting_count = sizeof(rows) / sizeof *(rows)

extern const struct family_ops qobs_family_llmc, qobs_family_qobs, qobs_family_torch, qobs_family_quark,
    qobs_family_modelopt, qobs_family_ort, qobs_family_torchao, qobs_family_aiedge, qobs_family_nncf, qobs_family_vllm,
    qobs_family_ggml;

/* How a release of llm-compressor differs from others. */
struct llmc_release {
    const char *prefix; /* of preset names that mean this release; NULL: none */
    bool current;       /* formulas, searches and weights of 2026 */
    bool only_ranges;   /* the only observers are minmax and mse */
    bool exact_steps;   /* searches with importance have no step more, and round as others if qparams are small */
    bool restarts;      /* observers that replace restart at another shape */
    bool scalar_tensor; /* with strategy tensor, scales have no dimensions and zero points are F32 in searches */
    const struct accumulator_ops *average;
    bool skips_first_groups; /* of mse: see struct accumulator */
    bool has_base_names;
    const struct granularity_ops *weight;
    enum attention_order attention;
    bool whole_blocks, minus_one_is_none, named_groups; /* see there */
    enum keying keying;
    bool has_global_range; /* and the global scale comes from it */
    enum token_count token_result;
    bool qparams_along_dim;
    bool hides_single_range; /* ranges that replace are no results */
};

/* By enum version. */
extern const struct llmc_release qobs_llmc_releases[];
static inline const struct llmc_release *qobs_config_release(const qobs_config *config)
{
    return &qobs_llmc_releases[config->scheme.version];
}

/* Presets of compressed-tensors' schemes, also those of our own (family_llmc.c). */
extern const struct word qobs_scheme_types[], qobs_scheme_scale_dtypes[];
#define SCHEME_NUMBER(most_bits)                                                                                       \
    NUMBER("num_bits", EVERY, KIND_INTEGER, scheme.num_bits, 2, most_bits, "bits of the quantized numbers"),           \
        WORD("type", EVERY, scheme.type, qobs_scheme_types, "integers or floating-point numbers"),                     \
        SWITCH("symmetric", EVERY, symmetric, "symmetric range, zero point 0"),                                        \
        WORD("strategy", EVERY, scheme.strategy, qobs_strategies,                                                      \
             "elements that share a scale; `null`: derived from `group_size`"),                                        \
        OPTIONAL("group_size", EVERY, KIND_LONG, group_size, has_group_size, -1, 0x1p53,                               \
                 "columns of a group; -1: one group for each row")
#define SCHEME_SCALE_DTYPE                                                                                             \
    WORD("scale_dtype", EVERY, scheme.scale_dtype, qobs_scheme_scale_dtypes,                                           \
         "dtype to which scales are rounded; `uint8`: powers of two")
#define SCHEME_OBSERVER                                                                                                \
    {                                                                                                                  \
        "observer", EVERY, KIND_OWN_NAME, 0, NO_FIELD, NULL, 0, 0, "accepted only with the preset's own name", false,  \
            false                                                                                                      \
    }
#define SCHEME_STRICT(only) SWITCH("strict", only, scheme.strict, "fail if importance cannot be used")
int qobs_scheme_check_groups(const qobs_config *config, qobs_error *error);
void qobs_scheme_granularity(const qobs_config *config, struct granularity *granularity);
const struct formula_ops *qobs_scheme_formula(const qobs_config *config, struct formula_params *params);
void qobs_scheme_traits(const qobs_config *config, struct observer_traits *traits);

/* Parameters of torch's formula, and limits that are set (family_torch.c). */
void qobs_set_torch(const struct torch_number *number, enum mapping mapping, double eps, struct formula_params *params);
struct torch_number qobs_torch_limits(struct torch_number number, int64_t quant_min, int64_t quant_max, bool reduce);
