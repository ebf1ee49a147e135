/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Importance matrices of llama.cpp: for each weight the mean square of each column of its inputs. Files have the form
 * GGUF, with tensors NAME.in_sum2 and NAME.counts, or the older one: i32 number of entries, then for each i32 length of
 * the name, the name, i32 calls, i32 number of values, f32 values, which are means times calls; then i32 chunks,
 * i32 length of the dataset's name and the name, if they are there. Sources: tools/imatrix/imatrix.cpp and
 * src/llama-quant.cpp of llama.cpp, gguf-py. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "files/mapped.h"

/* An entry holds one vector for each matrix of a weight: experts have many, other weights one. */
struct imatrix_entry {
    char *name;                  /* "blk.0.attn_q.weight" */
    const unsigned char *values; /* f32, not aligned */
    uint64_t value_count;
    const unsigned char *counts; /* f32, one for each matrix; NULL: the older form */
    uint64_t matrices;           /* 0: unknown, in the older form */
    int32_t calls;               /* of the older form */
};

enum { IMATRIX_TEXT = 127 }; /* bytes of texts that llama-quantize keeps */

struct imatrix {
    struct mapped map;
    char dataset[IMATRIX_TEXT + 1]; /* what the first text was; empty: unknown */
    uint32_t chunks;                /* of texts; 0: unknown */
    struct imatrix_entry *entries;  /* sorted by name with strcmp */
    size_t count;
};

/* Returns true if `path` is a file of one of the two forms: it begins with GGUF, or its name ends in .dat or .imatrix.
 */
bool imatrix_is(const char *path);

/* Opens a file and checks its entries. On failure *im is zeroed. */
int imatrix_open(struct imatrix *im, const char *path, struct fail *f);

/* The same for a map, which moves into *im or is closed. */
int imatrix_open_mapped(struct imatrix *im, struct mapped *map, struct fail *f);
void imatrix_close(struct imatrix *im);

/* Returns the entry with that name, or NULL. */
const struct imatrix_entry *imatrix_find(const struct imatrix *im, const char *name);

/* Writes the mean squares of the columns of one matrix; all are 1 if it was never called. Fails if the entry has
 * another number of columns or no such matrix, and if a number is negative, NaN or infinite. */
int imatrix_read(const struct imatrix *im, const struct imatrix_entry *e, uint64_t matrix, int64_t columns, float *mean,
                 struct fail *f);

/* ---- Between the files of this folder ---------------------------------------------------------------------------- */

/* Appends an entry without values; `name` is copied and may contain no zero byte. Returns NULL after a failure. */
struct imatrix_entry *imatrix_add(struct imatrix *im, const unsigned char *name, size_t length, struct fail *f);

/* Reads the entries of a GGUF file. On failure the map may be closed. */
int imatrix_read_gguf(struct imatrix *im, struct fail *f);
