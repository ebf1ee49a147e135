/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The files of the output are open from the first tensor that is written to them to the last one. */
#include "quantize/model_sink.h"

#include <stdlib.h>

#include "files/output_compare.h"
#include "quantize/move_qparams.h"

static int put(void *context, const struct output_tensor *t, uint64_t offset, const void *data, size_t bytes,
               struct fail *f)
{
    struct model_sink *m = context;
    struct output_file *file = &m->files[t->shard];
    const int status = output_directory_put(m->out, file->fd, data, bytes, t->offset + offset, f);
    RETURN_IF_NOT_OK(output_compare_name(t->name, status, f));
    atomic_fetch_sub(&file->left, bytes);
    return QOBS_OK;
}

static int put_part(struct model_sink *m, const struct weight_job *job, enum output_part part, uint64_t offset,
                    const void *data, size_t bytes, struct fail *f)
{
    return put(m, &m->layout->tensors[m->layout->parts[job->index][part]], offset, data, bytes, f);
}

/* The tensors of a weight lie in one shard. SIZE_MAX: it has none. */
static size_t shard_of(const struct model_sink *m, size_t weight)
{
    for (int part = 0; part < OUTPUT_PARTS; part++)
        if (m->layout->parts[weight][part] != SIZE_MAX)
            return m->layout->tensors[m->layout->parts[weight][part]].shard;
    return SIZE_MAX;
}

