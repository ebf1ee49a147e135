/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A model directory as it is: its files, the tensors of its safetensors files, and config.json. Nothing is written. */
#pragma once

#include "files/json.h"
#include "files/safetensors.h"
#include "files/source_tree.h"
#include "files/status.h"

#define HF_QUANT_CONFIG "hf_quant_config.json" /* the file in which ModelOpt describes the quantization */
/* Those of GPTQ, AWQ and AutoRound lie beside config.json. */
#define QUANT_CONFIGS HF_QUANT_CONFIG " quantize_config.json quant_config.json quantization_config.json"

struct model_shard {
    const char *path; /* relative to the root; belongs to the tree */
    struct st_file file;
};

struct model_tensor {
    const struct st_tensor *stored;
    size_t shard; /* index in model.shards */
    bool omitted; /* by the index */
};

/* config.json, or an object in it: text_config of a model that sees, thinker_config.text_config of one that speaks. */
struct model_config {
    char *path; /* keys joined by dots; "": config.json itself; HF_QUANT_CONFIG */
    json_object *object;
    int rank; /* 0: of the language model, 1: config.json itself, 2: of another part */
};

/* Paths, relative to the root. */
struct model_files {
    const char **items;
    size_t count;
};

/* Everything belongs to the model until model_close. */
struct model {
    struct source_tree tree;
    struct model_shard *shards; /* sorted by path */
    size_t shard_count;
    struct model_tensor *tensors; /* sorted by name with strcmp */
    size_t count;
    const char *index;            /* path of the index, relative to the root; NULL: none */
    const char *config_path;      /* "config.json" or "params.json"; NULL: none */
    json_object *config;          /* contents of that file, numbers with their text; NULL: none */
    json_object *hf_quant_config; /* contents of HF_QUANT_CONFIG; NULL: none */
    struct model_config *configs; /* it and its sub-configurations, the language model's first */
    size_t config_count;
    size_t omitted_count;       /* tensors in shards that the index does not name */
    struct model_files unnamed; /* safetensors files beside the model that no index names: they are left out */
    struct model_files parts;   /* the same in folders, and an adapter of the model: they are copied as they are */
    uint64_t bytes;             /* of all tensors */
};

/* Opens every file that the index names and checks all headers. Without an index the model is model.safetensors, or
 * every safetensors file if there is none of that name. `path` is the directory of the model, its index or its only
 * file. Fails if it is something else, if a tensor is missing or in two files, and if config.json is damaged. */
int model_open(struct model *model, const char *path, struct fail *f);

/* The same, but a file stands for itself: any safetensors file, with config.json beside it, is a model, and of an index
 * the named shards count. Nothing else of its directory is looked at. */
int model_open_files(struct model *model, const char *path, struct fail *f);
void model_close(struct model *model);

/* Returns true if the file is one of model.parts. */
bool model_has_part(const struct model *model, const char *path);

/* Returns the tensor with that name, or NULL. */
const struct model_tensor *model_find(const struct model *model, const char *name);

/* Returns the value of `key` in the first configuration that has one, the language model's first; NULL: none. */
const json_object *model_config_item(const struct model *model, const char *key);

/* Returns the model_type of a configuration, or the speculators_model_type of a draft; NULL: it has none. */
const char *model_config_type(const struct model_config *config);

/* Returns the quantization_config of a configuration, or what stands for it in older files; NULL: none. */
const json_object *model_config_quantization(const struct model_config *config);

/* Returns true if a configuration describes a quantization. */
bool model_is_described(const struct model *model);

/* Returns true if a configuration, or names of tensors, are those of a draft of speculative decoding. Its layers are
 * none of its model_type: inputs of its first layer are two vectors, and its head may give fewer logits
 * (draft_vocab_size). */
bool model_is_draft(const struct model *model);

/* Fails because there is no config.json; the message says where one may be. */
int model_refuse_without_config(const struct model *model, struct fail *f);

/* Removes the descriptions of a quantization from all configurations. */
void model_remove_quantizations(struct model *model);

/* Lists config.json and its sub-configurations. */
int model_list_configs(struct model *model, struct fail *f);
