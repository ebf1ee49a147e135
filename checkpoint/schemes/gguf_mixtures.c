/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "schemes/gguf_mixtures.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "files/suggest.h"
#include "files/text.h"

#define ARRAY_COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- Schemes ----------------------------------------------------------------------------------------------------- */

/* Names, types of most tensors, numbers of llama_ftype. */
#define SCHEMES(ROW)                                                                                                   \
    ROW(Q4_K_M, Q4_K, 15)                                                                                              \
    ROW(Q4_K_S, Q4_K, 14)                                                                                              \
    ROW(Q5_K_M, Q5_K, 17)                                                                                              \
    ROW(Q5_K_S, Q5_K, 16)                                                                                              \
    ROW(Q6_K, Q6_K, 18)                                                                                                \
    ROW(Q8_0, Q8_0, 7)                                                                                                 \
    ROW(Q3_K_L, Q3_K, 13)                                                                                              \
    ROW(Q3_K_M, Q3_K, 12)                                                                                              \
    ROW(Q3_K_S, Q3_K, 11)                                                                                              \
    ROW(Q2_K, Q2_K, 10)                                                                                                \
    ROW(Q2_K_S, Q2_K, 21)                                                                                              \
    ROW(Q4_0, Q4_0, 2)                                                                                                 \
    ROW(Q4_1, Q4_1, 3)                                                                                                 \
    ROW(Q5_0, Q5_0, 8)                                                                                                 \
    ROW(Q5_1, Q5_1, 9)                                                                                                 \
    ROW(IQ4_NL, IQ4_NL, 25)                                                                                            \
    ROW(IQ4_XS, IQ4_XS, 30)                                                                                            \
    ROW(MXFP4_MOE, MXFP4, 38)                                                                                          \
    ROW(NVFP4, NVFP4, 39)                                                                                              \
    ROW(TQ1_0, TQ1_0, 36)                                                                                              \
    ROW(TQ2_0, TQ2_0, 37)                                                                                              \
    ROW(Q1_0, Q1_0, 40)                                                                                                \
    ROW(Q2_0, Q2_0, 41)                                                                                                \
    ROW(F16, F16, 1)                                                                                                   \
    ROW(BF16, BF16, 32)                                                                                                \
    ROW(F32, F32, 0)

#define INDEX_OF(name, type, number) INDEX_##name,
#define SCHEME_OF(name, type, number) {#name, #type, number, UINT64_C(1) << INDEX_##name},
enum { SCHEMES(INDEX_OF) SCHEME_COUNT };
static const struct gguf_scheme schemes[] = {SCHEMES(SCHEME_OF)};

/* Other names of schemes in llama-quantize. */
static const struct {
    const char *name, *scheme;
} aliases[] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

const struct gguf_scheme *gguf_scheme_at(size_t index) { return index < SCHEME_COUNT ? &schemes[index] : NULL; }

const struct gguf_scheme *gguf_scheme_of(uint64_t file_type)
{
    for (size_t i = 0; i < SCHEME_COUNT; i++)
        if (schemes[i].file_type == file_type)
            return &schemes[i];
    return NULL;
}

static const char *suggest_scheme(const void *context, size_t index)
{
    (void)context;
    return index < SCHEME_COUNT ? schemes[index].name : NULL;
}

int gguf_scheme_find(const struct gguf_scheme **scheme, const char *name, struct fail *f)
{
    const char *wanted = name;
    for (size_t i = 0; i < ARRAY_COUNT(aliases); i++)
        if (strcasecmp(name, aliases[i].name) == 0)
            wanted = aliases[i].scheme;
    for (size_t i = 0; i < SCHEME_COUNT; i++)
        if (strcasecmp(wanted, schemes[i].name) == 0) {
            *scheme = &schemes[i];
            return QOBS_OK;
        }
    if (strncasecmp(name, "IQ", 2) == 0)
        return report_failure(
            f, QOBS_ERROR_UNSUPPORTED,
            "scheme: '%.60s' is not made here: its grids are searched by ggml alone; Q2_K, Q3_K_M and "
            "IQ4_XS are near in size",
            name);
    const char *near = suggest(name, suggest_scheme, NULL);
    return INVALID(f, "scheme: '%.60s' is none of GGUF files of llama.cpp; %s%s", name,
                   near ? "near is " : "known are Q4_K_M, Q8_0", near ? near : " and those of qobs quantize --help");
}

