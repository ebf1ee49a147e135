/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Memory of the caller, handed out in blocks. One thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct region {
    unsigned char *begin, *end; /* blocks without gaps */
};

enum { REGION_ALIGNMENT = 16 };

/* Bytes of the region that a block of that size occupies; SIZE_MAX on overflow. */
size_t qobs_region_block(size_t size);

/* `begin` is aligned. Memory smaller than the smallest block makes an empty region. */
struct region qobs_region_make(unsigned char *begin, const unsigned char *end);

/* NULL: no free block is large enough. */
void *qobs_region_allocate(struct region *region, size_t size);
bool qobs_region_holds(const struct region *region, const void *memory);
void qobs_region_release(struct region *region, void *memory);
