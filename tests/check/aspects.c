/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The aspects of every function. Rows and columns use the same shapes: count x length, `stride` bytes apart. */
#include <stddef.h>
#include <string.h>

#include "check.h"
#include "memory.h"

#define DATA_BYTES ((size_t)65 << 20) /* more than the largest limit of contiguous elements */
#define REPEATED 100003               /* elements after which data of large calls repeat */
#define INDEXED_ELEMENTS 8192
#define TALL 131 /* rows of indexed calls that are not made fewer */
#define ISLANDS 102
#define LARGEST_VECTOR 64
#define SAMPLED_BYTES ((size_t)1 << 20) /* above, a sample of the lengths at a limit is enough for --quick */
#define SAMPLED 5                       /* every fifth length, from a drawn one on */

static struct arena arena;
static struct islands islands;

void aspects_init(void)
{
    arena = arena_new(DATA_BYTES);
    islands = islands_new(ISLANDS);
}

/* ---- Shapes ---- */

struct list {
    size_t n, at[64];
};

static void add(struct list *list, size_t value)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i] == value)
            return;
    list->at[list->n++] = value;
}

static size_t any_of(struct check *check, const struct list *list) { return list->at[rng_below(&check->rng, list->n)]; }

/* Lanes of the largest vector. */
static size_t lanes_of(const struct check *check) { return LARGEST_VECTOR / check->dtype->size; }

/* Lengths around every change of method, whatever the size of a vector: parts of it, one, two, four and many
 * vectors. */
static struct list key_lengths(const struct check *check)
{
    static const size_t halves[] = {1, 2, 4, 8, 64};
    struct list list = {0};
    for (size_t lanes = lanes_of(check); lanes >= lanes_of(check) / 4; lanes /= 2) {
        add(&list, lanes / 4);
        for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
            for (size_t around = 0; around < 3; around++)
                add(&list, halves[i] * lanes / 2 + around - 1);
        add(&list, 3 * lanes + 1);
        add(&list, 5 * lanes + lanes / 2);
    }
    return list;
}

/* Counts around the lanes of every vector and around the rows columns are walked by. */
static struct list key_counts(const struct check *check)
{
    struct list list = {7, {0, 1, 2, 3, 4, 5, 6}};
    for (size_t lanes = lanes_of(check); lanes >= lanes_of(check) / 4; lanes /= 2) {
        add(&list, lanes - 1);
        add(&list, lanes);
        add(&list, lanes + 1);
        add(&list, 3 * lanes + 5);
    }
    return list;
}

enum stride_kind { CONTIGUOUS, GAP, ODD_GAP, BACKWARDS, BACKWARDS_WITH_GAP, STANDING, OVERLAPPING, STRIDES };

static ptrdiff_t stride_of(struct check *check, enum stride_kind kind, size_t length)
{
    const ptrdiff_t size = (ptrdiff_t)check->dtype->size, packed = (ptrdiff_t)length * size;
    const ptrdiff_t gap = (ptrdiff_t)(1 + rng_below(&check->rng, 20));
    switch (kind) {
    case GAP:
        return packed + gap * size;
    case ODD_GAP:
        return packed + 2 * gap + 1;
    case BACKWARDS:
        return -packed;
    case BACKWARDS_WITH_GAP:
        return -packed - gap;
    case STANDING:
        return 0;
    case OVERLAPPING:
        return length < 2 ? size : (ptrdiff_t)(1 + rng_below(&check->rng, length - 1)) * size;
    default:
        return packed;
    }
}

static const ptrdiff_t out_strides[] = {1, 0, 2, -1};

static ptrdiff_t any_out_stride(struct check *check)
{
    return rng_below(&check->rng, 2) ? 1 : out_strides[rng_below(&check->rng, 4)];
}

/* ---- Data ---- */

/* n elements, from REPEATED on as before. */
static void fill_repeated(struct check *check, enum data data, unsigned char *p, size_t n)
{
    const size_t size = check->dtype->size;
    fill_data(&check->rng, check->dtype, data, p, n < REPEATED ? n : REPEATED);
    for (size_t done = REPEATED; done < n; done *= 2)
        memcpy(p + done * size, p, (done < n - done ? done : n - done) * size);
}

