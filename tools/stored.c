/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "stored.h"

#include <string.h>

#include "bases.h"
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
        enum { AT_ONCE = 256 };
        const qobs_format *format = qobs_format_find(codes[i].format);
        const struct reading numbers = {.dtype = observed, .data = scales};
        const size_t n = size / qobs_dtype_size(observed);
        for (size_t k = 0; k < n; k += AT_ONCE) { /* codes are smaller than numbers: none is overwritten before it is read */
            float some[AT_ONCE];
            const size_t m = n - k < AT_ONCE ? n - k : AT_ONCE;
            for (size_t j = 0; j < m; j++)
                some[j] = (float)reading_value(&numbers, k + j);
            qobs_format_encode_array(format, m, some, (unsigned char *)scales + k, false);
        }
        return n;
    }
    return size;
}
