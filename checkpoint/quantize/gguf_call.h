/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A GGUF file of another: its tensors as the types of a scheme, its keys as they are. */
#pragma once

#include "engine/engine.h"
#include "files/json.h"
#include "model/findings.h"
#include "quantize/gguf_sink.h"
#include "quantize/gguf_weights.h"

/* Arguments of gguf_quantize. Texts and lists belong to the caller; NULL and 0 mean: not given. */
struct gguf_quantize_args {
    const char *model;         /* the file, or the first part of several */
    const char *scheme;        /* its name */
    const char *out;           /* the new file; not used by a dry run */
    bool replace;              /* a file that is there */
    bool pure, dry_run;        /* dry_run: types and sizes alone, nothing is written */
    struct texts tensor_types; /* "PATTERN=TYPE" */
    struct texts importance;   /* imatrix files; the last one that has a tensor counts */
    struct texts states;       /* directories of saved observers, after those: importance and Hessians */
    struct texts settings;     /* "rounding=descent" or "rounding=nearest" */
    bool optimal;              /* blocks of less error than those of ggml, whose bytes are the default */
    bool keep_findings;        /* findings of the audit stop nothing */
    const qobs_runtime *runtime;
    int (*progress)(void *context, const qobs_progress *progress);
    void *context;
};

/* Quantizes a file. *report receives a text in JSON, to be freed, also after FINDINGS. Fails for input that would have
 * no effect, and then nothing is written. The output is audited, and appears by its name when it is complete. */
int gguf_quantize(const struct gguf_quantize_args *args, char **report, struct fail *f);

/* ---- Between the files of the library ---------------------------------------------------------------------------- */

/* Zero-initialize it. */
struct gguf_call {
    const struct gguf_quantize_args *args;
    const struct gguf_scheme *scheme;
    struct gguf_model model;
    struct gguf_choice *choices;
    struct gguf_weights weights;
    struct imatrix *imatrix; /* one for each file */
    size_t imatrix_count;
    struct gguf_tensor *tensors; /* of the output; their names belong to the model */
    struct gguf_header header;
    struct output out;
    struct gguf_sink sink;
    struct quant_config no_config; /* the engine reads both until it is closed */
    struct importance_sources no_importance;
    struct engine engine;
    struct meter meter;
    struct audited audited;
};

/* Writes the output to its temporary file; a dry run stops before. gguf_call_release follows in any case. */
int gguf_call_run(struct gguf_call *call, struct fail *f);
void gguf_call_release(struct gguf_call *call);

/* Returns true if importance changes the blocks of a tensor. The search "optimal" weighs the errors of all types. */
static inline bool gguf_uses_importance(const struct gguf_call *call, const struct gguf_choice *choice)
{
    return choice->type.uses_importance || (call->args->optimal && choice->type.block_elements > 1);
}

/* Returns a text, to be freed; NULL: no memory. */
char *gguf_report(const struct gguf_call *call);
