/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "kernels/dispatch.h"

#include <stdatomic.h>
#include <string.h>

#define TABLE(isa) QOBS_IF(QOBS_HAS(isa), &qobs_kernels_##isa, )
const struct kernel_table *const qobs_kernel_tables[] = {QOBS_ISAS(TABLE) NULL};

/* NULL until the first use; every thread that finds NULL stores the same value. */
static _Atomic(const struct kernel_table *) active;

static const struct kernel_table *best(void)
{
    const struct kernel_table *found = qobs_kernel_tables[0];
    for (size_t i = 1; qobs_kernel_tables[i]; i++)
        if (qobs_kernel_tables[i]->usable())
            found = qobs_kernel_tables[i];
    return found;
}

const struct kernel_table *qobs_kernels_active(void)
{
    const struct kernel_table *table = atomic_load_explicit(&active, memory_order_acquire);
    if (!table) {
        table = best();
        atomic_store_explicit(&active, table, memory_order_release);
    }
    return table;
}

size_t qobs_isa_count(void)
{
    size_t n = 0;
    while (qobs_kernel_tables[n])
        n++;
    return n;
}

const char *qobs_isa_name(size_t index) { return index < qobs_isa_count() ? qobs_kernel_tables[index]->isa : NULL; }

const char *qobs_isa_summary(size_t index)
{
    return index < qobs_isa_count() ? qobs_kernel_tables[index]->summary : NULL;
}

bool qobs_isa_usable(size_t index) { return index < qobs_isa_count() && qobs_kernel_tables[index]->usable(); }

const char *qobs_isa_active(void) { return qobs_kernels_active()->isa; }

int qobs_isa_select(const char *name, qobs_error *error)
{
    if (!name) {
        atomic_store_explicit(&active, best(), memory_order_release);
        return qobs_succeed(error);
    }
    char known[96] = "";
    for (size_t i = 0; qobs_kernel_tables[i]; i++) {
        const struct kernel_table *table = qobs_kernel_tables[i];
        if (strcmp(table->isa, name) == 0) {
            if (!table->usable())
                return qobs_fail(error, QOBS_ERROR_UNSUPPORTED, "name: %s needs %s, which this machine does not offer",
                                 name, table->summary);
            atomic_store_explicit(&active, table, memory_order_release);
            return qobs_succeed(error);
        }
        if (table->usable()) {
            strncat(known, *known ? ", " : "", sizeof known - strlen(known) - 1);
            strncat(known, table->isa, sizeof known - strlen(known) - 1);
        }
    }
    return qobs_invalid(error, "name: '%.60s' is no instruction set; usable here: %s", name, known);
}
