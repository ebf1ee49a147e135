/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Says what a file holds. The first bytes tell a saved state and GGUF from other tensors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/json.h"
#include "files/safetensors.h"
#include "files/status.h"
#include "files/tensors.h"
#include "files/text.h"
#include "commands.h"
#include "names.h"
#include "options.h"
#include "program.h"
#include "qobs/format.h"
#include "results.h"

enum { FIRST_TENSORS = 10 }; /* and first numbers of one */

/* ---- State ------------------------------------------------------------------------------------------------------- */

static bool begins_with(const char *path, const char *magic)
{
    char bytes[4] = "";
    FILE *f = fopen(path, "rb");
    const bool begins = f && fread(bytes, 1, sizeof bytes, f) == sizeof bytes && memcmp(bytes, magic, 4) == 0;
    if (f)
        fclose(f);
    return begins;
}

static int print_state(const char *path)
{
    OWNED_OBSERVER qobs_observer *observer = NULL;
    RELEASED_BY(results_free) struct results results = {0};
    qobs_counts counts = {.struct_size = sizeof counts};
    RETURN_IF_NOT_OK(state_read(&observer, path, NULL));
    OWNED char *text = config_text(qobs_observer_config(observer));
    if (!text)
        return print_error(EXIT_SYSTEM, "no memory");
    RETURN_IF_NOT_OK(results_read(&results, observer, ""));
    if (qobs_observer_counts(observer, &counts, NULL) == QOBS_OK) {
        printf("state of an observer: ");
        print_wrapped(text, 22, 4);
        printf("%llu tensors observed with %llu elements, %llu NaN, %llu infinite\n",
               (unsigned long long)counts.batches, (unsigned long long)counts.elements, (unsigned long long)counts.nan,
               (unsigned long long)counts.inf);
        results_print(&results);
        printf("qobs merge %s --out FILE.safetensors writes these results\n", path);
    }
    return EXIT_OK;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

/* Returns element i of a tensor of any dtype that scales and zero points have; NaN for other dtypes. */
static double element(const struct tensor_ref *ref, uint64_t i)
{
    const qobs_dtype dtype = dtype_in_library(ref->dtype);
    const unsigned char *at = (const unsigned char *)ref->data + i * dtype_size(ref->dtype);
    if (ref->dtype == FILE_F8_E4M3)
        return (double)qobs_format_decode(qobs_format_find("fp8_e4m3"), *at);
    if (ref->dtype == FILE_U8) /* the exponents of MX formats */
        return (double)qobs_format_decode(qobs_format_find("e8m0"), *at);
    return dtype ? number_at(at, dtype) : (double)NAN;
}

static bool is_scale(const struct tensor_ref *ref)
{
    return ends_with(ref->name, "scale") || ends_with(ref->name, "zero_point") || ends_with(ref->name, "scale_inv");
}

/* Prints one tensor, with its smallest and largest number if `numbers`. */
static void print_tensor(const struct tensor_ref *ref, struct label label, int width, bool numbers)
{
    char name[MAX_NAME + 1], shape[128] = "";
    for (int d = 0; d < ref->ndim; d++)
        text_append(shape, sizeof shape, "%s%lld", d ? "x" : "", (long long)ref->shape[d]);
    printf("%-*s %-7s %-12s", width, clean_name(label, width, name), dtype_name(ref->dtype),
           ref->ndim ? shape : "scalar");
    double smallest = (double)INFINITY, largest = -(double)INFINITY;
    const uint64_t count = numbers && dtype_size(ref->dtype) > 0 ? ref->bytes / dtype_size(ref->dtype) : 0;
    for (uint64_t i = 0; i < count; i++) {
        smallest = fmin(smallest, element(ref, i));
        largest = fmax(largest, element(ref, i));
    }
    if (smallest < largest)
        printf(" %.5g to %.5g", smallest, largest);
    else if (smallest <= largest)
        printf(" %.5g", smallest);
    printf("\n");
}

/* Prints numbers of tensors and bytes for each dtype. */
static void print_dtypes(const struct tensor_set *set)
{
    struct {
        size_t tensors;
        uint64_t bytes;
    } dtypes[FILE_DTYPES] = {0};
    for (size_t i = 0; i < set->count; i++) {
        const struct tensor_ref *ref = &set->refs[i];
        dtypes[ref->dtype].tensors++;
        dtypes[ref->dtype].bytes += ref->bytes;
    }
    for (int d = 0; d < FILE_DTYPES; d++)
        if (dtypes[d].tensors > 0)
            printf("  %-8s %8zu tensors %12.3f MB\n", dtype_name((enum file_dtype)d), dtypes[d].tensors,
                   (double)dtypes[d].bytes * 1e-6);
}

static void print_metadata(const char *path)
{
    RELEASED_BY(st_close) struct st_file file = {0};
    if (!ends_with(path, ".safetensors") || st_open(&file, path, NULL) != 0)
        return;
    for (size_t i = 0; i < file.metadata_count; i++) {
        char line[256];
        snprintf(line, sizeof line, "%s: %s", file.metadata[i].name, file.metadata[i].value);
        make_printable(line);
        printf("  ");
        print_wrapped(line, 2, 6);
    }
}

/* Adds key=value for members that are no null, no list of texts and no empty object; `objects`: also for full ones. */
static void add_members(char *line, size_t size, const char *between, const json_object *from, bool objects)
{
    json_each(item, from)
    {
        const bool list = json_is_array(item.value), object = json_is_object(item.value);
        const bool shown = item.value && (!object || (objects && json_count(item.value) > 0)) &&
                           (!list || json_is_number(json_at(item.value, 0)));
        OWNED char *text = shown && !json_is_string(item.value) ? json_print(item.value, JSON_LINE) : NULL;
        if (shown && strcmp(item.key, "quant_method") != 0)
            text_append(line, size, "%s%s=%s", between, item.key, text ? text : json_text_of(from, item.key));
    }
}

/* Writes the method and the format; without one what else the description says in single values and numbers. */
static void describe(char *line, size_t size, const json_object *quantization)
{
    const char *method = json_text_of(quantization, "quant_method");
    snprintf(line, size, "quantized: %s", *method ? method : json_has(quantization, "quant_algo") ? "modelopt" : "");
    const bool has_format = json_is_string(json_get(quantization, "format"));
    if (has_format)
        text_append(line, size, ", format %s", json_text_of(quantization, "format"));
    if (!has_format)
        add_members(line, size, ", ", quantization, false);
    make_printable(line);
}

/* Prints the method, the format and the groups of a quantization_config. */
static void print_quantization(const json_object *quantization)
{
    char line[512];
    describe(line, sizeof line, quantization);
    print_wrapped(line, 0, 4);
    json_each(group, json_get(quantization, "config_groups"))
    {
        const json_object *weights = json_get(group.value, "weights");
        snprintf(line, sizeof line, "%s: weights%s", group.key ? group.key : "group",
                 json_is_object(weights) ? "" : " none");
        add_members(line, sizeof line, " ", json_is_object(weights) ? weights : NULL, true);
        make_printable(line);
        printf("  ");
        print_wrapped(line, 2, 6);
    }
}

/* Reads a file of a model's directory. */
static json_object *read_json(const char *directory, const char *name)
{
    json_object *json = NULL;
    OWNED char *path = path_join(directory, name);
    return path && json_read(&json, path, "file", NULL) == 0 ? json : NULL;
}

/* Prints what config.json says, or ModelOpt's file. */
static void print_config(const char *directory)
{
    OWNED_JSON json_object *config = read_json(directory, "config.json");
    OWNED_JSON json_object *modelopt = read_json(directory, "hf_quant_config.json");
    const json_object *own = json_get(config, "quantization_config"), *other = json_get(modelopt, "quantization");
    if (json_is_object(own) || json_is_object(other))
        print_quantization(json_is_object(own) ? own : other);
    else if (config)
        printf("not quantized: config.json has no quantization_config\n");
}

/* Lists ten tensors or all; only scales if there are any, unless all are wanted. */
static int list_tensors(const struct tensor_set *set, bool only_scales, bool all)
{
    OWNED const struct tensor_ref **chosen = malloc((set->count + 1) * sizeof *chosen);
    OWNED struct label *names = malloc((set->count + 1) * sizeof *names);
    size_t listed = 0;
    if (!chosen || !names)
        return print_error(EXIT_SYSTEM, "no memory for %zu names", set->count);
    for (size_t i = 0; i < set->count; i++)
        if (all || !only_scales || is_scale(&set->refs[i])) {
            names[listed] = (struct label){set->refs[i].name, strlen(set->refs[i].name)};
            chosen[listed++] = &set->refs[i];
        }
    const size_t printed = all || listed < FIRST_TENSORS ? listed : FIRST_TENSORS;
    const int width = fit_names(names, printed, 42, all);
    for (size_t i = 0; i < printed; i++)
        print_tensor(chosen[i], names[i], width, is_scale(chosen[i]));
    if (printed < listed)
        printf("... %zu more%s; --table lists all tensors\n", listed - printed, only_scales ? " scales" : "");
    return EXIT_OK;
}

static int print_tensors(const char *path, bool all)
{
    RELEASED_BY(tensors_close) struct tensor_set set;
    struct stat status;
    struct fail f;
    if (tensors_open(&set, path, &f) != 0)
        return print_failure(&f, "");
    size_t scales = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < set.count; i++) {
        scales += is_scale(&set.refs[i]);
        bytes += set.refs[i].bytes;
    }
    OWNED char *line =
        text_format("%s: %zu tensors in %zu file%s, %.3f MB, %zu of them scales and zero points", set.path, set.count,
                    set.file_count, set.file_count == 1 ? "" : "s", (double)bytes * 1e-6, scales);
    if (!line)
        return print_error(EXIT_SYSTEM, "no memory for %zu names", set.count);
    print_wrapped(line, 0, 2);
    print_metadata(set.path);
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        print_config(path);
    print_dtypes(&set);
    RETURN_IF_NOT_OK(list_tensors(&set, scales > 0, all));
    return check_inputs();
}

