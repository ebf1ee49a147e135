/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Every qparam is searched on its own, over all steps, while its elements are in a near cache: upstream's rule when to stop
 * looks at all qparams, but needs to know of each step only whether anything improved there. Where that turns out to have been the
 * end before the last step, qparams that improved later are searched once more, up to there. */
#include "search/search.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "error.h"
#include "format/format.h"
#include "fpenv.h"
#include "search/elements.h"
#include "search/shrink.h"
#include "search/slabs.h"
#include "statistic/reduce.h"

/* A qparam of more elements is searched in parts, by several threads; their sums are added in order. */
enum { PART = 64 * QOBS_SEARCH_MOST, PIECES_PER_THREAD = 32, MOST_STEPS = 65536, MOST_ROOM = 64 << 20 };

struct search {
    const struct runtime *runtime;
    const struct qobs_kernels *kernels;
    const qobs_plan *plan;
    const struct search_settings *settings;
    struct element_source source;
    struct qobs_quantizer quantizer;
    struct search_norm norm;
    struct shrink shrink;
    struct slabs slabs;
    enum nonfinite_mode nonfinite;
    bool find;                /* ranges, slab by slab */
    atomic_bool met_nonfinite;
    bool shifted, weighted;
    size_t row; /* elements of a qparam in a batch, rounded up to QOBS_SEARCH_LANES; 0: more than kernels take as a batch */
    unsigned char *min, *max;
    size_t size; /* bytes of an element of them */
    int32_t *best_step;
    double *error, *error_before; /* may be NULL */
    int32_t stop;                 /* steps that count */
    int64_t parts, pieces;
    unsigned char *room; /* room_size bytes for each piece */
    size_t room_size;
    double *sums;       /* where there are parts: of each, all candidates' */
    uint64_t *improved; /* of each piece, a bit a step; `words` long */
    size_t words;
};

/* What a piece works with. */
struct desk {
    float *x, *weight; /* of a batch */
    float *sum;        /* as candidates are */
    size_t most;       /* elements of any of them */
    double *total;     /* of one qparam */
    struct ranges ranges;
    struct shrunk shrunk;
};

enum { DESK_ELEMENTS = QOBS_SEARCH_LANES * QOBS_SEARCH_FEW };

static size_t desk_size(const struct search *s)
{
    return 2 * DESK_ELEMENTS * sizeof(float) + s->shrink.room * (QOBS_SEARCH_LANES * sizeof(float) + sizeof(double)) +
           qobs_shrunk_size(&s->shrink);
}

static void desk_of(const struct search *s, size_t piece, struct desk *d)
{
    unsigned char *room = s->room + piece * s->room_size;
    room += (64 - (uintptr_t)room % 64) % 64;
    d->x = (float *)(void *)room;
    d->weight = d->x + DESK_ELEMENTS;
    d->sum = d->weight + DESK_ELEMENTS;
    unsigned char *const behind = (unsigned char *)(d->sum + s->shrink.room * QOBS_SEARCH_LANES);
    qobs_shrunk_place(&s->shrink, behind, &d->shrunk);
    d->total = (double *)(void *)(behind + qobs_shrunk_size(&s->shrink));
}

static void read_range(const struct search *s, size_t qparam, double *min, double *max)
{
    *min = qobs_element(s->min + qparam * s->size, s->plan->dtype);
    *max = qobs_element(s->max + qparam * s->size, s->plan->dtype);
}

/* Where there are parts: the sums of part i, counted over all qparams. */
static double *totals_of(const struct search *s, int64_t i)
{
    return s->sums + (size_t)i * s->shrink.candidates;
}

/* Elements of that range are multiplied by this power of two. */
static int shift_of(const struct search *s, double min, double max)
{
    const double a = fabs(min), b = fabs(max);
    return qobs_search_shift(a > b ? a : b, s->plan->dtype);
}

/* ---- Candidates of a batch ---------------------------------------------------------------------------------------------- */

static void shrink(const struct search *s, struct desk *d, size_t first, size_t n)
{
    struct ranges *r = &d->ranges;
    r->n = n;
    for (size_t i = 0; i < n; i++) {
        read_range(s, first + i, &r->min[i], &r->max[i]);
        r->finite[i] = isfinite(r->min[i]) && isfinite(r->max[i]);
        r->shift[i] = r->finite[i] ? shift_of(s, r->min[i], r->max[i]) : 0;
    }
    qobs_shrink(&s->shrink, r, &d->shrunk);
}

