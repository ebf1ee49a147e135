/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The presets, one row each: name, family, feature that it needs (ranges: none), granularity, reduction, accumulator,
 * range rule, formula, defaults of the grid search (NULL: none), summary. A build without the family or the feature has
 * only the name, for messages. presets.c includes this list three times, first to declare the stages. Upstream:
 * llmcompressor/observers/min_max.py, mse.py and imatrix.py, torch/ao/quantization/observer.py,
 * quark/torch/quantization/observer/observer.py and modelopt/torch/quantization/calib/. Presets qobs.* are our own. */
PRESET("llmc.memoryless_minmax", llmc, ranges, llmc_weight, minmax, last, measured, COMPRESSED_TENSORS, NULL,
       "range of the last tensor")
PRESET("llmc.static_minmax", llmc, ranges, llmc_weight, minmax, extremes, measured, COMPRESSED_TENSORS, NULL,
       "range of all tensors")
PRESET("llmc.minmax", llmc, ranges, llmc_weight, minmax, lerp, measured, COMPRESSED_TENSORS, NULL,
       "moving average of the range")
PRESET("llmc.memoryless_mse", llmc, searches, llmc_weight, minmax, last, grid, COMPRESSED_TENSORS, &mse,
       "range with the smallest quantization error, of the last tensor")
PRESET("llmc.mse", llmc, searches, llmc_weight, minmax, lerp, grid, COMPRESSED_TENSORS, &mse,
       "moving average of the range with the smallest quantization error")
PRESET("llmc.nvfp4_expanded_mse", llmc, searches, llmc_weight, minmax, last, grid, COMPRESSED_TENSORS,
       &nvfp4_expanded_mse, "range with the smallest quantization error, also wider than that of the last tensor")
PRESET("llmc.imatrix_mse", llmc, searches, llmc_weight, minmax, last, grid, COMPRESSED_TENSORS, &imatrix_mse,
       "range with the smallest quantization error, columns weighted by activations")
PRESET("llmc.nvfp4_expanded_imatrix", llmc, searches, llmc_weight, minmax, last, grid, COMPRESSED_TENSORS,
       &nvfp4_expanded_imatrix,
       "range with the smallest quantization error, also wider than that of the last tensor, columns weighted by "
       "activations")
PRESET("llmc.fouroversix", llmc, searches, llmc_weight, minmax, last, grid, COMPRESSED_TENSORS, &nvfp4_expanded_mse,
       "another name of llmc.nvfp4_expanded_mse")
PRESET("torch.MinMaxObserver", torch, ranges, tensor, minmax, extremes, measured, TORCH, NULL, "range of all tensors")
PRESET("torch.MovingAverageMinMaxObserver", torch, ranges, tensor, minmax, moving_average, measured, TORCH, NULL,
       "moving average of the range")
PRESET("torch.PerChannelMinMaxObserver", torch, ranges, torch_channel, minmax, extremes, measured, TORCH, NULL,
       "range of all tensors, for each channel")
PRESET("torch.MovingAveragePerChannelMinMaxObserver", torch, ranges, torch_channel, minmax, moving_average, measured,
       TORCH, NULL, "moving average of the range, for each channel")
PRESET("torch.HistogramObserver", torch, histograms, tensor, histogram_torch, extremes, non_linear, TORCH, NULL,
       "range with the smallest squared error in a histogram of all tensors")
PRESET("torch.FixedQParamsObserver", torch, ranges, none, none, last, measured, FIXED, NULL,
       "the scale and zero point that are set")
PRESET("torch.PlaceholderObserver", torch, ranges, none, none, last, measured, NONE, NULL, "nothing but its settings")
PRESET("quark.PlaceholderObserver", quark, ranges, none, none, last, measured, NONE, NULL, "nothing but its settings")
PRESET("quark.PerTensorMinMaxObserver", quark, ranges, tensor, minmax, extremes, measured, QUARK, NULL,
       "range of all tensors")
PRESET("quark.PerChannelMinMaxObserver", quark, ranges, quark_channel, minmax, extremes, measured, QUARK, NULL,
       "range of all tensors, for each channel")
PRESET("quark.PerGroupMinMaxObserver", quark, ranges, quark_group, minmax, last, measured, QUARK, NULL,
       "range of the last tensor, for each group")
