/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Selects the layers by name and dtype, plans their slices and groups the fused ones. */
#include "layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations/recordings.h"
#include "model/fused.h"
#include "qobs/plan.h"
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

static int group(struct layers *layers)
{
    const char **names = malloc((layers->count + 1) * sizeof *names);
    size_t *set = malloc((layers->count + 1) * sizeof *set), *first = malloc((layers->count + 1) * sizeof *first);
    struct fail f = {.message = "no memory for the layers"};
    for (size_t i = 0; names && first && i < layers->count; i++) {
        names[i] = layers->items[i].ref->name;
        first[i] = SIZE_MAX;
    }
    const bool found = names && set && first && fused_sets(names, layers->count, FUSED_VLLM, NULL, set, &f) == 0;
    for (size_t i = 0; found && i < layers->count; i++) {
        first[set[i]] = first[set[i]] == SIZE_MAX ? i : first[set[i]];
        layers->items[i].group = first[set[i]];
    }
    free(names);
    free(set);
    free(first);
    return found ? EXIT_OK : print_error(EXIT_SYSTEM, "%s", f.message);
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
