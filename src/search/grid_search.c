/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Upstream stops all qparams at the same step. Its rule needs one bit of each step: whether any qparam improved there.
 * Therefore every qparam is searched over all steps at once, while its elements are in a near cache. If the stop turns
 * out to be earlier than the last step, qparams that improved later are searched again, up to the stop. */
#include "search/grid_search.h"

#include <stdatomic.h>

#include "measure/reduce.h"
#include "base/split.h"

/* A qparam with more elements than a block is split into blocks. Their sums are added in order, so that results do not
 * depend on threads. A thread prefetches the block after the next one. */
enum { BLOCK = 64 * QOBS_SEARCH_MOST, BLOCK_PREFETCH = 2 * QOBS_SEARCH_MOST };

/* Parts per thread, if there are several threads. Blocks of large qparams are all read before the search, at the speed
 * of memory, so that threads have to end closer together. */
enum { PARTS_PER_THREAD = 16, PARTS_PER_THREAD_OF_BLOCKS = 64 };

/* An amax whose qparams lie in two parts has two tables. */
enum { PARTS_PER_THREAD_BY_AMAX = 4 };

enum { MAX_STEPS = 65536, MAX_WORKSPACE = 64 << 20 /* bytes, of all parts together */ };

/* 64-bit words in two cache lines, which are prefetched together. */
enum { WORDS_OF_LINES = 16 };

/* Ranges are found for a slice of qparams at a time, so that their elements are still in a near cache when they are
 * searched: memory is read once. A slice is a few entries of the outermost axis, which is an axis of qparams. */
struct slices {
    int axis;        /* -1: the plan has no such axis; everything is one slice */
    int64_t entries; /* of that axis */
    int64_t qparams; /* of one entry */
    int64_t most;    /* entries of a slice */
    int64_t bytes;   /* of an entry if entries are contiguous and small; else 0 */
};

struct grid_run {
    struct qparam_search q;
    const struct runtime *runtime;
    const struct grid_params *params;
    struct slices slices;
    enum nonfinite_mode nonfinite;
    bool find; /* ranges are found slice by slice */
    atomic_bool met_nonfinite;
    int64_t blocks;     /* of a qparam */
    int64_t each;       /* qparams in a unit of the split */
    struct split split; /* units: blocks of all qparams if blocks > 1; else entries of the slices' axis, or batches */
    unsigned char *workspaces; /* one for each part, of workspace_size bytes */
    size_t workspace_size;
    double *sums;       /* [qparams][blocks][candidates] if blocks > 1 */
    bool by_amax;       /* qparams are searched in order of amax, if enough share theirs */
    uint32_t *order;    /* of qparams, by amax; unused if not by_amax */
    size_t enough;      /* qparams that have to share an amax before a table is worth it */
    uint64_t *improved; /* [parts][words], a bit for each step; each part has cache lines of its own */
    size_t words;
};

/* The sums of block i, counted over all qparams. */
static double *sums_of(const struct grid_run *s, int64_t i) { return s->sums + (size_t)i * s->q.shrink.candidates; }

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

enum { SLICE_BYTES = 1 << 16 }; /* fits L2 of every machine */

static bool is_split(const qobs_plan *plan, int axis)
{
    bool split = false;
    for (int i = 0; i < plan->axes; i++)
        split = split || plan->axis[i].outer == axis;
    return split;
}

static void slices_of(struct slices *t, const qobs_plan *plan, int64_t parts)
{
    int outermost = 0;
    while (outermost < plan->axes && plan->axis[outermost].extent == 1)
        outermost++;
    *t = (struct slices){.axis = -1, .entries = 1, .qparams = plan->qparams, .most = 1};
    if (plan->order || outermost == plan->axes || plan->axis[outermost].role != AXIS_QPARAM ||
        is_split(plan, outermost) || plan->axis[outermost].extent < parts)
        return;
    const struct axis *a = &plan->axis[outermost];
    const int64_t bytes = plan->value.elements / a->extent * (int64_t)qobs_dtype_size(plan->dtype);
    t->axis = outermost;
    t->entries = a->extent;
    t->qparams = plan->qparams / a->extent;
    t->most = bytes < SLICE_BYTES ? SLICE_BYTES / bytes : 1;
    t->bytes = a->stride == bytes && bytes <= SLICE_BYTES ? bytes : 0;
}

