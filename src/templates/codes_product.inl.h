/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes by one product of F32, BF16 and F16; included by quantize_native.inl.h behind codes_lanes.inl.h, whose vectors
 * it uses. Each element has one product and at most one sum. Tails go through a buffer of 16. */

struct NATIVE(product) {
    f32x16 inverse, zero_point, nan;
    struct NATIVE(lane_constants) constants;
};

ALWAYS_INLINE f32x16 NATIVE(product_sum)(int how, f32x16 x, const struct NATIVE(product) * p)
{
    if (how & FUSED)
        return f32x16_fma(x, p->inverse, p->zero_point);
    const f32x16 v = f32x16_mul(x, p->inverse);
    return how & ZERO_POINT ? f32x16_add(v, p->zero_point) : v;
}

/* The codes of v in the low bytes of the lanes. */
ALWAYS_INLINE f32x16 NATIVE(product_code)(int kind, f32x16 v, const struct NATIVE(product) * p)
{
    const f32x16 limited = NATIVE(lanes_clamped)(&p->constants, v);
    f32x16 number;
    if (kind != QOBS_CODE_INTEGER)
        return NATIVE(lanes_code)(&p->constants, kind, limited, &number);
    return f32x16_add(f32x16_if_number(v, limited, p->nan), f32x16_splat(0x1.8p23f));
}

/* At most 16 elements. */
REFERENCE_INLINE void NATIVE(product_step)(int how, int kind, const element *from, unsigned char *to, size_t left,
                                           const struct NATIVE(product) * p)
{
    element few[16];
    unsigned char bytes[16];
    if (left < 16) {
        memset(few, 0, sizeof few);
        memcpy(few, from, left * sizeof *few);
    }
    const f32x16 x = lanes_load(left < 16 ? few : from);
    f32x16_store_bytes(left < 16 ? bytes : to, NATIVE(product_code)(kind, NATIVE(product_sum)(how, x, p), p));
    if (left < 16)
        memcpy(to, bytes, left);
}

#if MANTISSA_BITS == 7 && defined CODE_NEAREST
/* Bytes limit the sums, which fit int32 and are numbers. Returns how many elements it has quantized, a multiple of
 * 64. */
ALWAYS_INLINE size_t NATIVE(product_nearest)(int how, const element *from, unsigned char *to, size_t length,
                                             const struct NATIVE(product) * p)
{
    size_t j = 0;
    for (; length - j >= 64; j += 64) {
        f32x16 v[4];
        __builtin_prefetch(to + j + WRITE_PREFETCH_BYTES, 1);
        for (size_t k = 0; k < 4; k += 2) {
            __builtin_prefetch((const unsigned char *)(from + j + 16 * k) + NEXT_ROWS_BYTES);
            f32x16_load_bf16_pairs(from + j + 16 * k, &v[k], &v[k + 1]);
        }
        for (size_t k = 0; k < 4; k++)
            v[k] = NATIVE(product_sum)(how, v[k], p);
        nearest_store(to + j, v, NULL);
    }
    return j;
}
#endif

/* near: the sums are known to fit. */
ALWAYS_INLINE void NATIVE(product_run)(int how, int kind, bool near, const element *from, unsigned char *to,
                                       size_t length, const struct NATIVE(product) * p)
{
    size_t j = 0;
#if MANTISSA_BITS == 7 && defined CODE_NEAREST
    if (near)
        j = NATIVE(product_nearest)(how, from, to, length, p);
#else
    (void)near;
#endif
    for (; j < length; j += 16)
        NATIVE(product_step)(how, kind, from + j, to + j, length - j, p);
}

/* Runs of one scale each, as QOBS_PRODUCT_ROWS has them. */
ALWAYS_INLINE void NATIVE(product_runs)(int how, int kind, const struct quantizer *quantizer, const unsigned char *x,
                                        ptrdiff_t x_stride, unsigned char *codes, ptrdiff_t code_stride, size_t runs,
                                        size_t length, const float *scale, const float *zero_point,
                                        ptrdiff_t qparam_stride)
{
    const float normal = 0x1p-126f, most = 0x1p22f; /* of scales that have reciprocals, and of zero points */
    const struct NATIVE(quantizer)
        q = {.quant_min = (real)quantizer->quant_min, .quant_max = (real)quantizer->quant_max};
    struct NATIVE(product)
        p = {.nan = f32x16_splat((float)(int8_t)quantizer->nan), .constants = NATIVE(lanes_constants)(&q, kind)};
    const bool all = kind == QOBS_CODE_INTEGER && quantizer->bounded && q.quant_min == -128 && q.quant_max == 127;
    for (ptrdiff_t i = 0; i < (ptrdiff_t)runs; i++) {
        const float s = scale[i * qparam_stride], z = how & ZERO_POINT ? zero_point[i * qparam_stride] : 0;
        const element *from = (const element *)(x + i * x_stride);
        p.inverse = f32x16_splat(1 / s);
        p.zero_point = f32x16_splat(z);
        NATIVE(product_run)
        (how, kind, all && s >= normal && fabsf(z) <= most, from, codes + i * code_stride, length, &p);
    }
}

/* Each has functions of its own, which compilers optimise better than one with all loops. */
#define EACH_PRODUCT(PRODUCT)                                                                                          \
    PRODUCT(0, QOBS_CODE_INTEGER, integer)                                                                             \
    PRODUCT(ZERO_POINT, QOBS_CODE_INTEGER, shifted)                                                                    \
    PRODUCT(ZERO_POINT | FUSED, QOBS_CODE_INTEGER, fused)                                                              \
    PRODUCT(0, QOBS_CODE_E4M3, e4m3)                                                                                   \
    PRODUCT(0, QOBS_CODE_E2M1, e2m1)
#define PRODUCT(how, kind, name)                                                                                       \
    static __attribute__((noinline)) void NATIVE(product_##name)(                                                      \
        const struct quantizer *quantizer, const unsigned char *x, ptrdiff_t x_stride, unsigned char *codes,           \
        ptrdiff_t code_stride, size_t runs, size_t length, const float *scale, const float *zero_point,                \
        ptrdiff_t qparam_stride)                                                                                       \
    {                                                                                                                  \
        NATIVE(product_runs)                                                                                           \
        (how, kind, quantizer, x, x_stride, codes, code_stride, runs, length, scale, zero_point, qparam_stride);       \
    }
EACH_PRODUCT(PRODUCT)
#undef PRODUCT

QOBS_PRODUCT_ROWS(ENTRY(NATIVE(qobs_product_rows)))
{
    CLEARS_UPPER_HALVES
    const int variant = !zero_point ? 0 : quantizer->fused ? ZERO_POINT | FUSED : ZERO_POINT;
#define PRODUCT(how, wanted, name)                                                                                     \
    if (kind == (wanted) && variant == (how))                                                                          \
        NATIVE(product_##name)                                                                                         \
        (quantizer, x, x_stride, codes, code_stride, runs, length, scale, zero_point, qparam_stride);                  \
    else
    EACH_PRODUCT(PRODUCT) NO_VARIANT;
#undef PRODUCT
}

#undef EACH_PRODUCT
