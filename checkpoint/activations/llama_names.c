/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Tables of prefixes and endings. */
#include "activations/llama_names.h"

#include <stdio.h>
#include <string.h>

/* Layers of the language model; those of a vision tower have names of their own in llama.cpp. */
static const char *const prefixes[] = {"model.layers.",
                                       "layers.",
                                       "transformer.h.",
                                       "gpt_neox.layers.",
                                       "model.language_model.layers.",
                                       "language_model.model.layers.",
                                       "transformer.encoder.layers."};

static const struct {
    const char *ours, *theirs;
} endings[] = {
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.dense", "attn_output"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attention.query_key_value", "attn_qkv"},
    {"self_attention.dense", "attn_output"},
    {"attention.query_key_value", "attn_qkv"},
    {"attention.dense", "attn_output"},
    {"mlp.dense_h_to_4h", "ffn_up"},
    {"mlp.dense_4h_to_h", "ffn_down"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.fc1", "ffn_up"},
    {"mlp.fc2", "ffn_down"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
};

static const struct {
    const char *ours, *theirs;
} expert_endings[] = {{"gate_proj", "ffn_gate_exps"}, {"up_proj", "ffn_up_exps"}, {"down_proj", "ffn_down_exps"},
                      {"w1", "ffn_gate_exps"},        {"w3", "ffn_up_exps"},      {"w2", "ffn_down_exps"}};

static const char *const expert_prefixes[] = {"mlp.experts.", "block_sparse_moe.experts.", "feed_forward.experts."};

/* Skips `text` at the start of *at. */
static bool skip(const char **at, const char *end, const char *text)
{
    const size_t length = strlen(text);
    if ((size_t)(end - *at) < length || memcmp(*at, text, length) != 0)
        return false;
    *at += length;
    return true;
}

/* Skips a number of at most 6 digits and the dot behind it. */
static bool skip_number(const char **at, const char *end, unsigned *number)
{
    const char *digit = *at;
    for (*number = 0; digit < end && *digit >= '0' && *digit <= '9' && digit - *at < 6; digit++)
        *number = *number * 10 + (unsigned)(*digit - '0');
    if (digit == *at || digit == end || *digit != '.')
        return false;
    *at = digit + 1;
    return true;
}

static bool is_rest(const char *at, const char *end, const char *text) { return skip(&at, end, text) && at == end; }

static bool name_of_expert(const char *at, const char *end, unsigned layer, struct llama_name *name)
{
    unsigned expert;
    bool found = false;
    for (size_t i = 0; i < sizeof expert_prefixes / sizeof *expert_prefixes && !found; i++)
        found = skip(&at, end, expert_prefixes[i]);
    if (!found || !skip_number(&at, end, &expert))
        return false;
    for (size_t i = 0; i < sizeof expert_endings / sizeof *expert_endings; i++)
        if (is_rest(at, end, expert_endings[i].ours)) {
            snprintf(name->text, sizeof name->text, "blk.%u.%s.weight", layer, expert_endings[i].theirs);
            name->matrix = expert;
            return true;
        }
    return false;
}

bool llama_name_of(const char *module, size_t length, struct llama_name *name)
{
    const char *at = module, *const end = module + length;
    unsigned layer;
    bool found = false;
    name->matrix = 0;
    if (is_rest(at, end, "lm_head")) {
        strcpy(name->text, "output.weight");
        return true;
    }
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !found; i++)
        found = skip(&at, end, prefixes[i]);
    if (!found || !skip_number(&at, end, &layer))
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (is_rest(at, end, endings[i].ours)) {
            snprintf(name->text, sizeof name->text, "blk.%u.%s.weight", layer, endings[i].theirs);
            return true;
        }
    return name_of_expert(at, end, layer, name);
}
