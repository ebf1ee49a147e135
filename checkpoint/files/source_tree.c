/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Walks directories depth first; one directory is open at a time. */
#include "files/source_tree.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/file_kind.h"
#include "files/mapped.h"
#include "files/text.h"

enum { MAX_DEPTH = 32, MAX_FILES = 1000000 };

static int is_entry(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

int source_tree_add(struct source_tree *tree, const char *path, uint64_t bytes, struct fail *f)
{
    if (tree->count == MAX_FILES)
        return fail(f, "%s: has more than %d files", tree->root, MAX_FILES);
    struct source_file *file = list_add(&tree->files, &tree->count, sizeof *file);
    if (file)
        *file = (struct source_file){.path = strdup(path), .bytes = bytes};
    return file && file->path ? 0 : fail_system(f, "%s: no memory for its files", tree->root);
}

static bool is_left_out(const char *relative)
{
    return strncmp(relative, ".cache", 6) == 0 || strncmp(relative, ".gitattributes", 14) == 0;
}

static int walk(struct source_tree *tree, const char *relative, int depth, struct fail *f);

static int visit(struct source_tree *tree, const char *relative, int depth, struct fail *f)
{
    struct stat status;
    OWNED char *path = path_join(tree->root, relative);
    if (!path)
        return fail_system(f, "%s: no memory for its names", tree->root);
    if (stat(path, &status) != 0 || (S_ISREG(status.st_mode) && access(path, R_OK) != 0))
        return tree->is_flat ? 0 : file_refuse_access(path, "cannot be read", errno, f);
    if (S_ISREG(status.st_mode))
        return source_tree_add(tree, relative, (uint64_t)status.st_size, f);
    if (tree->is_flat)
        return 0;
    if (S_ISDIR(status.st_mode))
        return walk(tree, relative, depth + 1, f);
    return fail(f, "%s: is neither a regular file nor a directory", path);
}

static int walk(struct source_tree *tree, const char *relative, int depth, struct fail *f)
{
    struct dirent **entries = NULL;
    if (depth > MAX_DEPTH)
        return fail(f, "%s/%s: is more than %d directories deep; links may form a circle", tree->root, relative,
                    MAX_DEPTH);
    OWNED char *path = path_join(tree->root, relative);
    const int count = path ? scandir(path, &entries, is_entry, NULL) : (errno = ENOMEM, -1);
    int result = count >= 0        ? 0
                 : errno == ENOMEM ? fail_system(f, "%s: no memory for its names", tree->root)
                                   : fail(f, "%s: cannot be read: %s", path, strerror(errno));
    for (int i = 0; i < count; i++) {
        OWNED char *below = path_join(relative, entries[i]->d_name);
        if (result == 0 && !below)
            result = fail_system(f, "%s: no memory for its names", tree->root);
        else if (result == 0 && !is_left_out(below))
            result = visit(tree, below, depth, f);
        free(entries[i]);
    }
    free(entries);
    return result;
}

int source_tree_read(struct source_tree *tree, const char *root, bool is_flat, struct fail *f)
{
    *tree = (struct source_tree){.root = strdup(root), .is_flat = is_flat};
    if (!tree->root)
        return fail_system(f, "%s: no memory for its name", root);
    int result = walk(tree, "", 0, f);
    if (result == 0)
        result = mapped_remember_directory(root, f);
    if (result == 0)
        named_sort(tree->files, tree->count, sizeof *tree->files);
    else
        source_tree_free(tree);
    return result;
}

const struct source_file *source_tree_find(const struct source_tree *tree, const char *path)
{
    return named_find(tree->files, tree->count, sizeof *tree->files, path);
}

void source_tree_free(struct source_tree *tree)
{
    named_free(tree->files, tree->count, sizeof *tree->files, 1);
    free(tree->root);
    *tree = (struct source_tree){0};
}