static int wants(struct sink *sink, const struct weight_job *job, unsigned *wanted, struct fail *f)
{
    const struct model_sink *m = (struct model_sink *)sink;
    const size_t shard = shard_of(m, job->index);
    (void)f;
    if (shard != SIZE_MAX && (!m->part_of_shard || m->part_of_shard[shard] == m->part))
        *wanted = job->group ? WANTS_CODES | WANTS_SCALES | WANTS_RESULT : WANTS_COPY;
    return QOBS_OK;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static int open_file(const struct model_sink *m, size_t shard, struct fail *f)
{
    struct output_file *file = &m->files[shard];
    struct output_shard *s = &m->layout->shards[shard];
    if (file->fd >= 0 || file->done)
        return QOBS_OK;
    RETURN_IF_NOT_OK(output_directory_create(m->out, s->path, s->bytes, &file->fd, f));
    const int status = output_directory_put(m->out, file->fd, s->header, s->header_bytes, 0, f);
    RETURN_IF_NOT_OK(output_compare_name(s->path, status, f));
    atomic_fetch_sub(&file->left, s->header_bytes);
    if (!m->part_of_shard) { /* the fingerprint of a part covers headers */
        free(s->header);
        s->header = NULL;
    }
    return QOBS_OK;
}

static int begin(struct sink *sink, const struct weight_job *job, struct fail *f)
{
    const struct model_sink *m = (struct model_sink *)sink;
    if (job_has_words(job))
        RETURN_IF_NOT_OK(word_buffers_open(&m->words[job->index], m->layout, job, f));
    return open_file(m, shard_of(m, job->index), f);
}

static int put_words(struct model_sink *m, const struct weight_job *job, struct fail *f)
{
    struct word_buffers *b = &m->words[job->index];
    for (int part = 0; part < OUTPUT_PARTS; part++)
        if (b->parts[part]) {
            const struct output_tensor *t = &m->layout->tensors[m->layout->parts[job->index][part]];
            RETURN_IF_NOT_OK(put(m, t, 0, b->parts[part], t->bytes, f));
        }
    word_buffers_close(b);
    return QOBS_OK;
}

static int done(struct sink *sink, struct weight_job *job, struct fail *f)
{
    struct model_sink *m = (struct model_sink *)sink;
    struct output_file *file = &m->files[shard_of(m, job->index)];
    RETURN_IF_NOT_OK(put_words(m, job, f));
    RETURN_IF_NOT_OK(layout_put_small(&m->writer, job, f));
    if (file->fd < 0 || atomic_load(&file->left) > 0)
        return QOBS_OK;
    const int fd = file->fd;
    file->fd = -1;
    file->done = true;
    return output_directory_close(m->out, fd, f);
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static int codes(struct sink *sink, const struct weight_job *job, uint64_t offset, const void *data, size_t bytes,
                 struct fail *f)
{
    struct model_sink *m = (struct model_sink *)sink;
    if (!job_has_words(job))
        return put_part(m, job, PART_CODES, offset, data, bytes, f);
    word_buffers_put_codes(&m->words[job->index], job, offset, data, bytes);
    return QOBS_OK;
}

/* Writes the scales and zero points of a whole weight. */
static int put_qparams(struct model_sink *m, const struct weight_job *job, struct workspace *work, struct fail *f)
{
    struct moved_bytes moved;
    RETURN_IF_NOT_OK(move_scales(&moved, job, work, f));
    RETURN_IF_NOT_OK(put_part(m, job, PART_SCALE, 0, moved.data, moved.size, f));
    if (m->layout->parts[job->index][PART_ZERO_POINT] == SIZE_MAX)
        return QOBS_OK;
    RETURN_IF_NOT_OK(move_zero_points(&moved, job, work, f));
    return put_part(m, job, PART_ZERO_POINT, 0, moved.data, moved.size, f);
}

static int move(struct sink *sink, const struct row_slice *slice, struct workspace *work, struct fail *f)
{
    struct model_sink *m = (struct model_sink *)sink;
    struct moved_bytes moved;
    RETURN_IF_NOT_OK(move_words(&moved, slice, work, f));
    RETURN_IF_NOT_OK(put_part(m, slice->job, PART_CODES, moved.offset, moved.data, moved.size, f));
    return slice->job->moved.qparams && slice->first == 0 ? put_qparams(m, slice->job, work, f) : QOBS_OK;
}

static int copy(struct sink *sink, const struct weight_job *job, uint64_t offset, const void *data, size_t bytes,
                struct fail *f)
{
    return put_part((struct model_sink *)sink, job, PART_SAME, offset, data, bytes, f);
}

static int scales(struct sink *sink, const struct row_slice *slice, const struct slice_qparams *q,
                  struct workspace *work, struct fail *f)
{
    struct model_sink *m = (struct model_sink *)sink;
    return job_has_words(slice->job) ? word_buffers_put_scales(&m->words[slice->job->index], slice, q, f)
                                     : layout_put_scales(&m->writer, slice, q, work, f);
}

int model_sink_open(struct model_sink *m, struct output_layout *layout, size_t weight_count,
                    const struct activation_scales *activations, struct output_directory *out, struct fail *f)
{
    static const struct sink_functions functions = {
        .wants = wants, .begin = begin, .done = done, .scales = scales, .codes = codes, .move = move, .copy = copy};
    *m = (struct model_sink){.sink.functions = &functions,
                             .writer = {layout, activations, CONTENTS_MODEL, put, m},
                             .layout = layout,
                             .out = out,
                             .words = calloc(weight_count + 1, sizeof *m->words),
                             .weight_count = weight_count,
                             .files = calloc(layout->shard_count + 1, sizeof *m->files)};
    for (size_t i = 0; m->files && i < layout->shard_count; i++) {
        m->files[i].fd = -1;
        m->files[i].left = layout->shards[i].bytes;
    }
    return m->files && m->words ? QOBS_OK : NO_MEMORY(f, "the files");
}

void model_sink_close(struct model_sink *m)
{
    for (size_t i = 0; m->files && i < m->layout->shard_count; i++)
        if (m->files[i].fd >= 0)
            output_directory_close(m->out, m->files[i].fd, NULL);
    for (size_t i = 0; m->words && i < m->weight_count; i++)
        word_buffers_close(&m->words[i]);
    free(m->words);
    free(m->files);
    free(m->part_of_shard);
}
