/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Settings, parsed and checked in one place. */
#pragma once

#include "base/runtime.h"
#include "base/shape.h"
#include "config/preset.h"
#include "formula/formula.h"
#include "plan/granularity.h"
#include "histogram/range_params.h"

enum type { TYPE_INT, TYPE_FLOAT };

enum { NUM_BITS_E4M3 = 0 }; /* Model-Optimizer's (4, 3) */

/* Arithmetic of searches on BF16 and F16. */
enum search_dtype { SEARCH_NATIVE, SEARCH_FLOAT32 };

/* How codes are rounded. */
enum rounding { ROUNDING_NEAREST, ROUNDING_DESCENT };

/* The result of Model-Optimizer's BiasCalibrator. */
enum bias_method { BIAS_MEAN, BIAS_MAX_MIN };

/* The first threshold of Quark's TQTObserver. */
enum threshold_method { THRESHOLD_3SD, THRESHOLD_KL_J };

enum version { VERSION_CURRENT, VERSION_2025_10, VERSION_2025_09, VERSION_2026_10, VERSIONS };

enum torch_dtype {
    TORCH_QUINT8,
    TORCH_QINT8,
    TORCH_QINT32,
    TORCH_QUINT4X2,
    TORCH_UINT8,
    TORCH_INT8,
    TORCH_UINT16,
    TORCH_INT16,
    TORCH_INT32,
    TORCH_FLOAT32, /* from here on PlaceholderObserver's only */
    TORCH_FLOAT16,
    TORCH_BFLOAT16
};

enum torch_qscheme {
    TORCH_QSCHEME_NONE, /* affine, per tensor or per channel as the preset is */
    TORCH_PER_TENSOR_AFFINE,
    TORCH_PER_TENSOR_SYMMETRIC,
    TORCH_PER_CHANNEL_AFFINE,
    TORCH_PER_CHANNEL_SYMMETRIC,
    TORCH_PER_CHANNEL_AFFINE_FLOAT_QPARAMS
};

enum quark_dtype {
    QUARK_DTYPE_NONE,
    QUARK_INT8,
    QUARK_UINT8,
    QUARK_INT4,
    QUARK_UINT4,
    QUARK_INT3,
    QUARK_INT2,
    QUARK_INT16,
    QUARK_INT32,
    QUARK_FP8_E4M3,
    QUARK_FP8_E5M2,
    QUARK_FP8_E5M3,
    QUARK_FP6_E2M3,
    QUARK_FP6_E3M2,
    QUARK_FP4,
    QUARK_BFP16,
    QUARK_FLOAT16,
    QUARK_BFLOAT16,
    QUARK_MX,
    QUARK_MX6,
    QUARK_MX9,
    QUARK_UINT16,
    QUARK_UINT32,
    QUARK_UINT2,
    QUARK_DTYPES
};

enum quark_qscheme { QUARK_QSCHEME_NONE, QUARK_PER_TENSOR, QUARK_PER_CHANNEL, QUARK_PER_GROUP };

enum zero_point_type { ZERO_POINT_INT32, ZERO_POINT_FLOAT32 };

/* The dtype Quark's observers round a scale to; only the three named after IEEE formats do anything in them. */
enum scale_type {
    SCALE_TYPE_FLOAT, /* no rounding: as the arithmetic leaves it */
    SCALE_TYPE_F32,
    SCALE_TYPE_F16,
    SCALE_TYPE_BF16,
    SCALE_TYPE_POF2,
    SCALE_TYPE_E5M3,
    SCALE_TYPE_E8M0
};

/* ONNX Runtime's QuantType. */
enum ort_type { ORT_QINT8, ORT_QUINT8, ORT_QINT16, ORT_QUINT16, ORT_QINT4, ORT_QUINT4, ORT_TYPES };

/* ONNX Runtime's scenario: moments of values, or of their cube roots. */
enum ort_scenario { ORT_SAME, ORT_P3 };

/* torchao */
enum torchao_module { TORCHAO_QUANTIZATION, TORCHAO_PT2E };

enum zero_point_domain { ZERO_POINT_DOMAIN_INT, ZERO_POINT_DOMAIN_FLOAT, ZERO_POINT_DOMAIN_NONE };

enum torchao_dtype {
    TORCHAO_INT8,
    TORCHAO_UINT8,
    TORCHAO_INT1,
    TORCHAO_INT2,
    TORCHAO_INT3,
    TORCHAO_INT4,
    TORCHAO_INT5,
    TORCHAO_INT6,
    TORCHAO_INT7,
    TORCHAO_UINT1,
    TORCHAO_UINT2,
    TORCHAO_UINT3,
    TORCHAO_UINT4,
    TORCHAO_UINT5,
    TORCHAO_UINT6,
    TORCHAO_UINT7,
    TORCHAO_INT16,
    TORCHAO_INT32,
    TORCHAO_E4M3,
    TORCHAO_E5M2,
    TORCHAO_E4M3_FNUZ,
    TORCHAO_E5M2_FNUZ,
    TORCHAO_DTYPES
};

