/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A preset: a name, five stages and default settings. The rows are in preset_rows.h. */
#pragma once

#include "measure/accumulators.h"
#include "histogram/reduction.h"
#include "histogram/range_rule.h"

/* Whose settings a preset has. */
enum family {
    FAMILY_LLMC = 1,
    FAMILY_TORCH = 2,
    FAMILY_QUARK = 4,
    FAMILY_MODELOPT = 8,
    FAMILY_QOBS = 16, /* our own */
    FAMILY_ORT = 32,
    FAMILY_TORCHAO = 64
};

/* With the quantization schemes of compressed-tensors. */
enum { FAMILIES_OF_SCHEMES = FAMILY_LLMC | FAMILY_QOBS };

/* The granularity; settings choose among its rules (resolve.c, family_*.c). */
enum granularity_kind {
    GRANULARITY_NONE,             /* no ranges */
    GRANULARITY_LLMC,             /* by base name and strategy */
    GRANULARITY_TENSOR,           /* all elements */
    GRANULARITY_TORCH_CHANNEL,    /* along ch_axis */
    GRANULARITY_TORCH_QSCHEME,    /* all elements, or along ch_axis if qscheme is per channel */
    GRANULARITY_QUARK_CHANNEL,    /* along ch_axis, which a 1-dimensional tensor has, too */
    GRANULARITY_QUARK_GROUP,      /* runs of group_size along ch_axis */
    GRANULARITY_QUARK_BLOCK,      /* the same, the last run padded with zeros */
    GRANULARITY_MODELOPT_AXES,    /* along every axis that is not reduced */
    GRANULARITY_MODELOPT_REDUCED, /* along every axis that is not named */
    GRANULARITY_QUARK_LSQ,        /* along ch_axis, unless it is 0 or not set */
    GRANULARITY_ORT,              /* all elements, or along axis 1 with per_channel */
    GRANULARITY_TORCHAO,          /* by granularity */
    GRANULARITY_MODELOPT_BLOCK    /* runs of block_size along the last dimension */
};

/* The formula; settings choose among its forms (family_*.c). */
enum formula_kind {
    FORMULA_NONE,  /* no scale and zero point */
    FORMULA_FIXED, /* those that are set */
    FORMULA_COMPRESSED_TENSORS,
    FORMULA_TORCH,
    FORMULA_QUARK,    /* by dtype */
    FORMULA_QUARK_MX, /* by scale_format */
    FORMULA_QUARK_BFP,
    FORMULA_QUARK_POWER_OF_2,
    FORMULA_QUARK_LSQ,
    FORMULA_QUARK_TQT,
    FORMULA_ORT,           /* by activation_type */
    FORMULA_TORCHAO,       /* by mapping_type */
    FORMULA_TORCHAO_FIXED, /* those that are set, in torchao's dtypes */
    FORMULA_QUARK_TORCH    /* torch's observer with Quark's limits */
};

/* Defaults of the grid search. */
struct search_defaults {
    double maxshrink, grid, norm, expand;
    int64_t patience;
    bool importance; /* columns can be weighted by activations */
    bool since_2026; /* older versions of upstream have no such observer */
};

struct family_ops;
struct preset {
    const char *name;
    enum family family;
    const struct family_ops *ops; /* families.h */
    enum granularity_kind granularity;
    const struct reduction_ops *reduction;
    const struct accumulator_ops *accumulator;
    const struct range_ops *range;
    enum formula_kind formula;
    const struct search_defaults *search; /* NULL: the preset does not search a grid */
    const char *summary;
};

/* Fails with the option that brings it if this build leaves out a preset of that name. */
int qobs_preset_left_out(const char *name, qobs_error *error);

/* True if the settings are those of a quantization scheme. */
static inline bool qobs_preset_has_scheme(const struct preset *preset)
{
    return (preset->family & FAMILIES_OF_SCHEMES) != 0;
}

/* True if batches are measured; other presets only count them. */
static inline bool qobs_preset_measures(const struct preset *preset) { return preset->reduction->measure; }

/* The grid search weighs columns by activations. */
static inline bool qobs_preset_has_importance(const struct preset *preset)
{
    return preset->search && preset->search->importance;
}

/* What stages the settings go with. */
static inline bool qobs_preset_averages(const struct preset *preset) { return preset->accumulator->averages; }

static inline bool qobs_preset_has_histogram(const struct preset *preset) { return preset->reduction->histogram; }

static inline bool qobs_preset_has_torch_histogram(const struct preset *preset)
{
    return preset->range->reads & READS_BINS;
}

static inline bool qobs_preset_has_no_torch_histogram(const struct preset *preset)
{
    return !qobs_preset_has_torch_histogram(preset);
}

static inline bool qobs_preset_has_percentile(const struct preset *preset)
{
    return preset->range->reads & READS_PERCENTILE;
}

static inline bool qobs_preset_has_start_bin(const struct preset *preset)
{
    return preset->range->reads & READS_START_BIN;
}

/* Quark's and Model-Optimizer's histograms, which grow by whole bins. */
static inline bool qobs_preset_grows_bins(const struct preset *preset)
{
    return preset->reduction->histogram && !(preset->range->reads & (READS_BINS | READS_HEADROOM));
}

static inline bool qobs_preset_is_fixed(const struct preset *preset)
{
    return preset->formula == FORMULA_FIXED || preset->formula == FORMULA_TORCHAO_FIXED;
}
