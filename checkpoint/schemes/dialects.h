/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Dialects of an output: under which format weights of a scheme are stored, and which configuration describes them. A
 * row for each; the tensors are those of the row of the format (formats.h), which reads them, too. */
#pragma once

#include "schemes/quant_config.h"

#define DIALECT_DEFAULT "compressed-tensors"

struct dialect_row {
    const char *name;                 /* of --dialect */
    enum quant_format scheme, stored; /* the format of schemes that it takes, and the one in its place */
    unsigned bits;                    /* bit b: codes of b bits */
    struct {
        const char *members;   /* of quantization_config, the same for all models: JSON */
        const char *symmetric; /* the member that says that there are no zero points; NULL: none */
        const char *excluded;  /* the member with the modules that stay as they are */
        bool patterns;         /* they are keys, "-:^NAME$", of an object; else a list of parts of names */
    } config;
    const char *needs; /* the packages that transformers needs */
};

/* Returns a dialect by index, without the default one; NULL after the last one. */
const struct dialect_row *dialect_at(size_t index);

/* Finds a dialect. *dialect is NULL for the default one. Fails for unknown names with the list of known ones. */
int dialect_find(const struct dialect_row **dialect, const char *name, struct fail *f);

/* Gives a finished configuration the dialect. Fails for schemes that it cannot store, and says what it stores. */
int dialect_apply(struct quant_config *config, const struct dialect_row *dialect, struct fail *f);
