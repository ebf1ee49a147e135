/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Members of configurations and recipes that nothing reads. */
#include "schemes/quant_config.h"

#include <string.h>

#include "files/suggest.h"
#include "files/text.h"

/* ---- Members of a configuration ---------------------------------------------------------------------------------- */

/* The effect of a member. */
enum effect {
    EFFECT_READ,     /* it is read, says how the file was made, or how transformers loads it */
    EFFECT_NOTE,     /* another value than null changes nothing */
    EFFECT_TRANSFORM /* another value than null would change weights */
};

static const struct {
    const char *name;
    enum effect effect;
} members[] = {{"config_groups", EFFECT_READ},
               {"ignore", EFFECT_READ},
               {"format", EFFECT_READ},
               {"kv_cache_scheme", EFFECT_READ},
               {"quant_method", EFFECT_READ},
               {"version", EFFECT_READ},
               {"quantization_status", EFFECT_READ},
               {"global_compression_ratio", EFFECT_NOTE},
               {"sparsity_config", EFFECT_TRANSFORM},
               {"moe_sparsity_config", EFFECT_TRANSFORM},
               {"transform_config", EFFECT_TRANSFORM},
               {"run_compressed", EFFECT_READ},
               {"dequantize", EFFECT_READ},
               {"use_optimized_inference", EFFECT_READ}};
enum { MEMBERS = sizeof members / sizeof *members };

static int refuse_member(const char *name, const char *where, struct fail *f)
{
    const char *known[MEMBERS + 1] = {0};
    char hint[HINT_SIZE];
    for (size_t i = 0; i < MEMBERS; i++)
        known[i] = members[i].name;
    return fail(f, "%s: has the member '%.80s', which is unknown%s", where, name, did_you_mean(hint, name, known));
}

/* Returns true if the value says that nothing is done: null, an empty object, the format "dense". */
static bool is_idle(const json_object *value)
{
    const char *format = json_text(json_get(value, "format"));
    return !value || (json_is_object(value) && (json_count(value) == 0 || (format && strcmp(format, "dense") == 0)));
}

static int name_member(struct quant_config *config, const struct json_item *item, const char *where, struct fail *f)
{
    size_t i = 0;
    while (i < MEMBERS && strcmp(members[i].name, item->key) != 0)
        i++;
    if (i == MEMBERS)
        return refuse_member(item->key, where, f);
    if (members[i].effect == EFFECT_READ || is_idle(item->value))
        return 0;
    if (members[i].effect == EFFECT_NOTE)
        return quant_config_add_note(config, f, "%.200s: %s changes nothing here", where, item->key);
    return quant_config_add_unused(config, f, "%.200s: %s: no weight is transformed; the output has none", where,
                                   item->key);
}

int unused_members_name(struct quant_config *config, const json_object *json, const char *where, struct fail *f)
{
    json_each(item, json)
    {
        const struct json_item member = {.key = item.key, .value = item.value};
        RETURN_IF_NOT_OK(name_member(config, &member, where, f));
    }
    return 0;
}

/* ---- Members of schemes ------------------------------------------------------------------------------------------ */

static bool is_grouped(const struct quant_args *a)
{
    return a->strategy == QUANT_GROUP || a->strategy == QUANT_TENSOR_GROUP;
}

int unused_members_of_args(struct quant_config *config, const struct quant_args *a, const char *where, bool weights,
                           struct fail *f)
{
    const char *strategy = quant_strategy_name(a->strategy);
    if (a->group_size > 0 && !is_grouped(a))
        RETURN_IF_NOT_OK(quant_config_add_unused(config, f,
                                                 "%.300s: group_size changes nothing with the strategy %s; "
                                                 "the strategy group uses it",
                                                 where, strategy));
    if (a->block_structure[0] > 0 && a->strategy != QUANT_BLOCK)
        RETURN_IF_NOT_OK(quant_config_add_unused(config, f,
                                                 "%.300s: block_structure changes nothing with the strategy "
                                                 "%s; the strategy block uses it",
                                                 where, strategy));
    if (a->actorder && !weights)
        return quant_config_add_unused(config, f, "%.300s: actorder is of weights and changes nothing", where);
    return 0;
}

/* ---- Settings ---------------------------------------------------------------------------------------------------- */

int settings_check_once(const char *const *settings, size_t count, struct fail *f)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++) {
            const size_t length = strcspn(settings[i], "=");
            if (settings[i][length] && strncmp(settings[i], settings[k], length + 1) == 0 &&
                strcmp(settings[i], settings[k]) != 0)
                return INVALID(f, "setting: '%.*s' is given twice, as '%.60s' and as '%.60s'",
                               length < 60 ? (int)length : 60, settings[i], settings[k] + length + 1,
                               settings[i] + length + 1);
        }
    return QOBS_OK;
}