/* The begin of a qparam's memory, as if the qparams of an entry followed each other in it. */
static const unsigned char *share_of(const struct slices *t, const unsigned char *data, int64_t qparam)
{
    return data + qparam / t->qparams * t->bytes + qparam % t->qparams * t->bytes / t->qparams;
}

/* The memory to prefetch beside `count` qparams from `first` on: that of the qparams one slice further on, as far as
 * they are before `end`. Nothing if entries are not contiguous and small. */
static struct prefetch_ahead prefetch_slice(const struct grid_run *s, size_t first, size_t count, size_t end)
{
    const struct slices *t = &s->slices;
    const unsigned char *const data = s->q.source.data;
    const int64_t from = (int64_t)first + t->most * t->qparams, after = from + (int64_t)count, last = (int64_t)end;
    if (t->bytes == 0 || from >= last)
        return (struct prefetch_ahead){NULL, NULL};
    return (struct prefetch_ahead){share_of(t, data, from), share_of(t, data, after < last ? after : last)};
}

/* Finds the ranges of the slice that starts at qparam `from`, in memory of the caller; returns its end. */
static size_t find_ranges(struct grid_run *s, size_t from, size_t to)
{
    const struct runtime alone = {0}; /* one thread and no allocator: the reduction does without scratch */
    const struct slices *t = &s->slices;
    const int64_t first = (int64_t)from / t->qparams, left = (int64_t)to / t->qparams - first;
    const int64_t count = left < t->most ? left : t->most;
    const size_t at = (size_t)(first * t->qparams) * s->q.size;
    struct nonfinite_count nonfinite = {0};
    qobs_plan slice = *s->q.plan;
    slice.axis[t->axis].extent = count;
    slice.qparams = count * t->qparams;
    qobs_reduce_minmax(&alone, s->q.kernels, &slice, s->q.source.data + first * slice.axis[t->axis].stride,
                       s->nonfinite == NONFINITE_IGNORE ? NONFINITE_IGNORE : NONFINITE_PROPAGATE, s->q.min + at,
                       s->q.max + at, &nonfinite, NULL);
    if (nonfinite.nan > 0 || nonfinite.inf > 0)
        atomic_store(&s->met_nonfinite, true);
    return (size_t)((first + count) * t->qparams);
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

static void qparams_of(const struct grid_run *s, int64_t from, int64_t to, size_t *first, size_t *end)
{
    const int64_t qparams = s->q.plan->qparams, last = to * s->each;
    *first = (size_t)(from * s->each);
    *end = (size_t)(last < qparams ? last : qparams);
}

static void place_workspace(const struct grid_run *s, int64_t part, struct qparam_workspace *w)
{
    qobs_qparam_workspace_place(&s->q, s->workspaces + (size_t)part * s->workspace_size, w);
}

static void search_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct grid_run *s = argument;
    struct qparam_workspace w;
    struct qparam_block e;
    size_t first, end;
    place_workspace(s, part, &w);
    qparams_of(s, from, to, &first, &end);
    for (size_t i = first, n, found = s->find ? first : end; i < end; i += n) {
        if (i == found)
            found = find_ranges(s, i, end);
        qobs_block_of_qparam(&s->q.source, (int64_t)i, &e);
        n = found - i < QOBS_SEARCH_LANES ? found - i : QOBS_SEARCH_LANES;
        w.prefetch = prefetch_slice(s, i, n, end);
        qobs_search_qparams(&s->q, &w, &e, i, n, s->improved + (size_t)part * s->words);
    }
}