#define SCHEME(name) (UINT64_C(1) << INDEX_##name)
#define ANY_SCHEME (~UINT64_C(0))

bool gguf_scheme_needs_importance(const struct gguf_scheme *scheme, const char *type)
{
    return scheme->bit == SCHEME(Q2_K_S) && strcmp(type, "Q2_K") == 0;
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Parts of names of tensors that stay: norms, routers, tables, and small ones that need all their bits. */
static const char *const staying_parts[] = {"_norm.weight",
                                            "ffn_gate_inp.weight",
                                            "ffn_gate_tid2eid.weight",
                                            "altup",
                                            "laurel",
                                            "per_layer_model_proj",
                                            "ssm_conv1d",
                                            "shortconv.conv.weight",
                                            "indexer.k_proj.weight",
                                            "indexer.q_proj.weight",
                                            "time_mix_first.weight",
                                            "time_mix_w0.weight",
                                            "time_mix_w1.weight",
                                            "time_mix_w2.weight",
                                            "time_mix_v0.weight",
                                            "time_mix_v1.weight",
                                            "time_mix_v2.weight",
                                            "time_mix_a0.weight",
                                            "time_mix_a1.weight",
                                            "time_mix_a2.weight",
                                            "time_mix_g1.weight",
                                            "time_mix_g2.weight",
                                            "time_mix_decay_w1.weight",
                                            "time_mix_decay_w2.weight",
                                            "time_mix_lerp_fused.weight",
                                            "attn_rel_b.weight",
                                            ".position_embd",
                                            "sam.pos_embd",
                                            "sam.neck.",
                                            "sam.net_",
                                            ".rel_pos",
                                            ".patch_embd",
                                            ".patch_merger",
                                            "a.rvq.codebook",
                                            "mm.a.code_embd"};

bool gguf_name_is_quantized(const char *name)
{
    bool stays = !ends_with(name, "weight") || is_one_of(name, "position_embd.weight token_types.weight");
    for (size_t i = 0; i < ARRAY_COUNT(staying_parts); i++)
        stays = stays || strstr(name, staying_parts[i]);
    return !stays;
}

#define EMBEDDINGS "token_embd.weight per_layer_token_embd.weight"

bool gguf_name_is_embedding(const char *name) { return is_one_of(name, "output.weight " EMBEDDINGS); }

/* Kinds of tensors. VALUES: what holds attention's values, alone or with others. */
enum category {
    OUTPUT = 1,
    EMBEDDING = 2,
    VALUES = 4,
    KEYS = 8,
    ATTENTION_OUT = 16,
    UP = 32,
    GATE = 64,
    DOWN = 128,
    OTHER = 256,
    ANY_CATEGORY = 511
};

/* Parts of names, the first that a name has counts. */
static const struct {
    const char *part;
    enum category category;
} categories[] = {{"attn_qkv.weight", VALUES},
                  {"attn_kv_b.weight", VALUES},
                  {"attn_v.weight", VALUES},
                  {"attn_k.weight", KEYS},
                  {"attn_q.weight", OTHER},
                  {"attn_output.weight", ATTENTION_OUT},
                  {"ffn_up", UP},
                  {"ffn_gate", GATE},
                  {"ffn_down", DOWN}};

static enum category category_of(const char *name)
{
    if (is_one_of(name, EMBEDDINGS))
        return EMBEDDING;
    if (strcmp(name, "output.weight") == 0)
        return OUTPUT;
    for (size_t i = 0; i < ARRAY_COUNT(categories); i++)
        if (strstr(name, categories[i].part))
            return categories[i].category;
    return OTHER;
}

/* ---- Conditions -------------------------------------------------------------------------------------------------- */

/* Conditions of rows, all of which must hold. The place of a tensor is its layer, or how many of its kind came before:
 * NTH below 2 or 4; EIGHTH, SIXTEENTH of the layers; MORE_BITS: the first and the last eighth, and every third one. */
enum condition {
    FALCON = 1,
    NOT_FALCON = 1 << 1,
    NOT_BAILING3 = 1 << 2,
    SHARED_KEYS = 1 << 3, /* at least 4 heads have the same keys */
    EXPERTS_8 = 1 << 4,
    SIZE_70B = 1 << 5,
    IMPORTANCE = 1 << 6,
    NO_IMPORTANCE = 1 << 7,
    BELOW_2 = 1 << 8,
    BELOW_4 = 1 << 9,
    EIGHTH = 1 << 10,
    SIXTEENTH = 1 << 11,
    MORE_BITS = 1 << 12,
    ODD_COLUMNS = 1 << 13, /* for the type of the scheme */
    STACKED = 1 << 14      /* experts lie in one tensor */
};

/* ---- Mixtures ---------------------------------------------------------------------------------------------------- */

/* The first row that fits gives the type; NULL: that of the scheme, as without a row. */
struct mixture_row {
    uint64_t schemes;
    unsigned categories, conditions;
    const char *type;
};

#define K3 (SCHEME(Q3_K_S) | SCHEME(Q3_K_M) | SCHEME(Q3_K_L))
#define IQ4 (SCHEME(IQ4_NL) | SCHEME(IQ4_XS))
#define TERNARY (SCHEME(TQ1_0) | SCHEME(TQ2_0) | SCHEME(Q2_0))

static const struct mixture_row rows[] = {
    {SCHEME(MXFP4_MOE), OUTPUT, 0, "Q8_0"},
    {ANY_SCHEME, OUTPUT, FALCON, "Q8_0"},
    {ANY_SCHEME, OUTPUT, ODD_COLUMNS, "Q8_0"},
    {SCHEME(Q8_0), OUTPUT, 0, NULL},
    {ANY_SCHEME, OUTPUT, 0, "Q6_K"},

    {SCHEME(MXFP4_MOE), UP | GATE | DOWN, STACKED, "MXFP4"},
    {SCHEME(MXFP4_MOE), ANY_CATEGORY, STACKED | NOT_BAILING3, "MXFP4"},
    {SCHEME(MXFP4_MOE), ANY_CATEGORY, 0, "Q8_0"},

    {TERNARY, EMBEDDING, 0, "Q4_K"},

    {ANY_SCHEME, VALUES, EXPERTS_8, "Q8_0"},
    {SCHEME(Q2_K) | K3 | SCHEME(Q4_K_S), VALUES, SIZE_70B, "Q5_K"},
    {SCHEME(Q2_K_S), VALUES, SIZE_70B | SHARED_KEYS, "Q5_K"},
    {SCHEME(Q2_K) | SCHEME(Q2_K_S), VALUES, SHARED_KEYS, "Q4_K"},
    {SCHEME(Q2_K), VALUES, 0, "Q3_K"},
    {SCHEME(Q3_K_M), VALUES, BELOW_2, "Q5_K"},
    {SCHEME(Q3_K_M), VALUES, 0, "Q4_K"},
    {SCHEME(Q3_K_L), VALUES, 0, "Q5_K"},
    {IQ4, VALUES, SHARED_KEYS, "Q5_K"},
    {SCHEME(Q4_K_M) | SCHEME(Q5_K_M), VALUES, MORE_BITS, "Q6_K"},
    {SCHEME(Q4_K_M), VALUES, SIZE_70B, "Q5_K"},
    {SCHEME(Q4_K_S), VALUES, BELOW_4, "Q5_K"},

    {ANY_SCHEME, KEYS, EXPERTS_8, "Q8_0"},

    {SCHEME(Q2_K), DOWN, 0, "Q3_K"},
    {SCHEME(Q2_K_S), DOWN, EIGHTH, "Q4_K"},
    {SCHEME(Q3_K_M), DOWN, SIXTEENTH, "Q5_K"},
    {SCHEME(Q3_K_M), DOWN, NOT_FALCON, "Q4_K"},
    {SCHEME(Q3_K_M), DOWN, MORE_BITS, "Q4_K"},
    {SCHEME(Q3_K_L), DOWN, FALCON, "Q4_K"},
    {SCHEME(Q3_K_L), DOWN, 0, "Q5_K"},
    {SCHEME(Q4_K_M), DOWN, FALCON | SIXTEENTH, "Q6_K"},
    {SCHEME(Q4_K_M), DOWN, FALCON | MORE_BITS, "Q5_K"},
    {SCHEME(Q4_K_M), DOWN, NOT_FALCON | MORE_BITS, "Q6_K"},
    {SCHEME(Q5_K_M), DOWN, MORE_BITS, "Q6_K"},
    {SCHEME(Q4_K_S), DOWN, NOT_FALCON | EIGHTH, "Q5_K"},
    {IQ4, DOWN, EIGHTH | NO_IMPORTANCE, "Q5_K"},
    {SCHEME(Q4_0), DOWN, EIGHTH | IMPORTANCE, "Q4_1"},
    {SCHEME(Q5_0), DOWN, EIGHTH | IMPORTANCE, "Q5_1"},

    {SCHEME(Q3_K_L), ATTENTION_OUT, FALCON, "Q4_K"},
    {ANY_SCHEME, ATTENTION_OUT, FALCON, NULL},
    {SCHEME(Q2_K) | SCHEME(Q3_K_S) | SCHEME(Q3_K_M) | SCHEME(Q4_K_S) | SCHEME(Q4_K_M) | IQ4, ATTENTION_OUT, EXPERTS_8,
     "Q5_K"},
    {ANY_SCHEME, ATTENTION_OUT, EXPERTS_8, NULL},
    {SCHEME(Q2_K), ATTENTION_OUT, 0, "Q3_K"},
    {SCHEME(Q3_K_M), ATTENTION_OUT, 0, "Q4_K"},
    {SCHEME(Q3_K_L), ATTENTION_OUT, 0, "Q5_K"},
};

/* Types for columns that are no multiple of the blocks of 256, in blocks of 32. */
static const struct {
    const char *type, *other;
} odd_columns[] = {{"Q2_K", "Q4_0"}, {"Q3_K", "Q4_0"}, {"TQ1_0", "Q4_0"}, {"TQ2_0", "Q4_0"},   {"Q2_0", "Q4_0"},
                   {"Q4_K", "Q5_0"}, {"Q5_K", "Q5_1"}, {"Q6_K", "Q8_0"},  {"IQ4_XS", "IQ4_NL"}};

const char *gguf_type_for_odd_columns(const char *type)
{
    for (size_t i = 0; i < ARRAY_COUNT(odd_columns); i++)
        if (strcmp(type, odd_columns[i].type) == 0)
            return odd_columns[i].other;
    return NULL;
}

/* ---- Facts of a model -------------------------------------------------------------------------------------------- */

/* Architectures whose models of that many layers count as 70B. Source: src/models of llama.cpp. */
static const struct {
    const char *architecture;
    uint64_t layers;
    bool shared_keys; /* and have fewer heads of keys than of queries; the others are 65B */
} sizes_70b[] = {{"llama", 80, true}, {"qwen2", 80, false}, {"deci", 80, false}, {"jais2", 68, false}};

/* Architectures that are conditions. */
static const struct {
    const char *architecture;
    unsigned with, without;
} named[] = {{"falcon", FALCON, NOT_FALCON}, {"bailingmoe3", 0, NOT_BAILING3}};

bool gguf_architecture(const struct gguf_file *file, char *text, size_t size)
{
    const struct gguf_key *key = gguf_find_key(file, "general.architecture");
    const bool found = key && key->kind == GGUF_STRING && !key->is_array;
    if (found)
        gguf_value_text(GGUF_STRING, key->at, text, size);
    return found;
}

uint64_t gguf_number_of(const struct gguf_file *file, const char *architecture, const char *name, uint64_t otherwise)
{
    OWNED char *path = text_format("%s.%s", architecture, name);
    const struct gguf_key *found = path ? gguf_find_key(file, path) : NULL;
    if (!found || found->count == 0)
        return otherwise;
    struct gguf_key key = *found;
    uint64_t number = otherwise;
    key.is_array = false;
    gguf_whole_number(&key, &number);
    return number;
}

static unsigned conditions_of(const struct gguf_file *file, const char *architecture, uint64_t layers, uint64_t experts)
{
    const uint64_t heads = gguf_number_of(file, architecture, "attention.head_count", 0);
    const uint64_t keys = gguf_number_of(file, architecture, "attention.head_count_kv", heads);
    unsigned holds = (keys > 0 && heads / keys >= 4 ? SHARED_KEYS : 0) | (experts == 8 ? EXPERTS_8 : 0);
    for (size_t i = 0; i < ARRAY_COUNT(named); i++)
        holds |= strcmp(architecture, named[i].architecture) == 0 ? named[i].with : named[i].without;
    for (size_t i = 0; i < ARRAY_COUNT(sizes_70b); i++)
        if (strcmp(architecture, sizes_70b[i].architecture) == 0 && layers == sizes_70b[i].layers &&
            (!sizes_70b[i].shared_keys || heads != keys))
            holds |= SIZE_70B;
    return holds;
}

int gguf_mixture_open(struct gguf_mixture *m, const struct gguf_model *model, const struct gguf_scheme *scheme,
                      bool importance, struct fail *f)
{
    const struct gguf_file *file = &model->files[0];
    char architecture[64];
    if (!gguf_architecture(file, architecture, sizeof architecture))
        return fail(f, "%s: has no general.architecture, on which the mixture depends; --pure makes one type of all",
                    file->map.path);
    *m = (struct gguf_mixture){.scheme = scheme,
                               .tied = true,
                               .layers = gguf_number_of(file, architecture, "block_count", 0),
                               .experts = gguf_number_of(file, architecture, "expert_count", 0)};
    if (m->layers == 0)
        return fail(f, "%s: has no %s.block_count, on which the mixture depends; --pure makes one type of all",
                    file->map.path, architecture);
    m->conditions =
        conditions_of(file, architecture, m->layers, m->experts) | (importance ? IMPORTANCE : NO_IMPORTANCE);
    for (size_t i = 0; i < model->tensor_count; i++) {
        const enum category category = category_of(gguf_tensor_at(model, i)->name);
        m->tied &= category != OUTPUT;
        m->values += category == VALUES;
    }
    return QOBS_OK;
}

/* ---- Types ------------------------------------------------------------------------------------------------------- */

static unsigned conditions_of_place(uint64_t place, uint64_t count)
{
    const uint64_t eighth = count / 8;
    const bool more = place < eighth || place >= 7 * count / 8 || (place - eighth) % 3 == 2;
    return (place < 2 ? BELOW_2 : 0) | (place < 4 ? BELOW_4 : 0) | (place < eighth ? EIGHTH : 0) |
           (place < count / 16 ? SIXTEENTH : 0) | (more ? MORE_BITS : 0);
}

int64_t gguf_layer_of(const char *name)
{
    static const char prefix[] = "blk.";
    const char *number = name + sizeof prefix - 1;
    return strncmp(name, prefix, sizeof prefix - 1) == 0 && *number >= '0' && *number <= '9' ? strtoll(number, NULL, 10)
                                                                                             : -1;
}

/* Finds the place of a tensor: among experts its layer, else how many of its kind came before. */
static int find_place(struct gguf_mixture *m, const char *name, enum category category, unsigned *holds, struct fail *f)
{
    uint64_t place = category == VALUES ? m->values_seen++ : category == DOWN ? m->downs_seen++ : 0;
    const bool by_layer = m->experts > 1 && category & (UP | GATE | DOWN);
    if (by_layer)
        place = (uint64_t)gguf_layer_of(name); /* -1 is far above all layers */
    if (by_layer && place >= m->layers)
        return fail(f, "tensor '%.200s': has no layer below %" PRIu64 " in its name, on which the mixture depends",
                    name, m->layers);
    *holds |= conditions_of_place(place, category == VALUES ? m->values : m->layers);
    return QOBS_OK;
}

int gguf_mixture_type(struct gguf_mixture *m, const struct gguf_tensor *t, const char **type, struct fail *f)
{
    enum category category = category_of(t->name);
    qobs_gguf_type of_scheme = {.struct_size = sizeof of_scheme};
    qobs_gguf_describe_type(m->scheme->type, &of_scheme, NULL); /* the table has known types */
    unsigned holds = m->conditions | (t->ndim > 2 && t->shape[t->ndim - 3] > 1 ? STACKED : 0);
    holds |= t->shape[t->ndim - 1] % of_scheme.block_elements != 0 ? ODD_COLUMNS : 0;
    if (category == EMBEDDING && m->tied)
        category = OUTPUT;
    *type = m->scheme->type;
    RETURN_IF_NOT_OK(find_place(m, t->name, category, &holds, f));
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (rows[i].schemes & m->scheme->bit && rows[i].categories & category && !(rows[i].conditions & ~holds)) {
            *type = rows[i].type ? rows[i].type : m->scheme->type;
            break;
        }
    return QOBS_OK;
}
