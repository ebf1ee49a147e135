/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A runtime with threads and memory of its own that lends both to qobs. Its pool has workers that wait for loops;
 * its arena is emptied after each layer. The scales are the same as without them.
 *
 *     cc runtime.c $(pkg-config --cflags --libs qobs) -pthread -lm -o runtime */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
#include <qobs/qobs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

enum { WORKERS = 3 };

struct pool {
    pthread_t threads[WORKERS];
    int started;
    pthread_mutex_t mutex;
    pthread_cond_t begin, end;
    /* The current loop. `turn` counts loops, so that a worker joins each loop once. */
    void (*task)(void *, size_t);
    void *argument;
    size_t count, turn;
    int busy, stop;
    atomic_size_t next;
};

static void run_tasks(struct pool *pool)
{
    for (size_t i; (i = atomic_fetch_add(&pool->next, 1)) < pool->count;)
        pool->task(pool->argument, i);
}

static void *work(void *context)
{
    struct pool *pool = context;
    pthread_mutex_lock(&pool->mutex);
    for (size_t last_turn = 0;;) {
        while (!pool->stop && pool->turn == last_turn)
            pthread_cond_wait(&pool->begin, &pool->mutex);
        if (pool->stop)
            break;
        last_turn = pool->turn;
        pthread_mutex_unlock(&pool->mutex);
        run_tasks(pool);
        pthread_mutex_lock(&pool->mutex);
        if (--pool->busy == 0)
            pthread_cond_signal(&pool->end);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* qobs calls this function. It runs every index once and returns after the last one. The caller works, too. */
static void pool_for(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
    struct pool *pool = context;
    pthread_mutex_lock(&pool->mutex);
    pool->task = task;
    pool->argument = argument;
    pool->count = count;
    atomic_store(&pool->next, 0);
    pool->busy = pool->started;
    pool->turn++;
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->mutex);
    run_tasks(pool);
    pthread_mutex_lock(&pool->mutex);
    while (pool->busy > 0)
        pthread_cond_wait(&pool->end, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

static void pool_start(struct pool *pool)
{
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->begin, NULL);
    pthread_cond_init(&pool->end, NULL);
    while (pool->started < WORKERS && pthread_create(&pool->threads[pool->started], NULL, work, pool) == 0)
        pool->started++;
}

static void pool_stop(struct pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->mutex);
    while (pool->started > 0)
        pthread_join(pool->threads[--pool->started], NULL);
    pthread_cond_destroy(&pool->end);
    pthread_cond_destroy(&pool->begin);
    pthread_mutex_destroy(&pool->mutex);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

enum { ALIGNMENT = 64 };

struct arena {
    unsigned char *memory;
    size_t size, used, peak;
};

static size_t rounded(size_t size) { return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Returns NULL if the arena is full. qobs then fails with QOBS_ERROR_OUT_OF_MEMORY, and nothing has changed. */
static void *arena_allocate(void *context, size_t size)
{
    struct arena *arena = context;
    if (size > arena->size - arena->used || rounded(size) > arena->size - arena->used)
        return NULL;
    void *memory = arena->memory + arena->used;
    arena->used += rounded(size);
    arena->peak = arena->used > arena->peak ? arena->used : arena->peak;
    return memory;
}

/* Frees only the last allocation. The others are freed when the arena is emptied. */
static void arena_release(void *context, void *memory, size_t size)
{
    struct arena *arena = context;
    if ((unsigned char *)memory + rounded(size) == arena->memory + arena->used)
        arena->used -= rounded(size);
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

enum { ROWS = 512, COLUMNS = 1024, GROUP = 32, SCALES = ROWS * COLUMNS / GROUP };

static float weight[ROWS][COLUMNS];

/* Computes the int4 scales of `weight`, one for each group, by the range with the smallest error. */
static int layer_scales(const qobs_runtime *runtime, float *scales, qobs_error *error)
{
    const int64_t shape[] = {ROWS, COLUMNS};
    const qobs_tensor tensor = {sizeof tensor, weight, QOBS_F32, 2, shape, NULL};
    const qobs_qparam_buffers out = {.struct_size = sizeof out, .scale = scales, .scale_size = SCALES * sizeof *scales};
    return qobs_compute_qparams("llmc.memoryless_mse num_bits=4 group_size=32", &tensor, &out, runtime, error);
}

int main(void)
{
    static _Alignas(ALIGNMENT) unsigned char memory[1 << 22];
    static float lent[SCALES], plain[SCALES];
    static struct pool pool;
    struct arena arena = {memory, sizeof memory, 0, 0}, small = {memory, 4096, 0, 0};
    pool_start(&pool);
    const qobs_allocator allocator = {sizeof allocator, arena_allocate, arena_release, &arena};
    const qobs_executor executor = {sizeof executor, (size_t)pool.started + 1, pool_for, &pool};
    const qobs_runtime runtime = {sizeof runtime, &allocator, &executor};
    qobs_error error;
    int bad = 0;
    for (int layer = 0; layer < 3 && !bad; layer++) {
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c++)
                weight[r][c] = sinf((float)(layer + 1) * (float)(r + 1)) * powf(cosf((float)c), 3);
        bad = layer_scales(&runtime, lent, &error) != QOBS_OK || layer_scales(NULL, plain, &error) != QOBS_OK;
        if (bad) {
            fprintf(stderr, "%s\n", error.message);
            break;
        }
        printf("layer %d: first scale %g, %zu bytes of the arena\n", layer, lent[0], arena.peak);
        bad = memcmp(lent, plain, sizeof lent) != 0 || arena.peak == 0 || pool.turn == 0;
        arena.used = arena.peak = 0;
    }
    /* An arena that is too small gives an error, not a crash. */
    arena = small;
    const int status = layer_scales(&runtime, lent, &error);
    printf("with %zu bytes: %s: %s\n", arena.size, qobs_status_string(status), error.message);
    bad |= status != QOBS_ERROR_OUT_OF_MEMORY;
    pool_stop(&pool);
    return bad;
}
