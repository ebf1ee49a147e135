/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs observe: one observer, tensors in the order given, every result. */
#include <float.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "results.h"
#include "state_file.h"
#include "tensor_files.h"

static const char help[] =
    "usage: qobs observe --preset NAME [OPTION]... FILE[:TENSOR]...\n"
    "\n"
    "Runs an observer over tensors, batch by batch in the order given, and prints or writes every result.\n"
    "FILE is .safetensors, *.safetensors.index.json, a model's directory, or .npy; TENSOR may be left out where there is one.\n"
    "\n"
    "  --preset NAME            the observer; qobs info lists them with their settings\n"
    "  --set KEY=VALUE          a setting, under upstream's own name: num_bits=4, group_size=128, dtype=qint8\n"
    "  --base-name NAME         what the tensors are: weight (default), input, output, q, k, v\n"
    "  --strategy NAME          short for --set strategy=NAME\n"
    "  --g-idx FILE[:TENSOR]    group of each column, int32 or int64\n"
    "  --importance FILE[:TENSOR]  activations to weigh columns by, for presets that do (llmc.imatrix_mse); may be repeated\n"
    "  --global-scale NUMBER|FILE[:TENSOR]  make scales under this global scale, not the observer's own (llmc presets)\n"
    "  --nonfinite MODE         NaN and infinity: refuse (default), ignore, propagate\n"
    "  --each                   every result after each batch as NAME_0, NAME_1, ..., the last also as NAME\n"
    "  --out FILE.safetensors   write the results there\n"
    "  --state FILE             write what has been observed there, for qobs merge\n"
    "  --json                   print them as JSON\n"
    "  --isa NAME               use this instruction set (qobs info lists them)\n"
    "  --threads N              default: one for each processor\n"
    "  --help                   print this and exit\n";

struct request {
    const char *preset, *g_idx, *out, *state, *threads, *isa;
    bool each, json;
    const char **importance;
    int importance_count;
    const char *global_scale;
};

static int take(qobs_observer *observer, struct tensor_files *files, const struct request *request, const char *spec)
{
    const struct tensor_ref *ref, *index = NULL;
    qobs_tensor tensor, g_idx;
    struct fail f;
    qobs_error error;
    if (tensors_spec(files, spec, &ref, &f) || tensor_of_ref(ref, &tensor, &f))
        return complain(EXIT_WRONG, "%s", f.message);
    if (request->g_idx && (tensors_spec(files, request->g_idx, &index, &f) || tensor_of_ref(index, &g_idx, &f)))
        return complain(EXIT_WRONG, "--g-idx: %s", f.message);
    if (qobs_observer_observe(observer, &tensor, index ? &g_idx : NULL, &error) != QOBS_OK)
        return complain_status(&error, spec);
    return EXIT_OK;
}

static int take_importance(qobs_observer *observer, struct tensor_files *files, const char *spec)
{
    const struct tensor_ref *ref;
    qobs_tensor tensor;
    struct fail f;
    qobs_error error;
    if (tensors_spec(files, spec, &ref, &f) || tensor_of_ref(ref, &tensor, &f))
        return complain(EXIT_WRONG, "--importance: %s", f.message);
    if (qobs_observer_observe_importance(observer, &tensor, &error) != QOBS_OK)
        return complain(error.status == QOBS_ERROR_OUT_OF_MEMORY ? EXIT_TROUBLE : EXIT_WRONG, "--importance: %s: %s", spec,
                        error.message);
    return EXIT_OK;
}

/* Importance that cannot be used changes the result: say so. */
static void warn_if_unweighted(const qobs_observer *observer)
{
    qobs_search_report report = {.struct_size = sizeof report};
    if (qobs_observer_search_report(observer, &report, NULL) == QOBS_OK && report.fallback)
        fprintf(stderr, "qobs: warning: importance is not used: %s\n", report.fallback);
}

