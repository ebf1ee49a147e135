/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* llm-compressor and compressed-tensors: releases, settings, checks (QuantizationArgs.validate_model_after) and
 * parameters. */
#include <string.h>

#include "config/families.h"

/* ---- Releases ---------------------------------------------------------------------------------------------------- */

/* Members of all releases since October 2025, and of the present ones. */
#define SINCE_2025_10 .average = &qobs_accumulate_lerp, .has_base_names = true, .weight = &qobs_granularity_llmc_weight
#define CURRENT SINCE_2025_10, .current = true, .minus_one_is_none = true

const struct llmc_release qobs_llmc_releases[] = {
    [VERSION_CURRENT] = {CURRENT},
    [VERSION_2026_10] = {CURRENT, .prefix = "llmc_2026_10.", .exact_steps = true},
    [VERSION_2025_10] = {SINCE_2025_10, .has_global_range = true, .prefix = "llmc_2025_10.", .whole_blocks = true,
                         .attention = SEQUENCE_FIRST},
    [VERSION_2025_09] = {.has_global_range = true,
                         .prefix = "llmc_2025_09.",
                         .only_ranges = true,
                         .restarts = true,
                         .scalar_tensor = true,
                         .average = &qobs_accumulate_moving_average,
                         .skips_first_groups = true,
                         .weight = &qobs_granularity_llmc_2025_09,
                         .minus_one_is_none = true,
                         .named_groups = true,
                         .keying = KEYING_DEFAULT,
                         .token_result = TOKENS_ALL,
                         .qparams_along_dim = true,
                         .hides_single_range = true},
};

bool qobs_config_is_current(const qobs_config *config) { return qobs_config_release(config)->current; }

/* ---- Settings ---------------------------------------------------------------------------------------------------- */

const struct word qobs_scheme_types[] = {{"int", TYPE_INT}, {"float", TYPE_FLOAT}, {0}};
const struct word qobs_scheme_scale_dtypes[] = {{"float32", SCALE_F32}, {"bfloat16", SCALE_BF16},
                                                {"float16", SCALE_F16}, {"float8_e4m3fn", SCALE_E4M3},
                                                {"uint8", SCALE_U8},    {0}};
static const struct word versions[] = {{"current", VERSION_CURRENT},
                                       {"2025-10", VERSION_2025_10},
                                       {"2025-09", VERSION_2025_09},
                                       {"2026-10", VERSION_2026_10},
                                       {0}};
static const struct word search_dtypes[] = {{"native", SEARCH_NATIVE}, {"float32", SEARCH_FLOAT32}, {0}};
static const struct word dynamics[] = {{"false", 0}, {"true", 1}, {"local", 2}, {0}};
static const struct word zp_dtypes[] = {{"int8", QOBS_I8},
                                        {"uint8", QOBS_U8},
                                        {"int16", QOBS_I16},
                                        {"int32", QOBS_I32},
                                        {"bfloat16", QOBS_BF16},
                                        {"float16", QOBS_F16},
                                        {"float32", QOBS_F32},
                                        {"float8_e4m3fn", QOBS_F8_E4M3},
                                        {0}};

static bool searches(const struct preset *preset) { return preset->search != NULL; }

static bool has_chunks(const struct preset *preset) { return searches(preset) && !qobs_preset_has_importance(preset); }

