/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The paths to codes of BF16 beside lanes; included by codes_lanes.inl.h, whose contract holds. An instruction set
 * lists those that it has as BF16_CODE_PATHS in its simd.h. */

/* ---- Thresholds of e2m1 ------------------------------------------------------------------------------------------ */

#ifdef CODE_THRESHOLDS
#include "templates/codes_e2m1.inl.h"

ALWAYS_INLINE size_t NATIVE(thresholds_path)(const struct NATIVE(quantizer) * q,
                                             const struct NATIVE(lane_constants) * c, int how, int kind,
                                             const struct NATIVE(code_runs) * r, struct code_sums *sums)
{
    (void)q, (void)kind;
    return threshold_rows(how, r->x, r->x_stride, r->codes, r->code_stride, r->count, r->length, r->qparams.scale,
                          r->qparam_stride, c->ahead, sums);
}
#endif

/* ---- Tables of int4 and e4m3 ------------------------------------------------------------------------------------- */

#ifdef CODE_LOOKUP
/* Adds up the errors of 64 elements, whose codes are stored. scale: for e4m3 times E4M3_NUMBER_SCALE. table: the
 * dequantized numbers of all integer codes. */
ALWAYS_INLINE void NATIVE(table_errors)(int how, int kind, const element *from, const unsigned char *codes,
                                        f32x16 scale, f32x16 table, struct code_sums *sums)
{
    for (size_t j = 0; j < 64; j += 16) {
        const f32x16 x = lanes_load(from + j);
        const f32x16 number = kind == QOBS_CODE_INTEGER ? code_permute(table, codes + j)
                                                        : NATIVE(lanes_product)(how, e4m3_numbers(codes + j), scale);
        code_sums_add(sums, f32x16_sub(x, number), x);
    }
}

/* Returns how many elements it has quantized, a multiple of 64. Errors are added up a step later than codes are stored,
 * so that they do not wait for them. */
ALWAYS_INLINE size_t NATIVE(table_run)(const struct table_constants *c, int how, int kind, const element *from,
                                       unsigned char *to, size_t length, float scale, ptrdiff_t ahead,
                                       struct code_sums *sums)
{
    const struct code_lookup t = code_lookup_of(c, kind, scale);
    const f32x16 number_scale = f32x16_splat(kind == QOBS_CODE_INTEGER ? scale : scale * E4M3_NUMBER_SCALE);
    const f32x16 table = NATIVE(lanes_product)(how, int4_numbers(), number_scale);
    size_t j = 0;
    for (; length - j >= 64; j += 64) {
        const unsigned char *at = (const unsigned char *)(from + j);
        __builtin_prefetch(at + ahead);
        __builtin_prefetch(at + ahead + 64);
        table_codes(&t, &t, kind, at, to + j);
        if (how & WITH_SUM && j > 0)
            NATIVE(table_errors)(how, kind, from + j - 64, to + j - 64, number_scale, table, sums);
    }
    if (how & WITH_SUM && j > 0)
        NATIVE(table_errors)(how, kind, from + j - 64, to + j - 64, number_scale, table, sums);
    return j;
}

/* Two runs of 32 in one step, without sums. */
ALWAYS_INLINE void NATIVE(table_two_runs)(const struct table_constants *c, int kind, const element *from,
                                          unsigned char *to, float scale0, float scale1, ptrdiff_t ahead)
{
    const struct code_lookup t0 = code_lookup_of(c, kind, scale0), t1 = code_lookup_of(c, kind, scale1);
    const unsigned char *at = (const unsigned char *)from;
    __builtin_prefetch(at + ahead);
    __builtin_prefetch(at + ahead + 64);
    table_codes(&t0, &t1, kind, at, to);
}

