/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observers in memory of the caller's: the observer, its region, and in that the state. */
#include "base/error.h"
#include "observer/observer.h"
#include "observer/post_search.h"
#include "measure/accumulators.h"

struct workspace {
    qobs_observer observer;
    struct region region;
};

enum { WORKSPACE = (sizeof(struct workspace) + REGION_ALIGNMENT - 1) / REGION_ALIGNMENT * REGION_ALIGNMENT };

int qobs_observer_create_in(qobs_observer **result, void *memory, size_t size, const qobs_config *config, const qobs_runtime *given,
                            qobs_error *error)
{
    struct runtime runtime;
    const size_t skipped = (REGION_ALIGNMENT - (uintptr_t)memory % REGION_ALIGNMENT) % REGION_ALIGNMENT;
    if (!result || !memory)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "%s: is NULL", result ? "memory" : "observer");
    if (size < skipped + WORKSPACE)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is %zu bytes, an observer needs %d", size,
                         WORKSPACE + REGION_ALIGNMENT - 1);
    int status = qobs_config_check(config, error);
    if (status == QOBS_OK)
        status = qobs_runtime_resolve(&runtime, given, error);
    if (status != QOBS_OK)
        return status;
    struct workspace *workspace = (struct workspace *)(void *)((unsigned char *)memory + skipped);
    workspace->region = qobs_region_make((unsigned char *)workspace + WORKSPACE, (unsigned char *)memory + size);
    runtime.region = &workspace->region;
    qobs_observer_make(&workspace->observer, config, &runtime);
    *result = &workspace->observer;
    return qobs_succeed(error);
}

/* ---- Size ------------------------------------------------------------------------------------------------------------------- */

/* Counts what blocks of an region would take, in memory of its own. */
struct counter {
    const struct runtime *runtime;
    size_t bytes;
};

static void *count_and_allocate(void *context, size_t size)
{
    struct counter *counter = context;
    counter->bytes += qobs_region_block(size);
    return qobs_allocate(counter->runtime, size);
}

static void release_counted(void *context, void *memory, size_t size)
{
    qobs_release(((struct counter *)context)->runtime, memory, size);
}

/* What is kept once and what a batch makes anew while the old is there. Sizes are known where memory is reserved, so that is
 * done. */
static int reserve_all(const struct runtime *runtime, const qobs_config *config, const qobs_plan *plan, qobs_error *error)
{
    const struct layout layout = qobs_layout_of(config, plan);
    struct histogram_rule rule;
    const int64_t columns = plan->value.ndim > 0 ? plan->value.shape[plan->value.ndim - 1] : 1;
    const bool told = config->preset->family == FAMILY_MODELOPT && qobs_searches_kept(config);
    enum { VOTES = 3 }; /* that differ; there is room for 1 and then for these */
    int status = QOBS_OK;
    struct range_rule search;
    qobs_resolve_range(config, &search);
    qobs_resolve_histogram(config, &rule);
    if (status == QOBS_OK && search.ops->sums) {
        struct kept kept = {0};
        status = qobs_allocate_sums(runtime, &kept, layout.qparams * qobs_range_steps(&search), error);
        qobs_release_kept(runtime, &kept);
    }
    if (status == QOBS_OK && qobs_weighs_columns(config)) {
        struct importance importance = {0};
        status = qobs_importance_reserve(runtime, &importance, columns, error);
        qobs_importance_release(runtime, &importance);
    }
    for (int i = 0; i < 2 && status == QOBS_OK; i++) {
        struct kept kept = {0};
        struct search_record record = {0};
        void *given = NULL, *weights = NULL;
        status = qobs_allocate_ranges(runtime, &kept.state, layout.dtype, layout.qparams, error);
        if (status == QOBS_OK && qobs_votes(config))
            status = qobs_mode_reserve(runtime, &kept.mode_count, layout.qparams, i == 0 ? 1 : VOTES, error);
        if (status == QOBS_OK && rule.ops)
            status = qobs_histogram_allocate(runtime, rule.ops, &kept.histogram, layout.qparams, rule.params.bins, error);
        if (status == QOBS_OK && qobs_searches(config))
            status = qobs_search_record_reserve(runtime, &record, layout.qparams, error);
        if (status == QOBS_OK && told) {
            given = qobs_allocate(runtime, layout.qparams * sizeof(float));
            weights = qobs_allocate(runtime, (size_t)columns * sizeof(float));
        }
        qobs_release(runtime, given, layout.qparams * sizeof(float));
        qobs_release(runtime, weights, (size_t)columns * sizeof(float));
        qobs_search_record_release(runtime, &record);
        qobs_release_kept(runtime, &kept);
    }
    return status;
}

int qobs_observer_size(const qobs_config *config, const qobs_tensor *value, size_t *size, qobs_error *error)
{
    if (!size)
        return qobs_fail(error, QOBS_ERROR_INVALID_ARGUMENT, "size: is NULL");
    int status = qobs_config_check(config, error);
    struct counter counter = {0};
    const qobs_allocator allocator = {sizeof allocator, count_and_allocate, release_counted, &counter};
    if (status == QOBS_OK && value && qobs_keeps(config) != KEEPS_NOTHING) {
        counter.runtime = &config->runtime;
        const struct runtime counting = {.allocator = &allocator};
        struct granularity granularity;
        qobs_plan *plan;
        qobs_resolve_granularity(config, &granularity);
        status = qobs_plan_new(&plan, &granularity, value, NULL, &config->runtime, error);
        if (status == QOBS_OK) {
            status = reserve_all(&counting, config, plan, error);
            qobs_plan_destroy(plan);
        }
    }
    if (status != QOBS_OK)
        return status;
    *size = WORKSPACE + REGION_ALIGNMENT - 1 + counter.bytes;
    return qobs_succeed(error);
}
