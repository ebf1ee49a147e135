/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The kind of a module, by the architecture of its model: the rows of architectures.inc and transformers.inc, then a
 * general rule for what has no row. */
#pragma once

#include <stddef.h>

#include "model/model.h"

/* Kinds of modules with a 2-D weight. All but MODULE_LINEAR stay as they are. */
enum module_kind {
    MODULE_LINEAR,
    MODULE_HEAD,   /* gives logits over a vocabulary or classes */
    MODULE_TABLE,  /* looked up by index, such as embeddings; no matrix product */
    MODULE_ROUTER, /* chooses experts */
    MODULE_CONV1D, /* class Conv1D of transformers: stored [in, out] */
    MODULE_KEPT,   /* a matrix product that runtimes keep in the dtype of the model */
    /* Experts in tensors that no runtime loads quantized. A pattern with `*` is a name that a runtime has for them, one
     * without is their module's name in the files. */
    MODULE_EXPERTS,
    MODULE_STACKED_EXPERTS, /* the same, but vLLM loads them one by one, too; transformers does not */
    MODULE_SINGLE_EXPERTS,  /* experts that are split even if they stay unquantized */
    MODULE_ATTENTION,       /* q_proj, k_proj and v_proj in one matrix, which runtimes load one by one, too */
    MODULE_KINDS
};

/* A row of the table. Names are those in the files: the last components of a module's name, separated by dots. A
 * component `*` stands for any one, a `^` before the first says that the name begins there. Lists are separated by
 * spaces. */
struct architecture {
    const char *types;               /* values of model_type; NULL: none */
    const char *classes;             /* values of `architectures`, for types that are not in `types`; NULL: none */
    const char *names[MODULE_KINDS]; /* by kind; NULL: none */
    const char *fused;               /* sets that vLLM runs as one matrix, besides those of fused.c: "a+b+?optional" */
    /* Components of modules that vLLM builds without quantization, so that it does not load them quantized: "a|b.c".
     * A `^` before the first says that the name begins there. */
    const char *vllm_keeps;
    /* The same of modules whose `weight` the initializers of transformers read: it does not load them in a packed
     * format. "*": all modules. */
    const char *needs_weight;
    /* The same of modules of which transformers makes several, and of those of which it makes one: it loads no tensors
     * that have no row for each row of the weight. Sizes of the weight may be joined. */
    const char *splits, *joins;
    /* The same of modules whose weights several layers share, once in the file: transformers ties them without their
     * scales and loads them in no format. */
    const char *ties;
    bool plain_experts;      /* transformers loads its experts only unquantized, as the file of the model has them */
    bool lacks_vllm;         /* vLLM has no class of it */
    bool lacks_transformers; /* transformers has no class of it */
    /* Names that transformers gives a module and the file does not: FROM>TO, components that stand anywhere in the
     * name, or at its beginning after a `^`. Stars of TO stand for those of FROM in their order; an empty TO removes
     * FROM. */
    const char *renames;
    /* Modules that hold draft layers, for speculative decoding (draft.h). A component `+` stands for the number of one
     * of num_nextn_predict_layers layers behind num_hidden_layers. NULL: nothing is known of them. */
    const char *draft;
    const char *draft_ignore; /* entries of `ignore` for names that vLLM gives draft layers which stay */
    bool draft_plain;         /* vLLM loads its draft layers only unquantized */
};

enum { MAX_ARCHITECTURES = 64, MAX_VOCABULARIES = 16 };

/* The source of the rows of config.json itself. */
enum knowledge_source { KNOWLEDGE_RULE, KNOWLEDGE_TABLE, KNOWLEDGE_INSTALLED, KNOWLEDGE_FILE };

/* The runtimes that rows were read from. */
struct versions {
    const char *transformers, *vllm;             /* "5.24.0" */
    char short_transformers[16], short_vllm[16]; /* "5.24" */
};

/* The rows of a file, in place of those of the table that have one of their types (architecture_file.c). */
struct architecture_file {
    enum knowledge_source source;
    struct versions versions;
    struct architecture *rows;
    size_t count;
    char **texts; /* of the rows */
    size_t text_count;
};

