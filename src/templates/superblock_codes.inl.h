/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes of runs, a byte each, and how blocks hold them. Lanes are elements. Included by superblock.inl.h. */

enum { STEP = 16 }; /* elements */

/* Stores the codes of 16 elements, which EXPRESSION makes of the floats e. */
#define STORE_CODES(to, x, EXPRESSION)                                                                                 \
    do {                                                                                                               \
        f32x16 codes_;                                                                                                 \
        EACH_LANES(v, F32X16_PARTS)                                                                                    \
        {                                                                                                              \
            const f32v e = LOAD((x) + LANES * v);                                                                      \
            PART(codes_, v) = (f32v)(EXPRESSION);                                                                      \
        }                                                                                                              \
        f32x16_store_bytes(to, codes_);                                                                                \
    } while (0)

/* Limits of rounded numbers, and what is subtracted to make them codes. */
struct nearest {
    vec low, high, origin;
};

static inline struct nearest nearest_of(const struct gguf_type *type)
{
    return (struct nearest){s32_splat(ROUNDED - type->low), s32_splat(ROUNDED + type->top - type->low),
                            s32_splat(ROUNDED - type->low)};
}

DEEP_INLINE s32v nearest_code(const struct nearest *k, f32v a)
{
    return (s32v)vec_max_s32(vec_min_s32(any_rounded(a), k->high), k->low) - (s32v)k->origin;
}

/* The nearest integers to (x + minimum) / scale, or if that is 0 to code_scale * (x - code_minimum). */
static inline void nearest_codes(const struct nearest *k, size_t n, const float *x, float scale, float minimum,
                                 float code_scale, float code_minimum, unsigned char *to)
{
    const f32v s = f32v_splat(scale), m = f32v_splat(minimum), cs = f32v_splat(code_scale),
               cm = f32v_splat(code_minimum);
    if (scale != 0)
        for (size_t i = 0; i < n; i += STEP)
            STORE_CODES(to + i, x + i, nearest_code(k, (e + m) / s));
    else if (code_scale == code_scale)
        for (size_t i = 0; i < n; i += STEP)
            STORE_CODES(to + i, x + i, nearest_code(k, cs * (e - cm)));
    else
        memset(to, 0, n);
}

/* Cut off; what does not fit an integer, or is NaN, becomes the least, as in the conversion of x86. */
#ifdef CUT_OFF
DEEP_INLINE s32v cut_off(f32v v) { return CUT_OFF(v); }
#else
DEEP_INLINE s32v cut_off(f32v v)
{
    const f32v_mask fits = f32v_less(f32v_magnitude(v), f32v_splat(0x1p31f));
    const s32v integer = __builtin_convertvector(f32v_if(fits, v), s32v);
    return (s32v)f32v_choose(fits, (f32v)integer, (f32v)s32_splat(INT32_MIN));
}
#endif

static inline void rounded_up_codes(const struct gguf_type *type, const float *x, float inverse, float minimum,
                                    unsigned char *to)
{
    const f32v s = f32v_splat(inverse), m = f32v_splat(minimum), half = f32v_splat((float)type->low + 0.5f);
    for (int i = 0; i < type->run; i += STEP)
        STORE_CODES(to + i, x + i, vec_min_s32((vec)cut_off((e - m) * s + half), s32_splat(type->top)));
}

/* Adding the float below one half and cutting off is rounding with ties away from 0. */
DEEP_INLINE s32v away(f32v v)
{
    const f32v below_half = f32v_splat(0x1.fffffep-2f);
    return cut_off(v + (f32v)(((u32v)v & 0x80000000) | (u32v)below_half));
}

static inline void away_codes(const struct gguf_type *type, const float *x, float inverse, unsigned char *to)
{
    const f32v s = f32v_splat(inverse);
    const s32v origin = (s32v)s32_splat(type->low);
    if (type->code == GGUF_CODE_LIMITED)
        for (int i = 0; i < type->run; i += STEP)
            STORE_CODES(to + i, x + i, s32_limited((vec)(away(e * s) + origin), 0, type->top));
    else
        for (int i = 0; i < type->run; i += STEP)
            STORE_CODES(to + i, x + i, away(e * s) + origin);
}

static inline void sign_codes(const struct gguf_type *type, const float *x, unsigned char *to)
{
    for (int i = 0; i < type->run; i += STEP)
        STORE_CODES(to + i, x + i, 1 - (s32v)f32v_if(f32v_less(e, f32v_splat(0)), (f32v)s32_splat(1)));
}

static inline void codebook_codes(const struct codebook *b, int n, const float *x, float inverse, unsigned char *to)
{
    for (int i = 0; i < n; i += STEP)
        STORE_CODES(to + i, x + i, codebook_code(b, f32v_splat(inverse) * e));
}

/* Elements above a middle of neighbours have the upper one's code. 0 has no sign. */
DEEP_INLINE s32v e2m1_code(f32v e, const f32v *middle)
{
    const f32v magnitude = f32v_magnitude(e);
    u32v code = {0};
    _Pragma("GCC unroll 8") for (int k = 0; k < 7; k++) code +=
        (u32v)f32v_if(f32v_less(middle[k], magnitude), (f32v)s32_splat(1));
    const u32v some = (u32v)((s32v)code > 0) & 8;
    return (s32v)(code | (some & ((u32v)e >> 28)));
}

