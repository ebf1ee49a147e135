/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The observers of test_saved_states.c and their data, integers times powers of two. A case of a released version never
 * changes; its fixture would no longer belong to it. */
#ifndef QOBS_TEST_SAVED_CASES_H
#define QOBS_TEST_SAVED_CASES_H

#include <math.h>

#include "observing.h"
#include "qobs/format.h"

enum { ROWS = 4, COLUMNS = 64, ELEMENTS = ROWS * COLUMNS, BATCHES = 2 };

enum options {
    EMPTY = 2,          /* saved before the first batch */
    IMPORTANCE = 4,     /* activations weigh the columns */
    G_IDX = 8,          /* columns belong to groups in a scrambled order */
    AMAX = 16,          /* a reference amax is set */
    WEIGHT = 32,        /* error weights are set */
    GLOBAL_AMAX = 64,   /* the magnitude of a fused set of layers is set after the last batch */
    HEADS = 128,        /* tensors of 4 dimensions: batch, heads, tokens, head size */
    NONFINITE = 256,    /* every batch has a NaN and two infinities */
    NAN_SIGN = 1 << 14, /* a result is a NaN that arithmetic makes, with the sign of x86-64 */
    TOKENS = 512,       /* tokens of one more tensor are counted */
    ZEROS = 1024,       /* the first row is 0 */
    LATER = 4096,       /* a preset that the released versions do not have; the next release makes the fixture */
    NARROW = 2048,      /* the second batch stays within the range of the first */
    KIND = 1 << 15,     /* stands for its kind of state among the fixtures: parts, accumulator, element type, layout */
};

#define NVFP4 "strategy=tensor_group;group_size=16;type=float;num_bits=4"

