/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AMD Quark: settings, checks of the dtypes that each observer accepts and of what it needs, and parameters. */

#include "config/families.h"
#include "number/exponent.h"

enum quark_qscheme { QUARK_QSCHEME_NONE, QUARK_PER_TENSOR, QUARK_PER_CHANNEL, QUARK_PER_GROUP };
static const struct word qschemes[] = {
    {"per_tensor", QUARK_PER_TENSOR}, {"per_channel", QUARK_PER_CHANNEL}, {"per_group", QUARK_PER_GROUP}, {0}};
enum zero_point_type { ZERO_POINT_INT32, ZERO_POINT_FLOAT32 };
static const struct word zero_point_types[] = {{"int32", ZERO_POINT_INT32}, {"float32", ZERO_POINT_FLOAT32}, {0}};

/* The dtype that observers round a scale to, without a rounding for those that are none of ours. */
enum { SCALE_NOT_ROUNDED = 0, POF2 = -1, E5M3 = -2, E8M0 = -3 };
static const struct word scale_types[] = {{"float", SCALE_NOT_ROUNDED},
                                          {"float32", QOBS_F32},
                                          {"float16", QOBS_F16},
                                          {"bfloat16", QOBS_BF16},
                                          {"pof2", POF2},
                                          {"float8_e5m3", E5M3},
                                          {"float8_e8m0fnu", E8M0},
                                          {0}};
static const struct word scale_formats[] = {{"float32", SCALE_FORMAT_FLOAT32},
                                            {"e4m3", SCALE_FORMAT_E4M3},
                                            {"e5m3", SCALE_FORMAT_E5M3},
                                            {"e8m0", SCALE_FORMAT_E8M0},
                                            {0}};
static const struct word scale_modes[] = {
    {"even", SCALE_MODE_EVEN}, {"floor", SCALE_MODE_FLOOR}, {"ceil", SCALE_MODE_CEIL}, {0}};
/* The first threshold of TQTObserver. */
enum threshold_method { THRESHOLD_3SD, THRESHOLD_KL_J };
static const struct word threshold_methods[] = {{"_3SD", THRESHOLD_3SD}, {"_KL_J", THRESHOLD_KL_J}, {0}};

static bool has_threshold(const struct preset *preset) { return preset->formula == FORMULA_QUARK_TQT; }

static bool has_scope(const struct preset *preset) { return preset->range->reads & READS_SCOPE; }

static bool is_tensor(const struct preset *preset) { return preset->granularity == &qobs_granularity_tensor; }

static bool has_groups(const struct preset *preset) { return preset->granularity == &qobs_granularity_quark_group; }

/* Groups whose last one is padded. */
static bool has_blocks(const struct preset *preset)
{
    return preset->formula == FORMULA_QUARK_MX || preset->formula == FORMULA_QUARK_BFP;
}

static bool is_lsq(const struct preset *preset) { return preset->formula == FORMULA_QUARK_LSQ; }

static bool is_tensor_minmax(const struct preset *preset)
{
    return is_tensor(preset) && preset->formula == FORMULA_QUARK && !preset->reduction->histogram;
}

