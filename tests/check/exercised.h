/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Which functions of the kernel tables a test program has called. A slot fails that is empty, that has the scalar
 * function in another table without being meant to, or that was never called. Slots come from the lists that make the tables, so a new one
 * cannot be forgotten. */
#ifndef QOBS_CHECK_EXERCISED_H
#define QOBS_CHECK_EXERCISED_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/dispatch.h"

/* The function in a slot; its call is counted: CALL(table, minmax_rows[i])(...). */
#define CALL(table, slot) (count_call(table, (const char *)&(table)->slot - (const char *)(table)), (table)->slot)

void count_call(const struct kernel_table *table, ptrdiff_t offset);

/* Moves *t to the first table from there on that the processor can use; false if there is none. */
static inline bool usable_table(size_t *t)
{
    while (qobs_kernel_tables[*t] && !qobs_kernel_tables[*t]->usable())
        ++*t;
    return qobs_kernel_tables[*t] != NULL;
}

/* Who calls a slot. A new family belongs to the checker until a program of its own is named in exercised.c. */
enum caller { CALLER_CHECK, CALLER_QUANTIZE, CALLER_CODES, CALLER_SEARCH, CALLER_OPTIMAL };

/* Prints a line for each function of the table that fails; the checker looks at all slots, the others at their own.
 * Returns how many fail, and in *functions how many it looked at. */
unsigned slots_failed(const struct kernel_table *table, enum caller caller, unsigned *functions);

/* The number of functions that fail in all usable tables. */
unsigned slots_failed_anywhere(enum caller caller);

#endif
