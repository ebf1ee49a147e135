/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Walks directories depth first; one directory is open at a time. */
#include "files/source_tree.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 32, MAX_FILES = 1000000 };

static char *join_path(const char *directory, const char *name)
{
    const size_t size = strlen(directory) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s%s%s", directory, *directory ? "/" : "", name);
    return path;
}

/* The names of one directory. */
struct entry_names {
    char **items;
    size_t count;
};

static void free_names(struct entry_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->items[i]);
    free(names->items);
    *names = (struct entry_names){0};
}

static int list_directory(struct entry_names *names, const char *path, struct fail *f)
{
    DIR *directory = opendir(path);
    if (!directory)
        return fail(f, "%s: cannot be read: %s", path, strerror(errno));
    int result = 0;
    errno = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char **grown = realloc(names->items, (names->count + 1) * sizeof *grown);
        names->items = grown ? grown : names->items;
        char *name = grown ? strdup(entry->d_name) : NULL;
        if (name)
            names->items[names->count++] = name;
        else
            result = fail_system(f, "%s: no memory for its names", path);
        errno = 0;
    }
    if (result == 0 && errno != 0)
        result = fail(f, "%s: cannot be read: %s", path, strerror(errno));
    closedir(directory);
    return result;
}

static int add_file(struct source_tree *tree, const char *path, uint64_t bytes, struct fail *f)
{
    if (tree->count == MAX_FILES)
        return fail(f, "%s: has more than %d files", tree->root, MAX_FILES);
    if ((tree->count & (tree->count - 1)) == 0) { /* a power of two, or 0 */
        const size_t capacity = tree->count ? 2 * tree->count : 1;
        struct source_file *grown = realloc(tree->files, capacity * sizeof *grown);
        if (!grown)
            return fail_system(f, "%s: no memory for its files", tree->root);
        tree->files = grown;
    }
    tree->files[tree->count].path = strdup(path);
    tree->files[tree->count].bytes = bytes;
    if (!tree->files[tree->count].path)
        return fail_system(f, "%s: no memory for its files", tree->root);
    tree->count++;
    return 0;
}

static bool is_left_out(const char *relative)
{
    return strncmp(relative, ".cache", 6) == 0 || strncmp(relative, ".gitattributes", 14) == 0;
}

static int walk(struct source_tree *tree, const char *relative, int depth, struct fail *f);

static int visit(struct source_tree *tree, const char *relative, int depth, struct fail *f)
{
    struct stat status;
    char *path = join_path(tree->root, relative);
    int result = path ? 0 : fail_system(f, "%s: no memory for its names", tree->root);
    const bool known = path && stat(path, &status) == 0;
    if (result == 0 && (!known || (S_ISREG(status.st_mode) && access(path, R_OK) != 0)))
        result = fail(f, "%s: cannot be read: %s", path, strerror(errno));
    else if (result == 0 && S_ISDIR(status.st_mode))
        result = walk(tree, relative, depth + 1, f);
    else if (result == 0 && S_ISREG(status.st_mode))
        result = add_file(tree, relative, (uint64_t)status.st_size, f);
    else if (result == 0)
        result = fail(f, "%s: is neither a regular file nor a directory", path);
    free(path);
    return result;
}

static int walk(struct source_tree *tree, const char *relative, int depth, struct fail *f)
{
    struct entry_names names = {0};
    if (depth > MAX_DEPTH)
        return fail(f, "%s/%s: is more than %d directories deep; links may form a circle", tree->root, relative,
                    MAX_DEPTH);
    char *path = join_path(tree->root, relative);
    int result = path ? list_directory(&names, path, f) : fail_system(f, "%s: no memory for its names", tree->root);
    for (size_t i = 0; result == 0 && i < names.count; i++) {
        char *below = join_path(relative, names.items[i]);
        if (!below)
            result = fail_system(f, "%s: no memory for its names", tree->root);
        else if (!is_left_out(below))
            result = visit(tree, below, depth, f);
        free(below);
    }
    free_names(&names);
    free(path);
    return result;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const struct source_file *)a)->path, ((const struct source_file *)b)->path);
}

int source_tree_read(struct source_tree *tree, const char *root, struct fail *f)
{
    *tree = (struct source_tree){.root = strdup(root)};
    if (!tree->root)
        return fail_system(f, "%s: no memory for its name", root);
    if (walk(tree, "", 0, f) != 0) {
        source_tree_free(tree);
        return -1;
    }
    if (tree->count > 0)
        qsort(tree->files, tree->count, sizeof *tree->files, compare_files);
    return 0;
}

const struct source_file *source_tree_find(const struct source_tree *tree, const char *path)
{
    const struct source_file key = {.path = (char *)(uintptr_t)path};
    return tree->count > 0 ? bsearch(&key, tree->files, tree->count, sizeof key, compare_files) : NULL;
}

void source_tree_free(struct source_tree *tree)
{
    for (size_t i = 0; i < tree->count; i++)
        free(tree->files[i].path);
    free(tree->files);
    free(tree->root);
    *tree = (struct source_tree){0};
}
