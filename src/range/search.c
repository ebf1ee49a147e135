/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Every qparam is searched on its own, over all steps, while its elements are in a near cache: upstream's rule when to stop
 * looks at all qparams, but needs to know of each step only whether anything improved there. Where that turns out to have been the
 * end before the last step, qparams that improved later are searched once more, up to there. */
#include "range/search.h"

#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "number/format.h"
#include "base/fpenv.h"
#include "range/search_qparams.h"
#include "measure/range_tiles.h"
#include "measure/reduce.h"

/* A qparam of more elements is searched in parts, by several threads; their sums are added in order. Beside each block of them the one
 * after the next is fetched. */
enum { PART = 64 * QOBS_SEARCH_MOST, PART_AHEAD = 2 * QOBS_SEARCH_MOST };

/* One thread takes everything as one piece, several take more; fewer where the candidates of all would take more memory than MOST_WORKSPACE. Parts
 * are all read before they are searched, by a few threads at the speed of memory, so that the rest has to end together. */
enum { PIECES_PER_THREAD = 16, PIECES_OF_PARTS = 64, MOST_STEPS = 65536, MOST_WORKSPACE = 64 << 20 };

/* Words of two lines of the cache, which are fetched together. */
enum { LINES = 16 };

struct search {
    struct qparam_search q;
    const struct runtime *runtime;
    const struct search_settings *settings;
    struct range_tiles tiles;
    enum nonfinite_mode nonfinite;
    bool find; /* ranges, tile by tile */
    atomic_bool met_nonfinite;
    int64_t parts, pieces;
    unsigned char *workspace; /* for as many desks as there are pieces, of workspace_size bytes */
    size_t workspace_size;
    atomic_uint *taken; /* which of them are in use; smaller atomics need a library of their own on some CPUs */
    double *sums;       /* where there are parts: of each, all candidates' */
    uint64_t *improved; /* of each piece, a bit a step; `words` long, so that threads write to lines of their own */
    size_t words;
};

