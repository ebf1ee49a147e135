/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Memory that ends in no-access pages, and the way back from touching them. */
#ifndef QOBS_CHECK_MEMORY_H
#define QOBS_CHECK_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Usable bytes between two no-access areas. */
struct arena {
    unsigned char *begin, *end;
};

struct arena arena_new(size_t bytes);

/* `extent` bytes, `offset` away from the end or from the beginning. */
unsigned char *arena_place(const struct arena *arena, size_t extent, bool at_end, size_t offset);

/* True if `p` lies in the arena or in the no-access areas around it. */
bool arena_holds(const struct arena *arena, const void *p);

/* Usable pages with a no-access area before, between and after them; island i begins at begin + i * stride. */
struct islands {
    unsigned char *begin;
    size_t count, bytes;
    ptrdiff_t stride;
};

struct islands islands_new(size_t count);

/* Calls f(argument). Returns whether it came back; if it touched memory it may not, fault_address() says where. A
 * fault at any other time ends the program as usual. */
bool survives(void (*f)(void *), void *argument);
const void *fault_address(void);

/* Once, before survives(). */
void fault_init(void);

#endif
