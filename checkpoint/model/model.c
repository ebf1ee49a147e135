/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Finds the index, opens the shards and joins their tensors. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/file_kind.h"
#include "files/json.h"
#include "files/shards.h"
#include "files/text.h"
#include "model/adapters.h"

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static const char index_ending[] = ".safetensors.index.json";

/* Returns the index of the model: "...model.safetensors.index.json", else any other index; the root comes first. One in
 * a folder beside model.safetensors is that of a part. */
static const char *find_index(const struct source_tree *tree)
{
    static const char *const endings[] = {"model.safetensors.index.json", index_ending};
    const int depths = source_tree_find(tree, "model.safetensors") ? 1 : 2;
    for (int nested = 0; nested < depths; nested++)
        for (int e = 0; e < 2; e++)
            for (size_t i = 0; i < tree->count; i++) {
                const char *path = tree->files[i].path;
                if ((strchr(path, '/') != NULL) == (nested == 1) && ends_with(path, endings[e]))
                    return path;
            }
    return NULL;
}

/* ---- Shards ------------------------------------------------------------------------------------------------------ */

static int open_shard(struct model *m, const char *path, struct fail *f)
{
    OWNED char *full = path_join(m->tree.root, path);
    if (!full)
        return NO_MEMORY(f, "a path");
    m->shards[m->shard_count].path = path;
    RETURN_IF_NOT_OK(st_open(&m->shards[m->shard_count].file, full, f));
    m->shard_count++;
    return QOBS_OK;
}

static void add_tensor(struct model *m, const struct st_tensor *stored, size_t shard, bool omitted)
{
    m->tensors[m->count++] = (struct model_tensor){.stored = stored, .shard = shard, .omitted = omitted};
    m->omitted_count += omitted;
    m->bytes += stored->end - stored->begin;
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const struct model_tensor *)a)->stored->name, ((const struct model_tensor *)b)->stored->name);
}

/* Returns the number of tensors in all shards. */
static size_t stored_count(const struct model *m)
{
    size_t count = 0;
    for (size_t i = 0; i < m->shard_count; i++)
        count += m->shards[i].file.count;
    return count;
}

static size_t safetensors_count(const struct source_tree *tree)
{
    size_t n = 0;
    for (size_t i = 0; i < tree->count; i++)
        n += ends_with(tree->files[i].path, ".safetensors");
    return n;
}

/* Returns the shard of the path that the index gives, relative to the index; m->shard_count: not open. */
static size_t shard_of(const struct model *m, const char *path)
{
    size_t i = 0;
    while (i < m->shard_count && m->shards[i].path && strcmp(m->shards[i].path, path) != 0)
        i++;
    return i;
}

/* Opens the files that the index names, in the order of the tree, which is sorted. */
static int open_named(struct model *m, const struct shard_index *index, struct fail *f)
{
    for (size_t i = 0; i < index->count; i++) { /* entries are sorted by shard */
        if (i > 0 && strcmp(index->entries[i].shard, index->entries[i - 1].shard) == 0)
            continue;
        OWNED char *joined = shard_path(m->index, index->entries[i].shard);
        if (!joined)
            return NO_MEMORY(f, "a path");
        const struct source_file *file = source_tree_find(&m->tree, joined);
        if (!file)
            return INVALID(f, "%s: names the file '%.150s', which is not there", m->index, index->entries[i].shard);
        if (!ends_with(file->path, ".safetensors"))
            return INVALID(f, "%s: names the file '%.150s'; files *.safetensors are allowed", m->index, file->path);
        RETURN_IF_NOT_OK(open_shard(m, file->path, f));
    }
    return QOBS_OK;
}

/* Adds the tensors that the index names, and what it omits of its shards: loaders read every tensor of a file that the
 * index names. */
