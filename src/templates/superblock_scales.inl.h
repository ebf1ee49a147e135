/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales of runs as integers times a scale of the block. Lanes are blocks: run j of 16 blocks is a row. Included by
 * superblock.inl.h. */

/* The scales and minima of the runs of 16 blocks, then the integers for them, and the numbers that these stand for. */
struct block_scales {
    _Alignas(64) float scale[RUNS], minimum[RUNS], weight[RUNS]; /* [run][block] */
    int32_t scale_code[RUNS], minimum_code[RUNS];
    float of_scales[ROW], of_minima[ROW];
};

#define LOAD_CODE(p) ((vec)LOAD((const float *)(const void *)(p)))
#define STORE_CODE(p, a) STORE((float *)(void *)(p), (f32v)(a))

/* Integers from 0 to top for positive numbers: those of the least weighted error near that of the maximum. They are
 * bytes: one of a negative number wraps. */

DEEP_INLINE f32v positive_error(const float *x, const float *w, int runs, f32v inverse, bool wraps, int top)
{
    const f32v scale = f32v_splat(1) / inverse;
    f32v error = f32v_splat(0);
    for (int j = 0; j < runs; j++) {
        const f32v e = LOAD(x + ROW * j);
        const vec l = integer_of(inverse * e);
        const f32v d = e - scale * number_of(wraps ? (vec)((s32v)l & 255) : vec_min_s32(l, s32_splat(top)));
        error += LOAD(w + ROW * j) * d * d;
    }
    return error;
}

/* One round of moves of single integers; see descend(). */
DEEP_INLINE f32v_mask positive_moves(const float *x, const float *w, int runs, int top, f32v_mask moving, int32_t *code,
                                     struct descent *s)
{
    const f32v zero = f32v_splat(0);
    f32v_mask moved = f32v_less(zero, zero);
    for (int j = 0; j < runs; j++) {
        const f32v e = LOAD(x + ROW * j), weight = LOAD(w + ROW * j), we = weight * e;
        const vec l = LOAD_CODE(code + ROW * j);
        const f32v xl = s->xl - we * number_of(l), ll = s->ll - weight * number_of(l) * number_of(l);
        const vec next = vec_min_s32(integer_of(e * ll / xl), s32_splat(top));
        const f32v_mask open = (f32v_mask)(f32v_less(zero, xl) & f32v_less(zero, ll) & moving),
                        others = f32v_without(open, f32v_equal(number_of(next), number_of(l)));
        if (!f32v_any(others))
            continue;
        const f32v new_xl = xl + we * number_of(next), new_ll = ll + weight * number_of(next) * number_of(next);
        const f32v_mask moves = (f32v_mask)(others & f32v_less(s->xl * s->xl * new_ll, new_xl * new_xl * s->ll));
        STORE_CODE(code + ROW * j, f32v_choose(moves, (f32v)((s32v)next & 255), (f32v)l));
        s->xl = f32v_choose(moves, new_xl, s->xl);
        s->ll = f32v_choose(moves, new_ll, s->ll);
        moved = (f32v_mask)(moved | moves);
    }
    return moved;
}

/* Returns what the integers stand for. */
static inline f32v positive_fit(const float *x, const float *w, int runs, int top, int32_t *code)
{
    const f32v zero = f32v_splat(0);
    f32v most = zero;
    for (int j = 0; j < runs; j++)
        most = f32v_max(most, LOAD(x + ROW * j));
    const f32v_mask none = f32v_less(most, f32v_splat(TINY));
    f32v inverse = f32v_splat((float)top) / most, best = positive_error(x, w, runs, inverse, true, top);
    for (int k = -4; k <= 4; k++) {
        const f32v near = f32v_splat(0.1f * (float)k + (float)top) / most;
        const f32v error = positive_error(x, w, runs, near, false, top);
        const f32v_mask better = f32v_less(error, best);
        if (k == 0)
            continue;
        best = f32v_choose(better, error, best);
        inverse = f32v_choose(better, near, inverse);
    }
    struct descent s = {zero, zero};
    for (int j = 0; j < runs; j++) {
        const f32v e = LOAD(x + ROW * j), weight = LOAD(w + ROW * j);
        const vec l = vec_min_s32(integer_of(inverse * e), s32_splat(top));
        STORE_CODE(code + ROW * j, (s32v)l & 255);
        s.xl += weight * e * number_of(l);
        s.ll += weight * number_of(l) * number_of(l);
    }
    f32v_mask moving = f32v_equal(zero, zero);
    for (int round = 0; round < 5 && f32v_any(moving); round++)
        moving = positive_moves(x, w, runs, top, moving, code, &s);
    for (int j = 0; j < runs; j++)
        STORE_CODE(code + ROW * j, f32v_unless(none, (f32v)LOAD_CODE(code + ROW * j)));
    return f32v_unless(none, f32v_if(f32v_less(zero, s.ll), s.xl / s.ll));
}

/* The maximum becomes the top. */
static inline f32v maximum_fit(const float *x, int runs, int top, int32_t *code)
{
    const f32v zero = f32v_splat(0);
    f32v most = zero;
    for (int j = 0; j < runs; j++)
        most = f32v_max(LOAD(x + ROW * j), most);
    const f32v inverse = f32v_if(f32v_less(zero, most), f32v_splat((float)top) / most);
    for (int j = 0; j < runs; j++)
        STORE_CODE(code + ROW * j, integer_of(inverse * LOAD(x + ROW * j)));
    return most / f32v_splat((float)top);
}

