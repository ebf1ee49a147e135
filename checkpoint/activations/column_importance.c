/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Recordings and states go through an observer of llmc.imatrix_mse, whose sums are upstream's. */
#include "activations/column_importance.h"

#include <stdlib.h>
#include <string.h>

#include "files/mapped.h"
#include "files/status.h"
#include "files/text.h"

/* ---- Sources ----------------------------------------------------------------------------------------------------- */

int importance_add(struct importance_sources *s, const char *path, struct fail *f)
{
    if (!imatrix_is(path))
        return recordings_add(&s->recordings, path, f);
    struct imatrix *file = list_add(&s->files, &s->file_count, sizeof *file);
    return file ? imatrix_open(file, path, f) : fail_system(f, "%s: no memory for its entries", path);
}

bool importance_find(const struct importance_sources *s, const struct saved_states *states, const char *module,
                     size_t length, bool hessian, struct importance_found *found)
{
    struct llama_name name;
    *found = (struct importance_found){0};
    const bool recorded =
        recordings_find(&s->recordings, module, length, ".input", &found->recorded, NULL) == 0 && found->recorded;
    if (recorded && hessian)
        return true;
    if (states)
        found->states = saved_states_find(states, module, length, ".importance", &found->state_count);
    if (found->states)
        found->recorded = NULL;
    if (found->states || recorded)
        return true;
    if (!llama_name_of(module, length, &name))
        return false;
    for (size_t i = s->file_count; i > 0 && !found->entry; i--) {
        found->file = &s->files[i - 1];
        found->entry = imatrix_find(found->file, name.text);
        found->matrix = name.matrix;
    }
    return found->entry != NULL;
}

const char *importance_path(const struct importance_found *found)
{
    return found->states ? found->states->path : found->recorded ? found->recorded->file : found->file->map.path;
}

