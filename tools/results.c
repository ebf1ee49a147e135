/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads the results of an observer by name, converts their elements and writes them. */
#include "results.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations/saved_states.h"
#include "files/file_kind.h"
#include "files/json.h"
#include "files/mapped.h"
#include "files/output.h"
#include "files/safetensors.h"
#include "files/text.h"
#include "qobs/stateless.h"
#include "outputs.h"

static struct result *add(struct results *results, size_t size)
{
    struct result *r = list_add(&results->items, &results->count, sizeof *r);
    if (r)
        *r = (struct result){.size = size, .data = malloc(size ? size : 1)};
    return r && r->data ? r : NULL;
}

static int no_memory(size_t size) { return print_error(EXIT_SYSTEM, "no memory for a result of %zu bytes", size); }

static int read_result(struct results *results, const qobs_observer *observer, const qobs_result *result,
                       const char *suffix)
{
    struct result *r = add(results, result->size);
    qobs_error error;
    if (!r)
        return no_memory(result->size);
    snprintf(r->name, sizeof r->name, "%s%s", result->name, suffix);
    r->dtype = result->dtype;
    r->ndim = result->ndim;
    memcpy(r->shape, result->shape, sizeof r->shape);
    if (qobs_observer_read(observer, result->name, r->data, r->size, &error) != QOBS_OK)
        return print_status_error(&error, result->name);
    return EXIT_OK;
}

int results_read(struct results *results, const qobs_observer *observer, const char *suffix)
{
    for (size_t i = 0; i < qobs_observer_result_count(observer); i++) {
        qobs_result result = {.struct_size = sizeof result};
        qobs_error error;
        if (qobs_observer_result_info(observer, i, &result, &error) != QOBS_OK)
            return print_status_error(&error, NULL);
        RETURN_IF_NOT_OK(read_result(results, observer, &result, suffix));
    }
    return EXIT_OK;
}

int results_append_copies(struct results *results, size_t count, size_t strip)
{
    const size_t first = results->count - count;
    for (size_t i = first; i < first + count; i++) {
        struct result *copy = add(results, results->items[i].size);
        if (!copy)
            return no_memory(results->items[i].size);
        const struct result *r = &results->items[i];
        void *data = copy->data;
        *copy = *r;
        copy->data = data;
        memcpy(data, r->data, r->size);
        copy->name[strlen(copy->name) - strip] = '\0';
    }
    return EXIT_OK;
}

static size_t elements(const struct result *r) { return r->size / qobs_dtype_size(r->dtype); }

static struct result *find(const struct results *results, size_t first, const char *name, const char *suffix)
{
    const size_t length = strlen(name);
    for (size_t i = first; i < results->count; i++)
        if (strncmp(results->items[i].name, name, length) == 0 && strcmp(results->items[i].name + length, suffix) == 0)
            return &results->items[i];
    return NULL;
}

const struct result *result_named(const struct results *results, const char *name)
{
    return find(results, 0, name, "");
}

int results_apply_global_scale(struct results *results, size_t first, const char *suffix, const qobs_config *config,
                               float global_scale)
{
    if (!find(results, first, "min_vals", suffix) || !find(results, first, "scale", suffix))
        return EXIT_OK; /* nothing was observed, or the ranges give no scale */
    if (!find(results, first, "global_scale", suffix)) {
        struct result *r = add(results, sizeof global_scale);
        if (!r)
            return no_memory(sizeof global_scale);
        snprintf(r->name, sizeof r->name, "global_scale%s", suffix);
        r->dtype = QOBS_F32;
        r->ndim = 1;
        r->shape[0] = 1;
    }
    memcpy(find(results, first, "global_scale", suffix)->data, &global_scale, sizeof global_scale);
    const struct result *min = find(results, first, "min_vals", suffix);
    const struct result *max = find(results, first, "max_vals", suffix);
    struct result *scale = find(results, first, "scale", suffix);
    struct result *zero_point = find(results, first, "zero_point", suffix);
    const size_t n = elements(min);
    float *scales = malloc((n ? n : 1) * sizeof *scales);
    qobs_error error;
    if (!scales)
        return no_memory(n * sizeof *scales);
    free(scale->data);
    scale->data = scales;
    scale->size = n * sizeof *scales;
    scale->dtype = QOBS_F32;
    const qobs_qparams_from_ranges_args args = {.struct_size = sizeof args,
                                                .config = config,
                                                .dtype = min->dtype,
                                                .count = n,
                                                .min = min->data,
                                                .max = max->data,
                                                .size = min->size,
                                                .global_scale = &global_scale,
                                                .scale = scales,
                                                .scale_size = scale->size,
                                                .zero_point = zero_point->data,
                                                .zero_point_size = zero_point->size};
    if (qobs_qparams_from_ranges(&args, &error) != QOBS_OK)
        return print_status_error(&error, "--global-scale");
    return EXIT_OK;
}

double result_value(const struct result *r, size_t i) { return number_of(r->data, r->dtype, i); }

int print_json(json_object *root)
{
    OWNED char *text = json_print(root, JSON_LINE);
    json_object_put(root);
    if (!text)
        return print_error(EXIT_SYSTEM, "no memory for the JSON output");
    puts(text);
    return EXIT_OK;
}