/* A number, or a tensor that holds one. */
static int read_global_scale(struct tensor_files *files, const char *given, float *value)
{
    const struct tensor_ref *ref;
    qobs_tensor tensor;
    struct fail f;
    char *end;
    double number = strtod(given, &end);
    if (end == given || *end != '\0') {
        if (tensors_spec(files, given, &ref, &f) || tensor_of_ref(ref, &tensor, &f))
            return complain(EXIT_WRONG, "--global-scale: %s", f.message);
        if (tensor.dtype > QOBS_F64 || ref->bytes != qobs_dtype_size(tensor.dtype))
            return complain(EXIT_WRONG, "--global-scale: %s: tensor '%s' is no single floating-point number", ref->file, ref->name);
        number = reading_value(&(struct reading){.dtype = tensor.dtype, .data = (void *)(uintptr_t)tensor.data}, 0);
    }
    *value = (float)number;
    if (!(*value > 0 && *value <= FLT_MAX))
        return complain(EXIT_WRONG, "--global-scale: is %g; a positive number that float32 can hold is needed", number);
    return EXIT_OK;
}

/* Statistics without a scale: say why. */
static void warn_if_no_scale(const qobs_observer *observer)
{
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_result result = {.struct_size = sizeof result};
    qobs_error error;
    qobs_observer_counts(observer, &counts, NULL);
    /* INVALID_ARGUMENT: it is no result of this preset. */
    if (counts.batches > 0 && qobs_observer_find(observer, "scale", &result, &error) != QOBS_OK &&
        error.status != QOBS_ERROR_INVALID_ARGUMENT)
        fprintf(stderr, "qobs: warning: scale and zero_point are left out: %s\n", error.message);
}

static int observe(const qobs_config *config, struct threads *threads, const struct request *request, int count, char **specs)
{
    struct tensor_files files = {0};
    struct readings readings = {0};
    qobs_observer *observer;
    qobs_error error;
    if (qobs_observer_create(&observer, config, &threads->runtime, &error) != QOBS_OK)
        return complain_status(&error, NULL);
    float global_scale = 1;
    int code = request->global_scale ? read_global_scale(&files, request->global_scale, &global_scale) : EXIT_OK;
    for (int i = 0; code == EXIT_OK && i < request->importance_count; i++)
        code = take_importance(observer, &files, request->importance[i]);
    for (int i = 0; code == EXIT_OK && i < count; i++) {
        code = take(observer, &files, request, specs[i]);
        if (code != EXIT_OK || !(request->each || i == count - 1))
            continue;
        char suffix[16] = "";
        if (request->each)
            snprintf(suffix, sizeof suffix, "_%d", i);
        const size_t before = readings.count;
        code = readings_take(&readings, observer, suffix);
        if (code == EXIT_OK && request->global_scale)
            code = readings_use_global_scale(&readings, before, suffix, config, global_scale);
        if (code == EXIT_OK && request->each && i == count - 1)
            code = readings_repeat(&readings, readings.count - before, strlen(suffix));
    }
    qobs_counts counts = {.struct_size = sizeof counts};
    qobs_observer_counts(observer, &counts, NULL);
    if (code == EXIT_OK && readings.count == 0 && counts.batches == 0)
        code = complain(EXIT_WRONG, "the tensors have no elements: there is nothing to make a result of");
    if (code == EXIT_OK)
        code = check_inputs();
    if (code == EXIT_OK && readings.count == 0)
        fprintf(stderr, "qobs: warning: %s has no results\n", request->preset);
    if (code == EXIT_OK) {
        warn_if_no_scale(observer);
        warn_if_unweighted(observer);
        if (request->state)
            code = state_write(observer, request->state);
        if (code == EXIT_OK && request->out)
            code = readings_write_safetensors(&readings, request->out);
        if (code == EXIT_OK && request->json)
            code = readings_print_json(&readings);
        else if (code == EXIT_OK && !request->out && !request->state)
            readings_print(&readings);
    }
    readings_free(&readings);
    qobs_observer_destroy(observer);
    tensor_files_close(&files);
    return code;
}

static int set(qobs_config *config, const char *key, const char *value)
{
    qobs_error error;
    if (value && qobs_config_set(config, key, value, &error) != QOBS_OK)
        return complain_status(&error, NULL);
    return EXIT_OK;
}