/* A candidate of qparam i that is no number has no error. */
static void drop_nonfinite(const struct search *s, const struct desk *d, size_t i, float *sum, size_t step)
{
    for (size_t c = 0; c < s->shrink.candidates && !d->shrunk.finite[i]; c++)
        if (!isfinite(d->shrunk.scale[c * QOBS_SEARCH_LANES + i]) || !isfinite(d->shrunk.shift[c * QOBS_SEARCH_LANES + i]))
            sum[c * step] = NAN;
}

static struct qobs_search_candidates candidates_of(const struct desk *d, size_t i)
{
    return (struct qobs_search_candidates){d->shrunk.scale + i, d->shrunk.inverse + i, d->shrunk.shift + i, QOBS_SEARCH_LANES};
}

/* ---- Errors of all candidates of a qparam ------------------------------------------------------------------------------- */

/* Sums over elements first to end of qparam i of the batch in d->total. */
static void sum_blocks(const struct search *s, const struct desk *d, size_t i, const struct elements *e, int64_t first, int64_t end)
{
    const double factor = qobs_search_factor(d->ranges.shift[i]);
    const struct qobs_search_candidates candidates = candidates_of(d, i);
    for (size_t c = 0; c < s->shrink.candidates; c++)
        d->total[c] = 0;
    for (; first < end; first += QOBS_SEARCH_MOST) {
        const size_t n = end - first < QOBS_SEARCH_MOST ? (size_t)(end - first) : QOBS_SEARCH_MOST;
        qobs_elements_load(&s->source, e, first, n, factor, d->x);
        if (s->weighted)
            qobs_elements_weights(&s->source, e, first, n, d->weight);
        s->kernels->search_errors(&s->quantizer, &s->norm.errors, s->shifted, d->x, s->weighted ? d->weight : NULL, n, &candidates,
                                  s->shrink.room, d->sum);
        drop_nonfinite(s, d, i, d->sum, 1);
        for (size_t c = 0; c < s->shrink.candidates; c++)
            d->total[c] += (double)d->sum[c];
    }
}

static void record(struct search *s, size_t qparam, int32_t step, double best, double before, double unit)
{
    s->best_step[qparam] = step;
    if (s->error)
        s->error[qparam] = (step < 0 ? before : best) * unit;
    if (s->error_before)
        s->error_before[qparam] = before * unit;
}

/* Takes the best of the steps that count. */
static void choose(struct search *s, size_t qparam, const double *total, double unit, uint64_t *improved)
{
    double best = (double)FLT_MAX / unit;
    int32_t step = -1;
    for (int32_t i = 0; i < s->stop; i++)
        if (total[i] < best) {
            best = total[i];
            step = i;
            improved[i / 64] |= UINT64_C(1) << i % 64;
        }
    record(s, qparam, step, best, total[s->shrink.before], unit);
}

/* What is not finite in a range has no error, and nothing of it improves. */
static void give_up(struct search *s, size_t qparam)
{
    record(s, qparam, -1, (double)NAN, (double)NAN, 1);
}

static void fill(float *x, size_t from, size_t to)
{
    if (from < to)
        memset(x + from, 0, (to - from) * sizeof *x);
}

/* The elements of qparam i of a batch. */
static void load(const struct search *s, struct desk *d, size_t i, const struct elements *e)
{
    const size_t n = (size_t)e->count, padded = (n + QOBS_SEARCH_LANES - 1) / QOBS_SEARCH_LANES * QOBS_SEARCH_LANES;
    qobs_elements_load(&s->source, e, 0, n, qobs_search_factor(d->ranges.shift[i]), d->x + i * s->row);
    fill(d->x + i * s->row, padded, s->row);
    d->most = n > d->most ? n : d->most;
    if (s->weighted) {
        qobs_elements_weights(&s->source, e, 0, n, d->weight + i * s->row);
        fill(d->weight + i * s->row, padded, s->row);
    }
}

/* The least number that is not above x, so that comparing floats with it is comparing them with x. */
static float round_up(double x)
{
    const float f = (float)x;
    return (double)f < x ? nextafterf(f, INFINITY) : f;
}

