/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Hashes every file of both models, on all threads. */
#include "api/attest.h"

#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "files/output.h"
#include "files/sha256.h"
#include "files/text.h"

/* ---- Files ------------------------------------------------------------------------------------------------------- */

struct hashed_file {
    const char *name;
    char *path;
    char hash[SHA256_TEXT];
    int status;
    struct fail failure;
};

struct hashed_files {
    struct hashed_file *items;
    size_t count;
};

static void hashed_files_free(struct hashed_files *files)
{
    for (size_t i = 0; files->items && i < files->count; i++)
        free(files->items[i].path);
    free(files->items);
}

static void hash(void *argument, size_t i)
{
    struct hashed_file *file = &((struct hashed_files *)argument)->items[i];
    file->status = sha256_file(file->path, file->hash, &file->failure);
}

/* Lists the files of a directory, or the parts of a model in GGUF. */
static int list_files(struct hashed_files *files, const struct source_tree *tree, const struct gguf_model *gguf,
                      struct fail *f)
{
    files->count = tree->root ? tree->count : gguf->file_count;
    files->items = calloc(files->count + 1, sizeof *files->items);
    for (size_t i = 0; files->items && i < files->count; i++) {
        struct hashed_file *file = &files->items[i];
        file->path = tree->root ? path_join(tree->root, tree->files[i].path) : strdup(gguf->files[i].map.path);
        if (!file->path)
            return NO_MEMORY(f, "a path");
        const char *slash = strrchr(file->path, '/');
        file->name = tree->root ? tree->files[i].path : slash ? slash + 1 : file->path;
    }
    return files->items ? QOBS_OK : NO_MEMORY(f, "the files");
}

/* Adds the files to a list of JSON, as in-toto describes resources. */
static int add_files(json_object *list, struct hashed_files *files, const qobs_runtime *runtime, struct fail *f)
{
    run_tasks(runtime, hash, files, files->count);
    for (size_t i = 0; i < files->count; i++) {
        if (files->items[i].status != QOBS_OK)
            return report_failure(f, files->items[i].status, "%s", files->items[i].failure.message);
        json_object *item = json_object_new_object();
        json_put_text(item, "name", files->items[i].name);
        json_put_text(json_put_object(item, "digest"), "sha256", files->items[i].hash);
        if (!json_append(list, item))
            return NO_MEMORY(f, "the statement");
    }
    return QOBS_OK;
}

/* ---- Statement --------------------------------------------------------------------------------------------------- */

/* Copies members of the report that are there. */
static void copy_members(json_object *predicate, const json_object *report)
{
    static const char *const keys[] = {"codes_compared",     "codes_not_nearest", "reproduced",
                                       "reproduced_options", "reproduced_why",    "findings"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_has(report, keys[i]))
            json_put(predicate, keys[i], json_object_get((json_object *)(uintptr_t)json_get(report, keys[i])));
}

static int write_text(const char *path, const char *text, struct fail *f)
{
    struct output out = {0};
    int status = output_open(&out, path, f);
    if (status == QOBS_OK &&
        (output_write(&out, text, strlen(text), 0) != 0 || output_write(&out, "\n", 1, strlen(text)) != 0))
        status = SYSTEM_FAILURE(f, "%s: cannot be written", path);
    if (status == QOBS_OK)
        status = output_commit(&out, f);
    output_abort(&out);
    return argument_failure("attest", status, f);
}

int attest(const struct audit *audit, const json_object *report, const char *path, struct fail *f)
{
    OWNED_JSON json_object *statement = json_object_new_object();
    json_put_text(statement, "_type", "https://in-toto.io/Statement/v1");
    json_object *subjects = json_put_array(statement, "subject");
    json_put_text(statement, "predicateType", "urn:qobs:audit:v1");
    json_object *predicate = json_put_object(statement, "predicate");
    json_put_text(predicate, "qobs_version", qobs_version());
    json_object *sources = json_put_array(predicate, "sources");
    RELEASED_BY(hashed_files_free) struct hashed_files out = {0}, in = {0};
    RETURN_IF_NOT_OK(list_files(&out, &audit->model.tree, &audit->gguf.file, f));
    RETURN_IF_NOT_OK(list_files(&in, &audit->original.tree, &audit->gguf.original, f));
    RETURN_IF_NOT_OK(add_files(subjects, &out, audit->args->runtime, f));
    RETURN_IF_NOT_OK(add_files(sources, &in, audit->args->runtime, f));
    copy_members(predicate, report);
    OWNED char *text = statement && predicate ? json_print(statement, JSON_INDENTED) : NULL;
    return text ? write_text(path, text, f) : NO_MEMORY(f, "the statement");
}