static int results_print_json(const struct results *results)
{
    json_object *root = json_object_new_object();
    for (size_t i = 0; i < results->count; i++) {
        const struct result *r = &results->items[i];
        json_object *item = json_put_object(root, r->name);
        json_put_text(item, "dtype", qobs_dtype_name(r->dtype));
        json_object *shape = json_put_array(item, "shape");
        for (int d = 0; d < r->ndim; d++)
            json_append(shape, json_object_new_uint64((uint64_t)r->shape[d]));
        json_object *values = json_put_array(item, "values");
        for (size_t k = 0; k < elements(r); k++)
            json_append(values, json_number(result_value(r, k)));
    }
    return print_json(root);
}

void results_print(const struct results *results)
{
    enum { SHOWN = 4 };
    for (size_t i = 0; i < results->count; i++) {
        const struct result *r = &results->items[i];
        char shape[160] = "";
        for (int d = 0; d < r->ndim; d++)
            text_append(shape, sizeof shape, "%s%lld", d ? ", " : "", (long long)r->shape[d]);
        printf("%-14s %-5s %-16s", r->name, qobs_dtype_name(r->dtype), (shape[0] ? shape : "scalar"));
        for (size_t k = 0; k < elements(r) && k < SHOWN; k++)
            printf(" %.9g", result_value(r, k));
        printf("%s\n", elements(r) > SHOWN ? " ..." : "");
    }
}

/* Opens the file of a state and writes it. */
static int state_begin(struct output *output, const qobs_observer *observer, const char *path)
{
    const size_t size = qobs_observer_save_size(observer);
    OWNED void *data = malloc(size);
    qobs_error error;
    struct fail f;
    if (!data)
        return print_error(EXIT_SYSTEM, "%s: no memory for a state of %zu bytes", path, size);
    if (qobs_observer_save(observer, data, size, &error) != QOBS_OK)
        return print_status_error(&error, path);
    if (output_open(output, path, &f) != 0)
        return print_error(EXIT_SYSTEM, "%s", f.message);
    return output_write(output, data, size, 0) == 0
               ? EXIT_OK
               : print_error(EXIT_SYSTEM, "%s: cannot write: %s", path, strerror(errno));
}

static int begin_safetensors(struct st_writer *w, const struct results *results, const char *path)
{
    struct fail f = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < results->count; i++) {
        const struct result *r = &results->items[i];
        ok = st_writer_add(w, r->name, dtype_in_file(r->dtype), r->ndim, r->shape, &f) == 0;
    }
    ok = ok && st_writer_begin(w, path, &f) == 0;
    for (size_t i = 0; ok && i < results->count; i++)
        ok = st_writer_put(w, i, 0, results->items[i].data, results->items[i].size, &f) == 0;
    return ok ? EXIT_OK : print_error(EXIT_SYSTEM, "%s", f.message);
}

static void print_state(const qobs_observer *observer, const char *path)
{
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_observer_counts(observer, &counts, NULL);
    printf("-> %s: state, %llu tensors observed; qobs merge and info read it\n", path,
           (unsigned long long)counts.batches);
}

int results_write(const struct results *results, const qobs_observer *observer, const struct result_files *files)
{
    const struct output_option outputs[] = {{"--out", files->out, false}, {"--state", files->state, false}};
    RELEASED_BY(st_writer_abort) struct st_writer w = {0};
    RELEASED_BY(output_abort) struct output state = {0};
    struct fail f;
    RETURN_IF_NOT_OK(check_outputs(outputs, 2));
    if (files->state)
        RETURN_IF_NOT_OK(state_begin(&state, observer, files->state));
    if (files->out)
        RETURN_IF_NOT_OK(begin_safetensors(&w, results, files->out));
    if ((files->out && st_writer_finish(&w, &f) != 0) || (files->state && output_commit(&state, &f) != 0))
        return print_error(EXIT_SYSTEM, "%s", f.message);
    if (files->json)
        return results_print_json(results);
    if (!files->out)
        results_print(results);
    if (files->state)
        print_state(observer, files->state);
    return EXIT_OK;
}

void results_free(struct results *results)
{
    for (size_t i = 0; i < results->count; i++)
        free(results->items[i].data);
    free(results->items);
    *results = (struct results){0};
}

void warn_if_ignored(const qobs_observer *observer)
{
    qobs_counts counts = {.struct_size = sizeof counts};
    if (qobs_observer_counts(observer, &counts, NULL) != QOBS_OK || counts.ignored == 0)
        return;
    print_warning("%llu of %llu tensors are ignored: base_name=weight observes the first one only "
                  "(--base-name input observes all)",
                  (unsigned long long)counts.ignored,
                  (unsigned long long)counts.ignored + (unsigned long long)counts.batches);
}

int state_read(qobs_observer **observer, const char *path, const qobs_runtime *runtime)
{
    RELEASED_BY(mapped_close) struct mapped map;
    struct fail f;
    qobs_error error;
    if (mapped_open(&map, path, &f) != 0)
        return print_failure(&f, "");
    if ((map.size < 4 || memcmp(map.data, "qobs", 4) != 0) && file_kind_refuse(path, map.data, map.size, &f) != 0)
        return print_error(EXIT_USAGE, "%s; observe --state writes the states that merge and info read", f.message);
    return qobs_observer_load(observer, map.data, map.size, runtime, &error) == QOBS_OK
               ? EXIT_OK
               : print_error(exit_code_of(error.status), "%s: %s", path, saved_state_fault(&error));
}