/* The first magnitude with the least error, where middles are inexact or errors are equal by rounding. */
DEEP_INLINE s32v e2m1_odd_code(f32v e, const f32v *number)
{
    const f32v magnitude = f32v_magnitude(e);
    f32v best = magnitude, code = f32v_splat(0);
    for (int k = 1; k < 8; k++) {
        const f32v error = f32v_magnitude(number[k] - magnitude);
        code = f32v_choose(f32v_less(error, best), (f32v)s32_splat(k), code);
        best = f32v_min(error, best);
    }
    const u32v some = (u32v)((s32v)code > 0) & 8;
    return (s32v)((u32v)code | (some & ((u32v)e >> 28)));
}

/* found: the largest magnitude, or a part of it. */
static inline void e2m1_codes(size_t n, const float *x, float found, float scale, unsigned char *to)
{
    f32v number[8], middle[7];
    for (int k = 0; k < 8; k++)
        number[k] = f32v_splat((float)qobs_e2m1_doubled[k] * scale);
    if (scale < 0x1p-100f || found > 16 * scale)
        for (size_t i = 0; i < n; i += STEP)
            STORE_CODES(to + i, x + i, e2m1_odd_code(e, number));
    else {
        for (int k = 0; k < 7; k++)
            middle[k] = f32v_splat(0.5f) * (number[k] + number[k + 1]);
        for (size_t i = 0; i < n; i += STEP)
            STORE_CODES(to + i, x + i, e2m1_code(e, middle));
    }
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

/* Planes whose neighbours are apart, as 16 bytes at a time, or 8. A field of a byte does not leave it. */
typedef uint64_t u64x2 __attribute__((vector_size(16)));

ALWAYS_INLINE void store_apart(unsigned bits, size_t size, const struct gguf_plane *plane, const unsigned char *codes,
                               size_t n, unsigned char *to)
{
    const uint64_t one = UINT64_C(0x0101010101010101) * ((1U << bits) - 1);
    const u64x2 mask = {one, one};
    const size_t apart = plane->apart, group = apart * (8 / bits);
    for (size_t g = 0; g < n; g += group)
        for (size_t i = 0; i < apart; i += size, to += size) {
            u64x2 all = {0};
            _Pragma("GCC unroll 8") for (unsigned k = 0; k < 8 / bits; k++)
            {
                u64x2 some = {0};
                memcpy(&some, codes + g + i + k * apart, size);
                all |= (some >> plane->shift & mask) << k * bits;
            }
            memcpy(to, &all, size);
        }
}

/* Bytes with a field of their own become a byte with all of them: multiplication moves each field to its place in the
 * highest byte, and none of the others meet. */
ALWAYS_INLINE void store_neighbours(unsigned bits, const struct gguf_plane *plane, const unsigned char *codes, size_t n,
                                    unsigned char *to)
{
    const unsigned each = 8 / bits, last = 8 * (each - 1), unused = EVEN_IS_LOW ? 0 : 56 - last;
    const uint64_t mask = UINT64_C(0x0101010101010101) * ((1U << bits) - 1);
    uint64_t places = 0;
    for (unsigned k = 0; k < each; k++)
        places |= UINT64_C(1) << (EVEN_IS_LOW ? last - (8 - bits) * k : (8 + bits) * k);
    for (size_t i = 0; i < n; i += each) {
        uint64_t fields = 0;
        memcpy(&fields, codes + i, each);
        *to++ = (unsigned char)((fields >> unused >> plane->shift & mask) * places >> last);
    }
}

ALWAYS_INLINE void store_fields(unsigned bits, const struct gguf_plane *plane, const unsigned char *codes, size_t n,
                                unsigned char *to)
{
    if (plane->apart == 1)
        store_neighbours(bits, plane, codes, n, to);
    else if (plane->apart % 16 == 0)
        store_apart(bits, 16, plane, codes, n, to);
    else
        store_apart(bits, 8, plane, codes, n, to);
}

static inline void store_plane(const struct gguf_plane *plane, const unsigned char *codes, size_t n, unsigned char *to)
{
    if (plane->bits == 1)
        store_fields(1, plane, codes, n, to);
    else if (plane->bits == 2)
        store_fields(2, plane, codes, n, to);
    else if (plane->bits == 4)
        store_fields(4, plane, codes, n, to);
    else
        memcpy(to, codes, n);
}

/* TQ1_0: five codes as digits of base 3, the first highest, and as a fraction of 243 of a byte, rounded up. 160 codes
 * lie 32 apart, 80 lie 16 apart, and 16, with a last digit of 0, lie 4 apart. */
static inline void store_trits(const unsigned char *codes, unsigned char *to)
{
    static const uint8_t part[3][3] = {{32, 5, 160}, {16, 5, 80}, {4, 4, 16}}; /* apart, digits, codes */
    for (size_t p = 0; p < 3; codes += part[p][2], p++)
        for (size_t i = 0; i < part[p][0]; i++) {
            unsigned digits = 0;
            for (size_t k = 0; k < 5; k++)
                digits = digits * 3 + (k < part[p][1] ? codes[i + k * part[p][0]] : 0);
            *to++ = (unsigned char)((digits * 256 + 242) / 243);
        }
}

static inline void store_codes(const struct gguf_type *type, const unsigned char *codes, unsigned char *block)
{
    if (type->code == GGUF_CODE_TRITS)
        store_trits(codes, block);
    for (const struct gguf_plane *p = type->plane; p < type->plane + 2 && p->bits > 0; p++)
        store_plane(p, codes, type->elements, block + p->at);
}
