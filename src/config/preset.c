/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "config/preset.h"

#include <string.h>

/* Upstream: llmcompressor/observers/min_max.py, mse.py and imatrix.py, torch/ao/quantization/observer.py,
 * quark/torch/quantization/observer/observer.py and modelopt/torch/quantization/calib/max.py. */
#define NOTHING GRANULARITY_NONE, STATISTIC_NONE
#define LLMC FAMILY_LLMC, GRANULARITY_LLMC
#define TORCH_TENSOR FAMILY_TORCH, GRANULARITY_TENSOR
#define TORCH_CHANNEL FAMILY_TORCH, GRANULARITY_TORCH_CHANNEL
static const struct preset presets[] = {
    {"llmc.memoryless_minmax", LLMC, STATISTIC_MEMORYLESS, FORMULA_COMPRESSED_TENSORS, "range of the last tensor"},
    {"llmc.static_minmax", LLMC, STATISTIC_RUNNING, FORMULA_COMPRESSED_TENSORS, "range of all tensors"},
    {"llmc.minmax", LLMC, STATISTIC_AVERAGE_LERP, FORMULA_COMPRESSED_TENSORS, "moving average of the range"},
    {"llmc.memoryless_mse", LLMC, STATISTIC_MEMORYLESS, FORMULA_COMPRESSED_TENSORS,
     "range with the least quantization error, of the last tensor"},
    {"llmc.mse", LLMC, STATISTIC_AVERAGE_LERP, FORMULA_COMPRESSED_TENSORS,
     "moving average of the range with the least quantization error"},
    {"llmc.nvfp4_expanded_mse", LLMC, STATISTIC_MEMORYLESS, FORMULA_COMPRESSED_TENSORS,
     "range with the least quantization error, wider ones than the last tensor's too"},
    {"llmc.imatrix_mse", LLMC, STATISTIC_MEMORYLESS, FORMULA_COMPRESSED_TENSORS,
     "range with the least quantization error, columns weighted by activations"},
    {"torch.MinMaxObserver", TORCH_TENSOR, STATISTIC_RUNNING, FORMULA_TORCH, "range of all tensors"},
    {"torch.MovingAverageMinMaxObserver", TORCH_TENSOR, STATISTIC_AVERAGE_TOWARDS, FORMULA_TORCH,
     "moving average of the range"},
    {"torch.PerChannelMinMaxObserver", TORCH_CHANNEL, STATISTIC_RUNNING, FORMULA_TORCH,
     "range of all tensors, a channel each"},
    {"torch.MovingAveragePerChannelMinMaxObserver", TORCH_CHANNEL, STATISTIC_AVERAGE_TOWARDS, FORMULA_TORCH,
     "moving average of the range, a channel each"},
    {"torch.HistogramObserver", FAMILY_TORCH, GRANULARITY_TORCH_QSCHEME, STATISTIC_HISTOGRAM, FORMULA_TORCH,
     "least squared error in a histogram of all tensors"},
    {"torch.FixedQParamsObserver", FAMILY_TORCH, NOTHING, FORMULA_FIXED, "the scale and zero point given"},
    {"torch.PlaceholderObserver", FAMILY_TORCH, NOTHING, FORMULA_NONE, "nothing but its settings"},
    {"quark.PlaceholderObserver", FAMILY_QUARK, NOTHING, FORMULA_NONE, "nothing but its settings"},
    {"quark.PerTensorMinMaxObserver", FAMILY_QUARK, GRANULARITY_TENSOR, STATISTIC_RUNNING, FORMULA_QUARK,
     "range of all tensors"},
    {"quark.PerChannelMinMaxObserver", FAMILY_QUARK, GRANULARITY_QUARK_CHANNEL, STATISTIC_RUNNING, FORMULA_QUARK,
     "range of all tensors, a channel each"},
    {"quark.PerGroupMinMaxObserver", FAMILY_QUARK, GRANULARITY_QUARK_GROUP, STATISTIC_MEMORYLESS, FORMULA_QUARK,
     "range of the last tensor, a group each"},
    {"quark.PerTensorHistogramObserver", FAMILY_QUARK, GRANULARITY_TENSOR, STATISTIC_HISTOGRAM_QUARK, FORMULA_QUARK,
     "histogram of all tensors, and no range"},
    {"quark.PerTensorHistogramObserverPro", FAMILY_QUARK, GRANULARITY_TENSOR, STATISTIC_HISTOGRAM, FORMULA_QUARK_TORCH,
     "torch's HistogramObserver with 256 bins"},
    {"quark.PerTensorPercentileObserver", FAMILY_QUARK, GRANULARITY_TENSOR, STATISTIC_PERCENTILE, FORMULA_QUARK,
     "range that holds nearly all elements but zeros of all tensors"},
    {"quark.PerTensorMSEObserver", FAMILY_QUARK, GRANULARITY_TENSOR, STATISTIC_SQUARED_ERROR, FORMULA_QUARK,
     "range with the least squared error of a histogram of all tensors"},
    {"quark.PerTensorPowOf2MinMaxObserver", FAMILY_QUARK, GRANULARITY_TENSOR, STATISTIC_BALLOT, FORMULA_QUARK_POWER_OF_2,
     "power of two most often given by the range of all tensors"},
    {"quark.PerChannelPowOf2MinMaxObserver", FAMILY_QUARK, GRANULARITY_QUARK_CHANNEL, STATISTIC_BALLOT,
     FORMULA_QUARK_POWER_OF_2, "powers of two most often given by the ranges of all tensors, a channel each"},
    {"quark.PerTensorPowOf2MinMSEObserver", FAMILY_QUARK, GRANULARITY_TENSOR, STATISTIC_BALLOT_LEAST, FORMULA_QUARK_POWER_OF_2,
     "power of two with the least squared error on most tensors"},
    {"quark.PerChannelPowOf2MinMSEObserver", FAMILY_QUARK, GRANULARITY_QUARK_CHANNEL, STATISTIC_BALLOT_LEAST,
     FORMULA_QUARK_POWER_OF_2, "powers of two with the least squared error on most tensors, a channel each"},
    {"quark.PerBlockMXObserver", FAMILY_QUARK, GRANULARITY_QUARK_BLOCK, STATISTIC_ABSMAX, FORMULA_QUARK_MX,
     "largest magnitude of all tensors, a block each"},
    {"quark.PerBlockMXDiffsObserver", FAMILY_QUARK, GRANULARITY_QUARK_BLOCK, STATISTIC_ABSMAX_STEPS, FORMULA_QUARK_MX,
     "power of two with the least squared error on the last tensor, a block each"},
    {"quark.PerBlockBFPObserver", FAMILY_QUARK, GRANULARITY_QUARK_BLOCK, STATISTIC_ABSMAX_BFP, FORMULA_QUARK_BFP,
     "largest magnitude of all tensors, a block each, for block floating point"},
    {"trt.MaxCalibrator", FAMILY_MODELOPT, GRANULARITY_MODELOPT_AXES, STATISTIC_ABSMAX, FORMULA_NONE,
     "largest magnitude of all tensors along the kept axes"},
    {"trt.HistogramCalibrator", FAMILY_MODELOPT, GRANULARITY_TENSOR, STATISTIC_HISTOGRAM_MODELOPT, FORMULA_NONE,
     "magnitude found in a histogram of all tensors by entropy, squared error or percentile"},
    {"trt.MseCalibrator", FAMILY_MODELOPT, GRANULARITY_MODELOPT_AXES, STATISTIC_MULTIPLES, FORMULA_NONE,
     "multiple of a magnitude with the least squared error on all tensors along the kept axes"},
    {"trt.NVFP4MSECalibrator", FAMILY_MODELOPT, GRANULARITY_MODELOPT_BLOCK, STATISTIC_LEAST_SCALE, FORMULA_NONE,
     "e4m3 scale with the least squared error on one tensor, a block each"},
};

