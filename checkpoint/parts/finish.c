/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_checkpoint_finish: joins the parts. They stay as they are until the output is complete. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/publish.h"
#include "files/json.h"
#include "files/mapped.h"
#include "files/text.h"
#include "parts/parts.h"

struct finish {
    const qobs_checkpoint_finish_args *args;
    char *parts;             /* OUT.parts */
    json_object **manifests; /* of part i + 1; NULL: missing */
    size_t count;            /* of parts; 0: none found yet */
    struct output_directory out;
    struct findings findings; /* of the audit of the output */
};

static char *path_in_part(const struct finish *run, size_t part, const char *folder, const char *name)
{
    return text_format("%s/part-%zu-of-%zu/%s%s%s", run->parts, part, run->count, folder, *folder ? "/" : "", name);
}

/* ---- Manifests --------------------------------------------------------------------------------------------------- */

static int read_manifest(struct finish *run, size_t part, struct fail *f)
{
    OWNED char *path = path_in_part(run, part, "", PART_MANIFEST);
    return path ? json_read(&run->manifests[part - 1], path, "description of a part", f) : NO_MEMORY(f, "the parts");
}

static int read_directory(struct finish *run, DIR *directory, struct fail *f)
{
    for (const struct dirent *entry; (entry = readdir(directory));) {
        size_t part, count;
        if (!part_parse_name(entry->d_name, &part, &count))
            continue;
        if (run->count == 0) {
            run->manifests = calloc(count, sizeof(json_object *));
            if (!run->manifests)
                return NO_MEMORY(f, "the parts");
            run->count = count;
        }
        if (count != run->count)
            return INVALID(f, "%s: holds parts of %zu and of %zu; remove those of the other run", run->parts,
                           run->count, count);
        RETURN_IF_NOT_OK(read_manifest(run, part, f));
    }
    return QOBS_OK;
}

/* A directory may have another part's name, or a description that somebody has changed. */
static int check_manifest(const struct finish *run, size_t part, struct fail *f)
{
    const json_object *manifest = run->manifests[part - 1];
    uint64_t is = 0, of = 0;
    json_integer(json_get(manifest, "part"), &is);
    json_integer(json_get(manifest, "parts"), &of);
    if (is != part || of != run->count)
        return INVALID(f, "%s: part %zu of %zu: its description is not that of this part; make the part again",
                       run->parts, part, run->count);
    const char *own = json_text_of(manifest, "fingerprint"), *first = json_text_of(run->manifests[0], "fingerprint");
    if (!*own || strcmp(own, first) != 0)
        return INVALID(f, "%s: part %zu was made of another model, with other options or another version than part 1",
                       run->parts, part);
    if (!json_is_object(json_get(manifest, "files")))
        return INVALID(f, "%s: part %zu: its description lists no files; make the part again", run->parts, part);
    return QOBS_OK;
}

static int check_manifests(const struct finish *run, struct fail *f)
{
    char missing[200] = "";
    size_t lost = 0;
    for (size_t i = 0; i < run->count; i++) {
        if (!run->manifests[i] && ++lost && strlen(missing) + 24 < sizeof missing)
            text_append(missing, sizeof missing, "%s%zu", *missing ? ", " : "", i + 1);
    }
    if (run->count == 0)
        return INVALID(f, "%s: holds no parts; --part I/N makes them", run->parts);
    if (lost > 0)
        return INVALID(f, "%s: %zu of %zu parts are missing: %s%s", run->parts, lost, run->count, missing,
                       lost > 1 && strlen(missing) + 24 >= sizeof missing ? ", ..." : "");
    for (size_t i = 1; i <= run->count; i++)
        RETURN_IF_NOT_OK(check_manifest(run, i, f));
    return QOBS_OK;
}

