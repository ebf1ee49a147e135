/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torch.ao's HistogramObserver._non_linear_param_search and _compute_quantization_error. Upstream has some numbers in
 * float32 tensors and some in Python's doubles. Each operation here has the same type. */
#include <math.h>
#include <string.h>

#include "histogram/from_histogram.h"

enum { LANES = 8, ROWS = 4, LEVELS = 4 };

/* A sum in float32 in torch.sum's order for 8 lanes and 4 unrolled rows of vectors. Blocks are summed, then their sums,
 * on 4 levels; the block size grows with n. */
static float cascade_sum(const float *x, size_t n)
{
    enum { WIDTH = LANES * ROWS };
    const size_t vectors = n / LANES, size = vectors / ROWS;
    int power = 0;
    while ((size_t)1 << power < size)
        power++;
    power = power / LEVELS > 4 ? power / LEVELS : 4;
    const size_t step = (size_t)1 << power;
    float sums[LEVELS][WIDTH] = {{0}};
    size_t i = 0;
    while (i + step <= size) {
        for (size_t j = 0; j < step; j++, i++)
            for (int k = 0; k < WIDTH; k++)
                sums[0][k] += x[i * WIDTH + (size_t)k];
        for (int level = 1; level < LEVELS; level++) {
            for (int k = 0; k < WIDTH; k++)
                sums[level][k] += sums[level - 1][k];
            memset(sums[level - 1], 0, sizeof sums[level - 1]);
            if (i & (step - 1) << level * power)
                break;
        }
    }
    for (; i < size; i++)
        for (int k = 0; k < WIDTH; k++)
            sums[0][k] += x[i * WIDTH + (size_t)k];
    for (int level = 1; level < LEVELS; level++)
        for (int k = 0; k < WIDTH; k++)
            sums[0][k] += sums[level][k];
    for (size_t v = size * ROWS; v < vectors; v++)
        for (int k = 0; k < LANES; k++)
            sums[0][k] += x[v * LANES + (size_t)k];
    for (int row = 1; row < ROWS; row++)
        for (int k = 0; k < LANES; k++)
            sums[0][k] += sums[0][row * LANES + k];
    float sum = 0;
    for (size_t k = vectors * LANES; k < n; k++)
        sum += x[k];
    for (int k = 0; k < LANES; k++)
        sum += sums[0][k];
    return sum;
}

struct clip_search {
    size_t bins;
    double bin_width, numbers; /* numbers: quantized numbers */
    const float *density;      /* [bins] */
    float *norm;               /* [bins] */
};

/* (end^3 - begin^3) / 3, the integral of x^2. */
static inline float integral(float begin, float end) { return (end * end * end - begin * begin * begin) / 3; }

/* torch.div(..., rounding_mode="floor") in float32, clamped to a level. */
static float level_exact(float position, float width, float last)
{
    const float remainder = fmodf(position, width);
    float quotient = (position - remainder) / width;
    if (remainder != 0 && (width < 0) != (remainder < 0))
        quotient -= 1;
    float level = width == 0 ? position / width : floorf(quotient);
    if (quotient - level > 0.5f)
        level += 1;
    return level < 0 ? 0 : level > last ? last : level;
}

/* The same for floats of which one is at most 2^17 times the other: the quotient of doubles then has the exact integer
 * part. */
static inline float level_of(double position, double width, double last)
{
    const double quotient = position / width;
    return (float)(int32_t)(quotient < 0 ? 0 : quotient > last ? last : quotient);
}

/* The squared error if bins first to last are quantized and the elements of a bin are spread evenly over it. */
static double quantization_error(const struct clip_search *s, size_t first, size_t last)
{
    const double level_width = s->bin_width * (double)(last - first + 1) / s->numbers;
    if (level_width == 0)
        return 0;
    const float bin = (float)s->bin_width, width = (float)level_width, half = (float)(level_width / 2);
    const float last_level = (float)(s->numbers - 1), full = integral(-half, half);
    const bool exact = s->numbers > 65536 || width == 0 || !isfinite(width) || !isfinite(bin);
    for (size_t i = 0; i < s->bins; i++) {
        const float begin = (float)((int32_t)i - (int32_t)first) * bin, end = begin + bin, density = s->density[i];
        const float level_begin = exact ? level_exact(begin, width, last_level) : level_of(begin, width, last_level);
        const float level_end = exact ? level_exact(end, width, last_level) : level_of(end, width, last_level);
        const float centre_begin = (level_begin + 0.5f) * width, centre_end = level_end * width + half;
        float norm = density * integral(begin - centre_begin, half);
        norm += (level_end - level_begin - 1) * (density * full);
        norm += density * integral(-half, end - centre_end);
        s->norm[i] = norm;
    }
    return cascade_sum(s->norm, s->bins);
}

size_t qobs_non_linear_workspace(size_t bins) { return 3 * bins; }

double qobs_non_linear_search(const float *counts, size_t bins, float min, float max, double numbers, float *workspace,
                              float *new_min, float *new_max)
{
    float *sums = workspace, *density = workspace + bins;
    *new_min = min;
    *new_max = max;
    if (!isfinite(max - min))
        return NAN;
    const struct clip_search s = {.bins = bins,
                                  .bin_width = ((double)max - (double)min) / (double)bins,
                                  .numbers = numbers,
                                  .density = density,
                                  .norm = workspace + 2 * bins};
    const double total = cascade_sum(counts, bins), step = 1e-5;
    double sum = 0, alpha = 0, beta = 1, smallest = INFINITY;
    for (size_t i = 0; i < bins; i++) {
        sum += counts[i];
        sums[i] = (float)sum;
        density[i] = counts[i] / (float)s.bin_width;
    }
    size_t first = 0, last = bins - 1;
    while (alpha < beta) {
        const double next_alpha = alpha + step, next_beta = beta - step;
        const float below = (float)(next_alpha * total), above = (float)(next_beta * total);
        size_t l = first, r = last;
        while (l < last && sums[l] < below)
            l++;
        while (r > first && sums[r] > above)
            r--;
        const bool from_left = l - first > last - r;
        const size_t next_first = from_left ? l : first, next_last = from_left ? last : r;
        alpha = from_left ? next_alpha : alpha;
        beta = from_left ? beta : next_beta;
        if (next_first == first && next_last == last)
            continue;
        const double error = quantization_error(&s, next_first, next_last);
        if (error > smallest)
            break;
        smallest = error;
        first = next_first;
        last = next_last;
    }
    const float width = (max - min) / (float)bins;
    *new_min = min + width * (float)first;
    *new_max = min + width * (float)(last + 1);
    return isinf(smallest) ? quantization_error(&s, first, last) : smallest;
}
