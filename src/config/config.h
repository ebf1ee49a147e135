/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A configuration: a preset and the values of its settings, parsed and checked in one place. The settings of a family
 * are a structure and the table of rows in its file family_*.c. */
#pragma once

#include "measure/accumulators.h"
#include "stages/range_rule.h"
#include "stages/granularity.h"

/* ---- Presets ----------------------------------------------------------------------------------------------------- */

/* A name, five stages and default settings. The rows are in preset_rows.h. */

/* The formula; settings choose among its forms (family_*.c). */
enum formula_kind {
    FORMULA_NONE,  /* no scale and zero point */
    FORMULA_FIXED, /* those that are set */
    FORMULA_COMPRESSED_TENSORS,
    FORMULA_TORCH,
    FORMULA_QUARK,    /* by dtype */
    FORMULA_QUARK_MX, /* by scale_format */
    FORMULA_QUARK_BFP,
    FORMULA_QUARK_POWER_OF_2,
    FORMULA_QUARK_LSQ,
    FORMULA_QUARK_TQT,
    FORMULA_ORT,         /* by activation_type */
    FORMULA_TORCHAO,     /* by mapping_type */
    FORMULA_QUARK_TORCH, /* torch's observer with Quark's limits */
    FORMULA_AIEDGE,
    FORMULA_NNCF, /* by mode */
    FORMULA_VLLM_INT8,
    FORMULA_VLLM_FP8,
    FORMULA_VLLM_GROUP_FP8,
    FORMULA_VLLM_FP4,
    FORMULA_GGML_Q8_0,
    FORMULA_GGML_Q8_K
};

/* Settings of the grid search. */
struct search_settings {
    double maxshrink, grid, norm, expand;
    int64_t patience;
    int64_t chunk_size; /* changes nothing: upstream's candidates at a time */
    int dtype;          /* enum search_dtype */
};

struct search_defaults {
    struct search_settings settings;
    bool importance; /* columns can be weighted by activations */
    bool since_2026; /* older versions of upstream have no such observer */
};

struct family_ops;
struct preset {
    const char *name;
    const struct family_ops *ops;              /* families.h */
    const struct granularity_ops *granularity; /* settings may choose another one (family_*.c) */
    const struct reduction_ops *reduction;
    const struct accumulator_ops *accumulator;
    const struct range_ops *range;
    enum formula_kind formula;
    const struct search_defaults *search; /* NULL: the preset does not search a grid */
    const char *summary;
};

/* Fails with the option that brings it if this build leaves out a preset of that name. */
int qobs_preset_left_out(const char *name, qobs_error *error);

/* True if batches are measured; other presets only count them. */
static inline bool qobs_preset_measures(const struct preset *preset) { return preset->reduction->measure; }

/* The grid search weighs columns by activations. */
static inline bool qobs_preset_has_importance(const struct preset *preset)
{
    return preset->search && preset->search->importance;
}

/* The stages that the settings go with. */
static inline bool qobs_preset_averages(const struct preset *preset) { return preset->accumulator->averages; }

static inline bool qobs_preset_has_histogram(const struct preset *preset) { return preset->reduction->histogram; }

static inline bool qobs_preset_has_torch_histogram(const struct preset *preset)
{
    return preset->range->reads & READS_BINS;
}

static inline bool qobs_preset_has_no_torch_histogram(const struct preset *preset)
{
    return !qobs_preset_has_torch_histogram(preset);
}

static inline bool qobs_preset_has_percentile(const struct preset *preset)
{
    return preset->range->reads & READS_PERCENTILE;
}

static inline bool qobs_preset_has_start_bin(const struct preset *preset)
{
    return preset->range->reads & READS_START_BIN;
}

/* Quark's and Model-Optimizer's histograms, which grow by whole bins. */
static inline bool qobs_preset_grows_bins(const struct preset *preset)
{
    return preset->reduction->histogram && !(preset->range->reads & (READS_BINS | READS_HEADROOM));
}

static inline bool qobs_preset_is_fixed(const struct preset *preset) { return preset->formula == FORMULA_FIXED; }

/* ---- Settings ---------------------------------------------------------------------------------------------------- */

enum type { TYPE_INT, TYPE_FLOAT };

/* Arithmetic of searches on BF16 and F16. */
enum search_dtype { SEARCH_NATIVE, SEARCH_FLOAT32 };

/* The methods that find a range in a histogram of the caller. */
enum range_finder { FINDER_PERCENTILE = 1, FINDER_L2_NORM = 2, FINDER_ENTROPY = 4, FINDER_MSE = 8 };

enum version { VERSION_CURRENT, VERSION_2025_10, VERSION_2025_09, VERSION_2026_10, VERSIONS };

/* In the structures of settings, enumerations are stored as int, so that one kind of row describes all of them. A
 * member has_NAME says that NAME has a value; without such a member it always has one. */

/* Settings of the search for the least error; multipliers are as TensorRT's. */
struct optimal_settings {
    double start_multiplier, stop_multiplier;
    bool signed_scale;
    double dampening_frac;
    int64_t hessian_block_size;
    int passes, zero_point_radius;
    bool has_rounding, has_rounding_passes;
    int rounding, rounding_passes; /* a rounding of family_qobs.c */
};