/* The parts are of the order by amax. */
static void search_part_by_amax(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct grid_run *s = argument;
    struct qparam_workspace w;
    const size_t end = (size_t)to, qparams = (size_t)s->q.plan->qparams;
    place_workspace(s, part, &w);
    for (size_t i = (size_t)from, next; i < end; i = next) {
        const uint32_t amax = qobs_amax_bits(s->q.min, s->q.max, s->order[i]);
        const bool by_table = qobs_amax_count(s->order, qparams, amax) >= s->enough;
        for (next = i + 1; next < end && qobs_amax_bits(s->q.min, s->q.max, s->order[next]) == amax;)
            next++;
        qobs_search_same_amax(&s->q, &w, s->order + i, next - i, by_table, s->improved + (size_t)part * s->words);
    }
}

static void store_ranges_of_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct grid_run *s = argument;
    (void)part;
    qobs_store_ranges(&s->q, (size_t)from, (size_t)(to - from));
}

static void search_by_amax(struct grid_run *s)
{
    const struct split_rule rule = {
        .parts_per_thread = PARTS_PER_THREAD_BY_AMAX, .max_parts = s->split.parts, .shrinking = true};
    const struct split split = qobs_split(s->runtime, &rule, s->q.plan->qparams, s->q.plan->qparams, 0);
    qobs_split_run(s->runtime, &split, search_part_by_amax, s);
    qobs_split_run(s->runtime, &split, store_ranges_of_part, s);
}

/* A qparam may have improved at the stop or after it. Its best step before the stop is searched for again. */
static void search_part_again(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct grid_run *s = argument;
    uint64_t *improved = s->improved + (size_t)part * s->words;
    struct qparam_workspace w;
    size_t first, end;
    place_workspace(s, part, &w);
    qparams_of(s, from, to, &first, &end);
    for (size_t i = first; i < end && s->blocks > 1; i++)
        if (s->q.best_step[i] >= s->q.stop)
            qobs_choose_step(&s->q, i, sums_of(s, (int64_t)i * s->blocks), improved);
    for (size_t i = first, n; i < end && s->blocks == 1; i += n) {
        struct qparam_block e;
        bool again = false;
        n = end - i < QOBS_SEARCH_LANES ? end - i : QOBS_SEARCH_LANES;
        for (size_t k = i; k < i + n; k++)
            again = again || s->q.best_step[k] >= s->q.stop;
        if (!again)
            continue;
        qobs_block_of_qparam(&s->q.source, (int64_t)i, &e);
        qobs_search_qparams(&s->q, &w, &e, i, n, improved); /* the others of the batch get the same result as before */
    }
}

static void sum_blocks_of_part(void *argument, int64_t part, int64_t from, int64_t to)
{
    struct grid_run *s = argument;
    struct qparam_workspace w;
    place_workspace(s, part, &w);
    for (int64_t block = from; block < to; block++) {
        const int64_t qparam = block / s->blocks, first = block % s->blocks * BLOCK;
        double *const sums = sums_of(s, block);
        const size_t size = s->q.shrink.candidates * sizeof *sums;
        struct qparam_block e;
        qobs_block_of_qparam(&s->q.source, qparam, &e);
        const int64_t end = first + BLOCK < e.elements ? first + BLOCK : e.elements;
        w.prefetch = qobs_block_memory(&s->q.source, &e, first + BLOCK_PREFETCH, end + BLOCK_PREFETCH);
        if (qobs_sum_block(&s->q, &w, &e, (size_t)qparam, first, end))
            memcpy(sums, w.total, size);
        else
            memset(sums, 0, size);
    }
}

static void choose_from_blocks(struct grid_run *s)
{
    for (int64_t i = 0; i < s->q.plan->qparams; i++) {
        double *const total = sums_of(s, i * s->blocks);
        for (int64_t block = 1; block < s->blocks; block++)
            for (size_t c = 0; c < s->q.shrink.candidates; c++)
                total[c] += sums_of(s, i * s->blocks + block)[c];
        qobs_choose_step(&s->q, (size_t)i, total, s->improved);
    }
}

