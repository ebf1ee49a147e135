/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "limits.h"

extern const struct limits limits_scalar, limits_avx2, limits_avx512, limits_neon;

const struct limits *const limits_tables[] = {
    &limits_scalar,
#if defined(__x86_64__)
    &limits_avx2,
    &limits_avx512,
#elif defined(__aarch64__)
    &limits_neon,
#endif
    NULL,
};
