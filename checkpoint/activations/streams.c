/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Needs are matched to sources by name; a need without a source looks at the other members of its fused set. */
#include "activations/streams.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/experts.h"
#include "model/layer_words.h"
#include "files/mapped.h"
#include "files/text.h"
#include "files/status.h"

/* ---- Sources ----------------------------------------------------------------------------------------------------- */

struct source {
    const struct tensor_ref *recorded;
    const struct saved_state *states;
    size_t state_count;
};

static bool is_found(const struct source *s) { return s->recorded || s->states; }

/* Returns the bytes of all batches of a recording, which count as used. */
static uint64_t recorded_bytes(const struct activation_sources *from, const struct tensor_ref *recorded)
{
    uint64_t bytes = 0;
    for (size_t k = 0; k < from->recordings.count && recorded; k++) {
        const struct tensor_ref *batch = recordings_batch(&from->recordings, k, recorded);
        bytes += batch ? batch->bytes : 0;
    }
    return bytes;
}

static int find_source(struct source *source, const struct activation_sources *from, const struct activation_need *n,
                       struct fail *f)
{
    const char *suffix = activation_suffixes[n->kind];
    *source = (struct source){0};
    source->states = saved_states_find(&from->states, n->module, n->length, suffix, &source->state_count);
    if (!source->states)
        RETURN_IF_NOT_OK(recordings_find(&from->recordings, n->module, n->length, suffix, &source->recorded, f));
    if (recorded_bytes(from, source->recorded) == 0) /* an expert may be recorded without a token */
        source->recorded = NULL;
    return QOBS_OK;
}

/* Gives inputs without a source that of another member of their set. */
static void share_sources(struct source *sources, const struct activation_needs *needs, const struct weights *weights,
                          size_t *member)
{
    for (size_t i = 0; i < needs->count; i++)
        member[weights->items[needs->items[i].weight].set] = SIZE_MAX;
    for (size_t i = 0; i < needs->count; i++)
        if (needs->items[i].kind == ACTIVATION_INPUT && is_found(&sources[i]))
            member[weights->items[needs->items[i].weight].set] = i;
    for (size_t i = 0; i < needs->count; i++) {
        const size_t other = member[weights->items[needs->items[i].weight].set];
        if (needs->items[i].kind == ACTIVATION_INPUT && !is_found(&sources[i]) && other != SIZE_MAX)
            sources[i] = sources[other];
    }
}

static bool is_expert(const struct activation_need *n)
{
    size_t number;
    return experts_layer(n->module, n->length, &number) > 0;
}

/* Fails if experts have no source, with a list such as "'model.layers.0.mlp.experts': 3 5". */
static int report_experts(const struct source *sources, const struct activation_needs *needs, struct fail *f)
{
    char list[320] = "";
    const struct activation_need *last = NULL;
    size_t used = 0, number, last_number = 0, last_layer = 0, count = 0;
    for (size_t i = 0; i < needs->count; i++) {
        const struct activation_need *n = &needs->items[i];
        const size_t layer = is_found(&sources[i]) ? 0 : experts_layer(n->module, n->length, &number);
        if (layer == 0 || (last && number == last_number && memcmp(last->module, n->module, number) == 0))
            continue; /* another projection of the same expert */
        if (!last || layer != last_layer || memcmp(last->module, n->module, layer) != 0)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s'%.*s':", count > 0 ? ", " : "",
                                     layer > 120 ? 120 : (int)layer, n->module);
        if (used < sizeof list - 16)
            used += (size_t)snprintf(list + used, sizeof list - used, " %.*s", (int)(number - layer - 1),
                                     n->module + layer + 1);
        if (used >= sizeof list - 140) /* too short for another layer */
            used = sizeof list - 1;
        last = n;
        last_number = number;
        last_layer = layer;
        count++;
    }
    if (count == 0)
        return QOBS_OK;
    return INVALID(f,
                   "activations: no token reached %zu experts, %s; --fill-experts max or median gives them a scale of "
                   "others of their layer",
                   count, list);
}

/* Says how to leave out the modules without a source; attention has no entry, and all modules are no way out. */
static const char *way_out(char *text, size_t size, const struct source *sources, const struct activation_needs *needs,
                           const struct weights *weights)
{
    struct layer_words words;
    OWNED bool *marked = calloc(weights->count + 1, sizeof *marked);
    size_t count = 0, missing = 0;
    for (size_t i = 0; i < needs->count; i++)
        if (!is_found(&sources[i])) {
            missing++;
            if (marked && needs->items[i].kind <= ACTIVATION_OUTPUT && ++count)
                marked[needs->items[i].weight] = true;
        }
    if (count == 0 || missing == needs->count)
        return "ignore leaves modules out";
    layer_words_make(&words, weights, marked);
    snprintf(text, size, "--ignore '%s' leaves %s out", words.entry, IT_OR_THEM(&words));
    return text;
}

