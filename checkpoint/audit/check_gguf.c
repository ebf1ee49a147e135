/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Lists the tensors of a GGUF file and checks its keys against them. The reader has refused before what no loader
 * reads: names that are there twice, data that is cut off, parts that are missing. Sources: docs/gguf.md of ggml 0.21.0
 * for the keys, src/llama-model.cpp of llama.cpp for sizes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "files/text.h"
#include "schemes/gguf_types.h"

#define ARRAY_COUNT(array) (sizeof(array) / sizeof *(array))

static const struct gguf_tensor *tensor_of(const struct audit *audit, const struct audit_module *m)
{
    return audit->gguf.pairs[m - audit->modules].stored;
}

static bool in_blocks(const struct audit *audit, const struct audit_module *m)
{
    return tensor_of(audit, m)->type.block_elements > 1;
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

enum dimension { COLUMNS, ROWS, MATRICES };

/* Sizes of tensors that keys have, too: a number, or as many as a list has. */
static const struct {
    const char *tensor; /* its name, or the end of it that begins with _ */
    enum dimension dimension;
    bool of_architecture; /* its name is the beginning of that of the key */
    const char *key;
} sizes[] = {{"token_embd.weight", COLUMNS, true, "embedding_length"},
             {"token_embd.weight", ROWS, false, "tokenizer.ggml.tokens"},
             {"_exps.weight", MATRICES, true, "expert_count"}};

/* Drafts whose embeddings may be those of their target. */
#define OTHER_SIZES "eagle3 dflash"

static bool is_named(const struct gguf_tensor *t, const char *name)
{
    return *name == '_' ? ends_with(t->name, name) : strcmp(t->name, name) == 0;
}

static void check_size(struct audit *audit, const struct audit_module *m, size_t row, const char *architecture)
{
    static const char *const words[] = {"columns", "rows", "experts"};
    const struct gguf_tensor *t = tensor_of(audit, m);
    const int from_last = (int)sizes[row].dimension;
    if (!is_named(t, sizes[row].tensor) || t->ndim <= from_last)
        return;
    OWNED char *name =
        sizes[row].of_architecture ? text_format("%s.%s", architecture, sizes[row].key) : strdup(sizes[row].key);
    const struct gguf_key *key = name ? gguf_find_key(&audit->gguf.file.files[0], name) : NULL;
    uint64_t wanted = key && key->is_array && !sizes[row].of_architecture ? key->count : 0;
    audit->failed = audit->failed || !name;
    if (key && (wanted > 0 || gguf_whole_number(key, &wanted)) && wanted > 0 &&
        (uint64_t)t->shape[t->ndim - 1 - from_last] != wanted)
        audit_doubt(audit, m, "has %" PRId64 " %s, but %s says %" PRIu64, t->shape[t->ndim - 1 - from_last],
                    words[from_last], name, wanted);
}

static void check_sizes(struct audit *audit, const char *architecture)
{
    for (size_t i = 0; i < audit->module_count; i++)
        for (size_t row = 0; row < ARRAY_COUNT(sizes); row++)
            check_size(audit, &audit->modules[i], row, architecture);
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

/* Adapters have tensors of some layers. */
static bool is_model(const struct gguf_file *file)
{
    char text[16];
    const struct gguf_key *key = gguf_find_key(file, "general.type");
    if (!key || key->kind != GGUF_STRING || key->is_array)
        return true;
    gguf_value_text(GGUF_STRING, key->at, text, sizeof text);
    return strcmp(text, "model") == 0;
}

/* Reports tensors above the layers that a key counts, and layers without any. A model that names layers in another way
 * has none here. Files of drafts begin at a later layer; those of models may lack the layers of drafts. */
static void check_layers(struct audit *audit, const char *architecture)
{
    const struct gguf_file *file = &audit->gguf.file.files[0];
    const uint64_t layers = gguf_number_of(file, architecture, "block_count", 0);
    const uint64_t drafts = gguf_number_of(file, architecture, "nextn_predict_layers", 0);
    const struct audit_module *above = NULL;
    size_t beyond = 0;
    if (layers == 0 || layers > GGUF_MOST_TENSORS || !is_model(file))
        return;
    OWNED bool *seen = calloc((size_t)layers, sizeof *seen);
    audit->failed = audit->failed || !seen;
    for (size_t i = 0; seen && i < audit->module_count; i++) {
        const int64_t layer = gguf_layer_of(audit->modules[i].name);
        if (layer >= (int64_t)layers)
            above = beyond++ == 0 ? &audit->modules[i] : above;
        else if (layer >= 0)
            seen[layer] = true;
    }
    if (above)
        audit_doubt(audit, above, "is one of %zu tensors of other layers: %s.block_count says %" PRIu64, beyond,
                    architecture, layers);
    for (size_t i = 0; seen && seen[0] && i + drafts < layers; i++)
        if (!seen[i])
            audit_doubt(audit, NULL, "layer %zu has no tensor: %s.block_count says %" PRIu64 " layers", i, architecture,
                        layers);
}

/* ---- Types ------------------------------------------------------------------------------------------------------- */

/* The types that the scheme of the file gives to its tensors. */
struct type_counts {
    size_t tensors, other;
    uint64_t elements, fitting;      /* of tensors that it quantizes; those of types that it gives */
    const struct gguf_choice *first; /* of the others */
};

static void count_types(struct type_counts *n, const struct gguf_choice *choices, size_t count,
                        const struct gguf_scheme *scheme)
{
    for (size_t i = 0; i < count; i++) {
        const struct gguf_choice *c = &choices[i];
        const bool given = c->type.number == c->tensor->type.number;
        if (c->stays)
            continue;
        n->tensors++;
        n->elements += c->tensor->elements;
        n->fitting += given || strcmp(c->tensor->type.name, scheme->type) == 0 ? c->tensor->elements : 0;
        if (!given)
            n->first = n->other++ == 0 ? c : n->first;
    }
}

static void report_types(struct audit *audit, const struct type_counts *n, const struct gguf_scheme *scheme)
{
    if (!n->first)
        return;
    const struct gguf_choice *c = n->first;
    if (n->fitting < n->elements / 2)
        audit_find(audit, NULL,
                   "general.file_type says %s, which gives other types to most weights: %zu of %zu tensors, such as "
                   "'%.150s', which is %s in place of %s",
                   scheme->name, n->other, n->tensors, c->tensor->name, c->tensor->type.name, c->type.name);
    else
        audit_note(audit,
                   "%zu of %zu tensors have other types than the mixture of %s, such as '%.150s', which is %s in place "
                   "of %s: chosen by patterns, without a mixture or by another program",
                   n->other, n->tensors, scheme->name, c->tensor->name, c->tensor->type.name, c->type.name);
}

/* Compares types with those of the mixture that general.file_type names. */
static void check_types(struct audit *audit)
{
    struct fail f;
    struct type_counts n = {.first = NULL};
    uint64_t number = 0;
    const struct gguf_file *file = &audit->gguf.file.files[0];
    const struct gguf_key *key = gguf_find_key(file, "general.file_type");
    const struct gguf_scheme *scheme = key && gguf_whole_number(key, &number) ? gguf_scheme_of(number) : NULL;
    if (!scheme) {
        audit_note(audit, "types are not compared: general.file_type is %s",
                   key ? "that of no scheme that is made here" : "missing");
        return;
    }
    const struct gguf_type_request request = {
        .scheme = scheme, .importance = gguf_find_key(file, "quantize.imatrix.entries_count") != NULL};
    struct gguf_choice *choices = NULL;
    const int status = gguf_choose_types(&choices, &audit->gguf.file, &request, &f);
    audit->failed = audit->failed || status == QOBS_ERROR_OUT_OF_MEMORY;
    if (status == QOBS_OK)
        count_types(&n, choices, audit->gguf.file.tensor_count, scheme);
    else
        audit_note(audit, "types are not compared: %.400s", f.message);
    report_types(audit, &n, scheme);
    free(choices);
}

/* llama.cpp adds and multiplies biases and norms as numbers, and no scheme makes blocks of them. */
static void check_staying(struct audit *audit)
{
    for (size_t i = 0; i < audit->module_count; i++) {
        const struct audit_module *m = &audit->modules[i];
        if (in_blocks(audit, m) && (ends_with(m->name, ".bias") || ends_with(m->name, "_norm.weight")))
            audit_doubt(audit, m, "is %s; no scheme makes blocks of biases and norms", tensor_of(audit, m)->type.name);
    }
}

/* ---- Keys -------------------------------------------------------------------------------------------------------- */

static void check_version(struct audit *audit)
{
    enum { BLOCKS_VERSION = 2 };
    const struct gguf_key *key = gguf_find_key(&audit->gguf.file.files[0], "general.quantization_version");
    uint64_t number = 0;
    size_t i = 0;
    while (i < audit->module_count && !in_blocks(audit, &audit->modules[i]))
        i++;
    if (i == audit->module_count || (key && gguf_whole_number(key, &number) && number == BLOCKS_VERSION))
        return;
    audit_find(audit, NULL, "general.quantization_version is %s, but '%.200s' is %s, whose version is %d",
               key ? "another" : "missing", audit->modules[i].name, tensor_of(audit, &audit->modules[i])->type.name,
               BLOCKS_VERSION);
}

static void check_keys(struct audit *audit)
{
    char architecture[64];
    check_version(audit);
    check_staying(audit);
    if (!audit->is_output) /* its types are as they were chosen */
        check_types(audit);
    if (!gguf_architecture(&audit->gguf.file.files[0], architecture, sizeof architecture)) {
        audit_doubt(audit, NULL, "has no general.architecture, without which no runtime loads it");
        return;
    }
    check_layers(audit, architecture);
    if (!is_one_of(architecture, OTHER_SIZES))
        check_sizes(audit, architecture);
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

/* Lists all tensors by name. */
static int list(struct audit *audit, struct fail *f)
{
    const struct gguf_model *g = &audit->gguf.file;
    size_t n = 0;
    audit->modules = calloc(g->tensor_count + 1, sizeof *audit->modules);
    audit->gguf.pairs = calloc(g->tensor_count + 1, sizeof *audit->gguf.pairs);
    if (!audit->modules || !audit->gguf.pairs)
        return NO_MEMORY(f, "the tensors");
    for (size_t i = 0; i < g->file_count; i++)
        for (size_t t = 0; t < g->files[i].count; t++)
            audit->gguf.pairs[n++] = (struct audit_pair){g->files[i].tensors[t].name, &g->files[i].tensors[t], NULL};
    named_sort(audit->gguf.pairs, n, sizeof *audit->gguf.pairs);
    for (; audit->module_count < n; audit->module_count++) {
        struct audit_module *m = &audit->modules[audit->module_count];
        m->name = strdup(audit->gguf.pairs[audit->module_count].name);
        if (!m->name)
            return NO_MEMORY(f, "the tensors");
        m->length = strlen(m->name);
        m->quantized = in_blocks(audit, m);
    }
    return QOBS_OK;
}

/* Pairs a tensor of the original with that of the file. Returns false if its numbers cannot be compared. */
static bool pair(struct audit *audit, const struct gguf_tensor *original)
{
    const struct audit_pair *found =
        named_find(audit->gguf.pairs, audit->module_count, sizeof *audit->gguf.pairs, original->name);
    if (!found) {
        const struct audit_module missing = {.name = original->name};
        audit_find(audit, &missing, "is missing; the original has it in %s", original->type.name);
        return true;
    }
    struct audit_module *m = &audit->modules[found - audit->gguf.pairs];
    const struct gguf_tensor *t = found->stored;
    const bool same_type = t->type.number == original->type.number;
    m->sound = true; /* the original has it */
    m->quantized = m->quantized || !same_type;
    if (t->ndim == original->ndim && memcmp(t->shape, original->shape, sizeof t->shape) == 0)
        audit->gguf.pairs[found - audit->gguf.pairs].original = original;
    else
        audit_find(audit, m, "has another shape than the original");
    return same_type || (t->type.made && original->type.made);
}

static void pair_all(struct audit *audit)
{
    const struct gguf_model *g = &audit->gguf.original;
    const struct gguf_tensor *first = NULL;
    size_t unread = 0;
    for (size_t i = 0; i < g->file_count; i++)
        for (size_t t = 0; t < g->files[i].count; t++)
            if (!pair(audit, &g->files[i].tensors[t]))
                first = unread++ == 0 ? &g->files[i].tensors[t] : first;
    if (first)
        audit_note(audit, "%zu tensors are not compared, such as '%.200s': types are not read here", unread,
                   first->name);
    for (size_t i = 0; i < audit->module_count; i++)
        if (!audit->modules[i].sound)
            audit_find(audit, &audit->modules[i], "is not in the original");
}

int audit_list_gguf(struct audit *audit, struct fail *f)
{
    RETURN_IF_NOT_OK(list(audit, f));
    if (audit->args->against)
        pair_all(audit);
    check_keys(audit);
    return QOBS_OK;
}
