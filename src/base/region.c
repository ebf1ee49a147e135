/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "base/runtime.h"

#include <stdint.h>

/* The header of a block, before its memory. Blocks lie one behind the other. There are few of them, so a search visits
 * all. */
struct block {
    _Alignas(REGION_ALIGNMENT) size_t size; /* header included */
    size_t used;
};

size_t qobs_region_block(size_t size)
{
    if (size > SIZE_MAX / 2)
        return SIZE_MAX;
    return sizeof(struct block) + (size + REGION_ALIGNMENT - 1) / REGION_ALIGNMENT * REGION_ALIGNMENT;
}

static struct block *at(unsigned char *place) { return (struct block *)(void *)place; }

struct region qobs_region_make(unsigned char *begin, const unsigned char *end)
{
    struct region region = {begin, begin};
    const size_t size = (size_t)(end - begin) / REGION_ALIGNMENT * REGION_ALIGNMENT;
    if (size < qobs_region_block(1))
        return region;
    region.end = begin + size;
    *at(begin) = (struct block){.size = size};
    return region;
}

/* Returns the smallest block that fits. Arrays that are replaced by arrays of the same size again and again then reuse
 * one place. */
void *qobs_region_allocate(struct region *region, size_t size)
{
    const size_t wanted = qobs_region_block(size);
    struct block *best = NULL;
    for (unsigned char *place = region->begin; place < region->end; place += at(place)->size) {
        struct block *b = at(place);
        while (!b->used && place + b->size < region->end && !at(place + b->size)->used)
            b->size += at(place + b->size)->size; /* free neighbours become one */
        if (!b->used && b->size >= wanted && (!best || b->size < best->size))
            best = b;
    }
    if (!best)
        return NULL;
    if (best->size - wanted >= qobs_region_block(1)) {
        *at((unsigned char *)best + wanted) = (struct block){.size = best->size - wanted};
        best->size = wanted;
    }
    best->used = 1;
    return best + 1;
}

bool qobs_region_holds(const struct region *region, const void *memory)
{
    const uintptr_t place = (uintptr_t)memory;
    return place >= (uintptr_t)region->begin && place < (uintptr_t)region->end;
}

void qobs_region_release(struct region *region, void *memory)
{
    (void)region;
    at((unsigned char *)memory - sizeof(struct block))->used = 0;
}