/* The rows of a model: of the model_type or the class of config.json and of all its sub-configurations. */
struct architectures {
    const struct architecture_file *file; /* NULL: none */
    enum knowledge_source source;
    struct versions versions; /* of the source; of the table if that is the general rule */
    bool draft;               /* of speculative decoding (model_is_draft) */
    const char *unknown; /* a type or a class, of config.json or of its language model, that has no row; NULL: none */
    bool no_model;       /* config.json has no type and no known class, or is not there: nothing builds the model */
    const struct architecture *rows[MAX_ARCHITECTURES];
    bool root[MAX_ARCHITECTURES]; /* the row is of config.json itself */
    size_t count;
    size_t type_count;
    /* num_hidden_layers and num_nextn_predict_layers of the language model; 0: not given */
    int64_t layers, draft_layers;
    int64_t vocabularies[MAX_VOCABULARIES]; /* values of vocab_size */
    size_t vocabulary_count;
};

/* Finds the rows of a model by its configurations. `file` may be NULL; it and the model must outlive the rows. */
void architectures_find(struct architectures *found, const struct model *model, const struct architecture_file *file);

/* Adds the rows of one model_type or class, either of which may be NULL; root: those of config.json itself. Returns
 * false if there are none. */
bool architectures_add(struct architectures *found, const char *type, const char *class_name, bool root);

/* Sets the versions that the table was made from. */
void architectures_versions(struct versions *versions);

/* Returns the name of a source: "table". */
const char *knowledge_source_name(enum knowledge_source source);

/* Sets the versions and their short forms, which keep the first two numbers. */
void versions_set(struct versions *versions, const char *transformers, const char *vllm);

/* Reads a file of rows; NULL: none. Fails, with its path and the member in the message, if it is no such file. */
int architecture_file_read(struct architecture_file *file, const char *path, struct fail *f);
void architecture_file_free(struct architecture_file *file);

/* Says what a module is. `rows` is the number of rows of its weight, or 0 if the shape is unknown. */
enum module_kind architecture_kind(const struct architectures *found, const char *module, size_t length, int64_t rows);

/* Returns true if the module is inside a numbered block. */
bool architecture_in_block(const char *module, size_t length);

/* Returns the list of a row that has a component of the module's name; NULL: none. `column` is its place: that of
 * vllm_keeps, or, in the rows of config.json alone, needs_weight, splits, joins or ties. */
#define LIST_OF(column) offsetof(struct architecture, column)
const char *architecture_list(const struct architectures *found, size_t column, const char *module, size_t length);

/* Returns true if transformers loads the experts of the model only unquantized. */
bool architecture_plain_experts(const struct architectures *found);

/* Returns true if a runtime does not have the model. */
bool architecture_lacks_transformers(const struct architectures *found);
bool architecture_lacks_vllm(const struct architectures *found);

/* Returns which of the kinds from MODULE_EXPERTS on the tensor's name, or that of its module, is; MODULE_LINEAR: none.
 */
enum module_kind architecture_kind_of_experts(const struct architectures *found, const char *name, size_t length);

/* Returns entry `index` of `ignore` for experts that stay as they are, in `text`; NULL after the last one. */
const char *architecture_experts(const struct architectures *found, size_t index, char *text, size_t size);

/* Returns the name of head `index` of the model as an entry of `ignore`, in `text`; NULL after the last one. lm_head is
 * the first. A model without rows may have any head. */
const char *architecture_head(const struct architectures *found, size_t index, char *text, size_t size);

/* Returns the last components of a module's name as an entry of `ignore` for any prefix and any numbers, in `text`;
 * NULL: the name has fewer. */
const char *architecture_anywhere(const char *module, size_t length, int components, char *text, size_t size);

/* Returns alias `index` of a module, in `text`: another name that transformers has for it; NULL after the last one. */
const char *architecture_alias(const struct architectures *found, const char *module, size_t length, size_t index,
                               char *text, size_t size);