static const struct setting settings[] = {
    BASE_NAME,
    NONFINITE(qobs_preset_has_no_torch_histogram, qobs_nonfinite_modes),
    NONFINITE(qobs_preset_has_torch_histogram, qobs_histogram_nonfinite_modes),
    TORCH_HISTOGRAM,
    FLOAT32_COUNTS(qobs_preset_grows_bins),
    SWITCH("shifted_counts", qobs_preset_grows_bins, histogram.shifted_counts, "old counts move with their bins"),
    PERCENTILE,
    CANDIDATES,
    REDUCE_RANGE(qobs_preset_has_torch_histogram),
    SWITCH("symmetric", EVERY, symmetric, "symmetric range, zero point 0"),
    OPTIONAL("group_size", EVERY, KIND_LONG, group_size, has_group_size, -1, 0x1p53,
             "elements of a group or block along `ch_axis`; -1: all"),
    SWITCH("is_dynamic", EVERY, is_dynamic, "use only the last batch"),
    WORD("dtype", EVERY, quark.dtype, qobs_quark_dtypes, "dtype of the quantized numbers"),
    WORD("qscheme", EVERY, quark.qscheme, qschemes, "granularity, and symmetric or affine"),
    OPTIONAL("ch_axis", EVERY, KIND_INTEGER, ch_axis, has_ch_axis, LEAST_AXIS, MOST_AXIS,
             "axis of the channels; negative: from the end"),
    WORD("zero_point_type", EVERY, quark.zero_point_type, zero_point_types, "dtype of the zero point"),
    WORD("scale_type", EVERY, quark.scale_type, scale_types, "dtype to which scales are rounded; `float`: not rounded"),
    WORD("scale_format", EVERY, quark.scale_format, scale_formats, "number format of the scales"),
    WORD("scale_calculation_mode", EVERY, quark.scale_calculation_mode, scale_modes, "rounding of power-of-two scales"),
    WORD("mx_element_dtype", EVERY, quark.mx_element_dtype, qobs_quark_dtypes, "dtype of the elements of `mx` formats"),
    ADDED("quant_max_first_level", is_tensor_minmax, KIND_REAL, quark.quant_max_first_level, quark.has_first_level,
          0x1p-20, 0x1p20, "largest number of the fp4 quantizer whose scales these fp8 numbers are"),
    WORD("threshold_init_meth", has_threshold, quark.threshold_init_meth, threshold_methods,
         "first threshold: three standard deviations, or lowest divergence"),
    NUMBER("scope", has_scope, KIND_INTEGER, quark.scope, 0, 127, "exponents tried below that of the magnitude"),
};

/* The elements of an e8m0 scale: mx_element_dtype if it is set, else dtype. */
static struct quark_number element_of(const qobs_config *config)
{
    return qobs_quark_number(config->quark.mx_element_dtype ? config->quark.mx_element_dtype : config->quark.dtype);
}

/* The dtype that scale_type names; 0: none. */
static qobs_dtype scale_dtype_of(const qobs_config *config)
{
    return (qobs_dtype)(config->quark.scale_type > 0 ? config->quark.scale_type : 0);
}

/* LSQObserver has a scale for every channel. Upstream tests the truth of ch_axis, so that 0 is as none. */
static bool has_lsq_channels(const qobs_config *config) { return config->has_ch_axis && config->ch_axis != 0; }

/* The consequences of a preset's formula: observers that accept the same dtypes, and the parameters. */
typedef void parameter_setter(const qobs_config *config, struct formula_params *params);
static parameter_setter set_quark, set_float, set_torch, set_mx, set_bfp, set_power_of_2, set_lsq;
static const struct {
    enum quark_group group;
    const struct formula_ops *formula;
    parameter_setter *set;
} kinds[] = {
    [FORMULA_NONE] = {PLACEHOLDER, &qobs_formula_none, set_quark},
    [FORMULA_QUARK] = {UNIFORM, &qobs_formula_quark_float, set_float}, /* of integers: qobs_formula_quark_integer */
    [FORMULA_QUARK_TORCH] = {HISTOGRAM, &qobs_formula_torch, set_torch},
    [FORMULA_QUARK_MX] = {MX, &qobs_formula_quark_float, set_mx},
    [FORMULA_QUARK_BFP] = {BFP, &qobs_formula_quark_bfp, set_bfp},
    [FORMULA_QUARK_POWER_OF_2] = {POWER_OF_2, &qobs_formula_quark_power_of_2, set_power_of_2},
    [FORMULA_QUARK_LSQ] = {LEARNED, &qobs_formula_quark_lsq, set_lsq},
    [FORMULA_QUARK_TQT] = {THRESHOLD, &qobs_formula_quark_tqt, set_quark},
};

static enum quark_group group_of(const struct preset *preset)
{
    const enum quark_group group = kinds[preset->formula].group;
    if (group != UNIFORM)
        return group;
    return preset->range->reads & READS_START_BIN ? SQUARED_ERROR : has_groups(preset) ? UNIFORM_GROUP : UNIFORM;
}

