/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The presets, one row each: name, family, feature that it needs (RANGES: none), granularity, reduction, accumulator,
 * range rule, formula, defaults of the grid search (NULL: none), summary. A build without the family or the feature has
 * only the name, for messages. presets.c includes this list three times, first to declare the stages. Upstream:
 * llmcompressor/observers/min_max.py, mse.py and imatrix.py, torch/ao/quantization/observer.py,
 * quark/torch/quantization/observer/observer.py and modelopt/torch/quantization/calib/. Presets qobs.* are our own. */
PRESET("llmc.memoryless_minmax", LLMC, RANGES, LLMC, minmax, last, measured, COMPRESSED_TENSORS, NULL,
       "range of the last tensor")
PRESET("llmc.static_minmax", LLMC, RANGES, LLMC, minmax, extremes, measured, COMPRESSED_TENSORS, NULL,
       "range of all tensors")
PRESET("llmc.minmax", LLMC, RANGES, LLMC, minmax, lerp, measured, COMPRESSED_TENSORS, NULL,
       "moving average of the range")
PRESET("llmc.memoryless_mse", LLMC, SEARCHES, LLMC, minmax, last, grid, COMPRESSED_TENSORS, &mse,
       "range with the smallest quantization error, of the last tensor")
PRESET("llmc.mse", LLMC, SEARCHES, LLMC, minmax, lerp, grid, COMPRESSED_TENSORS, &mse,
       "moving average of the range with the smallest quantization error")
PRESET("llmc.nvfp4_expanded_mse", LLMC, SEARCHES, LLMC, minmax, last, grid, COMPRESSED_TENSORS, &nvfp4_expanded_mse,
       "range with the smallest quantization error, also wider than that of the last tensor")
PRESET("llmc.imatrix_mse", LLMC, SEARCHES, LLMC, minmax, last, grid, COMPRESSED_TENSORS, &imatrix_mse,
       "range with the smallest quantization error, columns weighted by activations")
PRESET("llmc.nvfp4_expanded_imatrix", LLMC, SEARCHES, LLMC, minmax, last, grid, COMPRESSED_TENSORS,
       &nvfp4_expanded_imatrix,
       "range with the smallest quantization error, also wider than that of the last tensor, columns weighted by "
       "activations")
PRESET("llmc.fouroversix", LLMC, SEARCHES, LLMC, minmax, last, grid, COMPRESSED_TENSORS, &nvfp4_expanded_mse,
       "another name of llmc.nvfp4_expanded_mse")
PRESET("torch.MinMaxObserver", TORCH, RANGES, TENSOR, minmax, extremes, measured, TORCH, NULL, "range of all tensors")
PRESET("torch.MovingAverageMinMaxObserver", TORCH, RANGES, TENSOR, minmax, moving_average, measured, TORCH, NULL,
       "moving average of the range")
PRESET("torch.PerChannelMinMaxObserver", TORCH, RANGES, TORCH_CHANNEL, minmax, extremes, measured, TORCH, NULL,
       "range of all tensors, for each channel")
PRESET("torch.MovingAveragePerChannelMinMaxObserver", TORCH, RANGES, TORCH_CHANNEL, minmax, moving_average, measured,
       TORCH, NULL, "moving average of the range, for each channel")
PRESET("torch.HistogramObserver", TORCH, HISTOGRAMS, TORCH_QSCHEME, histogram_torch, extremes, non_linear, TORCH, NULL,
       "range with the smallest squared error in a histogram of all tensors")
PRESET("torch.FixedQParamsObserver", TORCH, RANGES, NONE, none, last, measured, FIXED, NULL,
       "the scale and zero point that are set")
PRESET("torch.PlaceholderObserver", TORCH, RANGES, NONE, none, last, measured, NONE, NULL, "nothing but its settings")
PRESET("quark.PlaceholderObserver", QUARK, RANGES, NONE, none, last, measured, NONE, NULL, "nothing but its settings")
PRESET("quark.PerTensorMinMaxObserver", QUARK, RANGES, TENSOR, minmax, extremes, measured, QUARK, NULL,
       "range of all tensors")