/* Runs of 64 elements or more, and without sums pairs of runs of 32 in line. */
ALWAYS_INLINE size_t NATIVE(tables_path)(const struct NATIVE(quantizer) * q, const struct NATIVE(lane_constants) * c,
                                         int how, int kind, const struct NATIVE(code_runs) * all,
                                         struct code_sums *sums)
{
    const bool in_pairs = !(how & WITH_SUM) && all->length == 32 && all->x_stride == 64 && all->code_stride == 32;
    const struct code_tables *tables =
        in_pairs || all->length >= 64 ? tables_of(kind, q->quant_min, q->quant_max) : NULL;
    const struct table_constants constants = table_constants(tables);
    const size_t step = in_pairs ? 2 : 1;
    struct NATIVE(code_runs) r = *all;
    for (; tables && r.count >= step; r = NATIVE(runs_behind)(r, step)) {
        const element *from = (const element *)r.x;
        const real *scale = r.qparams.scale, s = *scale, last = scale[in_pairs ? r.qparam_stride : 0];
        if (!may_look_up(kind, s) || !may_look_up(kind, last))
            break;
        if (in_pairs) {
            NATIVE(table_two_runs)(&constants, kind, from, r.codes, s, last, c->ahead);
            continue;
        }
        const size_t done =
            NATIVE(table_run)(&constants, how | BY_RECIPROCAL, kind, from, r.codes, r.length, s, c->ahead, sums);
        if (done < r.length)
            NATIVE(lanes_one_run)(c, how, kind, &r, done, sums);
    }
    return all->count - r.count;
}
#endif

/* ---- Nearest integers -------------------------------------------------------------------------------------------- */

#ifdef CODE_NEAREST
/* Integer codes of 64 elements at a time. Returns how many it has quantized, a multiple of 64; 0 if a number is too
 * large for it. all: bytes limit the integers, and no number is too large. Limits are integers, so that limiting may
 * come after rounding. */
ALWAYS_INLINE size_t NATIVE(nearest_run)(bool all, int how, struct nearest_limits limits, const element *from,
                                         unsigned char *to, size_t length, const struct NATIVE(lane_qparams) * p,
                                         ptrdiff_t ahead)
{
    size_t j = 0;
    for (; length - j >= 64; j += 64) {
        f32x16 v[4];
        for (size_t k = 0; k < 4; k += 2) {
            __builtin_prefetch((const unsigned char *)(from + j + 16 * k) + ahead);
            f32x16_load_bf16_pairs(from + j + 16 * k, &v[k], &v[k + 1]);
        }
        for (size_t k = 0; k < 4; k++) {
            v[k] = NATIVE(lanes_near)(f32x16_mul(v[k], p->divide));
            if (how & ZERO_POINT)
                v[k] = NATIVE(lanes_split)(f32x16_add(v[k], p->zero_point_add));
        }
        nearest_store(to + j, v, all ? NULL : &limits);
    }
    return all || !nearest_too_large(&limits) ? j : 0;
}

/* Runs of 64 elements or more. */
ALWAYS_INLINE size_t NATIVE(nearest_path)(const struct NATIVE(quantizer) * q, const struct NATIVE(lane_constants) * c,
                                          int how, int kind, const struct NATIVE(code_runs) * all,
                                          struct code_sums *sums)
{
    const struct nearest_limits limits = nearest_limits_of((int)q->quant_min, (int)q->quant_max);
    struct NATIVE(code_runs) r = *all;
    for (; r.length >= 64 && r.count > 0; r = NATIVE(runs_behind)(r, 1)) {
        const element *from = (const element *)r.x;
        const real s = *(const real *)r.qparams.scale;
        if (!NATIVE(may_multiply)(how, kind, s))
            break;
        struct NATIVE(lane_qparams) p = {.divide = f32x16_splat(1 / s)};
        if (how & ZERO_POINT)
            p.zero_point_add = f32x16_splat(*(const real *)r.qparams.zero_point_add);
        const size_t done =
            q->saturates ? NATIVE(nearest_run)(true, how, limits, from, r.codes, r.length, &p, c->ahead)
                         : NATIVE(nearest_run)(false, how, limits, from, r.codes, r.length, &p, c->ahead);
        if (done < r.length)
            NATIVE(lanes_one_run)(c, how, kind, &r, done, sums);
    }
    return all->count - r.count;
}
#endif
