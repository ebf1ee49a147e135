/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "kernels/slot.h"
#include "limits.h"

#define DECLARE(isa) extern const struct limits limits_##isa;
QOBS_ISAS(DECLARE)

#define TABLE(isa) &limits_##isa,
const struct limits *const limits_tables[] = {QOBS_ISAS(TABLE) NULL};