PRESET("quark.PerChannelMinMaxObserver", QUARK, RANGES, QUARK_CHANNEL, minmax, extremes, measured, QUARK, NULL,
       "range of all tensors, for each channel")
PRESET("quark.PerGroupMinMaxObserver", QUARK, RANGES, QUARK_GROUP, minmax, last, measured, QUARK, NULL,
       "range of the last tensor, for each group")
PRESET("quark.PerTensorHistogramObserver", QUARK, HISTOGRAMS, TENSOR, histogram_quark, extremes, never, QUARK, NULL,
       "histogram of all tensors, and no range")
PRESET("quark.PerTensorHistogramObserverPro", QUARK, HISTOGRAMS, TENSOR, histogram_torch, extremes, non_linear,
       QUARK_TORCH, NULL, "torch's HistogramObserver with 256 bins")
PRESET("quark.PerTensorPercentileObserver", QUARK, HISTOGRAMS, TENSOR, histogram_quark, extremes, percentile, QUARK,
       NULL, "range that holds nearly all elements but zeros of all tensors")
PRESET("quark.PerTensorMSEObserver", QUARK, HISTOGRAMS, TENSOR, histogram_quark, extremes, mse, QUARK, NULL,
       "range with the smallest squared error in a histogram of all tensors")
PRESET("quark.TQTObserver", QUARK, HISTOGRAMS, TENSOR, tqt, last, measured, QUARK_TQT, NULL,
       "threshold of the first tensor, the start of a learned one")
PRESET("quark.LSQObserver", QUARK, RANGES, QUARK_LSQ, mean_magnitude, last, measured, QUARK_LSQ, NULL,
       "mean magnitude of the last tensor, the start of a learned step size")
PRESET("quark.PerTensorPowOf2MinMaxObserver", QUARK, RANGES, TENSOR, minmax, mode, measured, QUARK_POWER_OF_2, NULL,
       "most frequent power of two for the range of all tensors")
PRESET("quark.PerChannelPowOf2MinMaxObserver", QUARK, RANGES, QUARK_CHANNEL, minmax, mode, measured, QUARK_POWER_OF_2,
       NULL, "most frequent powers of two for the ranges of all tensors, for each channel")
PRESET("quark.PerTensorPowOf2MinMSEObserver", QUARK, SEARCHES, TENSOR, minmax, mode, power_of_2, QUARK_POWER_OF_2, NULL,
       "power of two with the smallest squared error on most tensors")
PRESET("quark.PerChannelPowOf2MinMSEObserver", QUARK, SEARCHES, QUARK_CHANNEL, minmax, mode, power_of_2,
       QUARK_POWER_OF_2, NULL, "powers of two with the smallest squared error on most tensors, for each channel")
PRESET("quark.PerBlockMXObserver", QUARK, RANGES, QUARK_BLOCK, absmax, absmax, measured, QUARK_MX, NULL,
       "largest magnitude of all tensors, for each block")
PRESET("quark.PerBlockMXBufferReuseObserver", QUARK, RANGES, QUARK_BLOCK, absmax_f32, absmax, measured, QUARK_MX, NULL,
       "largest magnitude of all tensors, for each block; F64 is rounded to F32")
PRESET("quark.PerBlockMXDiffsObserver", QUARK, SEARCHES, QUARK_BLOCK, absmax, absmax, exponent, QUARK_MX, NULL,
       "power of two with the smallest squared error on the last tensor, for each block")
PRESET("quark.PerBlockBFPObserver", QUARK, RANGES, QUARK_BLOCK, minmax, bfp, measured, QUARK_BFP, NULL,
       "largest magnitude of all tensors, for each block, for block floating point")
PRESET("ort.MinMaxCalibrater", ORT, RANGES, ORT, minmax, extremes, measured, ORT, NULL,
       "range of all tensors, or its moving average")
PRESET("ort.EntropyCalibrater", ORT, HISTOGRAMS, TENSOR, histogram_ort, extremes, ort_entropy, ORT, NULL,
       "range with the smallest divergence in a histogram of all tensors")
PRESET("ort.PercentileCalibrater", ORT, HISTOGRAMS, TENSOR, histogram_ort, extremes, ort_percentile, ORT, NULL,
       "range that holds nearly all elements of all tensors")
