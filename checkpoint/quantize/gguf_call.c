/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The steps in order: types, importance, keys, output. */
#include "quantize/gguf_call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/mapped.h"
#include "files/status.h"

/* ---- Types ------------------------------------------------------------------------------------------------------- */

static int choose_types(struct gguf_call *call, struct fail *f)
{
    const struct gguf_quantize_args *a = call->args;
    RETURN_IF_NOT_OK(gguf_scheme_find(&call->scheme, a->scheme, f));
    const struct gguf_type_request request = {.scheme = call->scheme,
                                              .patterns = a->tensor_types,
                                              .pure = a->pure,
                                              .importance = a->importance.count + a->states.count > 0};
    RETURN_IF_NOT_OK(gguf_open_model(&call->model, a->model, f));
    RETURN_IF_NOT_OK(gguf_choose_types(&call->choices, &call->model, &request, f));
    RETURN_IF_NOT_OK(gguf_weights_make(&call->weights, call->choices, &call->model, f));
    return call->weights.changed > 0
               ? QOBS_OK
               : INVALID(f, "scheme: %s changes no tensor of %s: those that are quantized have these types",
                         call->scheme->name, a->model);
}

/* ---- Importance -------------------------------------------------------------------------------------------------- */

/* Finds the entry of a tensor. Embeddings may have one that does not fit, which does not count. */
static int find_entry(struct gguf_call *call, const struct gguf_tensor *t, struct gguf_importance *of, struct fail *f)
{
    for (size_t i = call->imatrix_count; i > 0 && !of->entry; i--) {
        of->file = &call->imatrix[i - 1];
        of->entry = imatrix_find(of->file, t->name);
    }
    const uint64_t columns = (uint64_t)t->shape[t->ndim - 1], needed = columns * gguf_matrices(t);
    if (!of->entry || of->entry->value_count == needed)
        return QOBS_OK;
    if (!gguf_name_is_embedding(t->name))
        return fail(f, "%s: '%.150s' has %llu values, the tensor needs %llu for %llu columns: it is of another model",
                    of->file->map.path, t->name, (unsigned long long)of->entry->value_count, (unsigned long long)needed,
                    (unsigned long long)columns);
    of->entry = NULL;
    return QOBS_OK;
}

static int open_imatrix(struct gguf_call *call, struct fail *f)
{
    const struct texts *paths = &call->args->importance;
    call->imatrix = calloc(paths->count + 1, sizeof *call->imatrix);
    if (!call->imatrix)
        return NO_MEMORY(f, "importance");
    for (; call->imatrix_count < paths->count; call->imatrix_count++) {
        const char *path = paths->items[call->imatrix_count];
        if (!imatrix_is(path))
            return INVALID(f, "importance: %s: is no imatrix file, which GGUF files need", path);
        RETURN_IF_NOT_OK(imatrix_open(&call->imatrix[call->imatrix_count], path, f));
    }
    return QOBS_OK;
}

/* Returns true if a matrix of the tensor has a state. */
static bool has_state(const struct gguf_call *call, const struct gguf_tensor *t)
{
    uint64_t m = 0;
    const uint64_t matrices = gguf_matrices(t);
    while (m < matrices && !gguf_states_find(&call->sink.states, t->name, m))
        m++;
    return m < matrices;
}

static bool rounds(const struct gguf_call *call, const struct gguf_choice *c)
{
    return call->sink.rounds && gguf_choice_changes(c) && c->type.rounds && has_state(call, c->tensor);
}

static int read_setting(struct gguf_call *call, struct fail *f)
{
    for (size_t i = 0; i < call->args->settings.count; i++) {
        const char *setting = call->args->settings.items[i];
        call->sink.rounds = strcmp(setting, "rounding=descent") == 0;
        if (!call->sink.rounds && strcmp(setting, "rounding=nearest") != 0)
            return INVALID(
                f, "setting: '%.100s' is not known for GGUF files; rounding=descent and rounding=nearest are", setting);
    }
    if (call->sink.rounds && call->args->states.count == 0)
        return INVALID(f, "setting: rounding=descent needs --states DIR of libqobs.calibration(..., "
                          "importance=\"qobs.local_hessian hessian_block_size=1048576\")");
    return gguf_states_open(&call->sink.states, &call->args->states, f);
}

/* Tensors that get another type: with a state; that use it as importance; whose codes it rounds. */
struct state_counts {
    size_t known, used, rounded;
};

/* Fails if states or their rounding change nothing. */
static int check_states(const struct gguf_call *call, const struct state_counts *n, struct fail *f)
{
    if (call->args->states.count == 0)
        return QOBS_OK;
    if (n->known == 0)
        return INVALID(f, "states: none of %zu is of a tensor of %s; the model of calibration has another architecture",
                       call->sink.states.saved.count, call->args->model);
    if (call->sink.rounds && n->rounded == 0)
        return INVALID(f, "setting: rounding=descent changes nothing: it rounds codes of other types, such as Q4_K");
    return n->used + n->rounded > 0
               ? QOBS_OK
               : INVALID(f, "states: change nothing: no type of scheme %s uses importance here", call->scheme->name);
}

