/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON range search; contract and limits in src/search_errors.inl.h. */
#include "neon/lanes.h"

#define ENTRY_(name) name##_neon
#define ENTRY(name) ENTRY_(name)
#include "search_errors.inl.h"

#include "search_load.inl.h"

#include "search_shrink.inl.h"
