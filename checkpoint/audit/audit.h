/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The state of an audit: the modules of a quantized checkpoint, what is stored of each, and what is wrong. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "files/gguf.h"
#include "model/architecture.h"
#include "model/findings.h"
#include "quantize/layout.h"

/* The difference to the original: sums of its squares, and of those of the original; codes that were compared with the
 * nearest ones, and those that are further away. */
struct audit_difference {
    bool known;
    double error, energy;
    uint64_t codes, further;
};

/* The use that a module makes of its codes and scales. */
struct audit_use {
    int used, range;       /* largest magnitude of the codes, and of those there could be */
    unsigned char pair[2]; /* the first codes, if any were seen */
    bool seen, varied;     /* codes are not that pair again and again */
    bool one_scale;        /* all are `scale` */
    float scale;
};

/* A quantized module, or one that the configuration claims. Tensors are NULL if they are missing. */
struct audit_module {
    char *name;
    size_t length;
    const struct quant_group *group;
    const struct st_tensor *codes, *scale, *zero_point, *global_scale, *shape;
    const struct st_tensor *plain; /* an unquantized weight */
    bool quantized;                /* it is checked as a quantized module */
    bool sound;                    /* dtypes and shapes are as they should be */
    int64_t rows, columns;
    struct audit_use use;
    struct audit_difference difference;
};

/* A tensor of a GGUF file, and that of the one before; NULL: none of its shape. */
struct audit_pair {
    const char *name;
    const struct gguf_tensor *stored, *original;
};

/* A GGUF file and the one before. Notes are no faults. */
struct audit_gguf {
    struct gguf_model file, original;
    struct audit_pair *pairs; /* of the modules */
    struct findings notes;
};

struct audit {
    const qobs_checkpoint_audit_args *args;
    bool is_output;    /* of the run at hand: its codes are as written, and its mixed sets are asked for */
    const char *maker; /* whose names the tensors have, Model-Optimizer's or Quark's; NULL: compressed-tensors' */
    struct model model, original;
    struct audit_gguf gguf;             /* in their place */
    struct architecture_file given;     /* rows of the arguments */
    struct architectures architectures; /* of the model */
    struct weights originals[2];        /* experts split as the model says, and by rows as llm-compressor does */
    struct weights words;               /* of AWQ and GPTQ */
    struct quant_config config;
    struct audit_module *modules; /* sorted by name */
    size_t module_count;
    pthread_mutex_t lock; /* protects the members below */
    struct findings findings;
    atomic_bool failed; /* no memory; any thread may set it */
};

/* Lists the modules and finds their tensors, and what is missing. */
int audit_list_modules(struct audit *audit, struct fail *f);

/* Returns true if `ignore` has the module. */
bool audit_ignores(const struct quant_matchers *targets, const char *name, size_t length);

/* Returns a positive integer of config.json, the language model's first; 0: there is none. */
int64_t audit_config_number(const struct audit *audit, const char *key);

/* Compares the shapes of all matrices with config.json. */
void audit_check_sizes(struct audit *audit);

/* Checks heads that have no tensor of their own; experts in a matrix each, for which the modules have their tensors;
 * experts in one tensor. */
void audit_check_heads(struct audit *audit, const struct quant_matchers *targets);
void audit_check_experts(struct audit *audit);
void audit_check_stacked(struct audit *audit, const struct quant_matchers *targets);

/* Checks dtypes, shapes and values of module `index`. `argument` is the audit. Any thread may call it. */
void audit_check_module(void *argument, size_t index);

/* Checks the stored scales of activations of all modules, and those of attention under a kv_cache_scheme. */
void audit_check_activations(struct audit *audit);

/* Writes to set[i] the first module of the set that module i belongs to. */
int audit_find_sets(const struct audit *audit, size_t *set, struct fail *f);

/* Finds the number in "...experts.N.<projection>". Returns the length before it; 0: no expert. */
size_t audit_parse_expert(const char *name, int64_t *number, const char **projection);

/* Compares modules that vLLM runs as one matrix: their schemes, for which `modules` has those that are not quantized,
 * or their global scales. */
int audit_check_sets(struct audit *audit, bool schemes, struct fail *f);

/* The same of a checkpoint in words of AWQ and GPTQ: says whether the configuration is one, lists its modules, checks a
 * module. A tensor that does not fit is a finding. */
bool audit_is_of_words(const struct audit *audit);
int audit_list_words(struct audit *audit, struct fail *f);
void audit_check_words(void *argument, size_t index);

/* The same of a GGUF file: each tensor is a module. Keys and types are checked with the list. */
int audit_list_gguf(struct audit *audit, struct fail *f);
void audit_check_blocks(void *argument, size_t index);

/* Returns the weight of a module before it was quantized, or NULL; reports one that is missing or of another shape. */
const struct weight *audit_original_of(struct audit *audit, const struct audit_module *module);

/* Reports a module that holds nothing of its original. */
void audit_check_error(struct audit *audit, const struct audit_module *module);

/* Reports entries of `ignore`, targets and members of extra_config with a word that no tensor has and that is nearly
 * one that tensors have. */
void audit_check_entries(struct audit *audit);

/* Looks at codes or at the scales of a module for what does not vary. */
void audit_see_codes(struct audit_module *module, const unsigned char *codes, size_t count);
void audit_see_scales(struct audit_module *module);

/* Reports a module whose codes do not vary; a model whose scales do not; keys and values whose scales are all 1. */
void audit_check_constant(struct audit *audit, const struct audit_module *module);
void audit_check_same_scales(struct audit *audit);
void audit_check_cache_scales(struct audit *audit);

/* Returns the name of a part in the files: that of compressed-tensors, or Model-Optimizer's for it. */
const char *audit_part_name(const struct audit *audit, const char *part);

/* Records a finding. Any thread may call it. */
void audit_find(struct audit *audit, const struct audit_module *module, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same of a fault that another list of what is not quantized mends. */
void audit_contradict(struct audit *audit, const struct audit_module *module, enum finding_mend mend,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The same of what an output has from its input, in keys and in copies: there it is a note that stops nothing. */
void audit_doubt(struct audit *audit, const struct audit_module *module, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a note to the report of a GGUF file. */
void audit_note(struct audit *audit, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the tensor <module>.<part>, or NULL. `part` has the name of compressed-tensors. */
const struct st_tensor *audit_part(const struct audit *audit, const struct audit_module *module, const char *part);

/* Returns the number of elements of a tensor. */
size_t audit_element_count(const struct st_tensor *t);

/* Counts the scales of a tensor that are not above 0, or with `with_sign` not other than 0, and finite. *first receives
 * the index of the first. */
size_t audit_count_wrong(const struct st_tensor *t, size_t count, bool with_sign, size_t *first);

/* Returns scale i of a tensor with scales: BF16, F16, F32, F8_E4M3, or U8 as exponents of powers of two. */
float audit_scale_number(const struct st_tensor *t, size_t i);

/* Returns the report. NULL: no memory. */
json_object *audit_report(const struct audit *audit);

/* Opens the checkpoint of `args` and runs the checks. Fails if it cannot be read. audit_free follows in any case. */
int audit_run(struct audit *audit, struct fail *f);
void audit_free(struct audit *audit);