/* A name is that of the preset and, if there are several of one preset, a word. An empty dtype is F32. */
static const struct saved_case {
    const char *preset, *word, *settings;
    qobs_dtype dtype;
    int options;
} cases[] = {
    {"llmc.memoryless_minmax", "", "base_name=input;strategy=tensor", 0, KIND},
    {"llmc.memoryless_minmax", "token", "base_name=input;strategy=token;dynamic=true;symmetric=false", QOBS_F16, 0},
    {"llmc.memoryless_minmax", "channel", "strategy=channel", QOBS_BF16, KIND},
    {"llmc.memoryless_minmax", "g_idx", "strategy=group;group_size=16;num_bits=4", 0, G_IDX | KIND},
    {"llmc.memoryless_minmax", "g_idx_2025-10", "strategy=group;group_size=16;version=2025-10", 0, G_IDX},
    {"llmc.memoryless_minmax", "nvfp4", NVFP4 ";scale_dtype=float8_e4m3fn", QOBS_BF16, 0},
    {"llmc.memoryless_minmax", "mxfp4",
     "strategy=group;group_size=32;type=float;num_bits=4;scale_dtype=uint8;zp_dtype=int8", 0, 0},
    {"llmc.memoryless_minmax", "fused", NVFP4, 0, GLOBAL_AMAX | KIND},
    {"llmc.memoryless_minmax", "2025-10", "base_name=input;" NVFP4 ";version=2025-10", 0, GLOBAL_AMAX},
    {"llmc.memoryless_minmax", "empty", "strategy=channel", 0, EMPTY | KIND},
    {"llmc.static_minmax", "", "base_name=input;strategy=group;group_size=16;symmetric=false", 0, KIND},
    {"llmc.static_minmax", "fp8", "base_name=input;strategy=tensor;type=float", QOBS_F16, ZEROS},
    {"llmc.static_minmax", "f64", "base_name=output;strategy=tensor;symmetric=false;num_bits=4", QOBS_F64, KIND},
    {"llmc.static_minmax", "attn_head", "base_name=q;strategy=attn_head", 0, HEADS | KIND},
    {"llmc.static_minmax", "ignore", "base_name=input;strategy=tensor;nonfinite=ignore", 0, NONFINITE | KIND},
    {"llmc.static_minmax", "propagate", "base_name=input;strategy=tensor;nonfinite=propagate", 0,
     NONFINITE | NAN_SIGN | KIND},
    {"llmc.minmax", "", "base_name=input;strategy=tensor", 0, KIND},
    {"llmc.minmax", "bf16", "base_name=input;strategy=group;group_size=32;averaging_constant=0.25", QOBS_BF16,
     TOKENS | KIND},
    {"llmc.minmax", "weight", "base_name=weight;strategy=channel;symmetric=false", 0, 0},
    {"llmc.minmax", "block", "base_name=weight;strategy=block;block_structure=[2,16]", 0, 0},
    {"llmc.minmax", "ragged", "base_name=weight;strategy=group;group_size=24;ragged=true", 0, 0},
    {"llmc.minmax", "2025-10", "base_name=input;" NVFP4 ";dynamic=local;version=2025-10", 0, 0},
    {"llmc.minmax", "2025-10_fused", "base_name=input;" NVFP4 ";averaging_constant=0.5;version=2025-10", QOBS_BF16,
     GLOBAL_AMAX | KIND},
    {"llmc.minmax", "2025-09", "base_name=input;strategy=tensor;averaging_constant=0.3;version=2025-09", 0, KIND},
    {"llmc.minmax", "2025-09_group", "base_name=weight;group_size=16;version=2025-09;averaging_constant=1", 0, 0},
    {"llmc.minmax", "2025-09_average", "base_name=weight;group_size=16;version=2025-09;averaging_constant=0.5",
     QOBS_F16, TOKENS | KIND},
    {"llmc.minmax", "2025-09_g_idx", "base_name=weight;group_size=16;version=2025-09", 0, G_IDX},
    {"llmc.minmax", "2025-09_block", "base_name=weight;version=2025-09;strategy=block;block_structure=[3,48]", 0, KIND},
    {"llmc.minmax", "2025-09_tensor_group", "base_name=input;" NVFP4 ";version=2025-09", 0, 0},
    {"llmc.minmax", "empty", "base_name=input", 0, EMPTY},
    {"llmc.memoryless_mse", "", "base_name=input;strategy=tensor;grid=10;norm=2", 0, KIND},
    {"llmc.memoryless_mse", "channel", "strategy=channel;num_bits=4;grid=20;norm=3;symmetric=false", QOBS_BF16, 0},
    {"llmc.memoryless_mse", "norm", "strategy=group;group_size=16;num_bits=4", 0, 0},
    {"llmc.memoryless_mse", "g_idx", "strategy=group;group_size=16;num_bits=4;norm=1", 0, G_IDX},
    {"llmc.mse", "", "base_name=input;strategy=tensor;averaging_constant=0.5;norm=2", QOBS_F16, KIND},
    {"llmc.mse", "norm", "base_name=input;strategy=group;group_size=32;num_bits=4", 0, 0},
    {"llmc.mse", "2025-10", "base_name=input;" NVFP4 ";version=2025-10;grid=10;norm=2", 0, 0},
    {"llmc.mse", "2025-09", "base_name=weight;strategy=group;group_size=16;num_bits=4;version=2025-09;grid=10;norm=2",
     0, 0},
    {"llmc.mse", "2025-09_block",
     "base_name=weight;strategy=block;block_structure=[2,32];num_bits=4;version=2025-09;grid=10;norm=2", 0, 0},
    {"llmc.nvfp4_expanded_mse", "", NVFP4 ";grid=10;norm=2", 0, KIND},
    {"llmc.nvfp4_expanded_mse", "norm", NVFP4 ";grid=10", QOBS_BF16, 0},
    {"llmc.nvfp4_expanded_imatrix", "", NVFP4 ";grid=10;norm=2", QOBS_BF16, IMPORTANCE | LATER},
    {"llmc.fouroversix", "", NVFP4 ";grid=10;norm=2", 0, LATER},
    {"llmc.imatrix_mse", "", "group_size=16;num_bits=4;grid=10;norm=2", 0, IMPORTANCE | KIND},
    {"llmc.imatrix_mse", "channel", "strategy=channel;num_bits=4;norm=3", QOBS_BF16, IMPORTANCE},
    {"llmc.imatrix_mse", "unweighted", "group_size=16;num_bits=4;grid=10;norm=3", 0, 0},
    {"llmc.imatrix_mse", "empty", "group_size=16;num_bits=4;norm=2", 0, IMPORTANCE | EMPTY | KIND},
    {"torch.MinMaxObserver", "", "", 0, 0},
    {"torch.MinMaxObserver", "symmetric", "dtype=qint8;qscheme=per_tensor_symmetric;reduce_range=true", QOBS_F64, 0},
    {"torch.MinMaxObserver", "empty", "", 0, EMPTY},
    {"torch.MovingAverageMinMaxObserver", "", "", 0, KIND},
    {"torch.MovingAverageMinMaxObserver", "bf16", "averaging_constant=0.5;quant_min=0;quant_max=127", QOBS_BF16, 0},
    {"torch.PerChannelMinMaxObserver", "", "ch_axis=1", 0, 0},
    {"torch.PerChannelMinMaxObserver", "symmetric", "ch_axis=0;dtype=qint8;qscheme=per_channel_symmetric", QOBS_F16,
     ZEROS},
    {"torch.PerChannelMinMaxObserver", "float_qparams",
     "ch_axis=0;qscheme=per_channel_affine_float_qparams;dtype=quint4x2", 0, 0},
    {"torch.MovingAveragePerChannelMinMaxObserver", "", "", 0, 0},
    {"torch.HistogramObserver", "", "bins=100", 0, KIND},
    {"torch.HistogramObserver", "channels", "bins=20;qscheme=per_channel_affine;ch_axis=0", 0, KIND},
    {"torch.HistogramObserver", "float32_counts",
     "bins=33;float32_counts=true;dtype=qint8;qscheme=per_tensor_symmetric", QOBS_BF16, KIND},
    {"torch.HistogramObserver", "infinite", "bins=16;nonfinite=ignore", 0, NONFINITE | KIND},
    {"torch.HistogramObserver", "empty", "bins=100", 0, EMPTY | KIND},
    {"torch.FixedQParamsObserver", "", "scale=0.5;zero_point=0", 0, KIND},
    {"torch.PlaceholderObserver", "", "", 0, KIND},
    {"quark.PlaceholderObserver", "", "", 0, 0},
    {"quark.PerTensorMinMaxObserver", "", "", 0, 0},
    {"quark.PerTensorMinMaxObserver", "bf16", "dtype=uint8;symmetric=false;scale_type=float16", QOBS_BF16, 0},
    {"quark.PerTensorMinMaxObserver", "dynamic", "is_dynamic=true;dtype=fp8_e4m3", QOBS_F16, 0},
    {"quark.PerTensorMinMaxObserver", "empty", "", 0, EMPTY},
    {"quark.PerChannelMinMaxObserver", "", "ch_axis=0", 0, 0},
    {"quark.PerChannelMinMaxObserver", "float_zero_point",
     "ch_axis=1;symmetric=false;zero_point_type=float32;dtype=uint4", QOBS_BF16, 0},
    {"quark.PerGroupMinMaxObserver", "", "ch_axis=1;group_size=16", 0, 0},
    {"quark.PerGroupMinMaxObserver", "fp8", "ch_axis=1;group_size=16;dtype=fp8_e4m3;scale_type=bfloat16", 0, 0},
    {"quark.PerTensorHistogramObserver", "", "", 0, NARROW | KIND},
    {"quark.PerTensorHistogramObserverPro", "", "dtype=uint8;symmetric=false", 0, KIND},
    {"quark.PerTensorHistogramObserverPro", "reduced", "dtype=int8;bins=50;reduce_range=true", QOBS_BF16, 0},
    {"quark.PerTensorPercentileObserver", "", "", 0, EMPTY | KIND},
    {"quark.PerTensorPercentileObserver", "asymmetric", "percentile=95;symmetric=false;dtype=uint8;shifted_counts=true",
     QOBS_F16, ZEROS | NARROW | KIND},
    {"quark.PerTensorMSEObserver", "", "stride=100;shifted_counts=true", 0, NARROW},
    {"quark.PerTensorMSEObserver", "float32_counts", "stride=64;start_bin=500;float32_counts=true", 0, NARROW | KIND},
    {"quark.PerTensorPowOf2MinMaxObserver", "", "", 0, 0},
    {"quark.PerTensorPowOf2MinMaxObserver", "asymmetric", "dtype=uint8;symmetric=false", QOBS_BF16, 0},
    {"quark.PerTensorPowOf2MinMaxObserver", "empty", "", 0, EMPTY},
    {"quark.PerChannelPowOf2MinMaxObserver", "", "ch_axis=1", 0, 0},
    {"quark.PerTensorPowOf2MinMSEObserver", "", "", 0, KIND},
    {"quark.PerChannelPowOf2MinMSEObserver", "", "ch_axis=0", QOBS_BF16, 0},
    {"quark.PerBlockMXObserver", "", "ch_axis=1;group_size=32;scale_format=e8m0;scale_calculation_mode=even", 0, 0},
    {"quark.PerBlockMXObserver", "ceil",
     "ch_axis=1;group_size=32;scale_format=e8m0;scale_calculation_mode=ceil;dtype=fp8_e4m3", QOBS_BF16, ZEROS},
    {"quark.PerBlockMXDiffsObserver", "", "ch_axis=1;group_size=32;scale_format=e8m0;scale_calculation_mode=even", 0,
     KIND},
    {"quark.PerBlockMXDiffsObserver", "scope",
     "ch_axis=1;group_size=16;scale_format=e8m0;scale_calculation_mode=floor;scope=3", QOBS_BF16, 0},
    {"quark.PerBlockMXBufferReuseObserver", "", "ch_axis=1;group_size=32;scale_format=e8m0;scale_calculation_mode=even",
     QOBS_F64, LATER},
    {"quark.PerBlockBFPObserver", "", "ch_axis=1;group_size=16", 0, 0},
    {"quark.PerBlockBFPObserver", "nonfinite", "ch_axis=1;group_size=8", QOBS_BF16, NONFINITE},
    {"quark.TQTObserver", "", "dtype=int4", 0, LATER},
    {"quark.LSQObserver", "", "ch_axis=1", 0, LATER},
    {"modelopt.BiasCalibrator", "", "axis=0", QOBS_BF16, LATER},
    {"modelopt.NVFP4ActHeadroomCalibrator", "", "upper_percentile=90", 0, LATER},
    {"ort.MinMaxCalibrater", "", "activation_type=QUInt8", QOBS_F16, LATER},
    {"ort.EntropyCalibrater", "", "num_bins=100;num_quantized_bins=20", 0, LATER},
    {"ort.PercentileCalibrater", "", "num_bins=200;percentile=99", 0, LATER},
    {"ort.PercentileCalibrater", "values", "num_bins=200;percentile=99;symmetric=false", QOBS_BF16, LATER},
    {"ort.DistributionCalibrater", "", "num_bins=512", 0, LATER},
    {"torchao.AffineQuantizedMinMaxObserver", "", "granularity=PerBlock;block_size=[1,16];target_dtype=int4", 0, LATER},
    {"torchao.AffineQuantizedMinMaxObserver", "pt2e", "module=pt2e;mapping_type=ASYMMETRIC;target_dtype=uint8",
     QOBS_BF16, LATER},
    {"torchao.AffineQuantizedMovingAverageMinMaxObserver", "", "granularity=PerAxis;axis=1", QOBS_F16, LATER},
    {"torchao.AffineQuantizedMSEObserver", "", "granularity=PerGroup;group_size=16;steps=20", 0, LATER},
    {"torchao.AffineQuantizedFixedQParamObserver", "", "scale=0.5;zero_point=3;zero_point_dtype=int8", 0, LATER},
    {"aiedge.OCTAV", "", "num_bits=4;nonfinite=ignore", QOBS_BF16, LATER},
    {"aiedge.OSCAR", "", "num_bits=4", 0, IMPORTANCE | LATER},
    {"nncf.WeightCompression", "", "mode=INT4_SYM", QOBS_F16, LATER},
    {"nncf.ScaleEstimation", "", "mode=INT4_ASYM;group_size=16", 0, IMPORTANCE | LATER},
    {"vllm.scaled_int8_quant", "", "", QOBS_BF16, LATER},
    {"vllm.QuantFP8", "", "group_size=16", QOBS_BF16, LATER},
    {"vllm.per_token_group_quant_fp8", "", "group_size=16;use_ue8m0=true", 0, LATER},
    {"vllm.scaled_fp4_quant", "", "", QOBS_BF16, LATER},
    {"ggml.q8_0", "", "", 0, LATER},
    {"ggml.q8_K", "", "", 0, LATER},
    {"qobs.mse_optimal", "", "num_bits=3;signed_scale=true", 0, LATER},
    {"qobs.imatrix_optimal", "", "group_size=16;num_bits=4;symmetric=false", 0, IMPORTANCE | LATER},
    {"qobs.local_hessian", "", "group_size=16;num_bits=4;hessian_block_size=32", 0, IMPORTANCE | LATER},
    {"modelopt.MaxCalibrator", "", "axis=1", 0, 0},
    {"modelopt.MaxCalibrator", "axes", "axis=[0,1]", QOBS_F16, HEADS | KIND},
    {"modelopt.HistogramCalibrator", "", "method=percentile;num_bins=256", 0, KIND},
    {"modelopt.HistogramCalibrator", "entropy", "method=entropy;stride=50;num_bins=200;num_bits=4", 0, 0},
    {"modelopt.HistogramCalibrator", "mse", "method=mse;stride=10;num_bins=150;skip_zeros=true", QOBS_BF16, ZEROS},
    {"modelopt.HistogramCalibrator", "numpy", "method=percentile;percentile=99;num_bins=64;torch_hist=false", 0, KIND},
    {"modelopt.HistogramCalibrator", "numpy_entropy", "method=entropy;stride=50;num_bins=200;torch_hist=false", 0, 0},
    {"modelopt.HistogramCalibrator", "empty", "method=percentile", 0, EMPTY | KIND},
    {"modelopt.MseCalibrator", "", "axis=0", 0, KIND},
    {"modelopt.MseCalibrator", "amax", "axis=0;narrow_range=true;num_bits=4", QOBS_BF16, AMAX | KIND},
    {"modelopt.MseCalibrator", "weight", "num_bits=[4, 3];start_multiplier=0.5;stop_multiplier=2", 0, WEIGHT | KIND},
    {"modelopt.MseCalibrator", "empty", "axis=0", 0, AMAX | WEIGHT | EMPTY | KIND},
    {"modelopt.MseCalibrator", "hessian", "axis=0;num_bits=4;hessian_block_size=32", 0, IMPORTANCE | LATER},
    {"modelopt.NVFP4MSECalibrator", "", "", 0, 0},
    {"modelopt.NVFP4MSECalibrator", "hessian", "hessian_block_size=8", QOBS_BF16, IMPORTANCE | LATER},
    {"modelopt.NVFP4MSECalibrator", "weight", "block_size=32", QOBS_BF16, AMAX | WEIGHT | KIND},
};
enum { CASES = sizeof cases / sizeof *cases };