static int add_named(struct model *m, const struct shard_index *index, struct fail *f)
{
    const char *slash = strrchr(m->index, '/');
    const size_t prefix = slash ? (size_t)(slash + 1 - m->index) : 0, stored_tensors = stored_count(m);
    m->tensors = calloc(stored_tensors + 1, sizeof *m->tensors);
    if (!m->tensors)
        return NO_MEMORY(f, "the list of tensors");
    for (size_t i = 0, shard = 0; i < index->count; i++) {
        while (strcmp(m->shards[shard].path + prefix, index->entries[i].shard) != 0)
            shard++;
        const struct st_tensor *stored = st_find(&m->shards[shard].file, index->entries[i].tensor);
        if (!stored)
            return INVALID(f, "%s: tensor '%.150s' is not in %s", m->index, index->entries[i].tensor,
                           m->shards[shard].path);
        add_tensor(m, stored, shard, false);
    }
    for (size_t i = 0; stored_tensors > index->count && i < m->shard_count; i++)
        for (size_t k = 0; k < m->shards[i].file.count; k++)
            if (!shard_index_names(index, m->shards[i].file.tensors[k].name))
                add_tensor(m, &m->shards[i].file.tensors[k], i, true);
    return QOBS_OK;
}

/* Maps a file of the model. */
static int map_file(struct mapped *map, const struct model *m, const char *relative, struct fail *f)
{
    OWNED char *path = path_join(m->tree.root, relative);
    return !path ? NO_MEMORY(f, "a path") : mapped_open_whole(map, path, f) == 0 ? QOBS_OK : QOBS_ERROR_SYSTEM;
}

static int read_index(struct model *m, struct shard_index *index, struct fail *f)
{
    RELEASED_BY(mapped_close) struct mapped map = {0};
    RETURN_IF_NOT_OK(map_file(&map, m, m->index, f));
    return shard_index_read(index, &map, f);
}

static int open_by_index(struct model *m, struct fail *f)
{
    RELEASED_BY(shard_index_free) struct shard_index index = {0};
    RETURN_IF_NOT_OK(read_index(m, &index, f));
    RETURN_IF_NOT_OK(open_named(m, &index, f));
    return add_named(m, &index, f);
}

/* Opens the file of that name, or model.safetensors, or every file if there is none of that name. */
static int open_without_index(struct model *m, const char *name, struct fail *f)
{
    const struct source_file *only = source_tree_find(&m->tree, *name ? name : "model.safetensors");
    for (size_t i = 0; i < m->tree.count; i++)
        if (only ? &m->tree.files[i] == only : ends_with(m->tree.files[i].path, ".safetensors"))
            RETURN_IF_NOT_OK(open_shard(m, m->tree.files[i].path, f));
    m->tensors = calloc(stored_count(m) + 1, sizeof *m->tensors);
    if (!m->tensors)
        return NO_MEMORY(f, "the list of tensors");
    for (size_t i = 0; i < m->shard_count; i++)
        for (size_t k = 0; k < m->shards[i].file.count; k++)
            add_tensor(m, &m->shards[i].file.tensors[k], i, false);
    return QOBS_OK;
}

static int sort_tensors(struct model *m, struct fail *f)
{
    if (m->count > 0)
        qsort(m->tensors, m->count, sizeof *m->tensors, compare_tensors);
    for (size_t i = 1; i < m->count; i++)
        if (compare_tensors(&m->tensors[i - 1], &m->tensors[i]) == 0)
            return INVALID(f, "tensor '%.150s' is in %s and in %s, and no index says which one counts",
                           m->tensors[i].stored->name, m->shards[m->tensors[i - 1].shard].path,
                           m->shards[m->tensors[i].shard].path);
    return QOBS_OK;
}

/* Returns true if the folder of a file is a state of training, as Trainer of transformers saves it: a model of its own.
 */
static bool is_of_training(const struct source_tree *tree, const char *path)
{
    OWNED char *state = text_format("%.*s/trainer_state.json", (int)(strrchr(path, '/') - path), path);
    return state && source_tree_find(tree, state);
}

/* Lists the safetensors files that hold no tensors of the model. Folders are parts of it: modules of
 * sentence-transformers, adapters, a codec. Beside it a loader may take a file in place of the model. */
static int list_others(struct model *m, struct fail *f)
{
    m->unnamed.items = calloc(m->tree.count + 1, sizeof *m->unnamed.items);
    m->parts.items = calloc(m->tree.count + 1, sizeof *m->parts.items);
    if (!m->unnamed.items || !m->parts.items)
        return NO_MEMORY(f, "the list of files");
    for (size_t i = 0; i < m->tree.count; i++) {
        const char *path = m->tree.files[i].path;
        if (!ends_with(path, ".safetensors") || shard_of(m, path) < m->shard_count)
            continue;
        if (strchr(path, '/') ? !is_of_training(&m->tree, path) : adapters_are_in(path))
            m->parts.items[m->parts.count++] = path;
        else
            m->unnamed.items[m->unnamed.count++] = path;
    }
    return QOBS_OK;
}

