/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ONNX Runtime: settings, checks, and the limits of its types (ONNX_INT_TYPE_RANGE and others in
 * quantization/quant_utils.py). */
#include "config/families.h"

/* QuantType, with the numbers of each type. */
enum ort_type { ORT_QINT8, ORT_QUINT8, ORT_QINT16, ORT_QUINT16, ORT_QINT4, ORT_QUINT4 };
static const struct word type_words[] = {{"QInt8", ORT_QINT8},
                                         {"QUInt8", ORT_QUINT8},
                                         {"QInt16", ORT_QINT16},
                                         {"QUInt16", ORT_QUINT16},
                                         {"QInt4", ORT_QINT4},
                                         {"QUInt4", ORT_QUINT4},
                                         {0}};
static const struct {
    int min, max;         /* of the type */
    int symmetric;        /* its smallest number if the range is symmetric */
    int reduced, highest; /* with one bit less */
    qobs_dtype zero_point;
} types[] = {
    [ORT_QINT8] = {-128, 127, -127, -64, 64, QOBS_I8},
    [ORT_QUINT8] = {0, 255, 0, 0, 127, QOBS_U8},
    [ORT_QINT16] = {-32768, 32767, -32767, -16384, 16384, QOBS_I16},
    [ORT_QUINT16] = {0, 65535, 0, 0, 32767, QOBS_I32},
    [ORT_QINT4] = {-8, 7, -8, -4, 3, QOBS_I8},
    [ORT_QUINT4] = {0, 15, 0, 0, 7, QOBS_U8},
};

/* Moments of values, or of their cube roots. */
enum ort_scenario { ORT_SAME, ORT_P3 };
static const struct word scenarios[] = {{"same", ORT_SAME}, {"p3", ORT_P3}, {0}};

static bool has_ranges(const struct preset *preset) { return !qobs_preset_has_histogram(preset); }

static bool has_quantized_bins(const struct preset *preset) { return preset->range->reads & READS_QUANTIZED_BINS; }

static bool has_moments(const struct preset *preset) { return qobs_range_finds(preset->range, FOUND_MOMENTS); }

static bool has_integers(const struct preset *preset) { return !has_moments(preset); }

static bool has_symmetric_data(const struct preset *preset)
{
    return !has_quantized_bins(preset) && !has_moments(preset);
}

static const struct setting settings[] = {
    BASE_NAME,
    NONFINITE(EVERY, qobs_nonfinite_modes),
    PERCENTILE,
    SWITCH("symmetric", has_symmetric_data, symmetric, "the calibrated range is symmetric"),
    NUM_BINS,
    NUMBER("num_quantized_bins", has_quantized_bins, KIND_LONG, ort.num_quantized_bins, 1, 0x1p20,
           "number of bins that a candidate is quantized to"),
    WORD("scenario", has_moments, ort.scenario, scenarios, "moments of values, or of their cube roots"),
    SWITCH("moving_average", has_ranges, ort.moving_average, "moving average of the ranges of the batches"),
    AVERAGING_CONSTANT(has_ranges),
    SWITCH("per_channel", has_ranges, ort.per_channel, "one range for each index of dimension 1"),
    WORD("activation_type", has_integers, ort.activation_type, type_words, "type of the quantized numbers"),
    SWITCH("activation_symmetric", has_integers, ort.activation_symmetric, "symmetric range of the quantized numbers"),
    REDUCE_RANGE(has_integers),
    OPTIONAL("min_real_range", has_integers, KIND_REAL, ort.min_real_range, ort.has_min_real_range, 0, 1e38,
             "smallest width of a range"),
    {"activation_restricted_asymmetric", has_integers, KIND_BOOL, FIELD(ort.restricted_asymmetric),
     FIELD(ort.has_restricted_asymmetric), qobs_switch_words, 0, 0,
     "zero points of `QUInt8` are the smallest number or the middle; `null`: false", true, false},
};

enum { LEAST_BINS = 512 };

static int check(const qobs_config *config, qobs_error *error)
{
    if (has_moments(config->preset) && config->histogram.num_bins < LEAST_BINS)
        return qobs_invalid(error, "num_bins: is %lld, %s takes %d and more", (long long)config->histogram.num_bins,
                            config->preset->name, LEAST_BINS);
    return QOBS_OK;
}

static void set_defaults(struct qobs_config *config)
{
    const int reads = config->preset->range->reads;
    config->symmetric = reads & READS_PERCENTILE;
    config->histogram.percentile = 99.999;
    config->ort.num_quantized_bins = 128;
    if (reads & READS_QUANTIZED_BINS)
        config->histogram.num_bins = 128;
}

static const struct formula_ops *formula(const qobs_config *config, struct formula_params *p)
{
    const int type = config->ort.activation_type;
    const bool reduced = config->reduce_range, symmetric = config->ort.activation_symmetric;
    p->mapping = symmetric ? MAPPING_SYMMETRIC : MAPPING_AFFINE;
    p->quant_min = reduced ? types[type].reduced : symmetric ? types[type].symmetric : types[type].min;
    p->quant_max = reduced ? types[type].highest : types[type].max;
    p->ort.zero_point_dtype = types[type].zero_point;
    p->ort.has_min_real_range = config->ort.has_min_real_range;
    p->ort.restricted =
        config->ort.has_restricted_asymmetric && config->ort.restricted_asymmetric && type == ORT_QUINT8 && !symmetric;
    p->ort.min_real_range = config->ort.min_real_range;
    if (!has_moments(config->preset))
        return &qobs_formula_ort;
    p->ort.zero_point_dtype = QOBS_F8_E4M3;
    return &qobs_formula_ort_float8;
}

static void granularity(const qobs_config *config, struct granularity *g)
{
    g->params.scalar_scale = true;
    if (config->ort.per_channel) {
        g->ops = &qobs_granularity_torch_channel;
        g->params.ch_axis = 1;
    }
}

static void reduction(const qobs_config *config, struct reduction *r)
{
    if (r->histogram.ops) {
        r->histogram.params.bins = (size_t)config->histogram.num_bins;
        r->histogram.params.magnitude = config->preset->range->reads & READS_PERCENTILE && config->symmetric;
    } else if (config->symmetric) {
        r->ops = &qobs_reduction_absmax;
    }
}

static void accumulator(const qobs_config *config, struct accumulator *a)
{
    if (config->ort.moving_average) {
        a->ops = &qobs_accumulate_moving_average;
        a->merge = MERGE_MEANS;
    }
}

static void bins(const qobs_config *config, struct bins_params *b)
{
    b->levels = (size_t)config->ort.num_quantized_bins;
    b->roots = config->ort.scenario == ORT_P3;
}

const struct family_ops qobs_family_ort = {
    SETTINGS_OF(settings),   .set_defaults = set_defaults, .check = check, .granularity = granularity,
    .reduction = reduction,  .accumulator = accumulator,   .bins = bins,   .formula = formula,
    .range_is_lowest = true,
};
