/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Every preset with settings under which it takes matrices whose columns are a multiple of 16, for tests of what all
 * have in common. */
#ifndef QOBS_TEST_EVERY_PRESET_H
#define QOBS_TEST_EVERY_PRESET_H

#include "observing.h"

static const struct every_preset {
    const char *preset, *settings;
} every_preset[] = {
    {"llmc.memoryless_minmax", "base_name=input;strategy=tensor"},
    {"llmc.minmax", "group_size=16;version=2025-09;averaging_constant=1"},
    {"llmc.static_minmax", "base_name=input;strategy=group;group_size=16;symmetric=false"},
    {"llmc.minmax",
     "base_name=input;strategy=tensor_group;group_size=16;type=float;num_bits=4;dynamic=local;version=2025-10"},
    {"llmc.minmax", "version=2025-09;strategy=block;block_structure=[100,48]"},
    {"llmc.memoryless_mse", "base_name=input;strategy=tensor;grid=10"},
    {"llmc.mse", "base_name=input;strategy=tensor_group;group_size=16;type=float;num_bits=4;version=2025-10;grid=10"},
    {"llmc.nvfp4_expanded_mse", "strategy=tensor_group;group_size=16;type=float;num_bits=4;grid=10"},
    {"llmc.nvfp4_expanded_imatrix", "strategy=tensor_group;group_size=16;type=float;num_bits=4;grid=10"},
    {"llmc.fouroversix", "strategy=tensor_group;group_size=16;type=float;num_bits=4;grid=10"},
    {"llmc.imatrix_mse", "group_size=16;num_bits=4;grid=10"},
    {"torch.MinMaxObserver", ""},
    {"torch.MovingAverageMinMaxObserver", ""},
    {"torch.PerChannelMinMaxObserver", "ch_axis=1"},
    {"torch.MovingAveragePerChannelMinMaxObserver", ""},
    {"torch.HistogramObserver", "bins=100"},
    {"torch.HistogramObserver", "bins=20;qscheme=per_channel_affine;ch_axis=1"},
    {"torch.FixedQParamsObserver", "scale=0.5;zero_point=0"},
    {"torch.PlaceholderObserver", ""},
    {"quark.PlaceholderObserver", ""},
    {"quark.PerTensorMinMaxObserver", ""},
    {"quark.PerChannelMinMaxObserver", "ch_axis=0"},
    {"quark.PerGroupMinMaxObserver", "ch_axis=1;group_size=16"},
    {"quark.PerTensorHistogramObserver", ""},
    {"quark.PerTensorHistogramObserverPro", "dtype=uint8;symmetric=false"},
    {"quark.PerTensorPercentileObserver", ""},
    {"quark.PerTensorMSEObserver", "stride=100"},
    {"quark.PerTensorPowOf2MinMaxObserver", ""},
    {"quark.PerChannelPowOf2MinMaxObserver", "ch_axis=1"},
    {"quark.PerTensorPowOf2MinMSEObserver", ""},
    {"quark.PerChannelPowOf2MinMSEObserver", "ch_axis=1"},
    {"quark.PerBlockMXObserver", "ch_axis=1;group_size=32;scale_format=e8m0;scale_calculation_mode=even"},
    {"quark.PerBlockMXDiffsObserver", "ch_axis=1;group_size=32;scale_format=e8m0;scale_calculation_mode=even"},
    {"quark.PerBlockMXBufferReuseObserver", "ch_axis=1;group_size=32;scale_format=e8m0;scale_calculation_mode=even"},
    {"quark.PerBlockBFPObserver", "ch_axis=1;group_size=16"},
    {"quark.TQTObserver", "dtype=int4"},
    {"quark.TQTObserver", "dtype=int4;threshold_init_meth=_KL_J"},
    {"quark.LSQObserver", "ch_axis=1"},
    {"modelopt.BiasCalibrator", "axis=1"},
    {"modelopt.BiasCalibrator", "method=max_min"},
    {"modelopt.NVFP4ActHeadroomCalibrator", ""},
    {"ort.MinMaxCalibrater", "moving_average=true;per_channel=true"},
    {"ort.MinMaxCalibrater", "symmetric=true;activation_type=QUInt8"},
    {"ort.MinMaxCalibrater", "activation_type=QUInt8;activation_restricted_asymmetric=true"},
    {"ort.EntropyCalibrater", "num_bins=100;num_quantized_bins=20"},
    {"ort.PercentileCalibrater", "num_bins=200;percentile=99"},
    {"ort.PercentileCalibrater", "num_bins=200;percentile=99;symmetric=false"},
    {"ort.DistributionCalibrater", "num_bins=512"},
    {"torchao.AffineQuantizedMinMaxObserver", "granularity=PerBlock;block_size=[1,16];target_dtype=int4"},
    {"torchao.AffineQuantizedMinMaxObserver", "module=pt2e;mapping_type=ASYMMETRIC;target_dtype=uint8"},
    {"torchao.AffineQuantizedMovingAverageMinMaxObserver", "granularity=PerAxis;axis=1"},
    {"torchao.AffineQuantizedMSEObserver", "granularity=PerGroup;group_size=16;steps=20"},
    {"torchao.AffineQuantizedMSEObserver", "mapping_type=ASYMMETRIC;target_dtype=uint8;steps=10"},
    {"aiedge.OCTAV", "quantized_dimension=1;num_bits=4"},
    {"aiedge.OCTAV", "granularity=TENSORWISE;num_bits=2"},
    {"aiedge.OSCAR", "num_bits=4"},
    {"aiedge.OSCAR", "granularity=TENSORWISE;num_bits=3"},
    {"nncf.WeightCompression", "mode=INT4_SYM;group_size=16"},
    {"nncf.WeightCompression", "reduction_axes=[0,1]"},
    {"nncf.ScaleEstimation", "mode=INT4_SYM;group_size=16"},
    {"nncf.ScaleEstimation", "mode=INT4_ASYM;initial_steps=2"},
    {"vllm.scaled_int8_quant", ""},
    {"vllm.scaled_int8_quant", "symmetric=false;build=avx2"},
    {"vllm.scaled_int8_quant", "group_shape=PER_TENSOR"},
    {"vllm.QuantFP8", ""},
    {"vllm.QuantFP8", "group_shape=PER_TENSOR"},
    {"vllm.QuantFP8", "group_size=16;use_ue8m0=true"},
    {"vllm.per_token_group_quant_fp8", "group_size=16"},
    {"vllm.per_token_group_quant_fp8", "group_size=16;use_ue8m0=true;kernel=triton"},
    {"vllm.scaled_fp4_quant", ""},
    {"ggml.q8_0", ""},
    {"ggml.q8_K", "build=arm64"},
    {"modelopt.MaxCalibrator", "axis=1"},
    {"modelopt.HistogramCalibrator", "method=percentile"},
    {"modelopt.HistogramCalibrator", "method=entropy;stride=50;torch_hist=false"},
    {"modelopt.MseCalibrator", "axis=0"},
    {"modelopt.MseCalibrator", "axis=0;hessian_block_size=8"},
    {"modelopt.NVFP4MSECalibrator", ""},
    {"modelopt.NVFP4MSECalibrator", "hessian_block_size=16"},
    {"qobs.mse_optimal", "strategy=tensor_group;group_size=16;type=float;num_bits=4;scale_dtype=float8_e4m3fn"},
    {"qobs.mse_optimal", "num_bits=3;signed_scale=true"},
    {"qobs.imatrix_optimal", "group_size=16;num_bits=4;symmetric=false"},
    {"qobs.local_hessian", "group_size=16;num_bits=4;hessian_block_size=32"},
};

enum { EVERY_PRESET = sizeof every_preset / sizeof *every_preset };

/* Line i; after the lines the presets that have none, with their default settings; NULL: there are no more. */
static inline const struct every_preset *preset_at(size_t i)
{
    static struct every_preset other = {NULL, ""};
    size_t n = EVERY_PRESET;
    if (i < n)
        return &every_preset[i];
    for (size_t k = 0; (other.preset = qobs_preset_name(k)); k++) {
        bool found = false;
        for (size_t line = 0; line < EVERY_PRESET; line++)
            found |= strcmp(every_preset[line].preset, other.preset) == 0;
        if (!found && n++ == i)
            return &other;
    }
    return NULL;
}

static inline bool weighs_columns(const struct every_preset *p)
{
    return strstr(p->preset, "imatrix") || strstr(p->preset, "hessian") || strstr(p->settings, "hessian");
}

/* A matrix of normal-like numbers, the same for the same seed; one seed's reach further than those before it. */
static inline void fill_matrix(float *data, size_t n, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 7;
    for (size_t i = 0; i < n; i++)
        data[i] = normal_like(&state) * (float)(seed + 1);
}

#endif
