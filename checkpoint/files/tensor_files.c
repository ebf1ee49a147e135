/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Open files are identified by device and inode, so that two names of a file share one map. */
#include "files/tensor_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/file_kind.h"
#include "files/text.h"

static int open_new(struct tensor_files *files, const char *path, const struct stat *status, struct fail *f)
{
    /* Allocated separately, so that its address never changes, and closed with the files. */
    struct tensor_set *set = calloc(1, sizeof *set);
    struct tensor_files_entry *entry = set ? list_add(&files->entries, &files->count, sizeof *entry) : NULL;
    if (!entry) {
        free(set);
        return fail_system(f, "%s: out of memory", path);
    }
    *entry = (struct tensor_files_entry){.device = status->st_dev, .inode = status->st_ino, .set = set};
    const int result = tensors_open(set, path, f);
    if (result != 0) {
        free(set);
        files->count--;
    }
    return result;
}

int tensor_files_open(struct tensor_files *files, const char *path, const struct tensor_set **set, struct fail *f)
{
    struct stat status;
    size_t i = 0;
    *set = NULL;
    OWNED char *resolved = tensors_resolve(path, f);
    if (!resolved)
        return failure_status(f);
    if (stat(resolved, &status) != 0)
        return file_refuse_access(resolved, "cannot open", errno, f);
    while (i < files->count && (files->entries[i].device != status.st_dev || files->entries[i].inode != status.st_ino))
        i++;
    if (i == files->count)
        RETURN_IF_NOT_OK(open_new(files, resolved, &status, f));
    *set = files->entries[i].set;
    return 0;
}

/* The names of the first five tensors in file order, for messages. */
struct names {
    char text[256];
};

static const char *list_names(const struct tensor_set *set, struct names *names)
{
    const size_t shown = set->count < 5 ? set->count : 5;
    names->text[0] = '\0';
    for (size_t i = 0; i < shown; i++)
        text_append(names->text, sizeof names->text, "%s%.40s%s", i ? ", " : "", set->refs[i].name,
                    strlen(set->refs[i].name) > 40 ? "..." : "");
    if (shown < set->count)
        text_append(names->text, sizeof names->text, ", ...");
    return names->text;
}

static int find(const struct tensor_set *set, const char *name, const struct tensor_ref **ref, struct fail *f)
{
    struct names names;
    if (set->count == 0)
        return fail(f, "%s: holds no tensors", set->path);
    if (!name && set->count > 1)
        return fail(f, "%s: holds %zu tensors; name one as FILE:TENSOR (%s)", set->path, set->count,
                    list_names(set, &names));
    *ref = name ? tensors_find(set, name) : &set->refs[0];
    return *ref ? 0
                : fail(f, "%s: has no tensor '%.150s'; it holds %zu (%s)", set->path, name, set->count,
                       list_names(set, &names));
}

int tensors_spec(struct tensor_files *files, const char *spec, const struct tensor_ref **ref, struct fail *f)
{
    struct stat status;
    const struct tensor_set *set;
    *ref = NULL;
    if (stat(spec, &status) == 0) {
        RETURN_IF_NOT_OK(tensor_files_open(files, spec, &set, f));
        return find(set, NULL, ref, f);
    }
    OWNED char *path = strdup(spec);
    if (!path)
        return fail_system(f, "%s: out of memory", spec);
    /* Split at the last colon after an existing path. If there is none, split at the first colon, for the message. */
    size_t cut = strcspn(spec, ":");
    for (size_t i = strlen(spec); i > 0; i--)
        if (path[i] == ':') {
            path[i] = '\0';
            if (stat(path, &status) == 0) {
                cut = i;
                break;
            }
        }
    path[cut] = '\0';
    if (cut == 0)
        return fail(f, "'%s': names no file; FILE or FILE:TENSOR is needed", spec);
    RETURN_IF_NOT_OK(tensor_files_open(files, path, &set, f));
    return find(set, spec[cut] == ':' ? spec + cut + 1 : NULL, ref, f);
}

void tensor_files_close(struct tensor_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        tensors_close(files->entries[i].set);
        free(files->entries[i].set);
    }
    free(files->entries);
    *files = (struct tensor_files){0};
}
