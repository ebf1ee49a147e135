/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads "weight_map" and rejects paths that leave the directory of the index. */
#include "files/shards.h"

#include <stdlib.h>
#include <string.h>

#include "files/file_kind.h"
#include "files/json.h"
#include "files/text.h"

/* Returns 1 if `path` is relative and has no ".." in it. Symbolic links may lead outside the directory: download caches
 * consist of them, and a user who can create a link there can also create a file. */
static int stays_below(const char *path)
{
    if (*path == '\0' || *path == '/')
        return 0;
    for (const char *part = path;; part++) {
        const size_t length = strcspn(part, "/");
        if (length == 2 && memcmp(part, "..", 2) == 0)
            return 0;
        part += length;
        if (*part == '\0')
            return 1;
    }
}

static int by_shard(const void *a, const void *b)
{
    const struct shard_entry *s = a, *t = b;
    const int order = strcmp(s->shard, t->shard);
    return order ? order : strcmp(s->tensor, t->tensor);
}

static int read_map(struct shard_index *index, const char *root, const char *path, struct fail *f)
{
    struct json_span key, value, weights = {0};
    for (struct json_walk w = json_enter(root); json_step(&w, &key, &value);) {
        if (!json_span_is(key, "weight_map"))
            continue;
        if (weights.text)
            return fail(f, "%s: weight_map occurs twice", path);
        weights = value;
    }
    if (!weights.text)
        RETURN_IF_NOT_OK(file_kind_refuse(path, root, strlen(root), f));
    if (!weights.text || *weights.text != '{')
        return fail(f, "%s: weight_map must be an object of tensor names and files; it is %s", path,
                    weights.text ? SPAN_WORDS(weights) : "missing");
    index->entries = calloc(json_span_count(weights) + 1, sizeof *index->entries);
    if (!index->entries)
        return fail_system(f, "%s: out of memory for weight_map", path);
    for (struct json_walk w = json_enter(weights.text); json_step(&w, &key, &value);) {
        struct shard_entry *entry = &index->entries[index->count++];
        entry->tensor = json_span_string(key);
        entry->shard = *value.text == '"' ? json_span_string(value) : NULL;
        if (!entry->tensor || (*value.text == '"' && !entry->shard))
            return fail_system(f, "%s: out of memory for weight_map", path);
        if (!entry->shard)
            return fail(f, "%s: tensor '%.200s': the file must be a string; it is %s", path, entry->tensor,
                        SPAN_WORDS(value));
        if (!stays_below(entry->shard))
            return fail(f, "%s: tensor '%.150s': file '%.150s' is not allowed; a relative path without '..' is needed",
                        path, entry->tensor, entry->shard);
    }
    named_sort(index->entries, index->count, sizeof *index->entries);
    const char *twice = named_twice(index->entries, index->count, sizeof *index->entries);
    if (twice)
        return fail(f, "%s: tensor '%.200s' occurs twice", path, twice);
    qsort(index->entries, index->count, sizeof *index->entries, by_shard);
    index->names = malloc((index->count + 1) * sizeof *index->names);
    if (!index->names)
        return fail_system(f, "%s: out of memory for weight_map", path);
    for (size_t i = 0; i < index->count; i++)
        index->names[i] = index->entries[i].tensor;
    named_sort(index->names, index->count, sizeof *index->names);
    return 0;
}

bool shard_index_names(const struct shard_index *index, const char *tensor)
{
    return named_find(index->names, index->count, sizeof *index->names, tensor) != NULL;
}

int shard_index_read(struct shard_index *index, const struct mapped *map, struct fail *f)
{
    OWNED char *root;
    *index = (struct shard_index){0};
    RETURN_IF_NOT_OK(json_check(&root, map->path, "index", map->data, map->size, JSON_STRICT, f));
    const int result = read_map(index, root, map->path, f);
    if (result != 0)
        shard_index_free(index);
    return result;
}

char *shard_path(const char *index_path, const char *shard)
{
    const char *slash = strrchr(index_path, '/');
    return text_format("%.*s%s", slash ? (int)(slash + 1 - index_path) : 0, index_path, shard);
}

void shard_index_free(struct shard_index *index)
{
    named_free(index->entries, index->count, sizeof *index->entries, 2);
    free(index->names);
    *index = (struct shard_index){0};
}