static const struct setting settings[] = {
    BASE_NAME,
    NONFINITE(EVERY, qobs_nonfinite_modes),
    AVERAGING_CONSTANT(qobs_preset_averages),
    SCHEME_NUMBER(16),
    OPTIONAL("block_structure", EVERY, KIND_PAIR, scheme.block, scheme.has_block, 1, 0x1p31,
             "height and width of a block"),
    WORD("dynamic", EVERY, scheme.dynamic, dynamics,
         "scales are computed at run time; `local`: under a stored global scale"),
    SCHEME_SCALE_DTYPE,
    WORD("zp_dtype", EVERY, scheme.zp_dtype, zp_dtypes, "dtype of the zero point"),
    WORD("version", EVERY, scheme.version, versions, "release of llm-compressor that is reproduced"),
    SCHEME_OBSERVER,
    SWITCH("ragged", EVERY, scheme.ragged, "a last group may be shorter"),
    NUMBER("maxshrink", searches, KIND_REAL, scheme.search.maxshrink, 0, 1,
           "largest part of the range that a candidate removes"),
    NUMBER("patience", has_chunks, KIND_LONG, scheme.search.patience, 0, 0x1p31,
           "failed candidates in a row that end the search"),
    NUMBER("patience", qobs_preset_has_importance, KIND_LONG, scheme.search.patience, 0, 0x1p31,
           "failed candidates in a row that end the search; 0: never"),
    NUMBER("grid", searches, KIND_REAL, scheme.search.grid, 0x1p-10, 0x1p16,
           "number of steps from the complete range to 0"),
    NUMBER("norm", searches, KIND_REAL, scheme.search.norm, 0x1p-10, 0x1p10, "exponent of the error"),
    NUMBER("expand", has_chunks, KIND_REAL, scheme.search.expand, 1, 0x1p10, "factor of the range before the search"),
    NUMBER("expand", qobs_preset_has_importance, KIND_REAL, scheme.search.expand, 0x1p-10, 0x1p10,
           "factor of the range before the search"),
    WORD("search_dtype", searches, scheme.search.dtype, search_dtypes,
         "arithmetic of the search on BF16 and F16: upstream's in that dtype, or float"),
    NUMBER("chunk_size", has_chunks, KIND_LONG, scheme.search.chunk_size, 1, 0x1p31, "accepted, without effect"),
    SCHEME_STRICT(qobs_preset_has_importance),
};

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

int qobs_scheme_check_groups(const qobs_config *config, qobs_error *error)
{
    const enum strategy strategy = qobs_config_strategy(config);
    const char *name = qobs_word_text(qobs_strategies, strategy);
    const long long size = config->group_size;
    const bool grouped = qobs_has_groups(strategy);
    if (grouped && !config->has_group_size)
        return qobs_invalid(error, "group_size: strategy %s needs one above 0", name);
    if (grouped && size <= 0)
        return qobs_invalid(error, "group_size: is %lld, strategy %s needs one above 0", size, name);
    if (config->has_group_size && size == 0)
        return qobs_invalid(error, "group_size: is 0, allowed are -1 (channel) and above 0");
    if (!grouped && config->has_group_size && size > 0)
        return qobs_invalid(error, "group_size: %lld does not go with strategy %s", size, name);
    return QOBS_OK;
}

static int check(const qobs_config *config, qobs_error *error)
{
    const enum strategy strategy = qobs_config_strategy(config);
    const char *name = qobs_word_text(qobs_strategies, strategy);
    const bool grouped = qobs_has_groups(strategy);
    const char *observer = config->preset->name + 5; /* after "llmc." */
    if (qobs_config_release(config)->only_ranges && strcmp(observer, "minmax") != 0 && strcmp(observer, "mse") != 0)
        return qobs_invalid(error, "version: 2025-09 has observers minmax and mse, not %s", observer);
    if (config->scheme.type == TYPE_FLOAT && config->scheme.num_bits != 4 && config->scheme.num_bits != 8 &&
        !(config->scheme.num_bits == 6 && qobs_config_is_current(config)))
        return qobs_invalid(error, "num_bits: is %d, type float allows 4 (e2m1), 6 (e2m3) and 8 (e4m3)",
                            config->scheme.num_bits);
    if (config->scheme.type == TYPE_FLOAT && config->scheme.num_bits < 8 && !config->symmetric)
        return qobs_invalid(error, "symmetric: type float with num_bits %d allows true only", config->scheme.num_bits);
    if (strategy == STRATEGY_TOKEN && !config->scheme.dynamic)
        return qobs_invalid(error,
                            "strategy: token needs dynamic=true; it is llm-compressor's observer, and a scale for "
                            "each token comes from qobs_quantizer_create with dynamic and strategy channel");
    RETURN_IF_FAILED(qobs_scheme_check_groups(config, error));
    if ((strategy == STRATEGY_BLOCK) != config->scheme.has_block)
        return qobs_invalid(error, "block_structure: %s",
                            config->scheme.has_block ? "goes with strategy block only"
                                                     : "strategy block needs [height, width]");
    if (config->scheme.dynamic && strategy != STRATEGY_TOKEN && strategy != STRATEGY_TENSOR && !grouped)
        return qobs_invalid(error, "dynamic: strategy %s cannot be dynamic, only tensor, token, group and tensor_group",
                            name);
    const struct search_defaults *search = !qobs_config_is_current(config) ? config->preset->search : NULL;
    if (search && search->since_2026)
        return qobs_invalid(error, "version: 2025-10 and earlier have no %s", observer);
    if (config->scheme.dynamic == 2 && strategy != STRATEGY_TENSOR_GROUP)
        return qobs_invalid(error, "dynamic: local goes with strategy tensor_group, not with %s", name);
    return QOBS_OK;
}

