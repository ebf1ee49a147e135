/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What is tried on every function. Rows and columns go through the same shapes: count x length, `stride` bytes apart. */
#include <stddef.h>
#include <string.h>

#include "check.h"
#include "memory.h"

#define DATA_BYTES ((size_t)17 << 20)
#define NEAR_BYTES ((size_t)1 << 20) /* from here on, columns go in strips */
#define STRIP_BYTES 8192
#define OUTER_BYTES ((size_t)2 << 20) /* from here on, AVX-512 leaves runs to AVX2 */
#define BANDS_BYTES ((size_t)1 << 20) /* and bands */
#define FAR_BYTES ((size_t)16 << 20) /* from here on, they are fetched ahead */
#define INDEXED_ELEMENTS 8192
#define TALL 131 /* rows; from 64 on permutations are worth their making */
#define ISLANDS 102
#define LARGEST_VECTOR 64

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

/* Lengths around every change of method, whatever the size of a vector: parts of it, one, two, four and many vectors. */
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

static void fill_elements(struct check *check, const struct call *call, unsigned char *lowest, size_t extent)
{
    const size_t size = check->dtype->size, bytes = call->length * size;
    const size_t step = (size_t)(call->stride < 0 ? -call->stride : call->stride);
    if (step <= bytes) {
        fill_data(&check->rng, check->dtype, call->data, lowest, extent / size);
        return;
    }
    memset(lowest, 0xff, extent); /* NaN, if something between the runs is taken for an element */
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
    while (check->form == INDEXED && call->count > 70 && call->count != TALL && call->count * call->length > INDEXED_ELEMENTS)
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

/* Every length up to a few vectors at every byte offset from no-access memory on either side, mostly as one or few runs. */
static void lengths(struct check *check, unsigned rounds)
{
    const size_t longest = 4 * lanes_of(check) + 3;
    for (size_t length = 0; length <= longest; length++)
        for (unsigned i = 0; i < (check->form == ROWS || check->form == COLUMNS ? 128 : 32) * rounds && !check->failed; i++) {
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
                    struct call call = {.length = all_lengths.at[l], .count = all_counts.at[c], .data = any_data(check)};
                    call.at_end = rng_below(&check->rng, 2);
                    call.stride = stride_of(check, (enum stride_kind)kind, call.length);
                    call.out_stride = out_strides[turn++ % 4];
                    try_call(check, &call);
                }
}

/* More columns than a cache holds, in rows that overlap so that the memory need not be there. */
static void far_columns(struct check *check, size_t bytes, enum data data)
{
    const size_t size = check->dtype->size, lanes = lanes_of(check);
    struct call call = {.length = 61 * lanes + rng_below(&check->rng, lanes), .data = data};
    if (rng_below(&check->rng, 2))
        call.length = STRIP_BYTES / size + rng_below(&check->rng, 3 * lanes);
    call.count = bytes / (call.length * size) + 1 + rng_below(&check->rng, 8);
    call.stride = (ptrdiff_t)((1 + rng_below(&check->rng, lanes)) * size);
    call.at_end = rng_below(&check->rng, 2);
    try_call(check, &call);
}

/* Short rows without gaps, which are taken several at a time. */
static void short_columns(struct check *check, size_t bytes)
{
    const size_t size = check->dtype->size, lanes = lanes_of(check);
    struct call call = {.length = (1 + rng_below(&check->rng, 20)) * lanes / 2, .data = any_data(check)};
    call.count = bytes / (call.length * size) + 1 + rng_below(&check->rng, 70);
    call.stride = stride_of(check, CONTIGUOUS, call.length);
    call.at_end = rng_below(&check->rng, 2);
    try_call(check, &call);
}

/* Runs of which there are more than the caches of a core hold, or than the third-level cache may, long enough for another kernel or not
 * quite. */
static void far_runs(struct check *check, size_t bytes)
{
    const size_t size = check->dtype->size;
    const size_t shortest = size == 8 ? 1000 : bytes < FAR_BYTES ? 490 : rng_below(&check->rng, 2) ? 120 : 20;
    struct call call = {.length = shortest + rng_below(&check->rng, 60)};
    call.data = rng_below(&check->rng, 2) ? FINITE_RUNS : SPARSE;
    call.count = bytes / (call.length * size) + rng_below(&check->rng, 8);
    call.stride = (ptrdiff_t)((1 + rng_below(&check->rng, lanes_of(check))) * size);
    call.out_stride = shortest < 120 ? (ptrdiff_t)rng_below(&check->rng, 2) : any_out_stride(check); /* for want of room */
    call.at_end = rng_below(&check->rng, 2);
    try_call(check, &call);
}

/* Runs without gaps, together more than the third-level cache may hold, which are read some pages at a time. */
static void far_contiguous_runs(struct check *check)
{
    const size_t size = check->dtype->size, pages = 8192 / size;
    struct call call = {.length = pages * (1 + rng_below(&check->rng, 9)), .data = any_data(check)};
    call.length += rng_below(&check->rng, 2) ? rng_below(&check->rng, pages) : 0;
    call.count = FAR_BYTES / (call.length * size) + 1;
    if (rng_below(&check->rng, 2))
        call.length *= call.count, call.count = 1;
    call.stride = stride_of(check, CONTIGUOUS, call.length);
    call.out_stride = any_out_stride(check);
    call.at_end = rng_below(&check->rng, 2);
    try_call(check, &call);
}

/* Rows of many runs, most of them long enough to be kept apart, that overlap so that the memory need not be there. */
static void far_bands(struct check *check, size_t bytes)
{
    const size_t size = check->dtype->size, lanes = lanes_of(check);
    static const size_t runs[] = {1, 2, 8, 16, 61, 64, 65, 67, 130};
    struct call call = {.data = rng_below(&check->rng, 2) ? FINITE_RUNS : any_data(check)};
    const size_t run = lanes + rng_below(&check->rng, 9) * lanes + rng_below(&check->rng, 3);
    call.length = runs[rng_below(&check->rng, sizeof runs / sizeof *runs)] * run;
    call.count = (bytes / (call.length * size) + 1 + rng_below(&check->rng, 8)) / 8 * 8 + 8;
    call.stride = (ptrdiff_t)((1 + rng_below(&check->rng, lanes)) * size);
    call.at_end = rng_below(&check->rng, 2);
    try_call(check, &call);
}

/* Runs of several blocks, wide and tall columns. */
static void long_ones(struct check *check, unsigned rounds)
{
    const size_t size = check->dtype->size, block = 262144 / size, lanes = lanes_of(check);
    const struct {
        size_t count, length;
    } shapes[] = {
        {1, 2 * block - 1}, {1, 2 * block},    {1, 2 * block + 1}, {1, 3 * block + lanes / 2 + 1},
        {2, block + 7},     {3000, lanes + 1}, {20000, 3},         {40, 80 * lanes + 5},
        {TALL, 67 * lanes + 9}, {10 * lanes + 5, 35 * lanes + 9}, {500, lanes}, {600, lanes},
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
    for (unsigned round = 0; round < rounds && is_columns(check->form); round++) {
        far_columns(check, NEAR_BYTES, rng_below(&check->rng, 2) ? FINITE_RUNS : SPARSE);
        far_columns(check, FAR_BYTES, FINITE_RUNS);
        far_columns(check, FAR_BYTES, SPARSE);
        short_columns(check, FAR_BYTES);
        for (size_t bytes = NEAR_BYTES / 32; bytes <= NEAR_BYTES; bytes *= 2)
            short_columns(check, bytes);
    }
    for (unsigned round = 0; round < rounds && check->form == BANDS; round++) {
        for (unsigned i = 0; i < 20; i++)
            far_bands(check, 1);
        for (unsigned i = 0; i < 4; i++)
            far_bands(check, BANDS_BYTES);
        far_bands(check, FAR_BYTES);
    }
    for (unsigned round = 0; round < 2 * rounds && is_rows(check->form); round++) {
        far_runs(check, OUTER_BYTES);
        far_runs(check, FAR_BYTES);
        far_contiguous_runs(check);
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

/* Every outlier in every position; where runs are long, one of them in every position of the first and the last vectors. */
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
                struct call call = {.length = all_lengths.at[l], .count = count, .data = any_data(check), .at_end = i & 1};
                unsigned char *lowest = islands.begin + (call.at_end ? islands.bytes - bytes : 0);
                for (size_t r = 0; r < count; r++)
                    fill_data(&check->rng, check->dtype, call.data, lowest + (ptrdiff_t)r * islands.stride, call.length);
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
    {"lengths", lengths},   {"offsets", offsets},   {"strides", strides},
    {"long", long_ones},    {"outliers", outliers}, {"gaps without access", gaps_without_access},
    {"anything", anything}, {NULL, NULL},
};
