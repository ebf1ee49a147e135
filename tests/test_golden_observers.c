/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Observers against upstream: every case of the suites below, batch by batch, with shapes and dtypes, on every
 * instruction set of this CPU. With the path of the program, `test_golden_observers PROGRAM`, it runs the first case of
 * each suite through `qobs observe` instead, and expects the same. A case names the rule that a result is held to. */
#include "golden.h"

#include <ctype.h>
#include <math.h>
#include <unistd.h>

#include "base/tensor.h"
#include "number/convert.h"
#include "qobs/format.h"
#include "calls.h"

enum { MOST_SETTINGS = 32, MOST_INPUTS = 64, MOST_RESULTS = 600, NAME = 64 };

/* A suite, its number of cases, how many of them other tests run (left_out), and how many upstream's machine decides.
 */
static const struct suite {
    const char *name, *prefix;
    size_t count, left_out, optional;
} suites[] = {{"torch_minmax", "", 151, 0, 1},
              {"torch_histogram", "", 38, 0, 0},
              {"torchao", "", 276, 1, 0},
              {"llmc_minmax", "", 119, 9, 0},
              {"llmc_minmax_2026_11", "", 125, 37, 0},
              {"llmc_mse", "", 85, 0, 0},
              {"llmc_mse_2026_11", "", 97, 12, 14},
              {"llmc_2026_10", "", 66, 32, 0},
              {"llmc_old", "", 133, 0, 21},
              {"quark", "", 323, 0, 9},
              {"quark_2026_11", "", 489, 6, 2},
              {"trt", "max_", 46, 0, 0},
              {"trt_2026_11", "", 129, 58, 0},
              {"ort", "", 112, 2, 0},
              {"ort_static", "", 190, 0, 0},
              {"aiedge", "", 398, 0, 0},
              {"nncf", "", 347, 0, 0}};
enum { SUITES = sizeof suites / sizeof *suites };

static const struct suite *suite;
static const char *program;                                  /* NULL: the library */
static size_t left_out_count, optional_count, without_sleef; /* of the suite; the last one of all */

/* A result that is expected: its name here, the tensor that has it, the rule. */
struct wanted {
    char name[NAME];
    const char *key, *rule;
    const char *quantity; /* its name in the suite */
};

/* One observation of a case: what the observer is given, and what it is expected to give. */
struct observation {
    const json_object *c;
    char preset[NAME];
    char settings[MOST_SETTINGS][2][256];
    size_t setting_count;
    const char *inputs[MOST_INPUTS];
    size_t input_count;
    const char *g_idx;
    const char *importance[MOST_INPUTS];
    size_t importance_count;
    struct wanted wanted[MOST_RESULTS];
    size_t wanted_count;
    bool each, reset_before_last, refused;
};

static bool is_suite(const char *name) { return strcmp(suite->name, name) == 0; }

/* The last word of upstream: the class. */
static const char *class_of(const json_object *c)
{
    const char *space = strrchr(text_of(c, "upstream"), ' ');
    return space ? space + 1 : text_of(c, "upstream");
}

static const json_object *config_of(const json_object *c) { return json_get(c, "config"); }

static bool is_set(const json_object *c, const char *key) { return json_get(config_of(c), key) != NULL; }

/* ---- Cases of other tests ---------------------------------------------------------------------------------------- */

