/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Settings that change nothing, contradict each other, or that runtimes refuse. */
#include <stdio.h>
#include <string.h>

#include "files/suggest.h"
#include "files/text.h"
#include "quantize/selection.h"

/* ---- Orders of columns ------------------------------------------------------------------------------------------- */

/* Columns stay in their order here, so that `weight` (static) says nothing. For `group` (dynamic) runtimes would look
 * for weight_g_idx: vLLM 0.32 refuses it (compressed_tensors.py). compressed-tensors 0.19 knows no other word. */
static int check_order(struct quant_config *config, const struct quant_group *g, struct fail *f)
{
    static const char *const known[] = {"weight", "static", "group", "dynamic", NULL};
    const char *order = g->weights.actorder;
    char hint[HINT_SIZE];
    if (!order)
        return QOBS_OK;
    if (!is_one_of(order, "weight static group dynamic"))
        return INVALID(f, "%.100s: weights: actorder is '%.60s', which no runtime knows%s", g->name, order,
                       did_you_mean(hint, order, known));
    if (is_one_of(order, "group dynamic"))
        return INVALID(f,
                       "%.100s: weights: actorder is '%s'; columns are not sorted here, and runtimes would look for "
                       "weight_g_idx. Without actorder the output loads",
                       g->name, order);
    return quant_config_add_note(config, f, "%.100s: actorder=%s changes nothing here: columns keep their order",
                                 g->name, order);
}

int settings_check_orders(struct selection *selection, struct fail *f)
{
    for (size_t g = 0; g < selection->config.group_count && selection->config.compat == QOBS_COMPAT_VLLM; g++)
        RETURN_IF_NOT_OK(check_order(&selection->config, &selection->config.groups[g], f));
    return QOBS_OK;
}

/* ---- Without effect ---------------------------------------------------------------------------------------------- */

/* Returns true if a setting of the weights changes nothing, and writes why. */
static bool is_idle(const struct quant_args *a, const char *key, const char *value, char *why, size_t size)
{
    const bool grouped = a->strategy == QUANT_GROUP || a->strategy == QUANT_TENSOR_GROUP;
    const bool group = strcmp(key, "group_size") == 0 && !grouped && strcmp(value, "-1") != 0;
    const bool block = strcmp(key, "block_structure") == 0 && a->strategy != QUANT_BLOCK;
    if (strcmp(key, "strategy") == 0 && strcmp(value, "null") == 0) {
        snprintf(why, size, "the strategy stays %s", quant_strategy_name(a->strategy));
        return true;
    }
    if (group || block)
        snprintf(why, size, "the strategy is %s; %s uses it", quant_strategy_name(a->strategy),
                 group ? "group" : "block");
    else
        snprintf(why, size, "symmetric weights have no zero points");
    return strcmp(value, "null") != 0 && (group || block || (strcmp(key, "zp_dtype") == 0 && a->symmetric));
}

/* Without a strategy group_size and block_structure choose one. */
static bool chooses_strategy(const struct scheme_choice *choice)
{
    for (size_t i = 0; i < choice->settings.count; i++)
        if (strncmp(choice->settings.items[i], "group_size=", 11) == 0 ||
            strncmp(choice->settings.items[i], "block_structure=", 16) == 0)
            return true;
    return false;
}

/* Names a setting that no group uses. */
static int name_setting(struct selection *selection, const char *setting, struct fail *f)
{
    char key[64], why[96] = "the file has no group of weights";
    const char *equals = strchr(setting, '=');
    snprintf(key, sizeof key, "%.*s", (int)strcspn(setting, "="), setting);
    if (strcmp(setting, "strategy=null") == 0 && chooses_strategy(selection->choice))
        return QOBS_OK;
    for (size_t g = 0; g < selection->config.group_count; g++)
        if (!is_idle(&selection->config.groups[g].weights, key, equals ? equals + 1 : "", why, sizeof why))
            return QOBS_OK;
    return quant_config_add_unused(&selection->config, f, "setting: %.100s changes nothing: %s", setting, why);
}

/* A preset and the setting `observer` name one thing; the setting counts. */
static int name_preset(struct selection *selection, struct fail *f)
{
    const struct scheme_choice *choice = selection->choice;
    const char *name = choice->preset ? strchr(choice->preset, '.') : NULL;
    for (size_t i = 0; i < choice->settings.count && name; i++)
        if (strncmp(choice->settings.items[i], "observer=", 9) == 0 &&
            strcmp(choice->settings.items[i] + 9, name + 1) != 0)
            return quant_config_add_unused(&selection->config, f,
                                           "preset: %.60s changes nothing: the setting %.60s replaces it",
                                           choice->preset, choice->settings.items[i]);
    if (choice->preset && selection->config.group_count == 0)
        return quant_config_add_unused(
            &selection->config, f, "preset: %.60s changes nothing: the file has no group of weights", choice->preset);
    return QOBS_OK;
}

int settings_name_unused(struct selection *selection, struct fail *f)
{
    for (size_t i = 0; i < selection->choice->settings.count; i++)
        RETURN_IF_NOT_OK(name_setting(selection, selection->choice->settings.items[i], f));
    return name_preset(selection, f);
}
