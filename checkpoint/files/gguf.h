/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* GGUF files: keys with values, then tensors in blocks. All that a file says is checked when it is opened. Values and
 * data stay in the map. Sources: docs/gguf.md and src/gguf.cpp of ggml 0.21.0; src/llama-model-loader.cpp of llama.cpp
 * for files in parts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "files/fail.h"
#include "files/mapped.h"
#include "qobs/gguf.h"

/* Kinds of values, by their numbers in files. */
enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_KINDS
};

struct gguf_key {
    char *name;
    enum gguf_kind kind; /* of the value, or of the values of an array */
    bool is_array;
    uint64_t count;          /* of the values; 1 without an array */
    const unsigned char *at; /* the first value, at any alignment: a number, or a length in 8 bytes and a text */
};

enum { GGUF_DIMS = 4, GGUF_MOST_KEYS = 1 << 16, GGUF_MOST_TENSORS = 1 << 20, GGUF_LONGEST_NAME = 4096 };

struct gguf_tensor {
    char *name;
    qobs_gguf_type type;
    int ndim;
    int64_t shape[GGUF_DIMS]; /* in C order: the columns of blocks come last; files have them first */
    uint64_t elements, bytes, offset;
    const unsigned char *data;
};

struct gguf_file {
    struct mapped map;
    unsigned version;
    uint64_t alignment;
    struct gguf_key *keys; /* in the order of the file, as the tensors */
    size_t key_count;
    struct gguf_tensor *tensors;
    size_t count;
};

/* Opens a file of version 2 or 3. Fails for what the loader of llama.cpp refuses, for more keys, tensors and bytes of a
 * name than the limits above, and for types that qobs/gguf.h does not know. On failure *file is zeroed. */
int gguf_open(struct gguf_file *file, const char *path, struct fail *f);

/* The same for a map, which moves into *file or is closed. */
int gguf_open_mapped(struct gguf_file *file, struct mapped *map, struct fail *f);
void gguf_close(struct gguf_file *file);

/* Returns true if bytes begin as a GGUF file does. */
bool is_gguf(const void *data, size_t size);

/* Returns true if the path is a regular file that begins so. */
bool is_gguf_file(const char *path);

/* Returns the key of that name, or NULL. */
const struct gguf_key *gguf_find_key(const struct gguf_file *file, const char *name);

/* Reads a key that is one whole number. Returns false if it is another. */
bool gguf_whole_number(const struct gguf_key *key, uint64_t *number);

/* Writes the value at `at` as text that fits into `size` bytes, and returns where the next one begins. */
const unsigned char *gguf_value_text(enum gguf_kind kind, const unsigned char *at, char *text, size_t size);

/* Reads the numbers of blocks that lie in `bytes` bytes. Returns a status. */
int gguf_read_numbers(const char *type, int64_t rows, int64_t columns, const void *blocks, size_t bytes, float *numbers,
                      qobs_error *error);

/* Returns the bytes of a key's values in the file. */
size_t gguf_values_size(const struct gguf_key *key);

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* All of a file before its data. */
struct gguf_header {
    unsigned char *data;
    size_t size;         /* with the padding; the data of tensors begins here */
    uint64_t file_bytes; /* of the whole file, with the padding of its last tensor */
};

/* Makes the header of a file of version 3 with these keys and tensors, and sets the offset of each tensor. Values may
 * lie anywhere, as those of a file that is read. Free h->data also after a failure. */
int gguf_header_make(struct gguf_header *h, const struct gguf_key *keys, size_t key_count, struct gguf_tensor *tensors,
                     size_t count, struct fail *f);

/* ---- Models ------------------------------------------------------------------------------------------------------ */

/* A model: a file, or all parts of one that is split, NAME-00001-of-00003.gguf and so on. */
struct gguf_model {
    struct gguf_file *files; /* the first has the keys */
    size_t file_count;
    size_t tensor_count;
    uint64_t bytes; /* of tensors */
};

/* Opens a model by its first part. Fails if a part is missing or is not of this model. On failure *model is zeroed. */
int gguf_open_model(struct gguf_model *model, const char *path, struct fail *f);
void gguf_close_model(struct gguf_model *model);

/* Returns tensor i of all parts. */
const struct gguf_tensor *gguf_tensor_at(const struct gguf_model *model, size_t i);
