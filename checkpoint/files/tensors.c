/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Detects the kind of a path and makes one sorted list of tensor references. */
#include "files/tensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/file_kind.h"
#include "files/mapped.h"
#include "files/npy.h"
#include "files/safetensors.h"
#include "files/shards.h"
#include "files/text.h"

struct tensor_file {
    int is_npy;
    union {
        struct st_file st;
        struct npy_file npy;
    } as;
    char *name; /* name of the tensor, only of a .npy file */
};

static void ref_safetensors(struct tensor_ref *ref, const struct st_file *file, const struct st_tensor *t)
{
    *ref = (struct tensor_ref){
        .name = t->name, .file = file->map.path, .ndim = t->ndim, .data = t->data, .bytes = t->end - t->begin};
    ref->dtype = t->dtype;
    memcpy(ref->shape, t->shape, sizeof ref->shape);
    tensor_strides(dtype_size(t->dtype), t->ndim, t->shape, 0, ref->strides);
}

/* Allocates the arrays of an empty set. */
static int reserve(struct tensor_set *set, size_t files, size_t refs, struct fail *f)
{
    set->files = calloc(files + 1, sizeof *set->files);
    set->refs = calloc(refs + 1, sizeof *set->refs);
    return set->files && set->refs ? 0 : fail_system(f, "%s: out of memory for %zu tensors", set->path, refs);
}

static int add_safetensors(struct tensor_set *set, struct mapped *map, struct fail *f)
{
    RELEASED_BY(st_close) struct st_file opened;
    RETURN_IF_NOT_OK(st_open_mapped(&opened, map, f));
    RETURN_IF_NOT_OK(reserve(set, 1, opened.count, f));
    struct st_file *st = &set->files[set->file_count++].as.st;
    *st = opened;
    opened = (struct st_file){0};
    for (size_t i = 0; i < st->count; i++)
        ref_safetensors(&set->refs[set->count++], st, &st->tensors[i]);
    return 0;
}

static int add_npy(struct tensor_set *set, struct mapped *map, struct fail *f)
{
    RETURN_IF_NOT_OK(reserve(set, 1, 1, f));
    struct tensor_file *file = &set->files[0];
    file->is_npy = 1;
    RETURN_IF_NOT_OK(npy_open_mapped(&file->as.npy, map, f));
    set->file_count = 1;
    const struct npy_file *npy = &file->as.npy;
    const char *slash = strrchr(npy->map.path, '/'), *base = slash ? slash + 1 : npy->map.path;
    file->name = strdup(base);
    if (!file->name)
        return fail_system(f, "%s: out of memory", set->path);
    if (ends_with(base, ".npy") && strlen(base) > 4)
        file->name[strlen(base) - 4] = '\0';
    struct tensor_ref *ref = &set->refs[set->count++];
    *ref = (struct tensor_ref){
        .name = file->name, .file = npy->map.path, .ndim = npy->ndim, .data = npy->data, .bytes = npy->bytes};
    ref->dtype = npy->dtype;
    memcpy(ref->shape, npy->shape, sizeof ref->shape);
    memcpy(ref->strides, npy->strides, sizeof ref->strides);
    return 0;
}

/* Opens each file that the index names. */
static int open_shards(struct tensor_set *set, const struct shard_index *index, size_t *stored, struct fail *f)
{
    for (size_t i = 0; i < index->count; i++) {
        const struct shard_entry *entry = &index->entries[i];
        if (i > 0 && strcmp(entry->shard, entry[-1].shard) == 0)
            continue;
        OWNED char *path = shard_path(set->path, entry->shard);
        if (!path)
            return fail_system(f, "%s: out of memory", set->path);
        struct st_file *st = &set->files[set->file_count].as.st;
        RETURN_IF_NOT_OK(st_open(st, path, f));
        set->file_count++;
        *stored += st->count;
    }
    return 0;
}

/* Adds the tensors of each file, those that the index omits last. */
static int add_shards(struct tensor_set *set, const struct shard_index *index, struct fail *f)
{
    size_t stored = 0, i = 0;
    set->files = calloc(index->count + 1, sizeof *set->files);
    if (!set->files)
        return fail_system(f, "%s: out of memory for %zu tensors", set->path, index->count);
    RETURN_IF_NOT_OK(open_shards(set, index, &stored, f));
    set->refs = calloc(stored + 1, sizeof *set->refs);
    if (!set->refs)
        return fail_system(f, "%s: out of memory for %zu tensors", set->path, stored);
    for (size_t k = 0; k < set->file_count; k++) {
        const struct st_file *st = &set->files[k].as.st;
        const char *shard = index->entries[i].shard;
        for (; i < index->count && strcmp(index->entries[i].shard, shard) == 0; i++) {
            const struct st_tensor *t = st_find(st, index->entries[i].tensor);
            if (!t)
                return fail(f, "%s: tensor '%.200s' should be in %s, which does not hold it", set->path,
                            index->entries[i].tensor, st->map.path);
            ref_safetensors(&set->refs[set->count++], st, t);
        }
        for (size_t n = 0; stored > index->count && n < st->count; n++)
            if (!shard_index_names(index, st->tensors[n].name))
                ref_safetensors(&set->refs[set->count++], st, &st->tensors[n]);
    }
    return 0;
}