/* The peak becomes the lowest integer: -128 of bytes, else -32. Without a peak Q3_K has integers of -32, others of 0.
 */
static inline f32v peak_fit(enum gguf_scales kind, const float *x, int runs, int32_t *code)
{
    const f32v zero = f32v_splat(0);
    const int low = kind == GGUF_SCALES_BYTES ? 128 : 32;
    f32v magnitude = zero, peak = zero;
    for (int j = 0; j < runs; j++) {
        const f32v e = LOAD(x + ROW * j), m = f32v_magnitude(e);
        peak = f32v_choose(f32v_less(magnitude, m), e, peak);
        magnitude = f32v_max(m, magnitude);
    }
    const f32v_mask none = kind == GGUF_SCALES_BYTES ? f32v_less(magnitude, f32v_splat(TINY)) : f32v_equal(peak, zero);
    const f32v xs = -peak / f32v_splat(32);
    const f32v inverse = kind == GGUF_SCALES_XS ? f32v_splat(1) / xs : f32v_splat(-(float)low) / peak;
    const f32v without = (f32v)s32_splat(kind == GGUF_SCALES_3 ? -32 : 0);
    for (int j = 0; j < runs; j++) {
        const vec l = s32_limited(integer_of(inverse * LOAD(x + ROW * j)), -low, low - 1);
        STORE_CODE(code + ROW * j, f32v_choose(none, without, (f32v)l));
    }
    return kind == GGUF_SCALES_XS ? xs : f32v_unless(none, f32v_splat(1) / inverse);
}

/* Integers of the scales and minima of block_scales. */
static void fit_blocks(const struct gguf_type *type, bool weighted, struct block_scales *b)
{
    const int runs = type->elements / type->run, top = type->scales == GGUF_SCALES_NIBBLES ? 15 : 63;
    for (int v = 0; v < F32X16_PARTS; v++) {
        const int at = LANES * v;
        const float *const x = b->scale + at, *const w = b->weight + at;
        f32v d, m = f32v_splat(0);
        if (type->minimum_at >= 0 && weighted) {
            d = positive_fit(x, w, runs, top, b->scale_code + at);
            m = positive_fit(b->minimum + at, w, runs, top, b->minimum_code + at);
        } else if (type->minimum_at >= 0) {
            d = maximum_fit(x, runs, top, b->scale_code + at);
            m = maximum_fit(b->minimum + at, runs, top, b->minimum_code + at);
        } else if (type->scales == GGUF_SCALES_3 && weighted) {
            struct signed_search s;
            signed_search(1, x, w, b->minimum + at, runs, 32, &s);
            const f32v_mask number = f32v_equal(s.code_scale, s.code_scale);
            for (int j = 0; j < runs; j++) {
                const vec l = s32_limited(integer_of(s.code_scale * LOAD(x + ROW * j)), -32, 31);
                STORE_CODE(b->scale_code + at + ROW * j, f32v_choose(number, (f32v)l, (f32v)s32_splat(-32)));
            }
            d = s.scale;
        } else {
            d = peak_fit((enum gguf_scales)type->scales, x, runs, b->scale_code + at);
        }
        STORE(b->of_scales + at, d);
        STORE(b->of_minima + at, m);
    }
}

/* Bytes of 6 bits: those of negative numbers have wrapped. ggml limits them, but those of Q4_K with importance. */
static inline unsigned six_bits(const struct gguf_type *type, bool weighted, int32_t code)
{
    const unsigned byte = (unsigned)code & 255;
    return byte > 63 && !(weighted && type->top == 15) ? 63 : byte;
}

/* Writes the scales of block i of 16. */
static inline void store_scales(const struct gguf_type *type, bool weighted, const struct block_scales *b, size_t i,
                                unsigned char *block)
{
    unsigned char *const p = block + type->scales_at;
    gguf_store16(block + type->scale_at, f16_of_float(b->of_scales[i]));
    if (type->minimum_at >= 0)
        gguf_store16(block + type->minimum_at, f16_of_float(b->of_minima[i]));
    if (type->scales == GGUF_SCALES_3)
        memset(p, 0, 12);
    if (type->scales == GGUF_SCALES_XS)
        memset(p, 0, 6);
    const unsigned runs = type->elements / type->run;
    for (unsigned j = 0; j < runs; j++) {
        const int32_t s = b->scale_code[ROW * j + i], m = b->minimum_code[ROW * j + i];
        if (type->scales == GGUF_SCALES_NIBBLES)
            p[j] = (unsigned char)((unsigned)s | (unsigned)m << 4);
        else if (type->scales == GGUF_SCALES_4)
            gguf_store_scales_4(p, j, six_bits(type, weighted, s), six_bits(type, weighted, m));
        else if (type->scales == GGUF_SCALES_BYTES)
            p[j] = (unsigned char)s;
        else if (type->scales == GGUF_SCALES_3)
            gguf_store_scale_3(p, j, (unsigned)(s + 32));
        else
            gguf_store_scale_xs(p, j, (unsigned)(s + 32));
    }
}
