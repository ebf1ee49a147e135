/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs calibrate: which weights, with which settings, and what is told about it. */
#include "calibrate.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "progress.h"
#include "select.h"

static const char help[] =
    "usage: qobs calibrate MODEL --scheme NAME -o OUT.safetensors [OPTION]...\n"
    "\n"
    "Observes the weights of a checkpoint and writes <module>.weight_scale (and .weight_zero_point) for each.\n"
    "MODEL is .safetensors, *.safetensors.index.json or a directory with one of them.\n"
    "\n"
    "  --scheme NAME        what to quantize to; the list is below\n"
    "  --preset NAME        the observer (default llmc.memoryless_minmax; qobs info lists them)\n"
    "  --set KEY=VALUE      a setting of the observer, over the scheme's: group_size=64\n"
    "  --targets REGEX      modules to calibrate, matched from the start of the name; may be repeated\n"
    "                       (default: 2-D weights that are not embeddings, norms or lm_head)\n"
    "  --ignore REGEX       modules to leave out; may be repeated\n"
    "  -o, --out FILE       the output; it appears when it is complete\n"
    "  --json REPORT        write a report there (- for standard output)\n"
    "  --quiet              print no table\n"
    "  --isa NAME           use this instruction set (qobs info lists them)\n"
    "  --threads N          default: one for each processor\n"
    "  --help               print this and exit\n"
    "\n"
    "schemes:\n";

/* ---- Layers --------------------------------------------------------------------------------------------------------------- */

static int64_t block_height(const qobs_config *config)
{
    char text[64];
    long long height = 1;
    if (qobs_config_get(config, "block_structure", text, sizeof text, NULL) == QOBS_OK)
        sscanf(text, "[%lld,", &height);
    return height;
}

/* What the scale of this weight looks like, and how the weight can be sliced. Refuses what the settings do not fit. */
static int plan_layer(struct layer *l, const qobs_config *config, struct fail *f)
{
    qobs_plan *plan;
    qobs_error error;
    int64_t shape[QOBS_PLAN_MAX_NDIM];
    if (qobs_plan_create(&plan, config, &l->tensor, NULL, NULL, &error) != QOBS_OK ||
        qobs_config_qparam_dtypes(config, l->tensor.dtype, &l->scale_dtype, &l->zero_point_dtype, &error) != QOBS_OK)
        return fail(f, "%s: tensor '%s': %s", l->ref->file, l->ref->name, error.message);
    l->ndim = qobs_plan_shape(plan, shape) - 2;
    qobs_plan_destroy(plan);
    memcpy(l->shape, shape + 1, (size_t)l->ndim * sizeof *shape);
    l->qparams = 1;
    for (int d = 0; d < l->ndim; d++)
        l->qparams *= l->shape[d];
    /* Where the scale's first dimension goes along with the weight's, rows are independent; blocks are rows of blocks. */
    const int64_t rows = l->ref->shape[0];
    l->sliced = l->ndim > 1 && l->shape[0] > 0;
    l->rows_per_unit = !l->sliced ? rows : l->shape[0] == rows ? 1 : block_height(config);
    l->qparams_per_unit = l->sliced ? l->qparams / l->shape[0] : l->qparams;
    return 0;
}

static int choose_layers(struct calibration *c, const struct tensor_set *set, const struct selection *selection,
                         const qobs_config *config)
{
    struct fail f;
    c->layers = calloc(tensors_count(set) ? tensors_count(set) : 1, sizeof *c->layers);
    if (!c->layers)
        return complain(EXIT_TROUBLE, "no memory for %zu layers", tensors_count(set));
    for (size_t i = 0; i < tensors_count(set); i++) {
        struct layer l = {.ref = tensors_at(set, i)};
        if (!selection_has(selection, l.ref, &l.module) || l.ref->bytes == 0)
            continue;
        if (tensor_of_ref(l.ref, &l.tensor, &f) != 0 || l.tensor.dtype > QOBS_F64) {
            c->skipped++;
            continue;
        }
        if (plan_layer(&l, config, &f) != 0)
            return complain(EXIT_WRONG, "%s", f.message);
        c->bytes += l.ref->bytes;
        c->layers[c->count++] = l;
    }
    if (c->count == 0)
        return complain(EXIT_WRONG, "%s: holds %zu tensors, but none that is selected and can be observed%s", c->model,
                        tensors_count(set), selection->targets ? " (--targets)" : "");
    return EXIT_OK;
}

