/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The files of the output, which are open while tensors of a batch are written to them. */
#include <stdlib.h>
#include <string.h>

#include "quantize/run.h"

static int put(struct quantize_run *run, const struct output_tensor *t, uint64_t offset, const void *data, size_t bytes,
               struct fail *f)
{
    if (run->costs)
        return QOBS_OK;
    if (run->scales)
        return st_writer_put(run->scales, (size_t)(t - run->layout.tensors), offset, data, bytes, f);
    struct output_file *file = &run->files[t->shard];
    RETURN_IF_NOT_OK(output_directory_put(&run->out, file->fd, data, bytes, t->offset + offset, f));
    atomic_fetch_sub(&file->left, bytes);
    return QOBS_OK;
}

int run_put(struct quantize_run *run, const struct weight_job *job, enum output_part part, uint64_t offset,
            const void *data, size_t bytes, struct fail *f)
{
    return put(run, &run->layout.tensors[run->layout.parts[job->index][part]], offset, data, bytes, f);
}

int open_files(struct quantize_run *run, const struct weight_job *job, struct fail *f)
{
    for (int part = 0; part < OUTPUT_PARTS && !run->scales && !run->costs; part++) {
        const size_t index = run->layout.parts[job->index][part];
        if (index == SIZE_MAX)
            continue;
        const size_t shard = run->layout.tensors[index].shard;
        struct output_file *file = &run->files[shard];
        struct output_shard *s = &run->layout.shards[shard];
        if (file->fd >= 0 || file->done || job->range_only)
            continue;
        if (output_directory_create(&run->out, s->path, s->bytes, &file->fd, f) != 0 ||
            output_directory_put(&run->out, file->fd, s->header, s->header_bytes, 0, f) != 0)
            return QOBS_ERROR_SYSTEM;
        atomic_fetch_sub(&file->left, s->header_bytes);
        if (run->args->part_count == 0) { /* the fingerprint of a part covers headers */
            free(s->header);
            s->header = NULL;
        }
    }
    return QOBS_OK;
}

int close_files(struct quantize_run *run, struct fail *f)
{
    for (size_t i = 0; i < run->layout.shard_count; i++) {
        struct output_file *file = &run->files[i];
        if (file->fd < 0 || atomic_load(&file->left) > 0)
            continue;
        const int fd = file->fd;
        file->fd = -1;
        file->done = true;
        RETURN_IF_NOT_OK(output_directory_close(&run->out, fd, f));
    }
    return QOBS_OK;
}

/* Writes the scales of activations that lie in the shard of the weight. */
static int write_activations(struct quantize_run *run, const struct weight_job *job, struct fail *f)
{
    const struct activation_scales *all = &run->activations;
    size_t low = 0, high = all->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (all->items[middle].weight < job->index)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < all->count && all->items[low].weight == job->index; low++) {
        const struct output_tensor *t = &run->layout.tensors[run->layout.activations[low]];
        RETURN_IF_NOT_OK(put(run, t, 0, all->items[low].data, all->items[low].bytes, f));
    }
    return QOBS_OK;
}

int write_small(struct quantize_run *run, const struct weight_job *job, struct fail *f)
{
    const int64_t *shape = job->weight->shape;
    unsigned char numbers[16], global[4];
    for (int i = 0; i < 16; i++)
        numbers[i] = (unsigned char)((uint64_t)shape[i / 8] >> 8 * (i % 8));
    memcpy(global, &job->global_scale, sizeof global);
    if (run->layout.parts[job->index][PART_SHAPE] != SIZE_MAX)
        RETURN_IF_NOT_OK(run_put(run, job, PART_SHAPE, 0, numbers, sizeof numbers, f));
    if (run->layout.parts[job->index][PART_GLOBAL_SCALE] != SIZE_MAX)
        RETURN_IF_NOT_OK(run_put(run, job, PART_GLOBAL_SCALE, 0, global, sizeof global, f));
    return write_activations(run, job, f);
}

size_t count_new_files(struct quantize_run *run, const struct weight_job *job, size_t batch, bool mark)
{
    size_t count = 0;
    for (int part = 0; part < OUTPUT_PARTS; part++) {
        const size_t index = run->layout.parts[job->index][part];
        struct output_file *file = index == SIZE_MAX ? NULL : &run->files[run->layout.tensors[index].shard];
        if (!file || job->range_only || file->fd >= 0 || file->batch == batch)
            continue;
        count++;
        file->batch = mark ? batch : file->batch;
    }
    return count;
}