/* ---- The stop ---------------------------------------------------------------------------------------------------- */

static bool improved_at(const struct grid_run *s, int32_t step)
{
    bool improved = false;
    for (int64_t p = 0; p < s->split.parts; p++)
        improved = improved || (s->improved[(size_t)p * s->words + (size_t)step / 64] >> step % 64 & 1);
    return improved;
}

/* Upstream stops after `patience` steps in a row without an improvement. */
static int32_t stop_of(const struct grid_run *s)
{
    int64_t waited = 0;
    for (int32_t i = 0; i < s->params->steps; i++) {
        const bool improved = improved_at(s, i);
        waited = improved ? 0 : waited + 1;
        if (!improved && s->params->patience >= 0 && waited >= s->params->patience)
            return i + 1;
    }
    return s->params->steps;
}

static bool improved_after_stop(const struct grid_run *s)
{
    int32_t step = s->q.stop;
    while (step < s->params->steps && !improved_at(s, step))
        step++;
    return step < s->params->steps;
}

/* ---- The search -------------------------------------------------------------------------------------------------- */

/* Finds all ranges before the search. */
static int find_all(const struct grid_run *s, void *min, void *max, qobs_error *error)
{
    struct nonfinite_count nonfinite;
    return qobs_reduce_minmax(s->runtime, s->q.kernels, s->q.plan, s->q.source.data, s->nonfinite, min, max, &nonfinite,
                              error);
}

/* Sets members that follow from the arguments alone. */
static void init(struct grid_run *s, const struct grid_search *g)
{
    enum kernel_dtype dtype;
    qobs_kernel_dtype_of(g->plan->dtype, &dtype);
    *s = (struct grid_run){.runtime = g->runtime,
                           .params = g->params,
                           .nonfinite = g->nonfinite,
                           .words = ((size_t)g->params->steps / 64 + WORDS_OF_LINES) / WORDS_OF_LINES * WORDS_OF_LINES};
    s->q = (struct qparam_search){.kernels = g->kernels,
                                  .plan = g->plan,
                                  .source = {.plan = g->plan,
                                             .data = g->data,
                                             .column_weight = g->column_weight,
                                             .load = g->kernels->search_load[dtype],
                                             .finite_only = g->nonfinite == NONFINITE_IGNORE},
                                  .shifted = !g->params->symmetric,
                                  .best_min = g->min,
                                  .best_max = g->max,
                                  .size = qobs_dtype_size(g->plan->dtype)};
    if (g->record) {
        s->q.best_step = g->record->best_step;
        s->q.error = g->record->error;
        s->q.error_before = g->record->error_before;
    }
    /* A zero point off the grid gives padding an error, so padding needs the weight 0. */
    s->q.weighted = g->column_weight || (s->q.shifted && g->params->off_grid);
    if (g->params->format)
        qobs_quantizer_for_format(&s->q.quantizer, g->params->format);
    else
        qobs_quantizer_for_integers(&s->q.quantizer, g->params->quant_min, g->params->quant_max, false);
}

/* Qparams of a smaller value share too few amax. */
enum { MIN_BY_AMAX = 1 << 18 /* elements */ };

/* Says whether tables of errors are possible: candidates depend on the amax alone, and elements of a qparam are one
 * piece of memory, so that the order of qparams does not matter to its speed. */
static bool may_be_by_amax(const struct grid_run *s, const struct grid_search *g)
{
    struct qparam_block e;
    const int64_t qparams = g->plan->qparams, most = qobs_elements_most(g->plan);
    if (s->blocks > 1 || s->q.weighted || s->q.shifted || !g->params->simd || g->global_scale || g->each_global_scale ||
        g->params->shrinking.mx || most == 0 || qparams < 2 || qparams > INT32_MAX || qparams < MIN_BY_AMAX / most)
        return false;
    qobs_block_of_qparam(&s->q.source, 0, &e);
    return qobs_block_memory(&s->q.source, &e, 0, e.elements).from;
}