static int add_index(struct tensor_set *set, struct mapped *map, struct fail *f)
{
    RELEASED_BY(shard_index_free) struct shard_index index = {0};
    int result = mapped_hold(map, 0, map->size, f);
    if (result == 0)
        result = shard_index_read(&index, map, f);
    mapped_close(map);
    return result == 0 ? add_shards(set, &index, f) : result;
}

/* Adds the tensors of a file, whose map moves into the set or is closed. */
typedef int add_file(struct tensor_set *set, struct mapped *map, struct fail *f);

/* Returns what adds a file of this kind; NULL: it is unknown. */
static add_file *adder_of(const struct mapped *map)
{
    if (npy_looks_like(map) || ends_with(map->path, ".npy"))
        return add_npy;
    if (ends_with(map->path, ".safetensors"))
        return add_safetensors;
    if (ends_with(map->path, ".json"))
        return add_index;
    if (map->size > 8 && map->data[8] == '{')
        return add_safetensors;
    return map->size > 0 && map->data[0] == '{' ? add_index : NULL;
}

/* Orders by position in the file's map. Tensors of 0 bytes can have equal positions. */
static int by_position(const void *a, const void *b)
{
    const struct tensor_ref *s = a, *t = b;
    const uintptr_t p = (uintptr_t)s->data, q = (uintptr_t)t->data;
    return p != q ? ORDER(p, q) : s->bytes != t->bytes ? ORDER(s->bytes, t->bytes) : strcmp(s->name, t->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct tensor_ref *const *)a)->name, (*(const struct tensor_ref *const *)b)->name);
}

static int sort(struct tensor_set *set, struct fail *f)
{
    for (size_t i = 0, n; i < set->count; i += n) { /* the references of a file are contiguous */
        for (n = 1; i + n < set->count && set->refs[i + n].file == set->refs[i].file;)
            n++;
        qsort(&set->refs[i], n, sizeof *set->refs, by_position);
    }
    set->by_name = malloc((set->count + 1) * sizeof *set->by_name);
    if (!set->by_name)
        return fail_system(f, "%s: out of memory for %zu tensors", set->path, set->count);
    for (size_t i = 0; i < set->count; i++)
        set->by_name[i] = &set->refs[i];
    qsort(set->by_name, set->count, sizeof *set->by_name, by_name);
    for (size_t i = 1; i < set->count; i++)
        if (by_name(&set->by_name[i - 1], &set->by_name[i]) == 0)
            return fail(f, "%s: tensor '%.150s' is in %s and in %s, and the index does not name it", set->path,
                        set->by_name[i]->name, set->by_name[i - 1]->file, set->by_name[i]->file);
    return 0;
}

char *tensors_resolve(const char *path, struct fail *f)
{
    static const char *const names[] = {"", "/model.safetensors.index.json", "/model.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *name = names[i] + (i > 0 && ends_with(path, "/"));
        OWNED char *resolved = text_format("%s%s", path, name);
        struct stat status;
        if (!resolved) {
            fail_system(f, "%s: out of memory", path);
            return NULL;
        }
        const int error = stat(resolved, &status) == 0 ? 0 : errno;
        if (error == 0 && i > 0 && mapped_remember_directory(path, f) != 0)
            return NULL;
        if (error == 0 && (i > 0 || !S_ISDIR(status.st_mode)))
            return strdup(resolved);
        if (error != 0 && (i == 0 || error != ENOENT)) {
            file_refuse_access(resolved, "cannot open", error, f);
            return NULL;
        }
    }
    fail(f, "%s: is a directory with neither model.safetensors.index.json nor model.safetensors", path);
    return NULL;
}

/* Becomes the owner of `path`. */
static int open_resolved(struct tensor_set *set, char *path, struct fail *f)
{
    RELEASED_BY(mapped_close) struct mapped map;
    *set = (struct tensor_set){.path = path};
    int result = mapped_open(&map, path, f);
    add_file *add = result == 0 ? adder_of(&map) : NULL;
    if (add)
        result = add(set, &map, f);
    else if (result == 0)
        result = file_kind_refuse(path, map.data, map.size, f);
    if (result == 0 && !add)
        result = fail(f,
                      "%s: is of an unknown kind; .safetensors, *.index.json, .npy and directories are known, for "
                      "--importance also llama.cpp's imatrix files (GGUF, .dat, .imatrix)",
                      path);
    if (result == 0)
        result = sort(set, f);
    if (result != 0)
        tensors_close(set);
    return result;
}

int tensors_open(struct tensor_set *set, const char *path, struct fail *f)
{
    char *resolved = tensors_resolve(path, f);
    *set = (struct tensor_set){0};
    return resolved ? open_resolved(set, resolved, f) : failure_status(f);
}

static int name_against(const void *key, const void *element)
{
    return strcmp(key, (*(const struct tensor_ref *const *)element)->name);
}

const struct tensor_ref *tensors_find(const struct tensor_set *set, const char *name)
{
    const struct tensor_ref **found =
        set->count ? bsearch(name, set->by_name, set->count, sizeof *set->by_name, name_against) : NULL;
    return found ? *found : NULL;
}

void tensors_close(struct tensor_set *set)
{
    for (size_t i = 0; i < set->file_count; i++) {
        struct tensor_file *file = &set->files[i];
        if (file->is_npy)
            npy_close(&file->as.npy);
        else
            st_close(&file->as.st);
        free(file->name);
    }
    free(set->files);
    free(set->refs);
    free(set->by_name);
    free(set->path);
    *set = (struct tensor_set){0};
}
