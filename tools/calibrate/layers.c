/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Selects the layers by name and dtype, plans their slices and groups the fused ones. */
#include "layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations/recordings.h"
#include "qobs/plan.h"
#include "scheme.h"
#include "stored_scale.h"

/* ---- Shape ------------------------------------------------------------------------------------------------------- */

static int64_t block_height(const qobs_config *config)
{
    char text[64];
    const bool known = qobs_config_get(config, "block_structure", text, sizeof text, NULL) == QOBS_OK && text[0] == '[';
    return known ? strtoll(text + 1, NULL, 10) : 1;
}

/* Finds the shape and dtypes of the scale of a weight, and how the weight can be sliced. Fails if the settings do
 * not fit the weight. */
static int plan_layer(struct layer *l, const struct base_observer *weights, struct fail *f)
{
    const qobs_config *config = weights->config;
    qobs_plan *plan;
    qobs_error error;
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    if (qobs_plan_create(&plan, config, &l->tensor, NULL, NULL, &error) != QOBS_OK ||
        qobs_config_qparam_dtypes(config, l->tensor.dtype, &l->scale_dtype, &l->zero_point_dtype, &error) != QOBS_OK)
        return fail(f, "%s: tensor '%s': %s", l->ref->file, l->ref->name, error.message);
    l->ndim = qobs_plan_shape(plan, shape, sizeof shape) - 2;
    qobs_plan_destroy(plan);
    memcpy(l->shape, shape + 1, (size_t)l->ndim * sizeof *shape);
    l->qparams = 1;
    for (int d = 0; d < l->ndim; d++)
        l->qparams *= l->shape[d];
    /* If the first dimension of the scale follows that of the weight, rows (or rows of blocks) are independent. */
    const int64_t rows = l->ref->shape[0];
    l->sliced = l->ndim > 1 && l->shape[0] > 0;
    l->rows_per_unit = !l->sliced ? rows : l->shape[0] == rows ? 1 : block_height(config);
    l->qparams_per_unit = l->sliced ? l->qparams / l->shape[0] : l->qparams;
    if (weights->global_scales)
        l->scale_dtype = QOBS_F32;
    l->stored_scale = stored_dtype(config, l->scale_dtype);
    l->min_scale = INFINITY;
    l->counts.struct_size = sizeof l->counts;
    return 0;
}

/* ---- Fused layers ------------------------------------------------------------------------------------------------ */

struct member {
    struct layer *layer;
    size_t parent; /* length of the module's name before its last component */
    int set;
};

static struct member member_of(struct layer *l)
{
    struct member m = {.layer = l, .parent = l->module};
    while (m.parent > 0 && l->ref->name[m.parent - 1] != '.')
        m.parent--;
    m.set = scheme_fused_set(l->ref->name + m.parent, l->module - m.parent);
    return m;
}

/* Orders members of the same set under the same parent next to each other. */
static int compare_groups(const struct member *a, const struct member *b)
{
    const size_t shorter = a->parent < b->parent ? a->parent : b->parent;
    const int order = memcmp(a->layer->ref->name, b->layer->ref->name, shorter);
    if (order != 0 || a->parent != b->parent)
        return order != 0 ? order : a->parent < b->parent ? -1 : 1;
    return (a->set > b->set) - (a->set < b->set);
}

static int compare_members(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    const int order = compare_groups(a, b);
    return order ? order : (a->layer > b->layer) - (a->layer < b->layer);
}

static int group(struct layers *layers)
{
    struct member *members = malloc((layers->count + 1) * sizeof *members);
    if (!members)
        return print_error(EXIT_SYSTEM, "no memory for %zu layers", layers->count);
    size_t n = 0;
    for (size_t i = 0; i < layers->count; i++) {
        layers->items[i].group = i;
        members[n] = member_of(&layers->items[i]);
        n += members[n].set >= 0;
    }
    qsort(members, n, sizeof *members, compare_members);
    for (size_t i = 1; i < n; i++)
        if (compare_groups(&members[i - 1], &members[i]) == 0)
            members[i].layer->group = members[i - 1].layer->group;
    free(members);
    return EXIT_OK;
}

/* ---- Selection --------------------------------------------------------------------------------------------------- */

int layers_choose(struct layers *layers, const struct tensor_set *set, const struct selection *selection,
                  const struct base_observer *weights)
{
    struct fail f;
    *layers = (struct layers){.items = calloc(tensors_count(set) + 1, sizeof *layers->items)};
    if (!layers->items)
        return print_error(EXIT_SYSTEM, "no memory for %zu layers", tensors_count(set));
    for (size_t i = 0; i < tensors_count(set); i++) {
        struct layer l = {.ref = tensors_at(set, i)};
        if (!selection_includes(selection, l.ref, &l.module) || l.ref->bytes == 0)
            continue;
        if (tensor_of_ref(l.ref, &l.tensor, &f) != 0 || l.tensor.dtype > QOBS_F64) {
            layers->skipped++;
            continue;
        }
        if (plan_layer(&l, weights, &f) != 0)
            return print_failure(&f, "");
        layers->bytes += l.ref->bytes;
        layers->items[layers->count++] = l;
    }
    if (layers->count == 0) {
        const char *target = selection->first_target;
        char hint[256] = "";
        if (target)
            snprintf(hint, sizeof hint, " (--targets matches from the start of a name: try '.*%.100s')", target);
        return print_error(EXIT_USAGE, "%s: holds %zu tensors, but none that is selected and can be observed%s",
                           set->path, tensors_count(set), hint);
    }
    return group(layers);
}

void layers_free(struct layers *layers)
{
    for (size_t i = 0; i < layers->count; i++)
        free(layers->items[i].candidates);
    free(layers->items);
    *layers = (struct layers){0};
}