static int find_importance(struct gguf_call *call, struct fail *f)
{
    size_t users = 0, found = 0;
    struct state_counts n = {0, 0, 0};
    RETURN_IF_NOT_OK(read_setting(call, f));
    RETURN_IF_NOT_OK(open_imatrix(call, f));
    for (size_t i = 0; i < call->model.tensor_count; i++) {
        const struct gguf_choice *c = &call->choices[i];
        struct gguf_importance *of = &call->sink.importance[i];
        if (!gguf_choice_changes(c))
            continue;
        if (gguf_uses_importance(call, c)) {
            users += !gguf_name_is_embedding(c->tensor->name);
            RETURN_IF_NOT_OK(find_entry(call, c->tensor, of, f));
            of->stated = !of->entry && has_state(call, c->tensor);
            found += of->entry != NULL;
            n.used += of->stated;
        }
        of->rounded = rounds(call, c);
        n.rounded += of->rounded;
        n.known += has_state(call, c->tensor);
        if (!of->entry && !of->stated && !call->args->dry_run && !gguf_name_is_embedding(c->tensor->name) &&
            gguf_scheme_needs_importance(call->scheme, c->type.name))
            return INVALID(f, "importance: %s of scheme %s needs it, and '%.150s' has none", c->type.name,
                           call->scheme->name, c->tensor->name);
    }
    RETURN_IF_NOT_OK(check_states(call, &n, f));
    if (call->imatrix_count == 0 || found > 0)
        return QOBS_OK;
    if (users == 0)
        return INVALID(f, "importance: changes nothing: no type of scheme %s uses it here", call->scheme->name);
    return INVALID(f, "importance: has none of %zu tensors, whose names are those of %s", users, call->args->model);
}

/* Copies have no scales. */
static int check_search(const struct gguf_call *call, struct fail *f)
{
    for (size_t i = 0; i < call->model.tensor_count; i++)
        if (gguf_choice_changes(&call->choices[i]) && call->choices[i].type.block_elements > 1)
            return QOBS_OK;
    return call->args->optimal ? INVALID(f, "search: optimal changes nothing: no tensor becomes blocks with scales")
                               : QOBS_OK;
}

/* ---- Keys -------------------------------------------------------------------------------------------------------- */

/* Keys that are written anew, and those of parts. */
static const char *const replaced[] = {"general.quantization_version",
                                       "general.file_type",
                                       "quantize.imatrix.file",
                                       "quantize.imatrix.dataset",
                                       "quantize.imatrix.entries_count",
                                       "quantize.imatrix.chunks_count",
                                       "split.no",
                                       "split.count",
                                       "split.tensors.count"};

/* Keys with the values of new ones, as files store them: a number in 4 bytes; a text behind its length in 8 bytes. */
struct key_list {
    struct gguf_key *keys;
    size_t count, new_count;
    unsigned char values[6][8 + IMATRIX_TEXT];
};

static bool is_kept(const struct gguf_key *key)
{
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++)
        if (strcmp(key->name, replaced[i]) == 0)
            return false;
    return true;
}

static unsigned char *add_key(struct key_list *list, const char *name, enum gguf_kind kind, size_t number)
{
    unsigned char *value = list->values[list->new_count++];
    for (int i = 0; i < 8; i++)
        value[i] = (unsigned char)((uint64_t)number >> 8 * i);
    list->keys[list->count++] =
        (struct gguf_key){.name = (char *)(uintptr_t)name, .kind = kind, .count = 1, .at = value};
    return value;
}

static void add_text(struct key_list *list, const char *name, const char *text)
{
    const size_t length = strnlen(text, IMATRIX_TEXT);
    memcpy(add_key(list, name, GGUF_STRING, length) + 8, text, length);
}

static void add_imatrix(struct key_list *list, const struct imatrix *imatrix)
{
    add_text(list, "quantize.imatrix.file", imatrix->map.path);
    if (imatrix->dataset[0])
        add_text(list, "quantize.imatrix.dataset", imatrix->dataset);
    add_key(list, "quantize.imatrix.entries_count", GGUF_U32, imatrix->count);
    if (imatrix->chunks > 0)
        add_key(list, "quantize.imatrix.chunks_count", GGUF_U32, imatrix->chunks);
}

/* The keys of the output in the order of llama-quantize: those of the model, then those of the quantization. */
static int make_header(struct gguf_call *call, struct fail *f)
{
    enum { BLOCKS_VERSION = 2 };
    const struct gguf_file *first = &call->model.files[0];
    struct key_list list = {.keys = NULL};
    OWNED struct gguf_key *keys = calloc(first->key_count + sizeof list.values / sizeof *list.values, sizeof *keys);
    if (!keys)
        return NO_MEMORY(f, "the keys of the output");
    list.keys = keys;
    for (size_t i = 0; i < first->key_count; i++)
        if (is_kept(&first->keys[i]))
            keys[list.count++] = first->keys[i];
    add_key(&list, "general.quantization_version", GGUF_U32, BLOCKS_VERSION);
    add_key(&list, "general.file_type", GGUF_U32, call->scheme->file_type);
    if (call->imatrix_count > 0)
        add_imatrix(&list, &call->imatrix[call->imatrix_count - 1]);
    return gguf_header_make(&call->header, keys, list.count, call->tensors, call->model.tensor_count, f);
}