static int check_dtype(const qobs_config *config, qobs_error *error)
{
    const int wanted = (int)group_of(config->preset);
    if (wanted == PLACEHOLDER || qobs_quark_number(config->quark.dtype).groups & wanted)
        return QOBS_OK;
    char known[200] = "";
    for (const struct word *w = qobs_quark_dtypes; w->text; w++)
        if (qobs_quark_number(w->value).groups & wanted)
            qobs_list_word(known, sizeof known, w->text);
    return qobs_invalid(error, "dtype: is %s, %s takes %s", qobs_word_text(qobs_quark_dtypes, config->quark.dtype),
                        config->preset->name, known);
}

static int check_granularity(const qobs_config *config, qobs_error *error)
{
    const struct preset *preset = config->preset;
    const bool groups = has_groups(preset), blocks = has_blocks(preset), axis = groups || !is_tensor(preset);
    const int expected = groups ? QUARK_PER_GROUP : axis ? QUARK_PER_CHANNEL : QUARK_PER_TENSOR;
    if (!qobs_preset_measures(preset) || is_lsq(preset)) /* whose ch_axis decides */
        return QOBS_OK;
    if (config->quark.qscheme != QUARK_QSCHEME_NONE && config->quark.qscheme != expected)
        return qobs_invalid(error, "qscheme: is %s, %s takes %s", qobs_word_text(qschemes, config->quark.qscheme),
                            preset->name, qobs_word_text(qschemes, expected));
    if (axis && !config->has_ch_axis)
        return qobs_invalid(error, "ch_axis: is not set, %s needs it", preset->name);
    if (groups && !config->has_group_size)
        return qobs_invalid(error, "group_size: is not set, %s needs it", preset->name);
    if (groups && (config->group_size == 0 || (config->group_size < 0 && blocks)))
        return qobs_invalid(error, "group_size: is %lld, %s takes %sabove 0", (long long)config->group_size,
                            preset->name, blocks ? "" : "-1 (one group) and ");
    return QOBS_OK;
}

/* The scales of fp4 and of blocks need a format. */
static int check_format(const qobs_config *config, qobs_error *error)
{
    const enum formula_kind formula = config->preset->formula;
    const bool formatted = (formula == FORMULA_QUARK_MX && !(has_scope(config->preset))) ||
                           (formula == FORMULA_QUARK && config->quark.dtype == QUARK_FP4);
    if (formatted && config->quark.scale_format == SCALE_FORMAT_NONE)
        return qobs_invalid(error, "scale_format: is not set, %s with dtype %s takes float32, e4m3, e5m3, e8m0",
                            config->preset->name, qobs_word_text(qobs_quark_dtypes, config->quark.dtype));
    if (config->quark.mx_element_dtype && qobs_quark_number(config->quark.mx_element_dtype).mantissa_bits == 0)
        return qobs_invalid(error, "mx_element_dtype: %s is no element of an e8m0 scale",
                            qobs_word_text(qobs_quark_dtypes, config->quark.mx_element_dtype));
    return QOBS_OK;
}

static int check(const qobs_config *config, qobs_error *error)
{
    RETURN_IF_FAILED(check_dtype(config, error));
    RETURN_IF_FAILED(check_granularity(config, error));
    return check_format(config, error);
}

static void set_defaults(struct qobs_config *config)
{
    const enum formula_kind formula = config->preset->formula;
    config->histogram.bins = 256;
    config->histogram.percentile = 99.99999999;
    config->histogram.start_bin = 2045;
    config->quark.scope = 1;
    config->quark.dtype = formula == FORMULA_QUARK_MX    ? QUARK_FP4
                          : formula == FORMULA_QUARK_BFP ? QUARK_BFP16
                                                         : QUARK_INT8;
    if (formula == FORMULA_QUARK_BFP)
        config->nonfinite = NONFINITE_IGNORE;
}

/* ---- Formulas ---------------------------------------------------------------------------------------------------- */

/* HistogramObserverPro is torch's observer of a dtype like its own, with Quark's limits. */
static void set_torch(const qobs_config *config, struct formula_params *p)
{
    const int dtype = config->quark.dtype == QUARK_UINT4  ? TORCH_QUINT4X2
                      : config->quark.dtype == QUARK_INT8 ? TORCH_QINT8
                                                          : TORCH_QUINT8;
    const struct quark_number limits = qobs_quark_number(config->quark.dtype);
    const struct torch_number number = qobs_torch_limits(qobs_torch_number(dtype, false), (int64_t)limits.quant_min,
                                                         (int64_t)limits.quant_max, config->reduce_range);
    qobs_set_torch(&number, config->symmetric ? MAPPING_SYMMETRIC : MAPPING_AFFINE, config->eps, p);
}

