/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Configurations as vLLM 0.32 (layers/quantization/auto_awq.py, auto_gptq.py) and GPTQModel 5 read them. */
#include "schemes/dialects.h"

#include <string.h>

#include "files/suggest.h"
#include "files/text.h"

#define BITS(b) (1u << (b))

static const struct dialect_row rows[] = {
    {.name = "awq",
     .scheme = QUANT_PACK,
     .stored = QUANT_AWQ,
     .bits = BITS(4),
     .config.members = "{\"quant_method\": \"awq\", \"version\": \"gemm\", \"zero_point\": true}",
     .config.excluded = "modules_to_not_convert",
     .needs = "gptqmodel"},
    {.name = "gptq",
     .scheme = QUANT_PACK,
     .stored = QUANT_GPTQ,
     .bits = BITS(2) | BITS(3) | BITS(4) | BITS(8),
     .config.members = "{\"quant_method\": \"gptq\", \"checkpoint_format\": \"gptq\", \"desc_act\": false, "
                       "\"lm_head\": false}",
     .config.symmetric = "sym",
     .config.excluded = "dynamic",
     .config.patterns = true,
     .needs = "gptqmodel and optimum"},
    {.name = "gptq-v2",
     .scheme = QUANT_PACK,
     .stored = QUANT_GPTQ_V2,
     .bits = BITS(2) | BITS(3) | BITS(4) | BITS(8),
     .config.members = "{\"quant_method\": \"gptq\", \"checkpoint_format\": \"gptq_v2\", \"desc_act\": false, "
                       "\"lm_head\": false}",
     .config.symmetric = "sym",
     .config.excluded = "dynamic",
     .config.patterns = true,
     .needs = "gptqmodel and optimum"},
};

enum { DIALECTS = sizeof rows / sizeof *rows };

const struct dialect_row *dialect_at(size_t index) { return index < DIALECTS ? &rows[index] : NULL; }

int dialect_find(const struct dialect_row **dialect, const char *name, struct fail *f)
{
    const char *names[DIALECTS + 2] = {DIALECT_DEFAULT};
    char known[200] = DIALECT_DEFAULT, hint[HINT_SIZE];
    *dialect = NULL;
    if (!name || strcmp(name, DIALECT_DEFAULT) == 0)
        return QOBS_OK;
    for (int i = 0; i < DIALECTS; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *dialect = &rows[i];
            return QOBS_OK;
        }
        names[i + 1] = rows[i].name;
        text_append(known, sizeof known, ", %s", rows[i].name);
    }
    return INVALID(f, "dialect: is '%.60s', known are %s%s", name, known, did_you_mean(hint, name, names));
}

/* ---- Schemes ----------------------------------------------------------------------------------------------------- */

static void describe_bits(const struct dialect_row *d, char *text, size_t size)
{
    text[0] = '\0';
    for (int b = 1; b <= 8; b++)
        if (d->bits & BITS(b))
            text_append(text, size, "%s%d", *text ? ", " : "", b);
}

static bool holds(const struct dialect_row *d, const struct quant_group *g)
{
    const struct quant_args *w = &g->weights;
    return g->format == d->scheme && w->type == QUANT_INT && d->bits & BITS(w->num_bits) && !g->has_inputs &&
           !g->has_outputs && (w->strategy == QUANT_GROUP || w->strategy == QUANT_CHANNEL);
}

int dialect_apply(struct quant_config *config, const struct dialect_row *d, struct fail *f)
{
    char bits[40];
    if (!d)
        return QOBS_OK;
    if (config->compat != QOBS_COMPAT_VLLM)
        return INVALID(f, "dialect: is %s; releases of llm-compressor write " DIALECT_DEFAULT " alone", d->name);
    describe_bits(d, bits, sizeof bits);
    for (size_t i = 0; i < config->group_count; i++) {
        struct quant_group *g = &config->groups[i];
        if (!holds(d, g))
            return INVALID(f,
                           "dialect: %s does not store %.60s: it has integers of %s bits in groups or channels, and no "
                           "quantized activations, as W4A16 and W4A16_ASYM are; --dialect " DIALECT_DEFAULT
                           " stores all schemes",
                           d->name, g->name, bits);
        if (i > 0 && !quant_groups_alike(g, config->groups))
            return INVALID(f,
                           "dialect: %s has one scheme for all layers, and these are %.60s and %.60s; "
                           "--dialect " DIALECT_DEFAULT " has any number",
                           d->name, config->groups->name, g->name);
        g->stored = d->stored;
    }
    if (config->has_kv_cache)
        return INVALID(f, "dialect: %s describes no quantized keys and values; --dialect " DIALECT_DEFAULT " does",
                       d->name);
    config->dialect = d;
    return QOBS_OK;
}