/* Why a case is not an observation; NULL: it is one. */
static const char *left_out(const json_object *c)
{
    static const char *const rows[][3] = {
        {"quark_2026_11", "realign_single_sequential_quantizer", "test_qparams"},
        {"trt_2026_11", "fake_tensor_quant", "test_golden_quantize"},
        {"trt_2026_11", "scaled_e4m3", "test_golden_quantize"},
        {"trt_2026_11", "calibrate_weights", "test_golden_weights"},
        {"trt_2026_11", "NVFP4MSECalibrator", "test_golden_search sets the amax"},
        {"trt_2026_11", "MseCalibrator", "test_golden_search sets the amax"},
        {"trt_2026_11", "Hessian)", "test_golden_hessian sets the amax"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_suite(rows[i][0]) && strcmp(class_of(c), rows[i][1]) == 0)
            return rows[i][2];
    const char *name = text_of(c, "name");
    if (strcmp(name, "torchao/fixed_set_vec") == 0)
        return "several scales are set; a setting holds one";
    if (strcmp(name, "ort/pct_empty_True") == 0 || strcmp(name, "ort/pct_then_empty_True") == 0)
        return "an empty batch is ignored; upstream makes bins from 0 to 1 of it, or raises";
    return is_set(c, "fused") ? "fused observers: test_qparams" : NULL;
}

/* ---- Presets and settings ---------------------------------------------------------------------------------------- */

static void preset_of(const json_object *c, char preset[NAME])
{
    const json_object *config = config_of(c);
    const char *family = "torch", *class = class_of(c);
    char lower[32];
    if (strncmp(suite->name, "llmc", 4) == 0) {
        family = "llmc";
        class = text_of(config, "observer");
        class = strcmp(class, "MinMaxObserver") == 0             ? "minmax"
                : strcmp(class, "MovingAverageMSEObserver") == 0 ? "mse"
                                                                 : class;
    } else if (strncmp(suite->name, "quark", 5) == 0) {
        family = "quark";
    } else if (strncmp(suite->name, "trt", 3) == 0) {
        family = "modelopt";
    } else if (is_suite("aiedge") || is_suite("nncf")) {
        family = suite->name;
    } else if (is_suite("torchao")) {
        family = "torchao";
        class = text_of(config, "cls");
    } else if (is_suite("ort_static")) {
        family = "ort";
    } else if (is_suite("ort")) {
        family = "ort";
        snprintf(lower, sizeof lower, "%.12sCalibrater", text_of(config, "method"));
        lower[0] = (char)toupper((unsigned char)lower[0]);
        class = lower;
    } else if (is_suite("torch_histogram")) {
        class = "HistogramObserver";
    } else {
        class = strrchr(class, '.') + 1;
    }
    snprintf(preset, NAME, "%.12s.%.50s", family, class);
}

static void add_setting(struct observation *o, const char *key, const char *value)
{
    assert_true(o->setting_count < MOST_SETTINGS && strlen(value) < 256);
    snprintf(o->settings[o->setting_count][0], 256, "%s", key);
    snprintf(o->settings[o->setting_count++][1], 256, "%s", value);
}

/* Adds a member of the configuration; null is upstream's default. */
static void add_member(struct observation *o, const char *key, const json_object *value)
{
    if (!value)
        return;
    char *text = json_print(value, JSON_LINE);
    add_setting(o, key, json_is_string(value) ? json_text(value) : text);
    free(text);
}

/* Members that describe the case, and those that change nothing here. */
static bool describes(const char *key)
{
    static const char words[] =
        " n_batches warns has_g_idx has_global_scale scale_out_dtype zero_point_out_dtype total_steps upstream_gap "
        "importance n_imatrix_activations qparams_after_each_batch num_bins_final observer fused dst_nbins "
        "upsample_rate op_name reset_before_last amax_dtype amax_shape result ";
    char word[64];
    snprintf(word, sizeof word, " %s ", key);
    return strstr(words, word) != NULL;
}

static double number_of(const qobs_tensor *t, size_t i);

/* The settings of torchao's classes; scale and zero point of a fixed observer are inputs in the suite. */
static void add_torchao(struct observation *o)
{
    static const char *const names[] = {"mapping_type",  "target_dtype", "granularity",       "quant_min",
                                        "quant_max",     "eps",          "scale_dtype",       "zero_point_dtype",
                                        "preserve_zero", "is_dynamic",   "zero_point_domain", "averaging_constant",
                                        "steps",         "run_once"};
    static const char *const keys[][2] = {
        {"PerAxis", "axis"}, {"PerGroup", "group_size"}, {"PerRow", "dim"}, {"PerBlock", "block_size"}};
    const json_object *config = config_of(o->c), *args = json_get(config, "granularity_args");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add_member(o, names[i], json_get(config, names[i]));
    for (size_t i = 0; i < sizeof keys / sizeof *keys && json_count(args) > 0; i++)
        if (strcmp(keys[i][0], text_of(config, "granularity")) == 0)
            add_member(o, keys[i][1], i == 3 ? args : json_at(args, 0));
    if (strcmp(text_of(config, "cls"), "AffineQuantizedMinMaxObserver") == 0) {
        add_setting(o, "module", strcmp(text_of(config, "path"), "pt2e") == 0 ? "pt2e" : "quantization");
        add_setting(o, "keepdim", json_is_true(json_get(config, "keepdim")) ? "true" : "false");
    }
    if (strcmp(text_of(config, "cls"), "AffineQuantizedFixedQParamObserver") != 0)
        return;
    for (size_t i = 1; i < o->input_count; i++) {
        const qobs_tensor t = tensor_named(o->inputs[i]);
        char text[64];
        snprintf(text, sizeof text, i == 1 ? "%.17g" : "%.0f", number_of(&t, 0));
        add_setting(o, i == 1 ? "scale" : "zero_point", t.ndim > 0 && t.shape[0] > 1 ? "[several]" : text);
    }
    o->input_count = 1;
}

static void add_ort(struct observation *o)
{
    static const char *const names[] = {"num_bins", "num_quantized_bins", "percentile", "scenario"};
    const json_object *config = config_of(o->c);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add_member(o, names[i], json_get(config, names[i]));
    if (strcmp(text_of(config, "method"), "percentile") == 0)
        add_member(o, "symmetric", json_get(config, "symmetric"));
}

static bool has_nonfinite(const char *key)
{
    const qobs_tensor t = tensor_named(key);
    int64_t n = 1;
    for (int d = 0; d < t.ndim; d++)
        n *= t.shape[d];
    for (int64_t i = 0; i < n && t.dtype <= QOBS_F64; i++)
        if (!isfinite(number_of(&t, (size_t)i)))
            return true;
    return false;
}

/* Upstream lets NaN and infinity through, ignores them, or raises. torch.ao's histogram observer refuses them, too. */
static void add_nonfinite(struct observation *o)
{
    bool found = false;
    for (size_t i = 0; i < o->input_count; i++)
        found |= has_nonfinite(o->inputs[i]);
    for (size_t i = 0; i < o->importance_count; i++)
        found |= has_nonfinite(o->importance[i]);
    if (!found || is_suite("torch_histogram"))
        return;
    const bool raises = o->refused && (is_suite("ort") || is_suite("trt_2026_11"));
    add_setting(o, "nonfinite", raises ? "refuse" : is_suite("ort") ? "ignore" : "propagate");
}

/* ---- Expectations ------------------------------------------------------------------------------------------------ */

/* False for what no observer here gives, or what depends on upstream's machine. */
static bool is_compared(const char *name, const char *rule)
{
    static const char *const others[] = {"errors", "best_", "edge_first_last", "aux", "range_val"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return false;
    return strcmp(rule, "platform") != 0;
}

/* The name of a result here; NULL: there is none. */
static const char *name_here(const char *quantity)
{
    static const char *const ort[][2] = {{"data_min", "min_val"}, {"data_max", "max_val"},   {"histogram", "hist"},
                                         {"idx", NULL},           {"divergences_f32", NULL}, {"threshold", NULL},
                                         {"divergences", NULL}};
    static const char *const modelopt[][2] = {
        {"histogram", "calib_hist"}, {"running_max", NULL}, {"dynamic_bias", NULL}};
    const char *const(*rows)[2] = is_suite("ort") ? ort : modelopt;
    const size_t count = is_suite("ort") ? 7 : is_suite("trt_2026_11") ? 3 : 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i][0], quantity) == 0)
            return rows[i][1];
    return quantity;
}

