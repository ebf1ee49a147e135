/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A table of the element types, and size and stride arithmetic that cannot overflow. */
#include "files/file_dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "files/text.h"

static const struct {
    const char *name;
    size_t bits;
    qobs_dtype dtype;
} rows[FILE_DTYPES] = {[FILE_NONE] = {"none", 0, 0},
#define ROW(name, bits, dtype) [FILE_##name] = {#name, bits, (qobs_dtype)(dtype)},
                       FILE_DTYPE_ROWS(ROW)};

enum file_dtype dtype_find(const char *name, size_t length)
{
    for (int i = FILE_NONE + 1; i < FILE_DTYPES; i++)
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0)
            return (enum file_dtype)i;
    return FILE_NONE;
}

const char *dtype_name(enum file_dtype dtype) { return rows[dtype].name; }

size_t dtype_bits(enum file_dtype dtype) { return rows[dtype].bits; }

size_t dtype_size(enum file_dtype dtype) { return rows[dtype].bits % 8 == 0 ? rows[dtype].bits / 8 : 0; }

qobs_dtype dtype_in_library(enum file_dtype dtype) { return rows[dtype].dtype; }

enum file_dtype dtype_in_file(qobs_dtype dtype)
{
    for (int i = FILE_NONE + 1; i < FILE_DTYPES; i++)
        if (rows[i].dtype == dtype && dtype)
            return (enum file_dtype)i;
    return FILE_NONE;
}

bool dtype_is_in(enum file_dtype dtype, file_dtypes set) { return (set >> dtype & 1) != 0; }

const char *dtypes_describe(file_dtypes set, struct dtype_words *words)
{
    words->text[0] = '\0';
    for (int i = FILE_NONE + 1; i < FILE_DTYPES; i++)
        if (dtype_is_in((enum file_dtype)i, set))
            text_append(words->text, sizeof words->text, "%s%s", *words->text ? ", " : "", rows[i].name);
    return words->text;
}

int tensor_bytes(size_t bits, int ndim, const int64_t *shape, uint64_t *bytes)
{
    const uint64_t element = bits % 8 == 0 ? bits / 8 : 1;
    uint64_t product = element;
    int empty = 0;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return -1;
        if (shape[i] == 0)
            empty = 1;
        else if (product > (uint64_t)INT64_MAX / (uint64_t)shape[i])
            return -1;
        else
            product *= (uint64_t)shape[i];
    }
    *bytes = empty ? 0 : bits % 8 == 0 ? product : product / 8 * bits + product % 8 * bits / 8;
    return bits % 8 == 0 || empty || product % 8 * bits % 8 == 0 ? 0 : -1;
}

void tensor_strides(size_t element, int ndim, const int64_t *shape, int fortran, int64_t *strides)
{
    int64_t stride = (int64_t)element;
    for (int i = 0; i < ndim; i++) {
        const int dim = fortran ? i : ndim - 1 - i;
        strides[dim] = stride;
        stride *= shape[dim];
    }
}

const char *shape_describe(int ndim, const int64_t *shape, struct shape_words *words)
{
    char *p = words->text;
    *p++ = '[';
    for (int i = 0; i < ndim; i++)
        p += sprintf(p, "%s%" PRId64, i ? "," : "", shape[i]);
    memcpy(p, "]", 2);
    return words->text;
}
