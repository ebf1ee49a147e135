/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Bytes of quantized weights and of transposed ones are read in place, in an order of their own. A copy takes their
 * place in a process without a handler of bus errors. */
#include "files/deferred.h"
#include "files/mapped.h"
#include "model/weights.h"

struct weight_span weight_span_of(const struct weight *w)
{
    const struct st_tensor *stored = w->source->stored;
    const bool words = w->source_codes.format && w->source_codes.format->words;
    if (w->ndim != 2 || words || w->source_codes.blocks)
        return (struct weight_span){stored->data, (size_t)(stored->end - stored->begin)};
    const int64_t row =
        w->source_codes.format ? w->row_bytes : (w->shape[1] - 1) * w->column_bytes + (int64_t)dtype_size(w->dtype);
    const bool empty = w->shape[0] == 0 || w->shape[1] == 0;
    return (struct weight_span){w->data, empty ? 0 : (size_t)((w->shape[0] - 1) * w->row_bytes + row)};
}

static bool is_borrowed(const struct weight *w)
{
    return w->source_codes.format || w->source_codes.blocks ||
           (w->ndim == 2 && w->column_bytes != (int64_t)dtype_size(w->dtype));
}

int source_codes_borrow(const struct source_codes *c, struct fail *f)
{
    RETURN_IF_NOT_OK(st_borrow(c->scales, f));
    RETURN_IF_NOT_OK(st_borrow(c->zero_points, f));
    return st_borrow(c->group_index, f);
}

void source_codes_release(const struct source_codes *c)
{
    st_release(c->scales);
    st_release(c->zero_points);
    st_release(c->group_index);
}

/* The tensors that a job of the weight reads, with its span. */
enum { WEIGHT_SPANS = 4 };

static void list_spans(const struct weight *w, struct weight_span spans[WEIGHT_SPANS])
{
    const struct source_codes *c = &w->source_codes;
    const struct st_tensor *const tensors[WEIGHT_SPANS - 1] = {c->scales, c->zero_points, c->group_index};
    spans[0] = weight_span_of(w);
    for (int i = 1; i < WEIGHT_SPANS; i++) {
        const struct st_tensor *t = tensors[i - 1];
        spans[i] = t ? (struct weight_span){t->data, (size_t)(t->end - t->begin)} : (struct weight_span){NULL, 0};
    }
}

int weight_borrow(const struct weight *w, struct fail *f)
{
    struct weight_span spans[WEIGHT_SPANS];
    list_spans(w, spans);
    for (int i = 0; i < WEIGHT_SPANS; i++)
        RETURN_IF_NOT_OK(deferred_hold(spans[i].data, spans[i].size, READ_ONCE, f));
    if (!is_borrowed(w))
        return QOBS_OK;
    RETURN_IF_NOT_OK(source_codes_borrow(&w->source_codes, f));
    return mapped_borrow(spans[0].data, spans[0].size, f);
}

void weight_release(const struct weight *w)
{
    struct weight_span spans[WEIGHT_SPANS];
    list_spans(w, spans);
    if (is_borrowed(w)) {
        source_codes_release(&w->source_codes);
        mapped_release(spans[0].data, spans[0].size);
    }
    for (int i = 0; i < WEIGHT_SPANS; i++)
        deferred_release(spans[i].data, spans[i].size);
}