static void want(struct observation *o, const char *name, const char *quantity)
{
    const json_object *key = json_get(json_get(o->c, "expect"), quantity);
    const json_object *rule = json_get(json_get(o->c, "compare"), quantity);
    const char *text = rule ? json_text(rule) : "exact";
    if (!name || !is_compared(name, text))
        return;
    assert_true(o->wanted_count < MOST_RESULTS && key);
    struct wanted *w = &o->wanted[o->wanted_count++];
    *w = (struct wanted){.key = json_text(key), .rule = text, .quantity = quantity};
    snprintf(w->name, sizeof w->name, "%s", name);
    const size_t length = strlen(name);
    o->each |= length > 2 && name[length - 2] == '_' && isdigit((unsigned char)name[length - 1]);
}

static void want_all(struct observation *o)
{
    json_each(item, json_get(o->c, "expect")) want(o, name_here(item.key), item.key);
}

/* ---- Observations of a case -------------------------------------------------------------------------------------- */

static void open_observation(struct observation *o, const json_object *c)
{
    *o = (struct observation){.c = c, .refused = json_get(c, "error") != NULL};
    o->reset_before_last = json_is_true(json_get(config_of(c), "reset_before_last"));
    preset_of(c, o->preset);
    json_each(key, json_get(c, "inputs"))
    {
        assert_true(o->input_count < MOST_INPUTS);
        o->inputs[o->input_count++] = json_text(key.value);
    }
    if (json_is_true(json_get(config_of(c), "has_g_idx")))
        o->g_idx = o->inputs[--o->input_count];
    for (int i = 0; i < MOST_INPUTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "act_%d", i);
        const json_object *key = json_get(json_get(c, "aux"), name);
        if (key)
            o->importance[o->importance_count++] = json_text(key);
    }
    if (is_suite("torchao"))
        add_torchao(o);
    else if (is_suite("ort"))
        add_ort(o);
    else
        json_each(item, config_of(c)) if (!describes(item.key)) add_member(o, item.key, item.value);
    if (is_suite("llmc_2026_10"))
        add_setting(o, "version", "2026-10");
    add_nonfinite(o);
}

