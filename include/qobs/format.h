/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/** @file
 * Number formats: codes, limits and rounding. */
#ifndef QOBS_QOBS_FORMAT_H
#define QOBS_QOBS_FORMAT_H

#include "qobs.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup format Number formats
 * If `format` is NULL, texts are NULL, counts and codes 0, and numbers NaN.
 * @{ */

/** A number format. Names: int2 to int8, int16, int32, uint2, uint4, uint8, uint16, fp4_e2m1, fp6_e2m3, fp6_e3m2,
 * fp8_e4m3, fp8_e5m2, fp8_e5m3, e8m0, bf16, f16. fp8_e4m3 has no infinity and a maximum of 448; fp8_e5m3 is that of AMD
 * Quark, without a sign. */
typedef struct qobs_format qobs_format;

/** The number of formats. From index qobs_format_count() on, formats are NULL.
 * @since 0.1.0 */
QOBS_API size_t qobs_format_count(void);
/** Owned by the library, like that of qobs_format_find.
 * @since 0.1.0 */
QOBS_API const qobs_format *qobs_format_at(size_t index);

/** Finds a format by its name, or by its name in torch, compressed-tensors or Quark (float8_e4m3fn, fp4). Upper and
 * lower case are equal. NULL: unknown.
 * @since 0.1.0 */
QOBS_API const qobs_format *qobs_format_find(const char *name);
/** The name listed above.
 * @since 0.1.0 */
QOBS_API const char *qobs_format_name(const qobs_format *format);
/** Bits of a packed number.
 * @since 0.1.0 */
QOBS_API int qobs_format_bits(const qobs_format *format);
/** Smallest finite number.
 * @since 0.2.0 */
QOBS_API double qobs_format_min(const qobs_format *format);
/** Largest finite number.
 * @since 0.2.0 */
QOBS_API double qobs_format_max(const qobs_format *format);

/** Returns the bytes of an unpacked number: 1, 2 or 4.
 * @since 0.1.0 */
QOBS_API size_t qobs_format_size(const qobs_format *format);

/** Returns the number of a code. Only the low bits of the code count; integers are two's complement. A 32-bit integer
 * is rounded to float.
 * @since 0.1.0 */
QOBS_API float qobs_format_decode(const qobs_format *format, uint32_t code);

/** Returns the code of the number nearest to x. Ties go to the even code, in e8m0 to the larger number. Numbers
 * beyond the limits become the limit if `saturate` is true. Otherwise they become what torch's cast gives: infinity
 * if the format has it, else NaN (e4m3: above 464), else the limit. NaN stays NaN; its code is 0 if the format has
 * none.
 * @since 0.1.0 */
QOBS_API uint32_t qobs_format_encode(const qobs_format *format, float x, bool saturate);
/** Returns the number of the code that qobs_format_encode returns.
 * @since 0.1.0 */
QOBS_API float qobs_format_round(const qobs_format *format, float x, bool saturate);

/** Arguments of qobs_format_encode_array. */
typedef struct qobs_format_array_args {
    size_t struct_size;        /**< sizeof(qobs_format_array_args) */
    const qobs_format *format; /**< number format */
    const float *x;            /**< numbers */
    size_t x_size;             /**< bytes of x */
    void *out;                 /**< receives codes; may be x */
    size_t out_size;           /**< bytes of out */
    bool saturate;             /**< as in qobs_format_encode */
} qobs_format_array_args;

/** qobs_format_encode for an array. Codes have qobs_format_size bytes; signed integers are sign-extended.
 * @since 0.2.0 */
QOBS_API int qobs_format_encode_array(const qobs_format_array_args *args, qobs_error *error);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
