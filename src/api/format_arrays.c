/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Rounding and encoding of arrays in a number format, with checked arguments. */
#include "base/struct_size.h"
#include "number/format.h"

static int open_arrays(qobs_format_array_args *a, const qobs_format_array_args *args, bool codes, size_t *n,
                       qobs_error *error)
{
    RETURN_IF_FAILED(ARGS_READ(qobs_format_array_args, a, args, saturate, error));
    if (!a->format)
        RETURN_IF_FAILED(qobs_invalid(error, "format: is NULL"));
    if (a->x_size % sizeof *a->x != 0)
        RETURN_IF_FAILED(
            qobs_invalid(error, "x: has %zu bytes, allowed are multiples of %zu", a->x_size, sizeof *a->x));
    RETURN_IF_FAILED(array_check("x", a->x, a->x_size, a->x_size, error));
    *n = a->x_size / sizeof *a->x;
    return array_check("out", a->out, a->out_size, *n * (codes ? qobs_format_size(a->format) : sizeof(float)), error);
}

int qobs_format_round_array(const qobs_format_array_args *args, qobs_error *error)
{
    qobs_format_array_args a;
    size_t n;
    RETURN_IF_FAILED(open_arrays(&a, args, false, &n, error));
    qobs_round_floats(a.format, n, a.x, a.out, a.saturate);
    return qobs_succeed(error);
}

int qobs_format_encode_array(const qobs_format_array_args *args, qobs_error *error)
{
    qobs_format_array_args a;
    size_t n;
    RETURN_IF_FAILED(open_arrays(&a, args, true, &n, error));
    qobs_encode_floats(a.format, n, a.x, a.out, a.saturate);
    return qobs_succeed(error);
}
