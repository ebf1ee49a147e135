/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A preset is a name for a fixed triple of granularity, statistic and formula, with the defaults of the upstream class. */
#ifndef QOBS_PRESET_H
#define QOBS_PRESET_H

#include "qobs/qobs.h"

/* Whose settings and names of results a preset has. */
enum family { FAMILY_LLMC = 1, FAMILY_TORCH = 2, FAMILY_QUARK = 4, FAMILY_MODELOPT = 8 };

/* Which elements share a scale. */
enum granularity_kind {
    GRANULARITY_NONE,          /* no ranges */
    GRANULARITY_LLMC,          /* by base name and strategy */
    GRANULARITY_TENSOR,        /* all */
    GRANULARITY_TORCH_CHANNEL, /* along ch_axis */
    GRANULARITY_TORCH_QSCHEME, /* all, or along ch_axis if qscheme is per channel */
    GRANULARITY_QUARK_CHANNEL, /* along ch_axis, which a 1-dimensional tensor has, too */
    GRANULARITY_QUARK_GROUP,   /* runs of group_size along ch_axis */
    GRANULARITY_QUARK_BLOCK,   /* the same, the last of them padded with zeros */
    GRANULARITY_MODELOPT_AXES,      /* along every axis kept */
    GRANULARITY_MODELOPT_BLOCK      /* runs of block_size along the last dimension */
};

enum statistic {
    STATISTIC_NONE,
    STATISTIC_MEMORYLESS,      /* the last batch */
    STATISTIC_RUNNING,         /* the extremes of all batches; Quark's is_dynamic: the last batch */
    STATISTIC_AVERAGE_LERP,    /* min * (1 - c) + lo * c, in the tensor's dtype */
    STATISTIC_AVERAGE_TOWARDS, /* min + c * (lo - min), in f32 */
    STATISTIC_ABSMAX,          /* the largest magnitude of all batches; Quark's is_dynamic: of the last */
    STATISTIC_ABSMAX_BFP,      /* the same, doubled where an element does not fit */
    STATISTIC_BALLOT,          /* the extremes of all batches, and the scale and zero point they gave most often */
    STATISTIC_BALLOT_LEAST,    /* the same, with the power of two around each of which its batch has the least error */
    STATISTIC_ABSMAX_STEPS,    /* absmax, and how far below its exponent the last batch has the least error */
    STATISTIC_MULTIPLES,       /* the errors of multiples of a magnitude, summed over all batches */
    STATISTIC_LEAST_SCALE,     /* the scale under that of the whole tensor with the least error, of one batch */
    STATISTIC_HISTOGRAM,       /* of all batches, over the union of their ranges */
    STATISTIC_HISTOGRAM_QUARK, /* of all batches, grown by whole bins; no range is looked for */
    STATISTIC_PERCENTILE,      /* the same without zeros, and the range that holds nearly all of it */
    STATISTIC_SQUARED_ERROR,   /* and the range whose quantized bins have the least squared error */
    STATISTIC_HISTOGRAM_MODELOPT    /* of magnitudes, grown by whole bins, and the one of them to quantize to */
};

/* Whose arithmetic makes scale and zero point of a range. */
enum preset_formula {
    FORMULA_NONE,  /* no scale and zero point */
    FORMULA_FIXED, /* those given */
    FORMULA_COMPRESSED_TENSORS,
    FORMULA_TORCH,
    FORMULA_QUARK,    /* by dtype */
    FORMULA_QUARK_MX, /* by scale_format */
    FORMULA_QUARK_BFP,
    FORMULA_QUARK_POWER_OF_2,
    FORMULA_QUARK_TORCH /* torch's observer, set up by Quark */
};

struct preset {
    const char *name;
    enum family family;
    enum granularity_kind granularity;
    enum statistic statistic;
    enum preset_formula formula;
    const char *summary;
};

/* Defaults of the search for the range with the least error. */
struct search_defaults {
    double maxshrink, grid, norm, expand;
    int64_t patience;
    bool importance; /* columns can be weighted by activations */
    bool since_2026; /* the older versions had no such observer */
};

/* Those of a preset that looks for that range; NULL: it takes the batch's as it is. */
const struct search_defaults *qobs_preset_search(const struct preset *preset);

/* The preset called `name`, or NULL. */
const struct preset *qobs_preset_find(const char *name);

/* Does it keep histograms? */
bool qobs_preset_has_histogram(const struct preset *preset);

/* Or one that grows by whole bins? */
bool qobs_preset_grows_bins(const struct preset *preset);

/* Does it keep a moving average? */
bool qobs_preset_averages(const struct preset *preset);

#endif
