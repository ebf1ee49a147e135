/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* ONNX Runtime: the limits of its types (ONNX_INT_TYPE_RANGE and others in quantization/quant_utils.py). */
#include "base/error.h"
#include "config/families.h"

enum { LEAST_BINS = 512 };

static int check(const qobs_config *config, qobs_error *error)
{
    if (qobs_range_finds(config->preset->range, FOUND_MOMENTS) && config->num_bins < LEAST_BINS)
        return qobs_invalid(error, "num_bins: is %lld, %s takes %d and more", (long long)config->num_bins,
                            config->preset->name, LEAST_BINS);
    return QOBS_OK;
}

static void set_defaults(struct qobs_config *config)
{
    const int reads = config->preset->range->reads;
    config->symmetric = reads & READS_PERCENTILE;
    config->percentile = 99.999;
    if (reads & READS_QUANTIZED_BINS)
        config->num_bins = 128;
}

static const struct {
    int min, max;         /* of the type */
    int symmetric;        /* its smallest number if the range is symmetric */
    int reduced, highest; /* with one bit less */
    qobs_dtype zero_point;
} types[ORT_TYPES] = {
    [ORT_QINT8] = {-128, 127, -127, -64, 64, QOBS_I8},
    [ORT_QUINT8] = {0, 255, 0, 0, 127, QOBS_U8},
    [ORT_QINT16] = {-32768, 32767, -32767, -16384, 16384, QOBS_I16},
    [ORT_QUINT16] = {0, 65535, 0, 0, 32767, QOBS_I32},
    [ORT_QINT4] = {-8, 7, -8, -4, 3, QOBS_I8},
    [ORT_QUINT4] = {0, 15, 0, 0, 7, QOBS_U8},
};

static const struct formula_ops *formula(const qobs_config *config, struct formula_params *p)
{
    const int type = config->activation_type;
    const bool reduced = config->reduce_range, symmetric = config->activation_symmetric;
    p->mapping = symmetric ? MAPPING_SYMMETRIC : MAPPING_AFFINE;
    p->quant_min = reduced ? types[type].reduced : symmetric ? types[type].symmetric : types[type].min;
    p->quant_max = reduced ? types[type].highest : types[type].max;
    p->ort.zero_point_dtype = types[type].zero_point;
    p->ort.has_min_real_range = config->has_min_real_range;
    p->ort.restricted =
        config->has_restricted_asymmetric && config->restricted_asymmetric && type == ORT_QUINT8 && !symmetric;
    p->ort.min_real_range = config->min_real_range;
    if (!qobs_range_finds(config->preset->range, FOUND_MOMENTS))
        return &qobs_formula_ort;
    p->ort.zero_point_dtype = QOBS_F8_E4M3;
    return &qobs_formula_ort_float8;
}

static void granularity(const qobs_config *config, struct granularity *g)
{
    g->params.scalar_scale = true;
    if (config->per_channel) {
        g->ops = &qobs_granularity_torch_channel;
        g->params.ch_axis = 1;
    }
}

static void reduction(const qobs_config *config, struct reduction *r)
{
    if (r->histogram.ops) {
        r->histogram.params.bins = (size_t)config->num_bins;
        r->histogram.params.magnitude = config->preset->range->reads & READS_PERCENTILE && config->symmetric;
    } else if (config->symmetric) {
        r->ops = &qobs_reduction_absmax;
    }
}

static void accumulator(const qobs_config *config, struct accumulator *a)
{
    if (config->moving_average) {
        a->ops = &qobs_accumulate_moving_average;
        a->merge = MERGE_MEANS;
    }
}

static void range(const qobs_config *config, struct range_rule *rule)
{
    qobs_resolve_bins(config, &rule->params.bins);
    rule->params.bins.levels = (size_t)config->num_quantized_bins;
    rule->params.bins.roots = config->scenario == ORT_P3;
}

static void traits(const qobs_config *config, struct observer_traits *t)
{
    (void)config;
    t->range_is_lowest = true;
}

const struct family_ops qobs_family_ort = {
    .set_defaults = set_defaults,
    .check = check,
    .granularity = granularity,
    .reduction = reduction,
    .accumulator = accumulator,
    .range = range,
    .formula = formula,
    .traits = traits,
};
