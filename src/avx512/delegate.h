/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Entries of the avx512 table delegate calls to the avx2 table (templates/entries.h). */
#pragma once

#define DELEGATED_(function) function##_avx2
#define DELEGATED(function) DELEGATED_(function)
#define DELEGATE_TO_AVX2(prefer, function, ...)                                                                        \
    if (prefer) {                                                                                                      \
        DELEGATED(function)(__VA_ARGS__);                                                                              \
        return;                                                                                                        \
    }
