/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "preset.h"

#include <string.h>

/* Upstream: llmcompressor/observers/min_max.py and torch/ao/quantization/observer.py. */
static const struct preset presets[] = {
    {"llmc.memoryless_minmax", FAMILY_LLMC, STATISTIC_MEMORYLESS, "range of the last tensor"},
    {"llmc.static_minmax", FAMILY_LLMC, STATISTIC_RUNNING, "range of all tensors"},
    {"llmc.minmax", FAMILY_LLMC, STATISTIC_AVERAGE_LERP, "moving average of the range"},
    {"torch.MinMaxObserver", FAMILY_TORCH, STATISTIC_RUNNING, "range of all tensors"},
    {"torch.MovingAverageMinMaxObserver", FAMILY_TORCH, STATISTIC_AVERAGE_TOWARDS, "moving average of the range"},
};

enum { COUNT = sizeof presets / sizeof *presets };

const struct preset *qobs_preset_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
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
