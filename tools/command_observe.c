/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs observe: runs one observer over tensors in the order given and prints or writes every result. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations/recordings.h"
#include "commands.h"
#include "outputs.h"
#include "program.h"
#include "results.h"
#include "files/status.h"
#include "files/tensor_files.h"
#include "files/text.h"

struct observe_options {
    struct machine_options machine;
    const char *preset, *base_name, *strategy, *nonfinite, *g_idx, *global_scale, *out, *state;
    bool each, json;
    const char **settings, **importance;
    size_t setting_count, importance_count;
};

/* ---- Observation ------------------------------------------------------------------------------------------------- */

static int observe_tensor(qobs_observer *observer, struct tensor_files *files, const struct observe_options *options,
                          const char *spec)
{
    const struct tensor_ref *ref, *index = NULL;
    qobs_tensor tensor, g_idx;
    struct fail f;
    qobs_error error;
    if (tensors_spec(files, spec, &ref, &f) || tensor_of_ref(ref, &tensor, &f))
        return print_failure(&f, "");
    if (options->g_idx && (tensors_spec(files, options->g_idx, &index, &f) || tensor_of_ref(index, &g_idx, &f)))
        return print_failure(&f, "--g-idx: ");
    if (qobs_observer_observe(observer, &tensor, index ? &g_idx : NULL, &error) != QOBS_OK)
        return print_status_error(&error, spec);
    return EXIT_OK;
}

static int observe_importance(qobs_observer *observer, struct tensor_files *files, const char *spec)
{
    const struct tensor_ref *ref;
    qobs_tensor tensor;
    struct fail f;
    qobs_error error;
    if (tensors_spec(files, spec, &ref, &f) || tensor_of_ref(ref, &tensor, &f))
        return print_failure(&f, "--importance: ");
    if (qobs_observer_observe_importance(observer, &tensor, &error) != QOBS_OK)
        return print_error(error.status == QOBS_ERROR_OUT_OF_MEMORY ? EXIT_SYSTEM : EXIT_USAGE, "--importance: %s: %s",
                           spec, error.message);
    return EXIT_OK;
}

/* Reads the argument of --global-scale: a number, or a tensor of one element. */
static int read_global_scale(struct tensor_files *files, const char *argument, float *value)
{
    const struct tensor_ref *ref;
    qobs_tensor tensor;
    struct fail f;
    char *end;
    double number = strtod(argument, &end);
    if (end == argument || *end != '\0') {
        if (tensors_spec(files, argument, &ref, &f) || tensor_of_ref(ref, &tensor, &f))
            return print_failure(&f, "--global-scale: ");
        if (tensor.dtype > QOBS_F64 || ref->bytes != qobs_dtype_size(tensor.dtype))
            return print_error(EXIT_USAGE, "--global-scale: %s: tensor '%.200s' is no single floating-point number",
                               ref->file, ref->name);
        number = number_at(tensor.data, tensor.dtype);
    }
    *value = (float)number;
    if (!(*value > 0 && *value <= FLT_MAX))
        return print_error(EXIT_USAGE, "--global-scale: is %g; a positive number that float32 can hold is needed",
                           number);
    return EXIT_OK;
}

struct observation {
    const struct observe_options *options;
    const qobs_config *config;
    qobs_observer *observer;
    struct tensor_files files; /* open until the outputs are written, so that a change of an input is noticed */
    struct results results;
    float global_scale; /* valid if options->global_scale is not NULL */
};

/* Adds the results after batch `index`. With --each their names end in "_<index>", and those of the last batch are
 * also added without that suffix. */
static int read_results(struct observation *o, int index, bool last)
{
    char suffix[16] = "";
    if (o->options->each)
        snprintf(suffix, sizeof suffix, "_%d", index);
    const size_t before = o->results.count;
    RETURN_IF_NOT_OK(results_read(&o->results, o->observer, suffix));
    if (o->options->global_scale)
        RETURN_IF_NOT_OK(results_apply_global_scale(&o->results, before, suffix, o->config, o->global_scale));
    return o->options->each && last ? results_append_copies(&o->results, o->results.count - before, strlen(suffix))
                                    : EXIT_OK;
}

