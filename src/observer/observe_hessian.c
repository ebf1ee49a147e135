/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "observer/searches.h"

#include <math.h>

#include "base/error.h"

bool qobs_needs_gram(const struct stages *stages) { return stages->range.params.hessian; }

struct gram qobs_gram_for(const struct stages *stages, int64_t columns)
{
    const struct granularity_params *g = &stages->granularity.params;
    const struct range_rule *range = &stages->range;
    if (range->ops->state)
        return qobs_gram_of(columns, range->params.multiplier.hessian_block, columns);
    const int64_t group = g->strategy == STRATEGY_CHANNEL ? columns : g->group_size;
    const int64_t block = range->params.optimal.hessian_block;
    return qobs_gram_of(columns, block > 0 ? block : group, group);
}

int qobs_observe_activations(qobs_observer *o, const struct view *v, qobs_error *error)
{
    const bool first = !o->gram.sum, wanted = qobs_needs_gram(&o->stages) && v->ndim > 0 && v->elements > 0;
    const int64_t columns = v->ndim > 0 ? v->shape[v->ndim - 1] : 0;
    if (o->importance.columns > 0 && v->elements > 0 && columns != o->importance.columns)
        return qobs_invalid(error, "activations: have %lld columns, those before had %lld", (long long)columns,
                            (long long)o->importance.columns);
    if (wanted) {
        if (first)
            o->gram = qobs_gram_for(&o->stages, columns);
        const int status = qobs_gram_add(&o->runtime, o->kernels, &o->gram, v, error);
        if (status != QOBS_OK) {
            if (first)
                qobs_gram_release(&o->runtime, &o->gram);
            return status;
        }
    }
    const int status = qobs_importance_add(&o->runtime, o->kernels, &o->importance, v, error);
    if (status != QOBS_OK && wanted && first) /* with a Gram there is importance, to which adding cannot fail */
        qobs_gram_release(&o->runtime, &o->gram);
    return status;
}

/* Sums are a number or NaN, and symmetric. */
static bool is_possible(const struct gram *g)
{
    bool possible = true;
    for (int64_t i = 0; i < qobs_gram_blocks(g); i++) {
        const struct gram_block block = qobs_gram_block(g, i);
        for (int64_t j = 0; j < g->block; j++)
            for (int64_t k = 0; k <= j; k++) {
                const double a = block.sum[j * g->block + k], b = block.sum[k * g->block + j];
                const bool inside = j < block.width && k < block.width;
                possible &= (a == b || (isnan(a) && isnan(b))) && (inside || a == 0);
            }
    }
    return possible;
}

int qobs_code_gram(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    struct gram *g = &o->gram;
    uint64_t tokens = qobs_code_u64(codec, g->sum ? g->tokens : 0);
    if (codec->loading && tokens > 0) {
        struct gram made = {0};
        if (tokens != o->importance.tokens || o->importance.columns <= 0)
            return qobs_damaged(error, "its Hessian is not of its importance");
        made = qobs_gram_for(&o->stages, o->importance.columns);
        if (qobs_gram_size(&made) == 0 || !qobs_codec_holds(codec, qobs_gram_size(&made), 1))
            return qobs_damaged(error, "its Hessian is incomplete");
        RETURN_IF_FAILED(qobs_gram_reserve(&o->runtime, &made, error));
        made.tokens = tokens;
        *g = made;
    } else if (codec->loading && o->importance.tokens > 0) {
        return qobs_damaged(error, "its Hessian is missing");
    }
    if (tokens == 0)
        return QOBS_OK;
    qobs_code_elements(codec, g->sum, qobs_gram_size(g) / sizeof *g->sum, sizeof *g->sum);
    return codec->loading && !is_possible(g) ? qobs_damaged(error, "its Hessian is impossible") : QOBS_OK;
}