/* The quantization schemes of compressed-tensors: llm-compressor and our own presets. */
struct scheme_settings {
    int num_bits, type;
    int strategy; /* resolved by qobs_config_strategy */
    bool has_block;
    int64_t block[2]; /* height, width */
    int dynamic;
    int scale_dtype; /* enum scale_dtype */
    int zp_dtype;    /* a qobs_dtype, or 0: follows type and num_bits */
    int version;
    bool ragged;
    bool strict; /* no importance, no range */
    struct search_settings search;
    struct optimal_settings optimal;
};

struct torch_settings {
    int dtype, qscheme;
};

struct quark_settings {
    int dtype, qscheme, zero_point_type, scale_type, scale_format, scale_calculation_mode, mx_element_dtype;
    bool has_first_level;
    double quant_max_first_level; /* of the numbers whose scales are quantized */
    int threshold_init_meth;
    int scope; /* exponents below the first that are tried */
};

struct ort_settings {
    int activation_type;
    bool activation_symmetric, moving_average, per_channel;
    bool has_min_real_range, has_restricted_asymmetric, restricted_asymmetric;
    double min_real_range;
    int64_t num_quantized_bins;
    int scenario;
};

struct torchao_settings {
    int mapping_type, target_dtype, granularity;
    int axis, dim;
    struct axes block_sizes; /* of the last dimensions */
    bool has_block_sizes, preserve_zero, keepdim, run_once;
    int scale_dtype, zero_point_dtype; /* a qobs_dtype, or 0: as the arithmetic leaves them */
    int zero_point_domain, module, steps;
};

struct aiedge_settings {
    int num_bits, quantized_dimension;
    int granularity; /* enum aiedge_granularity */
};

struct nncf_settings {
    int mode; /* enum nncf_mode */
    bool has_reduction_axes;
    struct axes reduction_axes;
    int initial_steps, scale_steps;
    double weight_penalty;
};

struct vllm_settings {
    int group_shape, build, kernel; /* enum vllm_group_shape, enum vllm_build, enum vllm_kernel */
    bool use_ue8m0;
};

struct ggml_settings {
    int build; /* enum ggml_build */
};

enum { MODELOPT_E4M3 = 0 }; /* num_bits of (4, 3) */

struct modelopt_settings {
    int num_bits; /* of integers, or MODELOPT_E4M3 */
    bool has_axes;
    struct axes axes;                                    /* kept */
    bool is_unsigned, narrow_range;                      /* of quantized numbers; without effect where none are tried */
    double step_size, start_multiplier, stop_multiplier; /* of the multiples tried */
    int64_t block_size;
    bool skip_zeros, torch_hist;
    int method;      /* enum amax_method */
    int bias_method; /* of BiasCalibrator */
    bool has_four_over_six, four_over_six;
    bool has_hessian_block; /* without one errors are squared */
    int64_t hessian_block_size;
    struct headroom_params headroom;
    bool has_version;
    int version; /* index of a release */
};

/* Settings of histograms, for several families. */
struct histogram_settings {
    int64_t bins, num_bins;
    int upsample_rate; /* changes nothing */
    bool float32_counts;
    bool shifted_counts; /* old counts stay in their bins where bins come before them */
    double percentile;
    int64_t stride, start_bin;
};

struct qobs_config {
    const struct preset *preset;
    struct runtime runtime;
    int base_name, nonfinite;

    /* Settings of several families. */
    double averaging_constant;
    bool symmetric, is_dynamic, reduce_range;
    bool has_group_size, has_ch_axis, has_eps, has_quant_min, has_quant_max, has_scale, has_zero_point;
    int ch_axis; /* Quark's has no default */
    int64_t group_size, quant_min, quant_max, zero_point;
    double scale, eps;
    struct histogram_settings histogram;

    union { /* by the family */
        struct scheme_settings scheme;
        struct torch_settings torch;
        struct quark_settings quark;
        struct ort_settings ort;
        struct torchao_settings torchao;
        struct modelopt_settings modelopt;
        struct aiedge_settings aiedge;
        struct nncf_settings nncf;
        struct vllm_settings vllm;
        struct ggml_settings ggml;
    };
};

/* ---- Of schemes: the preset is of llm-compressor or our own --------------------------------------------------------
 */

/* The strategy given, or the one group_size implies. */
enum strategy qobs_config_strategy(const qobs_config *config);

/* The format of compressed-tensors' floats: e2m1, e2m3 or e4m3. */
const struct qobs_format *qobs_config_float_format(const struct qobs_config *config);

/* The formulas and searches of 2026, not those of 2025. */
bool qobs_config_is_current(const qobs_config *config);

/* MXFP4 and MXFP8, as compressed-tensors tells them: 4 or 8-bit floats, groups of 32, scales stored as exponents. */
bool qobs_config_is_mx(const qobs_config *config);

/* Are zero points kept as integers? Rounded to a float format they may leave the range of what is quantized to. */
bool qobs_config_has_whole_zero_points(const qobs_config *config);
