/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A model of several parts has a configuration for each part inside config.json. Every object is one, unless it
 * describes the quantization. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

#include "files/text.h"

/* Keys of the configuration of a language model inside that of the whole model, as transformers and the files of Kimi,
 * InternVL and DeepSeek-VL have them. */
static const char language_keys[] = "text_config llm_config language_config language_model_config thinker_config "
                                    "decoder_config decoder";

/* Keys of a description of the quantization; the last one is that of ModelOpt, MLX and params.json. */
static const char *const quantization_keys[] = {"quantization_config", "compression_config", "quantization"};

static bool is_quantization_key(const char *key)
{
    bool known = false;
    for (size_t i = 0; i < sizeof quantization_keys / sizeof *quantization_keys; i++)
        known |= strcmp(quantization_keys[i], key) == 0;
    return known;
}

static int add(struct model *m, const char *path, json_object *object, int rank, struct fail *f)
{
    const struct model_config config = {.path = strdup(path), .object = object, .rank = rank};
    if (config.path && list_append(&m->configs, &m->config_count, sizeof config, &config))
        return QOBS_OK;
    free(config.path);
    return NO_MEMORY(f, "the configurations");
}

/* Adds the objects below the one at `index`, level by level. */
static int add_below(struct model *m, size_t index, struct fail *f)
{
    json_each(item, m->configs[index].object)
    {
        const struct model_config *above = &m->configs[index];
        char path[256];
        if (!json_is_object(item.value) || is_quantization_key(item.key))
            continue;
        snprintf(path, sizeof path, "%s%s%s", above->path, *above->path ? "." : "", item.key);
        RETURN_IF_NOT_OK(add(m, path, item.value, above->rank < 2 && is_one_of(item.key, language_keys) ? 0 : 2, f));
    }
    return QOBS_OK;
}

/* Puts the ranks in order and keeps the order of the file among equals. */
static int sort_by_rank(struct model *m, struct fail *f)
{
    struct model_config *sorted = malloc((m->config_count + 1) * sizeof *sorted);
    size_t n = 0;
    if (!sorted)
        return NO_MEMORY(f, "the configurations");
    for (int rank = 0; rank < 3; rank++)
        for (size_t i = 0; i < m->config_count; i++)
            if (m->configs[i].rank == rank)
                sorted[n++] = m->configs[i];
    free(m->configs);
    m->configs = sorted;
    return QOBS_OK;
}

int model_list_configs(struct model *model, struct fail *f)
{
    if (model->config)
        RETURN_IF_NOT_OK(add(model, "", model->config, 1, f));
    if (model->hf_quant_config)
        RETURN_IF_NOT_OK(add(model, HF_QUANT_CONFIG, model->hf_quant_config, 2, f));
    for (size_t i = 0; i < model->config_count; i++)
        RETURN_IF_NOT_OK(add_below(model, i, f));
    return sort_by_rank(model, f);
}

const json_object *model_config_item(const struct model *model, const char *key)
{
    for (size_t i = 0; i < model->config_count; i++) {
        const json_object *item = json_get(model->configs[i].object, key);
        if (item)
            return item;
    }
    return NULL;
}

const char *model_config_type(const struct model_config *config)
{
    const char *type = json_text(json_get(config->object, "model_type"));
    return type ? type : json_text(json_get(config->object, "speculators_model_type"));
}

/* Returns the description under one of the keys; NULL: none. Codecs of audio have a "quantization" of their own. */
static const json_object *find_description(const struct model_config *config, const char *key)
{
    static const char *const members[] = {"quant_algo", "quant_method", "bits", "qformat_weight"};
    const json_object *item = json_get(config->object, key);
    bool known = strcmp(key, "quantization") != 0;
    for (size_t i = 0; !known && i < sizeof members / sizeof *members; i++)
        known = json_has(item, members[i]);
    return known ? item : NULL;
}

const json_object *model_config_quantization(const struct model_config *config)
{
    for (size_t i = 0; i < sizeof quantization_keys / sizeof *quantization_keys; i++) {
        const json_object *item = find_description(config, quantization_keys[i]);
        const json_object *inner = json_get(item, "quantization_config"); /* of older files */
        if (item)
            return inner ? inner : item;
    }
    return NULL;
}

bool model_is_described(const struct model *model)
{
    bool described = false;
    for (size_t i = 0; i < model->config_count; i++)
        described |= model_config_quantization(&model->configs[i]) != NULL;
    return described;
}

/* Members of the configurations of drafts, and parts of the names of their classes: EAGLE of its authors, speculators,
 * DFlash (vLLM 0.32: transformers_utils/configs). */
static const char *const draft_members[] = {"draft_vocab_size", "speculators_model_type", "eagle_config",
                                            "dflash_config"};
static const char *const draft_classes[] = {"Eagle", "DFlash", "DSpark"};

bool model_is_draft(const struct model *model)
{
    for (size_t i = 0; i < model->config_count; i++) {
        const json_object *object = model->configs[i].object;
        const char *name = json_text(json_at(json_get(object, "architectures"), 0));
        for (size_t k = 0; k < sizeof draft_members / sizeof *draft_members; k++)
            if (json_get(object, draft_members[k]))
                return true;
        for (size_t k = 0; name && k < sizeof draft_classes / sizeof *draft_classes; k++)
            if (strstr(name, draft_classes[k]))
                return true;
    }
    /* EAGLE of its authors has the configuration of its model. */
    return model_find(model, "fc.weight") && model_find(model, "layers.0.self_attn.q_proj.weight");
}

int model_refuse_without_config(const struct model *model, struct fail *f)
{
    for (size_t i = 0; i < model->tree.count; i++)
        if (ends_with(model->tree.files[i].path, "/config.json"))
            return INVALID(f, "%s: has no config.json; %.200s is one, and its folder may be the model",
                           model->tree.root, model->tree.files[i].path);
    return INVALID(
        f,
        "%s: has no config.json, so that no runtime is known to build the model; --targets with the names of "
        "modules, or re: and a pattern, converts those; qobs calibrate takes a file alone",
        model->tree.root);
}

void model_remove_quantizations(struct model *model)
{
    for (size_t i = 0; i < model->config_count; i++)
        for (size_t k = 0; k < sizeof quantization_keys / sizeof *quantization_keys; k++)
            if (find_description(&model->configs[i], quantization_keys[k]))
                json_object_object_del(model->configs[i].object, quantization_keys[k]);
}
