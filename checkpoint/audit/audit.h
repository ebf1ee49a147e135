/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The state of an audit: the modules of a quantized checkpoint, what is stored of each, and what is wrong. */
#pragma once

#include <pthread.h>

#include "model/architecture.h"
#include "quantize/layout.h"

/* A quantized module, or one that the configuration claims. Tensors are NULL if they are missing. */
struct audit_module {
    char *name;
    size_t length;
    const struct quant_group *group;
    const struct st_tensor *codes, *scale, *zero_point, *global_scale, *shape;
    const struct st_tensor *plain; /* an unquantized weight */
    bool sound;                    /* dtypes and shapes are as they should be */
    int64_t rows, columns;
    int used, range;      /* largest magnitude of the codes, and of those there could be */
    double error, energy; /* against the original; energy 0: not compared */
};

struct audit_finding {
    char *module;
    char *text;
};

struct audit {
    const qobs_checkpoint_audit_args *args;
    struct model model, original;
    struct architectures architectures; /* of the model */
    struct weights originals[2]; /* experts split as the model says, and by rows as llm-compressor does */
    struct quant_config config;
    struct audit_module *modules; /* sorted by name */
    size_t module_count;
    pthread_mutex_t lock; /* protects the members below */
    struct audit_finding *findings;
    size_t finding_count;
    bool failed; /* no memory */
};

/* Lists the modules and finds their tensors, and what is missing. */
int audit_list_modules(struct audit *audit, struct fail *f);

/* Checks dtypes, shapes and values of module `index`. `argument` is the audit. Any thread may call it. */
void audit_check_module(void *argument, size_t index);

/* Checks the stored scales of activations of all modules, and those of attention under a kv_cache_scheme. */
void audit_check_activations(struct audit *audit);

/* Compares the global scales of modules that vLLM runs as one matrix. */
int audit_check_sets(struct audit *audit, struct fail *f);

/* Records a finding. Any thread may call it. */
void audit_find(struct audit *audit, const struct audit_module *module, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the tensor <module>.<part>, or NULL. */
const struct st_tensor *audit_part(const struct model *model, const char *module, size_t length, const char *part);

/* Returns true if `dtype` is one of several names, separated by spaces. */
bool audit_is_one_of(const char *dtype, const char *names);

/* Returns scale i of a tensor with scales: BF16, F16, F32, F8_E4M3, or U8 as exponents of powers of two. */
float audit_scale_number(const struct st_tensor *t, size_t i);

/* Returns the JSON report, to be freed with free(). NULL: no memory. */
char *audit_report(const struct audit *audit);