/* Every setting of every preset; a preset's family says which of them it has. Enumerations are stored as int so that
 * one table can describe all fields. */
struct qobs_config {
    const struct preset *preset;
    struct runtime runtime;

    int base_name;
    int nonfinite;
    double averaging_constant;

    /* llm-compressor and compressed-tensors */
    int num_bits;
    int type;
    bool symmetric;
    int strategy; /* resolved by qobs_config_strategy */
    bool has_group_size;
    int64_t group_size;
    bool has_block;
    int64_t block[2]; /* height, width */
    int dynamic;
    int scale_dtype; /* a scale_dtype */
    int zp_dtype;    /* a qobs_dtype, or 0: follows type and num_bits */
    int version;
    bool ragged;
    double maxshrink, grid, norm, expand; /* of the search for the least error */
    int search_dtype;                     /* enum search_dtype */
    int64_t patience;
    int64_t chunk_size; /* changes nothing: upstream's candidates at a time */
    bool strict;        /* no importance, no range */

    /* optimal scales; multipliers as TensorRT's */
    bool signed_scale;
    double dampening_frac;
    bool has_hessian_block; /* Model-Optimizer's searches without one have squared errors */
    int64_t hessian_block_size;
    int passes;
    int zero_point_radius;
    bool has_rounding, has_rounding_passes;
    int rounding; /* enum rounding */
    int rounding_passes;

    /* torch */
    int dtype;
    int qscheme;
    bool reduce_range;
    bool has_quant_min, has_quant_max;
    int64_t quant_min, quant_max;
    double eps;
    bool is_dynamic;
    bool has_ch_axis; /* Quark's has no default */
    int ch_axis;

    int64_t bins;      /* of histograms */
    int upsample_rate; /* changes nothing */
    bool float32_counts;
    bool shifted_counts; /* old counts stay in their bins where bins come before them */
    double percentile;
    int64_t stride, start_bin;

    bool has_scale, has_zero_point; /* FixedQParamsObserver's */
    double scale;
    int64_t zero_point;

    /* Quark */
    int quark_dtype;
    int quark_qscheme;
    int zero_point_type;
    int scale_type;
    int scale_format;
    int scale_calculation_mode;
    int mx_element_dtype;
    bool has_first_level;
    double quant_max_first_level; /* of the numbers whose scales are quantized */
    int threshold_init_meth;      /* enum threshold_method */
    int scope;                    /* exponents below the first that are tried */

    /* ONNX Runtime */
    int activation_type; /* enum ort_type */
    bool activation_symmetric, moving_average, per_channel;
    bool has_min_real_range;
    bool has_restricted_asymmetric, restricted_asymmetric;
    double min_real_range;
    int64_t num_quantized_bins;
    int scenario;

    /* torchao */
    int mapping_type; /* enum torchao_mapping */
    int target_dtype; /* enum torchao_dtype */
    int torchao_granularity;
    int axis, dim;
    struct axes block_sizes; /* of the last dimensions */
    bool has_block_sizes;
    bool has_eps;
    int torchao_scale_dtype, torchao_zero_point_dtype; /* a qobs_dtype, or 0: as the arithmetic leaves them */
    bool preserve_zero, keepdim, run_once;
    int zero_point_domain;
    int torchao_module;
    int steps;

    /* TensorRT (Model-Optimizer) */
    bool has_axes;
    struct axes axes;                                    /* kept */
    bool is_unsigned;                                    /* changes nothing where no range is looked for */
    double step_size, start_multiplier, stop_multiplier; /* of the multiples tried */
    bool narrow_range;
    int64_t block_size;
    int64_t num_bins;
    bool skip_zeros, torch_hist;
    int method; /* an amax_method */
    bool has_four_over_six, four_over_six;
    int bias_method;                                                     /* enum bias_method */
    double anchor_percentile, upper_percentile, rho, log2_min, log2_max; /* NVFP4ActHeadroomCalibrator */
};

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

/* Is there a scale for every channel of a torch observer? */
bool qobs_config_has_channels(const qobs_config *config);

/* LSQObserver has a scale for every channel. Upstream tests the truth of ch_axis, so that 0 is as none. */
static inline bool qobs_config_has_lsq_channels(const struct qobs_config *config)
{
    return config->has_ch_axis && config->ch_axis != 0;
}

/* The names of an enumeration's values as messages and `set` use them. */
const char *qobs_torch_dtype_text(int dtype);
const char *qobs_qscheme_text(int qscheme);
const char *qobs_quark_dtype_text(int dtype);
const char *qobs_quark_qscheme_text(int qscheme);
const char *qobs_torchao_dtype_text(int dtype);
