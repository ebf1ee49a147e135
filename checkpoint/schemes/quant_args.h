/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How one tensor is quantized: the members of compressed-tensors' QuantizationArgs, their JSON, and the settings of a
 * qobs preset that they mean. */
#pragma once

#include "files/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "files/fail.h"
#include "files/file_dtype.h"

enum quant_type { QUANT_INT, QUANT_FLOAT };

enum quant_strategy {
    QUANT_TENSOR,
    QUANT_CHANNEL,
    QUANT_GROUP,
    QUANT_BLOCK,
    QUANT_TOKEN,
    QUANT_TENSOR_GROUP,
    QUANT_ATTN_HEAD
};

enum quant_dynamic { QUANT_STATIC, QUANT_DYNAMIC, QUANT_LOCAL };

struct quant_args {
    int num_bits;
    enum quant_type type;
    bool symmetric;
    int64_t group_size; /* 0: null */
    enum quant_strategy strategy;
    int64_t block_structure[2]; /* rows, columns; 0, 0: null */
    enum quant_dynamic dynamic;
    char *actorder;                        /* NULL: null */
    enum file_dtype scale_dtype, zp_dtype; /* FILE_NONE: null, which means the dtype of the weight */
    bool has_zp_dtype;                     /* it was given, if only as null */
    char *observer;               /* such as "memoryless_mse"; NULL: null, which means memoryless_minmax for weights */
    json_object *observer_kwargs; /* an object, or NULL: {} */
};

/* Reads an object of JSON. Absent members have the defaults of QuantizationArgs (num_bits 8, type int, symmetric true,
 * strategy by group_size and block_structure as its validators do). `where` begins the message of a failure. Fails for
 * unknown members, values of wrong kinds and combinations that QuantizationArgs refuses. */
int quant_args_read(struct quant_args *args, const json_object *json, const char *where, struct fail *f);

/* Sets one member, `key`, from `member` of a foreign object. */
int quant_args_take(struct quant_args *args, const char *key, const json_object *json, const char *member,
                    const char *where, struct fail *f);

/* Returns the object with every member, as compressed-tensors 0.19 writes it, or with omits_unset without those that
 * 0.20 leaves out. NULL: no memory. */
json_object *quant_args_json(const struct quant_args *args, bool omits_unset);

/* Removes the members of such an object that 0.20 leaves out because they are null or empty. Takes any JSON. */
void quant_args_omit_unset(json_object *json);

/* Returns the dtype of codes and zero points that are an element each. */
enum file_dtype quant_code_dtype(const struct quant_args *args);

/* Returns the word of JSON, such as "tensor_group" and "float8_e4m3fn"; "null" for FILE_NONE. */
const char *quant_strategy_name(enum quant_strategy strategy);
const char *quant_dtype_name(enum file_dtype dtype);

/* Writes the shape of the scales of a matrix and returns the number of dimensions. */
int scale_shape(const struct quant_args *args, const int64_t *matrix, int64_t *shape);

/* Copies deeply. Returns -1 if there is no memory. */
int quant_args_copy(struct quant_args *to, const struct quant_args *from, struct fail *f);
void quant_args_free(struct quant_args *args);

/* Sets one member from the text of --set KEY=VALUE: a member of the structure, else a member of observer_kwargs. */
int quant_args_set(struct quant_args *args, const char *key, const char *value, struct fail *f);

/* The same for "KEY=VALUE". */
int quant_args_assign(struct quant_args *args, const char *assignment, struct fail *f);

/* Writes the settings "num_bits=4 type=int ..." of the llmc presets to `text`, observer_kwargs included. */
int quant_args_settings(const struct quant_args *args, char *text, size_t size, struct fail *f);

/* Creates the configuration of the library for a weight: the preset of the observer with these settings. observers: the
 * beginning of the preset's name, such as "llmc". */
int quant_args_config(const struct quant_args *args, const char *observers, qobs_config **config, struct fail *f);