/* The scales of one histogram in three dtypes, which are settings. */
static void histogram_observation(struct observation *o, int index)
{
    static const char *const rows[][2] = {{"quint8", "affine"}, {"qint8", "symmetric"}, {"quint4x2", "affine"}};
    static const char *const common[] = {"histogram", "min_val", "max_val", "new_min", "new_max"};
    char scheme[NAME], quantity[2][NAME];
    snprintf(scheme, sizeof scheme, "per_tensor_%s", rows[index][1]);
    add_setting(o, "dtype", rows[index][0]);
    add_setting(o, "qscheme", scheme);
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (json_get(json_get(o->c, "expect"), common[i]))
            want(o, common[i], common[i]);
    for (int i = 0; i < 2; i++) {
        snprintf(quantity[i], NAME, "%s_%s_%s", i ? "zero_point" : "scale", rows[index][0], rows[index][1]);
        json_each(item, json_get(o->c, "expect")) if (strcmp(item.key, quantity[i]) == 0)
            want(o, i ? "zero_point" : "scale", item.key);
    }
}

/* Makes observation `index` of a case; false: there is none. */
static bool make_observation(struct observation *o, const json_object *c, int index)
{
    const bool histogram = is_suite("torch_histogram") && !json_get(c, "error");
    const json_object *bias = json_get(json_get(c, "expect"), "dynamic_bias");
    if (index >= (histogram ? 3 : bias && is_suite("trt_2026_11") ? 2 : 1))
        return false;
    open_observation(o, c);
    if (histogram) {
        histogram_observation(o, index);
    } else if (index == 1) { /* the dynamic bias of a batch is that of an observer that has seen nothing else */
        o->inputs[0] = o->inputs[o->input_count - 1];
        o->input_count = 1;
        want(o, "bias", "dynamic_bias");
    } else {
        want_all(o);
    }
    return true;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

struct numbers {
    double *items;
    size_t count;
    qobs_dtype dtype;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
};

static double number_of(const qobs_tensor *t, size_t i)
{
    const unsigned char *at = (const unsigned char *)t->data + i * qobs_dtype_size(t->dtype);
    int64_t i64;
    int32_t i32;
    int16_t i16;
    switch (t->dtype) {
    case QOBS_I64:
        return memcpy(&i64, at, sizeof i64), (double)i64;
    case QOBS_I32:
        return memcpy(&i32, at, sizeof i32), (double)i32;
    case QOBS_I16:
        return memcpy(&i16, at, sizeof i16), (double)i16;
    case QOBS_I8:
        return (double)(signed char)*at;
    case QOBS_U8:
        return (double)*at;
    case QOBS_F8_E4M3:
        return (double)qobs_format_decode(qobs_format_find("fp8_e4m3"), *at);
    default:
        return qobs_element(at, t->dtype);
    }
}

static struct numbers numbers_of(const qobs_tensor *t)
{
    struct numbers n = {.dtype = t->dtype, .ndim = t->ndim, .count = 1};
    for (int d = 0; d < t->ndim; d++)
        n.count *= (size_t)(n.shape[d] = t->shape[d]);
    n.items = calloc(n.count + 1, sizeof *n.items);
    assert_non_null(n.items);
    for (size_t i = 0; i < n.count; i++)
        n.items[i] = number_of(t, i);
    return n;
}

/* Every 37th edge of a histogram, and the last. */
static struct numbers sample_of(struct numbers edges)
{
    size_t n = 0;
    for (size_t i = 0; i < edges.count; i += 37)
        edges.items[n++] = edges.items[i];
    edges.items[n] = edges.items[edges.count - 1];
    edges.shape[0] = (int64_t)(edges.count = n + 1);
    return edges;
}

/* The source of results: an observer, or the file that the program wrote. */
struct source {
    const qobs_observer *observer;
    const struct st_file *file;
};

static bool read_result(const struct source *from, const char *name, struct numbers *n)
{
    qobs_result r = {.struct_size = sizeof r};
    if (from->file) {
        const struct st_tensor *t = st_find(from->file, name);
        const qobs_tensor view = {.struct_size = sizeof view,
                                  .data = t ? t->data : NULL,
                                  .dtype = t ? dtype_in_library(t->dtype) : 0,
                                  .ndim = t ? t->ndim : 0,
                                  .shape = t ? t->shape : NULL};
        return t && (*n = numbers_of(&view), true);
    }
    if (qobs_observer_result_find(from->observer, name, &r, NULL) != QOBS_OK)
        return false;
    void *data = malloc(r.size + 1);
    assert_non_null(data);
    const int status = qobs_observer_read(from->observer, name, data, r.size, NULL);
    const qobs_tensor view = {
        .struct_size = sizeof view, .data = data, .dtype = r.dtype, .ndim = r.ndim, .shape = r.shape};
    if (status == QOBS_OK)
        *n = numbers_of(&view);
    free(data);
    return status == QOBS_OK;
}

/* ---- Rules ------------------------------------------------------------------------------------------------------- */

/* Counts may be of another width, and fp8 may come as its numbers. */
static bool same_dtype(const json_object *c, const char *name, qobs_dtype wanted, qobs_dtype got)
{
    static const char *const keys[] = {"scale_out_dtype", "zero_point_out_dtype"};
    static const char *const others[][2] = {{"ort", "hist"}, {"trt_2026_11", "calib_hist"}, {"aiedge", "zero_point"}};
    for (int i = 0; i < 2; i++)
        if (is_set(c, keys[i]) && strstr(text_of(config_of(c), keys[i]), "float8"))
            return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_suite(others[i][0]) && strcmp(name, others[i][1]) == 0)
            return true;
    return wanted == got;
}

