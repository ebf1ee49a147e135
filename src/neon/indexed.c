/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON minimum and maximum of columns in groups; contract and limits in templates/indexed.inl.h. */
#include "neon/simd.h"

#include "templates/indexed_all.inl.h"