static void set_quark(const qobs_config *config, struct formula_params *p)
{
    const struct quark_number number = qobs_quark_number(config->quark.dtype), element = element_of(config);
    p->quant_min = number.quant_min;
    p->quant_max = number.quant_max;
    p->mapping = config->symmetric                                     ? MAPPING_SYMMETRIC
                 : config->quark.zero_point_type == ZERO_POINT_FLOAT32 ? MAPPING_FLOAT
                                                                       : MAPPING_AFFINE;
    p->quark.scale_dtype = scale_dtype_of(config);
    p->quark.mantissa_bits = element.mantissa_bits;
    p->quark.emax = element.emax;
    p->quark.block_scales = config->quark.dtype == QUARK_FP4;
}

static enum scale_mode mode_of(const qobs_config *config)
{
    return config->quark.scale_calculation_mode == SCALE_MODE_NONE
               ? SCALE_MODE_EVEN
               : (enum scale_mode)config->quark.scale_calculation_mode;
}

/* Only ranges of fp4 go by scale_format. */
static void set_float(const qobs_config *config, struct formula_params *p)
{
    const bool fp4 = config->quark.dtype == QUARK_FP4;
    set_quark(config, p);
    /* The scale quantizer of a two-level scheme observes the magnitudes of blocks. */
    if (!fp4 && config->quark.has_first_level)
        p->quant_max *= config->quark.quant_max_first_level;
    p->quark.format = fp4 ? (enum scale_format)config->quark.scale_format : SCALE_FORMAT_FLOAT32;
    p->quark.mode = mode_of(config);
    p->quark.zero_is_eps = fp4;
}

/* PerBlockMXDiffsObserver has e8m0 scales whatever the settings say. */
static void set_mx(const qobs_config *config, struct formula_params *p)
{
    set_quark(config, p);
    if (has_scope(config->preset)) {
        p->quark.format = SCALE_FORMAT_E8M0;
        p->quark.mode = SCALE_MODE_CEIL;
        p->quark.scale_dtype = (qobs_dtype)0;
    } else {
        p->quark.format = (enum scale_format)config->quark.scale_format;
        p->quark.mode = mode_of(config);
    }
}

static void set_lsq(const qobs_config *config, struct formula_params *p)
{
    set_quark(config, p);
    const double numbers = p->quant_max - p->quant_min;
    p->quant_max = config->symmetric ? (numbers - 1) / 2 : numbers;
}

static void set_bfp(const qobs_config *config, struct formula_params *p)
{
    set_quark(config, p);
    p->quark.format = SCALE_FORMAT_E8M0;
    p->quark.mode = SCALE_MODE_FLOOR;
    p->quark.emax = BFP_EMAX;
    p->quark.integer_zero_point = true;
}

static void set_power_of_2(const qobs_config *config, struct formula_params *p)
{
    set_quark(config, p);
    p->quark.zero_point_128 = config->symmetric && config->quark.dtype == QUARK_UINT8;
    p->quark.tensor = is_tensor(config->preset);
}

static struct shape shape_without_data(const qobs_config *config)
{
    const bool groups = has_groups(config->preset) && !has_blocks(config->preset);
    /* upstream computes the scale of a 0-dimensional range, or the most frequent of one value */
    const bool scalar = qobs_quark_number(config->quark.dtype).is_float ||
                        (config->preset->formula == FORMULA_QUARK_POWER_OF_2 && is_tensor(config->preset));
    return (struct shape){.ndim = groups ? 2 : scalar ? 0 : 1, .extent = {1, 1}};
}

static const struct formula_ops *formula(const qobs_config *config, struct formula_params *p)
{
    const enum formula_kind kind = config->preset->formula;
    const bool integers = kind == FORMULA_QUARK && !qobs_quark_number(config->quark.dtype).is_float;
    p->shape_without_data = shape_without_data(config);
    (integers ? set_quark : kinds[kind].set)(config, p);
    return integers ? &qobs_formula_quark_integer : kinds[kind].formula;
}

