/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ggml's blocks of activations: settings, parameters and codes. */
#include "config/families.h"

enum ggml_build { BUILD_X86, BUILD_ARM };
static const struct word builds[] = {{"x86", BUILD_X86}, {"arm64", BUILD_ARM}, {0}};

static bool is_q8_0(const struct preset *preset) { return preset->formula == FORMULA_GGML_Q8_0; }

static const struct setting settings[] = {
    BASE_NAME,
    WORD("build", EVERY, ggml.build, builds, "the build of ggml-cpu whose blocks these are, on any processor"),
};

static void set_defaults(struct qobs_config *config) { (void)config; }

static enum q8_block block_of(const qobs_config *config)
{
    const bool arm = config->ggml.build == BUILD_ARM;
    if (is_q8_0(config->preset))
        return arm ? Q8_0_ARM : Q8_0_X86;
    return arm ? Q8_K_ARM : Q8_K_X86;
}

static void granularity(const qobs_config *config, struct granularity *g)
{
    g->params.strategy = STRATEGY_GROUP;
    g->params.group_size = q8_elements(block_of(config));
    g->params.ragged = true; /* scales may be asked for of any row */
}

static const struct formula_ops *formula(const qobs_config *config, struct formula_params *p)
{
    const bool q8_0 = is_q8_0(config->preset);
    p->mapping = q8_0 ? MAPPING_SYMMETRIC : MAPPING_AFFINE; /* the sign of q8_K's scale is that of an end */
    p->quant_min = -128;
    p->quant_max = 127;
    return q8_0 ? &qobs_formula_ggml_q8_0 : &qobs_formula_ggml_q8_k;
}

static void codes(const qobs_config *config, struct quantizer *q, enum code_kind *kind)
{
    *kind = QOBS_CODE_INTEGER;
    q->in_runtime = true;
    q->block = block_of(config);
}

const struct family_ops qobs_family_ggml = {
    SETTINGS_OF(settings), .set_defaults = set_defaults, .granularity = granularity, .formula = formula, .codes = codes,
};
