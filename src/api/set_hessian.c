/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The Hessian of errors from outside, in place of activations: it is kept as the Gram of one token, and its diagonal as
 * the importance of the columns. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "config/settings.h"
#include "number/convert.h"
#include "observer/searches.h"

static int check_observer(const qobs_observer *o, qobs_error *error)
{
    if (!o)
        return qobs_invalid(error, "observer: is NULL");
    if (!qobs_needs_gram(&o->stages))
        return qobs_invalid(error, "observer: %s does not weigh errors by a Hessian%s", o->config.preset->name,
                            qobs_setting_find(o->config.preset, "hessian_block_size") ? " without hessian_block_size"
                                                                                      : "");
    if (o->counts.batches > 0)
        return qobs_invalid(error, "observer: has observed %llu batches, hessian comes before the first",
                            (unsigned long long)o->counts.batches);
    return QOBS_OK;
}

/* Columns of a block, if there are that many in all. A Model-Optimizer search does without a Hessian if a block has
 * fewer than the setting says. */
static int64_t block_of(const qobs_observer *o, const struct gram *gram)
{
    const struct range_rule *range = &o->stages.range;
    return range->ops->state ? range->params.multiplier.hessian_block : gram->block;
}

/* Makes the view and a gram of its shape, without sums. */
static int check_shape(const qobs_observer *o, const qobs_tensor *hessian, struct view *h, struct gram *gram,
                       qobs_error *error)
{
    RETURN_IF_FAILED(qobs_view_of_tensor(h, hessian, "hessian", error));
    if (h->dtype != QOBS_F32 && h->dtype != QOBS_F64)
        return qobs_invalid(error, "hessian: dtype is %s, allowed are F32 and F64", qobs_dtype_name(h->dtype));
    if (h->ndim != 3 || h->elements == 0)
        return qobs_invalid(error, "hessian: has %d dimensions and %lld elements, allowed are 3 and at least 1",
                            h->ndim, (long long)h->elements);
    const int64_t blocks = h->shape[0], block = h->shape[1];
    if (block != h->shape[2])
        return qobs_invalid(error, "hessian: has blocks of %lld rows and %lld columns, allowed are squares",
                            (long long)block, (long long)h->shape[2]);
    *gram = qobs_gram_for(&o->stages, blocks * block); /* fits, as the number of elements does */
    if (block_of(o, gram) != block || gram->block != block || qobs_gram_blocks(gram) != blocks)
        return qobs_invalid(
            error, "hessian: has %lld blocks of %lld columns, allowed for %lld columns are blocks of %lld",
            (long long)blocks, (long long)block, (long long)gram->columns, (long long)block_of(o, gram));
    return QOBS_OK;
}

static double entry(const struct view *h, int64_t i, int64_t j, int64_t k)
{
    return qobs_element(h->data + i * h->strides[0] + j * h->strides[1] + k * h->strides[2], h->dtype);
}

static int check_entries(const struct view *h, qobs_error *error)
{
    for (int64_t i = 0; i < h->shape[0]; i++)
        for (int64_t j = 0; j < h->shape[1]; j++)
            for (int64_t k = 0; k < h->shape[2]; k++) {
                const double x = entry(h, i, j, k);
                if (!isfinite(x) || (j == k && x < 0))
                    return qobs_invalid(error, "hessian: [%lld][%lld][%lld] is %g, allowed are finite numbers%s",
                                        (long long)i, (long long)j, (long long)k, x,
                                        j == k ? " from 0 on the diagonal" : "");
            }
    return QOBS_OK;
}

/* e^T H e depends on the symmetric part of H alone. Halves do not overflow; equal entries keep their bits. */
static double symmetric(const struct view *h, int64_t i, int64_t j, int64_t k)
{
    const double a = entry(h, i, j, k), b = entry(h, i, k, j);
    return a == b ? a : a / 2 + b / 2;
}

static void fill(const struct view *h, struct gram *gram, struct importance *importance)
{
    const int64_t block = gram->block;
    gram->tokens = importance->tokens = 1;
    for (int64_t i = 0; i < h->shape[0]; i++) {
        double *const sum = gram->sum + i * block * block;
        for (int64_t j = 0; j < block; j++) {
            for (int64_t k = 0; k <= j; k++)
                sum[j * block + k] = sum[k * block + j] = symmetric(h, i, j, k);
            importance->sum[i * block + j] = sum[j * block + j];
        }
    }
}

/* Takes the memory of activations observed before, if it has the size. */
static int replace(qobs_observer *o, const struct view *h, struct gram *gram, qobs_error *error)
{
    struct importance importance = {0};
    const bool same = o->gram.sum && o->gram.columns == gram->columns && o->importance.columns == gram->columns;
    if (!same) {
        RETURN_IF_FAILED(qobs_importance_reserve(&o->runtime, &importance, gram->columns, error));
        const int status = qobs_gram_reserve(&o->runtime, gram, error);
        if (status != QOBS_OK) {
            qobs_importance_release(&o->runtime, &importance);
            return status;
        }
        qobs_importance_release(&o->runtime, &o->importance);
        qobs_gram_release(&o->runtime, &o->gram);
        o->importance = importance;
        o->gram = *gram;
    }
    fill(h, &o->gram, &o->importance);
    return QOBS_OK;
}

int qobs_observer_set_hessian(qobs_observer *o, const qobs_tensor *hessian, qobs_error *error)
{
    struct view view;
    struct gram gram;
    RETURN_IF_FAILED(check_observer(o, error));
    RETURN_IF_FAILED(check_shape(o, hessian, &view, &gram, error));
    const fp_mode mode = fp_enter();
    int status = check_entries(&view, error);
    if (status == QOBS_OK)
        status = replace(o, &view, &gram, error);
    fp_leave(mode);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}