bool model_has_part(const struct model *model, const char *path)
{
    return named_find(model->parts.items, model->parts.count, sizeof *model->parts.items, path) != NULL;
}

/* ---- config.json ------------------------------------------------------------------------------------------------- */

static int read_json(json_object **root, const struct model *m, const char *relative, struct fail *f)
{
    RELEASED_BY(mapped_close) struct mapped map = {0};
    RETURN_IF_NOT_OK(map_file(&map, m, relative, f));
    return json_parse(root, map.path, "configuration", map.data, map.size, f);
}

static int read_configs(struct model *m, struct fail *f)
{
    m->config_path = source_tree_find(&m->tree, "config.json")   ? "config.json"
                     : source_tree_find(&m->tree, "params.json") ? "params.json"
                                                                 : NULL;
    if (m->config_path)
        RETURN_IF_NOT_OK(read_json(&m->config, m, m->config_path, f));
    if (json_is_string(json_get(m->config, "error")) && !json_has(m->config, "model_type"))
        return INVALID(f, "%s/%s: is an error of a server, '%.100s', in place of the file; fetch it again",
                       m->tree.root, m->config_path, json_text_of(m->config, "error"));
    if (source_tree_find(&m->tree, HF_QUANT_CONFIG))
        RETURN_IF_NOT_OK(read_json(&m->hf_quant_config, m, HF_QUANT_CONFIG, f));
    return model_list_configs(m, f);
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

/* A file of a model in several files is not the model. */
static int check_only(const struct model *m, const char *name, struct fail *f)
{
    if (m->shard_count == 1 && strcmp(m->shards[0].path, name) == 0)
        return QOBS_OK;
    return INVALID(f, "%s/%s: is not all that %s names; that index or the directory is needed", m->tree.root, name,
                   m->index);
}

/* A directory without safetensors may hold weights of another format. */
static int refuse_without_files(const struct model *m, struct fail *f)
{
    RETURN_IF_NOT_OK(adapters_refuse_directory(&m->tree, f));
    for (size_t i = 0; i < m->tree.count; i++) {
        const char *way, *path = m->tree.files[i].path, *format = file_kind_of_weights(path, &way);
        if (format)
            return INVALID(f, "%s: holds no safetensors file, but %.100s, %s; %s", m->tree.root, path, format, way);
    }
    return INVALID(f, "%s: holds no safetensors file", m->tree.root);
}

/* Returns true if no file of the model holds anything but an adapter. */
static bool are_adapters(const struct model *m)
{
    bool all = true;
    for (size_t i = 0; i < m->shard_count; i++)
        all &= adapters_are_in(m->shards[i].path);
    return all;
}

/* Opens the model whose index or file has that name; "": it may have any. */
static int open_parts(struct model *m, const char *name, struct fail *f)
{
    const size_t files = safetensors_count(&m->tree);
    const struct source_file *index = ends_with(name, index_ending) ? source_tree_find(&m->tree, name) : NULL;
    m->index = index ? index->path : find_index(&m->tree);
    if (files == 0 && !m->index && !*name)
        return refuse_without_files(m, f);
    m->shards = calloc(files + 1, sizeof *m->shards);
    if (!m->shards)
        return NO_MEMORY(f, "the list of files");
    RETURN_IF_NOT_OK(m->index ? open_by_index(m, f) : open_without_index(m, name, f));
    if (m->index && !index && *name)
        RETURN_IF_NOT_OK(check_only(m, name, f));
    if (are_adapters(m))
        RETURN_IF_NOT_OK(adapters_refuse_directory(&m->tree, f));
    RETURN_IF_NOT_OK(sort_tensors(m, f));
    RETURN_IF_NOT_OK(list_others(m, f));
    return read_configs(m, f);
}

/* Splits the path of a file into its directory, to be freed, and its name. */
static char *split_path(const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    return slash ? strndup(path, slash > path ? (size_t)(slash - path) : 1) : strdup(".");
}

/* A model may be given by a file, but not by any. */
static int refuse_file(const char *path, struct fail *f)
{
    RELEASED_BY(mapped_close) struct mapped map;
    RETURN_IF_NOT_OK(mapped_open(&map, path, f));
    RETURN_IF_NOT_OK(file_kind_refuse(path, map.data, map.size, f));
    return INVALID(f, "%s: is a file; a directory, *.safetensors or *.safetensors.index.json is needed", path);
}

int model_open(struct model *model, const char *path, struct fail *f)
{
    struct stat status;
    *model = (struct model){0};
    const bool file = stat(path, &status) == 0 && S_ISREG(status.st_mode);
    if (file && !ends_with(path, ".safetensors") && !ends_with(path, index_ending))
        return refuse_file(path, f);
    const char *name = "";
    OWNED char *root = file ? split_path(path, &name) : strdup(path);
    if (!root)
        return NO_MEMORY(f, "a path");
    /* The folders beside a file are no part of it; an index may name files in folders. */
    RETURN_IF_NOT_OK(source_tree_read(&model->tree, root, file && !ends_with(path, index_ending), f));
    const int result = open_parts(model, name, f);
    if (result != QOBS_OK)
        model_close(model);
    return result;
}

/* ---- Files alone ------------------------------------------------------------------------------------------------- */

/* Adds a file to a tree if it is there. */
static int add_file(struct source_tree *tree, const char *path, struct fail *f)
{
    struct stat status;
    OWNED char *full = path_join(tree->root, path);
    if (!full || stat(full, &status) != 0 || source_tree_find(tree, path))
        return QOBS_OK;
    RETURN_IF_NOT_OK(source_tree_add(tree, path, 0, f));
    named_sort(tree->files, tree->count, sizeof *tree->files);
    return QOBS_OK;
}

/* Adds the shards of the index. */
static int add_shards(struct model *m, const char *name, struct fail *f)
{
    RELEASED_BY(shard_index_free) struct shard_index index = {0};
    m->index = name;
    RETURN_IF_NOT_OK(read_index(m, &index, f));
    for (size_t i = 0; i < index.count; i++)
        if (i == 0 || strcmp(index.entries[i].shard, index.entries[i - 1].shard) != 0)
            RETURN_IF_NOT_OK(add_file(&m->tree, index.entries[i].shard, f));
    return QOBS_OK;
}

int model_open_files(struct model *m, const char *path, struct fail *f)
{
    struct stat status;
    struct mapped map;
    if (stat(path, &status) != 0 || S_ISDIR(status.st_mode))
        return model_open(m, path, f);
    *m = (struct model){0};
    if (!S_ISREG(status.st_mode))
        return mapped_open(&map, path, f) != 0 ? failure_status(f) : INVALID(f, "%s: is no regular file", path);
    const char *name;
    m->tree.root = split_path(path, &name);
    int result = m->tree.root ? add_file(&m->tree, "config.json", f) : NO_MEMORY(f, "a path");
    if (result == QOBS_OK)
        result = add_file(&m->tree, name, f);
    if (result == QOBS_OK && ends_with(name, index_ending))
        result = add_shards(m, name, f);
    if (result == QOBS_OK)
        result = open_parts(m, name, f);
    if (result != QOBS_OK)
        model_close(m);
    return result;
}

void model_close(struct model *model)
{
    for (size_t i = 0; i < model->shard_count; i++)
        st_close(&model->shards[i].file);
    free(model->shards);
    free(model->tensors);
    free(model->unnamed.items);
    free(model->parts.items);
    named_free(model->configs, model->config_count, sizeof *model->configs, 1);
    json_object_put(model->config);
    json_object_put(model->hf_quant_config);
    source_tree_free(&model->tree);
    *model = (struct model){0};
}

const struct model_tensor *model_find(const struct model *model, const char *name)
{
    const struct st_tensor wanted = {.name = (char *)(uintptr_t)name};
    const struct model_tensor key = {.stored = &wanted};
    return model->count > 0 ? bsearch(&key, model->tensors, model->count, sizeof key, compare_tensors) : NULL;
}
