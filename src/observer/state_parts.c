/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table of parts, and what is done with all of them. */
#include "observer/state_parts.h"

#include "base/error.h"

/* A row each, which declares it. The order is that of a saved state. */
#define PARTS_OF(EACH)                                                                                                 \
    EACH(counts)                                                                                                       \
    EACH(global_range)                                                                                                 \
    EACH(ranges)                                                                                                       \
    EACH(mode)                                                                                                         \
    EACH(importance)                                                                                                   \
    EACH(record)                                                                                                       \
    EACH(gram)                                                                                                         \
    EACH(optimal)                                                                                                      \
    EACH(histogram)                                                                                                    \
    EACH(reference)                                                                                                    \
    EACH(sums)

#define DECLARED(name) extern const struct part qobs_part_##name;
#define ADDRESS(name) &qobs_part_##name,
PARTS_OF(DECLARED)
static const struct part *const parts[] = {PARTS_OF(ADDRESS)};

enum { PARTS = sizeof parts / sizeof *parts };

/* The next part that is there; NULL after the last one. */
static const struct part *next_part(const struct stages *stages, size_t *i)
{
    for (; *i < PARTS; ++*i)
        if (!parts[*i]->exists || parts[*i]->exists(stages))
            return parts[(*i)++];
    return NULL;
}

int qobs_parts_reserve(const struct runtime *runtime, const struct part_size *size, qobs_error *error)
{
    const struct part *part;
    for (size_t i = 0; (part = next_part(size->stages, &i));)
        for (int copy = 0; copy < part->copies; copy++) {
            qobs_observer o = {.runtime = *runtime};
            struct part_size own = *size;
            own.copy = copy;
            const int status = part->reserve(&o, &own, error);
            if (part->release_state)
                part->release_state(runtime, &o.state);
            else
                part->release(&o);
            RETURN_IF_FAILED(status);
        }
    return QOBS_OK;
}

/* Ranges, or memory for those of a batch, are the first part that a state gets. */
void qobs_state_release(const struct runtime *runtime, struct state *state)
{
    if (!state->ranges.min && !state->batch.min)
        return;
    for (size_t i = 0; i < PARTS; i++)
        if (parts[i]->release_state)
            parts[i]->release_state(runtime, state);
}

void qobs_parts_release(qobs_observer *o)
{
    qobs_state_release(&o->runtime, &o->state);
    for (size_t i = 0; i < PARTS; i++)
        if (parts[i]->release)
            parts[i]->release(o);
}

void qobs_parts_observe(qobs_observer *o, const qobs_plan *plan, bool forward)
{
    for (size_t i = 0; i < PARTS; i++)
        if (parts[i]->observe)
            parts[i]->observe(o, plan, forward);
}

int qobs_code_state(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    const struct part *part;
    for (size_t i = 0; (part = next_part(&o->stages, &i));)
        RETURN_IF_FAILED(part->code(codec, o, error));
    if (codec->loading && !qobs_state_is_empty(&o->state) && o->state.record.qparams == 0 && o->stages.range.ops->state)
        return qobs_damaged(error, "its ranges have not been searched");
    return QOBS_OK;
}

int qobs_parts_prepare_merge(struct merge *m, qobs_error *error)
{
    const struct part *part;
    for (size_t i = 0; (part = next_part(&m->o->stages, &i));)
        RETURN_IF_FAILED(part->prepare_merge ? part->prepare_merge(m, error) : QOBS_OK);
    return QOBS_OK;
}

void qobs_parts_merge(struct merge *m)
{
    const struct part *part;
    for (size_t i = 0; (part = next_part(&m->o->stages, &i));)
        if (part->merge)
            part->merge(m);
}
