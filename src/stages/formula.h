/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From ranges to scale and zero point.
 *
 * A formula is an upstream's way of computing them: functions (struct formula_ops) with parameters (struct
 * formula_params). It knows no setting and no preset; config/family_*.c make it from a configuration. A new formula
 * is a const ops in its own file and a line there. */
#pragma once

#include "base/tensor.h"

/* The tensors that hold the ranges in upstream. They decide the types its arithmetic promotes to. */
enum rank {
    RANK_TENSOR, /* one tensor with dimensions */
    RANK_SCALAR, /* a 0-dimensional tensor for each range */
    RANK_EMPTY   /* no data: one range from infinity to -infinity, 0-dimensional */
};

/* n ranges of one dtype. */
struct range_view {
    qobs_dtype dtype;
    size_t n;
    enum rank rank;
    const void *min, *max;
    bool magnitudes;           /* min is max; the numbers are finite and not below 0 */
    const float *global_scale; /* NULL: there is none */
    bool native_global_scale;  /* it has the dtype of the ranges, and so have its products; false: F32 */
};

/* How real numbers map to quantized ones. */
enum mapping {
    MAPPING_SYMMETRIC, /* with a fixed zero point */
    MAPPING_AFFINE,    /* with an integer zero point for each range: 0 is exact */
    MAPPING_FLOAT      /* with a real zero point for each range: min is exact */
};

/* The dtype of compressed-tensors' scales. */
enum scale_dtype { SCALE_NATIVE, SCALE_F32, SCALE_BF16, SCALE_F16, SCALE_E4M3, SCALE_U8 };

/* The format and, for e8m0, the rounding of Quark's scales. */
enum scale_format { SCALE_FORMAT_NONE, SCALE_FORMAT_FLOAT32, SCALE_FORMAT_E4M3, SCALE_FORMAT_E5M3, SCALE_FORMAT_E8M0 };
enum scale_mode { SCALE_MODE_NONE, SCALE_MODE_EVEN, SCALE_MODE_FLOOR, SCALE_MODE_CEIL };

/* torchao's MappingType. */
enum torchao_mapping { TORCHAO_SYMMETRIC, TORCHAO_NO_CLIPPING_ERR, TORCHAO_ASYMMETRIC };

/* vLLM's scales of e4m3. */
struct vllm_scale {
    bool ue8m0;            /* scales are powers of two */
    bool by_reciprocal;    /* magnitudes times 1 / 448, not over 448 */
    double least_amax;     /* of magnitudes */
    double least_quotient; /* of what a power of two is made of */
    double least;          /* of scales */
};

struct formula_params {
    const char *name;                /* of the observer, for messages */
    enum rank rank;                  /* of ranges that a caller passes without an observer */
    struct shape shape_without_data; /* of scale in upstream's answer without data */
    double quant_min, quant_max;     /* limits of quantized numbers */
    enum mapping mapping;
    bool no_zero_point;       /* zero points are 0, and no result */
    bool native_global_scale; /* a global scale may have the dtype of the ranges */
    union {
        struct {
            qobs_dtype scale_dtype, zero_point_dtype;
            double scale, zero_point;
        } fixed;
        struct {
            bool mx;                      /* MXFP4 or MXFP8: scales are powers of two */
            int mx_half_bits;             /* what rounds amax up is 2^-that of a power of two */
            int mx_offset;                /* exponent of the largest quantized number */
            enum scale_dtype scale_dtype; /* scales are rounded to it */
            qobs_dtype zero_point_dtype;
            bool e2m1;      /* quantized numbers are e2m1 */
            bool year_2025; /* as in the releases of that year */
        } compressed_tensors;
        struct {
            double eps; /* the smallest scale; becomes float in the floating-point mode of the call */
            int64_t symmetric_zero_point;
        } torch;
        struct {
            qobs_dtype zero_point_dtype;
            bool restricted; /* zero points are quant_min, or the middle of the numbers */
            bool has_min_real_range;
            double min_real_range; /* the least width of a range */
        } ort;
        struct {
            enum torchao_mapping mapping;
            bool pt2e;                                /* the functions of torchao.quantization.pt2e */
            bool preserve_zero;                       /* the range includes 0 */
            bool has_eps;                             /* else eps follows from the dtype */
            double eps;                               /* the smallest scale */
            qobs_dtype scale_dtype, zero_point_dtype; /* 0: as the arithmetic leaves them */
        } torchao;
        struct {
            qobs_dtype scale_dtype; /* scales are rounded to it; 0: they stay in the dtype of the arithmetic */
            enum scale_format format;
            enum scale_mode mode;
            int mantissa_bits, emax; /* of the elements under an e8m0 scale; emax: exponent of the largest */
            bool zero_is_eps;        /* a scale of 0 becomes 2^-23 */
            bool block_scales;       /* with a global scale, scales are multiples of it by e4m3 numbers */
            bool tensor;             /* powers of two: of the range of a tensor, else of channels */
            bool zero_point_128;     /* powers of two: a zero point of 127 becomes 128 */
            bool integer_zero_point; /* floats: zero points are I32, else of the dtype of scales */
        } quark;
        struct {
            bool blocks; /* scales are rounded to bfloat16 and float16 */
            qobs_dtype zero_point_dtype;
        } aiedge;
        struct vllm_scale vllm;
    };
};