static inline void name_of(const struct saved_case *c, char name[96])
{
    snprintf(name, 96, "%s%s%s", c->preset, *c->word ? "-" : "", c->word);
}

static inline void put_number(void *data, size_t i, qobs_dtype dtype, float x)
{
    if (dtype == QOBS_F32) {
        ((float *)data)[i] = x;
    } else if (dtype == QOBS_F64) {
        ((double *)data)[i] = (double)x;
    } else {
        const qobs_format *format = qobs_format_find(dtype == QOBS_F16 ? "f16" : "bf16");
        ((uint16_t *)data)[i] = (uint16_t)qobs_format_encode(format, x, false);
    }
}

/* Sums of four uniform integers of 8 bits. The range of each batch is twice that of the last; its last row reaches
 * further down. */
static inline void fill(const struct saved_case *c, int batch, qobs_dtype dtype, void *data)
{
    const float factor = batch == 1 && (c->options & NARROW) ? 0x1p-7f : (float)(1 << batch) / 64;
    uint32_t state = (uint32_t)batch * 977 + 12345;
    for (size_t i = 0; i < ELEMENTS; i++) {
        int32_t sum = 0;
        for (int k = 0; k < 4; k++) {
            state = state * 1664525 + 1013904223;
            sum += (int32_t)(state >> 24) - 128;
        }
        if (i >= ELEMENTS - COLUMNS)
            sum -= 100;
        if ((c->options & ZEROS) && i < COLUMNS)
            sum = 0;
        put_number(data, i, dtype, (float)sum * factor);
    }
    if (c->options & NONFINITE) {
        put_number(data, 3, dtype, (float)NAN);
        put_number(data, 70, dtype, (float)INFINITY);
        put_number(data, 130, dtype, (float)-INFINITY);
    }
}

