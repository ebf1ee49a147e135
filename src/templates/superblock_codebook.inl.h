/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The numbers of IQ4: the nearest of 16 numbers without a pattern. Included by superblock.inl.h after
 *   struct f32v_table8, f32v_table8(const float[8])
 *   f32v_pick8(table, u32v index)   entries at the low three bits of the indices */

/* Four comparisons with middles of numbers, each decided by those before: entry k of `first` and `second` are middles
 * of the third and the fourth one. */
struct codebook {
    f32v middle[3]; /* of the first, and of the second if the number is above and below */
    struct f32v_table8 third, fourth, above, below;
};

static inline float codebook_middle(int k) { return 0.5f * (float)(qobs_iq4_numbers[k] + qobs_iq4_numbers[k + 1]); }

/* A path is 1 and a bit for each comparison, 1 if the number is below the middle. */
static inline struct codebook codebook(void)
{
    float third[8], fourth[8], above[8], below[8];
    for (int k = 0; k < 8; k++) {
        third[k] = codebook_middle(13 - 4 * (k & 3));
        fourth[k] = codebook_middle(14 - 2 * k);
        above[k] = (float)qobs_iq4_numbers[15 - 2 * k];
        below[k] = (float)qobs_iq4_numbers[14 - 2 * k];
    }
    return (struct codebook){
        {f32v_splat(codebook_middle(7)), f32v_splat(codebook_middle(11)), f32v_splat(codebook_middle(3))},
        f32v_table8(third),
        f32v_table8(fourth),
        f32v_table8(above),
        f32v_table8(below)};
}

DEEP_INLINE u32v next_path(u32v path, f32v_mask less)
{
    return path + path + ((u32v)f32v_if(less, (f32v)(u32v)s32_splat(1)));
}

/* The path up to the last comparison, and in *last the lanes that are below its middle. */
DEEP_INLINE u32v codebook_path(const struct codebook *b, f32v x, f32v_mask *last)
{
    const f32v_mask low = f32v_less(x, b->middle[0]);
    u32v path = next_path((u32v)s32_splat(1), low);
    path = next_path(path, f32v_less(x, f32v_choose(low, b->middle[2], b->middle[1])));
    path = next_path(path, f32v_less(x, f32v_pick8(b->third, path)));
    *last = f32v_less(x, f32v_pick8(b->fourth, path));
    return path;
}

DEEP_INLINE f32v codebook_number(const struct codebook *b, f32v x)
{
    f32v_mask last;
    const u32v path = codebook_path(b, x, &last);
    return f32v_choose(last, f32v_pick8(b->below, path), f32v_pick8(b->above, path));
}

DEEP_INLINE vec codebook_code(const struct codebook *b, f32v x)
{
    f32v_mask last;
    const u32v path = codebook_path(b, x, &last);
    return (vec)(31 - next_path(path, last));
}

/* Sums of weighted elements times numbers, and of weighted squares of numbers. */
DEEP_INLINE void codebook_sums(const struct codebook *b, const float *x, const float *w, int n, f32v inverse, f32v *xq,
                               f32v *qq)
{
    *xq = *qq = f32v_splat(0);
    for (int i = 0; i < n; i++) {
        const f32v e = LOAD(x + ROW * i), q = codebook_number(b, inverse * e), wq = LOAD(w + ROW * i) * q;
        *xq += wq * e;
        *qq += wq * q;
    }
}

/* The first candidate makes the peak the number -127 or 127 by its sign; the others are near, on the side of -127. */
static __attribute__((noinline)) void codebook_search(const float *x, const float *w, float *weighted, int n,
                                                      struct signed_search *s)
{
    const struct codebook b = codebook();
    const f32v zero = f32v_splat(0);
    f32v xq, qq;
    signed_begin(1, x, w, weighted, n, s);
    codebook_sums(&b, x, w, n, f32v_splat(1) / (-s->peak / f32v_splat(-127)), &xq, &qq);
    s->scale = f32v_if(f32v_less(zero, qq), xq / qq);
    s->best = s->scale * xq;
    for (int k = -7; k <= 7; k++) {
        codebook_sums(&b, x, w, n, f32v_splat((float)(k - 127)) / s->peak, &xq, &qq);
        const f32v scale = xq / qq;
        const f32v_mask better = (f32v_mask)(f32v_less(zero, qq) & f32v_less(s->best * qq, xq * xq));
        s->scale = f32v_choose(better, scale, s->scale);
        s->best = f32v_choose(better, scale * xq, s->best);
    }
    s->scale = f32v_unless(f32v_less(s->magnitude, f32v_splat(TINY)), s->scale);
}

static inline void find_codebook(struct pack *p, int n, struct found *f, size_t at)
{
    for (int v = 0; v < VECTORS; v++) {
        struct signed_search s;
        codebook_search(AT(p->x, v), AT(p->w, v), AT(p->code, v), n, &s);
        STORE(f->scale + at + (size_t)(v * LANES), s.scale);
    }
}