static int read_manifests(struct finish *run, struct fail *f)
{
    OWNED_DIRECTORY DIR *directory = opendir(run->parts);
    if (!directory)
        return INVALID(f, "%s: cannot be read: %s; --part I/N makes it", run->parts, strerror(errno));
    RETURN_IF_NOT_OK(read_directory(run, directory, f));
    return check_manifests(run, f);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* Checks that the files of a part have the sizes of its description. */
static int check_sizes(const struct finish *run, size_t part, struct fail *f)
{
    const json_object *files = json_get(run->manifests[part - 1], "files");
    json_each(file, files)
    {
        struct stat status;
        uint64_t bytes;
        OWNED char *path = path_in_part(run, part, PART_FILES, file.key);
        if (!path)
            return NO_MEMORY(f, "the parts");
        if (json_integer(file.value, &bytes) != 0 || stat(path, &status) != 0 || (uint64_t)status.st_size != bytes)
            return INVALID(f, "%s: is not as its part wrote it; make the part again", path);
    }
    return QOBS_OK;
}

static int add_files(struct finish *run, size_t part, struct fail *f)
{
    RELEASED_BY(source_tree_free) struct source_tree tree = {0};
    struct stat info;
    OWNED char *root = path_in_part(run, part, "", PART_FILES);
    if (!root)
        return NO_MEMORY(f, "the parts");
    /* There may be more parts than shards. */
    if (stat(root, &info) == 0 && source_tree_read(&tree, root, false, f) != 0)
        return QOBS_ERROR_SYSTEM;
    for (size_t i = 0; i < tree.count; i++) {
        const char *name = tree.files[i].path;
        OWNED char *path = path_in_part(run, part, PART_FILES, name);
        if (!path)
            return NO_MEMORY(f, "the parts");
        if (!json_has(json_get(run->manifests[part - 1], "files"), name))
            return INVALID(f, "%s: is no file of part %zu by its description; make the part again", path, part);
        RETURN_IF_NOT_OK(output_directory_link(&run->out, name, path, f));
    }
    return QOBS_OK;
}

/* The report of part 1 with the layers of all parts. */
static char *join_reports(const struct finish *run)
{
    OWNED_JSON json_object *report = json_copy(json_get(run->manifests[0], "report"));
    json_object *layers = json_get(report, "layers");
    for (size_t i = 1; i < run->count; i++) {
        const json_object *other = json_get(run->manifests[i], "report");
        json_each(layer, json_get(other, "layers")) { json_append(layers, json_copy(layer.value)); }
    }
    json_object_object_del(report, "part");
    json_object_object_del(report, "parts");
    json_put_text(report, "out", run->args->out);
    json_object_object_del(report, "findings");
    return findings_report(&run->findings, report) ? json_print(report, JSON_SORTED) : NULL;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static int finish(struct finish *run, struct fail *f)
{
    const qobs_checkpoint_finish_args *a = run->args;
    run->parts = parts_directory(a->out);
    if (!run->parts)
        return NO_MEMORY(f, "the parts");
    RETURN_IF_NOT_OK(argument_failure("out", read_manifests(run, f), f));
    for (size_t i = 1; i <= run->count; i++)
        RETURN_IF_NOT_OK(check_sizes(run, i, f));
    const char *model = json_text_of(run->manifests[0], "model");
    const char *source = access(model, F_OK) == 0 ? model : run->parts;
    RETURN_IF_NOT_OK(argument_failure("out", output_directory_open(&run->out, a->out, source, a->replace, f), f));
    for (size_t i = 1; i <= run->count; i++)
        RETURN_IF_NOT_OK(add_files(run, i, f));
    const char *compat = json_text_of(json_get(run->manifests[0], "report"), "compat");
    const struct publish_options options = {.architectures = json_text(json_get(run->manifests[0], "architectures")),
                                            .keep_findings = a->keep_findings,
                                            .compatible = strcmp(compat, "llm-compressor") == 0};
    RETURN_IF_NOT_OK(publish(&run->out, &options, &run->findings, f));
    output_directory_remove(run->parts);
    return QOBS_OK;
}

int qobs_checkpoint_finish(const qobs_checkpoint_finish_args *args, qobs_error *error)
{
    RELEASED_BY(mapped_files_end) struct mapped_files files;
    mapped_files_begin(&files);
    struct finish run = {.args = args, .out = {.lock = -1}};
    struct fail f = {.message = ""};
    int status = CHECK_STRUCT(args, &f);
    if (status == QOBS_OK)
        status = args->out && *args->out ? mapped_cause(finish(&run, &f), &f) : INVALID(&f, "out: is NULL or empty");
    if ((status == QOBS_OK || status == QOBS_ERROR_FINDINGS) && args->report)
        *args->report = join_reports(&run);
    findings_free(&run.findings);
    output_directory_abort(&run.out);
    for (size_t i = 0; i < run.count; i++)
        json_object_put(run.manifests[i]);
    free(run.manifests);
    free(run.parts);
    return give_error(error, status, &f);
}
