/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "config/families.h"

#include <string.h>

#include "qobs/qobs.h"

/* A new stage needs no header: its row declares it. */
#define PRESET(name, family, granularity, reduction, accumulator, range, formula, search, summary)                     \
    extern const struct reduction_ops qobs_reduction_##reduction;                                                      \
    extern const struct accumulator_ops qobs_accumulate_##accumulator;                                                 \
    extern const struct range_ops qobs_range_##range;
#include "config/preset_rows.h"
#undef PRESET

static const struct search_defaults mse = {.maxshrink = 0.20, .grid = 100, .norm = 2.4, .expand = 1, .patience = 5};
static const struct search_defaults nvfp4_expanded_mse = {
    .maxshrink = 1 - 0.8 / 1.8, .grid = 200, .norm = 2.4, .expand = 1.8, .patience = 1000, .since_2026 = true};
static const struct search_defaults imatrix_mse = {
    .maxshrink = 0.95, .grid = 20, .norm = 3, .expand = 1, .patience = 5, .importance = true, .since_2026 = true};
static const struct search_defaults nvfp4_expanded_imatrix = {.maxshrink = 1 - 0.8 / 1.8,
                                                              .grid = 200,
                                                              .norm = 2.4,
                                                              .expand = 1.8,
                                                              .patience = 1000,
                                                              .importance = true,
                                                              .since_2026 = true};

#define OPS_LLMC &qobs_family_llmc
#define OPS_QOBS &qobs_family_qobs
#define OPS_TORCH &qobs_family_torch
#define OPS_QUARK &qobs_family_quark
#define OPS_MODELOPT &qobs_family_modelopt
#define OPS_ORT &qobs_family_ort
#define OPS_TORCHAO &qobs_family_torchao

#define PRESET(name, family, granularity, reduction, accumulator, range, formula, search, summary)                     \
    {name,                                                                                                             \
     FAMILY_##family,                                                                                                  \
     OPS_##family,                                                                                                     \
     GRANULARITY_##granularity,                                                                                        \
     &qobs_reduction_##reduction,                                                                                      \
     &qobs_accumulate_##accumulator,                                                                                   \
     &qobs_range_##range,                                                                                              \
     FORMULA_##formula,                                                                                                \
     search,                                                                                                           \
     summary},
static const struct preset presets[] = {
#include "config/preset_rows.h"
};
#undef PRESET

enum { COUNT = sizeof presets / sizeof *presets };

/* True if `name` is the preset's own name after `prefix`, which stands for that of its family. */
static bool is_after(const char *prefix, const char *name, const struct preset *preset)
{
    const size_t length = prefix ? strlen(prefix) : 0;
    return length > 0 && strncmp(name, prefix, length) == 0 &&
           strcmp(strchr(preset->name, '.') + 1, name + length) == 0;
}

static bool is_name_of(const struct preset *preset, const char *name, int *version)
{
    *version = VERSION_CURRENT;
    if (strcmp(preset->name, name) == 0 || is_after(preset->ops->old_prefix, name, preset))
        return true;
    for (int v = 0; v < VERSIONS && preset->ops == &qobs_family_llmc; v++)
        if (is_after(qobs_llmc_releases[v].prefix, name, preset)) {
            *version = v;
            return true;
        }
    return false;
}

const struct preset *qobs_preset_find(const char *name, int *version)
{
    for (size_t i = 0; i < COUNT; i++)
        if (is_name_of(&presets[i], name, version))
            return &presets[i];
    return NULL;
}

size_t qobs_preset_count(void) { return COUNT; }

const char *qobs_preset_name(size_t index) { return index < COUNT ? presets[index].name : NULL; }

const char *qobs_preset_summary(size_t index) { return index < COUNT ? presets[index].summary : NULL; }