static int make_tensors(struct gguf_call *call, struct fail *f)
{
    const size_t count = call->model.tensor_count;
    call->tensors = calloc(count + 1, sizeof *call->tensors);
    call->sink.importance = calloc(count + 1, sizeof *call->sink.importance);
    call->sink.errors = calloc(count + 1, sizeof *call->sink.errors);
    if (!call->tensors || !call->sink.importance || !call->sink.errors)
        return NO_MEMORY(f, "the list of tensors");
    for (size_t i = 0; i < count; i++) {
        call->tensors[i] = *call->choices[i].tensor;
        call->tensors[i].type = call->choices[i].type;
        call->tensors[i].bytes = gguf_choice_bytes(&call->choices[i]);
    }
    return QOBS_OK;
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

/* Fails if the output is an input, under any name, or a file that may not be replaced. */
static int check_out(const struct gguf_call *call, struct fail *f)
{
    struct stat out, in;
    if (stat(call->args->out, &out) != 0)
        return QOBS_OK;
    for (size_t i = 0; i < call->model.file_count + call->imatrix_count; i++) {
        const char *path = i < call->model.file_count ? call->model.files[i].map.path
                                                      : call->imatrix[i - call->model.file_count].map.path;
        if (stat(path, &in) == 0 && is_same_file(&in, &out))
            return INVALID(f, "out: %s: is an input; another name is needed", call->args->out);
    }
    if (!S_ISREG(out.st_mode))
        return INVALID(f, "out: %s: is no regular file; a new name is needed", call->args->out);
    return call->args->replace ? QOBS_OK
                               : INVALID(f, "out: %s: is there already; --replace replaces it", call->args->out);
}

/* Writes the header, and the last byte of the file, so that it has its length. */
static int write_frame(struct gguf_call *call, struct fail *f)
{
    const struct gguf_header *h = &call->header;
    if (output_write(&call->out, h->data, h->size, 0) != 0 ||
        (h->file_bytes > h->size && output_write(&call->out, "", 1, h->file_bytes - 1) != 0))
        return SYSTEM_FAILURE(f, "%s: cannot write: %s", call->out.path, strerror(errno));
    return QOBS_OK;
}

static int write_output(struct gguf_call *call, struct fail *f)
{
    const struct engine_input in = {.weights = &call->weights.weights,
                                    .config = &call->no_config,
                                    .importance = &call->no_importance,
                                    .runtime = call->args->runtime};
    RETURN_IF_NOT_OK(check_out(call, f));
    RETURN_IF_NOT_OK(argument_failure("out", output_open(&call->out, call->args->out, f), f));
    call->out.is_new = !call->args->replace;
    RETURN_IF_NOT_OK(write_frame(call, f));
    call->sink.choices = call->choices;
    call->sink.tensors = call->tensors;
    call->sink.out = &call->out;
    call->sink.data_start = call->header.size;
    call->sink.optimal = call->args->optimal;
    gguf_sink_open(&call->sink);
    RETURN_IF_NOT_OK(engine_open(&call->engine, &in, &call->sink.sink, &call->meter, f));
    return engine_run(&call->engine, f);
}

int gguf_call_run(struct gguf_call *call, struct fail *f)
{
    const struct gguf_quantize_args *a = call->args;
    if (!a->scheme)
        return INVALID(f, "scheme: is missing; Q4_K_M is a good first one");
    if (!a->out && !a->dry_run)
        return INVALID(f, "out: is NULL");
    RETURN_IF_NOT_OK(choose_types(call, f));
    RETURN_IF_NOT_OK(make_tensors(call, f));
    RETURN_IF_NOT_OK(check_search(call, f));
    RETURN_IF_NOT_OK(find_importance(call, f));
    RETURN_IF_NOT_OK(make_header(call, f));
    return a->dry_run ? QOBS_OK : write_output(call, f);
}

void gguf_call_release(struct gguf_call *call)
{
    engine_close(&call->engine);
    output_abort(&call->out);
    for (size_t i = 0; call->sink.importance && i < call->model.tensor_count; i++)
        gguf_importance_free(&call->sink.importance[i], gguf_matrices(call->choices[i].tensor));
    free(call->sink.importance);
    gguf_states_close(&call->sink.states);
    free(call->sink.errors);
    free(call->header.data);
    free(call->tensors);
    for (size_t i = 0; i < call->imatrix_count; i++)
        imatrix_close(&call->imatrix[i]);
    free(call->imatrix);
    gguf_weights_free(&call->weights);
    free(call->choices);
    gguf_close_model(&call->model);
    meter_close(&call->meter);
    findings_free(&call->audited.findings);
    findings_free(&call->audited.doubts);
}
