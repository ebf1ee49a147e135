/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A fingerprint of everything that decides the bytes of the output ties parts together. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* realpath */
#endif

#include "parts/parts.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/json.h"
#include "files/text.h"
#include "quantize/quantize_call.h"

char *parts_directory(const char *out)
{
    size_t length = strlen(out);
    while (length > 1 && out[length - 1] == '/')
        length--;
    return text_format("%.*s.parts", (int)length, out);
}

/* ---- Assignment -------------------------------------------------------------------------------------------------- */

struct sized {
    uint64_t bytes;
    size_t shard;
};

static int compare_sizes(const void *a, const void *b)
{
    const struct sized *s = a, *t = b;
    return s->bytes != t->bytes ? ORDER(t->bytes, s->bytes) : ORDER(s->shard, t->shard);
}

int parts_assign(const struct output_layout *layout, size_t count, size_t *part, struct fail *f)
{
    OWNED struct sized *sorted = malloc((layout->shard_count + 1) * sizeof *sorted);
    OWNED uint64_t *load = calloc(count, sizeof *load);
    if (!sorted || !load)
        return NO_MEMORY(f, "the parts");
    for (size_t i = 0; count >= layout->shard_count && i < layout->shard_count; i++)
        part[i] = i + 1;
    if (count >= layout->shard_count)
        return QOBS_OK;
    for (size_t i = 0; i < layout->shard_count; i++)
        sorted[i] = (struct sized){layout->shards[i].bytes, i};
    qsort(sorted, layout->shard_count, sizeof *sorted, compare_sizes);
    for (size_t i = 0; i < layout->shard_count; i++) {
        size_t least = 0;
        for (size_t k = 1; k < count; k++)
            least = load[k] < load[least] ? k : least;
        load[least] += sorted[i].bytes;
        part[sorted[i].shard] = least + 1;
    }
    return QOBS_OK;
}

/* ---- Fingerprint ------------------------------------------------------------------------------------------------- */

/* FNV-1a of 64 bits: it finds mistakes, not attacks. */
static uint64_t add_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t add_text(uint64_t hash, const char *text) { return add_bytes(hash, text, strlen(text) + 1); }

/* Covers importance matrices of llama.cpp by their bytes, recordings by the number of their tensors, states by name. */
static uint64_t add_importance(uint64_t hash, const struct quantize_call *run)
{
    const struct importance_sources *s = &run->inputs.importance;
    const struct saved_states *states = &run->inputs.sources.states;
    for (size_t i = 0; i < s->file_count; i++)
        hash = add_bytes(hash, s->files[i].map.data, s->files[i].map.size);
    for (size_t i = 0; i < s->recordings.count; i++) {
        const uint64_t tensors = s->recordings.items[i].set->count;
        hash = add_bytes(hash, &tensors, sizeof tensors);
    }
    for (size_t i = 0; i < states->count; i++)
        hash = add_text(hash, states->items[i].name);
    return hash;
}

/* Covers the input's files by name and size, the output's headers, the configuration, the scales of activations and
 * importance. */
static int make_fingerprint(const struct quantize_call *run, char *text, size_t size, struct fail *f)
{
    uint64_t hash = add_text(UINT64_C(0xcbf29ce484222325), qobs_version());
    for (size_t i = 0; i < run->inputs.model.tree.count; i++) {
        hash = add_text(hash, run->inputs.model.tree.files[i].path);
        hash = add_bytes(hash, &run->inputs.model.tree.files[i].bytes, sizeof run->inputs.model.tree.files[i].bytes);
    }
    for (size_t i = 0; i < run->layout.shard_count; i++)
        hash = add_bytes(hash, run->layout.shards[i].header, run->layout.shards[i].header_bytes);
    for (size_t i = 0; i < run->activations.count; i++)
        hash = add_bytes(hash, run->activations.items[i].data, run->activations.items[i].bytes);
    hash = add_importance(hash, run);
    OWNED_JSON json_object *config = quant_config_json(&run->selection.config, NULL);
    OWNED char *printed = config ? json_print(config, JSON_SORTED) : NULL;
    if (!printed)
        return NO_MEMORY(f, "the part");
    hash = add_text(hash, printed);
    snprintf(text, size, "%016" PRIx64, hash);
    return QOBS_OK;
}

/* ---- Other parts ------------------------------------------------------------------------------------------------- */

bool part_parse_name(const char *name, size_t *part, size_t *count)
{
    static const char first[] = "part-", second[] = "-of-";
    char again[80], *end;
    if (strncmp(name, first, sizeof first - 1) != 0)
        return false;
    const unsigned long i = strtoul(name + sizeof first - 1, &end, 10);
    if (strncmp(end, second, sizeof second - 1) != 0)
        return false;
    const unsigned long n = strtoul(end + sizeof second - 1, NULL, 10);
    if (i < 1 || i > n || n > MAX_PARTS)
        return false;
    snprintf(again, sizeof again, "part-%lu-of-%lu", i, n);
    *part = i;
    *count = n;
    return strcmp(name, again) == 0;
}