/* Orders qparams by amax, if at least half of them share theirs with enough others. */
static void order_by_amax(struct grid_run *s)
{
    const size_t n = (size_t)s->q.plan->qparams, elements = (size_t)qobs_elements_most(s->q.plan);
    s->enough = qobs_enough_for_table(&s->q, elements);
    s->by_amax = qobs_amax_order(s->q.min, s->q.max, n, s->enough, s->order) >= n / 2;
}

/* Decides on batches, blocks and slices; returns the number of parts per thread. */
static int64_t choose_sizes(struct grid_run *s, const struct grid_search *g)
{
    const int64_t most = qobs_elements_most(g->plan), threads = (int64_t)qobs_threads(g->runtime);
    s->blocks = most > BLOCK ? (most + BLOCK - 1) / BLOCK : 1;
    const int64_t parts_per_thread = s->blocks > 1 ? PARTS_PER_THREAD_OF_BLOCKS : PARTS_PER_THREAD;
    slices_of(&s->slices, g->plan, s->blocks > 1 ? INT64_MAX : threads > 1 ? threads * parts_per_thread : 1);
    s->find = g->find_ranges && s->slices.axis >= 0 && !g->each_global_scale;
    const size_t row = ((size_t)most + QOBS_SEARCH_LANES - 1) / QOBS_SEARCH_LANES * QOBS_SEARCH_LANES;
    s->q.row = most > QOBS_SEARCH_FEW || s->q.native.active ? 0 : row;
    if (may_be_by_amax(s, g))
        s->q.capacity = qobs_native_rows_capacity(&s->q.native, &s->q.quantizer, qobs_shrink_candidates(g->params),
                                                  (float)(1 - (g->params->steps - 1) / g->params->grid));
    s->by_amax = s->q.capacity.rows > 0;
    s->find = s->find && !s->by_amax;
    return parts_per_thread;
}

/* Splits the work for threads. A part is whole entries of the slices' axis, or whole batches. There are at most as many
 * parts as batches, and as MAX_WORKSPACE has workspaces. */
static void split(struct grid_run *s, int64_t parts_per_thread)
{
    const int64_t batch = s->q.row > 0 ? QOBS_SEARCH_LANES : 1, batches = (s->q.plan->qparams + batch - 1) / batch;
    const bool entries = s->slices.axis >= 0;
    s->workspace_size = qobs_qparam_workspace_size(&s->q);
    s->each = entries ? s->slices.qparams : batch;
    const int64_t tasks = batches * s->blocks, workspaces = (int64_t)(MAX_WORKSPACE / s->workspace_size) + 1;
    const int64_t units = entries ? s->slices.entries : tasks;
    const struct split_rule rule = {
        .parts_per_thread = parts_per_thread, .max_parts = tasks < workspaces ? tasks : workspaces, .shrinking = true};
    s->split = qobs_split(s->runtime, &rule, units, units, 0);
}

/* Allocates everything in one piece. */
static unsigned char *allocate(struct grid_run *s, size_t *bytes, qobs_error *error)
{
    const size_t qparams = (size_t)s->q.plan->qparams, parts = (size_t)s->split.parts;
    const size_t sums = s->blocks > 1 ? qparams * (size_t)s->blocks * s->q.shrink.candidates : 0;
    const size_t wide = sums + parts * s->words, steps = s->q.best_step ? 0 : qparams, ends = qparams * s->q.size;
    const size_t order = s->by_amax ? amax_order_size(qparams) : 0;
    *bytes = wide * 8 + 2 * ends + (steps + order) * 4 + parts * s->workspace_size;
    unsigned char *memory = qobs_allocate(s->runtime, *bytes);
    if (!memory) {
        qobs_no_memory(error, "search: no memory for %zu bytes", *bytes);
        return NULL;
    }
    s->sums = (double *)(void *)memory;
    s->improved = (uint64_t *)(void *)(s->sums + sums);
    s->q.min = (unsigned char *)(s->improved + parts * s->words);
    s->q.max = s->q.min + ends;
    s->order = (uint32_t *)(void *)(s->q.max + ends); /* min and max together are a multiple of 4 bytes */
    if (!s->q.best_step)
        s->q.best_step = (int32_t *)(void *)(s->order + order);
    s->workspaces = s->q.max + ends + (steps + order) * 4;
    return memory;
}

