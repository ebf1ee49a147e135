/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Processor time, on one thread, of the Gram of activations, of the presets with optimal scales, and of rounding.
 *
 *   optimal_speed [ROWS [ISA [COLUMNS]]]   rows of a bf16 weight of 4096 columns (default 256), 0: only the Gram;
 *                                          with COLUMNS only rounding
 *
 * The Gram is compared with the peak of fused float multiply-adds that the same run measures in registers alone.
 * Multiply-adds are those of entries j <= k, as H is symmetric; tiles of registers do up to a quarter more. Searches
 * are compared with each other.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "qobs/qobs.h"
#include "qobs/stateless.h"

enum { TOKENS = 4096, TRIES = 5 };

static int64_t columns = 4096;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- The peak ---------------------------------------------------------------------------------------------------- */

/* Fused multiply-adds a second of a loop with SUMS independent sums, unrolled so that they stay in registers. */
#define PEAK(name, isa, vector, set, fma, lanes)                                                                       \
    __attribute__((target(isa))) static double name(void)                                                              \
    {                                                                                                                  \
        enum { SUMS = 12, ROUNDS = 2000000 };                                                                          \
        vector s[SUMS], x = set(0.5f);                                                                                 \
        for (int i = 0; i < SUMS; i++)                                                                                 \
            s[i] = set((float)i);                                                                                      \
        const double start = now();                                                                                    \
        for (int r = 0; r < ROUNDS; r++) {                                                                             \
            _Pragma("GCC unroll 12") for (int i = 0; i < SUMS; i++) s[i] = fma(s[i], x, x);                            \
        }                                                                                                              \
        const double seconds = now() - start;                                                                          \
        float out[lanes];                                                                                              \
        for (int i = 0; i < SUMS; i++) {                                                                               \
            memcpy(out, &s[i], sizeof out);                                                                            \
            sink += out[0];                                                                                            \
        }                                                                                                              \
        return (double)SUMS * ROUNDS * (lanes) / seconds;                                                              \
    }

static volatile float sink;
#if defined(__x86_64__)
PEAK(peak_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, 8)
PEAK(peak_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, 16)
#endif

static double peak_of(const char *isa)
{
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        double peak = 0;
#if defined(__x86_64__)
        peak = strcmp(isa, "avx2") == 0 ? peak_avx2() : strcmp(isa, "avx512") == 0 ? peak_avx512() : 0;
#endif
        best = peak > best ? peak : best;
    }
    return best;
}

/* ---- Data -------------------------------------------------------------------------------------------------------- */

static uint64_t state = 88172645463325252u;

static float gauss(void)
{
    float sum = -6;
    for (int i = 0; i < 12; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sum += (float)(state >> 40) * 0x1p-24f;
    }
    return sum;
}

