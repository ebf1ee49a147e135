/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Dialects of an output: under which format weights of a scheme are stored, and which configuration describes them. A
 * row for each; the tensors are those of the row of the format (formats.h), which reads them, too. */
#pragma once

#include "schemes/quant_config.h"

#define DIALECT_DEFAULT "compressed-tensors"

/* Schemes that a dialect takes, and how it stores their weights. */
struct dialect_form {
    enum quant_format scheme, stored; /* their format, and the one in its place; stored 0: it is read alone */
    unsigned bits;                    /* bit b: integers of b bits in groups or channels, without quantized inputs */
    const char *preset;               /* of other schemes, which have its members; NULL: bits counts */
    const char *algorithm;            /* its name in the configuration (quant_algo); NULL: it has none */
    const char *members;              /* of the configuration, beside those of the dialect: JSON */
    int group_size;                   /* that the configuration says; 0: it says none */
    bool other_inputs;                /* its inputs are quantized as no scheme does; the preset has its codes */
};

struct dialect_row {
    const char *name;                 /* of --dialect */
    const struct dialect_form *forms; /* the last one has no format */
    struct {
        const char *members;   /* of quantization_config, the same for all models: JSON */
        const char *bits;      /* members with the bits of integers, and that says that there are no zero points; */
        const char *symmetric; /* NULL: none */
        const char *excluded;  /* the member with the modules that stay as they are */
        bool patterns;         /* they are keys, "-:^NAME$", of an object; else a list of parts of names */
        bool file;             /* hf_quant_config.json says the same */
        bool kv_cache;         /* it describes keys and values in e4m3 with one scale each */
    } config;
    const char *needs; /* the packages that transformers needs; NULL: it does not read the dialect */
};

/* Returns a dialect by index, without the default one; NULL after the last one. */
const struct dialect_row *dialect_at(size_t index);

/* Returns the row of a dialect that has an algorithm for each form. */
const struct dialect_row *dialect_of_algorithms(void);

/* Returns the form of a group, which dialect_apply has found to be there. */
const struct dialect_form *dialect_form(const struct dialect_row *dialect, const struct quant_group *group);

/* Finds a dialect. *dialect is NULL for the default one. Fails for unknown names with the list of known ones. */
int dialect_find(const struct dialect_row **dialect, const char *name, struct fail *f);

/* Gives a finished configuration the dialect. Fails for schemes that it cannot store, and says what it stores. */
int dialect_apply(struct quant_config *config, const struct dialect_row *dialect, struct fail *f);
