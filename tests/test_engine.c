/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Runs the engine with each sink of the table on a model. A sink adds to the first of its sums what it measures: about
 * the sum of the squares of the weight, in which every row counts once. Prints "N passed, N failed". */
#include <math.h>
#include <stdio.h>

#include "engine/engine.h"
#include "model/stored_qparams.h"
#include "quantize/selection.h"

/* A sink of its own file is a line here. */
#define SINKS SINK(energy_sink)

/* Takes the rows as they are before quantization. */
static int wants(struct sink *sink, const struct weight_job *job, unsigned *wanted, struct fail *f)
{
    (void)sink;
    (void)f;
    *wanted = job->group ? WANTS_NUMBERS : 0;
    return QOBS_OK;
}

static int numbers(struct sink *sink, struct row_slice *slice, const struct rows *rows, const void *dequantized,
                   struct workspace *work, struct fail *f)
{
    (void)sink;
    (void)dequantized;
    (void)work;
    (void)f;
    for (int64_t i = 0; i < slice->count; i++)
        for (int64_t j = 0; j < rows->shape[1]; j++) {
            const char *row = (const char *)rows->tensor.data + i * rows->strides[0];
            slice->sums[0] += pow(number_of(row, rows->tensor.dtype, (size_t)j), 2);
        }
    return QOBS_OK;
}

struct sink *energy_sink(void);
struct sink *energy_sink(void)
{
    static const struct sink_functions functions = {.wants = wants, .numbers = numbers};
    static struct sink sink = {&functions};
    return &sink;
}

#define SINK(name) struct sink *name(void);
SINKS
#undef SINK

static double energy_of(const struct weight *w)
{
    double sum = 0;
    for (int64_t i = 0; i < w->shape[0]; i++)
        for (int64_t j = 0; j < w->shape[1]; j++)
            sum += pow(number_at(w->data + i * w->row_bytes + j * w->column_bytes, dtype_in_library(w->dtype)), 2);
    return sum;
}

/* Returns true if the sums of each weight are what they should be. */
static bool fits(const struct engine *e, const char *name)
{
    bool good = e->job_count > 0;
    for (size_t i = 0; i < e->job_count; i++) {
        const double expected = energy_of(e->jobs[i].weight), sum = e->jobs[i].result.sums[0];
        if (fabs(sum - expected) <= 0.02 * expected)
            continue;
        printf("%s: %s: %g, expected about %g\n", name, e->jobs[i].weight->name, sum, expected);
        good = false;
    }
    return good;
}

static int run(const char *name, const struct selection *selection, struct sink *sink, struct fail *f)
{
    struct meter meter = {.stage = "test"};
    struct engine engine = {.sink = NULL};
    const struct engine_input in = {&selection->weights, &selection->config, &selection->inputs->importance,
                                    &selection->inputs->sources.states, NULL};
    meter_open(&meter);
    int status = engine_open(&engine, &in, sink, &meter, f);
    if (status == QOBS_OK)
        status = engine_run(&engine, f);
    if (status == QOBS_OK && !fits(&engine, name))
        status = fail(f, "wrong sums");
    engine_close(&engine);
    meter_close(&meter);
    return status;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        struct sink *(*make)(void);
    } sinks[] = {
#define SINK(name) {#name, name},
        SINKS
#undef SINK
    };
    const size_t count = sizeof sinks / sizeof *sinks;
    const struct input_paths paths = {.model = argc > 1 ? argv[1] : "."};
    const struct scheme_choice choice = {.scheme = "W8A16"};
    struct inputs inputs = {.sources = {.states = {0}}};
    struct selection selection = {.choice = &choice, .inputs = &inputs, .contents = CONTENTS_MODEL};
    struct fail f = {.message = ""};
    size_t failed = 0;
    bool opened = selection_read_config(&selection, &f) == QOBS_OK &&
                  inputs_open(&inputs, &paths, CONTENTS_MODEL, &f) == QOBS_OK &&
                  selection_make(&selection, &f) == QOBS_OK;
    if (!opened)
        printf("%s\n", f.message);
    for (size_t i = 0; i < count; i++)
        if (!opened || run(sinks[i].name, &selection, sinks[i].make(), &f) != QOBS_OK) {
            printf("%s: %s\n", sinks[i].name, f.message);
            failed++;
        }
    selection_free(&selection);
    inputs_free(&inputs);
    printf("%zu passed, %zu failed\n", count - failed, failed);
    return failed > 0;
}
