/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable range search; contract and limits in src/search_errors.inl.h. */
#include "scalar/lanes.h"

#define ENTRY_(name) name##_scalar
#define ENTRY(name) ENTRY_(name)
#include "search_errors.inl.h"

#include "search_load.inl.h"

#include "search_shrink.inl.h"
