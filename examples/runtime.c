/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A runtime with threads and memory of its own that lends both to qobs, and quantizes the activations of a layer to
 * int8 with a scale for each token, as vLLM's operator for CPUs does. Its pool has workers that wait for loops; a
 * prepared quantizer lies in its arena, and runs without memory. Codes and scales are the same as without them.
 *
 *     cc runtime.c $(pkg-config --cflags --libs qobs) -pthread -lm -o runtime */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
#include <qobs/quantizer.h>
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

/* Frees only the last allocation. The others are freed with the arena. */
static void arena_release(void *context, void *memory, size_t size)
{
    struct arena *arena = context;
    if ((unsigned char *)memory + rounded(size) == arena->memory + arena->used)
        arena->used -= rounded(size);
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

enum { TOKENS = 512, FEATURES = 1024, LAYERS = 3 };

static float activations[TOKENS][FEATURES];

struct result {
    signed char codes[TOKENS][FEATURES];
    float scale[TOKENS];
};

/* A quantizer for matrices of FEATURES columns, each with its own scales. NULL: it fails. */
static qobs_quantizer *prepare(const qobs_config *config, const qobs_runtime *runtime, qobs_error *error)
{
    qobs_quantizer *quantizer = NULL;
    const qobs_quantizer_args args = {.struct_size = sizeof args,
                                      .config = config,
                                      .dtype = QOBS_F32,
                                      .columns = FEATURES,
                                      .dynamic = 1,
                                      .runtime = runtime};
    return qobs_quantizer_create(&quantizer, &args, error) == QOBS_OK ? quantizer : NULL;
}

static int quantize(const qobs_quantizer *quantizer, struct result *to, qobs_error *error)
{
    const qobs_quantizer_run_args run = {.struct_size = sizeof run,
                                         .rows = TOKENS,
                                         .value = activations,
                                         .codes = to->codes,
                                         .codes_size = sizeof to->codes,
                                         .scale = to->scale,
                                         .scale_size = sizeof to->scale};
    return qobs_quantizer_run(quantizer, &run, error);
}

int main(void)
{
    static _Alignas(ALIGNMENT) unsigned char memory[1 << 14];
    static struct result lent, plain;
    static struct pool pool;
    struct arena arena = {memory, sizeof memory, 0, 0};
    pool_start(&pool);
    const qobs_allocator allocator = {sizeof allocator, arena_allocate, arena_release, &arena};
    const qobs_executor executor = {sizeof executor, (size_t)pool.started + 1, pool_for, &pool};
    const qobs_runtime runtime = {sizeof runtime, &allocator, &executor};
    qobs_config *config = NULL;
    qobs_error error;
    int bad = qobs_config_parse(&config, "vllm.scaled_int8_quant", NULL, &error);
    qobs_quantizer *quantizer = bad ? NULL : prepare(config, &runtime, &error);
    qobs_quantizer *alone = quantizer ? prepare(config, NULL, &error) : NULL;
    bad = !alone;
    const size_t prepared = arena.peak;
    for (int layer = 0; layer < LAYERS && !bad; layer++) {
        for (int t = 0; t < TOKENS; t++)
            for (int f = 0; f < FEATURES; f++)
                activations[t][f] = sinf((float)(layer + 1) * (float)(t + 1)) * powf(cosf((float)f), 3);
        bad = quantize(quantizer, &lent, &error) != QOBS_OK || quantize(alone, &plain, &error) != QOBS_OK;
        if (!bad) {
            printf("layer %d: first scale %g, %zu bytes of the arena\n", layer, lent.scale[0], arena.used);
            bad = memcmp(&lent, &plain, sizeof lent) != 0 || arena.peak != prepared || pool.turn == 0;
        }
    }
    if (!quantizer || !alone)
        fprintf(stderr, "%s\n", error.message);
    /* An arena that is too small gives an error, not a crash. */
    arena.size = arena.used;
    const int refused = !bad && !prepare(config, &runtime, &error) && error.status == QOBS_ERROR_OUT_OF_MEMORY;
    printf("with %zu bytes: %s: %s\n", arena.size, qobs_status_string(error.status), error.message);
    qobs_quantizer_destroy(alone);
    qobs_quantizer_destroy(quantizer);
    qobs_config_destroy(config);
    pool_stop(&pool);
    return bad || !refused;
}