static void fill_elements(struct check *check, const struct call *call, unsigned char *lowest, size_t extent)
{
    const size_t size = check->dtype->size, bytes = call->length * size;
    const size_t step = (size_t)(call->stride < 0 ? -call->stride : call->stride);
    if (step <= bytes) {
        fill_repeated(check, call->data, lowest, extent / size);
        return;
    }
    memset(lowest, 0xff, extent); /* NaN: to read between the runs changes results */
    const size_t special = rng_below(&check->rng, call->count);
    for (size_t i = 0; i < call->count; i++)
        fill_data(&check->rng, check->dtype, call->data == SPARSE && i != special ? FINITE_RUNS : call->data,
                  lowest + i * step, call->length);
}

/* Puts the elements next to no-access memory, fills them, picks what min and max hold before, and runs the call. */
static void try_call(struct check *check, struct call *call)
{
    size_t below;
    /* The indexed form's reference takes its time; 70 rows and a row of 3000 columns are enough of it. */
    while (check->form == INDEXED && call->count > 70 && call->count != TALL &&
           call->count * call->length > INDEXED_ELEMENTS)
        call->count /= 2;
    while (call_extent(check, call, &below) + call->offset > DATA_BYTES)
        call->count /= 2;
    const size_t extent = call_extent(check, call, &below);
    unsigned char *lowest = arena_place(&arena, extent, call->at_end, call->offset);
    call->x = lowest + below;
    if (extent > 0)
        fill_elements(check, call, lowest, extent);
    call->fill = (enum fill)rng_below(&check->rng, call->data < FINITE_DATA && extent > 0 ? FILLS : ZEROS);
    call_run(check, call);
}

static enum data any_data(struct check *check) { return (enum data)rng_below(&check->rng, DATA); }

/* ---- Aspects ---- */

/* Every length up to a few vectors at every byte offset from no-access memory on either side, mostly as one or few
 * runs. */
static void lengths(struct check *check, unsigned rounds)
{
    const size_t longest = 4 * lanes_of(check) + 3;
    for (size_t length = 0; length <= longest; length++)
        for (unsigned i = 0; i < (check->form == ROWS || check->form == COLUMNS ? 128 : 32) * rounds && !check->failed;
             i++) {
            struct call call = {.length = length, .at_end = i & 1, .offset = i / 2 % 64, .data = any_data(check)};
            call.count = is_rows(check->form) && rng_below(&check->rng, 4) ? 1 : 1 + rng_below(&check->rng, 6);
            call.stride = stride_of(check, (enum stride_kind)rng_below(&check->rng, STRIDES), length);
            call.out_stride = any_out_stride(check);
            try_call(check, &call);
        }
}

/* Every byte offset for every layout of many runs. */
static void offsets(struct check *check, unsigned rounds)
{
    const struct list all_lengths = key_lengths(check), all_counts = key_counts(check);
    for (size_t l = 0; l < all_lengths.n; l++)
        for (unsigned i = 0; i < 64 * rounds && !check->failed; i++) {
            const size_t length = all_lengths.at[l];
            struct call call = {.length = length, .count = any_of(check, &all_counts), .data = any_data(check)};
            call.at_end = (i / 64 + l) & 1;
            call.offset = i % 64;
            call.stride = stride_of(check, CONTIGUOUS, length);
            call.out_stride = any_out_stride(check);
            try_call(check, &call);
        }
}

/* Every layout in every count, with every stride; the output strides take turns. */
static void strides(struct check *check, unsigned rounds)
{
    const struct list all_lengths = key_lengths(check), all_counts = key_counts(check);
    unsigned turn = 0;
    for (unsigned round = 0; round < rounds; round++)
        for (size_t l = 0; l < all_lengths.n; l++)
            for (size_t c = 0; c < all_counts.n; c++)
                for (int kind = 0; kind < STRIDES && !check->failed; kind++) {
                    struct call call = {
                        .length = all_lengths.at[l], .count = all_counts.at[c], .data = any_data(check)};
                    call.at_end = rng_below(&check->rng, 2);
                    call.stride = stride_of(check, (enum stride_kind)kind, call.length);
                    call.out_stride = out_strides[turn++ % 4];
                    try_call(check, &call);
                }
}

