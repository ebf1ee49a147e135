/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The reference amax and error weights of Model-Optimizer's searches, set before the first batch. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "number/convert.h"
#include "base/tensor.h"
#include "plan/loops.h"
#include "observer/state_parts.h"

/* Makes a view of the tensor. The observer must accept it and must not have observed a batch. */
static int check(const qobs_observer *o, const qobs_tensor *tensor, const char *name, struct view *view,
                 qobs_error *error)
{
    if (!o)
        return qobs_invalid(error, "observer: is NULL");
    if (!qobs_range_has_reference(o->stages.range.ops))
        return qobs_invalid(error, "observer: %s takes no %s", o->config.preset->name, name);
    if (o->counts.batches > 0)
        return qobs_invalid(error, "observer: has observed %llu batches, %s comes before the first",
                            (unsigned long long)o->counts.batches, name);
    RETURN_IF_FAILED(qobs_view_of_tensor(view, tensor, name, error));
    enum kernel_dtype unused;
    if (!qobs_kernel_dtype_of(view->dtype, &unused) || view->elements == 0)
        return qobs_invalid(error, "%s: has %lld elements of %s, allowed are F32, BF16, F16, F64 and at least 1", name,
                            (long long)view->elements, qobs_dtype_name(view->dtype));
    return QOBS_OK;
}

/* Writes the elements in C order. */
static int convert(const struct view *view, const char *name, float *numbers, qobs_error *error)
{
    struct loops loops;
    qobs_loops_of_view(view, view->ndim, &loops);
    for (int64_t i = 0; i < view->elements; i++) {
        numbers[i] = (float)qobs_element(qobs_loops_at(&loops, i).in, view->dtype);
        if (!(numbers[i] >= 0) || isinf(numbers[i]))
            return qobs_invalid(error, "%s: element %lld is %g, allowed are finite numbers from 0", name, (long long)i,
                                (double)numbers[i]);
    }
    return QOBS_OK;
}

/* Replaces the array at *to. */
static int replace(qobs_observer *o, const struct view *view, const char *name, float **to, size_t *count,
                   qobs_error *error)
{
    const size_t size = (size_t)view->elements * sizeof(float);
    float *numbers = qobs_allocate_state(&o->runtime, size);
    if (!numbers)
        return qobs_no_memory(error, "%s: no memory for %zu bytes", name, size);
    const fp_mode mode = fp_enter();
    const int status = convert(view, name, numbers, error);
    fp_leave(mode);
    if (status != QOBS_OK) {
        qobs_release(&o->runtime, numbers, size);
        return status;
    }
    qobs_release(&o->runtime, *to, *count * sizeof **to);
    *to = numbers;
    *count = (size_t)view->elements;
    return QOBS_OK;
}

int qobs_observer_set_reference_amax(qobs_observer *o, const qobs_tensor *amax, qobs_error *error)
{
    struct view view;
    RETURN_IF_FAILED(check(o, amax, "amax", &view, error));
    if (o->stages.range.ops->state->reference == REFERENCE_OF_TENSOR && view.elements != 1)
        return qobs_invalid(error, "amax: has %lld elements, %s takes one", (long long)view.elements,
                            o->config.preset->name);
    RETURN_IF_FAILED(replace(o, &view, "amax", &o->reference.amax, &o->reference.count, error));
    o->reference.dtype = view.dtype;
    o->reference.shape = (struct shape){.ndim = view.ndim};
    memcpy(o->reference.shape.extent, view.shape, sizeof o->reference.shape.extent);
    return qobs_succeed(error);
}

int qobs_observer_set_error_weights(qobs_observer *o, const qobs_tensor *weight, qobs_error *error)
{
    struct view view;
    RETURN_IF_FAILED(check(o, weight, "weight", &view, error));
    if (o->stages.range.params.hessian)
        return qobs_invalid(error, "observer: its errors are weighted by a Hessian of hessian_block_size=%lld",
                            (long long)o->stages.range.params.multiplier.hessian_block);
    if (view.ndim != 1)
        return qobs_invalid(error, "weight: has %d dimensions, must have 1", view.ndim);
    RETURN_IF_FAILED(replace(o, &view, "weight", &o->reference.weight, &o->reference.weights, error));
    return qobs_succeed(error);
}

/* ---- As a part of the observer ----------------------------------------------------------------------------------- */

static bool has_reference(const struct stages *stages) { return qobs_range_has_reference(stages->range.ops); }

static int reserve_floats(qobs_observer *o, uint64_t n, float **floats, size_t *count, qobs_error *error)
{
    *floats = qobs_allocate_state(&o->runtime, (size_t)n * sizeof **floats);
    if (!*floats)
        return qobs_no_memory(error, "observer: no memory for %zu bytes", (size_t)n * sizeof **floats);
    *count = (size_t)n;
    return QOBS_OK;
}

/* One replaces another that is still there. */
static int reserve_reference(qobs_observer *o, const struct part_size *p, qobs_error *error)
{
    struct search_reference *r = &o->reference;
    RETURN_IF_FAILED(reserve_floats(o, p->layout->qparams, &r->amax, &r->count, error));
    return reserve_floats(o, (uint64_t)p->columns, &r->weight, &r->weights, error);
}

static void release_reference(qobs_observer *o)
{
    struct search_reference *r = &o->reference;
    qobs_release(&o->runtime, r->amax, r->count * sizeof *r->amax);
    qobs_release(&o->runtime, r->weight, r->weights * sizeof *r->weight);
    *r = (struct search_reference){0};
}

static int code_floats(struct codec *codec, qobs_observer *o, uint64_t n, float **floats, size_t *count,
                       qobs_error *error)
{
    if (n == 0)
        return QOBS_OK;
    if (codec->loading) {
        if (!qobs_codec_holds(codec, n, sizeof **floats))
            return qobs_damaged(error, "its reference amax or error weights are incomplete");
        RETURN_IF_FAILED(reserve_floats(o, n, floats, count, error));
    }
    qobs_code_elements(codec, *floats, (size_t)n, sizeof **floats);
    for (size_t i = 0; i < *count; i++)
        if (!((*floats)[i] >= 0) || isinf((*floats)[i]))
            return qobs_damaged(error, "its reference amax or error weights are impossible");
    return QOBS_OK;
}

static int code_reference(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct search_reference *r = &o->reference;
    QOBS_CODE_MEMBER(codec, qobs_dtype, r->dtype);
    const uint64_t n = qobs_code_u64(codec, r->count);
    if (codec->loading && (r->dtype > 0 ? !qobs_is_observable(r->dtype) : n > 0))
        return qobs_damaged(error, "the dtype of its reference amax is impossible");
    if (n > 0 && qobs_code_shape(codec, &r->shape) != n)
        return qobs_damaged(error, "the shape of its reference amax is impossible");
    RETURN_IF_FAILED(code_floats(codec, o, n, &r->amax, &r->count, error));
    return code_floats(codec, o, qobs_code_u64(codec, r->weights), &r->weight, &r->weights, error);
}

const struct part qobs_part_reference = {.exists = has_reference,
                                         .copies = 2,
                                         .reserve = reserve_reference,
                                         .release = release_reference,
                                         .code = code_reference};
