/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "measure/range_tiles.h"

#include "measure/reduce.h"

/* Well within the second-level caches there are. */
enum { SLAB_BYTES = 1 << 16 };

static bool is_cut(const qobs_plan *plan, int axis)
{
    bool cut = false;
    for (int i = 0; i < plan->axes; i++)
        cut = cut || plan->axis[i].outer == axis;
    return cut;
}

void qobs_slabs_of(struct slabs *s, const qobs_plan *plan, int64_t pieces)
{
    int outermost = 0;
    while (outermost < plan->axes && plan->axis[outermost].extent == 1)
        outermost++;
    *s = (struct slabs){.plan = plan, .axis = -1, .entries = 1, .qparams = plan->qparams, .most = 1};
    if (plan->order || outermost == plan->axes || plan->axis[outermost].role != AXIS_QPARAM || is_cut(plan, outermost) ||
        plan->axis[outermost].extent < pieces)
        return;
    const struct axis *a = &plan->axis[outermost];
    const int64_t bytes = plan->value.elements / a->extent * (int64_t)qobs_dtype_size(plan->dtype);
    s->axis = outermost;
    s->entries = a->extent;
    s->qparams = plan->qparams / a->extent;
    s->most = bytes < SLAB_BYTES ? SLAB_BYTES / bytes : 1;
    s->bytes = a->stride == bytes && bytes <= SLAB_BYTES ? bytes : 0;
}

/* Where the share of a qparam in its entry begins. */
static const unsigned char *share_of(const struct slabs *s, const unsigned char *data, int64_t qparam)
{
    return data + qparam / s->qparams * s->bytes + qparam % s->qparams * s->bytes / s->qparams;
}

struct qobs_prefetch qobs_slab_ahead(const struct slabs *s, const unsigned char *data, size_t first, size_t count, size_t end)
{
    const int64_t from = (int64_t)first + s->most * s->qparams, after = from + (int64_t)count, last = (int64_t)end;
    if (s->bytes == 0 || from >= last)
        return (struct qobs_prefetch){NULL, NULL};
    return (struct qobs_prefetch){share_of(s, data, from), share_of(s, data, after < last ? after : last)};
}

bool qobs_slab_ranges(const struct slabs *s, const struct qobs_kernels *kernels, const unsigned char *data,
                      enum nonfinite_mode mode, int64_t first, int64_t count, unsigned char *min, unsigned char *max)
{
    const struct runtime alone = {0}; /* this is one thread's work, for which reducing allocates nothing */
    const int64_t at = first * s->qparams * (int64_t)qobs_dtype_size(s->plan->dtype);
    struct qobs_nonfinite nonfinite = {0};
    qobs_plan slab = *s->plan;
    slab.axis[s->axis].extent = count;
    slab.qparams = count * s->qparams;
    qobs_reduce_minmax(&alone, kernels, &slab, data + first * slab.axis[s->axis].stride,
                       mode == NONFINITE_IGNORE ? mode : NONFINITE_PROPAGATE, min + at, max + at, &nonfinite, NULL);
    return nonfinite.nan == 0 && nonfinite.inf == 0;
}