/* Fails for modules without a source. Experts may be filled if there is any. */
static int report_missing(const struct source *sources, const struct activation_sources *from,
                          const struct activation_needs *needs, const struct weights *weights, qobs_fill_experts fill,
                          struct fail *f)
{
    const struct activation_need *first = NULL;
    size_t missing = 0, experts = 0;
    char way[160];
    for (size_t i = 0; i < needs->count; i++) {
        const bool found = is_found(&sources[i]), expert = is_expert(&needs->items[i]);
        if (!found && !expert && !first)
            first = &needs->items[i];
        missing += !found;
        experts += !found && expert;
    }
    if (missing == experts && missing < needs->count)
        return fill == QOBS_FILL_REFUSE ? report_experts(sources, needs, f) : QOBS_OK;
    first = first ? first : &needs->items[0];
    return INVALID(f, "%s: nothing is recorded as '%.*s%s', and for %zu of %zu scales in all; %s",
                   from->recordings.count > 0 ? "activations" : "states",
                   first->length > 200 ? 200 : (int)first->length, first->module, activation_suffixes[first->kind],
                   missing, needs->count, way_out(way, sizeof way, sources, needs, weights));
}

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

struct stream_entry {
    const void *source;
    const struct activation_need *need;
    size_t index;
};

static int compare_entries(const void *a, const void *b)
{
    const struct stream_entry *s = a, *t = b;
    return s->source != t->source           ? ORDER(s->source, t->source)
           : s->need->args != t->need->args ? ORDER(s->need->args, t->need->args)
           : s->need->kind != t->need->kind ? ORDER(s->need->kind, t->need->kind)
                                            : ORDER(s->index, t->index);
}

/* Needs with one source and one scheme share a stream. */
static void make_streams(struct activation_streams *s, struct stream_entry *entries, const struct source *sources,
                         const struct activation_needs *needs)
{
    size_t count = 0;
    for (size_t i = 0; i < needs->count; i++) {
        s->of_need[i] = NO_STREAM;
        if (is_found(&sources[i]))
            entries[count++] = (struct stream_entry){sources[i].states ? (const void *)sources[i].states
                                                                       : (const void *)sources[i].recorded,
                                                     &needs->items[i], i};
    }
    qsort(entries, count, sizeof *entries, compare_entries);
    for (size_t i = 0; i < count; i++) {
        const struct stream_entry *e = &entries[i];
        const bool same = i > 0 && e->source == e[-1].source && e->need->args == e[-1].need->args &&
                          e->need->kind == e[-1].need->kind;
        if (!same) {
            const struct source *from = &sources[e->index];
            s->items[s->count++] = (struct activation_stream){
                .need = e->need, .recorded = from->recorded, .states = from->states, .state_count = from->state_count};
        }
        s->of_need[e->index] = s->count - 1;
    }
}

int activation_streams_find(struct activation_streams *s, const struct activation_sources *from,
                            const struct activation_needs *needs, const struct weights *weights, qobs_fill_experts fill,
                            bool partial, struct fail *f)
{
    OWNED struct source *sources = malloc((needs->count + 1) * sizeof *sources);
    OWNED struct stream_entry *entries = malloc((needs->count + 1) * sizeof *entries);
    OWNED size_t *member = malloc((weights->count + 1) * sizeof *member);
    *s = (struct activation_streams){.items = calloc(needs->count + 1, sizeof *s->items),
                                     .of_need = malloc((needs->count + 1) * sizeof *s->of_need)};
    if (!sources || !entries || !member || !s->items || !s->of_need)
        return NO_MEMORY(f, "the activations");
    for (size_t i = 0; i < needs->count; i++)
        RETURN_IF_NOT_OK(find_source(&sources[i], from, &needs->items[i], f));
    share_sources(sources, needs, weights, member);
    if (!partial)
        RETURN_IF_NOT_OK(report_missing(sources, from, needs, weights, fill, f));
    make_streams(s, entries, sources, needs);
    for (size_t i = 0; i < s->count; i++)
        s->bytes += recorded_bytes(from, s->items[i].recorded);
    return QOBS_OK;
}

void activation_streams_free(struct activation_streams *s)
{
    for (size_t i = 0; i < s->count; i++)
        qobs_observer_destroy(s->items[i].observer);
    free(s->items);
    free(s->of_need);
    *s = (struct activation_streams){0};
}