static void set_defaults(struct qobs_config *config)
{
    const struct search_defaults *search = config->preset->search;
    config->scheme.num_bits = 8;
    if (search)
        config->scheme.search = search->settings;
    /* Presets that accumulate batches are for activations. */
    config->base_name = config->preset->accumulator->replaces ? BASE_WEIGHT : BASE_INPUT;
}

/* ---- Stages of all schemes --------------------------------------------------------------------------------------- */

void qobs_scheme_granularity(const qobs_config *config, struct granularity *g)
{
    const struct llmc_release *release = qobs_config_release(config);
    g->params.strategy = qobs_config_strategy(config);
    g->params.block[0] = config->scheme.block[0];
    g->params.block[1] = config->scheme.block[1];
    if (!release->has_base_names)
        g->params.base_name = BASE_WEIGHT;
    g->ops = g->params.base_name == BASE_WEIGHT                                    ? release->weight
             : config->base_name == BASE_INPUT || config->base_name == BASE_OUTPUT ? &qobs_granularity_llmc_activation
                                                                                   : &qobs_granularity_llmc_attention;
    g->params.ragged = config->scheme.ragged && g->params.base_name == BASE_WEIGHT;
    g->params.whole_blocks = release->whole_blocks;
    g->params.attention = release->attention;
    g->params.minus_one_is_none = release->minus_one_is_none;
    g->params.named_groups = g->params.ragged || release->named_groups;
    g->params.keying = release->keying;
}

const struct formula_ops *qobs_scheme_formula(const qobs_config *config, struct formula_params *p)
{
    const bool integer = config->scheme.type == TYPE_INT, current = qobs_config_is_current(config);
    const qobs_format *format = qobs_config_float_format(config);
    const double half = (double)(INT64_C(1) << (config->scheme.num_bits - 1));
    p->mapping = config->symmetric ? MAPPING_SYMMETRIC : MAPPING_AFFINE;
    p->quant_min = integer ? -half : qobs_format_min(format);
    p->quant_max = integer ? half - 1 : qobs_format_max(format);
    p->compressed_tensors.mx = qobs_config_is_mx(config);
    p->compressed_tensors.mx_offset = qobs_format_max_exponent(format);
    p->compressed_tensors.mx_half_bits = config->scheme.num_bits == 6 ? 4 : 2;
    p->compressed_tensors.scale_dtype = current ? (enum scale_dtype)config->scheme.scale_dtype : SCALE_NATIVE;
    p->compressed_tensors.zero_point_dtype = config->scheme.zp_dtype        ? (qobs_dtype)config->scheme.zp_dtype
                                             : !integer                     ? QOBS_F8_E4M3
                                             : config->scheme.num_bits <= 8 ? QOBS_I8
                                                                            : QOBS_I16;
    p->native_global_scale = current;
    p->compressed_tensors.year_2025 = !current;
    p->compressed_tensors.e2m1 = !integer && config->scheme.num_bits == 4;
    if (qobs_config_release(config)->scalar_tensor && qobs_config_strategy(config) == STRATEGY_TENSOR)
        p->rank = RANK_SCALAR;
    return &qobs_formula_compressed_tensors;
}

void qobs_scheme_traits(const qobs_config *config, struct observer_traits *traits)
{
    const struct llmc_release *release = qobs_config_release(config);
    *traits = (struct observer_traits){
        .first_batch_only = release->current && config->base_name == BASE_WEIGHT,
        .has_global_range = release->has_global_range,
        .token_result = release->token_result,
        .qparams_along_dim = release->qparams_along_dim,
        .plural_names = true,
        .hides_ranges = release->hides_single_range && config->averaging_constant == 1,
    };
    if (qobs_config_strategy(config) == STRATEGY_TENSOR_GROUP)
        traits->global = release->has_global_range ? GLOBAL_FROM_TENSORS : GLOBAL_FROM_RANGES;
}

/* ---- Moving averages and the grid search ------------------------------------------------------------------------- */

