/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Recordings and states go through an observer of llmc.imatrix_mse, whose sums are upstream's. */
#include "activations/column_importance.h"

#include <stdlib.h>

#include "files/status.h"
#include "files/text.h"

/* ---- Sources ----------------------------------------------------------------------------------------------------- */

int importance_add(struct importance_sources *s, const char *path, struct fail *f)
{
    if (!imatrix_is(path))
        return recordings_add(&s->recordings, path, f);
    struct imatrix *grown = list_grow(s->files, s->file_count, sizeof *grown);
    if (!grown)
        return fail_system(f, "%s: no memory for its entries", path);
    s->files = grown;
    if (imatrix_open(&grown[s->file_count], path, f) != 0)
        return -1;
    s->file_count++;
    return 0;
}

bool importance_find(const struct importance_sources *s, const struct saved_states *states, const char *module,
                     size_t length, struct importance_found *found)
{
    struct llama_name name;
    struct fail ignored;
    *found = (struct importance_found){0};
    if (states)
        found->states = saved_states_find(states, module, length, ".importance", &found->state_count);
    if (found->states)
        return true;
    if (recordings_find(&s->recordings, module, length, ".input", &found->recorded, &ignored) == 0 && found->recorded)
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

void importance_free(struct importance_sources *s)
{
    recordings_free(&s->recordings);
    for (size_t i = 0; i < s->file_count; i++)
        imatrix_close(&s->files[i]);
    free(s->files);
    *s = (struct importance_sources){0};
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

int importance_observe(const struct recordings *recordings, const struct tensor_ref *recorded, qobs_observer *observer,
                       struct fail *f)
{
    qobs_error error = {0};
    for (size_t i = 0; i < recordings->count; i++) {
        const struct tensor_ref *batch = recordings_batch(recordings, i, recorded);
        qobs_tensor tensor;
        if (!batch)
            continue;
        if (tensor_of_ref(batch, &tensor, f) != 0)
            return failure_status(f);
        if (qobs_observer_observe_importance(observer, &tensor, &error) != QOBS_OK)
            return report_failure(f, error.status, "%.200s: tensor '%.200s': %s", batch->file, batch->name,
                                  error.message);
    }
    return QOBS_OK;
}

/* Divides the sums of an observer by the number of tokens, in float as upstream does. */
static int read_means(const qobs_observer *observer, const char *source, int64_t columns, float *mean, struct fail *f)
{
    qobs_error error = {0};
    qobs_result info = {.struct_size = sizeof info};
    int64_t tokens;
    if (qobs_observer_result_find(observer, "imatrix_sum", &info, &error) != QOBS_OK)
        return INVALID(f, "%.300s: holds no importance: %s", source, error.message);
    if (info.size != (size_t)columns * sizeof *mean)
        return INVALID(f, "%.300s: has importance of %zu columns; the weight has %lld", source,
                       info.size / sizeof *mean, (long long)columns);
    if (qobs_observer_read(observer, "imatrix_sum", mean, info.size, &error) != QOBS_OK ||
        qobs_observer_read(observer, "imatrix_count", &tokens, sizeof tokens, &error) != QOBS_OK)
        return report_failure(f, error.status, "%.300s: %s", source, error.message);
    for (int64_t j = 0; j < columns; j++)
        mean[j] = tokens > 0 ? mean[j] / (float)tokens : 0;
    return QOBS_OK;
}

int importance_read(const struct importance_sources *s, const struct importance_found *found, int64_t columns,
                    float *mean, struct fail *f)
{
    qobs_observer *observer = NULL;
    int status;
    if (found->entry)
        return imatrix_read(found->file, found->entry, found->matrix, columns, mean, f) == 0 ? QOBS_OK
                                                                                             : failure_status(f);
    qobs_error error = {0};
    if (found->states)
        status = saved_states_load(found->states, found->state_count, &observer, f);
    else if (qobs_observer_open(&observer, "llmc.imatrix_mse base_name=weight", NULL, &error) != QOBS_OK)
        status = report_failure(f, error.status, "importance: %s", error.message);
    else
        status = importance_observe(&s->recordings, found->recorded, observer, f);
    if (status == QOBS_OK)
        status = read_means(observer, found->states ? found->states->path : found->recorded->file, columns, mean, f);
    qobs_observer_destroy(observer);
    return status;
}