/* ---- Command -------------------------------------------------------------------------------------------------------------- */

static void print_help(void)
{
    fputs(help, stdout);
    for (int i = 0; scheme_at(i); i++)
        printf("  %-12s %s\n", scheme_at(i)->name, scheme_at(i)->summary);
}

static int unknown_scheme(const char *name)
{
    char known[256] = "";
    for (int i = 0; scheme_at(i); i++) {
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, scheme_at(i)->name, sizeof known - strlen(known) - 1);
    }
    return complain(EXIT_WRONG, "--scheme: %s%s%s; known are %s", name ? "'" : "", name ? name : "is missing",
                    name ? "' is unknown" : "", known);
}

static int apply_scheme(qobs_config *config, const char *preset, const struct scheme *scheme)
{
    char settings[256], *rest = settings;
    snprintf(settings, sizeof settings, "%s", scheme->weights);
    for (char *setting; (setting = strtok_r(rest, " ", &rest));) {
        char *value = strchr(setting, '=');
        qobs_error error;
        *value++ = '\0';
        if (qobs_config_set(config, setting, value, &error) != QOBS_OK)
            return complain(EXIT_WRONG, "--preset: %s cannot serve scheme %s: %s", preset, scheme->name, error.message);
    }
    return EXIT_OK;
}

static bool is_set_to(const qobs_config *config, const char *key, const char *value)
{
    char text[64] = "";
    return qobs_config_get(config, key, text, sizeof text, NULL) == QOBS_OK && strcmp(text, value) == 0;
}

/* What the observers' scales are, and what the checkpoint has for them. */
static void settle_scale_dtypes(struct calibration *c, const qobs_config *config)
{
    const char *const coded = is_set_to(config, "scale_dtype", "float8_e4m3fn") ? "F8_E4M3"
                              : is_set_to(config, "scale_dtype", "uint8")       ? "U8"
                                                                                : NULL;
    for (size_t i = 0; i < c->count; i++) {
        struct layer *l = &c->layers[i];
        if (c->global_scales)
            l->scale_dtype = QOBS_F32;
        l->stored_scale = coded ? coded : qobs_dtype_name(l->scale_dtype);
    }
}

/* The output must not replace what is read. */
static int check_no_input(const char *out, const struct tensor_set *set)
{
    struct stat output, input;
    if (stat(out, &output) != 0)
        return EXIT_OK;
    const char *file = "";
    for (size_t i = 0; i < tensors_count(set); i++) {
        if (strcmp(tensors_at(set, i)->file, file) == 0)
            continue;
        file = tensors_at(set, i)->file;
        if (stat(file, &input) == 0 && input.st_dev == output.st_dev && input.st_ino == output.st_ino)
            return complain(EXIT_WRONG, "--out: %s is part of the model", out);
    }
    return EXIT_OK;
}

struct arguments {
    struct calibration c;
    const char *scheme, *isa, *threads;
    struct selection selection;
    char **assignments;
    int assigned;
    bool quiet, help;
};

