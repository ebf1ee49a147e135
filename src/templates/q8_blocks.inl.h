/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Blocks of ggml's activations of F32, BF16 and F16; included by quantize_native.inl.h behind codes_lanes.inl.h, whose
 * vectors it uses. Scales of 16 blocks of q8_0 are made together. */

/* Codes of n elements, a multiple of 16, whose products are below 2^22. */
ALWAYS_INLINE void NATIVE(q8_codes)(const element *from, float factor, unsigned char *to, size_t n)
{
    const f32x16 by = f32x16_splat(factor), shifter = f32x16_splat(0x1.8p23f);
    for (size_t j = 0; j < n; j += 16)
        f32x16_store_bytes(to + j, f32x16_add(f32x16_mul(lanes_load(from + j), by), shifter));
}

/* The same of 64 elements, and the sums of 16 codes each. */
ALWAYS_INLINE void NATIVE(q8_summed_codes)(bool fused, const element *from, float factor, unsigned char *to,
                                           int16_t sums[4])
{
    const f32x16 by = f32x16_splat(factor), shifter = f32x16_splat(0x1.8p23f);
    f32x16 number[4];
    float sum[4];
    for (size_t k = 0; k < 4; k++) {
        const f32x16 x = lanes_load(from + 16 * k);
        const f32x16 code = fused ? f32x16_fma(x, by, shifter) : f32x16_add(f32x16_mul(x, by), shifter);
        f32x16_store_bytes(to + 16 * k, code);
        number[k] = f32x16_sub(code, shifter);
    }
    f32x16_sum_4(number, sum);
    for (size_t k = 0; k < 4; k++)
        sums[k] = (int16_t)sum[k];
}

/* Scales of 16 blocks of q8_0 as the bits of F16, and factors. Multiplied by 2^-112, a float that an F16 holds has its
 * bits; 2^16 gives those of infinity. */
ALWAYS_INLINE void NATIVE(q8_0_scales)(bool arm, f32x16 largest, float factor[16], uint32_t scale[16])
{
    const f32x16 most = f32x16_splat(127), exact = f32x16_div(largest, most);
    const f32x16 rounded = f32x16_lower(f32x16_round_f16(exact), f32x16_splat(0x1p16f));
    float bits[16];
    f32x16_store(factor, arm ? f32x16_div(f32x16_splat(1), exact) : f32x16_div(most, largest));
    f32x16_store(bits, f32x16_shift_right(f32x16_mul(rounded, f32x16_splat(0x1p-112f)), 13));
    memcpy(scale, bits, sizeof bits);
}

/* Codes of elements whose factor is infinite, as the instructions convert infinity and NaN. */
static void NATIVE(q8_0_extreme)(bool arm, float largest, const element *from, unsigned char *to)
{
    const bool zero = arm ? largest / 127 == 0 : largest == 0;
    for (size_t j = 0; j < Q8_0_ELEMENTS; j++)
        to[j] = zero ? 0 : !arm ? 0x80 : load(from[j]) > 0 ? 0xff : 0;
}

ALWAYS_INLINE void NATIVE(q8_0_blocks)(bool arm, const element *from, size_t blocks, const element *largest,
                                       unsigned char *out)
{
    float factor[16];
    uint32_t scale[16];
    for (size_t b = 0; b < blocks; b++, from += Q8_0_ELEMENTS, out += Q8_0_BYTES) {
        if (b % 16 == 0)
            NATIVE(q8_0_scales)(arm, lanes_load(largest + b), factor, scale);
        const unsigned char *const ahead = (const unsigned char *)from + NEXT_ROWS_BYTES;
        const uint16_t bits = (uint16_t)scale[b % 16];
        for (size_t i = 0; i < Q8_0_ELEMENTS * sizeof *from; i += 64)
            __builtin_prefetch(ahead + i);
        __builtin_prefetch(out + WRITE_PREFETCH_BYTES, 1);
        memcpy(out, &bits, sizeof bits);
        if (factor[b % 16] <= FLT_MAX)
            NATIVE(q8_codes)(from, factor[b % 16], out + Q8_0_CODES, Q8_0_ELEMENTS);
        else
            NATIVE(q8_0_extreme)(arm, load(largest[b]), from, out + Q8_0_CODES);
    }
}

ALWAYS_INLINE void NATIVE(q8_k_blocks)(bool fused, const element *from, size_t blocks, const element *peak,
                                       unsigned char *out)
{
    for (size_t b = 0; b < blocks; b++, from += Q8_K_ELEMENTS, out += Q8_K_BYTES) {
        const float p = load(peak[b]), factor = -127 / p, scale = p == 0 ? 0 : 1 / factor;
        int16_t sums[16];
        memset(out, 0, Q8_K_BYTES);
        memcpy(out, &scale, sizeof scale);
        if (!(fabsf(factor) <= FLT_MAX))
            continue;
        for (size_t k = 0; k < 4; k++)
            NATIVE(q8_summed_codes)(fused, from + 64 * k, factor, out + Q8_K_CODES + 64 * k, sums + 4 * k);
        memcpy(out + Q8_K_SUMS, sums, sizeof sums);
    }
}

QOBS_Q8_BLOCKS(ENTRY(NATIVE(qobs_q8_blocks)))
{
    CLEARS_UPPER_HALVES
    switch (block) {
    case Q8_NONE:
        break;
    case Q8_0_X86:
        NATIVE(q8_0_blocks)(false, x, blocks, peak, out);
        break;
    case Q8_0_ARM:
        NATIVE(q8_0_blocks)(true, x, blocks, peak, out);
        break;
    case Q8_K_X86:
        NATIVE(q8_k_blocks)(false, x, blocks, peak, out);
        break;
    case Q8_K_ARM:
        NATIVE(q8_k_blocks)(true, x, blocks, peak, out);
        break;
    }
}
