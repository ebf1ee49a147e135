/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "number/gguf_type.h"

#include <stddef.h>

const int8_t qobs_iq4_numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const uint8_t qobs_e2m1_doubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};

#define BLOCK(name_, number_, elements_, bytes_, run_)                                                                 \
    .name = (name_), .number = (number_), .elements = (elements_), .bytes = (bytes_), .run = (run_)
#define CODES(code_, top_, low_) .code = GGUF_CODE_##code_, .top = (top_), .low = (low_)
#define SCALES(scales_, scale, minimum, each)                                                                          \
    .scales = GGUF_SCALES_##scales_, .scale_at = (scale), .minimum_at = (minimum), .scales_at = (each)
#define PLANES(...) .plane = {__VA_ARGS__}
#define SEARCHES(...) .search = {__VA_ARGS__}
#define MEASURED(...) .search = {__VA_ARGS__, __VA_ARGS__}
#define DIVIDED(which, divisor)                                                                                        \
    {                                                                                                                  \
        .fit = GGUF_FIT_##which, .first = (divisor)                                                                    \
    }
#define SEARCHED(which, by)                                                                                            \
    {                                                                                                                  \
        .fit = GGUF_FIT_##which, .weight = GGUF_WEIGHT_##by                                                            \
    }
#define AFFINE(by, begin, each, end, is_absolute)                                                                      \
    {                                                                                                                  \
        .fit = GGUF_FIT_AFFINE, .weight = GGUF_WEIGHT_##by, .first = (begin), .step = (each), .last = (end),           \
        .absolute = (is_absolute)                                                                                      \
    }

#define GRID .refused = "its grids are searched by ggml alone; Q2_K, Q3_K and IQ4_XS are near in size"
#define NO_WEIGHTS .refused = "it holds no weights that are rounded"