enum { COUNT = sizeof presets / sizeof *presets };

const struct preset *qobs_preset_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

/* The presets that search. */
static const struct {
    const char *preset;
    struct search_defaults defaults;
} searches[] = {
    {"llmc.memoryless_mse", {.maxshrink = 0.20, .grid = 100, .norm = 2.4, .expand = 1, .patience = 5}},
    {"llmc.mse", {.maxshrink = 0.20, .grid = 100, .norm = 2.4, .expand = 1, .patience = 5}},
    {"llmc.nvfp4_expanded_mse",
     {.maxshrink = 1 - 0.8 / 1.8, .grid = 200, .norm = 2.4, .expand = 1.8, .patience = 1000, .since_2026 = true}},
    {"llmc.imatrix_mse",
     {.maxshrink = 0.95, .grid = 20, .norm = 3, .expand = 1, .patience = 5, .importance = true, .since_2026 = true}},
};

const struct search_defaults *qobs_preset_search(const struct preset *preset)
{
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++)
        if (strcmp(searches[i].preset, preset->name) == 0)
            return &searches[i].defaults;
    return NULL;
}

bool qobs_preset_has_histogram(const struct preset *preset)
{
    return preset->statistic == STATISTIC_HISTOGRAM;
}

bool qobs_preset_grows_bins(const struct preset *preset)
{
    return preset->statistic >= STATISTIC_HISTOGRAM_QUARK && preset->statistic <= STATISTIC_HISTOGRAM_MODELOPT;
}

bool qobs_preset_averages(const struct preset *preset)
{
    return preset->statistic == STATISTIC_AVERAGE_LERP || preset->statistic == STATISTIC_AVERAGE_TOWARDS;
}

size_t qobs_preset_count(void)
{
    return COUNT;
}

const char *qobs_preset_name(size_t index)
{
    return index < COUNT ? presets[index].name : NULL;
}

const char *qobs_preset_summary(size_t index)
{
    return index < COUNT ? presets[index].summary : NULL;
}
