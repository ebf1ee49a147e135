/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Finds recorded tensors by name and remembers which were used. */
#include "activations/recordings.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/text.h"

static int add_file(struct recordings *r, const char *path, struct fail *f)
{
    const struct tensor_set *set;
    RETURN_IF_NOT_OK(tensor_files_open(&r->files, path, &set, f));
    struct recording *added = list_add(&r->items, &r->count, sizeof *added);
    if (added)
        *added = (struct recording){.set = set, .used = calloc(set->count + 1, sizeof *added->used)};
    return added && added->used ? 0 : fail_system(f, "%s: out of memory", path);
}

/* ---- Directories ------------------------------------------------------------------------------------------------- */

static int is_recording(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && ends_with(entry->d_name, ".safetensors");
}

/* Not alphasort, whose order is that of the locale. */
static int compare_entries(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* True for a path that tensor_files_open takes as one checkpoint. A directory without access counts as one, so that
 * tensor_files_open reports it. */
static bool is_checkpoint(const char *path, struct dirent ***entries, int *count)
{
    *count = scandir(path, entries, is_recording, compare_entries); /* -1 for a file */
    OWNED char *index = path_join(path, "model.safetensors.index.json"), *single = path_join(path, "model.safetensors");
    const bool found = !index || !single || access(index, F_OK) == 0 || access(single, F_OK) == 0;
    return *count <= 0 || found;
}

int recordings_add(struct recordings *r, const char *path, struct fail *f)
{
    struct dirent **entries = NULL;
    int count = 0;
    const bool is_one = is_checkpoint(path, &entries, &count);
    int result = is_one ? add_file(r, path, f) : 0;
    for (int i = 0; i < count; i++) {
        OWNED char *file = is_one || result != 0 ? NULL : path_join(path, entries[i]->d_name);
        if (file)
            result = add_file(r, file, f);
        else if (!is_one && result == 0)
            result = fail_system(f, "%s: out of memory", path);
        free(entries[i]);
    }
    free(entries);
    return result;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

int recordings_find(const struct recordings *r, const char *module, size_t length, const char *suffix,
                    const struct tensor_ref **found, struct fail *f)
{
    OWNED char *name = text_format("%.*s%s", (int)length, module, suffix);
    *found = NULL;
    if (!name)
        return fail_system(f, "out of memory for a name of %zu bytes", length + strlen(suffix));
    for (size_t i = 0; i < r->count && !*found; i++)
        *found = tensors_find(r->items[i].set, name);
    return 0;
}

const struct tensor_ref *recordings_batch(const struct recordings *r, size_t index, const struct tensor_ref *found)
{
    const struct recording *item = &r->items[index];
    const struct tensor_ref *batch = tensors_find(item->set, found->name);
    bool *const used = batch ? &item->used[batch - item->set->refs] : NULL;
    if (used && !*used) /* later calls may come from several threads */
        *used = true;
    return batch;
}

size_t recordings_unused(const struct recordings *r, const struct tensor_ref **first)
{
    size_t unused = 0;
    *first = NULL;
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->items[i].set->count; k++)
            if (!r->items[i].used[k] && unused++ == 0)
                *first = &r->items[i].set->refs[k];
    return unused;
}

void recordings_free(struct recordings *r)
{
    for (size_t i = 0; i < r->count; i++)
        free(r->items[i].used);
    free(r->items);
    tensor_files_close(&r->files);
    *r = (struct recordings){0};
}

int tensor_of_ref(const struct tensor_ref *ref, qobs_tensor *tensor, struct fail *f)
{
    *tensor = (qobs_tensor){.struct_size = sizeof *tensor,
                            .data = ref->data,
                            .dtype = dtype_in_library(ref->dtype),
                            .ndim = ref->ndim,
                            .shape = ref->shape,
                            .strides = ref->strides};
    return tensor->dtype ? 0
                         : fail(f, "%s: tensor '%s' has dtype %s, which cannot be observed", ref->file, ref->name,
                                dtype_name(ref->dtype));
}
