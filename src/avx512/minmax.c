/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* AVX-512 minimum and maximum; contract and limits in templates/minmax.inl.h. Intel processors have kernels of their
 * own. */
#include "avx512/minmax_intel.h"
#include "avx512/prefer_avx2.h"
#include "avx512/processor.h"
#include "avx512/vec.h"

#include "kernels/kernel_minmax.h"

#define WIDTH 16
#include "templates/minmax.inl.h"
#define WIDTH 32
#include "templates/minmax.inl.h"
#define WIDTH 64
#include "templates/minmax.inl.h"

#define ENTRY(name) name##_avx512
#define DELEGATE_BY_PROCESSOR(function, ...)                                                                           \
    if (is_intel()) {                                                                                                  \
        function##_avx512_intel(__VA_ARGS__);                                                                          \
        return;                                                                                                        \
    }
#include "templates/minmax_entries.inl.h"
