/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Resolves the range rule of a configuration and its parameters. */
#include <math.h>

#include "config/dtypes.h"
#include "config/stages.h"
#include "qobs/format.h"
#include "quantize/fake_quantize.h"
#include "range/multiplier_search.h"

/* ---- Grid search ------------------------------------------------------------------------------------------------- */

static const qobs_format *float_format(const qobs_config *config)
{
    return config->type == TYPE_INT ? NULL : qobs_config_float_format(config);
}

/* The observer with importance tries one candidate more, and at least two, up to llm-compressor 0.14.0. */
static int steps_of(const qobs_config *config, bool importance)
{
    const int steps = (int)(config->maxshrink * config->grid);
    return importance && config->version != VERSION_2026_10 ? (steps < 1 ? 1 : steps) + 1 : steps;
}

static enum importance_fault early_fault(const qobs_config *config)
{
    if (config->base_name != BASE_WEIGHT)
        return IMPORTANCE_NO_WEIGHT;
    return qobs_config_strategy(config) == STRATEGY_TENSOR ? IMPORTANCE_STRATEGY : IMPORTANCE_USABLE;
}

/* Parameters of the search_shrink kernels, and whether they implement the formula. */
static void resolve_shrinking(const qobs_config *config, struct grid_params *g)
{
    const bool old = !qobs_config_is_current(config),
               native = g->native_scales || config->scale_dtype == SCALE_NATIVE;
    const bool mx = !g->native_scales && qobs_config_is_mx(config);
    const bool wide =
        config->version == VERSION_2025_09 && qobs_config_strategy(config) == STRATEGY_TENSOR; /* zero points in f32 */
    const bool integers = !g->format, small = !(config->zp_dtype == QOBS_I8 && config->num_bits > 8);
    const double max = integers ? (double)g->quant_max : qobs_format_max(g->format);
    g->shrinking = (struct shrink_rule){.integers = integers,
                                        .symmetric = config->symmetric,
                                        .mx = mx,
                                        .quant_min = (float)(integers ? (double)g->quant_min : -max),
                                        .quant_max = (float)max,
                                        .mx_offset = config->num_bits == 4 ? 2 : 8,
                                        .floor = old ? 0x1p-23f : 0};
    const bool affine = integers && qobs_config_has_whole_zero_points(config) && small && !wide;
    g->simd = (mx ? config->symmetric : old || native) && (config->symmetric || affine) &&
              !(mx && config->num_bits == 6);
}

static void resolve_grid(const qobs_config *config, struct grid_params *g)
{
    const struct search_defaults *search = config->preset->search;
    const int64_t half = INT64_C(1) << (config->num_bits - 1);
    const bool importance = search->importance;
    *g = (struct grid_params){
        .steps = steps_of(config, importance),
        .grid = config->grid,
        .patience = importance && config->patience == 0 ? -1 : config->patience,
        .norm = config->norm,
        .expand = config->expand,
        .symmetric = config->symmetric,
        .native = config->search_dtype == SEARCH_NATIVE,
        .rounded = !importance || config->version == VERSION_2026_10,
        .off_grid = config->type == TYPE_FLOAT || !qobs_config_has_whole_zero_points(config),
        /* Upstream leaves the dtype of scales out of the search if a global scale follows. */
        .native_scales = qobs_config_strategy(config) == STRATEGY_TENSOR_GROUP,
        .quant_min = -half,
        .quant_max = half - 1,
        .format = float_format(config),
        .importance = importance,
        .strict = config->strict,
        .fault = early_fault(config),
        .late_fault = qobs_config_strategy(config) == STRATEGY_BLOCK ? IMPORTANCE_STRATEGY : IMPORTANCE_USABLE,
    };
    resolve_shrinking(config, g);
}

/* ---- Optimal scales ---------------------------------------------------------------------------------------------- */