PRESET("quark.PerTensorHistogramObserver", quark, histograms, tensor, histogram_quark, extremes, never, QUARK, NULL,
       "histogram of all tensors, and no range")
PRESET("quark.PerTensorHistogramObserverPro", quark, histograms, tensor, histogram_torch, extremes, non_linear,
       QUARK_TORCH, NULL, "torch's HistogramObserver with 256 bins")
PRESET("quark.PerTensorPercentileObserver", quark, histograms, tensor, histogram_quark, extremes, percentile, QUARK,
       NULL, "range that holds nearly all elements but zeros of all tensors")
PRESET("quark.PerTensorMSEObserver", quark, histograms, tensor, histogram_quark, extremes, mse, QUARK, NULL,
       "range with the smallest squared error in a histogram of all tensors")
PRESET("quark.TQTObserver", quark, histograms, tensor, tqt, last, measured, QUARK_TQT, NULL,
       "threshold of the first tensor, the start of a learned one")
PRESET("quark.LSQObserver", quark, ranges, tensor, mean_magnitude, last, measured, QUARK_LSQ, NULL,
       "mean magnitude of the last tensor, the start of a learned step size")
PRESET("quark.PerTensorPowOf2MinMaxObserver", quark, ranges, tensor, minmax, mode, measured, QUARK_POWER_OF_2, NULL,
       "most frequent power of two for the range of all tensors")
PRESET("quark.PerChannelPowOf2MinMaxObserver", quark, ranges, quark_channel, minmax, mode, measured, QUARK_POWER_OF_2,
       NULL, "most frequent powers of two for the ranges of all tensors, for each channel")
PRESET("quark.PerTensorPowOf2MinMSEObserver", quark, searches, tensor, minmax, mode, power_of_2, QUARK_POWER_OF_2, NULL,
       "power of two with the smallest squared error on most tensors")
PRESET("quark.PerChannelPowOf2MinMSEObserver", quark, searches, quark_channel, minmax, mode, power_of_2,
       QUARK_POWER_OF_2, NULL, "powers of two with the smallest squared error on most tensors, for each channel")
PRESET("quark.PerBlockMXObserver", quark, ranges, quark_group, absmax, absmax, measured, QUARK_MX, NULL,
       "largest magnitude of all tensors, for each block")
PRESET("quark.PerBlockMXBufferReuseObserver", quark, ranges, quark_group, absmax_f32, absmax, measured, QUARK_MX, NULL,
       "largest magnitude of all tensors, for each block; F64 is rounded to F32")
PRESET("quark.PerBlockMXDiffsObserver", quark, searches, quark_group, absmax, absmax, exponent, QUARK_MX, NULL,
       "power of two with the smallest squared error on the last tensor, for each block")
PRESET("quark.PerBlockBFPObserver", quark, ranges, quark_group, minmax, bfp, measured, QUARK_BFP, NULL,
       "largest magnitude of all tensors, for each block, for block floating point")
PRESET("ort.MinMaxCalibrater", ort, ranges, tensor, minmax, extremes, measured, ORT, NULL,
       "range of all tensors, or its moving average")
PRESET("ort.EntropyCalibrater", ort, histograms, tensor, histogram_ort, extremes, ort_entropy, ORT, NULL,
       "range with the smallest divergence in a histogram of all tensors")
PRESET("ort.PercentileCalibrater", ort, histograms, tensor, histogram_ort, extremes, ort_percentile, ORT, NULL,
       "range that holds nearly all elements of all tensors")
PRESET("ort.DistributionCalibrater", ort, histograms, tensor, histogram_ort, extremes, ort_distribution, ORT, NULL,
       "mean and standard deviation of all tensors, for e4m3")
PRESET("torchao.AffineQuantizedMinMaxObserver", torchao, ranges, torchao, minmax, extremes, measured, TORCHAO, NULL,
       "range of all tensors")
PRESET("torchao.AffineQuantizedMovingAverageMinMaxObserver", torchao, ranges, torchao, minmax, moving_average, measured,
       TORCHAO, NULL, "moving average of the range")
PRESET("torchao.AffineQuantizedMSEObserver", torchao, searches, torchao, minmax, last, line, TORCHAO, NULL,
       "symmetric range with the smallest squared error on the last tensor")