/* Runs of several blocks, wide and tall columns. */
static void long_ones(struct check *check, unsigned rounds)
{
    const size_t size = check->dtype->size, block = 262144 / size, lanes = lanes_of(check);
    const struct {
        size_t count, length;
    } shapes[] = {
        {1, 2 * block - 1},
        {1, 2 * block},
        {1, 2 * block + 1},
        {1, 3 * block + lanes / 2 + 1},
        {2, block + 7},
        {3000, lanes + 1},
        {20000, 3},
        {40, 80 * lanes + 5},
        {TALL, 67 * lanes + 9},
        {10 * lanes + 5, 35 * lanes + 9},
        {500, lanes},
        {600, lanes},
    };
    for (unsigned round = 0; round < rounds; round++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int data = 0; data < DATA && !check->failed; data++) {
                struct call call = {.length = shapes[s].length, .count = shapes[s].count, .data = (enum data)data};
                call.at_end = rng_below(&check->rng, 2);
                call.offset = rng_below(&check->rng, 4) ? 0 : rng_below(&check->rng, 64);
                call.stride = stride_of(check, rng_below(&check->rng, 2) ? GAP : CONTIGUOUS, call.length);
                call.out_stride = any_out_stride(check);
                try_call(check, &call);
            }
}

/* ---- Both sides of every limit of the table ---- */

static bool is_of_form(const struct check *check, const struct kernel_limit *limit)
{
    static const unsigned kernels[FORMS] = {
        [ROWS] = QOBS_LIMITS_ROWS,
        [COLUMNS] = QOBS_LIMITS_MINMAX_COLUMNS,
        [INDEXED] = QOBS_LIMITS_INDEXED,
        [ABSMAX_ROWS] = QOBS_LIMITS_ROWS,
        [ABSMAX_COLUMNS] = QOBS_LIMITS_ABSMAX_COLUMNS,
    };
    return limit->kernels & kernels[check->form];
}

/* Lengths around all limits of a run, and some others that calls of the form should have. */
static struct list limit_lengths(struct check *check)
{
    const size_t size = check->dtype->size, lanes = lanes_of(check);
    struct list list = {0};
    for (const struct kernel_limit *l = check->subject->table->limits; l->name; l++)
        if (is_of_form(check, l) && (l->of == QOBS_LIMIT_OF_RUN || l->of == QOBS_LIMIT_OF_LENGTH)) {
            const size_t length = l->of == QOBS_LIMIT_OF_RUN ? l->size / size : l->size;
            add(&list, length - 1);
            add(&list, length);
            add(&list, length + 1 + rng_below(&check->rng, 3 * lanes));
        }
    if (is_rows(check->form)) {
        add(&list, 20 + rng_below(&check->rng, 8));
        add(&list, 8 * lanes + rng_below(&check->rng, 60));
    } else {
        add(&list, 61 * lanes + rng_below(&check->rng, lanes));
        add(&list, (1 + rng_below(&check->rng, 20)) * lanes / 2);
    }
    return list;
}

/* A call of count x length, rows overlapping as far as their memory would not suffice, or without gaps. */
static void try_large(struct check *check, size_t count, size_t length, bool contiguous)
{
    const size_t size = check->dtype->size, most = (DATA_BYTES / 2 / size - length) / (count + 1),
                 step = 1 + rng_below(&check->rng, lanes_of(check));
    struct call call = {.count = count, .length = length, .at_end = rng_below(&check->rng, 2)};
    call.data = rng_below(&check->rng, 2) ? FINITE_RUNS : contiguous ? any_data(check) : SPARSE;
    call.stride = contiguous ? stride_of(check, CONTIGUOUS, length) : (ptrdiff_t)((step < most ? step : most) * size);
    call.out_stride = count > 20000 ? (ptrdiff_t)rng_below(&check->rng, 2) * (count < 100000) : any_out_stride(check);
    try_call(check, &call);
}

/* Calls of one length whose elements together have fewer bytes than the limit, and as many or some more. */
static void around_call(struct check *check, size_t limit, size_t length, bool contiguous)
{
    const size_t elements = limit / check->dtype->size, multiple = check->form == ROW_PANELS ? 8 : 1;
    const size_t below = (elements - 1) / length / multiple * multiple,
                 above = (elements / length / multiple + 1) * multiple;
    if (below > 0)
        try_large(check, below, length, contiguous);
    if (elements % length == 0 && elements / length % multiple == 0)
        try_large(check, elements / length, length, contiguous);
    try_large(check, above, length, contiguous);
}