/* Ties by qparam: another step has the best error, to within 2e-6 of it. `errors` has a row for each step. */
static void add_ties(bool *ties, size_t count, const struct numbers *errors, bool *any)
{
    const size_t steps = (size_t)errors->shape[0], qparams = errors->count / steps;
    for (size_t i = 0; i < qparams; i++) {
        double least = INFINITY;
        int near = 0;
        for (size_t s = 0; s < steps; s++)
            least = fmin(least, errors->items[s * qparams + i]);
        for (size_t s = 0; s < steps; s++)
            near += errors->items[s * qparams + i] <= least * (1 + 2e-6);
        *any |= near > 1;
        if (qparams == count)
            ties[i] |= near > 1;
    }
    for (size_t i = 0; i < count && qparams != count; i++)
        ties[i] |= *any;
}

/* The qparams of a result whose best error several steps share. */
static bool *find_ties(const json_object *c, size_t count)
{
    bool any = false, *ties = calloc(count + 1, sizeof *ties);
    assert_non_null(ties);
    json_each(item, json_get(c, "expect"))
    {
        if (strncmp(item.key, "errors", 6) != 0 && strcmp(item.key, "divergences") != 0)
            continue;
        const qobs_tensor t = tensor_named(json_text(item.value));
        struct numbers errors = numbers_of(&t);
        add_ties(ties, count, &errors, &any);
        free(errors.items);
    }
    return ties;
}

