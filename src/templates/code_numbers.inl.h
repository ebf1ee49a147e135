/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The numbers of codes, which are exact in float; included by quantize.inl.h, whose contract holds. All dtypes share
 * these loops. The numbers stay in L1 until they are elements. */

/* The number of a code. The bits of magnitude become those of a float with another exponent. The exponent 0 means
 * subnormal numbers, whose first digit is 0; as floats they are normal, because subnormal floats cost many cycles. */
REFERENCE_INLINE float number_of_code(int kind, uint32_t code)
{
    if (kind == QOBS_CODE_INTEGER)
        return (float)(int8_t)code;
    const struct code_layout layout = code_layout(kind);
    const uint32_t magnitude = code & (layout.sign - 1), sign = (code & layout.sign) * (0x80000000 / layout.sign);
    const uint32_t nan = kind == QOBS_CODE_E4M3 ? -(uint32_t)(magnitude == layout.nan) & 0x7fc00000 : 0;
    const float normal = float_of_bits((magnitude << (23 - layout.mantissa)) + (layout.least << 23));
    const float subnormal = normal + normal - float_of_bits((layout.least + 1) << 23);
    const uint32_t small = -(uint32_t)(magnitude < 1u << layout.mantissa);
    return float_of_bits((bits_of_float(subnormal) & small) | (bits_of_float(normal) & ~small) | sign | nan);
}

REFERENCE_INLINE void numbers_of_kind(int kind, const unsigned char *codes, size_t count, float *number)
{
    NO_DEPENDENCE
    for (size_t i = 0; i < count; i++)
        number[i] = number_of_code(kind, codes[i]);
}

/* The next numbers of `left` codes. */
enum { CODE_NUMBERS = 256 };
struct code_numbers {
    size_t left;
    const float *next;
    float number[CODE_NUMBERS];
};

static __attribute__((noinline)) void fill_numbers(struct code_numbers *n, enum code_kind kind,
                                                   const unsigned char *codes, size_t count)
{
    n->left = count < CODE_NUMBERS ? count : CODE_NUMBERS;
    n->next = n->number;
    if (kind == QOBS_CODE_INTEGER)
        numbers_of_kind(QOBS_CODE_INTEGER, codes, n->left, n->number);
    else if (kind == QOBS_CODE_E4M3)
        numbers_of_kind(QOBS_CODE_E4M3, codes, n->left, n->number);
    else if (kind == QOBS_CODE_E2M3)
        numbers_of_kind(QOBS_CODE_E2M3, codes, n->left, n->number);
    else
        numbers_of_kind(QOBS_CODE_E2M1, codes, n->left, n->number);
}

/* The numbers of `count` codes, at most `wanted`. `codes` follow those of the calls before, or none are left; in_line
 * of them follow each other. */
static inline const float *code_numbers(struct code_numbers *n, enum code_kind kind, const unsigned char *codes,
                                        size_t in_line, size_t wanted, size_t *count)
{
    if (n->left == 0)
        fill_numbers(n, kind, codes, in_line);
    const float *number = n->next;
    *count = wanted < n->left ? wanted : n->left;
    n->next += *count;
    n->left -= *count;
    return number;
}