static void around_contiguous(struct check *check, size_t limit)
{
    const size_t size = check->dtype->size, elements = limit / size, page = 4096 / size;
    try_large(check, 1, elements - 1, true);
    try_large(check, 1, elements, true);
    around_call(check, limit, 2 * page * (1 + rng_below(&check->rng, 9)) + rng_below(&check->rng, page), true);
}

static void limits(struct check *check, unsigned rounds)
{
    static const size_t runs[] = {1, 2, 8, 16, 61, 64, 65, 67, 130};
    const size_t lanes = lanes_of(check);
    for (unsigned round = 0; round < rounds; round++) {
        const struct list lengths = limit_lengths(check);
        for (const struct kernel_limit *l = check->subject->table->limits; l->name && !check->failed; l++) {
            if (!is_of_form(check, l))
                continue;
            if (l->of == QOBS_LIMIT_OF_CONTIGUOUS)
                around_contiguous(check, l->size);
            const size_t step = check->sample && l->size > SAMPLED_BYTES ? SAMPLED : 1;
            for (size_t i = rng_below(&check->rng, step < lengths.n ? step : lengths.n); /* one length at least */
                 i < lengths.n && l->of == QOBS_LIMIT_OF_CALL && check->form != ROW_PANELS; i += step)
                around_call(check, l->size, lengths.at[i], is_columns(check->form) && lengths.at[i] < 16 * lanes);
            for (unsigned i = 0; i < 4 && l->of == QOBS_LIMIT_OF_CALL && check->form == ROW_PANELS; i++) {
                const size_t run = lanes * (1 + rng_below(&check->rng, 9)) + rng_below(&check->rng, 3);
                around_call(check, l->size, runs[rng_below(&check->rng, sizeof runs / sizeof *runs)] * run, false);
            }
            for (size_t more = 0; more < 3 && l->of == QOBS_LIMIT_OF_COUNT; more++)
                try_large(check, l->size + more - 1, check->form == INDEXED ? 67 * lanes + 9 : lanes,
                          check->form != INDEXED);
        }
        for (size_t i = 0; i < lengths.n && is_rows(check->form); i++)
            try_large(check, 3 * lanes + 5, lengths.at[i], false);
        for (size_t bytes = 1 << 15; bytes <= 1 << 20 && is_columns(check->form); bytes *= 2)
            around_call(check, bytes, (1 + rng_below(&check->rng, 20)) * lanes / 2, true);
        for (unsigned i = 0; i < 20 && check->form == ROW_PANELS; i++)
            try_large(check, 8 * (1 + rng_below(&check->rng, 9)),
                      runs[i % 9] * (lanes * (1 + i / 2) + rng_below(&check->rng, 3)), false);
    }
}

static const enum kind outlier_kinds[] = {LARGEST, SUBNORMAL, INFINITE, QUIET_NAN, SIGNALLING_NAN, ZERO, MINUS_ZERO};

#define OUTLIER_KINDS (sizeof outlier_kinds / sizeof *outlier_kinds)

/* One element unlike all others, which must reach the result of its run or column and no other. */
static void put_outlier(struct check *check, struct call *call, size_t index, size_t position, unsigned which)
{
    if (check->form == INDEXED && which % 8 != 0 && rng_below(&check->rng, 16) != 0)
        return;
    unsigned char *at = (unsigned char *)call->x + (ptrdiff_t)index * call->stride + position * check->dtype->size;
    const uint64_t before = load_bits(check->dtype, at);
    store_bits(check->dtype, at, draw(&check->rng, check->dtype, outlier_kinds[which % OUTLIER_KINDS]));
    call_run(check, call);
    store_bits(check->dtype, at, before);
}

/* Every outlier in every position; where runs are long, one of them in every position of the first and the last
 * vectors. */
