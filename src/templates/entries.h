/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Common part of the files *_entries.inl.h: the element types by width, and the one way a table hands a call to another
 * table.
 *
 * A table that does so defines DELEGATE_TO_AVX2(prefer, function, ...) before it includes the entries: if `prefer`
 * holds, the entry calls function_avx2(...) and returns. Only avx512 does, in avx512/prefer_avx2.h, with the
 * reasons. Results are the same, because all tables give the same bits.
 */
#pragma once

#include "templates/inline.h"

#ifndef DELEGATE_TO_AVX2
#define DELEGATE_TO_AVX2(prefer, function, ...)
#endif

/* ENTRY(dtype, width in bits, bits of infinity) */
#define EACH_ELEMENT_TYPE(ENTRY)                                                                                       \
    ENTRY(f32, 32, UINT32_C(0x7f800000))                                                                               \
    ENTRY(bf16, 16, UINT16_C(0x7f80))                                                                                  \
    ENTRY(f16, 16, UINT16_C(0x7c00))                                                                                   \
    ENTRY(f64, 64, UINT64_C(0x7ff0000000000000))