/* ---- Observation ------------------------------------------------------------------------------------------------- */

int activation_config(qobs_config **config, const struct activation_need *n, struct fail *f)
{
    char settings[900], text[1100];
    qobs_error error = {0};
    const char *observer = n->args->observer ? n->args->observer : "minmax";
    RETURN_IF_NOT_OK(quant_args_settings(n->args, settings, sizeof settings, f));
    snprintf(text, sizeof text, "llmc.%.80s base_name=%s %s%s", observer, activation_bases[n->kind], settings,
             n->args->dynamic == QUANT_LOCAL ? " dynamic=local" : "");
    if (qobs_config_parse(config, text, NULL, &error) == QOBS_OK && qobs_config_check(*config, &error) == QOBS_OK)
        return QOBS_OK;
    return report_failure(f, error.status, "%s activations: %s", activation_bases[n->kind], error.message);
}

/* A state serves if it was observed under the scheme's own settings. */
static int check_state(const struct activation_stream *s, const qobs_config *needed, struct fail *f)
{
    static const char *const keys[] = {"num_bits", "type", "symmetric", "strategy", "group_size", "scale_dtype"};
    const qobs_config *config = qobs_observer_config(s->observer);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char has[128], needs[128];
        if (qobs_config_get(needed, keys[i], needs, sizeof needs, NULL) != QOBS_OK)
            continue;
        if (qobs_config_get(config, keys[i], has, sizeof has, NULL) != QOBS_OK)
            snprintf(has, sizeof has, "absent");
        if (strcmp(has, needs) != 0)
            return INVALID(f, "%.300s: was observed with %s %s; the scheme needs %s", s->states->path, keys[i], has,
                           needs);
    }
    return QOBS_OK;
}

static int observe_batch(struct activation_stream *s, const struct tensor_ref *batch, struct fail *f)
{
    const int64_t features = s->need->features, last = batch->ndim > 0 ? batch->shape[batch->ndim - 1] : 0;
    qobs_error error = {0};
    qobs_tensor tensor;
    RETURN_IF_NOT_OK(tensor_of_ref(batch, &tensor, f));
    if (features >= 0 && (batch->ndim < 2 || last != features))
        return INVALID(f,
                       "%.200s: tensor '%.200s' has shape %s; '%.*s' needs two dimensions and more, the last of %lld",
                       batch->file, batch->name, SHAPE_WORDS(batch->ndim, batch->shape),
                       s->need->length > 200 ? 200 : (int)s->need->length, s->need->module, (long long)features);
    RETURN_IF_NOT_OK(mapped_borrow(batch->data, (size_t)batch->bytes, f));
    const int status = qobs_observer_observe(s->observer, &tensor, NULL, &error);
    mapped_release(batch->data, (size_t)batch->bytes);
    return status == QOBS_OK
               ? QOBS_OK
               : report_failure(f, status, "%.200s: tensor '%.200s': %s", batch->file, batch->name, error.message);
}

struct stream_observation {
    struct activation_streams *streams;
    const struct activation_sources *from;
    const struct activation_progress *progress;
    atomic_bool stopped;
};

static int observe_recorded(struct stream_observation *o, struct activation_stream *s)
{
    OWNED_CONFIG qobs_config *config = NULL;
    qobs_error error = {0};
    RETURN_IF_NOT_OK(activation_config(&config, s->need, &s->failure));
    int status = qobs_observer_create(&s->observer, config, NULL, &error);
    if (status != QOBS_OK)
        return report_failure(&s->failure, status, "%s activations: %s", activation_bases[s->need->kind],
                              error.message);
    for (size_t i = 0; status == QOBS_OK && i < o->from->recordings.count; i++) {
        const struct tensor_ref *batch = recordings_batch(&o->from->recordings, i, s->recorded);
        if (!batch || o->stopped)
            continue;
        status = observe_batch(s, batch, &s->failure);
        if (o->progress->add(o->progress->context, batch->bytes) != 0)
            o->stopped = true;
    }
    return status;
}

static void observe_stream(void *argument, size_t index)
{
    struct stream_observation *o = argument;
    struct activation_stream *s = &o->streams->items[index];
    if (s->recorded && !o->stopped)
        s->status = observe_recorded(o, s);
}

