/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Parameters of the range rules: plain values that a configuration is resolved to once (config/family_*.c). A rule
 * reads the members of its own structure only. */
#pragma once

#include "number/format.h"
#include "stages/formula.h"
#include "stages/reduction.h"

/* The reason importance cannot be used, in the order of upstream's checks. */
enum importance_fault {
    IMPORTANCE_USABLE,
    IMPORTANCE_NO_WEIGHT, /* the observed tensor is no weight */
    IMPORTANCE_NOT_OBSERVED,
    IMPORTANCE_NOT_FINITE,
    IMPORTANCE_NEGATIVE,
    IMPORTANCE_ZERO,
    IMPORTANCE_STRATEGY,
    IMPORTANCE_COLUMNS,
    IMPORTANCE_BLOCKS, /* of Model-Optimizer's Hessian; not a check of the others */
    IMPORTANCE_FAULTS
};

/* llm-compressor's grid search: the range shrinks step by step, and the step with the smallest error wins. */
struct grid_params {
    int steps; /* candidates p = 1 - i / grid for i < steps */
    double grid;
    int64_t patience;   /* stop after that many steps in a row without any improvement; 0: after one; < 0: never */
    double norm;        /* exponent of the error |q - x|^norm */
    double expand;      /* factor of the range before it shrinks */
    bool symmetric;     /* zero points are 0 */
    bool off_grid;      /* zero points may lie between quantized numbers, so padding has an error */
    bool native;        /* BF16 and F16 are searched in upstream's arithmetic, one rounding for each operation */
    int64_t rounded;    /* the native search of a qparam with so many elements at most rounds errors to the dtype */
    bool native_scales; /* candidates ignore the dtype of scales, because a global scale follows */

    int64_t quant_min, quant_max; /* the integers to quantize to */
    const qobs_format *format;    /* the floats instead, or NULL */
    bool simd;                    /* search_shrink kernels implement the formula */
    struct shrink_rule shrinking; /* their parameters, without eps and min_p */

    bool importance;                  /* errors are weighted by column importance, in float */
    enum importance_fault fault;      /* IMPORTANCE_USABLE, or why these settings exclude weights */
    enum importance_fault late_fault; /* the same, reported only if the importance itself is usable */
};

/* Quark's searches of exponents. */
struct exponent_params {
    double quant_min, quant_max; /* around a power of two: the integers to quantize to */
    bool float_zero_points;      /* zero points are F32, not I32 */
    int scope;                   /* of a block: number of exponents below the first */
    const qobs_format *format;   /* of its elements */
    int emax;                    /* exponent of the largest element */
};

/* Model-Optimizer's searches: multipliers of an amax. */
struct multiplier_params {
    size_t count; /* at most QOBS_MAX_MULTIPLIERS */
    double start, stop;
    int64_t quant_min, quant_max;
    bool four_over_six;        /* NVFP4: scales are normalised to 256 instead of 448 */
    float zero_amax;           /* an amax of at most this has no scale; NVFP4: that of the tensor's scales */
    const qobs_format *format; /* floats instead, or NULL */
};

/* torchao's search of thresholds. */
struct line_params {
    int steps;
    double quant_min, quant_max; /* integers to quantize to */
};

/* OCTAV's clipping scalar. */
struct octav_params {
    float noise;       /* of an element within the range, in squares of the scalar */
    int dimension;     /* whose indices have scalars of their own; negative: from the end */
    int64_t block;     /* elements of a block; 0: there are none */
    bool whole;        /* all elements share a scalar */
    float least, most; /* limits of the range: the first before the scalar clips it, the second after that */
    int iterations;    /* at most */
};

/* OSCAR's clip. */
struct oscar_params {
    double levels; /* the largest quantized number */
};

/* Model-Optimizer's headroom for NVFP4 activations. */
struct headroom_params {
    double anchor_percentile, upper_percentile, rho;
    double log2_min, log2_max;
};