static inline qobs_observer *make_case(const struct saved_case *c)
{
    qobs_observer *o = make(c->preset, c->settings);
    float numbers[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        numbers[i] = (float)(3 + i % 7) / 2;
    const bool blocks = strcmp(c->preset, "modelopt.NVFP4MSECalibrator") == 0;
    const qobs_tensor amax = blocks ? tensor(QOBS_F32, numbers, 1) : tensor(QOBS_F32, numbers, ROWS, 1);
    const qobs_tensor weight = blocks ? tensor(QOBS_F32, numbers, 32) : tensor(QOBS_F32, numbers, COLUMNS);
    if (c->options & AMAX)
        assert_ok(qobs_observer_set_reference_amax(o, &amax, &error));
    if (c->options & WEIGHT)
        assert_ok(qobs_observer_set_error_weights(o, &weight, &error));
    return o;
}

static inline int observe_batch(const struct saved_case *c, qobs_observer *o, int batch)
{
    static const int64_t matrix[] = {ROWS, COLUMNS}, heads[] = {1, 4, 4, 16};
    const qobs_dtype dtype = c->dtype ? c->dtype : QOBS_F32;
    const bool four = c->options & HEADS;
    double data[ELEMENTS];
    fill(c, batch, dtype, data);
    const qobs_tensor value = tensor_of(dtype, four ? 4 : 2, four ? heads : matrix, data);
    if (c->options & IMPORTANCE) {
        double activations[ELEMENTS];
        fill(c, batch + 1, QOBS_F32, activations);
        const qobs_tensor columns = tensor(QOBS_F32, activations, ROWS, COLUMNS);
        assert_ok(qobs_observer_observe_importance(o, &columns, &error));
    }
    if (c->options & EMPTY && batch < BATCHES)
        return QOBS_OK;
    if (c->options & TOKENS)
        assert_ok(qobs_observer_record_tokens(o, &value, &error));
    int32_t groups[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        groups[i] = i * 5 % COLUMNS / 16;
    const qobs_tensor g_idx = tensor(QOBS_I32, groups, COLUMNS);
    return qobs_observer_observe(o, &value, c->options & G_IDX ? &g_idx : NULL, &error);
}

/* The batches of a fixture. Some observers accept one batch only. */
static inline qobs_observer *observed(const struct saved_case *c)
{
    qobs_observer *o = make_case(c);
    for (int batch = 0; batch < BATCHES; batch++) {
        const int status = observe_batch(c, o, batch);
        if (status != QOBS_OK && batch == 0)
            fail_msg("%s %s: %s", c->preset, c->settings, error.message);
    }
    if (c->options & GLOBAL_AMAX)
        assert_ok(qobs_observer_set_global_amax(o, 40, &error));
    return o;
}

#endif
