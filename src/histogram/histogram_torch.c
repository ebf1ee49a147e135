/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* torch.ao's HistogramObserver (2.5 and later): its forward, _combine_histograms and _upscale_histogram. Old bins are
 * split into 16 parts of equal mass, and each part goes to the new bin that its centre is in. */
#include <float.h>
#include <math.h>

#include "histogram/from_histogram.h"

enum { PARTS = 16 };

static int unite(const struct histogram_params *params, const struct bin_range *now, size_t bins,
                 const struct extrema *extrema, struct bin_range *next, size_t *next_bins, qobs_error *error)
{
    (void)params, (void)error;
    next->lo = extrema->min < now->lo ? extrema->min : now->lo;
    next->hi = extrema->max > now->hi ? extrema->max : now->hi;
    *next_bins = bins;
    return QOBS_OK;
}

/* A range of one point: all mass goes to the bin that torch.histc puts the point in. */
static void move_point(float point, size_t bins, const double *mass, const struct bin_range *next, size_t next_bins,
                       double *to, bool float32)
{
    const struct binning b = qobs_binning_of(next->lo, next->hi, next_bins, false, false);
    double sum = 0;
    for (size_t i = 0; i < bins; i++)
        sum = add_mass(sum, mass[i], float32);
    to[qobs_bin_index(&b, point)] = sum;
}

/* The parts of all old bins, in order. */
struct parts {
    struct linspace starts;
    float half;   /* width of a part */
    double rate;  /* parts in a unit of length */
    double error; /* parts by which rounding may displace a centre */
};

static struct parts parts_of(const struct bin_range *now, size_t bins)
{
    const size_t all = bins * PARTS;
    const double lo = (double)now->lo, hi = (double)now->hi, rate = (double)all / (hi - lo);
    return (struct parts){.starts = linspace_of(now->lo, now->hi, all + 1),
                          .half = 0.5f * ((now->hi - now->lo) / (float)all),
                          .rate = rate,
                          .error = fmax(fabs(lo), fabs(hi)) * 0x1p-21 * rate + 0x1p-20};
}

static inline float centre_of(const struct parts *p, size_t part) { return linspace_at(&p->starts, part) + p->half; }

/* ---- The definition ---------------------------------------------------------------------------------------------- */

/* A bin between its edges, the upper one excluded. */
struct bucket {
    size_t index;
    float lower, upper;
};

/* Moves the bucket to the bin of x. */
static inline void find_bucket(struct bucket *b, const struct linspace *edges, float x)
{
    while (b->upper <= x && b->index + 2 < edges->n) {
        b->lower = b->upper;
        b->upper = linspace_at(edges, ++b->index + 1);
    }
    while (b->lower > x && b->index > 0) {
        b->upper = b->lower;
        b->lower = linspace_at(edges, --b->index);
    }
}

void qobs_rebin_by_parts(const struct histogram_params *params, const struct bin_range *now, size_t bins,
                         const double *mass, const struct bin_range *next, size_t next_bins, double *to)
{
    const bool float32 = params->float32_counts;
    if (now->lo == now->hi) {
        move_point(now->lo, bins, mass, next, next_bins, to, float32);
        return;
    }
    const struct linspace edges = linspace_of(next->lo, next->hi, next_bins + 1);
    const struct parts parts = parts_of(now, bins);
    struct bucket bucket = {0, linspace_at(&edges, 0), linspace_at(&edges, 1)};
    for (size_t part = 0; part < bins * PARTS; part++) {
        const double share = add_mass(mass[part / PARTS] / PARTS, 0, float32);
        if (!(share > 0))
            continue;
        find_bucket(&bucket, &edges, centre_of(&parts, part));
        to[bucket.index] = add_mass(to[bucket.index], share, float32);
    }
}

/* ---- The same, new bin by new bin -------------------------------------------------------------------------------- */

/* True if edges and centres are monotonic, so that first_part() may estimate an index. linspace switches its formula in
 * the middle, the only place at which they could decrease. Also requires that rounding displaces a centre by less than
 * 8 parts. */
static bool is_monotonic(const struct linspace *edges, const struct parts *p)
{
    const size_t edge = edges->n / 2, part = p->starts.n / 2;
    return linspace_at(edges, edge - 1) <= linspace_at(edges, edge) && centre_of(p, part - 1) <= centre_of(p, part) &&
           p->starts.step >= FLT_MIN && p->error < 8;
}

/* The first of all parts with a centre not below x. The estimate is checked only if rounding may have moved centres
 * past x. */
static inline size_t first_part(const struct parts *p, float x)
{
    const size_t all = p->starts.n - 1;
    const double below = ((double)x - (double)p->starts.start) * p->rate + 0.5; /* centres below x, and a fraction */
    size_t part = below >= (double)all ? all : below > 0 ? (size_t)below : 0;
    const double fraction = below - (double)part;
    if (fraction > p->error && fraction < 1 - p->error)
        return part;
    while (part < all && centre_of(p, part) < x)
        part++;
    while (part > 0 && !(centre_of(p, part - 1) < x))
        part--;
    return part;
}

/* Adds `share` n times, rounding after each. */
static inline double add_shares(double mass, double share, size_t n, bool float32)
{
    float sum = (float)mass;
    for (size_t i = 0; i < n; i++)
        sum += (float)share;
    if (sum < 0x1p24f)
        return (double)sum;
    for (size_t i = 0; i < n; i++)
        mass = add_mass(mass, share, float32);
    return mass;
}

static double sum_parts(const double *mass, size_t first, size_t end, bool float32)
{
    double sum = 0;
    for (size_t part = first, n; part < end; part += n) {
        const size_t left = PARTS - part % PARTS;
        n = left < end - part ? left : end - part;
        sum = add_shares(sum, add_mass(mass[part / PARTS] / PARTS, 0, float32), n, float32);
    }
    return sum;
}

void qobs_rebin(const struct histogram_params *params, const struct bin_range *now, size_t bins, const double *mass,
                const struct bin_range *next, size_t next_bins, double *to)
{
    const struct linspace edges = linspace_of(next->lo, next->hi, next_bins + 1);
    const bool point = now->lo == now->hi;
    struct parts parts = {0};
    if (!point)
        parts = parts_of(now, bins);
    if (point || !is_monotonic(&edges, &parts)) {
        qobs_rebin_by_parts(params, now, bins, mass, next, next_bins, to);
        return;
    }
    size_t first = 0;
    for (size_t bin = 0, end; bin < next_bins; bin++, first = end) {
        end = bin + 1 < next_bins ? first_part(&parts, linspace_at(&edges, bin + 1)) : bins * PARTS;
        to[bin] = sum_parts(mass, first, end, params->float32_counts);
    }
}

const struct histogram_ops qobs_histogram_torch = {.ranges_are_results = true,
                                                   .accept = qobs_histogram_accept,
                                                   .merge = qobs_histogram_merge,
                                                   .grow = unite,
                                                   .same_bins = true,
                                                   .move = qobs_rebin,
                                                   .rebin = qobs_rebin};

/* ---- Non-linear search ------------------------------------------------------------------------------------------- */

/* torch.ao's HistogramObserver._non_linear_param_search and _compute_quantization_error. Upstream has some numbers in
 * float32 tensors and some in Python's doubles. Each operation here has the same type. */

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
