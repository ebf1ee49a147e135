/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The sums of squared errors of codes, in the order of kernel_quantize.h; included by quantize.inl.h. */

/* 1 bits in the first lanes: read from element 16 - n, they have n. */
static const uint32_t first_lanes[32] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
                                         UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
                                         UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};

/* Squares of errors and of elements, in 16 lanes each, since they were last added to the doubles. */
struct code_sums {
    f32x16 error, energy;
    size_t vectors;
    double *sum; /* the caller's two */
};

ALWAYS_INLINE struct code_sums code_sums_of(double *sum)
{
    return (struct code_sums){f32x16_splat(0), f32x16_splat(0), 0, sum};
}

/* A call, so that the loops keep their registers. lanes: sums of errors and of energies. */
static __attribute__((noinline)) void code_sums_add_lanes(const f32x16 lanes[2], double *sum)
{
    const f32x16 twice[] = {lanes[0], lanes[1], lanes[0], lanes[1]};
    float total[4];
    f32x16_sum_4(twice, total);
    sum[0] += (double)total[0];
    sum[1] += (double)total[1];
}

ALWAYS_INLINE void code_sums_flush(struct code_sums *s)
{
    const f32x16 lanes[] = {s->error, s->energy};
    code_sums_add_lanes(lanes, s->sum);
    *s = code_sums_of(s->sum);
}

ALWAYS_INLINE void code_sums_add(struct code_sums *s, f32x16 error, f32x16 x)
{
    s->error = f32x16_add(s->error, f32x16_mul(error, error));
    s->energy = f32x16_add(s->energy, f32x16_mul(x, x));
    if (++s->vectors == QOBS_CODE_SUM_VECTORS)
        code_sums_flush(s);
}

/* The same of doubles. */
struct code_sums_wide {
    double error[16], energy[16];
    size_t vectors;
    double *sum;
};

static void code_sums_flush_wide(struct code_sums_wide *s)
{
    for (int apart = 8; apart > 0; apart /= 2)
        for (int k = 0; k < apart; k++) {
            s->error[k] += s->error[k + apart];
            s->energy[k] += s->energy[k + apart];
        }
    s->sum[0] += s->error[0];
    s->sum[1] += s->energy[0];
    *s = (struct code_sums_wide){.sum = s->sum};
}

/* Element j of a run with its error. The last element of a vector or of the run ends the vector. */
ALWAYS_INLINE void code_sums_add_wide(struct code_sums_wide *s, size_t j, size_t length, double error, double x)
{
    s->error[j % 16] += error * error;
    s->energy[j % 16] += x * x;
    if ((j % 16 == 15 || j + 1 == length) && ++s->vectors == QOBS_CODE_SUM_VECTORS)
        code_sums_flush_wide(s);
}
