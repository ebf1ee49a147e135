/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Encodes scales with the number formats of the library. */
#include "stored_scale.h"

#include <string.h>

#include "bases.h"
#include "qobs/format.h"
#include "results.h"

static const struct {
    const char *scale_dtype, *stored, *format;
} codes[] = {{"float8_e4m3fn", "F8_E4M3", "fp8_e4m3"}, {"uint8", "U8", "e8m0"}};

enum { CODES = sizeof codes / sizeof *codes };

const char *stored_dtype(const qobs_config *config, qobs_dtype observed)
{
    for (int i = 0; i < CODES; i++)
        if (config_is(config, "scale_dtype", codes[i].scale_dtype))
            return codes[i].stored;
    return qobs_dtype_name(observed);
}

size_t stored_encode(const char *stored, qobs_dtype observed, void *scales, size_t size)
{
    for (int i = 0; i < CODES; i++) {
        if (strcmp(codes[i].stored, stored) != 0)
            continue;
        enum { BLOCK = 256 };
        const qobs_format *format = qobs_format_find(codes[i].format);
        const struct result numbers = {.dtype = observed, .data = scales};
        const size_t n = size / qobs_dtype_size(observed);
        /* In place: a code is smaller than its number, so no number is overwritten before it is read. */
        for (size_t k = 0; k < n; k += BLOCK) {
            float block[BLOCK];
            const size_t m = n - k < BLOCK ? n - k : BLOCK;
            for (size_t j = 0; j < m; j++)
                block[j] = (float)result_value(&numbers, k + j);
            const qobs_format_array_args args = {.struct_size = sizeof args,
                                                 .format = format,
                                                 .x = block,
                                                 .x_size = m * sizeof *block,
                                                 .out = (unsigned char *)scales + k,
                                                 .out_size = m};
            qobs_format_encode_array(&args, NULL);
        }
        return n;
    }
    return size;
}
