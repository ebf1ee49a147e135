/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "config/dtypes.h"

#define WORD_OF(name, word, ...) {word, TORCH_##name},
const struct word qobs_torch_dtypes[] = {TORCH_DTYPES(WORD_OF){0}};
#undef WORD_OF
#define WORD_OF(name, word, ...) {word, QUARK_##name},
const struct word qobs_quark_dtypes[] = {QUARK_DTYPES(WORD_OF){0}};
#undef WORD_OF
#define WORD_OF(name, word, ...) {word, TORCHAO_##name},
const struct word qobs_torchao_dtypes[] = {TORCHAO_DTYPES(WORD_OF){0}};

#define NUMBER_OF(name, word, min, max, is_float) [TORCHAO_##name] = {min, max, is_float},
const struct torchao_number qobs_torchao_numbers[] = {TORCHAO_DTYPES(NUMBER_OF)};

struct torch_number qobs_torch_number(int dtype, bool reduce_range)
{
#define ROW(name, word, format, zero_point) [TORCH_##name] = {format, zero_point},
    static const struct {
        enum format_id format;
        int64_t symmetric_zero_point;
    } rows[] = {TORCH_DTYPES(ROW)};
#undef ROW
    struct torch_number number = {.symmetric_zero_point = rows[dtype].symmetric_zero_point};
    const qobs_format *format = qobs_format_at(rows[dtype].format);
    if (!format)
        return number;
    const int64_t divisor = reduce_range && format->bits == 8 ? 2 : 1; /* the others have no reduced form */
    number.quant_min = (int64_t)qobs_format_min(format) / divisor;
    number.quant_max = (int64_t)qobs_format_max(format) / divisor;
    return number;
}

struct quark_number qobs_quark_number(int dtype)
{
#define ROW(name, word, format, mantissa_bits, is_float, groups)                                                       \
    [QUARK_##name] = {format, mantissa_bits, is_float, groups},
    static const struct {
        enum format_id format;
        int mantissa_bits;
        bool is_float;
        int groups;
    } rows[] = {[QUARK_DTYPE_NONE] = {NO_FORMAT, 0, false, 0}, QUARK_DTYPES(ROW)};
#undef ROW
    struct quark_number number = {
        .mantissa_bits = rows[dtype].mantissa_bits, .is_float = rows[dtype].is_float, .groups = rows[dtype].groups};
    const qobs_format *format = qobs_format_at(rows[dtype].format);
    if (!format)
        return number;
    number.quant_min = qobs_format_min(format);
    number.quant_max = qobs_format_max(format);
    number.emax = qobs_format_max_exponent(format);
    return number;
}
