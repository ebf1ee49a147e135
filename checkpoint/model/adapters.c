/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Names of peft 0.19 and of the tools that write LoRA files of their own (kohya, diffusers, MLX, torchtune). */
#include "model/adapters.h"

#include <stdlib.h>
#include <string.h>

#include "files/text.h"

#define MERGE "merge it first: merge_and_unload() of peft, then save_pretrained(NEW)"

/* Components of names, separated by spaces; a dot joins two, and a star at the end stands for the rest of one. */
static const struct {
    const char *names, *kind, *way;
} adapters[] = {
    {"lora_A lora_B lora_a lora_b lora_E lora_embedding_A lora_embedding_B lora_up lora_down lora.up lora.down ranknum",
     "LoRA", MERGE},
    {"lora_magnitude_vector* dora_scale", "DoRA", MERGE},
    {"base_layer", "LoRA or a kin of it", MERGE},
    {"modules_to_save original_module", "peft, with its modules_to_save", MERGE},
    {"ia3_l", "IA3", MERGE},
    {"hada_*", "LoHa", MERGE},
    {"lokr_*", "LoKr", MERGE},
    {"oft_r oft_R oft_blocks boft_R boft_s", "OFT or BOFT", MERGE},
    {"vera_A vera_B vera_lambda_b vera_lambda_d randlora_*", "VeRA or RandLoRA", MERGE},
    {"fourierft_spectrum vblora_* shira_weight c3a_kernel road_theta road_alpha hra_u miss_block", "peft", MERGE},
    {"trainable_tokens_delta trainable_tokens_original token_adapter", "trainable tokens of peft", MERGE},
    {"prompt_embeddings prompt_encoder.default adaption_prompt adaption_gate", "prompt tuning",
     "it cannot be merged: quantize the model without it, and load it beside the result"},
};

/* Returns true if the components of `pattern`, which has `size` bytes, begin at `name`. */
static bool begins_with(const char *name, const char *pattern, size_t size)
{
    const bool open = pattern[size - 1] == '*';
    return strncmp(name, pattern, size - open) == 0 && (open || name[size] == '.' || name[size] == '\0');
}

static bool has_pattern(const char *name, const char *patterns)
{
    for (const char *p = patterns; *p; p += *p == ' ') {
        const size_t size = strcspn(p, " ");
        for (const char *at = name; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL)
            if (begins_with(at, p, size))
                return true;
        p += size;
    }
    return false;
}

int adapters_refuse_tensor(const char *name, struct fail *f)
{
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++)
        if (has_pattern(name, adapters[i].names))
            return INVALID(f, "tensor '%.150s': is of an adapter (%s), no layer of the model; %s", name,
                           adapters[i].kind, adapters[i].way);
    return QOBS_OK;
}

/* ---- Directories ------------------------------------------------------------------------------------------------- */

bool adapters_are_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return is_one_of(slash ? slash + 1 : path, "adapter_model.safetensors adapter_model.bin adapters.safetensors");
}

int adapters_refuse_directory(const struct source_tree *tree, struct fail *f)
{
    bool adapter = source_tree_find(tree, "adapter_config.json") != NULL;
    for (size_t i = 0; i < tree->count; i++)
        adapter |= !strchr(tree->files[i].path, '/') && adapters_are_in(tree->files[i].path);
    if (!adapter)
        return QOBS_OK;
    return INVALID(f,
                   "%s: holds an adapter, no model. In Python with peft: AutoPeftModelForCausalLM.from_pretrained(DIR)"
                   ".merge_and_unload().save_pretrained(NEW); then quantize NEW",
                   tree->root);
}
