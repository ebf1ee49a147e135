/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Which table runs. An observer binds the active table when it is created, so limiting it later never races with work that
 * is under way. */
#ifndef QOBS_DISPATCH_H
#define QOBS_DISPATCH_H

#include "kernels/kernels.h"

/* The tables built into this library, slowest first; ends with NULL. */
extern const struct qobs_kernels *const qobs_kernel_tables[];

/* The best usable table, or the one the choice was limited to. */
const struct qobs_kernels *qobs_kernels_active(void);

#endif