/* The scales of a state are those of the module's activations, whose number of rows does not matter. */
static int check_count(const struct activation_stream *s, const qobs_config *needed, struct fail *f)
{
    const struct activation_need *n = s->need;
    const bool one = n->args->strategy == QUANT_TENSOR;
    const int64_t shape[] = {1, n->features};
    const qobs_tensor value = {.struct_size = sizeof value, .dtype = QOBS_F32, .ndim = 2, .shape = shape};
    qobs_qparam_layout layout = {.struct_size = sizeof layout, .count = 1};
    qobs_result scale = {.struct_size = sizeof scale};
    qobs_error error = {0};
    if (n->args->dynamic != QUANT_STATIC || (n->features < 0 && !one))
        return QOBS_OK;
    if ((!one && qobs_config_qparam_layout(needed, &value, NULL, &layout, &error) != QOBS_OK) ||
        qobs_observer_result_find(s->observer, "scale", &scale, &error) != QOBS_OK)
        return report_failure(f, error.status, "%.300s: %s", s->states->path, error.message);
    const size_t count = scale.size / qobs_dtype_size(scale.dtype);
    return count == layout.count ? QOBS_OK
                                 : INVALID(f, "%.300s: has %zu scales; '%.*s' needs %zu", s->states->path, count,
                                           n->length > 200 ? 200 : (int)n->length, n->module, layout.count);
}

static int load_state(struct activation_stream *s, struct fail *f)
{
    OWNED_CONFIG qobs_config *needed = NULL;
    RETURN_IF_NOT_OK(saved_states_load(s->states, s->state_count, &s->observer, f));
    RETURN_IF_NOT_OK(activation_config(&needed, s->need, f));
    RETURN_IF_NOT_OK(check_state(s, needed, f));
    return check_count(s, needed, f);
}

int activation_streams_observe(struct activation_streams *s, const struct activation_sources *from,
                               const qobs_runtime *runtime, const struct activation_progress *progress, struct fail *f)
{
    struct stream_observation o = {.streams = s, .from = from, .progress = progress};
    for (size_t i = 0; i < s->count; i++)
        if (s->items[i].states)
            RETURN_IF_NOT_OK(load_state(&s->items[i], f));
    run_tasks(runtime, observe_stream, &o, s->count);
    for (size_t i = 0; i < s->count; i++)
        if (s->items[i].status != QOBS_OK) {
            *f = s->items[i].failure;
            return s->items[i].status;
        }
    return o.stopped ? report_failure(f, QOBS_ERROR_CANCELLED, "stopped by the caller") : QOBS_OK;
}

/* ---- Fused layers ------------------------------------------------------------------------------------------------ */

struct set_member {
    size_t set, need;
};

/* Fuses the streams of the members of one set. */
static int fuse_set(struct activation_streams *s, const struct set_member *members, size_t count, struct fail *f)
{
    enum { MAX_FUSED = 8 };
    qobs_observer *observers[MAX_FUSED];
    qobs_error error = {0};
    size_t n = 0;
    for (size_t i = 0; i < count && n < MAX_FUSED; i++) {
        qobs_observer *observer = s->items[s->of_need[members[i].need]].observer;
        size_t k = 0;
        while (k < n && observers[k] != observer)
            k++;
        if (k == n)
            observers[n++] = observer;
    }
    if (n < 2 || qobs_observers_fuse(observers, n, &error) == QOBS_OK)
        return QOBS_OK;
    return report_failure(f, error.status, "input activations: %s", error.message);
}

static int compare_members(const void *a, const void *b)
{
    const struct set_member *s = a, *t = b;
    return s->set != t->set ? ORDER(s->set, t->set) : ORDER(s->need, t->need);
}

int activation_streams_fuse(struct activation_streams *s, const struct activation_needs *needs,
                            const struct weights *weights, struct fail *f)
{
    OWNED struct set_member *members = malloc((needs->count + 1) * sizeof *members);
    size_t count = 0;
    if (!members)
        return NO_MEMORY(f, "the activations");
    for (size_t i = 0; i < needs->count; i++) {
        const struct activation_need *n = &needs->items[i];
        if (n->kind == ACTIVATION_INPUT && n->args->strategy == QUANT_TENSOR_GROUP && s->of_need[i] != NO_STREAM)
            members[count++] = (struct set_member){weights->items[n->weight].set, i};
    }
    qsort(members, count, sizeof *members, compare_members);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && members[end].set == members[first].set;)
            end++;
        RETURN_IF_NOT_OK(fuse_set(s, members + first, end - first, f));
    }
    return QOBS_OK;
}

/* ---- Experts without tokens -------------------------------------------------------------------------------------- */

/* An expert that another may get its stream from, and the size of its activations. */
struct donor {
    double size;
    size_t need;
};