static enum optimal_scales scales_of(const qobs_config *config)
{
    switch (config->scale_dtype) {
    case SCALE_F16:
        return OPTIMAL_F16;
    case SCALE_E4M3:
        return OPTIMAL_E4M3;
    case SCALE_U8:
        return OPTIMAL_E8M0;
    default:
        return OPTIMAL_BF16;
    }
}

static void resolve_optimal(const qobs_config *config, struct optimal_params *p)
{
    static const float eps[] = {[SCALE_F32] = 0x1p-23f, [SCALE_BF16] = 0x1p-7f, [SCALE_F16] = 0x1p-10f};
    const int half = 1 << (config->num_bits - 1);
    *p = (struct optimal_params){
        .scales = scales_of(config),
        .scale_dtype = (enum scale_dtype)config->scale_dtype,
        .e2m1 = config->type == TYPE_FLOAT,
        .symmetric = config->symmetric,
        .signed_scale = config->signed_scale,
        .num_bits = config->num_bits,
        .quant_min = -half,
        .quant_max = half - 1,
        .start = (float)config->start_multiplier,
        .stop = (float)config->stop_multiplier,
        .eps = config->scale_dtype < SCALE_E4M3 ? eps[config->scale_dtype] : 0,
        .dampening = config->dampening_frac,
        .strict = config->strict,
        .hessian_block = config->hessian_block_size,
        .passes = config->passes,
        .zero_point_radius = config->zero_point_radius,
    };
}

/* ---- Quark and Model-Optimizer ----------------------------------------------------------------------------------- */

static void resolve_exponent(const qobs_config *config, struct exponent_params *e)
{
    const struct quark_number number = qobs_quark_number(config->quark_dtype);
    *e = (struct exponent_params){
        .quant_min = number.quant_min,
        .quant_max = number.quant_max,
        .float_zero_points = config->preset->granularity == GRANULARITY_TENSOR,
        .scope = config->scope,
        .format = qobs_format_find(qobs_quark_dtype_text(config->quark_dtype)),
        .emax = qobs_quark_element(config).emax,
    };
}

/* The largest magnitude of Model-Optimizer's integers. */
static int64_t bound_of(const qobs_config *config)
{
    return (INT64_C(1) << (config->num_bits - 1 + config->is_unsigned)) - 1;
}

void qobs_resolve_amax_numbers(const qobs_config *config, struct amax_numbers *numbers)
{
    const bool e4m3 = config->num_bits == NUM_BITS_E4M3;
    const int64_t bound = e4m3 ? 448 : bound_of(config);
    *numbers = (struct amax_numbers){
        .quant_min = (double)(e4m3                   ? -bound
                              : config->is_unsigned  ? 0
                              : config->narrow_range ? -bound
                                                     : -bound - 1),
        .quant_max = (double)bound,
        .e4m3 = e4m3,
    };
}

static void resolve_multiplier(const qobs_config *config, struct multiplier_params *m)
{
    struct amax_numbers numbers;
    qobs_resolve_amax_numbers(config, &numbers);
    *m = (struct multiplier_params){
        .count = (size_t)ceil((config->stop_multiplier - config->start_multiplier) / config->step_size) + 1,
        .start = config->start_multiplier,
        .stop = config->stop_multiplier,
        .quant_min = (int64_t)numbers.quant_min,
        .quant_max = (int64_t)numbers.quant_max,
        .hessian_block = config->has_hessian_block ? config->hessian_block_size : 0,
        .four_over_six = config->has_four_over_six && config->four_over_six,
        .format = numbers.e4m3 ? qobs_format_find("fp8_e4m3") : NULL,
    };
}

static void resolve_line(const qobs_config *config, struct line_params *l)
{
    const struct torchao_number number = qobs_torchao_number(config);
    *l = (struct line_params){.steps = config->steps, .quant_min = number.quant_min, .quant_max = number.quant_max};
}

/* ---- Histograms -------------------------------------------------------------------------------------------------- */

