/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A table of the element types, and size and stride arithmetic that cannot overflow. */
#include "files/file_dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char dtype_names[] = "U64, I64, F64, C64, F32, U32, I32, BF16, F16, U16, I16, F8_E5M2FNUZ, F8_E4M3FNUZ, F8_E8M0, "
                           "F8_E4M3, F8_E5M2, I8, U8, F6_E3M2, F6_E2M3, F4, BOOL";

/* The order of safetensors 0.8 within a file. */
static const struct {
    char name[DTYPE_NAME];
    size_t bits;
} known[] = {
    {"U64", 64},        {"I64", 64},    {"F64", 64},    {"C64", 64},    {"F32", 32}, {"U32", 32},
    {"I32", 32},        {"BF16", 16},   {"F16", 16},    {"U16", 16},    {"I16", 16}, {"F8_E5M2FNUZ", 8},
    {"F8_E4M3FNUZ", 8}, {"F8_E8M0", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"I8", 8},   {"U8", 8},
    {"F6_E3M2", 6},     {"F6_E2M3", 6}, {"F4", 4},      {"BOOL", 8},
};

int dtype_rank(const char *dtype)
{
    int rank = 0;
    while (rank < (int)(sizeof known / sizeof known[0]) && strcmp(known[rank].name, dtype) != 0)
        rank++;
    return rank;
}

size_t dtype_bits(const char *dtype)
{
    const size_t rank = (size_t)dtype_rank(dtype);
    return rank < sizeof known / sizeof known[0] ? known[rank].bits : 0;
}

size_t dtype_size(const char *dtype)
{
    const size_t bits = dtype_bits(dtype);
    return bits % 8 == 0 ? bits / 8 : 0;
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