/* Of qparams that kernels take as a batch, whose elements are loaded. */
static void choose_together(struct search *s, struct desk *d, size_t first, uint64_t *improved)
{
    _Alignas(64) float least[QOBS_SEARCH_LANES], best[QOBS_SEARCH_LANES];
    double unit[QOBS_SEARCH_LANES];
    int32_t step[QOBS_SEARCH_LANES];
    const struct ranges *r = &d->ranges;
    const struct qobs_search_candidates candidates = candidates_of(d, 0);
    fill(d->x, r->n * s->row, QOBS_SEARCH_LANES * s->row);
    fill(d->weight, s->weighted ? r->n * s->row : 0, s->weighted ? QOBS_SEARCH_LANES * s->row : 0);
    s->kernels->search_batch(&s->quantizer, &s->norm.errors, s->shifted, d->x, s->weighted ? d->weight : NULL, s->row, d->most, &candidates,
                             s->shrink.room, d->sum);
    for (size_t i = 0; i < QOBS_SEARCH_LANES; i++) {
        const bool there = i < r->n && r->finite[i];
        unit[i] = there ? qobs_search_unit(&s->norm, r->shift[i]) : 1;
        least[i] = there ? round_up((double)FLT_MAX / unit[i]) : 0; /* no sum is less */
        if (there)
            drop_nonfinite(s, d, i, d->sum + i, QOBS_SEARCH_LANES);
    }
    s->kernels->search_improved(d->sum, (size_t)s->stop, least, step, best, improved);
    const float *const before = d->sum + s->shrink.before * QOBS_SEARCH_LANES;
    for (size_t i = 0; i < r->n; i++) {
        if (r->finite[i])
            record(s, first + i, step[i], (double)best[i], (double)before[i], unit[i]);
        else
            give_up(s, first + i);
    }
}

/* Those from qparam `first` on, of which e has the elements; afterwards those of the last one. */
static void search_batch(struct search *s, struct desk *d, struct elements *e, size_t first, size_t n, uint64_t *improved)
{
    shrink(s, d, first, n);
    d->most = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            qobs_elements_next(&s->source, e);
        if (s->row > 0) {
            load(s, d, i, e);
        } else if (d->ranges.finite[i]) {
            sum_blocks(s, d, i, e, 0, e->count);
            choose(s, first + i, d->total, qobs_search_unit(&s->norm, d->ranges.shift[i]), improved);
        } else {
            give_up(s, first + i);
        }
    }
    if (s->row > 0)
        choose_together(s, d, first, improved);
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------------- */

/* Pieces are of whole entries of the slabs' axis, or, without one, of any qparams. */
static int64_t part_of(int64_t all, int64_t piece, int64_t pieces)
{
    return all / pieces * piece + all % pieces * piece / pieces;
}

static void qparams_of(const struct search *s, size_t piece, size_t *from, size_t *to)
{
    const bool entries = s->slabs.axis >= 0;
    const int64_t all = entries ? s->slabs.entries : s->plan->qparams, each = entries ? s->slabs.qparams : 1;
    *from = (size_t)(part_of(all, (int64_t)piece, s->pieces) * each);
    *to = (size_t)(part_of(all, (int64_t)piece + 1, s->pieces) * each);
}

/* Finds the ranges from that qparam on, a slab of them, and returns where it ends. */
static size_t find_ranges(struct search *s, size_t from, size_t to)
{
    const int64_t each = s->slabs.qparams, first = (int64_t)from / each, left = (int64_t)to / each - first;
    const int64_t count = left < s->slabs.most ? left : s->slabs.most;
    if (!qobs_slab_ranges(&s->slabs, s->kernels, s->source.data, s->nonfinite, first, count, s->min, s->max))
        atomic_store(&s->met_nonfinite, true);
    return (size_t)((first + count) * each);
}

static void search_piece(void *argument, size_t piece)
{
    struct search *s = argument;
    const fp_mode mode = fp_enter();
    struct desk d;
    struct elements e;
    size_t from, to;
    desk_of(s, piece, &d);
    qparams_of(s, piece, &from, &to);
    qobs_elements_at(&s->source, (int64_t)from, &e);
    for (size_t i = from, n, found = s->find ? from : to; i < to; i += n) {
        if (i == found)
            found = find_ranges(s, i, to);
        if (i > from)
            qobs_elements_next(&s->source, &e);
        n = found - i < QOBS_SEARCH_LANES ? found - i : QOBS_SEARCH_LANES;
        search_batch(s, &d, &e, i, n, s->improved + piece * s->words);
    }
    fp_leave(mode);
}