static int observe_all(struct observation *o, int count, char **specs)
{
    const struct observe_options *const options = o->options;
    if (options->global_scale)
        RETURN_IF_NOT_OK(read_global_scale(&o->files, options->global_scale, &o->global_scale));
    for (size_t i = 0; i < options->importance_count; i++)
        RETURN_IF_NOT_OK(observe_importance(o->observer, &o->files, options->importance[i]));
    for (int i = 0; i < count; i++) {
        const bool last = i == count - 1;
        RETURN_IF_NOT_OK(observe_tensor(o->observer, &o->files, options, specs[i]));
        if (options->each || last)
            RETURN_IF_NOT_OK(read_results(o, i, last));
    }
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_observer_counts(o->observer, &counts, NULL);
    if (o->results.count == 0 && counts.batches == 0)
        return print_error(EXIT_USAGE, "the tensors have no elements: there is nothing to make a result of");
    return check_inputs();
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

/* Warns if importance was observed but the search could not use it, because that changes the result. */
static void warn_if_unweighted(const qobs_observer *observer)
{
    qobs_search_report report = {.struct_size = sizeof report};
    if (qobs_observer_search_report(observer, &report, NULL) == QOBS_OK && report.fallback)
        print_warning("importance is not used: %s", report.fallback);
}

/* Warns if there are ranges but no scale, and says why. Returns EXIT_INCOMPLETE then. */
static int warn_if_no_scale(const qobs_observer *observer)
{
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_result result = {.struct_size = sizeof result};
    qobs_error error;
    qobs_observer_counts(observer, &counts, NULL);
    /* INVALID_ARGUMENT means that the preset has no such result. */
    if (counts.batches > 0 && qobs_observer_result_find(observer, "scale", &result, &error) != QOBS_OK &&
        error.status != QOBS_ERROR_INVALID_ARGUMENT) {
        print_warning("scale and zero_point are left out: %s", error.message);
        return EXIT_INCOMPLETE;
    }
    return EXIT_OK;
}

static int write_outputs(const qobs_observer *observer, const struct results *results,
                         const struct observe_options *options)
{
    const int complete = warn_if_no_scale(observer);
    if (results->count == 0)
        print_warning("%s has no results", options->preset);
    warn_if_ignored(observer);
    warn_if_unweighted(observer);
    const struct result_files files = {.out = options->out, .state = options->state, .json = options->json};
    const int code = results_write(results, observer, &files);
    return code == EXIT_OK ? complete : code;
}

static void close_observation(struct observation *o)
{
    results_free(&o->results);
    qobs_observer_destroy(o->observer);
    tensor_files_close(&o->files);
}

static int observe(const qobs_config *config, struct threads *threads, const struct observe_options *options, int count,
                   char **specs)
{
    RELEASED_BY(close_observation) struct observation o = {.options = options, .config = config};
    qobs_error error;
    if (qobs_observer_create(&o.observer, config, &threads->runtime, &error) != QOBS_OK)
        return print_status_error(&error, NULL);
    RETURN_IF_NOT_OK(observe_all(&o, count, specs));
    return write_outputs(o.observer, &o.results, options);
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

#define AT(member) offsetof(struct observe_options, member)
static const struct option_row rows[] = {
    PRESET_ROW,
    SETTING_ROW(""),
    BASE_NAME_ROW,
    TEXT_ROW("strategy", "NAME", strategy, "short for --set strategy=NAME", NULL),
    TEXT_ROW("g-idx", "FILE[:TENSOR]", g_idx, "group of each column, int32 or int64", NULL),
    LIST_ROW("importance", "FILE[:TENSOR]", importance, importance_count, "activations that weigh the columns",
             "for presets that support it (llmc.imatrix_mse, qobs.imatrix_optimal, qobs.local_hessian); may be "
             "repeated"),
    TEXT_ROW("global-scale", "NUMBER|FILE[:TENSOR]", global_scale, "compute scales under this global scale",
             "not under the observer's own; llmc presets"),
    TEXT_ROW("nonfinite", "MODE", nonfinite, "NaN and infinity: refuse (default), ignore, propagate", NULL),
    FLAG_ROW("each", each, "every result after each batch", "as NAME_0, NAME_1, ..., the last also as NAME"),
    RESULTS_ROW,
    TEXT_ROW("state", "FILE", state, "write the observer's state there, for qobs merge", NULL),
    JSON_ROW("the results", NULL),
    ISA_ROW,
    THREADS_ROW,
};

/* Checks the options that depend on the preset. */
static int check_options(const struct observe_options *o, int tensor_count)
{
    if (tensor_count == 0)
        return print_error(EXIT_USAGE, "observe: no tensor given");
    const struct output_option outputs[] = {{"--out", o->out, false}, {"--state", o->state, false}};
    if (check_outputs(outputs, 2) != EXIT_OK)
        return EXIT_USAGE;
    if (o->global_scale && strncmp(o->preset, "llmc.", 5) != 0)
        return print_error(EXIT_USAGE, "--global-scale: %s has none; presets of llm-compressor (llmc.*) do", o->preset);
    return EXIT_OK;
}

static int set(qobs_config *config, const char *key, const char *value)
{
    qobs_error error;
    if (value && qobs_config_set(config, key, value, &error) != QOBS_OK)
        return print_status_error(&error, NULL);
    return EXIT_OK;
}

static int configure(const struct observe_options *o, qobs_config *config)
{
    RETURN_IF_NOT_OK(check_apart(o->settings, o->setting_count, "base_name", "--base-name", o->base_name));
    RETURN_IF_NOT_OK(check_apart(o->settings, o->setting_count, "strategy", "--strategy", o->strategy));
    RETURN_IF_NOT_OK(check_apart(o->settings, o->setting_count, "nonfinite", "--nonfinite", o->nonfinite));
    RETURN_IF_NOT_OK(set_options(config, o->settings, o->setting_count));
    RETURN_IF_NOT_OK(set(config, "base_name", o->base_name));
    RETURN_IF_NOT_OK(set(config, "strategy", o->strategy));
    return set(config, "nonfinite", o->nonfinite);
}

static int run(void *options, int tensor_count, char **specs, struct threads *threads)
{
    const struct observe_options *o = options;
    OWNED_CONFIG qobs_config *config = NULL;
    qobs_error error;
    if (!o->preset)
        return print_error(EXIT_USAGE, "observe: --preset is missing (see qobs observe -h)");
    if (qobs_config_create(&config, o->preset, NULL, &error) != QOBS_OK)
        return print_preset_error(&error, "--preset", o->preset);
    RETURN_IF_NOT_OK(check_options(o, tensor_count));
    RETURN_IF_NOT_OK(configure(o, config));
    if (o->importance_count > 0 && !config_weighs_columns(config))
        return print_error(EXIT_USAGE, "--importance: %s does not weigh columns%s", o->preset,
                           config_has(config, "hessian_block_size") ? " without hessian_block_size" : "");
    return observe(config, threads, o, tensor_count, specs);
}

const struct command command_observe = {
    .name = "observe",
    .run = run,
    .size = sizeof(struct observe_options),
    .threaded = true,
    .summary = "run one observer over tensors and write every result",
    .usage = "--preset NAME [OPTION]... FILE[:TENSOR]...",
    .description =
        "Runs an observer over tensors, batch by batch in the order given, and prints or writes every result. FILE is "
        ".safetensors, *.safetensors.index.json, a model's directory, or .npy. TENSOR may be left out if FILE holds "
        "only one.",
    OPTION_ROWS(rows),
    .example = "qobs observe --preset llmc.minmax x.safetensors:x0 x.safetensors:x1"};
