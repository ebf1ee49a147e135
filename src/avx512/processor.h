/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Whose AVX-512 it is. Processors with the same instructions differ in how many of them a cycle has. */
#pragma once

#include <stdbool.h>

/* The compiler's runtime asks the processor before main; this is a load and a comparison. */
static inline bool is_intel(void) { return __builtin_cpu_is("intel"); }
