/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Lists directories; files are mapped only while they are loaded. */
#include "activations/saved_states.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/file_kind.h"
#include "files/json.h"
#include "files/mapped.h"
#include "files/status.h"
#include "files/text.h"

static const char extension[] = ".qobs";

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

static int add(struct saved_states *s, const char *name, size_t length, const char *directory, const char *file,
               struct fail *f)
{
    struct saved_state *item = list_add(&s->items, &s->count, sizeof *item);
    if (item)
        *item = (struct saved_state){strndup(name, length), path_join(directory, file), s->directories};
    return item && item->name && item->path ? QOBS_OK : NO_MEMORY(f, "the states");
}

/* Adds the states of an index {"states": {"NAME": "FILE"}}. */
static int add_index(struct saved_states *s, const char *directory, const char *index, struct fail *f)
{
    OWNED_JSON json_object *json;
    RETURN_IF_NOT_OK(json_read(&json, index, "list of states", f));
    const json_object *list = json_get(json, "states");
    if (!json_is_object(list))
        return INVALID(f, "%s: has no object 'states'", index);
    json_each(item, list)
    {
        const char *file = json_text(item.value);
        if (!file || !*file || strchr(file, '/'))
            return INVALID(f, "%s: '%.100s' must name a file of the directory", index, item.key);
        RETURN_IF_NOT_OK(add(s, item.key, strlen(item.key), directory, file, f));
    }
    return QOBS_OK;
}

/* Adds every file NAME.qobs. */
static int add_files(struct saved_states *s, const char *directory, struct fail *f)
{
    OWNED_DIRECTORY DIR *d = opendir(directory);
    if (!d)
        return INVALID(f, "%s: cannot be opened as a directory: %s", directory, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(d));) {
        const size_t length = strlen(entry->d_name), tail = sizeof extension - 1;
        if (length > tail && ends_with(entry->d_name, extension))
            RETURN_IF_NOT_OK(add(s, entry->d_name, length - tail, directory, entry->d_name, f));
    }
    return QOBS_OK;
}

static int compare_states(const void *a, const void *b)
{
    const struct saved_state *s = a, *t = b;
    const int names = strcmp(s->name, t->name);
    return names != 0 ? names : ORDER(s->directory, t->directory);
}

int saved_states_add(struct saved_states *s, const char *directory, struct fail *f)
{
    const size_t before = s->count;
    OWNED char *index = path_join(directory, "states.json");
    if (!index)
        return NO_MEMORY(f, "the states");
    const bool indexed = access(index, F_OK) == 0;
    int status = indexed ? add_index(s, directory, index, f) : add_files(s, directory, f);
    if (status == QOBS_OK && s->count == before)
        status = INVALID(f, "%s: holds no states; files NAME%s or states.json are needed", directory, extension);
    s->directories++;
    if (s->count > 0)
        qsort(s->items, s->count, sizeof *s->items, compare_states);
    for (size_t i = 1; status == QOBS_OK && i < s->count; i++)
        if (compare_states(&s->items[i - 1], &s->items[i]) == 0)
            status = INVALID(f, "%s: '%.200s' is there twice", directory, s->items[i].name);
    return status;
}

/* ---- States ------------------------------------------------------------------------------------------------------ */

/* Compares a name with <module><suffix>. */
static int compare_name(const char *name, const char *module, size_t length, const char *suffix)
{
    const int head = strncmp(name, module, length);
    return head != 0 ? head : strcmp(name + length, suffix);
}

const struct saved_state *saved_states_find(const struct saved_states *s, const char *module, size_t length,
                                            const char *suffix, size_t *count)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_name(s->items[middle].name, module, length, suffix) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (*count = 0; low + *count < s->count;)
        if (compare_name(s->items[low + *count].name, module, length, suffix) == 0)
            ++*count;
        else
            break;
    return *count > 0 ? &s->items[low] : NULL;
}

static int load(const struct saved_state *state, bool importance_alone, qobs_observer **observer, struct fail *f)
{
    RELEASED_BY(mapped_close) struct mapped map;
    qobs_error error = {0};
    RETURN_IF_NOT_OK(mapped_open_whole(&map, state->path, f));
    if (map.size < 4 || memcmp(map.data, "qobs", 4) != 0)
        RETURN_IF_NOT_OK(file_kind_refuse(state->path, map.data, map.size, f));
    if (qobs_observer_load(observer, map.data, map.size, NULL, &error) != QOBS_OK)
        return report_failure(f, error.status, "%.300s: %s", state->path, saved_state_fault(&error));
    if (importance_alone)
        qobs_observer_reset_batches(*observer);
    return QOBS_OK;
}

const char *saved_state_fault(const qobs_error *error)
{
    static const char place[] = "buffer: ";
    const size_t length = sizeof place - 1;
    return error->message + (strncmp(error->message, place, length) == 0 ? length : 0);
}

int merge_failure(const char *path, const char *what, const qobs_error *error, struct fail *f)
{
    static const char place[] = "others[0]: ";
    const size_t length = sizeof place - 1;
    return report_failure(f, error->status, "%.300s: does not merge with %.300s: %s", path, what,
                          error->message + (strncmp(error->message, place, length) == 0 ? length : 0));
}

static int load_all(const struct saved_state *first, size_t count, bool importance_alone, qobs_observer **observer,
                    struct fail *f)
{
    qobs_error error = {0};
    RETURN_IF_NOT_OK(load(first, importance_alone, observer, f));
    for (size_t i = 1; i < count; i++) {
        OWNED_OBSERVER qobs_observer *other = NULL;
        RETURN_IF_NOT_OK(load(&first[i], importance_alone, &other, f));
        if (qobs_observer_merge(*observer, (const qobs_observer *const *)&other, 1, &error) != QOBS_OK)
            return merge_failure(first[i].path, first->path, &error, f);
    }
    return QOBS_OK;
}

int saved_states_load(const struct saved_state *first, size_t count, qobs_observer **observer, struct fail *f)
{
    return load_all(first, count, false, observer, f);
}

int saved_importance_load(const struct saved_state *first, size_t count, qobs_observer **observer, struct fail *f)
{
    return load_all(first, count, true, observer, f);
}

bool saved_states_of_activations(const struct saved_states *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (!ends_with(s->items[i].name, ".importance") && !ends_with(s->items[i].name, SENSITIVITY_A) &&
            !ends_with(s->items[i].name, SENSITIVITY_B))
            return true;
    return false;
}

void saved_states_free(struct saved_states *s)
{
    named_free(s->items, s->count, sizeof *s->items, 2);
    *s = (struct saved_states){0};
}