void importance_free(struct importance_sources *s)
{
    recordings_free(&s->recordings);
    for (size_t i = 0; i < s->file_count; i++)
        imatrix_close(&s->files[i]);
    free(s->files);
    *s = (struct importance_sources){0};
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

int importance_batch_of(const struct recordings *recordings, size_t index, const struct tensor_ref *recorded,
                        enum importance_half half, struct importance_batch *batch, struct fail *f)
{
    const struct tensor_ref *ref = recordings_batch(recordings, index, recorded);
    *batch = (struct importance_batch){.tokens = ref != NULL};
    if (!ref)
        return QOBS_OK;
    RETURN_IF_NOT_OK(tensor_of_ref(ref, &batch->tensor, f));
    memcpy(batch->shape, ref->shape, sizeof batch->shape);
    batch->tensor.shape = batch->shape;
    const bool one = ref->ndim < 2 || ref->shape[0] == 1;
    if (half != ALL_TOKENS && one && (index % 2 == 0) != (half == FIRST_HALF))
        batch->tokens = 0;
    if (half != ALL_TOKENS && !one) {
        const int64_t first = (ref->shape[0] + 1) / 2;
        batch->shape[0] = half == FIRST_HALF ? first : ref->shape[0] - first;
        batch->tensor.data = (const unsigned char *)ref->data + (half == FIRST_HALF ? 0 : first * ref->strides[0]);
    }
    for (int k = 0; k < ref->ndim - 1; k++)
        batch->tokens *= batch->shape[k];
    return QOBS_OK;
}

int importance_observe(const struct recordings *recordings, const struct tensor_ref *recorded,
                       enum importance_half half, qobs_observer *observer, struct fail *f)
{
    qobs_error error = {0};
    for (size_t i = 0; i < recordings->count; i++) {
        struct importance_batch batch;
        RETURN_IF_NOT_OK(importance_batch_of(recordings, i, recorded, half, &batch, f));
        if (!batch.tensor.data || (half != ALL_TOKENS && batch.tokens == 0))
            continue;
        const struct tensor_ref *ref = recordings_batch(recordings, i, recorded);
        RETURN_IF_NOT_OK(mapped_borrow(ref->data, (size_t)ref->bytes, f));
        const int status = qobs_observer_observe_importance(observer, &batch.tensor, &error);
        mapped_release(ref->data, (size_t)ref->bytes);
        if (status != QOBS_OK)
            return report_failure(f, status, "%.200s: tensor '%.200s': %s", ref->file, recorded->name, error.message);
    }
    return QOBS_OK;
}

/* Divides sums by the number of tokens, in float as upstream does. */
static int read_sums(const qobs_observer *observer, int64_t n, float *mean, qobs_error *error)
{
    int64_t tokens;
    if (qobs_observer_read(observer, "imatrix_sum", mean, (size_t)n * sizeof *mean, error) != QOBS_OK ||
        qobs_observer_read(observer, "imatrix_count", &tokens, sizeof tokens, error) != QOBS_OK)
        return error->status;
    for (int64_t j = 0; j < n; j++)
        mean[j] = tokens > 0 ? mean[j] / (float)tokens : 0;
    return QOBS_OK;
}

/* Takes the diagonal of a Hessian, whose blocks of columns follow each other. */
static int read_diagonal(const qobs_observer *observer, const qobs_result *info, int64_t n, float *mean,
                         qobs_error *error)
{
    const int64_t block = info->shape[1];
    int64_t tokens;
    OWNED double *sum = malloc(info->size + 1);
    int status = sum ? qobs_observer_read(observer, "hessian_sum", sum, info->size, error) : QOBS_ERROR_OUT_OF_MEMORY;
    if (status == QOBS_OK)
        status = qobs_observer_read(observer, "hessian_count", &tokens, sizeof tokens, error);
    for (int64_t j = 0; status == QOBS_OK && j < n; j++)
        mean[j] = tokens > 0 ? (float)(sum[(j / block * block + j % block) * block + j % block] / (double)tokens) : 0;
    return status;
}

static int read_means(const qobs_observer *observer, const char *source, const char *what, int64_t n, float *mean,
                      struct fail *f)
{
    qobs_error error = {0}, ignored = {0};
    qobs_result info = {.struct_size = sizeof info};
    const bool hessian = qobs_observer_result_find(observer, "hessian_sum", &info, &ignored) == QOBS_OK;
    if (!hessian && qobs_observer_result_find(observer, "imatrix_sum", &info, &error) != QOBS_OK)
        return INVALID(f, "%.300s: holds no mean squares: %s", source,
                       error.status == QOBS_ERROR_NO_DATA ? "no activations have been observed" : error.message);
    const int64_t numbers = hessian ? info.shape[0] * info.shape[1] : (int64_t)(info.size / sizeof *mean);
    if (hessian ? numbers < n || numbers - info.shape[1] >= n : numbers != n)
        return INVALID(f, "%.300s: has mean squares of %lld %s; the weight has %lld", source, (long long)numbers, what,
                       (long long)n);
    if ((hessian ? read_diagonal(observer, &info, n, mean, &error) : read_sums(observer, n, mean, &error)) != QOBS_OK)
        return report_failure(f, error.status ? error.status : QOBS_ERROR_OUT_OF_MEMORY, "%.300s: %s", source,
                              error.message);
    return QOBS_OK;
}

int means_of_states(const struct saved_state *first, size_t count, const char *what, int64_t n, float *mean,
                    struct fail *f)
{
    OWNED_OBSERVER qobs_observer *observer = NULL;
    RETURN_IF_NOT_OK(saved_importance_load(first, count, &observer, f));
    return read_means(observer, first->path, what, n, mean, f);
}

int importance_read(const struct importance_sources *s, const struct importance_found *found, int64_t columns,
                    float *mean, struct fail *f)
{
    OWNED_OBSERVER qobs_observer *observer = NULL;
    qobs_error error = {0};
    if (found->entry)
        return imatrix_read(found->file, found->entry, found->matrix, columns, mean, f);
    if (found->states)
        return means_of_states(found->states, found->state_count, "columns", columns, mean, f);
    if (qobs_observer_open(&observer, "llmc.imatrix_mse base_name=weight", NULL, &error) != QOBS_OK)
        return report_failure(f, error.status, "importance: %s", error.message);
    RETURN_IF_NOT_OK(importance_observe(&s->recordings, found->recorded, ALL_TOKENS, observer, f));
    return read_means(observer, found->recorded->file, "columns", columns, mean, f);
}