static uint16_t bf16_below(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static qobs_observer *open_observer(const char *text)
{
    qobs_observer *o;
    qobs_error error;
    if (qobs_observer_open(&o, text, NULL, &error) != QOBS_OK) {
        fprintf(stderr, "optimal_speed: %s: %s\n", text, error.message);
        exit(1);
    }
    return o;
}

static void must(int status, const qobs_error *error)
{
    if (status == QOBS_OK)
        return;
    fprintf(stderr, "optimal_speed: %s\n", error->message);
    exit(1);
}

/* ---- Measurements ------------------------------------------------------------------------------------------------ */

static void measure_gram(const qobs_tensor *x, int block, double peak)
{
    char text[100];
    double best = 1e9;
    qobs_error error;
    snprintf(text, sizeof text, "qobs.local_hessian group_size=%d", block);
    for (int i = 0; i < TRIES; i++) {
        qobs_observer *o = open_observer(text), *diagonal = open_observer("qobs.imatrix_optimal group_size=128");
        double start = now();
        must(qobs_observer_observe_importance(o, x, &error), &error);
        double seconds = now() - start;
        start = now();
        must(qobs_observer_observe_importance(diagonal, x, &error), &error);
        seconds -= now() - start; /* both sum squares, too */
        best = seconds < best ? seconds : best;
        qobs_observer_destroy(o);
        qobs_observer_destroy(diagonal);
    }
    const double needed = (double)TOKENS * (double)columns * (block + 1) / 2 / best;
    printf("Gram, blocks of %4d: %6.1f G multiply-adds/s", block, needed * 1e-9);
    if (peak > 0)
        printf(", %.2f of the peak", needed / peak);
    printf("\n");
}

static double measure_search(const char *text, const qobs_tensor *x, const qobs_tensor *w)
{
    double best = 1e9;
    qobs_error error;
    for (int i = 0; i < 3; i++) {
        qobs_observer *o = open_observer(text);
        must(qobs_observer_observe_importance(o, x, &error), &error);
        const double start = now();
        must(qobs_observer_observe(o, w, NULL, &error), &error);
        const double seconds = now() - start;
        best = seconds < best ? seconds : best;
        qobs_observer_destroy(o);
    }
    return best;
}

/* Two passes of rounding by descent under the Hessian of the row, int4 in groups of 128. */
static void measure_rounding(const qobs_tensor *x, const qobs_tensor *w, double peak)
{
    enum { GROUP = 128, PASSES = 2 };
    const char *const text = "qobs.imatrix_optimal num_bits=4 group_size=128";
    const int64_t rows = w->shape[0], shape[] = {1, columns, columns}, scales[] = {rows, columns / GROUP};
    const size_t size = (size_t)(columns * columns) * sizeof(double), qparams = (size_t)(rows * columns / GROUP);
    char whole[100];
    snprintf(whole, sizeof whole, "qobs.local_hessian group_size=128 hessian_block_size=%lld", (long long)columns);
    qobs_observer *h = open_observer(whole);
    qobs_observer *o = open_observer(text);
    double *const sum = malloc(size), best = 1e9;
    unsigned char *const codes = malloc((size_t)(rows * columns));
    uint16_t *const scale = malloc(qparams * sizeof *scale);
    signed char *const zero_point = malloc(qparams);
    qobs_error error;
    if (!sum || !codes || !scale || !zero_point) {
        fprintf(stderr, "optimal_speed: no memory\n");
        exit(1);
    }
    must(qobs_observer_observe_importance(h, x, &error), &error);
    must(qobs_observer_read(h, "hessian_sum", sum, size, &error), &error);
    must(qobs_observer_observe_importance(o, x, &error), &error);
    must(qobs_observer_observe(o, w, NULL, &error), &error);
    const qobs_qparam_buffers found = {sizeof found, scale, qparams * sizeof *scale, zero_point, qparams, NULL};
    must(qobs_qparams_from_observer(o, &found, &error), &error);
    const qobs_tensor hessian = {sizeof hessian, sum, QOBS_F64, 3, shape, NULL};
    const qobs_tensor given = {sizeof given, scale, QOBS_BF16, 2, scales, NULL};
    const qobs_round_args args = {.struct_size = sizeof args,
                                  .config = qobs_observer_config(o),
                                  .value = w,
                                  .scale = &given,
                                  .hessian = &hessian,
                                  .hessian_count = TOKENS,
                                  .passes = PASSES,
                                  .codes = codes,
                                  .codes_size = (size_t)(rows * columns)};
    for (int i = 0; i < TRIES; i++) {
        const double start = now();
        must(qobs_round_codes(&args, &error), &error);
        const double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    const double needed = (double)rows * (double)columns * (double)columns * PASSES / best;
    printf("%6.2f s for 4096 rows, %5.1f G multiply-adds/s", best * 4096 / (double)rows, needed * 1e-9);
    if (peak > 0)
        printf(", %.2f of the peak", needed / peak);
    printf(": two passes of rounding, int4\n");
    free(sum);
    free(codes);
    free(scale);
    free(zero_point);
    qobs_observer_destroy(h);
    qobs_observer_destroy(o);
}

int main(int argc, char **argv)
{
    static const char *const searches[] = {
        "qobs.imatrix_optimal num_bits=4 group_size=128",
        "qobs.local_hessian num_bits=4 group_size=128",
        "qobs.local_hessian num_bits=4 group_size=128 hessian_block_size=1024",
        "qobs.local_hessian num_bits=4 group_size=128 symmetric=false",
        "qobs.local_hessian num_bits=4 type=float strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn",
        ("qobs.local_hessian num_bits=4 type=float strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn "
         "hessian_block_size=1024")};
    static const int blocks[] = {128, 16, 1024};
    const int64_t rows = argc > 1 ? strtoll(argv[1], NULL, 10) : 256;
    const bool rounding_alone = argc > 3;
    if (rounding_alone)
        columns = strtoll(argv[3], NULL, 10);
    const int64_t x_shape[] = {TOKENS, columns}, few_shape[] = {256, columns}, w_shape[] = {rows, columns};
    uint16_t *const x = malloc((size_t)(TOKENS * columns) * sizeof *x);
    uint16_t *const w = malloc((size_t)((rows + 1) * columns) * sizeof *w);
    if (!x || !w || rows < 0 || columns < 128 || columns % 128 != 0) {
        fprintf(stderr, "optimal_speed: no memory, a negative number of rows, or columns that 128 does not divide\n");
        return 1;
    }
    float last = 0; /* neighbouring columns go together */
    for (size_t i = 0; i < (size_t)(TOKENS * columns); i++) {
        last = gauss() + (i % (size_t)columns % 64 > 0 ? last * 0.7f : 0);
        x[i] = bf16_below(last);
    }
    for (size_t i = 0; i < (size_t)(rows * columns); i++)
        w[i] = bf16_below(gauss() * 0.05f);
    const qobs_tensor all = {sizeof all, x, QOBS_BF16, 2, x_shape, NULL};
    const qobs_tensor few = {sizeof few, x, QOBS_BF16, 2, few_shape, NULL};
    const qobs_tensor weight = {sizeof weight, w, QOBS_BF16, 2, w_shape, NULL};
    for (size_t i = 0; i < qobs_isa_count(); i++) {
        if (!qobs_isa_usable(i) || (argc > 2 && strcmp(argv[2], qobs_isa_name(i)) != 0))
            continue;
        qobs_isa_select(qobs_isa_name(i), NULL);
        const double peak = peak_of(qobs_isa_name(i));
        printf("%s: peak %.1f G fused float multiply-adds/s\n", qobs_isa_name(i), peak * 1e-9);
        for (size_t b = 0; !rounding_alone && b < sizeof blocks / sizeof *blocks; b++)
            measure_gram(&all, blocks[b], peak);
        double first = 0;
        for (size_t s = 0; !rounding_alone && rows > 0 && s < sizeof searches / sizeof *searches; s++) {
            const double seconds = measure_search(searches[s], &few, &weight);
            first = s == 0 ? seconds : first;
            printf("%6.2f s for 4096 rows, %5.1f times the first: %s\n", seconds * 4096 / (double)rows, seconds / first,
                   searches[s]);
        }
        if (rows > 0)
            measure_rounding(&all, &weight, peak_of(qobs_isa_name(i)));
    }
    free(x);
    free(w);
    return 0;
}