/* The dtypes of the results. */
struct qparam_dtypes {
    qobs_dtype scale, zero_point;
};

/* Reads dtype, rank, native_global_scale and global_scale (only if it is NULL) of the ranges. */
typedef struct qparam_dtypes formula_dtypes_fn(const struct formula_params *params, const struct range_view *ranges);
formula_dtypes_fn qobs_fixed_dtypes; /* F32 and I32 */

/* The results for one range, before they are rounded to their dtypes. */
struct qparam {
    double scale, zero_point;
};

/* A formula has `qparam`, or `qparams` if it looks at several ranges or must be fast. */
struct formula_ops {
    formula_dtypes_fn *dtypes;
    /* The range of that dtype from min to max. QOBS_ERROR_NO_RESULT: upstream raises. */
    int (*qparam)(const struct formula_params *params, qobs_dtype dtype, double min, double max, struct qparam *result,
                  qobs_error *error);
    /* All ranges. scale and zero_point have the dtypes of the results and may each be NULL. */
    int (*qparams)(const struct formula_params *params, const struct range_view *ranges, void *scale, void *zero_point,
                   qobs_error *error);
    /* The global scale of a tensor of that dtype and largest magnitude; NULL: the formula has none. */
    float (*global_scale)(const struct formula_params *params, qobs_dtype dtype, double amax);
    bool needs_data;       /* upstream has no answer without data */
    bool only_f32;         /* ranges are F32 */
    bool real_zero_points; /* dynamic codes have the float before it becomes an integer; only with `qparam` */
    bool block_scales;     /* a caller may have a global scale if params->quark.block_scales says so */
};

struct formula {
    const struct formula_ops *ops;
    struct formula_params params;
};

extern const struct formula_ops qobs_formula_none;  /* no scale and zero point */
extern const struct formula_ops qobs_formula_fixed; /* those that are set */
extern const struct formula_ops qobs_formula_compressed_tensors;
extern const struct formula_ops qobs_formula_torch;
extern const struct formula_ops qobs_formula_ort;
extern const struct formula_ops qobs_formula_ort_float8; /* of mean and standard deviation */
extern const struct formula_ops qobs_formula_torchao;
extern const struct formula_ops qobs_formula_aiedge, qobs_formula_nncf;
extern const struct formula_ops qobs_formula_vllm_int8, qobs_formula_vllm_symmetric_int8, qobs_formula_vllm_fp8,
    qobs_formula_vllm_fp4;
extern const struct formula_ops qobs_formula_ggml_q8_0, qobs_formula_ggml_q8_k;
extern const struct formula_ops qobs_formula_quark_integer;
extern const struct formula_ops qobs_formula_quark_float; /* fp8 and fp4 ranges, MX blocks */
extern const struct formula_ops qobs_formula_quark_bfp;
extern const struct formula_ops qobs_formula_quark_lsq, qobs_formula_quark_tqt;
extern const struct formula_ops qobs_formula_quark_power_of_2;

/* The range of an observer without data. */
struct range_view qobs_no_ranges(void);

/* The largest magnitude of all ranges; NaN if there is one. */
double qobs_amax_of_ranges(const struct range_view *ranges);

static inline bool qobs_formula_has_qparams(const struct formula *formula)
{
    return formula->ops != &qobs_formula_none;
}

/* The functions of a formula, called with its parameters. */
static inline struct qparam_dtypes qobs_formula_dtypes(const struct formula *formula, const struct range_view *ranges)
{
    return formula->ops->dtypes(&formula->params, ranges);
}

/* scale and zero_point may each be NULL. QOBS_ERROR_NO_RESULT: upstream raises. QOBS_ERROR_NO_DATA: upstream has no
 * answer without data. */
int qobs_formula_qparams(const struct formula *formula, const struct range_view *ranges, void *scale, void *zero_point,
                         qobs_error *error);

/* The same, and real zero points unless `real` is NULL. */
int qobs_formula_find(const struct formula *formula, const struct range_view *ranges, void *scale, void *zero_point,
                      float *real, qobs_error *error);