/* By how much two numbers may differ: a share of the first, a number, and whether counts may move to a neighbour. */
struct tolerance {
    double relative, absolute;
    bool some, counts;
};

/* "rel R + abs A*range": the range is that of the edges of the histogram. */
static struct tolerance tolerance_of(const char *rule, const struct source *from, const struct numbers *wanted)
{
    const char *relative = strstr(rule, "rel "), *absolute = strstr(rule, "+ abs ");
    struct tolerance t = {.counts = strcmp(rule, "bin-tie") == 0 || strncmp(rule, "exact-if", 8) == 0};
    double low = INFINITY, high = -INFINITY;
    struct numbers edges;
    t.some = relative || t.counts;
    t.relative = relative ? strtod(relative + 4, NULL) : 1e-5;
    t.absolute = absolute ? strtod(absolute + 6, NULL) : 0;
    if (!absolute || !strstr(absolute, "*range"))
        return t;
    const bool own = read_result(from, "hist_edges", &edges);
    const struct numbers *of = own ? &edges : wanted;
    for (size_t i = 0; i < of->count; i++) {
        low = fmin(low, of->items[i]);
        high = fmax(high, of->items[i]);
    }
    t.absolute *= high - low;
    if (own)
        free(edges.items);
    return t;
}

static bool is_close(const struct tolerance *t, double a, double b)
{
    const double distance = fabs(a - b);
    return t->some && (distance <= t->relative * fmax(fabs(a), 1e-37) + t->absolute || (t->counts && distance <= 2));
}

static void compare_shapes(const struct numbers *e, const struct numbers *g, const char *name)
{
    if (e->count != g->count)
        fail_case("%s: %zu elements, expected %zu", name, g->count, e->count);
    bool same = e->ndim == g->ndim;
    for (int d = 0; same && d < e->ndim; d++)
        same = e->shape[d] == g->shape[d];
    if (!same && e->count > 1)
        fail_case("%s: has another shape than upstream's", name);
}

static void compare(const struct observation *o, const struct source *from, const struct wanted *w, const char *name)
{
    const qobs_tensor expected = tensor_named(w->key);
    struct numbers e = numbers_of(&expected), g;
    const bool sampled = strcmp(name, "edge_sample") == 0;
    const bool zeros = differs_in_zeros(text_of(o->c, "name"), w->quantity);
    bool *ties = strstr(w->rule, "argmin-tie") ? find_ties(o->c, e.count) : NULL, differs = false;
    if (!read_result(from, sampled ? "hist_edges" : name, &g))
        fail_case("%s: is no result", name);
    if (sampled)
        g = sample_of(g);
    if (!same_dtype(o->c, name, e.dtype, g.dtype))
        fail_case("%s: is %s, expected %s", name, qobs_dtype_name(g.dtype), qobs_dtype_name(e.dtype));
    compare_shapes(&e, &g, name);
    const struct tolerance tolerance = tolerance_of(w->rule, from, &e);
    for (size_t i = 0; i < e.count; i++) {
        const double a = e.items[i], b = g.items[i];
        differs |= a == b && !same_number(a, b);
        if (!same_number(a, b) && !(zeros && a == b) && !is_close(&tolerance, a, b) && !(ties && ties[i]))
            fail_case("%s[%zu]: got %.17g, expected %.17g (%s)", name, i, b, a, w->rule);
    }
    if (zeros && !differs)
        fail_case("%s: is in zero_signs.txt, but has the signs of upstream", name);
    free(e.items);
    free(g.items);
    free(ties);
}