static void finish_piece(void *argument, size_t piece)
{
    struct search *s = argument;
    const fp_mode mode = fp_enter();
    uint64_t *improved = s->improved + piece * s->words;
    struct desk d;
    size_t from, to;
    desk_of(s, piece, &d);
    qparams_of(s, piece, &from, &to);
    for (size_t i = from; i < to && s->parts > 1; i++)
        if (s->best_step[i] >= s->stop) {
            double min, max;
            read_range(s, i, &min, &max);
            choose(s, i, totals_of(s, (int64_t)i * s->parts), qobs_search_unit(&s->norm, shift_of(s, min, max)), improved);
        }
    for (size_t i = from, n; i < to && s->parts == 1; i += n) {
        struct elements e;
        bool ended_later = false;
        n = to - i < QOBS_SEARCH_LANES ? to - i : QOBS_SEARCH_LANES;
        for (size_t k = i; k < i + n; k++)
            ended_later = ended_later || s->best_step[k] >= s->stop;
        if (!ended_later)
            continue;
        qobs_elements_at(&s->source, (int64_t)i, &e);
        search_batch(s, &d, &e, i, n, improved); /* what ended before comes to the same */
    }
    qobs_shrink_ranges(&s->shrink, s->best_step + from, to - from, s->min + from * s->size, s->max + from * s->size);
    fp_leave(mode);
}

/* Parts of large qparams. */
static void sum_piece(void *argument, size_t piece)
{
    struct search *s = argument;
    const fp_mode mode = fp_enter();
    struct desk d;
    desk_of(s, piece, &d);
    const int64_t all = s->plan->qparams * s->parts, to = all * ((int64_t)piece + 1) / s->pieces;
    for (int64_t part = all * (int64_t)piece / s->pieces; part < to; part++) {
        const int64_t qparam = part / s->parts, first = part % s->parts * PART;
        struct elements e;
        shrink(s, &d, (size_t)qparam, 1);
        if (!d.ranges.finite[0])
            continue;
        qobs_elements_at(&s->source, qparam, &e);
        sum_blocks(s, &d, 0, &e, first, first + PART < e.count ? first + PART : e.count);
        memcpy(totals_of(s, part), d.total, s->shrink.candidates * sizeof *d.total);
    }
    fp_leave(mode);
}

/* The parts of every qparam together. */
static void choose_from_parts(struct search *s)
{
    for (int64_t i = 0; i < s->plan->qparams; i++) {
        double min, max, *total = totals_of(s, i * s->parts);
        read_range(s, (size_t)i, &min, &max);
        if (!isfinite(min) || !isfinite(max)) {
            give_up(s, (size_t)i);
            continue;
        }
        for (int64_t part = 1; part < s->parts; part++)
            for (size_t c = 0; c < s->shrink.candidates; c++)
                total[c] += totals_of(s, i * s->parts + part)[c];
        choose(s, (size_t)i, total, qobs_search_unit(&s->norm, shift_of(s, min, max)), s->improved);
    }
}

/* ---- The search -------------------------------------------------------------------------------------------------------- */

/* How many steps upstream takes, which stops after `patience` in a row at which nothing improved. */
static int32_t steps_taken(const struct search *s)
{
    int64_t waited = 0;
    for (int32_t i = 0; i < s->settings->steps; i++) {
        bool improved = false;
        for (int64_t p = 0; p < s->pieces; p++)
            improved = improved || (s->improved[(size_t)p * s->words + (size_t)i / 64] >> i % 64 & 1);
        waited = improved ? 0 : waited + 1;
        if (!improved && s->settings->patience >= 0 && waited >= s->settings->patience)
            return i + 1;
    }
    return s->settings->steps;
}

/* Ranges that are not found slab by slab are found first. */
static int find_all(const struct search *s, void *min, void *max, qobs_error *error)
{
    struct qobs_nonfinite nonfinite;
    return qobs_reduce_minmax(s->runtime, s->kernels, s->plan, s->source.data, s->nonfinite, min, max, &nonfinite, error);
}

static void run(struct search *s)
{
    const size_t bytes = (size_t)s->pieces * s->words * sizeof *s->improved;
    memset(s->improved, 0, bytes);
    s->stop = s->settings->steps;
    if (s->parts > 1) {
        qobs_parallel_for(s->runtime, sum_piece, s, (size_t)s->pieces);
        choose_from_parts(s);
    } else {
        qobs_parallel_for(s->runtime, search_piece, s, (size_t)s->pieces);
    }
    s->stop = steps_taken(s);
    qobs_parallel_for(s->runtime, finish_piece, s, (size_t)s->pieces);
}

static void set_quantizer(struct qobs_quantizer *quantizer, const qobs_config *config)
{
    const int64_t half = INT64_C(1) << (config->num_bits - 1);
    if (config->type == TYPE_INT)
        qobs_quantizer_for_integers(quantizer, -half, half - 1, false);
    else
        qobs_quantizer_for_format(quantizer, qobs_format_find(config->num_bits == 4 ? "fp4_e2m1" : "fp8_e4m3"));
}