/* clang-format off */
const struct gguf_type qobs_gguf_types[] = {
    {BLOCK("F32", 0, 1, 4, 1), CODES(F32, 0, 0), SCALES(NONE, NOWHERE, NOWHERE, NOWHERE)},
    {BLOCK("F16", 1, 1, 2, 1), CODES(F16, 0, 0), SCALES(NONE, 0, NOWHERE, NOWHERE)},
    {BLOCK("BF16", 30, 1, 2, 1), CODES(BF16, 0, 0), SCALES(NONE, 0, NOWHERE, NOWHERE)},
    {BLOCK("Q4_0", 2, 32, 18, 32), CODES(NEAREST, 15, 8), SCALES(NONE, 0, NOWHERE, NOWHERE), PLANES({2, 0, 4, 16}),
     SEARCHES(DIVIDED(PEAK, -8), SEARCHED(SIGNED, ROW))},
    {BLOCK("Q4_1", 3, 32, 20, 32), CODES(NEAREST, 15, 0), SCALES(NONE, 0, 2, NOWHERE), PLANES({4, 0, 4, 16}),
     SEARCHES(DIVIDED(RANGE, 15), AFFINE(ROW, -0.9f, 0.05f, 36, false))},
    {BLOCK("Q5_0", 6, 32, 22, 32), CODES(NEAREST, 31, 16), SCALES(NONE, 0, NOWHERE, NOWHERE),
     PLANES({6, 0, 4, 16}, {2, 4, 1, 1}), SEARCHES(DIVIDED(PEAK, -16), SEARCHED(SIGNED, ROW))},
    {BLOCK("Q5_1", 7, 32, 24, 32), CODES(NEAREST, 31, 0), SCALES(NONE, 0, 2, NOWHERE),
     PLANES({8, 0, 4, 16}, {4, 4, 1, 1}), SEARCHES(DIVIDED(RANGE, 31), AFFINE(ROW, -0.9f, 0.05f, 36, false))},
    {BLOCK("Q8_0", 8, 32, 34, 32), CODES(AWAY, 127, 0), SCALES(NONE, 0, NOWHERE, NOWHERE), PLANES({2, 0, 8, 32}),
     MEASURED(DIVIDED(LARGEST, 127))},
    {BLOCK("Q2_K", 10, 256, 84, 16), CODES(NEAREST, 3, 0), SCALES(NIBBLES, 80, 82, 0), PLANES({16, 0, 2, 32}),
     SEARCHES(AFFINE(MAGNITUDE, -0.5f, 0.1f, 15, true), AFFINE(BLOCK_ONCE, -0.9f, 0.05f, 36, false))},
    {BLOCK("Q3_K", 11, 256, 110, 16), CODES(NEAREST, 7, 4), SCALES(3, 108, NOWHERE, 96),
     PLANES({32, 0, 2, 32}, {0, 2, 1, 32}), SEARCHES(SEARCHED(DESCENT, SQUARE), SEARCHED(SIGNED, BLOCK_DOUBLED))},
    {BLOCK("Q4_K", 12, 256, 144, 32), CODES(NEAREST, 15, 0), SCALES(4, 0, 2, 4), PLANES({16, 0, 4, 32}),
     SEARCHES(AFFINE(RAISED, -1, 0.1f, 20, false), AFFINE(BLOCK_DOUBLED, -0.9f, 0.05f, 36, false))},
    {BLOCK("Q5_K", 13, 256, 176, 32), CODES(NEAREST, 31, 0), SCALES(4, 0, 2, 4),
     PLANES({48, 0, 4, 32}, {16, 4, 1, 32}),
     SEARCHES(AFFINE(RAISED, -0.5f, 0.1f, 15, false), AFFINE(BLOCK_DOUBLED, -0.9f, 0.05f, 36, false))},
    {BLOCK("Q6_K", 14, 256, 210, 16), CODES(NEAREST, 63, 32), SCALES(BYTES, 208, NOWHERE, 192),
     PLANES({0, 0, 4, 64}, {128, 4, 2, 32}), SEARCHES(SEARCHED(SIGNED, SQUARE), SEARCHED(SIGNED, GIVEN))},
    {BLOCK("IQ4_NL", 20, 32, 18, 32), CODES(CODEBOOK, 15, 0), SCALES(NONE, 0, NOWHERE, NOWHERE), PLANES({2, 0, 4, 16}),
     SEARCHES(SEARCHED(CODEBOOK, SQUARE), SEARCHED(CODEBOOK, RUN))},
    {BLOCK("IQ4_XS", 23, 256, 136, 32), CODES(CODEBOOK, 15, 0), SCALES(XS, 0, NOWHERE, 2), PLANES({8, 0, 4, 16}),
     SEARCHES(SEARCHED(CODEBOOK, SQUARE), SEARCHED(CODEBOOK, BLOCK))},
    {BLOCK("TQ1_0", 34, 256, 54, 256), CODES(TRITS, 2, 1), SCALES(NONE, 52, NOWHERE, NOWHERE),
     MEASURED(DIVIDED(LARGEST, 1))},
    {BLOCK("TQ2_0", 35, 256, 66, 256), CODES(AWAY, 3, 1), SCALES(NONE, 64, NOWHERE, NOWHERE), PLANES({0, 0, 2, 32}),
     MEASURED(DIVIDED(LARGEST, 1))},
    {BLOCK("MXFP4", 39, 32, 17, 32), CODES(E2M1, 15, 0), SCALES(E8M0, NOWHERE, NOWHERE, 0), PLANES({1, 0, 4, 16}),
     MEASURED(DIVIDED(LARGEST, 1))},
    {BLOCK("NVFP4", 40, 64, 36, 16), CODES(E2M1, 15, 0), SCALES(E4M3, NOWHERE, NOWHERE, 0), PLANES({4, 0, 4, 8}),
     MEASURED(DIVIDED(LARGEST, 6))},
    {BLOCK("Q1_0", 41, 128, 18, 128), CODES(SIGN, 1, 0), SCALES(NONE, 0, NOWHERE, NOWHERE), PLANES({2, 0, 1, 1}),
     MEASURED(DIVIDED(MEAN, 128))},
    {BLOCK("Q2_0", 42, 64, 18, 64), CODES(LIMITED, 3, 1), SCALES(NONE, 0, NOWHERE, NOWHERE), PLANES({2, 0, 2, 1}),
     MEASURED(DIVIDED(LARGEST, 1))},
    {BLOCK("IQ2_XXS", 16, 256, 66, 0), GRID},
    {BLOCK("IQ2_XS", 17, 256, 74, 0), GRID},
    {BLOCK("IQ3_XXS", 18, 256, 98, 0), GRID},
    {BLOCK("IQ1_S", 19, 256, 50, 0), GRID},
    {BLOCK("IQ3_S", 21, 256, 110, 0), GRID},
    {BLOCK("IQ2_S", 22, 256, 82, 0), GRID},
    {BLOCK("IQ1_M", 29, 256, 56, 0), GRID},
    {BLOCK("Q8_1", 9, 32, 36, 0), NO_WEIGHTS},
    {BLOCK("Q8_K", 15, 256, 292, 0), NO_WEIGHTS},
    {BLOCK("I8", 24, 1, 1, 0), NO_WEIGHTS},
    {BLOCK("I16", 25, 1, 2, 0), NO_WEIGHTS},
    {BLOCK("I32", 26, 1, 4, 0), NO_WEIGHTS},
    {BLOCK("I64", 27, 1, 8, 0), NO_WEIGHTS},
    {BLOCK("F64", 28, 1, 8, 0), NO_WEIGHTS},
    {.name = NULL},
};
/* clang-format on */

static char upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c; }

const struct gguf_type *qobs_find_gguf_type(const char *name)
{
    for (const struct gguf_type *type = qobs_gguf_types; type->name; type++) {
        size_t i = 0;
        while (name[i] && upper(name[i]) == type->name[i])
            i++;
        if (name[i] == 0 && type->name[i] == 0)
            return type;
    }
    return NULL;
}
