/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The dtypes that settings of torch, Quark and torchao name, a row each. Limits come from the table of formats. */
#pragma once

#include "config/settings.h"

#define NO_FORMAT ((enum format_id) - 1) /* which qobs_format_at does not have */

/* ---- torch: name, word, format, zero point of symmetric mappings ---------------------------------------------------
 */

#define TORCH_DTYPES(EACH)                                                                                             \
    EACH(FLOAT32, "float32", NO_FORMAT, 0) /* the first three are PlaceholderObserver's only */                        \
    EACH(FLOAT16, "float16", NO_FORMAT, 0)                                                                             \
    EACH(BFLOAT16, "bfloat16", NO_FORMAT, 0)                                                                           \
    EACH(QUINT8, "quint8", FORMAT_UINT8, 128)                                                                          \
    EACH(QINT8, "qint8", FORMAT_INT8, 0)                                                                               \
    EACH(QINT32, "qint32", FORMAT_INT32, 0)                                                                            \
    EACH(QUINT4X2, "quint4x2", FORMAT_UINT4, 0)                                                                        \
    EACH(UINT8, "uint8", FORMAT_UINT8, 128)                                                                            \
    EACH(INT8, "int8", FORMAT_INT8, 0)                                                                                 \
    EACH(UINT16, "uint16", FORMAT_UINT16, 32768)                                                                       \
    EACH(INT16, "int16", FORMAT_INT16, 0)                                                                              \
    EACH(INT32, "int32", FORMAT_INT32, 0)

enum { TORCH_FLOATS = 3 };
#define ENUMERATOR(name, ...) TORCH_##name,
enum torch_dtype { TORCH_DTYPES(ENUMERATOR) };
#undef ENUMERATOR
extern const struct word qobs_torch_dtypes[];

struct torch_number {
    int64_t quant_min, quant_max, symmetric_zero_point;
};
struct torch_number qobs_torch_number(int torch_dtype, bool reduce_range);

/* ---- Quark: name, word, format, mantissa bits as elements of an e8m0 scale, is it a float, observers ---------------
 */

/* Groups of observers that accept the same dtypes. */
enum quark_group {
    UNIFORM = 1,       /* a range for the tensor or each channel */
    UNIFORM_GROUP = 2, /* a range for each group */
    MX = 4,
    BFP = 8,
    POWER_OF_2 = 16,
    HISTOGRAM = 32,     /* torch's */
    SQUARED_ERROR = 64, /* errors of the bins of a histogram */
    LEARNED = 128,      /* start values of training */
    THRESHOLD = 256,    /* the same, signed */
    PLACEHOLDER = 0     /* accepts all */
};

#define QUARK_DTYPES(EACH)                                                                                             \
    EACH(INT8, "int8", FORMAT_INT8, 8, false,                                                                          \
         UNIFORM | UNIFORM_GROUP | POWER_OF_2 | HISTOGRAM | SQUARED_ERROR | LEARNED | THRESHOLD)                       \
    EACH(UINT8, "uint8", FORMAT_UINT8, 0, false,                                                                       \
         UNIFORM | UNIFORM_GROUP | POWER_OF_2 | HISTOGRAM | SQUARED_ERROR | LEARNED)                                   \
    EACH(INT4, "int4", FORMAT_INT4, 4, false, UNIFORM | UNIFORM_GROUP | SQUARED_ERROR | LEARNED | THRESHOLD)           \
    EACH(UINT4, "uint4", FORMAT_UINT4, 0, false, UNIFORM | UNIFORM_GROUP | HISTOGRAM | SQUARED_ERROR | LEARNED)        \
    EACH(INT3, "int3", FORMAT_INT3, 3, false, UNIFORM | UNIFORM_GROUP)                                                 \
    EACH(INT2, "int2", FORMAT_INT2, 2, false, UNIFORM | UNIFORM_GROUP)                                                 \
    EACH(INT16, "int16", FORMAT_INT16, 0, false, UNIFORM | UNIFORM_GROUP | LEARNED | THRESHOLD)                        \
    EACH(INT32, "int32", FORMAT_INT32, 0, false, UNIFORM | UNIFORM_GROUP | POWER_OF_2)                                 \
    EACH(FP8_E4M3, "fp8_e4m3", FORMAT_E4M3, 3, true, UNIFORM | UNIFORM_GROUP | MX | SQUARED_ERROR)                     \
    EACH(FP8_E5M2, "fp8_e5m2", FORMAT_E5M2, 2, true, UNIFORM | UNIFORM_GROUP | MX | SQUARED_ERROR)                     \
    EACH(FP8_E5M3, "fp8_e5m3", FORMAT_E5M3, 0, true, UNIFORM | UNIFORM_GROUP)                                          \
    EACH(FP6_E2M3, "fp6_e2m3", FORMAT_E2M3, 3, true, MX)                                                               \
    EACH(FP6_E3M2, "fp6_e3m2", FORMAT_E3M2, 2, true, MX)                                                               \
    EACH(FP4, "fp4", FORMAT_E2M1, 1, true, UNIFORM | MX)                                                               \
    EACH(BFP16, "bfp16", NO_FORMAT, 0, true, BFP)                                                                      \
    EACH(FLOAT16, "float16", FORMAT_F16, 10, true, 0)                                                                  \
    EACH(BFLOAT16, "bfloat16", FORMAT_BF16, 7, true, 0)                                                                \
    EACH(MX, "mx", NO_FORMAT, 0, false, 0)                                                                             \
    EACH(MX6, "mx6", NO_FORMAT, 0, false, 0)                                                                           \
    EACH(MX9, "mx9", NO_FORMAT, 0, false, 0)                                                                           \
    EACH(UINT16, "uint16", NO_FORMAT, 0, false, 0)                                                                     \
    EACH(UINT32, "uint32", NO_FORMAT, 0, false, 0)                                                                     \
    EACH(UINT2, "uint2", FORMAT_UINT2, 0, false, UNIFORM | UNIFORM_GROUP)