void print_first_numbers(const double *numbers, size_t count)
{
    char text[512] = "first numbers:";
    const int indent = (int)strlen(text) + 1;
    for (size_t i = 0; i < count; i++)
        text_append(text, sizeof text, " %.9g", numbers[i]);
    if (count > 0)
        print_wrapped(text, 0, indent);
}

int info_tensor(const char *path, const char *name)
{
    if (begins_with(path, "GGUF"))
        return info_gguf_tensor(path, name);
    RELEASED_BY(tensors_close) struct tensor_set set;
    struct fail f;
    if (tensors_open(&set, path, &f) != 0)
        return print_failure(&f, "");
    const struct tensor_ref *ref = tensors_find(&set, name);
    if (!ref)
        return print_error(EXIT_USAGE, "info: %s: has no tensor '%s'; --table lists all", path, name);
    const uint64_t count = dtype_size(ref->dtype) > 0 ? ref->bytes / dtype_size(ref->dtype) : 0;
    print_tensor(ref, (struct label){ref->name, strlen(ref->name)}, (int)strlen(ref->name), true);
    double first[FIRST_TENSORS];
    const size_t shown = count < FIRST_TENSORS ? (size_t)count : FIRST_TENSORS;
    for (size_t i = 0; i < shown; i++)
        first[i] = element(ref, i);
    print_first_numbers(first, shown);
    return EXIT_OK;
}

int info_file(const char *path, bool all)
{
    if (begins_with(path, "GGUF"))
        return info_gguf(path, all);
    return begins_with(path, "qobs") ? print_state(path) : print_tensors(path, all);
}
