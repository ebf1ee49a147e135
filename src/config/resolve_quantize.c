/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* From a configuration to the numbers and codes of quantization. */
#include "base/error.h"
#include "config/families.h"
#include "number/format.h"
#include "quantize/row_quantizer.h"

/* The format that is given, or that of the configuration; NULL: integers, or the configuration leaves it open. */
static const qobs_format *format_of(const qobs_config *config, const qobs_format *format)
{
    return format || !qobs_preset_has_scheme(config->preset) || config->type == TYPE_INT
               ? format
               : qobs_config_float_format(config);
}

static int resolve_numbers(const qobs_config *config, const qobs_format *given, struct quantize_rule *rule,
                           qobs_error *error)
{
    const int64_t quant_min = (int64_t)rule->formula.params.quant_min,
                  quant_max = (int64_t)rule->formula.params.quant_max;
    const qobs_format *format = format_of(config, given);
    const bool torch = config->preset->ops->has_own_quantize;
    if (torch && given)
        return qobs_invalid(error, "format: is %s, but %s quantizes to the integers of its dtype", given->name,
                            config->preset->name);
    if (format)
        qobs_quantizer_for_format(&rule->quantizer, format);
    else if (torch || qobs_preset_has_scheme(config->preset))
        qobs_quantizer_for_integers(&rule->quantizer, quant_min, quant_max, torch);
    else
        return qobs_invalid(error, "format: is NULL, which %s leaves open", config->preset->name);
    return QOBS_OK;
}

static int resolve_codes(const qobs_config *config, const qobs_format *given, struct quantize_rule *rule,
                         qobs_error *error)
{
    const qobs_format *format = format_of(config, given), *const e2m1 = qobs_format_at(FORMAT_E2M1);
    if (!qobs_preset_has_scheme(config->preset))
        return qobs_invalid(error, "config: is %s, codes are those of llmc and qobs presets", config->preset->name);
    rule->kind = !format ? QOBS_CODE_INTEGER : format == e2m1 ? QOBS_CODE_E2M1 : QOBS_CODE_E4M3;
    rule->code_bits = format ? qobs_format_bits(format) : config->num_bits;
    if (!format && config->num_bits > 8)
        return qobs_invalid(error, "config: num_bits is %d, codes have 2 to 8", (int)config->num_bits);
    if (format && format != e2m1 && format != qobs_format_at(FORMAT_E4M3))
        return qobs_invalid(error, "format: is %s, codes are those of %s and %s", format->name, e2m1->name,
                            qobs_format_at(FORMAT_E4M3)->name);
    return QOBS_OK;
}

int qobs_resolve_quantize(const qobs_config *config, const qobs_format *format, bool codes, struct quantize_rule *rule,
                          qobs_error *error)
{
    const struct preset *preset = config->preset;
    struct observer_traits traits;
    qobs_resolve_traits(config, &traits);
    *rule = (struct quantize_rule){
        .nonfinite = (enum nonfinite_mode)config->nonfinite,
        /* The sign of e2m1 is that of the quotient, and upstream's sign of -0 is 0. */
        .positive_zero = preset->ops->positive_zero && format_of(config, format) == qobs_format_at(FORMAT_E2M1),
        .has_global_scale = traits.global != GLOBAL_NONE,
        /* The average of one batch is that of the batch. */
        .finds_scales = preset->formula == FORMULA_COMPRESSED_TENSORS && !qobs_range_searches(preset->range),
    };
    qobs_resolve_granularity(config, &rule->granularity);
    qobs_resolve_formula(config, &rule->formula);
    rule->symmetric = rule->formula.params.mapping == MAPPING_SYMMETRIC;
    if (codes)
        RETURN_IF_FAILED(resolve_codes(config, format, rule, error));
    return resolve_numbers(config, format, rule, error);
}