/* Fails if a part that is there does not fit this one: nobody asks for parts that a run of --fetch makes. */
static int check_others(const struct quantize_call *run, const char *parts, struct fail *f)
{
    char fingerprint[24];
    OWNED_DIRECTORY DIR *directory = opendir(parts);
    RETURN_IF_NOT_OK(make_fingerprint(run, fingerprint, sizeof fingerprint, f));
    for (const struct dirent *entry; directory && (entry = readdir(directory));) {
        size_t part, count;
        OWNED_JSON json_object *manifest = NULL;
        if (!part_parse_name(entry->d_name, &part, &count))
            continue;
        if (count != run->args->part_count)
            return INVALID(f, "%s: holds parts of %zu; this run has %zu; remove %s", parts, count,
                           run->args->part_count, parts);
        OWNED char *path = text_format("%s/%s/" PART_MANIFEST, parts, entry->d_name);
        RETURN_IF_NOT_OK(path ? json_read(&manifest, path, "description of a part", f) : NO_MEMORY(f, "the parts"));
        if (strcmp(json_text_of(manifest, "fingerprint"), fingerprint) != 0)
            return INVALID(f,
                           "%s: part %zu was made of another model, with other options or another version; give those, "
                           "or remove %s to begin anew",
                           parts, part, parts);
    }
    return QOBS_OK;
}

/* ---- Directory --------------------------------------------------------------------------------------------------- */

int part_open(struct quantize_call *run, struct fail *f)
{
    const qobs_checkpoint_quantize_args *a = run->args;
    RETURN_IF_NOT_OK(output_directory_check(a->out, run->inputs.model.tree.root, true, f));
    OWNED char *parts = parts_directory(a->out);
    OWNED char *path = parts ? text_format("%s/part-%zu-of-%zu", parts, a->part, a->part_count) : NULL;
    if (!path)
        return NO_MEMORY(f, "the part");
    if (mkdir(parts, 0777) != 0 && errno != EEXIST)
        return SYSTEM_FAILURE(f, "%s: cannot be created: %s", parts, strerror(errno));
    if (a->fetch && !a->replace)
        RETURN_IF_NOT_OK(check_others(run, parts, f));
    RETURN_IF_NOT_OK(output_directory_open(&run->out, path, run->inputs.model.tree.root, a->replace, f));
    run->out.below = PART_FILES;
    return QOBS_OK;
}

/* Lists the files of this part with their sizes; none: there may be more parts than shards. */
static int list_files(const struct quantize_call *run, json_object *files, struct fail *f)
{
    RELEASED_BY(source_tree_free) struct source_tree tree = {0};
    OWNED char *root = text_format("%s/%s", run->out.staging, PART_FILES);
    struct stat info;
    if (!root)
        return NO_MEMORY(f, "the part");
    if (stat(root, &info) == 0 && source_tree_read(&tree, root, false, f) != 0)
        return QOBS_ERROR_SYSTEM;
    for (size_t i = 0; i < tree.count; i++)
        if (!json_put_count(files, tree.files[i].path, tree.files[i].bytes))
            return NO_MEMORY(f, "the part");
    return QOBS_OK;
}

int part_publish(struct quantize_call *run, struct fail *f)
{
    char fingerprint[24];
    RETURN_IF_NOT_OK(make_fingerprint(run, fingerprint, sizeof fingerprint, f));
    OWNED char *model = realpath(run->inputs.model.tree.root, NULL);
    OWNED char *report = report_finish(run->report, &run->findings), *text = NULL;
    OWNED char *rows = run->args->architectures ? realpath(run->args->architectures, NULL) : NULL;
    OWNED_JSON json_object *json = json_object_new_object();
    json_put_text(json, "qobs_version", qobs_version());
    json_put_count(json, "part", (uint64_t)run->args->part);
    json_put_count(json, "parts", (uint64_t)run->args->part_count);
    json_put_text(json, "fingerprint", fingerprint);
    json_put_text(json, "model", model ? model : run->args->model);
    if (run->args->architectures)
        json_put_text(json, "architectures", rows ? rows : run->args->architectures);
    RETURN_IF_NOT_OK(list_files(run, json_put_object(json, "files"), f));
    json_object *parsed = NULL;
    if (report && json_parse(&parsed, run->out.path, "report", report, strlen(report), f) == 0 &&
        json_put(json, "report", parsed))
        text = json_print(json, JSON_SORTED);
    run->out.below = NULL;
    if (!text)
        return NO_MEMORY(f, "the part");
    RETURN_IF_NOT_OK(output_directory_write(&run->out, PART_MANIFEST, text, strlen(text), f));
    return output_directory_commit(&run->out, f);
}
