/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Functions that must be inlined: their parameters are constants that choose code. */
#pragma once

#include "base/sanitized.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The same for deep call trees. A sanitizer checks every step; inlined, these checks keep a compiler busy for
 * minutes. */
#ifdef SANITIZED
#define DEEP_INLINE static inline
#else
#define DEEP_INLINE ALWAYS_INLINE
#endif
