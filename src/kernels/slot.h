/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Common part of the kernel headers: the list of instruction sets, the dtype variants of a slot, and the macro that
 * declares a family's functions. A slot is a member of struct kernel_table. Each kernel_FAMILY.h lists its slots as
 * EACH(variants, slot, SIGNATURE, with); declarations, tables, checker and benchmarks expand these lists.
 *
 * Contract of every kernel
 *  - any byte alignment, any length including 0; nothing outside the described elements is read;
 *  - no allocation, no errors, no threads, no globals but tables of constants that the first call makes;
 *  - results merge into what the caller passes in, so splitting and streaming need no extra code;
 *  - the same bits on every instruction set;
 *  - a kernel may hand a call to another table's kernel of the same slot if that one is faster
 *    (avx512/prefer_avx2.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tensor.h"

/* The instruction sets of this build, slowest first. A new one is a folder, a line here and a line in
 * src/meson.build. */
#if defined(__x86_64__) && (!defined(_WIN32) || defined(__clang__))
#define QOBS_ISAS(EACH)                                                                                                \
    EACH(scalar)                                                                                                       \
    EACH(avx2)                                                                                                         \
    EACH(avx512)
#elif defined(__aarch64__)
#define QOBS_ISAS(EACH)                                                                                                \
    EACH(scalar)                                                                                                       \
    EACH(neon)
#else
#define QOBS_ISAS(EACH) EACH(scalar)
#endif

/* The variants of a slot: one function per dtype in the order of enum kernel_dtype, the same with the scalar kernel for
 * F64, without F64, or one function. A function is called qobs_SLOT_DTYPE_ISA or qobs_SLOT_ISA. */
#define QOBS_EACH_DTYPE(F, slot, SIGNATURE, isa)                                                                       \
    QOBS_EACH_NARROW(F, slot, SIGNATURE, isa) F(SIGNATURE, qobs_##slot##_f64_##isa)
#define QOBS_SCALAR_F64(F, slot, SIGNATURE, isa) /* declarations; kernels.h has the functions */                       \
    QOBS_EACH_DTYPE(F, slot, SIGNATURE, isa)
#define QOBS_EACH_NARROW(F, slot, SIGNATURE, isa)                                                                      \
    F(SIGNATURE, qobs_##slot##_f32_##isa)                                                                              \
    F(SIGNATURE, qobs_##slot##_bf16_##isa)                                                                             \
    F(SIGNATURE, qobs_##slot##_f16_##isa)
#define QOBS_ONE(F, slot, SIGNATURE, isa) F(SIGNATURE, qobs_##slot##_##isa)

/* Defines qobs_SLOT_fn, the type of a slot's functions, and declares these functions for one instruction set. */
#define QOBS_SLOT_TYPE(variants, slot, SIGNATURE, unused) typedef SIGNATURE(qobs_##slot##_fn);
#define QOBS_DECLARE_FUNCTION(SIGNATURE, function) SIGNATURE(function);
#define QOBS_DECLARE_SLOT(variants, slot, SIGNATURE, isa) QOBS_##variants(QOBS_DECLARE_FUNCTION, slot, SIGNATURE, isa)

/* Counts of elements that are not finite. Kernels add to them. */
struct nonfinite_count {
    uint64_t nan;
    uint64_t inf;
};
