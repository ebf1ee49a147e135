/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "exercised.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void function(void);

enum { MOST_ISAS = 8, MOST_FUNCTIONS = sizeof(struct kernel_table) / sizeof(function *) };

static const struct slot {
    const char *name;
    size_t offset, functions; /* bytes into struct kernel_table; one, or one a dtype */
    size_t own;               /* the first ones, which no table shares with the scalar one */
    enum caller caller;
} slots[] = {
#define OWN_ONE 1
#define OWN_EACH_DTYPE QOBS_KERNEL_DTYPES
#define OWN_EACH_NARROW QOBS_KERNEL_F64
#define OWN_SCALAR_F64 QOBS_KERNEL_F64
#define SLOT(variants, slot, SIGNATURE, caller)                                                                        \
    {#slot, offsetof(struct kernel_table, slot), sizeof(((struct kernel_table *)0)->slot) / sizeof(function *),        \
     OWN_##variants, caller},
    QOBS_FAKE_QUANTIZE_SLOTS(SLOT, CALLER_QUANTIZE) QOBS_CODE_SLOTS(SLOT, CALLER_CODES)
        QOBS_SEARCH_SLOTS(SLOT, CALLER_SEARCH) QOBS_OPTIMAL_SLOTS(SLOT, CALLER_OPTIMAL)
            QOBS_SLOTS(SLOT, CALLER_CHECK)};

static uint64_t calls[MOST_ISAS][MOST_FUNCTIONS];

static size_t index_of(const struct kernel_table *table)
{
    size_t i = 0;
    while (qobs_kernel_tables[i] && qobs_kernel_tables[i] != table)
        i++;
    return i < MOST_ISAS ? i : MOST_ISAS - 1;
}

void count_call(const struct kernel_table *table, ptrdiff_t offset)
{
    calls[index_of(table)][(size_t)offset / sizeof(function *)]++;
}

/* The slots of programs of their own come first in the list, and once more among all. */
static enum caller caller_of(const struct slot *slot)
{
    const struct slot *first = slots;
    while (first->offset != slot->offset)
        first++;
    return first->caller;
}

static bool same_function(const struct kernel_table *a, const struct kernel_table *b, size_t offset)
{
    return memcmp((const char *)a + offset, (const char *)b + offset, sizeof(function *)) == 0;
}

static const char *problem_of(const struct kernel_table *table, size_t offset, bool own, bool must_be_called)
{
    static const struct kernel_table empty = {0};
    if (same_function(table, &empty, offset))
        return "the slot is empty";
    if (table != &qobs_kernels_scalar && same_function(table, &qobs_kernels_scalar, offset) == own)
        return own ? "it is the scalar function" : "it is not the scalar function";
    return must_be_called && calls[index_of(table)][offset / sizeof(function *)] == 0 ? "it was never called" : NULL;
}

unsigned slots_failed(const struct kernel_table *table, enum caller caller, unsigned *functions)
{
    unsigned failed = 0;
    *functions = 0;
    for (const struct slot *s = slots; s < slots + sizeof slots / sizeof *slots; s++)
        for (size_t i = 0; i < s->functions && s->caller == caller; i++) {
            const char *problem = problem_of(table, s->offset + i * sizeof(function *), i < s->own,
                                             caller_of(s) == caller);
            if (problem)
                printf("FAIL %s %s[%zu], exercised: %s\n", table->isa, s->name, i, problem);
            failed += problem != NULL;
            ++*functions;
        }
    return failed;
}

unsigned slots_failed_anywhere(enum caller caller)
{
    unsigned failed = 0, functions;
    for (size_t t = 0; usable_table(&t); t++)
        failed += slots_failed(qobs_kernel_tables[t], caller, &functions);
    return failed;
}
