/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Says what a GGUF file holds: its keys, its types and their sizes, its tensors; range and numbers of one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/gguf.h"
#include "files/status.h"
#include "files/text.h"
#include "commands.h"
#include "names.h"
#include "options.h"
#include "program.h"

enum { FIRST_TENSORS = 10, FIRST_NUMBERS = 10, FIRST_VALUES = 8, LONGEST_VALUE = 100, LONGEST_LINE = 400 };

/* ---- Keys and types ---------------------------------------------------------------------------------------------- */

static void print_key(const struct gguf_key *key)
{
    char line[LONGEST_LINE], value[LONGEST_VALUE + 1];
    const unsigned char *at = key->at;
    snprintf(line, sizeof line, "%.100s: ", key->name);
    uint64_t i = 0;
    for (; i < key->count && i < FIRST_VALUES && strlen(line) < 2 * LONGEST_VALUE; i++) {
        at = gguf_value_text(key->kind, at, value, sizeof value);
        text_append(line, sizeof line, "%s%s%s", i ? ", " : "", value, strlen(value) == LONGEST_VALUE ? "..." : "");
    }
    if (i < key->count)
        text_append(line, sizeof line, ", ... (%llu values)", (unsigned long long)key->count);
    make_printable(line);
    printf("  ");
    print_wrapped(line, 2, 6);
}

/* Prints the number of tensors, bytes and bits of a number for each type. */
static void print_types(const struct gguf_model *model)
{
    const char *name;
    for (size_t i = 0; (name = qobs_gguf_type_name(i)); i++) {
        size_t tensors = 0;
        uint64_t bytes = 0, elements = 0;
        for (size_t t = 0; t < model->tensor_count; t++) {
            const struct gguf_tensor *tensor = gguf_tensor_at(model, t);
            if (strcmp(tensor->type.name, name) == 0) {
                tensors++;
                bytes += tensor->bytes;
                elements += tensor->elements;
            }
        }
        if (tensors > 0)
            printf("  %-8s %8zu tensors %12.3f MB %7.4g bits\n", name, tensors, (double)bytes * 1e-6,
                   elements > 0 ? (double)bytes * 8 / (double)elements : 0.0);
    }
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static void print_tensor(const struct gguf_tensor *tensor, struct label label, int width)
{
    char name[MAX_NAME + 1], shape[128] = "";
    for (int d = 0; d < tensor->ndim; d++)
        text_append(shape, sizeof shape, "%s%lld", d ? "x" : "", (long long)tensor->shape[d]);
    printf("%-*s %-7s %s\n", width, clean_name(label, width, name), tensor->type.name, tensor->ndim ? shape : "scalar");
}

static int list_tensors(const struct gguf_model *model, bool all)
{
    const size_t shown = all || model->tensor_count < FIRST_TENSORS ? model->tensor_count : FIRST_TENSORS;
    OWNED struct label *names = malloc((shown + 1) * sizeof *names);
    if (!names)
        return print_error(EXIT_SYSTEM, "no memory for %zu names", shown);
    for (size_t i = 0; i < shown; i++) {
        const char *name = gguf_tensor_at(model, i)->name;
        names[i] = (struct label){name, strlen(name)};
    }
    const int width = fit_names(names, shown, 30, all);
    for (size_t i = 0; i < shown; i++)
        print_tensor(gguf_tensor_at(model, i), names[i], width);
    if (shown < model->tensor_count)
        printf("... %zu more; --table lists all tensors\n", model->tensor_count - shown);
    return check_inputs();
}

int info_gguf(const char *path, bool all)
{
    RELEASED_BY(gguf_close_model) struct gguf_model model;
    struct fail f;
    if (gguf_open_model(&model, path, &f) != 0)
        return print_failure(&f, "");
    printf("%s: GGUF %u, %zu tensors in %zu file%s, %.3f MB\n", path, model.files[0].version, model.tensor_count,
           model.file_count, model.file_count == 1 ? "" : "s", (double)model.bytes * 1e-6);
    for (size_t i = 0; i < model.files[0].key_count; i++)
        print_key(&model.files[0].keys[i]);
    print_types(&model);
    return list_tensors(&model, all);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Prints the smallest, the largest and the first numbers. */
static int print_numbers(const struct gguf_tensor *tensor)
{
    enum { PIECE = 8192 };
    float numbers[PIECE] = {0}, smallest = INFINITY, largest = -INFINITY;
    double first[FIRST_NUMBERS] = {0};
    const uint64_t block = (uint64_t)tensor->type.block_elements;
    qobs_error error;
    for (uint64_t from = 0; from < tensor->elements; from += PIECE) {
        const uint64_t n = tensor->elements - from < PIECE ? tensor->elements - from : PIECE;
        if (gguf_read_numbers(tensor->type.name, 1, (int64_t)n, tensor->data + from / block * tensor->type.block_size,
                              n / block * tensor->type.block_size, numbers, &error) != QOBS_OK)
            return print_error(EXIT_USAGE, "%s", error.message);
        for (uint64_t i = 0; i < n; i++) {
            smallest = fminf(smallest, numbers[i]);
            largest = fmaxf(largest, numbers[i]);
        }
        for (uint64_t i = 0; from == 0 && i < FIRST_NUMBERS; i++)
            first[i] = (double)numbers[i];
    }
    if (smallest <= largest)
        printf("%.5g to %.5g\n", (double)smallest, (double)largest);
    print_first_numbers(first, tensor->elements < FIRST_NUMBERS ? (size_t)tensor->elements : FIRST_NUMBERS);
    return check_inputs();
}

int info_gguf_tensor(const char *path, const char *name)
{
    RELEASED_BY(gguf_close_model) struct gguf_model model;
    struct fail f;
    if (gguf_open_model(&model, path, &f) != 0)
        return print_failure(&f, "");
    for (size_t i = 0; i < model.tensor_count; i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(&model, i);
        if (strcmp(tensor->name, name) == 0) {
            print_tensor(tensor, (struct label){name, strlen(name)}, (int)strlen(name));
            return print_numbers(tensor);
        }
    }
    return print_error(EXIT_USAGE, "info: %s: has no tensor '%s'; --table lists all", path, name);
}
