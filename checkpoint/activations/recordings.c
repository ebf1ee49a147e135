/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Finds recorded tensors by name and remembers which were used. */
#include "activations/recordings.h"

#include <stdlib.h>
#include <string.h>

int recordings_add(struct recordings *r, const char *path, struct fail *f)
{
    const struct tensor_set *set;
    if (tensor_files_open(&r->files, path, &set, f) != 0)
        return -1;
    struct recording *grown = realloc(r->items, (r->count + 1) * sizeof *grown);
    if (grown)
        r->items = grown;
    bool *used = calloc(tensors_count(set) + 1, sizeof *used);
    size_t *user_values = calloc(tensors_count(set) + 1, sizeof *user_values);
    if (!grown || !used || !user_values) {
        free(used);
        free(user_values);
        return fail(f, "%s: out of memory", path);
    }
    grown[r->count++] = (struct recording){.set = set, .used = used, .user_values = user_values};
    return 0;
}

int recordings_find(const struct recordings *r, const char *module, size_t length, const char *suffix,
                    const struct tensor_ref **found, struct fail *f)
{
    const size_t ending = strlen(suffix);
    char *name = malloc(length + ending + 1);
    *found = NULL;
    if (!name)
        return fail(f, "out of memory for a name of %zu bytes", length + ending);
    memcpy(name, module, length);
    memcpy(name + length, suffix, ending + 1);
    for (size_t i = 0; i < r->count && !*found; i++)
        *found = tensors_find(r->items[i].set, name);
    free(name);
    return 0;
}

size_t *recordings_user_value(const struct recordings *r, const struct tensor_ref *found)
{
    size_t i = 0;
    while (found < r->items[i].set->refs || found >= r->items[i].set->refs + r->items[i].set->count)
        i++;
    return &r->items[i].user_values[found - r->items[i].set->refs];
}

const struct tensor_ref *recordings_batch(const struct recordings *r, size_t index, const struct tensor_ref *found)
{
    const struct recording *item = &r->items[index];
    const struct tensor_ref *batch = tensors_find(item->set, found->name);
    if (batch)
        item->used[batch - item->set->refs] = true;
    return batch;
}

size_t recordings_unused(const struct recordings *r, const struct tensor_ref **first)
{
    size_t unused = 0;
    *first = NULL;
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < tensors_count(r->items[i].set); k++)
            if (!r->items[i].used[k] && unused++ == 0)
                *first = tensors_at(r->items[i].set, k);
    return unused;
}

void recordings_free(struct recordings *r)
{
    for (size_t i = 0; i < r->count; i++) {
        free(r->items[i].used);
        free(r->items[i].user_values);
    }
    free(r->items);
    tensor_files_close(&r->files);
    *r = (struct recordings){0};
}

int tensor_of_ref(const struct tensor_ref *ref, qobs_tensor *tensor, struct fail *f)
{
    for (int dtype = QOBS_F32; qobs_dtype_name((qobs_dtype)dtype); dtype++)
        if (strcmp(qobs_dtype_name((qobs_dtype)dtype), ref->dtype) == 0) {
            *tensor = (qobs_tensor){.struct_size = sizeof *tensor,
                                    .data = ref->data,
                                    .dtype = (qobs_dtype)dtype,
                                    .ndim = ref->ndim,
                                    .shape = ref->shape,
                                    .strides = ref->strides};
            return 0;
        }
    return fail(f, "%s: tensor '%s' has dtype %s, which cannot be observed", ref->file, ref->name, ref->dtype);
}