/* Compares results whose names end in `suffix` of a batch, or after the last one those without. In a file of the
 * program all are there at once. */
static void compare_all(const struct observation *o, const struct source *from, const char *suffix)
{
    for (size_t i = 0; i < o->wanted_count; i++) {
        char name[NAME];
        const struct wanted *w = &o->wanted[i];
        if (o->input_count == 0 && strstr(w->name, "_val"))
            continue; /* upstream's range before the first batch is infinite; here there is none */
        const size_t length = strlen(w->name), cut = strlen(suffix);
        const bool numbered = length > 2 && w->name[length - 2] == '_' && isdigit((unsigned char)w->name[length - 1]);
        const bool due = numbered ? cut > 0 && strcmp(w->name + length - cut, suffix) == 0 : cut == 0;
        snprintf(name, sizeof name, "%.*s", (int)(from->file ? length : length - cut), w->name);
        if (from->file || due)
            compare(o, from, w, name);
    }
}

/* ---- Through the library ----------------------------------------------------------------------------------------- */

static int create(const struct observation *o, qobs_observer **observer, qobs_error *error)
{
    qobs_config *config = NULL;
    int status = qobs_config_create(&config, o->preset, NULL, error);
    for (size_t i = 0; i < o->setting_count && status == QOBS_OK; i++)
        status = qobs_config_set(config, o->settings[i][0], o->settings[i][1], error);
    if (status == QOBS_OK)
        status = qobs_observer_create(observer, config, NULL, error);
    qobs_config_destroy(config);
    return status;
}

static int observe(const struct observation *o, qobs_observer *observer, qobs_error *error)
{
    int status = QOBS_OK;
    for (size_t i = 0; i < o->importance_count && status == QOBS_OK; i++) {
        const qobs_tensor activations = tensor_named(o->importance[i]);
        status = qobs_observer_observe_importance(observer, &activations, error);
    }
    for (size_t i = 0; i < o->input_count && status == QOBS_OK; i++) {
        char suffix[16];
        const qobs_tensor value = tensor_named(o->inputs[i]);
        const qobs_tensor index = o->g_idx ? tensor_named(o->g_idx) : value;
        if (o->reset_before_last && i == o->input_count - 1)
            qobs_observer_reset(observer);
        status = qobs_observer_observe(observer, &value, o->g_idx ? &index : NULL, error);
        snprintf(suffix, sizeof suffix, "_%zu", i);
        if (status == QOBS_OK && !o->refused && o->each)
            compare_all(o, &(struct source){.observer = observer}, suffix);
    }
    return status;
}

/* Upstream may raise as late as when it is asked for a result, or return None. */
static bool is_refused(const qobs_observer *observer, int status)
{
    const size_t count = status == QOBS_OK ? qobs_observer_result_count(observer) : 0;
    qobs_result r = {.struct_size = sizeof r};
    for (size_t i = 0; i < count; i++) {
        struct numbers n;
        if (qobs_observer_result_info(observer, i, &r, NULL) != QOBS_OK ||
            !read_result(&(struct source){.observer = observer}, r.name, &n))
            return true;
        free(n.items);
    }
    return count == 0 ||
           qobs_observer_result_find(observer, is_suite("trt_2026_11") ? "amax" : "scale", &r, NULL) != QOBS_OK;
}