static void accumulator(const qobs_config *config, struct accumulator *a)
{
    const struct llmc_release *release = qobs_config_release(config);
    if (a->ops->averages) {
        a->ops = release->average;
        a->replaces = config->averaging_constant == 1;
    }
    a->restarts = release->restarts && a->replaces;
    a->skips_first_groups = release->skips_first_groups && config->preset->search;
}

static const qobs_format *float_format(const qobs_config *config)
{
    return config->scheme.type == TYPE_INT ? NULL : qobs_config_float_format(config);
}

/* The most elements of a qparam whose weighted errors are rounded as others are (_GRID_SEARCH_TILE_SIZE). */
enum { MOST_ROUNDED = 512 };

/* The observer with importance tries one candidate more, and at least two, up to llm-compressor 0.14.0. */
static int steps_of(const qobs_config *config, bool importance)
{
    const int steps = (int)(config->scheme.search.maxshrink * config->scheme.search.grid);
    return importance && !qobs_config_release(config)->exact_steps ? (steps < 1 ? 1 : steps) + 1 : steps;
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
               native = g->native_scales || config->scheme.scale_dtype == SCALE_NATIVE;
    const bool mx = !g->native_scales && qobs_config_is_mx(config);
    const bool wide = qobs_config_release(config)->scalar_tensor && qobs_config_strategy(config) == STRATEGY_TENSOR;
    const bool integers = !g->format, small = !(config->scheme.zp_dtype == QOBS_I8 && config->scheme.num_bits > 8);
    const double max = integers ? (double)g->quant_max : qobs_format_max(g->format);
    g->shrinking = (struct shrink_rule){.integers = integers,
                                        .symmetric = config->symmetric,
                                        .mx = mx,
                                        .quant_min = (float)(integers ? (double)g->quant_min : -max),
                                        .quant_max = (float)max,
                                        .mx_offset = config->scheme.num_bits == 4 ? 2 : 8,
                                        .floor = old ? 0x1p-23f : 0};
    const bool affine = integers && qobs_config_has_whole_zero_points(config) && small && !wide;
    g->simd = (mx ? config->symmetric : old || native) && (config->symmetric || affine) &&
              !(mx && config->scheme.num_bits == 6);
}

static void resolve_grid(const qobs_config *config, struct grid_params *g)
{
    const struct search_defaults *search = config->preset->search;
    const int64_t half = INT64_C(1) << (config->scheme.num_bits - 1);
    const bool importance = search->importance;
    *g = (struct grid_params){
        .steps = steps_of(config, importance),
        .grid = config->scheme.search.grid,
        .patience = importance && config->scheme.search.patience == 0 ? -1 : config->scheme.search.patience,
        .norm = config->scheme.search.norm,
        .expand = config->scheme.search.expand,
        .symmetric = config->symmetric,
        .native = config->scheme.search.dtype == SEARCH_NATIVE,
        .rounded = !importance                                ? INT64_MAX
                   : qobs_config_release(config)->exact_steps ? MOST_ROUNDED
                                                              : 0,
        .off_grid = config->scheme.type == TYPE_FLOAT || !qobs_config_has_whole_zero_points(config),
        /* Upstream leaves the dtype of scales out of the search if a global scale follows. */
        .native_scales = qobs_config_strategy(config) == STRATEGY_TENSOR_GROUP,
        .quant_min = -half,
        .quant_max = half - 1,
        .format = float_format(config),
        .importance = importance,
        .fault = early_fault(config),
        .late_fault = qobs_config_strategy(config) == STRATEGY_BLOCK ? IMPORTANCE_STRATEGY : IMPORTANCE_USABLE,
    };
    resolve_shrinking(config, g);
}

static void range(const qobs_config *config, struct range_rule *rule)
{
    if (!config->preset->search)
        return;
    resolve_grid(config, &rule->params.grid);
    rule->params.importance = rule->params.grid.importance;
    rule->params.strict = config->scheme.strict;
}

const struct family_ops qobs_family_llmc = {
    SETTINGS_OF(settings),
    .releases = qobs_llmc_releases,
    .has_scheme = true,
    .positive_zero = true,
    .set_defaults = set_defaults,
    .check = check,
    .granularity = qobs_scheme_granularity,
    .accumulator = accumulator,
    .range = range,
    .formula = qobs_scheme_formula,
    .traits = qobs_scheme_traits,
};