/* How the centres of histogram bins are quantized. */
enum centre_quantizer {
    CENTRES_NONE,             /* upstream has no such quantizer */
    CENTRES_MODELOPT_INTEGER, /* clamp(rint(c * s), limits) / s with s = quant_max / amax; 0 if amax <= zero_amax */
    CENTRES_MODELOPT_E4M3,    /* e4m3(clamp(c * s)) * (1 / s) with s = (1 / amax) * 448 */
    CENTRES_QUARK_FLOAT,      /* format(clamp(c / s)) * s with s = amax / quant_max */
    CENTRES_TORCH             /* torch.fake_quantize_per_tensor_affine, scale and zero point of the range (0, amax) */
};

/* The method that finds an amax in a histogram. */
enum amax_method { AMAX_ENTROPY, AMAX_MSE, AMAX_PERCENTILE };

/* Rules that find a range in a histogram. */
struct bins_params {
    enum amax_method method;
    double percentile; /* 0 to 100 */
    bool symmetric;
    int64_t stride, start_bin;
    bool clamp_start;   /* a start_bin beyond the last bin is the last bin; else it is an error */
    size_t levels;      /* entropy: quantized magnitudes; 0: the dtype has none */
    bool from_zero;     /* the range of an amax starts at 0, else at -amax */
    bool of_magnitudes; /* percentile: upstream finds an amax with it */
    bool roots;         /* ONNX Runtime's moments: those of cube roots */
    double numbers;     /* non-linear search: quantized numbers */
    enum centre_quantizer centres;
    double quant_min, quant_max; /* quantized numbers */
    float zero_amax;             /* Model-Optimizer's: an amax of at most this has no scale */
    const qobs_format *format;   /* of CENTRES_QUARK_FLOAT and CENTRES_MODELOPT_E4M3 */
    const char *dtype;           /* name for messages */
};

/* The candidates for the scale of a group. */
enum optimal_scales {
    OPTIMAL_BF16, /* numbers with 8 significant bits around the scale of the range */
    OPTIMAL_F16,  /* these rounded to f16 */
    OPTIMAL_E4M3, /* positive e4m3 numbers under a global scale */
    OPTIMAL_E8M0  /* powers of two */
};

/* The scale and zero point with the smallest error of all (optimal/optimal.h). */
struct optimal_params {
    enum optimal_scales scales;
    enum scale_dtype scale_dtype;
    bool e2m1;         /* else integers of num_bits */
    bool symmetric;    /* zero points are 0, else any of quant_min to quant_max */
    bool signed_scale; /* negative scales, too */
    bool f16_results;  /* of the search of an F16 weight: BF16 and E8M0 are rounded to f16 */
    int num_bits;
    int quant_min, quant_max; /* of integers */
    float start, stop;        /* limits of BF16 and F16 in multiples of the scale of the range */
    float eps;                /* scale of a group of zeros; 0: see optimal/optimal_candidates.c */
    double dampening;         /* that share of a group's mean importance is added to each column */
    int passes;               /* over the groups of a block of several groups */
    bool rounds_codes;        /* by descent, where callers quantize */
    int rounding_passes;      /* of the descent that rounds codes; 0: as many as it has by itself */
    int zero_point_radius;    /* with a Hessian: distance of zero points from the one that its diagonal chooses */
};

/* NNCF's scale estimation. */
struct estimation_params {
    float quant_min, quant_max;
    int initial_steps, scale_steps;
    double weight_penalty; /* of the mean squared error of a group; at most 0: none */
};

/* The parameters of one rule, and what others ask of any rule. */
struct range_params {
    enum nonfinite_mode nonfinite; /* treatment of NaN and infinite elements */
    bool importance;               /* errors are weighted by column importance */
    bool hessian;                  /* errors of columns go together as the activations do; needs importance, too */
    bool peaks;                    /* the largest magnitudes of activations are kept, too */
    bool strict;                   /* unusable importance is an error */
    int64_t hessian_block;         /* columns of a block of the Hessian; 0: the group, or there is none */
    struct optimal_params optimal; /* zeros for other rules, also for NNCF's scale estimation */
    union {
        struct grid_params grid;
        struct exponent_params exponent;
        struct multiplier_params multiplier;
        struct line_params line;
        struct octav_params octav;
        struct oscar_params oscar;
        struct estimation_params estimation;
        struct bins_params bins;
        struct headroom_params headroom;
    };
};