static int parse(struct arguments *a, int argc, char **argv)
{
    enum { SCHEME = 256, PRESET, SET, TARGETS, IGNORE, JSON, QUIET, ISA, THREADS };
    static const struct option options[] = {{"scheme", required_argument, NULL, SCHEME},
                                            {"preset", required_argument, NULL, PRESET},
                                            {"set", required_argument, NULL, SET},
                                            {"targets", required_argument, NULL, TARGETS},
                                            {"ignore", required_argument, NULL, IGNORE},
                                            {"out", required_argument, NULL, 'o'},
                                            {"json", required_argument, NULL, JSON},
                                            {"quiet", no_argument, NULL, QUIET},
                                            {"isa", required_argument, NULL, ISA},
                                            {"threads", required_argument, NULL, THREADS},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct fail f;
    for (int c; (c = getopt_long(argc, argv, "ho:", options, NULL)) != -1;)
        switch (c) {
        case SCHEME:
            a->scheme = optarg;
            break;
        case PRESET:
            a->c.preset = optarg;
            break;
        case SET:
            a->assignments[a->assigned++] = optarg;
            break;
        case TARGETS:
            if (selection_add_target(&a->selection, optarg, &f) != 0)
                return complain(EXIT_WRONG, "%s", f.message);
            break;
        case IGNORE:
            if (selection_add_ignore(&a->selection, optarg, &f) != 0)
                return complain(EXIT_WRONG, "%s", f.message);
            break;
        case 'o':
            a->c.out = optarg;
            break;
        case JSON:
            a->c.report = optarg;
            break;
        case QUIET:
            a->quiet = true;
            break;
        case ISA:
            a->isa = optarg;
            break;
        case THREADS:
            a->threads = optarg;
            break;
        case 'h':
            a->help = true;
            return EXIT_OK;
        default:
            return EXIT_WRONG;
        }
    if (optind + 1 != argc)
        return complain(EXIT_WRONG, "calibrate: expected one model, got %d (see qobs calibrate --help)", argc - optind);
    a->c.model = argv[optind];
    if (!a->c.out)
        return complain(EXIT_WRONG, "calibrate: -o OUT.safetensors is missing");
    if (check_output(a->c.out) != EXIT_OK)
        return EXIT_WRONG;
    a->c.scheme = a->scheme ? scheme_find(a->scheme) : NULL;
    return a->c.scheme ? EXIT_OK : unknown_scheme(a->scheme);
}

static int calibrate(struct arguments *a, struct threads *threads)
{
    struct calibration *c = &a->c;
    struct tensor_set set = {0};
    qobs_config *config = NULL;
    qobs_error error;
    struct fail f;
    int code = EXIT_OK;
    if (a->isa && qobs_isa_limit(a->isa, &error) != QOBS_OK)
        return complain_status(&error, "--isa");
    if (qobs_config_create(&config, c->preset, NULL, &error) != QOBS_OK)
        return complain_status(&error, "--preset");
    code = apply_scheme(config, c->preset, c->scheme);
    for (int i = 0; code == EXIT_OK && i < a->assigned; i++)
        code = set_option(config, a->assignments[i]);
    if (code == EXIT_OK && tensors_open(&set, c->model, &f) != 0)
        code = complain(EXIT_WRONG, "%s", f.message);
    if (code == EXIT_OK && !is_set_to(config, "base_name", "weight"))
        code = complain(EXIT_WRONG, "--set: base_name must stay weight");
    if (code == EXIT_OK)
        code = check_no_input(c->out, &set);
    if (code == EXIT_OK)
        code = choose_layers(c, &set, &a->selection, config);
    if (code == EXIT_OK) {
        c->zero_points = is_set_to(config, "symmetric", "false");
        c->global_scales = is_set_to(config, "strategy", "tensor_group");
        settle_scale_dtypes(c, config);
        const double start = seconds_now();
        code = calibration_run(c, config, threads);
        c->seconds = seconds_now() - start;
    }
    if (code == EXIT_OK && !a->quiet)
        calibration_print(c);
    if (code == EXIT_OK && c->report)
        code = calibration_write_report(c);
    free(c->layers);
    tensors_close(&set);
    qobs_config_destroy(config);
    return code;
}

int command_calibrate(int argc, char **argv)
{
    struct arguments a = {.c = {.preset = "llmc.memoryless_minmax"}, .assignments = calloc((size_t)argc, sizeof(char *))};
    if (!a.assignments)
        return complain(EXIT_TROUBLE, "no memory");
    struct threads threads = {0};
    int code = parse(&a, argc, argv);
    if (code == EXIT_OK && a.help)
        print_help();
    else if (code == EXIT_OK)
        code = threads_start(&threads, a.threads);
    if (code == EXIT_OK && !a.help)
        code = calibrate(&a, &threads);
    threads_stop(&threads);
    selection_free(&a.selection);
    free(a.assignments);
    return code;
}