static void run(struct grid_run *s)
{
    memset(s->improved, 0, (size_t)s->split.parts * s->words * sizeof *s->improved);
    s->q.stop = s->params->steps;
    if (s->blocks > 1) {
        qobs_split_run(s->runtime, &s->split, sum_blocks_of_part, s);
        choose_from_blocks(s);
    } else if (s->by_amax) {
        search_by_amax(s);
    } else {
        qobs_split_run(s->runtime, &s->split, search_part, s);
    }
    s->q.stop = stop_of(s);
    if (!improved_after_stop(s))
        return;
    struct split again = s->split;
    if (s->blocks > 1)
        again.units = s->q.plan->qparams;
    qobs_split_run(s->runtime, &again, search_part_again, s);
}

static int execute(struct grid_run *s, const struct grid_search *g, qobs_error *error)
{
    size_t bytes;
    unsigned char *memory = allocate(s, &bytes, error);
    if (!memory)
        return QOBS_ERROR_OUT_OF_MEMORY;
    if (!s->find) {
        memcpy(s->q.min, g->min, (size_t)g->plan->qparams * s->q.size);
        memcpy(s->q.max, g->max, (size_t)g->plan->qparams * s->q.size);
    }
    if (s->by_amax)
        order_by_amax(s);
    run(s);
    if (g->record) {
        g->record->steps = g->params->steps;
        g->record->stop_step = s->q.stop;
    }
    qobs_release(s->runtime, memory, bytes);
    if (s->nonfinite == NONFINITE_REFUSE && atomic_load(&s->met_nonfinite))
        return find_all(s, g->min, g->max, error); /* fails with the place of the element */
    return qobs_succeed(error);
}

static int search(struct grid_run *s, const struct grid_search *g, qobs_error *error)
{
    const int64_t parts_per_thread = choose_sizes(s, g);
    RETURN_IF_FAILED(g->find_ranges && !s->find ? find_all(s, g->min, g->max, error) : QOBS_OK);
    RETURN_IF_FAILED(qobs_search_norm(&s->q.norm, g->params->norm, error));
    RETURN_IF_FAILED(qobs_shrink_begin(&s->q.shrink, g, error));
    s->q.shrink.without_before = !s->q.error_before;
    split(s, parts_per_thread);
    const int status = execute(s, g, error);
    qobs_shrink_release(&s->q.shrink);
    return status;
}

int qobs_grid_search(const struct grid_search *g, qobs_error *error)
{
    struct grid_run s;
    if (g->params->steps < 0 || g->params->steps > MAX_STEPS)
        return qobs_invalid(error, "grid: makes %d candidates, allowed are 0 to %d", g->params->steps, MAX_STEPS);
    init(&s, g);
    RETURN_IF_FAILED(qobs_native_search_begin(&s.q.native, g->params, g->plan->dtype, qobs_elements_most(g->plan),
                                              g->runtime, error));
    const int status = search(&s, g, error);
    qobs_native_search_release(&s.q.native, g->runtime);
    return status;
}

/* ---- The rule ---------------------------------------------------------------------------------------------------- */

static size_t steps(const struct range_params *params) { return (size_t)params->grid.steps; }

const struct range_ops qobs_range_grid = {.batch = &(const struct batch_range){.steps = steps}};
