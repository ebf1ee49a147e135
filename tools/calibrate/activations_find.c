/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Matches recorded tensors to the modules of a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations.h"

static const char *const suffixes[BASES] = {NULL, ".input", ".output", ".q_states", ".k_states", ".v_states"};

/* Doubles the capacity if `count` is 0 or a power of two: the array is then full. */
static void *grow(void *items, size_t count, size_t size)
{
    return count & (count - 1) ? items : realloc(items, (count ? 2 * count : 1) * size);
}

int find_recorded_input(const struct recordings *r, const struct layers *layers, const char *module, size_t length,
                        size_t group, const struct tensor_ref **found, struct fail *f)
{
    int result = recordings_find(r, module, length, ".input", found, f);
    for (size_t i = 0; result == 0 && !*found && i < layers->count; i++)
        if (layers->items[i].group == group)
            result = recordings_find(r, layers->items[i].ref->name, layers->items[i].module, ".input", found, f);
    return result;
}

/* Sets t->stream to the stream of `found`. Adds the stream if `found` has none yet. */
static int find_or_add_stream(struct activations *a, const struct tensor_ref *found, enum base base, struct target *t)
{
    size_t *user_value = recordings_user_value(&a->recordings, found);
    if (*user_value == 0) {
        struct stream *grown = grow(a->streams, a->stream_count, sizeof *grown);
        if (!grown)
            return print_error(EXIT_SYSTEM, "no memory for %zu recorded activations", a->stream_count + 1);
        a->streams = grown;
        grown[a->stream_count++] = (struct stream){.found = found, .base = base, .features = -1};
        *user_value = a->stream_count;
        for (size_t i = 0; i < a->recordings.count; i++) {
            const struct tensor_ref *batch = recordings_batch(&a->recordings, i, found);
            a->bytes += batch ? batch->bytes : 0;
        }
    }
    t->stream = *user_value - 1;
    return EXIT_OK;
}

static int add_target(struct activations *a, const struct layers *layers, struct target t)
{
    const struct tensor_ref *found;
    struct fail f;
    const int result = t.base == BASE_INPUT
                           ? find_recorded_input(&a->recordings, layers, t.module, t.length, t.group, &found, &f)
                           : recordings_find(&a->recordings, t.module, t.length, suffixes[t.base], &found, &f);
    if (result != 0)
        return print_error(EXIT_SYSTEM, "%s", f.message);
    int code = EXIT_OK;
    t.stream = NOT_RECORDED;
    if (found)
        code = find_or_add_stream(a, found, t.base, &t);
    struct target *grown = code == EXIT_OK ? grow(a->targets, a->target_count, sizeof *grown) : NULL;
    if (!grown)
        return code == EXIT_OK ? print_error(EXIT_SYSTEM, "no memory for %zu modules", a->target_count + 1) : code;
    a->targets = grown;
    grown[a->target_count++] = t;
    return EXIT_OK;
}

/* The last dimension of an input has the size of the weight's columns, that of an output the size of its rows.
 * Leading dimensions of the weight are experts. */
static int add_layers(struct activations *a, const struct layers *layers, enum base base)
{
    int code = EXIT_OK;
    for (size_t i = 0; code == EXIT_OK && i < layers->count; i++) {
        const struct layer *l = &layers->items[i];
        code = add_target(
            a, layers, (struct target){.module = l->ref->name, .length = l->module, .base = base, .group = l->group});
        const size_t stream = code == EXIT_OK ? a->targets[a->target_count - 1].stream : NOT_RECORDED;
        if (stream == NOT_RECORDED)
            continue;
        const int64_t features = l->ref->shape[l->ref->ndim - (base == BASE_INPUT ? 1 : 2)];
        struct stream *s = &a->streams[stream];
        if (s->features >= 0 && s->features != features)
            code = print_error(EXIT_USAGE,
                               "%s: tensor '%s' is to be the input of '%s' with %lld features and of '%s' with %lld",
                               s->found->file, s->found->name, s->features_of, (long long)s->features, l->ref->name,
                               (long long)features);
        s->features = features;
        s->features_of = l->ref->name;
    }
    return code;
}

/* Returns 1 if `name` is the first of the weights that mark a module as attention. *length is then the length of the
 * module's name. Returns -1 if there is no memory. */
static int is_attention(const struct tensor_set *model, const char *name, size_t *length)
{
    /* see compressed_tensors/quantization/lifecycle/initialize.py */
    static const char *const weights[] = {".k_proj.weight", ".v_proj.weight", ".qkv_proj.weight", ".kv_b_proj.weight"};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        const size_t total = strlen(name), ending = strlen(weights[i]);
        if (total <= ending || strcmp(name + total - ending, weights[i]) != 0)
            continue;
        *length = total - ending;
        for (size_t k = 0; k < i; k++) {
            char *earlier = join(name, *length, weights[k]);
            if (!earlier)
                return -1;
            const bool exists = tensors_find(model, earlier);
            free(earlier);
            if (exists)
                return 0;
        }
        return 1;
    }
    return 0;
}

static int add_attention(struct activations *a, const struct tensor_set *model, const struct selection *selection,
                         enum base base)
{
    int code = EXIT_OK;
    for (size_t i = 0; code == EXIT_OK && i < tensors_count(model); i++) {
        const char *name = tensors_at(model, i)->name;
        size_t length;
        const int attention = is_attention(model, name, &length);
        if (attention < 0)
            return print_error(EXIT_SYSTEM, "no memory for the name of '%s'", name);
        if (attention && !selection_ignores(selection, name, length))
            code = add_target(a, NULL, (struct target){.module = name, .length = length, .base = base});
    }
    return code;
}

int activations_find(struct activations *a, const struct bases *bases, const struct layers *layers,
                     const struct tensor_set *model, const struct selection *selection)
{
    int code = EXIT_OK;
    for (enum base b = BASE_INPUT; code == EXIT_OK && b < BASES; b++) {
        const struct base_observer *o = &bases->observers[b];
        const size_t before = a->target_count, streams = a->stream_count;
        if (o->needs < NEEDS_GLOBAL_SCALE)
            continue;
        code = b <= BASE_OUTPUT ? add_layers(a, layers, b) : add_attention(a, model, selection, b);
        if (code != EXIT_OK || a->stream_count > streams)
            continue;
        if (b >= BASE_K && !o->requested) /* the default applies only if something is recorded */
            a->target_count = before;
        else
            code = print_error(EXIT_USAGE,
                               "--activations: nothing is recorded as <module>%s for any of %zu modules "
                               "(--preset %s=none leaves it out)",
                               suffixes[b], a->target_count - before, base_names[b]);
    }
    return code;
}
