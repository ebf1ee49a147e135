/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table of parts, and what is done with all of them. */
#include "observer/state_parts.h"

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

unsigned qobs_parts_of(const struct stages *stages)
{
    unsigned set = 0;
    for (size_t i = 0; i < PARTS; i++)
        set |= !parts[i]->exists || parts[i]->exists(stages) ? 1u << i : 0;
    return set;
}

/* Takes the first part out of the set; NULL: it is empty. */
static const struct part *next_part(unsigned *set)
{
    const unsigned old = *set;
    *set = old & (old - 1);
    return old ? parts[__builtin_ctz(old)] : NULL;
}

int qobs_parts_reserve(const struct runtime *runtime, const struct part_size *size, qobs_error *error)
{
    const struct part *part;
    for (unsigned set = qobs_parts_of(size->stages); (part = next_part(&set));)
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

void qobs_state_release(const struct runtime *runtime, struct state *state)
{
    for (size_t i = 0; i < PARTS; i++)
        if (parts[i]->release_state)
            parts[i]->release_state(runtime, state);
}

void qobs_parts_release(qobs_observer *o)
{
    const struct part *part;
    for (unsigned set = o->parts; (part = next_part(&set));) {
        if (part->release_state)
            part->release_state(&o->runtime, &o->state);
        else if (part->release)
            part->release(o);
    }
}

void qobs_parts_clear(qobs_observer *o)
{
    const size_t first = offsetof(qobs_observer, counts);
    memset((unsigned char *)o + first, 0, sizeof *o - first);
}

int qobs_parts_prepare_batch(const qobs_observer *o, struct changes *c, qobs_error *error)
{
    const struct part *part;
    for (unsigned set = o->parts; (part = next_part(&set));)
        RETURN_IF_FAILED(part->prepare_batch ? part->prepare_batch(o, c, error) : QOBS_OK);
    return QOBS_OK;
}

void qobs_parts_adopt(qobs_observer *o, qobs_observer *next, bool whole_state)
{
    const struct part *part;
    if (whole_state)
        SWAP(struct state, o->state, next->state);
    for (unsigned set = o->parts; (part = next_part(&set));)
        if (part->adopt && !(whole_state && part->release_state))
            part->adopt(o, next);
}

void qobs_parts_observe(qobs_observer *o, const struct changes *c)
{
    const struct part *part;
    for (unsigned set = o->parts; (part = next_part(&set));)
        if (part->observe)
            part->observe(o, c);
}

int qobs_code_state(struct codec *codec, qobs_observer *o, qobs_error *error)
{
    const struct part *part;
    for (unsigned set = o->parts; (part = next_part(&set));)
        RETURN_IF_FAILED(part->code(codec, o, error));
    if (codec->loading && !qobs_state_is_empty(&o->state) && o->state.record.qparams == 0 && o->stages.range.ops->state)
        return qobs_damaged(error, "its ranges have not been searched");
    return QOBS_OK;
}

int qobs_parts_prepare_merge(struct merge *m, qobs_error *error)
{
    const struct part *part;
    for (unsigned set = m->o->parts; (part = next_part(&set));)
        RETURN_IF_FAILED(part->prepare_merge ? part->prepare_merge(m, error) : QOBS_OK);
    return QOBS_OK;
}

void qobs_parts_merge(struct merge *m)
{
    const struct part *part;
    for (unsigned set = m->o->parts; (part = next_part(&set));)
        if (part->merge)
            part->merge(m);
}