/* One piece of memory for everything of which the size is now known. */
static unsigned char *allocate(struct search *s, bool with_steps, size_t *bytes, qobs_error *error)
{
    const size_t qparams = (size_t)s->plan->qparams, pieces = (size_t)s->pieces;
    const size_t sums = s->parts > 1 ? qparams * (size_t)s->parts * s->shrink.candidates : 0;
    const size_t wide = sums + pieces * s->words, steps = with_steps ? 0 : qparams;
    *bytes = wide * 8 + pieces * s->room_size + steps * sizeof(int32_t);
    unsigned char *memory = qobs_allocate(s->runtime, *bytes);
    if (!memory) {
        qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "search: no memory for %zu bytes", *bytes);
        return NULL;
    }
    s->sums = (double *)(void *)memory;
    s->improved = (uint64_t *)(void *)(s->sums + sums);
    s->room = (unsigned char *)(s->improved + pieces * s->words);
    if (!with_steps)
        s->best_step = (int32_t *)(void *)(memory + *bytes - steps * sizeof(int32_t));
    return memory;
}

int qobs_search_ranges(const struct runtime *runtime, const struct qobs_kernels *kernels, const qobs_config *config,
                       const qobs_plan *plan, const struct search_settings *settings, const unsigned char *data,
                       const float *importance, const float *global_scale, bool find, void *min, void *max,
                       struct search_report *report, qobs_error *error)
{
    enum qobs_kernel_dtype dtype;
    qobs_kernel_dtype_of(plan->dtype, &dtype);
    if (settings->steps < 0 || settings->steps > MOST_STEPS)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "grid: makes %d candidates, allowed are 0 to %d", settings->steps,
                         MOST_STEPS);
    struct search s = {.runtime = runtime,
                       .kernels = kernels,
                       .plan = plan,
                       .settings = settings,
                       .source = {.plan = plan,
                                  .data = data,
                                  .column_weight = importance,
                                  .load = kernels->search_load[dtype],
                                  .finite_only = config->nonfinite == NONFINITE_IGNORE},
                       .nonfinite = (enum nonfinite_mode)config->nonfinite,
                       .shifted = !config->symmetric,
                       .min = min,
                       .max = max,
                       .size = qobs_dtype_size(plan->dtype),
                       .words = (size_t)settings->steps / 64 + 1};
    if (report) {
        s.best_step = report->best_step;
        s.error = report->error;
        s.error_before = report->error_before;
    }
    /* Where a zero point may be none of the numbers quantized to, padding has an error, and must weigh nothing. */
    s.weighted = importance || (s.shifted && (config->type == TYPE_FLOAT || !qobs_config_has_whole_zero_points(config)));
    set_quantizer(&s.quantizer, config);
    const int64_t most = qobs_elements_most(plan), threads = (int64_t)qobs_threads(runtime);
    s.parts = most > PART ? (most + PART - 1) / PART : 1;
    qobs_slabs_of(&s.slabs, plan, s.parts > 1 ? INT64_MAX : threads * PIECES_PER_THREAD);
    s.find = find && s.slabs.axis >= 0 && !settings->optimize_global_scale;
    int status = find && !s.find ? find_all(&s, min, max, error) : QOBS_OK;
    if (status == QOBS_OK)
        status = qobs_search_norm(&s.norm, settings->norm, error);
    if (status == QOBS_OK)
        status = qobs_shrink_begin(&s.shrink, runtime, kernels, config, settings, plan, global_scale, min, max, error);
    if (status != QOBS_OK)
        return status;
    s.shrink.without_before = !s.error_before;
    s.row = most > QOBS_SEARCH_FEW ? 0 : ((size_t)most + QOBS_SEARCH_LANES - 1) / QOBS_SEARCH_LANES * QOBS_SEARCH_LANES;
    const int64_t tasks = plan->qparams * s.parts, wanted = threads * PIECES_PER_THREAD;
    s.room_size = desk_size(&s) + 64;
    s.pieces = tasks < wanted ? tasks : wanted;
    const int64_t pieces = (int64_t)(MOST_ROOM / s.room_size) + 1;
    s.pieces = s.pieces > pieces ? pieces : s.pieces;
    size_t bytes;
    unsigned char *memory = allocate(&s, report && report->best_step, &bytes, error);
    if (memory) {
        run(&s);
        if (report)
            report->stop_step = s.stop;
        qobs_release(runtime, memory, bytes);
        if (s.nonfinite == NONFINITE_REFUSE && atomic_load(&s.met_nonfinite))
            status = find_all(&s, min, max, error); /* fails, and says where */
        else
            status = qobs_succeed(error);
    } else {
        status = QOBS_ERROR_OUT_OF_MEMORY;
    }
    qobs_shrink_end(&s.shrink);
    return status;
}
