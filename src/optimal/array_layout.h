/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Places of arrays in one piece of memory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Arrays one after another, each on a line of the cache. Without memory their size is counted. */
struct array_layout {
    unsigned char *memory; /* from qobs_layout_begin, or NULL */
    size_t used;
};

enum { LAYOUT_LINE = 64 };

/* memory: of the size and LAYOUT_LINE bytes more. */
static inline struct array_layout qobs_layout_begin(void *memory)
{
    unsigned char *const at = memory;
    return (struct array_layout){at ? at + (LAYOUT_LINE - (uintptr_t)at % LAYOUT_LINE) % LAYOUT_LINE : NULL, 0};
}

static inline void *qobs_layout_add(struct array_layout *layout, size_t bytes)
{
    void *const at = layout->memory ? layout->memory + layout->used : NULL;
    layout->used += (bytes + LAYOUT_LINE - 1) / LAYOUT_LINE * LAYOUT_LINE;
    return at;
}
