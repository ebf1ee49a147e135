/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The view is made anew by each run; stand-ins, index and config.json stay in it from the first. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* realpath */
#endif

#include "parts/fetched_model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "files/shards.h"
#include "files/text.h"

static const char index_ending[] = ".safetensors.index.json";

enum { LOCK_SECONDS = 30 };

/* ---- Folders ----------------------------------------------------------------------------------------------------- */

static int make_folder(char **path, const char *parent, const char *name, struct fail *f)
{
    *path = path_join(parent, name);
    if (!*path)
        return NO_MEMORY(f, "a path");
    return mkdir(*path, 0777) == 0 || errno == EEXIST
               ? QOBS_OK
               : SYSTEM_FAILURE(f, "%s: cannot be created: %s", *path, strerror(errno));
}

/* Waits for a run that was killed: its last command may still write. */
static int lock_folder(struct fetched_model *m, struct fail *f)
{
    OWNED char *path = path_join(m->root, "lock");
    m->lock = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (m->lock < 0)
        return SYSTEM_FAILURE(f, "%s: cannot be locked: %s", m->root, strerror(errno));
    for (int tenths = 0; flock(m->lock, LOCK_EX | LOCK_NB) != 0; tenths++) {
        if (tenths == LOCK_SECONDS * 10)
            return SYSTEM_FAILURE(f, "%s: another run, or the command of a run that was killed, still fetches to it",
                                  m->root);
        if (m->shards.command.stopped(m->shards.command.context, NULL))
            return report_failure(f, QOBS_ERROR_CANCELLED, "stopped by the caller");
        nanosleep(&(struct timespec){.tv_nsec = 100000000L}, NULL);
    }
    return QOBS_OK;
}

static int make_folders(struct fetched_model *m, const char *parts, struct fail *f)
{
    if (mkdir(parts, 0777) != 0 && errno != EEXIST)
        return SYSTEM_FAILURE(f, "%s: cannot be created: %s", parts, strerror(errno));
    OWNED char *whole = realpath(parts, NULL);
    if (!whole)
        return SYSTEM_FAILURE(f, "%s: cannot be opened: %s", parts, strerror(errno));
    RETURN_IF_NOT_OK(make_folder(&m->root, whole, "fetch", f));
    RETURN_IF_NOT_OK(make_folder(&m->view, m->root, "model", f));
    RETURN_IF_NOT_OK(make_folder(&m->hashes, m->root, "hashes", f));
    RETURN_IF_NOT_OK(make_folder(&m->ranges, m->root, "ranges", f));
    RETURN_IF_NOT_OK(make_folder(&m->shards.command.folder, m->root, "files", f));
    return lock_folder(m, f);
}

/* ---- The view ---------------------------------------------------------------------------------------------------- */

/* Calls a function for each entry of a directory. */
static int each_entry(const char *path,
                      int (*visit)(struct fetched_model *m, const char *whole, const char *name, struct fail *f),
                      struct fetched_model *m, struct fail *f)
{
    OWNED_DIRECTORY DIR *directory = opendir(path);
    if (!directory)
        return INVALID(f, "model: %s: cannot be read: %s; with fetch it is a directory", path, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        OWNED char *whole = path_join(path, entry->d_name);
        RETURN_IF_NOT_OK(whole ? visit(m, whole, entry->d_name, f) : NO_MEMORY(f, "a path"));
    }
    return QOBS_OK;
}

static int remove_link(struct fetched_model *m, const char *whole, const char *name, struct fail *f)
{
    struct stat status;
    (void)m, (void)name, (void)f;
    if (lstat(whole, &status) == 0 && S_ISLNK(status.st_mode))
        unlink(whole);
    return QOBS_OK;
}

static int add_link(struct fetched_model *m, const char *whole, const char *name, struct fail *f)
{
    OWNED char *link = path_join(m->view, name);
    if (!link)
        return NO_MEMORY(f, "a path");
    return symlink(whole, link) == 0 || errno == EEXIST
               ? QOBS_OK
               : SYSTEM_FAILURE(f, "%s: cannot be created: %s", link, strerror(errno));
}

static bool is_in_view(const struct fetched_model *m, const char *name)
{
    OWNED char *path = path_join(m->view, name);
    return path && access(path, F_OK) == 0;
}

static int accept_any(void *context, const char *path, bool ended, struct fail *f)
{
    (void)context, (void)path, (void)ended, (void)f;
    return QOBS_OK;
}

/* Fetches a file of the model that stays. */
static int fetch_to_view(struct fetched_model *m, const char *name, struct fail *f)
{
    const struct fetch_check check = {accept_any, NULL, false};
    OWNED char *from = path_join(m->shards.command.folder, name), *to = path_join(m->view, name);
    if (!from || !to)
        return NO_MEMORY(f, "a path");
    RETURN_IF_NOT_OK(fetch_file(&m->shards.command, name, &check, f));
    return rename(from, to) == 0 ? QOBS_OK : SYSTEM_FAILURE(f, "%s: cannot be created: %s", to, strerror(errno));
}