static void outliers(struct check *check, unsigned rounds)
{
    const struct list all_lengths = key_lengths(check);
    const size_t lanes = lanes_of(check), margin = 5 * lanes;
    unsigned which = 0;
    for (unsigned round = 0; round < 2 * rounds; round++)
        for (size_t l = 0; l < all_lengths.n; l++) {
            const size_t length = all_lengths.at[l];
            struct call call = {.length = length, .count = lanes + 1, .out_stride = 1, .at_end = round & 1};
            call.fill = IDENTITIES;
            call.stride = stride_of(check, length % 3 ? CONTIGUOUS : GAP, length);
            size_t below;
            const size_t extent = call_extent(check, &call, &below);
            unsigned char *const lowest = arena_place(&arena, extent, call.at_end, 0);
            call.x = lowest;
            memset(lowest, 0xff, extent);
            const uint64_t ordinary = draw(&check->rng, check->dtype, round & 1 ? POSITIVE : NEGATIVE);
            for (size_t i = 0; i < call.count; i++)
                for (size_t j = 0; j < length; j++)
                    store_bits(check->dtype, lowest + (ptrdiff_t)i * call.stride + j * check->dtype->size, ordinary);
            for (size_t position = 0; position < length && !check->failed; position++) {
                if (position == margin && length > 2 * margin)
                    position = length - margin;
                put_outlier(check, &call, rng_below(&check->rng, call.count), position, which++);
                if (length <= margin)
                    for (size_t more = 1; more < OUTLIER_KINDS; more++)
                        put_outlier(check, &call, rng_below(&check->rng, call.count), position, which++);
            }
            for (size_t i = 0; i < call.count && length > 0 && !check->failed; i++)
                put_outlier(check, &call, i, rng_below(&check->rng, length), which++);
        }
}

/* Every run or row against no-access memory of its own. */
static void gaps_without_access(struct check *check, unsigned rounds)
{
    const struct list all_lengths = key_lengths(check), all_counts = key_counts(check);
    for (size_t l = 0; l < all_lengths.n; l++)
        for (size_t c = 0; c < all_counts.n; c++)
            for (unsigned i = 0; i < 2 * rounds && !check->failed; i++) {
                const size_t count = all_counts.at[c], bytes = all_lengths.at[l] * check->dtype->size;
                if (count == 0 || count > islands.count || bytes > islands.bytes)
                    continue;
                struct call call = {
                    .length = all_lengths.at[l], .count = count, .data = any_data(check), .at_end = i & 1};
                unsigned char *lowest = islands.begin + (call.at_end ? islands.bytes - bytes : 0);
                for (size_t r = 0; r < count; r++)
                    fill_data(&check->rng, check->dtype, call.data, lowest + (ptrdiff_t)r * islands.stride,
                              call.length);
                const bool backwards = rng_below(&check->rng, 2);
                call.stride = backwards ? -islands.stride : islands.stride;
                call.x = backwards ? lowest + (ptrdiff_t)(count - 1) * islands.stride : lowest;
                call.out_stride = any_out_stride(check);
                call.fill = (enum fill)rng_below(&check->rng, ZEROS);
                call_run(check, &call);
            }
}

/* Everything drawn. */
static void anything(struct check *check, unsigned rounds)
{
    const struct list all_lengths = key_lengths(check), all_counts = key_counts(check);
    for (unsigned i = 0; i < 1000 * rounds && !check->failed; i++) {
        struct call call = {.length = any_of(check, &all_lengths), .count = any_of(check, &all_counts)};
        if (rng_below(&check->rng, 2))
            call.length = rng_below(&check->rng, rng_below(&check->rng, 8) ? 5 * lanes_of(check) : 3000);
        if (rng_below(&check->rng, 2))
            call.count = rng_below(&check->rng, rng_below(&check->rng, 8) ? 10 : 200);
        call.data = any_data(check);
        call.at_end = rng_below(&check->rng, 2);
        call.offset = rng_below(&check->rng, 2) ? 0 : rng_below(&check->rng, 64);
        call.stride = stride_of(check, (enum stride_kind)rng_below(&check->rng, STRIDES), call.length);
        call.out_stride = (ptrdiff_t)rng_below(&check->rng, 9) - 4;
        try_call(check, &call);
    }
}

const struct aspect aspects[] = {
    {"lengths", lengths},
    {"offsets", offsets},
    {"strides", strides},
    {"long", long_ones},
    {"limits", limits},
    {"outliers", outliers},
    {"gaps without access", gaps_without_access},
    {"anything", anything},
    {NULL, NULL},
};