static void resolve_modelopt_bins(const qobs_config *config, struct bins_params *b)
{
    if (config->num_bits == NUM_BITS_E4M3) {
        b->centres = CENTRES_MODELOPT_E4M3;
        b->format = qobs_format_find("fp8_e4m3");
        return;
    }
    b->levels = (size_t)bound_of(config) + 1;
    b->centres = CENTRES_MODELOPT_INTEGER;
    b->quant_max = (double)bound_of(config);
    b->quant_min = config->is_unsigned ? 0 : -b->quant_max;
}

static void resolve_quark_bins(const qobs_config *config, struct bins_params *b)
{
    const struct quark_number number = qobs_quark_number(config->quark_dtype);
    b->method = AMAX_MSE;
    b->clamp_start = true;
    b->quant_min = number.quant_min;
    b->quant_max = number.quant_max;
    b->dtype = qobs_quark_dtype_text(config->quark_dtype);
    switch (config->quark_dtype) {
    case QUARK_INT4:
    case QUARK_UINT4:
    case QUARK_INT8:
    case QUARK_UINT8:
        b->centres = CENTRES_TORCH;
        break;
    case QUARK_FP8_E4M3:
    case QUARK_FP8_E5M2:
        b->centres = CENTRES_QUARK_FLOAT;
        b->format = qobs_format_find(b->dtype);
        break;
    default:
        b->centres = CENTRES_NONE;
        break;
    }
}

/* How many numbers torch takes a dtype to have; the elements of quint4x2 have 8 bits in torch.iinfo. */
static double numbers_of(const qobs_config *config)
{
    switch (config->dtype) {
    case TORCH_QINT32:
    case TORCH_INT32:
        return 0x1p32;
    case TORCH_UINT16:
    case TORCH_INT16:
        return 0x1p16;
    default:
        return 256;
    }
}

static void resolve_bins(const qobs_config *config, struct bins_params *b)
{
    *b = (struct bins_params){
        .percentile = config->percentile,
        .symmetric = config->symmetric,
        .stride = config->stride,
        .start_bin = config->start_bin,
        .numbers = numbers_of(config),
        .method = (enum amax_method)config->method,
    };
    if (config->preset->family == FAMILY_MODELOPT)
        resolve_modelopt_bins(config, b);
    else if (config->preset->family == FAMILY_QUARK)
        resolve_quark_bins(config, b);
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

void qobs_resolve_range(const qobs_config *config, struct range_rule *rule)
{
    *rule = (struct range_rule){.ops = config->preset->range,
                                .params = {.nonfinite = (enum nonfinite_mode)config->nonfinite}};
    switch (config->preset->family) {
    case FAMILY_LLMC:
        if (rule->ops == &qobs_range_grid) {
            resolve_grid(config, &rule->params.grid);
            rule->params.importance = rule->params.grid.importance;
        }
        break;
    case FAMILY_QOBS:
        rule->params.importance = rule->ops->importance;
        rule->params.hessian = rule->ops->hessian;
        resolve_optimal(config, &rule->params.optimal);
        break;
    case FAMILY_TORCH:
        resolve_bins(config, &rule->params.bins);
        break;
    case FAMILY_QUARK:
        resolve_bins(config, &rule->params.bins);
        resolve_exponent(config, &rule->params.exponent);
        break;
    case FAMILY_ORT:
        resolve_bins(config, &rule->params.bins);
        rule->params.bins.levels = (size_t)config->num_quantized_bins;
        rule->params.bins.roots = config->scenario == ORT_P3;
        break;
    case FAMILY_TORCHAO:
        resolve_line(config, &rule->params.line);
        break;
    case FAMILY_MODELOPT:
        rule->params.headroom = (struct headroom_params){.anchor_percentile = config->anchor_percentile,
                                                         .upper_percentile = config->upper_percentile,
                                                         .rho = config->rho,
                                                         .log2_min = config->log2_min,
                                                         .log2_max = config->log2_max};
        resolve_bins(config, &rule->params.bins);
        resolve_multiplier(config, &rule->params.multiplier);
        rule->params.importance = rule->params.hessian = rule->params.multiplier.hessian_block > 0;
        break;
    }
}
