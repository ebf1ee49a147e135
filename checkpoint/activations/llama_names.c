/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Tables of prefixes and endings. */
#include "activations/column_importance.h"

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

static const struct ending {
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

static const struct ending expert_endings[] = {{"gate_proj", "ffn_gate_exps"}, {"up_proj", "ffn_up_exps"},
                                               {"down_proj", "ffn_down_exps"}, {"w1", "ffn_gate_exps"},
                                               {"w3", "ffn_up_exps"},          {"w2", "ffn_down_exps"}};

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

/* Writes the name of a weight of a layer if `at` is one of the endings. */
static bool translate(const char *at, const char *end, const struct ending *known, size_t count, unsigned layer,
                      struct llama_name *name)
{
    size_t i = 0;
    while (i < count && !is_rest(at, end, known[i].ours))
        i++;
    if (i < count)
        snprintf(name->text, sizeof name->text, "blk.%u.%s.weight", layer, known[i].theirs);
    return i < count;
}

/* Skips one of the prefixes and the number behind it. */
static bool skip_to_number(const char **at, const char *end, const char *const *known, size_t count, unsigned *number)
{
    size_t i = 0;
    while (i < count && !skip(at, end, known[i]))
        i++;
    return i < count && skip_number(at, end, number);
}

bool llama_name_of(const char *module, size_t length, struct llama_name *name)
{
    const char *at = module, *const end = module + length;
    unsigned layer, expert;
    name->matrix = 0;
    if (is_rest(at, end, "lm_head")) {
        strcpy(name->text, "output.weight");
        return true;
    }
    if (!skip_to_number(&at, end, prefixes, sizeof prefixes / sizeof *prefixes, &layer))
        return false;
    if (translate(at, end, endings, sizeof endings / sizeof *endings, layer, name))
        return true;
    if (!skip_to_number(&at, end, expert_prefixes, sizeof expert_prefixes / sizeof *expert_prefixes, &expert))
        return false;
    name->matrix = expert;
    return translate(at, end, expert_endings, sizeof expert_endings / sizeof *expert_endings, layer, name);
}
