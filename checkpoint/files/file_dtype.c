/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A table of the element types, and size and stride arithmetic that cannot overflow. */
#include "files/file_dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char dtype_names[] = "F32, BF16, F16, F64, I64, I32, I16, I8, U8, U16, U32, U64, BOOL, F8_E4M3, F8_E5M2, F8_E8M0";

static const struct {
    char name[DTYPE_NAME];
    size_t size;
} known[] = {
    {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"I64", 8},  {"I32", 4},     {"I16", 2},     {"I8", 1},
    {"U8", 1},  {"U16", 2},  {"U32", 4}, {"U64", 8}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
};

size_t dtype_size(const char *dtype)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, dtype) == 0)
            return known[i].size;
    return 0;
}

int tensor_bytes(size_t element, int ndim, const int64_t *shape, uint64_t *bytes)
{
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
    *bytes = empty ? 0 : product;
    return 0;
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