PRESET("ort.DistributionCalibrater", ORT, HISTOGRAMS, TENSOR, histogram_ort, extremes, ort_distribution, ORT, NULL,
       "mean and standard deviation of all tensors, for e4m3")
PRESET("torchao.AffineQuantizedMinMaxObserver", TORCHAO, RANGES, TORCHAO, minmax, extremes, measured, TORCHAO, NULL,
       "range of all tensors")
PRESET("torchao.AffineQuantizedMovingAverageMinMaxObserver", TORCHAO, RANGES, TORCHAO, minmax, moving_average, measured,
       TORCHAO, NULL, "moving average of the range")
PRESET("torchao.AffineQuantizedMSEObserver", TORCHAO, SEARCHES, TORCHAO, minmax, last, line, TORCHAO, NULL,
       "symmetric range with the smallest squared error on the last tensor")
PRESET("torchao.AffineQuantizedFixedQParamObserver", TORCHAO, RANGES, NONE, none, last, measured, TORCHAO_FIXED, NULL,
       "the scale and zero point that are set")
PRESET("modelopt.MaxCalibrator", MODELOPT, RANGES, MODELOPT_AXES, absmax, absmax, measured, NONE, NULL,
       "largest magnitude of all tensors along the axes that are not reduced")
PRESET("modelopt.HistogramCalibrator", MODELOPT, HISTOGRAMS, TENSOR, histogram_modelopt, extremes, amax, NONE, NULL,
       "amax from a histogram of all tensors by entropy, squared error or percentile")
PRESET("modelopt.MseCalibrator", MODELOPT, SEARCHES, MODELOPT_AXES, absmax, absmax_first, multiplier, NONE, NULL,
       "multiple of an amax with the smallest squared error on all tensors, along the axes that are not reduced")
PRESET("modelopt.NVFP4MSECalibrator", MODELOPT, SEARCHES, MODELOPT_BLOCK, absmax, absmax_last, e4m3, NONE, NULL,
       "e4m3 scale with the smallest squared error on one tensor, for each block")
PRESET("modelopt.BiasCalibrator", MODELOPT, RANGES, MODELOPT_REDUCED, mean, running_mean, measured, NONE, NULL,
       "mean, or middle of the range, of all tensors along the axes that are not reduced")
PRESET("modelopt.NVFP4ActHeadroomCalibrator", MODELOPT, HISTOGRAMS, TENSOR, histogram_log2, absmax, headroom, NONE,
       NULL, "amax with room above the magnitudes of most blocks of all tensors")
PRESET("aiedge.OCTAV", AIEDGE, SEARCHES, AIEDGE, minmax, last, octav, AIEDGE, NULL,
       "symmetric range that OCTAV's iteration clips, of the last tensor")
PRESET("aiedge.OSCAR", AIEDGE, SEARCHES, AIEDGE, minmax, last, oscar, AIEDGE, NULL,
       "symmetric range with the smallest expected error of the last tensor, columns weighted by activations")
PRESET("nncf.WeightCompression", NNCF, RANGES, NNCF, minmax, last, measured, NNCF, NULL, "range of the last tensor")
PRESET("nncf.ScaleEstimation", NNCF, OPTIMAL, NNCF, minmax, last, scale_estimation, NNCF, NULL,
       "scale of the last tensor with the smallest squared error of the outputs on activations, among weighted means")
PRESET("qobs.mse_optimal", QOBS, OPTIMAL, LLMC, minmax, last, mse_optimal, COMPRESSED_TENSORS, NULL,
       "scale and zero point with the smallest squared error of all, for weights")
PRESET("qobs.imatrix_optimal", QOBS, OPTIMAL, LLMC, minmax, last, imatrix_optimal, COMPRESSED_TENSORS, NULL,
       "scale and zero point with the smallest squared error of all, columns weighted by activations")
PRESET("qobs.local_hessian", QOBS, OPTIMAL, LLMC, minmax, last, local_hessian, COMPRESSED_TENSORS, NULL,
       "scale and zero point with the smallest squared error of the outputs on activations, for each group or block")
