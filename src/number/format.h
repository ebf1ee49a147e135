/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Number formats: a table with a row for each, and the operations of all. A new format is a row in format.c.
 *
 * Rounding is to nearest, and ties go to the number whose last bit is 0. Powers of two of e8m0 have no last bit; a tie
 * between two of them goes to the larger one, as IEEE 754 says. NaN stays NaN. Beyond the limits:
 *
 *   saturating      the limit
 *   not saturating  the result of the format's cast in torch: infinity, or NaN if the format has only that, or the
 *                   limit if it has neither; e4m3 gives NaN above 464, which itself is a tie that goes to 448
 *
 * Formats without a sign round everything below their smallest number to it, also -0. Results do not depend on the
 * caller's rounding and flush modes. */
#pragma once

#include "number/quantizer.h"
#include "qobs/format.h"
#include "qobs/qobs.h"

/* The index of each format, for qobs_format_at. */
enum format_id {
    FORMAT_INT2,
    FORMAT_INT3,
    FORMAT_INT4,
    FORMAT_INT5,
    FORMAT_INT6,
    FORMAT_INT7,
    FORMAT_INT8,
    FORMAT_INT16,
    FORMAT_INT32,
    FORMAT_UINT2,
    FORMAT_UINT4,
    FORMAT_UINT8,
    FORMAT_UINT16,
    FORMAT_E2M1,
    FORMAT_E2M3,
    FORMAT_E3M2,
    FORMAT_E4M3,
    FORMAT_E5M2,
    FORMAT_E5M3,
    FORMAT_E8M0,
    FORMAT_BF16,
    FORMAT_F16
};

enum format_kind {
    FORMAT_INTEGER,
    FORMAT_FLOAT, /* sign, exponent, mantissa; exponent field 0 holds zero and the subnormals */
    FORMAT_SCALE  /* exponent only: powers of two, the smallest with exponent field 0 */
};

/* The codes of a floating-point format that are not numbers. */
enum format_specials {
    SPECIALS_NONE,
    SPECIALS_NAN, /* NaN: all bits 1, but for the sign */
    SPECIALS_IEEE /* infinity and NaN: the largest exponent field */
};

struct qobs_format {
    const char *name;
    const char *aliases; /* names in other projects, separated by blanks, in lower case */
    enum format_kind kind;
    int bits;
    bool has_sign;
    int exponent, mantissa, bias; /* widths of the fields in bits; the mantissa without its leading 1 */
    enum format_specials specials;
};

/* The exponent of the largest number; 0 for integers. */
int qobs_format_max_exponent(const qobs_format *format);

/* qobs_format_round and qobs_format_encode for n numbers; the public functions of arrays check their arguments. */
void qobs_round_floats(const qobs_format *format, size_t n, const float *x, float *out, bool saturate);
void qobs_encode_floats(const qobs_format *format, size_t n, const float *x, void *out, bool saturate);

/* ---- Fake-quantize ----------------------------------------------------------------------------------------------- */

/* The quantizer of a format, in compressed-tensors' arithmetic. */
void qobs_quantizer_for_format(struct quantizer *quantizer, const qobs_format *format);

/* The quantizer of the integers from quant_min to quant_max, at most 2^32 apart. torch: in the arithmetic of
 * torch.fake_quantize_per_tensor_affine. */
void qobs_quantizer_for_integers(struct quantizer *quantizer, int64_t quant_min, int64_t quant_max, bool torch);
