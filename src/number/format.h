/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Number formats: a table with one row each, and what all of them can do. A new format is a row in format.c.
 *
 * Rounding is to nearest; ties go to the number whose last bit is 0 and, between two powers of two of e8m0, which have no
 * last bit, to the larger one, as IEEE 754 says. NaN stays NaN. Beyond the limits:
 *   saturate      the limit
 *   do not        what the format's cast in torch gives: infinity where the format has it, NaN where it only has NaN, the
 *                 limit where it has neither. e4m3 thus gives NaN above 464, as 464 itself is a tie that goes to 448.
 * Formats without a sign take everything below their least number to it, -0 included. Results do not depend on the caller's
 * rounding and flush modes. */
#ifndef QOBS_FORMAT_H
#define QOBS_FORMAT_H

#include "number/quantizer.h"
#include "qobs/qobs.h"

enum format_kind {
    FORMAT_INTEGER,
    FORMAT_FLOAT, /* sign, exponent, mantissa; exponent field 0 holds zero and the subnormals */
    FORMAT_SCALE  /* an exponent and nothing else: powers of two, the smallest with exponent field 0 */
};

/* Which codes of a floating-point format are no numbers. */
enum format_specials {
    SPECIALS_NONE,
    SPECIALS_NAN, /* the one (two with a sign) whose other bits are all 1 */
    SPECIALS_IEEE /* the largest exponent field: infinity, NaN */
};

struct qobs_format {
    const char *name;
    const char *aliases; /* names other projects use, separated by blanks, in lower case */
    enum format_kind kind;
    int bits;
    bool has_sign;
    int exponent, mantissa, bias; /* fields in bits, the mantissa without its leading 1 */
    enum format_specials specials;
};

/* Distances from 1 to the next number and of the smallest number above 0; both 1 for integers. */
double qobs_format_epsilon(const qobs_format *format);
double qobs_format_smallest(const qobs_format *format);

/* ---- Fake-quantize ---------------------------------------------------------------------------------------------------- */

/* What a kernel needs to know about `format`, in compressed-tensors' arithmetic. */
void qobs_quantizer_for_format(struct qobs_quantizer *quantizer, const qobs_format *format);

/* The same for the integers from least to greatest, at most 2^32 apart; `torch` for the arithmetic of
 * torch.fake_quantize_per_tensor_affine. */
void qobs_quantizer_for_integers(struct qobs_quantizer *quantizer, int64_t quant_min, int64_t quant_max, bool torch);

#endif
