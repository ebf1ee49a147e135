/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Finds recorded tensors by name and remembers which were used. */
#include "recordings.h"

#include <stdlib.h>
#include <string.h>

#include "scheme.h"

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

/* Finds the tensor named <before><middle><after>. */
static int find(const struct recordings *r, const char *before, size_t length, const char *middle, const char *after,
                const struct tensor_ref **found, struct fail *f)
{
    const size_t inner = strlen(middle), ending = strlen(after);
    char *name = malloc(length + inner + ending + 1);
    *found = NULL;
    if (!name)
        return fail(f, "out of memory for a name of %zu bytes", length + inner + ending);
    memcpy(name, before, length);
    memcpy(name + length, middle, inner); /* NOLINT(bugprone-not-null-terminated-result): the next call ends it */
    memcpy(name + length + inner, after, ending + 1);
    for (size_t i = 0; i < r->count && !*found; i++)
        *found = tensors_find(r->items[i].set, name);
    free(name);
    return 0;
}

int recordings_find(const struct recordings *r, const char *module, size_t length, const char *suffix,
                    const struct tensor_ref **found, struct fail *f)
{
    return find(r, module, length, "", suffix, found, f);
}

int recordings_find_input(const struct recordings *r, const char *module, size_t length,
                          const struct tensor_ref **found, struct fail *f)
{
    int result = find(r, module, length, "", ".input", found, f);
    size_t parent = length;
    while (parent > 0 && module[parent - 1] != '.')
        parent--;
    const int set = scheme_fused_set(module + parent, length - parent);
    const char *sibling;
    for (int i = 0; result == 0 && !*found && (sibling = scheme_fused_member(set, i)); i++)
        result = find(r, module, parent, sibling, ".input", found, f);
    return result;
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