PRESET("torchao.AffineQuantizedFixedQParamObserver", torchao, ranges, none, none, last, measured, FIXED, NULL,
       "the scale and zero point that are set")
PRESET("modelopt.MaxCalibrator", modelopt, ranges, modelopt_axes, absmax, absmax, measured, NONE, NULL,
       "largest magnitude of all tensors along the axes that are not reduced")
PRESET("modelopt.HistogramCalibrator", modelopt, histograms, tensor, histogram_modelopt, extremes, amax, NONE, NULL,
       "amax from a histogram of all tensors by entropy, squared error or percentile")
PRESET("modelopt.MseCalibrator", modelopt, searches, modelopt_axes, absmax, absmax_first, multiplier, NONE, NULL,
       "multiple of an amax with the smallest squared error on all tensors, along the axes that are not reduced")
PRESET("modelopt.NVFP4MSECalibrator", modelopt, searches, modelopt_block, absmax, absmax_last, e4m3, NONE, NULL,
       "e4m3 scale with the smallest squared error on one tensor, for each block")
PRESET("modelopt.BiasCalibrator", modelopt, ranges, modelopt_reduced, mean, running_mean, measured, NONE, NULL,
       "mean, or middle of the range, of all tensors along the axes that are not reduced")
PRESET("modelopt.NVFP4ActHeadroomCalibrator", modelopt, histograms, tensor, histogram_log2, absmax, headroom, NONE,
       NULL, "amax with room above the magnitudes of most blocks of all tensors")
PRESET("aiedge.OCTAV", aiedge, searches, aiedge, minmax, last, octav, AIEDGE, NULL,
       "symmetric range that OCTAV's iteration clips, of the last tensor")
PRESET("aiedge.OSCAR", aiedge, searches, aiedge, minmax, last, oscar, AIEDGE, NULL,
       "symmetric range with the smallest expected error of the last tensor, columns weighted by activations")
PRESET("nncf.WeightCompression", nncf, ranges, nncf, minmax, last, measured, NNCF, NULL, "range of the last tensor")
PRESET("nncf.ScaleEstimation", nncf, optimal, nncf, minmax, last, scale_estimation, NNCF, NULL,
       "scale of the last tensor with the smallest squared error of the outputs on activations, among weighted means")
PRESET("vllm.scaled_int8_quant", vllm, ranges, llmc_weight, minmax, last, measured, VLLM_INT8, NULL,
       "int8 codes of activations, as vLLM's operator for CPUs computes them")
PRESET("vllm.QuantFP8", vllm, ranges, llmc_weight, minmax, last, measured, VLLM_FP8, NULL,
       "e4m3 codes of activations, as vLLM's QuantFP8 computes them on CPUs")
PRESET("vllm.per_token_group_quant_fp8", vllm, ranges, llmc_weight, minmax, last, measured, VLLM_GROUP_FP8, NULL,
       "e4m3 codes of groups of activations, as vLLM computes them on GPUs")
PRESET("vllm.scaled_fp4_quant", vllm, ranges, llmc_weight, minmax, last, measured, VLLM_FP4, NULL,
       "NVFP4 codes of activations under a given global scale, as vLLM's reference computes them")
PRESET("ggml.q8_0", ggml, ranges, llmc_weight, minmax, last, measured, GGML_Q8_0, NULL,
       "blocks of 32 codes of activations, as ggml-cpu makes them for products with Q4_0, Q8_0, MXFP4 and others")
PRESET("ggml.q8_K", ggml, ranges, llmc_weight, minmax, last, measured, GGML_Q8_K, NULL,
       "blocks of 256 codes of activations, as ggml-cpu makes them for products with Q4_K, Q6_K and others")
PRESET("qobs.mse_optimal", qobs, optimal, llmc_weight, minmax, last, mse_optimal, COMPRESSED_TENSORS, NULL,
       "scale and zero point with the smallest squared error of all, for weights")
PRESET("qobs.imatrix_optimal", qobs, optimal, llmc_weight, minmax, last, imatrix_optimal, COMPRESSED_TENSORS, NULL,
       "scale and zero point with the smallest squared error of all, columns weighted by activations")
PRESET("qobs.local_hessian", qobs, optimal, llmc_weight, minmax, last, local_hessian, COMPRESSED_TENSORS, NULL,
       "scale and zero point with the smallest squared error of the outputs on activations, for each group or block")
