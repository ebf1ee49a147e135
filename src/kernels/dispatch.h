/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table in use. An observer binds the active table when it is created, so a later choice never races with
 * running work. A table's kernels may hand calls to another table's (kernels/slot.h): the active table names the
 * instruction set, not every loop. */
#pragma once

#include "kernels/kernels.h"

/* The tables built into this library in the order of QOBS_ISAS, slowest first; ends with NULL. */
extern const struct kernel_table *const qobs_kernel_tables[];

/* The best usable table, or the one the choice was limited to. */
const struct kernel_table *qobs_kernels_active(void);
