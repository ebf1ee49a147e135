/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON range search; contract and limits in templates/search_errors.inl.h. */
#include "neon/simd.h"

#include "templates/search_all.inl.h"