static void run_library(const struct observation *o)
{
    qobs_observer *observer = NULL;
    qobs_error error = {0};
    int status = create(o, &observer, &error);
    if (status == QOBS_OK)
        status = observe(o, observer, &error);
    if (o->refused) {
        if (!is_refused(observer, status))
            fail_case("is not refused");
#ifndef QOBS_SLEEF
    } else if (status == QOBS_ERROR_UNSUPPORTED && strstr(error.message, "SLEEF")) {
        without_sleef++;
#endif
    } else if (status != QOBS_OK) {
        fail_case("%s", error.message);
    } else {
        compare_all(o, &(struct source){.observer = observer}, "");
    }
    qobs_observer_destroy(observer);
}

static void run_case(const json_object *c)
{
    static struct observation o;
    for (int i = 0; make_observation(&o, c, i); i++)
        run_library(&o);
}

/* ---- Through the program ----------------------------------------------------------------------------------------- */

/* A command that grows. */
struct command {
    char text[1 << 16];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void add_words(struct command *c, const char *format, ...)
{
    const size_t room = sizeof c->text - c->length;
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(c->text + c->length, room, format, arguments);
    va_end(arguments);
    assert_true(n >= 0 && (size_t)n < room);
    c->length += (size_t)n;
}

static void make_command(struct command *c, const struct observation *o, const char *data, const char *out)
{
    c->length = 0;
    add_words(c, "'%s' observe --preset %s --out %s", program, o->preset, out);
    for (size_t i = 0; i < o->setting_count; i++)
        add_words(c, " --set '%s=%s'", o->settings[i][0], o->settings[i][1]);
    for (size_t i = 0; i < o->importance_count; i++)
        add_words(c, " --importance '%s:%s'", data, o->importance[i]);
    if (o->g_idx)
        add_words(c, " --g-idx '%s:%s'", data, o->g_idx);
    if (o->each)
        add_words(c, " --each");
    for (size_t i = 0; i < o->input_count; i++)
        add_words(c, " '%s:%s'", data, o->inputs[i]);
}

static void run_program(const struct observation *o)
{
    static struct command command;
    struct st_file file;
    struct fail f;
    char data[1024], out[] = "golden-observers-XXXXXX";
    const int descriptor = mkstemp(out);
    assert_true(descriptor >= 0);
    close(descriptor);
    snprintf(data, sizeof data, "%s/%s.safetensors", golden_directory, suite->name);
    make_command(&command, o, data, out);
    const int status = system(command.text);
    if (status != 0 || st_open(&file, out, &f) != 0)
        fail_case("%s\nends with status %d", command.text, status);
    compare_all(o, &(struct source){.file = &file}, "");
    st_close(&file);
    unlink(out);
}

/* ---- Suites ------------------------------------------------------------------------------------------------------ */

/* Says whether a case is run: through the program the first one of each suite that has inputs and no error. */
static bool is_run(const json_object *c)
{
    static const struct suite *done;
    const bool optional = json_is_true(json_get(c, "optional"));
    if (left_out(c) || optional) {
        ++*(left_out(c) ? &left_out_count : &optional_count);
        return false;
    }
    if (!program)
        return true;
    if (done == suite || json_get(c, "error") || json_count(json_get(c, "inputs")) == 0)
        return false;
    done = suite;
    return true;
}

static void test_case(void **state)
{
    static struct observation o;
    if (!program) {
        on_every_isa(*state, run_case);
        return;
    }
    assert_true(make_observation(&o, *state, 0));
    run_program(&o);
}

int main(int argc, char **argv)
{
    int failed = 0;
    program = argc > 1 ? argv[1] : NULL;
    for (suite = suites; suite < suites + SUITES; suite++) {
        left_out_count = optional_count = 0;
        failed += run_some(suite->name, suite->prefix, suite->count, is_run, test_case);
        if (left_out_count == suite->left_out && optional_count == suite->optional)
            continue;
        fprintf(stderr, "%s: %zu cases are left out and %zu optional, expected %zu and %zu\n", suite->name,
                left_out_count, optional_count, suite->left_out, suite->optional);
        failed++;
    }
    if (without_sleef > 0)
        printf("skipped: %zu runs need SLEEF\n", without_sleef);
    return failed != 0;
}