/* Returns the name of the index in the view, to be freed: the usual one, if there are several. NULL: none. */
static char *find_index(const struct fetched_model *m)
{
    char *found = NULL;
    OWNED_DIRECTORY DIR *directory = opendir(m->view);
    for (const struct dirent *entry; directory && (entry = readdir(directory));)
        if (ends_with(entry->d_name, index_ending) &&
            (!found || ends_with(entry->d_name, "model.safetensors.index.json")))
            text_set(&found, entry->d_name);
    return found;
}

static int make_view(struct fetched_model *m, const char *model, char **index, struct fail *f)
{
    OWNED char *whole = realpath(model, NULL);
    RETURN_IF_NOT_OK(each_entry(m->view, remove_link, m, f));
    RETURN_IF_NOT_OK(each_entry(whole ? whole : model, add_link, m, f));
    *index = find_index(m);
    if (!*index && is_in_view(m, "model.safetensors"))
        return INVALID(f, "fetch: changes nothing: %s has model.safetensors and no index; leave --fetch out",
                       model);
    if (!*index) {
        struct fail reason = {.message = ""};
        *index = strdup("model.safetensors.index.json");
        const int status = *index ? fetch_to_view(m, *index, &reason) : NO_MEMORY(&reason, "a name");
        if (status != QOBS_OK)
            return report_failure(f, status, "%.700s%s", reason.message,
                                  status == QOBS_ERROR_SYSTEM ? "; a model in one file has no index: fetch "
                                                                "model.safetensors before, and leave --fetch out"
                                                              : "");
    }
    return is_in_view(m, "config.json") || is_in_view(m, "params.json") ? QOBS_OK : fetch_to_view(m, "config.json", f);
}

/* ---- Shards ------------------------------------------------------------------------------------------------------ */

/* Returns true if a link of the view leads to a shard: the model has it. */
static bool is_local(const struct fetched_model *m, const char *name)
{
    struct stat status;
    OWNED char *path = path_join(m->view, name);
    return path && lstat(path, &status) == 0 && S_ISLNK(status.st_mode);
}

/* Lists the shards that the model lacks. */
static int list_shards(struct fetched_model *m, const char *index, struct fail *f)
{
    RELEASED_BY(shard_index_free) struct shard_index shards = {0};
    RELEASED_BY(mapped_close) struct mapped map = {0};
    OWNED char *path = path_join(m->view, index);
    if (!path)
        return NO_MEMORY(f, "a path");
    RETURN_IF_NOT_OK(mapped_open_whole(&map, path, f));
    RETURN_IF_NOT_OK(shard_index_read(&shards, &map, f));
    for (size_t i = 0; i < shards.count; i++) {
        const char *name = shards.entries[i].shard;
        if (i > 0 && strcmp(name, shards.entries[i - 1].shard) == 0)
            continue;
        m->shard_count++;
        if (is_local(m, name))
            continue;
        RETURN_IF_NOT_OK(fetch_name_check(name, index, f));
        if (!ends_with(name, ".safetensors"))
            return INVALID(f, "fetch: %s names the file '%.150s'; files *.safetensors are fetched", index, name);
        OWNED char *copy = strdup(name);
        if (!copy || !list_append(&m->names, &m->name_count, sizeof copy, &copy))
            return NO_MEMORY(f, "the shards");
        copy = NULL;
    }
    return m->name_count > 0 ? QOBS_OK
                             : INVALID(f, "fetch: changes nothing: the model has all shards that %s names", index);
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

static int open_all(struct fetched_model *m, const char *model, const char *parts, struct fail *f)
{
    OWNED char *index = NULL;
    RETURN_IF_NOT_OK(make_folders(m, parts, f));
    RETURN_IF_NOT_OK(make_view(m, model, &index, f));
    RETURN_IF_NOT_OK(list_shards(m, index, f));
    m->shards.stands = m->view;
    m->shards.hashes = m->hashes;
    m->shards.ranges = m->ranges;
    m->shards.state = parts;
    return fetched_shards_open(&m->shards, (const char *const *)m->names, m->name_count, f);
}

int fetched_model_open(struct fetched_model *m, const char *model, const char *parts,
                       const struct fetch_command *command, struct fail *f)
{
    *m = (struct fetched_model){.lock = -1};
    m->shards.command = *command;
    const int status = open_all(m, model, parts, f);
    if (status != QOBS_OK)
        fetched_model_close(m);
    return status;
}

void fetched_model_close(struct fetched_model *m)
{
    fetched_shards_close(&m->shards);
    for (size_t i = 0; i < m->name_count; i++)
        free(m->names[i]);
    free(m->names);
    free(m->root);
    free(m->view);
    free(m->hashes);
    free(m->ranges);
    free(m->shards.command.folder);
    if (m->lock >= 0)
        close(m->lock);
    *m = (struct fetched_model){.lock = -1};
}
