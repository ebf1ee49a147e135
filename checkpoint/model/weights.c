/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Lists of weights that grow and are searched. */
#include "model/weights.h"

#include <stdlib.h>
#include <string.h>

#include "model/names.h"

int weight_list_append(struct weight_list *list, struct weight w, char *name, struct fail *f)
{
    struct weights *all = list->weights;
    if (all->count == list->capacity) {
        const size_t capacity = 2 * list->capacity + 64;
        struct weight *grown = realloc(all->items, capacity * sizeof *grown);
        if (!grown || !name) {
            all->items = grown ? grown : all->items;
            free(name);
            return NO_MEMORY(f, "the list of tensors");
        }
        all->items = grown;
        list->capacity = capacity;
    }
    if (!name)
        return NO_MEMORY(f, "the list of tensors");
    w.name = name;
    w.module = module_length(name);
    all->items[all->count++] = w;
    return QOBS_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct weight *)a)->name, ((const struct weight *)b)->name);
}

const struct weight *weights_find(const struct weights *weights, const char *name)
{
    const struct weight key = {.name = (char *)(uintptr_t)name};
    return bsearch(&key, weights->items, weights->count, sizeof key, compare_names);
}

void weights_free(struct weights *weights)
{
    for (size_t i = 0; i < weights->count; i++)
        free(weights->items[i].name);
    free(weights->items);
    *weights = (struct weights){0};
}
