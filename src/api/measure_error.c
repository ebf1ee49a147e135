/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_measure_error: walks two tensors of one shape and calls the kernel for contiguous elements. */
#include "base/fpenv.h"
#include "kernels/dispatch.h"
#include "qobs/stateless.h"

/* Bytes of elements that are copied together because they are not contiguous. */
enum { BUFFER_BYTES = 4096 };

struct walk {
    qobs_squared_errors_fn *kernel;
    const struct view *value, *other;
    int outer;   /* leading dimensions that are walked */
    int64_t run; /* elements of the others */
    size_t size; /* bytes of an element */
};

/* Merges the last dimensions in which both tensors are contiguous. */
static void find_runs(struct walk *w)
{
    const struct view *v = w->value, *o = w->other;
    w->outer = v->ndim;
    w->run = 1;
    while (w->outer > 0) {
        const int d = w->outer - 1;
        const int64_t expected = w->run * (int64_t)w->size;
        if (v->shape[d] != 1 && (v->strides[d] != expected || o->strides[d] != expected))
            break;
        w->run *= v->shape[d];
        w->outer = d;
    }
}

/* A dimension without runs, in parts that fit the buffers. */
static void add_strided(const struct walk *w, const unsigned char *x, const unsigned char *y, double *sum)
{
    const int d = w->outer - 1;
    const int64_t size = (int64_t)w->size, most = BUFFER_BYTES / size, x_step = w->value->strides[d],
                  y_step = w->other->strides[d];
    unsigned char a[BUFFER_BYTES], b[BUFFER_BYTES];
    for (int64_t first = 0; first < w->value->shape[d]; first += most) {
        const int64_t left = w->value->shape[d] - first, n = left < most ? left : most;
        qobs_copy_elements(size, n, x + first * x_step, x_step, a, size);
        qobs_copy_elements(size, n, y + first * y_step, y_step, b, size);
        w->kernel(a, b, (size_t)n, sum);
    }
}

static void add(const struct walk *w, int d, const unsigned char *x, const unsigned char *y, double *sum)
{
    if (d == w->outer) {
        w->kernel(x, y, (size_t)w->run, sum);
    } else if (d == w->outer - 1 && w->run == 1) {
        add_strided(w, x, y, sum);
    } else {
        for (int64_t i = 0; i < w->value->shape[d]; i++)
            add(w, d + 1, x + i * w->value->strides[d], y + i * w->other->strides[d], sum);
    }
}

static int check_other(const struct view *value, const struct view *other, qobs_error *error)
{
    if (other->dtype != value->dtype)
        return qobs_invalid(error, "other: dtype is %s, value has %s", qobs_dtype_name(other->dtype),
                            qobs_dtype_name(value->dtype));
    if (other->ndim != value->ndim)
        return qobs_invalid(error, "other: ndim is %d, value has %d", other->ndim, value->ndim);
    for (int d = 0; d < value->ndim; d++)
        if (other->shape[d] != value->shape[d])
            return qobs_invalid(error, "other: shape[%d] is %lld, value has %lld", d, (long long)other->shape[d],
                                (long long)value->shape[d]);
    return QOBS_OK;
}

int qobs_measure_error(const qobs_tensor *value, const qobs_tensor *other, double *squared_error, double *energy,
                       qobs_error *error)
{
    RETURN_IF_LEFT_OUT(codes, error);
    struct view v, o;
    enum kernel_dtype dtype;
    double sum[2] = {0};
    RETURN_IF_FAILED(qobs_view_of_tensor(&v, value, "value", error));
    RETURN_IF_FAILED(qobs_view_of_tensor(&o, other, "other", error));
    RETURN_IF_FAILED(qobs_require_kernel_dtype(v.dtype, "value", error));
    qobs_kernel_dtype_of(v.dtype, &dtype);
    RETURN_IF_FAILED(check_other(&v, &o, error));
    if (!squared_error || !energy)
        return qobs_invalid(error, "%s: is NULL", squared_error ? "energy" : "squared_error");
    struct walk w = {.kernel = qobs_kernels_active()->squared_errors[dtype],
                     .value = &v,
                     .other = &o,
                     .size = qobs_dtype_size(v.dtype)};
    find_runs(&w);
    if (v.elements > 0) {
        FP_SCOPE;
        add(&w, 0, v.data, o.data, sum);
    }
    *squared_error = sum[0];
    *energy = sum[1];
    return qobs_succeed(error);
}
