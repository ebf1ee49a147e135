/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Writes a checkpoint with what was mended: shards, index and configurations that change; the other files as they are.
 */
#include <stdlib.h>
#include <string.h>

#include "audit/mend.h"
#include "files/json.h"
#include "files/text.h"

static int write_json(struct output_directory *out, const char *path, const json_object *json, struct fail *f)
{
    OWNED char *text = json_print(json, JSON_INDENTED);
    return text ? output_directory_write(out, path, text, strlen(text), f) : NO_MEMORY(f, path);
}

/* ---- Index ------------------------------------------------------------------------------------------------------- */

static bool put_name(json_object *map, const struct mended_tensor *t, const char *file)
{
    if (t->old && strcmp(t->old->name, t->name) == 0)
        return true;
    json_object *old = t->old ? json_get(map, t->old->name) : NULL;
    const bool put = json_put_text(map, t->name, old ? json_text(old) : file);
    if (t->old)
        json_object_object_del(map, t->old->name);
    return put;
}

static int write_index(const struct mends *mends, const struct audit *audit, const char *source,
                       struct output_directory *out, struct fail *f)
{
    OWNED_JSON json_object *index = NULL;
    RETURN_IF_NOT_OK(json_read(&index, source, "index", f) == 0 ? QOBS_OK : failure_status(f));
    json_object *map = json_get(index, "weight_map"), *metadata = json_get(index, "metadata");
    const char *path = audit->model.index, *folder = strrchr(path, '/');
    uint64_t bytes = 0;
    for (size_t i = 0; i < mends->count; i++) {
        const char *shard = audit->model.shards[mends->tensors[i].shard].path;
        bytes += mends->tensors[i].is.end - mends->tensors[i].is.begin;
        if (!put_name(map, &mends->tensors[i], folder ? shard + (folder + 1 - path) : shard))
            return NO_MEMORY(f, "the index");
    }
    if (json_has(metadata, "total_size") && !json_put_count(metadata, "total_size", bytes))
        return NO_MEMORY(f, "the index");
    return write_json(out, path, index, f);
}

/* ---- Shards ------------------------------------------------------------------------------------------------------ */

/* The order of safetensors: dtypes, then names. */
static int compare(const void *a, const void *b)
{
    const struct st_tensor *s = a, *t = b;
    const int ranks = (int)s->dtype - (int)t->dtype;
    return ranks != 0 ? ranks : strcmp(s->name, t->name);
}

static int put_tensors(struct output_directory *out, const char *path, const struct st_tensor *tensors, size_t count,
                       const struct st_file *source, struct fail *f)
{
    OWNED char *header = NULL;
    size_t size;
    int fd;
    RETURN_IF_NOT_OK(st_make_header(tensors, count, source->metadata, source->metadata_count, path, &header, &size, f));
    RETURN_IF_NOT_OK(output_directory_create(out, path, size + (count > 0 ? tensors[count - 1].end : 0), &fd, f));
    int status = output_directory_put(out, fd, header, size, 0, f);
    for (size_t i = 0; status == QOBS_OK && i < count; i++)
        status = output_directory_put(out, fd, tensors[i].data, (size_t)(tensors[i].end - tensors[i].begin),
                                      size + tensors[i].begin, f);
    const int closed = output_directory_close(out, fd, status == QOBS_OK ? f : NULL);
    return status == QOBS_OK ? closed : status;
}

static int write_shard(const struct mends *mends, const struct audit *audit, size_t shard, struct output_directory *out,
                       struct fail *f)
{
    OWNED struct st_tensor *tensors = calloc(mends->count + 1, sizeof *tensors);
    size_t count = 0;
    uint64_t at = 0;
    if (!tensors)
        return NO_MEMORY(f, "a shard");
    for (size_t i = 0; i < mends->count; i++)
        if (mends->tensors[i].shard == shard) {
            tensors[count] = mends->tensors[i].is;
            tensors[count++].name = mends->tensors[i].name;
        }
    if (count > 0)
        qsort(tensors, count, sizeof *tensors, compare);
    for (size_t i = 0; i < count; i++) {
        const uint64_t bytes = tensors[i].end - tensors[i].begin;
        tensors[i].begin = at;
        tensors[i].end = at += bytes;
    }
    return put_tensors(out, audit->model.shards[shard].path, tensors, count, &audit->model.shards[shard].file, f);
}

/* ---- All files --------------------------------------------------------------------------------------------------- */

static int write_file(const struct mends *mends, const struct audit *audit, const char *path,
                      struct output_directory *out, struct fail *f)
{
    const struct model *m = &audit->model;
    OWNED char *source = path_join(m->tree.root, path);
    if (!source)
        return NO_MEMORY(f, "a path");
    if (mends->config && m->config_path && strcmp(path, m->config_path) == 0)
        return write_json(out, path, m->config, f);
    if (mends->config && m->hf_quant_config && strcmp(path, HF_QUANT_CONFIG) == 0)
        return write_json(out, path, m->hf_quant_config, f);
    if (mends->names && m->index && strcmp(path, m->index) == 0)
        return write_index(mends, audit, source, out, f);
    for (size_t i = 0; i < m->shard_count; i++)
        if (mends->shards[i] && strcmp(path, m->shards[i].path) == 0)
            return write_shard(mends, audit, i, out, f);
    return output_directory_copy(out, path, source, f);
}

int mends_write(const struct mends *mends, const struct audit *audit, struct output_directory *out, struct fail *f)
{
    for (size_t i = 0; i < audit->model.tree.count; i++)
        RETURN_IF_NOT_OK(write_file(mends, audit, audit->model.tree.files[i].path, out, f));
    return QOBS_OK;
}