/* Where there are parts: the sums of part i, counted over all qparams. */
static double *totals_of(const struct search *s, int64_t i)
{
    return s->sums + (size_t)i * s->q.shrink.candidates;
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------------- */

/* How many qparams a batch has. */
static size_t together(const struct search *s) { return s->q.row > 0 ? QOBS_SEARCH_LANES : 1; }

/* Where a piece begins. They become smaller towards the last, so that threads end together: before piece p are 1 - (1 - p/n)^2 of all. Where
 * there is hardly more than one for each they are the same. */
static int64_t piece_begin(const struct search *s, int64_t all, int64_t piece)
{
    const int64_t n = s->pieces;
    const bool few = all < 2 * n;
    const int64_t before = few ? piece : piece * (2 * n - piece), whole = few ? n : n * n;
    return all / whole * before + all % whole * before / whole; /* all * before may overflow */
}

/* Pieces are of whole entries of the tiles' axis, or, without one, of whole batches. */
static void qparams_of(const struct search *s, size_t piece, size_t *from, size_t *to)
{
    const bool entries = s->tiles.axis >= 0;
    const int64_t each = entries ? s->tiles.qparams : (int64_t)together(s), qparams = s->q.plan->qparams;
    const int64_t all = (qparams + each - 1) / each, end = piece_begin(s, all, (int64_t)piece + 1) * each;
    *from = (size_t)(piece_begin(s, all, (int64_t)piece) * each);
    *to = (size_t)(end < qparams ? end : qparams);
}

/* The first desk that is free, so that a thread keeps the one that is in its caches. */
static size_t acquire_workspace(struct search *s, struct workspace *d)
{
    size_t i = 0;
    while (atomic_exchange(&s->taken[i], 1))
        i++;
    qobs_workspace_place(&s->q, s->workspace + i * s->workspace_size, d);
    return i;
}

static void release_workspace(struct search *s, size_t i) { atomic_store(&s->taken[i], 0); }

/* Finds the ranges from that qparam on, a tile of them, and returns where it ends. */
static size_t find_ranges(struct search *s, size_t from, size_t to)
{
    const int64_t each = s->tiles.qparams, first = (int64_t)from / each, left = (int64_t)to / each - first;
    const int64_t count = left < s->tiles.most ? left : s->tiles.most;
    if (!qobs_range_tile_reduce(&s->tiles, s->q.kernels, s->q.source.data, s->nonfinite, first, count, s->q.min, s->q.max))
        atomic_store(&s->met_nonfinite, true);
    return (size_t)((first + count) * each);
}

static void search_piece(void *argument, size_t piece)
{
    struct search *s = argument;
    const fp_mode mode = fp_enter();
    struct workspace d;
    struct elements e;
    size_t from, to;
    const size_t at = acquire_workspace(s, &d);
    qparams_of(s, piece, &from, &to);
    qobs_elements_at(&s->q.source, (int64_t)from, &e);
    for (size_t i = from, n, found = s->find ? from : to; i < to; i += n) {
        if (i == found)
            found = find_ranges(s, i, to);
        if (i > from)
            qobs_elements_next(&s->q.source, &e);
        n = found - i < QOBS_SEARCH_LANES ? found - i : QOBS_SEARCH_LANES;
        d.prefetch = qobs_range_tile_prefetch(&s->tiles, s->q.source.data, i, n, to);
        qobs_search_qparams(&s->q, &d, &e, i, n, s->improved + piece * s->words);
    }
    release_workspace(s, at);
    fp_leave(mode);
}

/* Where the end came before the last step: what improved later. */
static void search_again(void *argument, size_t piece)
{
    struct search *s = argument;
    const fp_mode mode = fp_enter();
    uint64_t *improved = s->improved + piece * s->words;
    struct workspace d;
    size_t from, to;
    const size_t at = acquire_workspace(s, &d);
    qparams_of(s, piece, &from, &to);
    for (size_t i = from; i < to && s->parts > 1; i++)
        if (s->q.best_step[i] >= s->q.stop)
            qobs_choose(&s->q, i, totals_of(s, (int64_t)i * s->parts), improved);
    for (size_t i = from, n; i < to && s->parts == 1; i += n) {
        struct elements e;
        bool ended_later = false;
        n = to - i < QOBS_SEARCH_LANES ? to - i : QOBS_SEARCH_LANES;
        for (size_t k = i; k < i + n; k++)
            ended_later = ended_later || s->q.best_step[k] >= s->q.stop;
        if (!ended_later)
            continue;
        qobs_elements_at(&s->q.source, (int64_t)i, &e);
        qobs_search_qparams(&s->q, &d, &e, i, n, improved); /* what ended before comes to the same */
    }
    release_workspace(s, at);
    fp_leave(mode);
}

/* Parts of large qparams. */
static void sum_piece(void *argument, size_t piece)
{
    struct search *s = argument;
    const fp_mode mode = fp_enter();
    struct workspace d;
    const size_t at = acquire_workspace(s, &d);
    const int64_t all = s->q.plan->qparams * s->parts, to = piece_begin(s, all, (int64_t)piece + 1);
    for (int64_t part = piece_begin(s, all, (int64_t)piece); part < to; part++) {
        const int64_t qparam = part / s->parts, first = part % s->parts * PART;
        double *const totals = totals_of(s, part);
        const size_t size = s->q.shrink.candidates * sizeof *totals;
        struct elements e;
        qobs_elements_at(&s->q.source, qparam, &e);
        const int64_t end = first + PART < e.count ? first + PART : e.count;
        d.prefetch = qobs_elements_memory(&s->q.source, &e, first + PART_AHEAD, end + PART_AHEAD);
        if (qobs_sum_part(&s->q, &d, &e, (size_t)qparam, first, end))
            memcpy(totals, d.total, size);
        else
            memset(totals, 0, size);
    }
    release_workspace(s, at);
    fp_leave(mode);
}

/* The parts of every qparam together. */
static void choose_from_parts(struct search *s)
{
    for (int64_t i = 0; i < s->q.plan->qparams; i++) {
        double *const total = totals_of(s, i * s->parts);
        for (int64_t part = 1; part < s->parts; part++)
            for (size_t c = 0; c < s->q.shrink.candidates; c++)
                total[c] += totals_of(s, i * s->parts + part)[c];
        qobs_choose(&s->q, (size_t)i, total, s->improved);
    }
}

/* ---- The search -------------------------------------------------------------------------------------------------------- */

static bool improved_at(const struct search *s, int32_t step)
{
    bool improved = false;
    for (int64_t p = 0; p < s->pieces; p++)
        improved = improved || (s->improved[(size_t)p * s->words + (size_t)step / 64] >> step % 64 & 1);
    return improved;
}

/* How many steps upstream takes, which stops after `patience` in a row at which nothing improved. */
static int32_t steps_taken(const struct search *s)
{
    int64_t waited = 0;
    for (int32_t i = 0; i < s->settings->steps; i++) {
        const bool improved = improved_at(s, i);
        waited = improved ? 0 : waited + 1;
        if (!improved && s->settings->patience >= 0 && waited >= s->settings->patience)
            return i + 1;
    }
    return s->settings->steps;
}

static bool improved_after_end(const struct search *s)
{
    int32_t step = s->q.stop;
    while (step < s->settings->steps && !improved_at(s, step))
        step++;
    return step < s->settings->steps;
}

/* Ranges that are not found tile by tile are found first. */
static int find_all(const struct search *s, void *min, void *max, qobs_error *error)
{
    struct qobs_nonfinite nonfinite;
    return qobs_reduce_minmax(s->runtime, s->q.kernels, s->q.plan, s->q.source.data, s->nonfinite, min, max, &nonfinite, error);
}

static void run(struct search *s)
{
    const size_t bytes = (size_t)s->pieces * s->words * sizeof *s->improved;
    memset(s->improved, 0, bytes);
    s->q.stop = s->settings->steps;
    if (s->parts > 1) {
        qobs_parallel_for(s->runtime, sum_piece, s, (size_t)s->pieces);
        choose_from_parts(s);
    } else {
        qobs_parallel_for(s->runtime, search_piece, s, (size_t)s->pieces);
    }
    s->q.stop = steps_taken(s);
    if (improved_after_end(s))
        qobs_parallel_for(s->runtime, search_again, s, (size_t)s->pieces);
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
    const size_t qparams = (size_t)s->q.plan->qparams, pieces = (size_t)s->pieces;
    const size_t sums = s->parts > 1 ? qparams * (size_t)s->parts * s->q.shrink.candidates : 0;
    const size_t wide = sums + pieces * s->words, steps = with_steps ? 0 : qparams, ends = qparams * s->q.size;
    *bytes = wide * 8 + 2 * ends + steps * sizeof(int32_t) + pieces * (s->workspace_size + sizeof *s->taken);
    unsigned char *memory = qobs_allocate(s->runtime, *bytes);
    if (!memory) {
        qobs_fail(error, QOBS_ERROR_OUT_OF_MEMORY, "search: no memory for %zu bytes", *bytes);
        return NULL;
    }
    s->sums = (double *)(void *)memory;
    s->improved = (uint64_t *)(void *)(s->sums + sums);
    s->q.min = (unsigned char *)(s->improved + pieces * s->words);
    s->q.max = s->q.min + ends;
    if (!with_steps)
        s->q.best_step = (int32_t *)(void *)(s->q.max + ends); /* two ends together are whole words */
    s->workspace = s->q.max + ends + steps * sizeof(int32_t);
    s->taken = (atomic_uint *)(void *)(s->workspace + pieces * s->workspace_size);
    for (size_t i = 0; i < pieces; i++)
        atomic_init(&s->taken[i], 0);
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
                       .settings = settings,
                       .nonfinite = (enum nonfinite_mode)config->nonfinite,
                       .words = ((size_t)settings->steps / 64 + LINES) / LINES * LINES};
    s.q = (struct qparam_search){.kernels = kernels,
                                 .plan = plan,
                                 .source = {.plan = plan,
                                            .data = data,
                                            .column_weight = importance,
                                            .load = kernels->search_load[dtype],
                                            .finite_only = config->nonfinite == NONFINITE_IGNORE},
                                 .shifted = !config->symmetric,
                                 .best_min = min,
                                 .best_max = max,
                                 .size = qobs_dtype_size(plan->dtype)};
    if (report) {
        s.q.best_step = report->best_step;
        s.q.error = report->error;
        s.q.error_before = report->error_before;
    }
    /* Where a zero point may be none of the numbers quantized to, padding has an error, and must weigh nothing. */
    s.q.weighted = importance || (s.q.shifted && (config->type == TYPE_FLOAT || !qobs_config_has_whole_zero_points(config)));
    set_quantizer(&s.q.quantizer, config);
    const int64_t most = qobs_elements_most(plan), threads = (int64_t)qobs_threads(runtime);
    s.parts = most > PART ? (most + PART - 1) / PART : 1;
    const int64_t wanted = threads > 1 ? threads * (s.parts > 1 ? PIECES_OF_PARTS : PIECES_PER_THREAD) : 1;
    qobs_range_tiles_of(&s.tiles, plan, s.parts > 1 ? INT64_MAX : wanted);
    s.find = find && s.tiles.axis >= 0 && !settings->optimize_global_scale;
    int status = find && !s.find ? find_all(&s, min, max, error) : QOBS_OK;
    if (status == QOBS_OK)
        status = qobs_search_norm(&s.q.norm, settings->norm, error);
    if (status == QOBS_OK)
        status = qobs_shrink_begin(&s.q.shrink, runtime, kernels, config, settings, plan, global_scale, min, max, error);
    if (status != QOBS_OK)
        return status;
    s.q.shrink.without_before = !s.q.error_before;
    s.q.row = most > QOBS_SEARCH_FEW ? 0 : ((size_t)most + QOBS_SEARCH_LANES - 1) / QOBS_SEARCH_LANES * QOBS_SEARCH_LANES;
    const int64_t each = (int64_t)together(&s), tasks = (plan->qparams + each - 1) / each * s.parts;
    s.workspace_size = qobs_workspace_size(&s.q);
    s.pieces = tasks < wanted ? tasks : wanted;
    const int64_t pieces = (int64_t)(MOST_WORKSPACE / s.workspace_size) + 1;
    s.pieces = s.pieces > pieces ? pieces : s.pieces;
    size_t bytes;
    unsigned char *memory = allocate(&s, report && report->best_step, &bytes, error);
    if (memory) {
        if (!s.find) {
            memcpy(s.q.min, min, (size_t)plan->qparams * s.q.size);
            memcpy(s.q.max, max, (size_t)plan->qparams * s.q.size);
        }
        run(&s);
        if (report)
            report->stop_step = s.q.stop;
        qobs_release(runtime, memory, bytes);
        if (s.nonfinite == NONFINITE_REFUSE && atomic_load(&s.met_nonfinite))
            status = find_all(&s, min, max, error); /* fails, and says where */
        else
            status = qobs_succeed(error);
    } else {
        status = QOBS_ERROR_OUT_OF_MEMORY;
    }
    qobs_shrink_release(&s.q.shrink);
    return status;
}