int command_observe(int argc, char **argv)
{
    enum { PRESET = 256, SET, BASE, STRATEGY, G_IDX, IMPORTANCE, GLOBAL_SCALE, EACH, NONFINITE, OUT, STATE, JSON, ISA, THREADS };
    static const struct option options[] = {{"preset", required_argument, NULL, PRESET},
                                            {"set", required_argument, NULL, SET},
                                            {"base-name", required_argument, NULL, BASE},
                                            {"strategy", required_argument, NULL, STRATEGY},
                                            {"g-idx", required_argument, NULL, G_IDX},
                                            {"importance", required_argument, NULL, IMPORTANCE},
                                            {"global-scale", required_argument, NULL, GLOBAL_SCALE},
                                            {"each", no_argument, NULL, EACH},
                                            {"nonfinite", required_argument, NULL, NONFINITE},
                                            {"out", required_argument, NULL, OUT},
                                            {"state", required_argument, NULL, STATE},
                                            {"json", no_argument, NULL, JSON},
                                            {"isa", required_argument, NULL, ISA},
                                            {"threads", required_argument, NULL, THREADS},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct request request = {0};
    const char *base = NULL, *strategy = NULL, *nonfinite = NULL;
    char **assignments = calloc((size_t)argc, sizeof *assignments);
    int assigned = 0, code = EXIT_OK;
    request.importance = calloc((size_t)argc, sizeof *request.importance);
    if (!assignments || !request.importance) {
        free(assignments);
        free(request.importance);
        return complain(EXIT_TROUBLE, "no memory");
    }
    for (int c; code == EXIT_OK && (c = getopt_long(argc, argv, "ho:", options, NULL)) != -1;)
        switch (c) {
        case PRESET:
            request.preset = optarg;
            break;
        case SET:
            assignments[assigned++] = optarg;
            break;
        case BASE:
            base = optarg;
            break;
        case STRATEGY:
            strategy = optarg;
            break;
        case G_IDX:
            request.g_idx = optarg;
            break;
        case IMPORTANCE:
            request.importance[request.importance_count++] = optarg;
            break;
        case GLOBAL_SCALE:
            request.global_scale = optarg;
            break;
        case EACH:
            request.each = true;
            break;
        case NONFINITE:
            nonfinite = optarg;
            break;
        case OUT:
        case 'o':
            request.out = optarg;
            break;
        case STATE:
            request.state = optarg;
            break;
        case JSON:
            request.json = true;
            break;
        case ISA:
            request.isa = optarg;
            break;
        case THREADS:
            request.threads = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            free(assignments);
            free(request.importance);
            return EXIT_OK;
        default:
            code = EXIT_WRONG;
        }
    qobs_error error;
    qobs_config *config = NULL;
    struct threads threads = {0};
    if (code == EXIT_OK && !request.preset)
        code = complain(EXIT_WRONG, "observe: --preset is missing (see qobs observe --help)");
    if (code == EXIT_OK && qobs_config_create(&config, request.preset, NULL, &error) != QOBS_OK)
        code = complain_status(&error, "--preset");
    if (code == EXIT_OK && optind == argc)
        code = complain(EXIT_WRONG, "observe: no tensor given");
    if (code == EXIT_OK && request.out)
        code = check_output(request.out);
    if (code == EXIT_OK && request.importance_count > 0 && !config_has(config, "strict"))
        code = complain(EXIT_WRONG, "--importance: %s does not weigh columns", request.preset);
    if (code == EXIT_OK && request.global_scale && strncmp(request.preset, "llmc.", 5) != 0)
        code = complain(EXIT_WRONG, "--global-scale: %s has none; presets of llm-compressor (llmc.*) do", request.preset);
    if (code == EXIT_OK && request.isa && qobs_isa_limit(request.isa, &error) != QOBS_OK)
        code = complain_status(&error, "--isa");
    for (int i = 0; code == EXIT_OK && i < assigned; i++)
        code = set_option(config, assignments[i]);
    if (code == EXIT_OK)
        code = set(config, "base_name", base);
    if (code == EXIT_OK)
        code = set(config, "strategy", strategy);
    if (code == EXIT_OK)
        code = set(config, "nonfinite", nonfinite);
    if (code == EXIT_OK)
        code = threads_start(&threads, request.threads);
    if (code == EXIT_OK)
        code = observe(config, &threads, &request, argc - optind, argv + optind);
    threads_stop(&threads);
    qobs_config_destroy(config);
    free(assignments);
    free(request.importance);
    return code;
}
