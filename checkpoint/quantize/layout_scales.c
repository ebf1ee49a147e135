/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Writes scales, zero points and small tensors as a layout has them. */
#include "quantize/layout.h"

#include <string.h>

#include "files/text.h"
#include "model/stored_qparams.h"

static int put(const struct layout_writer *w, const struct weight_job *job, enum output_part part, uint64_t offset,
               const void *data, size_t bytes, struct fail *f)
{
    const size_t index = w->layout->parts[job->index][part];
    return w->put(w->context, &w->layout->tensors[index], offset, data, bytes, f);
}

/* Packs zero points along the rows. */
static int put_packed(const struct layout_writer *w, const struct row_slice *s, const struct slice_qparams *q,
                      struct workspace *work, struct fail *f)
{
    const int bits = job_args(s->job)->num_bits, word_bits = quant_word_bits(s->job->group->format);
    const int64_t columns = q->count / s->count;
    const size_t size = (size_t)((s->count * bits + word_bits - 1) / word_bits * columns * (word_bits / 8));
    void *packed;
    RETURN_IF_NOT_OK(slice_pack(s, work, 0, columns, q->zero_point, size, &packed, f));
    const uint64_t offset = (uint64_t)(s->first * bits / word_bits * columns * (word_bits / 8));
    return put(w, s->job, PART_ZERO_POINT, offset, packed, size, f);
}

int layout_put_scales(const struct layout_writer *w, const struct row_slice *s, const struct slice_qparams *q,
                      struct workspace *work, struct fail *f)
{
    const struct group_storage storage = group_storage(s->job->group->quant, w->contents);
    const size_t count = (size_t)q->count;
    void *stored = workspace_reserve(work, WORK_SINK, 4 * count);
    if (!stored)
        return NO_MEMORY(f, "qparams");
    if (storage.packed_zero_points) {
        RETURN_IF_NOT_OK(put_packed(w, s, q, work, f));
    } else if (q->has_zero_point) {
        const size_t size =
            stored_zero_points(q->zero_point, q->zero_point_dtype, count, storage.zero_point_dtype, stored);
        RETURN_IF_NOT_OK(put(w, s->job, PART_ZERO_POINT, (uint64_t)q->first * (size / count), stored, size, f));
    }
    const size_t size = stored_scales(q->scale, q->scale_dtype, count, storage.format->scale_dtype, stored);
    return put(w, s->job, PART_SCALE, (uint64_t)q->first * (size / count), stored, size, f);
}

/* Writes the scales of activations that lie in the shard of the weight. */
static int put_activations(const struct layout_writer *w, const struct weight_job *job, struct fail *f)
{
    const struct activation_scales *all = w->activations;
    size_t low = 0, high = all->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (all->items[middle].weight < job->index)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < all->count && all->items[low].weight == job->index; low++) {
        const struct output_tensor *t = &w->layout->tensors[w->layout->activations[low]];
        RETURN_IF_NOT_OK(w->put(w->context, t, 0, all->items[low].data, all->items[low].bytes, f));
    }
    return QOBS_OK;
}

int layout_put_small(const struct layout_writer *w, const struct weight_job *job, struct fail *f)
{
    const int64_t *shape = job->weight->shape;
    unsigned char numbers[16], global[4];
    for (int i = 0; i < 16; i++)
        numbers[i] = (unsigned char)((uint64_t)shape[i / 8] >> 8 * (i % 8));
    memcpy(global, job->range.global_factor > 0 ? &job->range.global_factor : &job->range.global_scale, sizeof global);
    if (w->layout->parts[job->index][PART_SHAPE] != SIZE_MAX)
        RETURN_IF_NOT_OK(put(w, job, PART_SHAPE, 0, numbers, sizeof numbers, f));
    if (w->layout->parts[job->index][PART_GLOBAL_SCALE] != SIZE_MAX)
        RETURN_IF_NOT_OK(put(w, job, PART_GLOBAL_SCALE, 0, global, sizeof global, f));
    return put_activations(w, job, f);
}
