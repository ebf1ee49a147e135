/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Includes NATIVE_BODY once for each observable dtype, with NATIVE_NARROW not for F64; see native.h. */
#define NATIVE_CAT_(a, b) a##_##b
#define NATIVE_CAT(a, b) NATIVE_CAT_(a, b)
#define NATIVE(name) NATIVE_CAT(name, NATIVE_DTYPE)
#define load NATIVE(load)
#define store NATIVE(store)
#define round_native(x) (load(store(x)))

#define NATIVE_DTYPE f32
#define MANTISSA_BITS 23
#define stored float
#define stored_bits uint32_t
#define real float
#include NATIVE_BODY
#undef MANTISSA_BITS
#undef NATIVE_DTYPE
#undef stored
#undef stored_bits
#undef real

#define NATIVE_DTYPE bf16
#define MANTISSA_BITS 7
#define stored uint16_t
#define stored_bits uint16_t
#define real float
#include NATIVE_BODY
#undef MANTISSA_BITS
#undef NATIVE_DTYPE

#define NATIVE_DTYPE f16
#define MANTISSA_BITS 10
#include NATIVE_BODY
#undef MANTISSA_BITS
#undef NATIVE_DTYPE
#undef stored
#undef stored_bits
#undef real

#ifndef NATIVE_NARROW
#define NATIVE_DTYPE f64
#define MANTISSA_BITS 52
#define stored double
#define stored_bits uint64_t
#define real double
#include NATIVE_BODY
#undef MANTISSA_BITS
#undef NATIVE_DTYPE
#undef stored
#undef stored_bits
#undef real
#endif

#undef load
#undef store
#undef round_native
#undef NATIVE
#undef NATIVE_CAT
#undef NATIVE_CAT_
#undef NATIVE_BODY