static int compare_donors(const void *a, const void *b)
{
    const struct donor *s = a, *t = b;
    return s->size != t->size ? ORDER(s->size, t->size) : ORDER(s->need, t->need);
}

float *activation_numbers(const qobs_observer *observer, const char *result, qobs_result *info, size_t *count,
                          qobs_error *error)
{
    *count = 0;
    if (qobs_observer_result_find(observer, result, info, error) != QOBS_OK)
        return NULL;
    *count = info->size / qobs_dtype_size(info->dtype);
    float *numbers = malloc(*count * sizeof *numbers + 1);
    if (!numbers)
        *error = (qobs_error){.status = QOBS_ERROR_OUT_OF_MEMORY, .message = "no memory for the scales"};
    else if (qobs_observer_read_as(observer, result, QOBS_F32, numbers, *count * sizeof *numbers, error) == QOBS_OK)
        return numbers;
    free(numbers);
    return NULL;
}

/* Reads the largest scale, or the inverse of the global scale, which falls as activations grow. */
static int read_size(const qobs_observer *observer, const struct activation_need *n, double *size, struct fail *f)
{
    const bool global = n->args->strategy == QUANT_TENSOR_GROUP;
    qobs_result info = {.struct_size = sizeof info};
    qobs_error error = {0};
    size_t count;
    OWNED float *numbers = activation_numbers(observer, global ? "global_scale" : "scale", &info, &count, &error);
    if (!numbers)
        return report_failure(f, error.status, "%.*s: %s", n->length > 200 ? 200 : (int)n->length, n->module,
                              error.message);
    *size = 0;
    for (size_t i = 0; i < count; i++) {
        const double number = global ? 1 / (double)numbers[i] : (double)numbers[i];
        *size = number > *size ? number : *size;
    }
    return QOBS_OK;
}

/* Returns true if both are the same projection of experts of one layer, with the same scheme. */
static bool are_alike(const struct activation_need *a, const struct activation_need *b, size_t layer)
{
    size_t of_a = 0, of_b = 0;
    if (experts_layer(a->module, a->length, &of_a) != layer || experts_layer(b->module, b->length, &of_b) != layer)
        return false;
    return a->kind == b->kind && a->args == b->args && a->length - of_a == b->length - of_b &&
           memcmp(a->module + of_a, b->module + of_b, a->length - of_a) == 0;
}

/* Finds the stream of another expert for need `index`. The needs of a layer are one run. */
static int find_donor(struct activation_streams *s, const struct activation_needs *needs, size_t index,
                      qobs_fill_experts fill, struct donor *donors, size_t *stream, struct fail *f)
{
    const struct activation_need *n = &needs->items[index];
    size_t number, count = 0, first = index, end = index;
    const size_t layer = experts_layer(n->module, n->length, &number);
    while (first > 0 && strncmp(needs->items[first - 1].module, n->module, layer + 1) == 0)
        first--;
    while (end < needs->count && strncmp(needs->items[end].module, n->module, layer + 1) == 0)
        end++;
    for (size_t i = first; i < end; i++) {
        if (s->of_need[i] == NO_STREAM || !are_alike(&needs->items[i], n, layer))
            continue;
        donors[count].need = i;
        RETURN_IF_NOT_OK(read_size(s->items[s->of_need[i]].observer, n, &donors[count].size, f));
        count++;
    }
    if (count == 0)
        return INVALID(f, "activations: no token reached any expert of '%.*s', so that no scale can fill it",
                       layer > 200 ? 200 : (int)layer, n->module);
    qsort(donors, count, sizeof *donors, compare_donors);
    *stream = s->of_need[donors[fill == QOBS_FILL_MAX ? count - 1 : (count - 1) / 2].need];
    return QOBS_OK;
}

int activation_streams_fill(struct activation_streams *s, const struct activation_needs *needs, qobs_fill_experts fill,
                            size_t *filled, struct fail *f)
{
    OWNED struct donor *donors = malloc((needs->count + 1) * sizeof *donors);
    OWNED size_t *stream = malloc((needs->count + 1) * sizeof *stream);
    if (!donors || !stream)
        return NO_MEMORY(f, "the activations");
    *filled = 0;
    for (size_t i = 0; i < needs->count; i++) {
        stream[i] = s->of_need[i];
        if (stream[i] == NO_STREAM)
            RETURN_IF_NOT_OK(find_donor(s, needs, i, fill, donors, &stream[i], f));
        *filled += s->of_need[i] == NO_STREAM;
    }
    memcpy(s->of_need, stream, needs->count * sizeof *stream); /* only now: what was filled is no donor */
    return QOBS_OK;
}