#define ENUMERATOR(name, ...) QUARK_##name,
enum quark_dtype { QUARK_DTYPE_NONE, QUARK_DTYPES(ENUMERATOR) };
#undef ENUMERATOR
extern const struct word qobs_quark_dtypes[];

struct quark_number {
    double quant_min, quant_max; /* 0 and 0 for dtypes without a format of their own */
    int mantissa_bits, emax;     /* as elements of an e8m0 scale; mantissa_bits 0: Quark has no such scale */
    bool is_float;
    int groups; /* of observers that accept it: enum quark_group */
};
struct quark_number qobs_quark_number(int quark_dtype);

/* ---- torchao: name, word, limits, is it a float (_DTYPE_TO_QVALUE_BOUNDS in quantization/quant_primitives.py) ------
 */

#define TORCHAO_DTYPES(EACH)                                                                                           \
    EACH(INT8, "int8", -128, 127, false)                                                                               \
    EACH(UINT8, "uint8", 0, 255, false)                                                                                \
    EACH(INT1, "int1", -1, 0, false)                                                                                   \
    EACH(INT2, "int2", -2, 1, false)                                                                                   \
    EACH(INT3, "int3", -4, 3, false)                                                                                   \
    EACH(INT4, "int4", -8, 7, false)                                                                                   \
    EACH(INT5, "int5", -16, 15, false)                                                                                 \
    EACH(INT6, "int6", -32, 31, false)                                                                                 \
    EACH(INT7, "int7", -64, 63, false)                                                                                 \
    EACH(UINT1, "uint1", 0, 1, false)                                                                                  \
    EACH(UINT2, "uint2", 0, 3, false)                                                                                  \
    EACH(UINT3, "uint3", 0, 7, false)                                                                                  \
    EACH(UINT4, "uint4", 0, 15, false)                                                                                 \
    EACH(UINT5, "uint5", 0, 31, false)                                                                                 \
    EACH(UINT6, "uint6", 0, 63, false)                                                                                 \
    EACH(UINT7, "uint7", 0, 127, false)                                                                                \
    EACH(INT16, "int16", -32768, 32767, false)                                                                         \
    EACH(INT32, "int32", -2147483648.0, 2147483647, false)                                                             \
    EACH(E4M3, "float8_e4m3fn", -448, 448, true)                                                                       \
    EACH(E5M2, "float8_e5m2", -57344, 57344, true)                                                                     \
    EACH(E4M3_FNUZ, "float8_e4m3fnuz", -240, 240, true)                                                                \
    EACH(E5M2_FNUZ, "float8_e5m2fnuz", -57344, 57344, true)

#define ENUMERATOR(name, ...) TORCHAO_##name,
enum torchao_dtype { TORCHAO_DTYPES(ENUMERATOR) };
#undef ENUMERATOR
extern const struct word qobs_torchao_dtypes[];

struct torchao_number {
    double quant_min, quant_max;
    bool is_float;
};
extern const struct torchao_number qobs_torchao_numbers[];