/* ---- Other stages ------------------------------------------------------------------------------------------------ */

static void granularity(const qobs_config *config, struct granularity *g)
{
    g->params.scalar_scale = true;
    g->params.ragged = has_blocks(config->preset);
    if (is_lsq(config->preset) && has_lsq_channels(config))
        g->ops = &qobs_granularity_torch_channel;
}

/* Bins of the first batch of Quark's histograms. */
enum { QUARK_BINS = 2048, QUARK_PERCENTILE_BINS = 4200 };

static void reduction(const qobs_config *config, struct reduction *r)
{
    const enum formula_kind formula = config->preset->formula;
    if (r->histogram.ops && formula != FORMULA_QUARK_TORCH) {
        const bool percentile = config->preset->range->reads & READS_PERCENTILE;
        r->histogram.params.bins = percentile ? QUARK_PERCENTILE_BINS : QUARK_BINS;
        r->histogram.params.magnitude = config->symmetric;
        r->histogram.params.skip_zeros = percentile;
    }
    if (formula == FORMULA_QUARK_TQT) {
        r->in_f32 = true;
        if (config->quark.threshold_init_meth == THRESHOLD_KL_J)
            r->numbers = (size_t)qobs_quark_number(config->quark.dtype).quant_max + 1;
    }
    /* Block floating point counts what is not finite as 0, as upstream does; for a magnitude that is to leave it out.
     */
    if (formula == FORMULA_QUARK_BFP && config->nonfinite == NONFINITE_PROPAGATE)
        r->nonfinite = NONFINITE_IGNORE;
}

/* Observers restart at another shape, but for block floating point over several batches. */
static void accumulator(const qobs_config *config, struct accumulator *a)
{
    a->params.scale_dtype = scale_dtype_of(config);
    a->starts_in_f32 = !a->ops->symmetric;
    a->restarts = config->preset->formula != FORMULA_QUARK_BFP || config->is_dynamic;
    if (config->is_dynamic) { /* the last batch only */
        a->merge = MERGE_LAST;
        a->replaces = true;
    }
}

static void range(const qobs_config *config, struct range_rule *rule)
{
    const struct quark_number number = qobs_quark_number(config->quark.dtype);
    rule->params.exponent = (struct exponent_params){
        .quant_min = number.quant_min,
        .quant_max = number.quant_max,
        .float_zero_points = is_tensor(config->preset),
        .scope = config->quark.scope,
        .format = qobs_format_find(qobs_word_text(qobs_quark_dtypes, config->quark.dtype)),
        .emax = element_of(config).emax,
    };
}

static void bins(const qobs_config *config, struct bins_params *b)
{
    const struct quark_number number = qobs_quark_number(config->quark.dtype);
    b->method = AMAX_MSE;
    b->from_zero = true;
    b->clamp_start = true;
    b->quant_min = number.quant_min;
    b->quant_max = number.quant_max;
    b->dtype = qobs_word_text(qobs_quark_dtypes, config->quark.dtype);
    if (number.groups & SQUARED_ERROR)
        b->centres = number.is_float ? CENTRES_QUARK_FLOAT : CENTRES_TORCH;
    if (b->centres == CENTRES_QUARK_FLOAT)
        b->format = qobs_format_find(b->dtype);
}

static void traits(const qobs_config *config, struct observer_traits *t)
{
    const bool tqt = has_threshold(config->preset), lsq = is_lsq(config->preset);
    t->token_result = qobs_preset_measures(config->preset) ? TOKENS_NONZERO : TOKENS_NONE;
    t->counts_nonzero_tokens = true;
    t->first_batch_only = tqt;
    t->log_threshold = tqt;
    t->scale_is_list = config->preset->formula == FORMULA_QUARK_TORCH || tqt || (lsq && !has_lsq_channels(config));
    t->hides_ranges = lsq || tqt;
}

const struct family_ops qobs_family_quark = {
    SETTINGS_OF(settings),
    .finders = FINDER_PERCENTILE | FINDER_MSE,
    .set_defaults = set_defaults,
    .check = check,
    .granularity = granularity,
    .reduction = reduction,
    .accumulator = accumulator,
    .range = range,
    .formula = formula,
    .traits = traits,
    .bins = bins,
};
