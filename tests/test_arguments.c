/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Wrong arguments of every public function. A case is a call that succeeds and the arguments it has. Each argument in
 * turn becomes wrong in every way its kind allows: NULL, beyond an enumeration, other sizes, other structures. The call
 * then fails with a message that names the argument, and the call with right arguments still succeeds.
 *
 * The list of functions, parameters and members comes from the headers (public_functions.py): one that has no case here
 * fails the test. Run it under sanitizers: a crash is what it looks for. */
#include <limits.h>
#include <math.h>

#include "calls.h"
#include "observing.h"
#include "qobs/gguf.h"
#include "qobs/quantizer.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

enum kind {
    REQUIRED,   /* a pointer: NULL is refused */
    OPTIONAL,   /* a pointer: NULL means something */
    TENSOR,     /* a required tensor: wrong tensors are refused, too */
    MAY_TENSOR, /* a tensor or NULL */
    IN,         /* a required structure that the caller fills */
    MAY_IN,     /* such a structure or NULL */
    OUT,        /* a required structure that qobs fills */
    MAY_OUT,    /* such a structure or NULL */
    BYTES,      /* the exact size of an array */
    ROOM,       /* the least size of an array */
    DTYPE,      /* qobs_dtype */
    SCALE,      /* a pointer to a global scale, which is finite and above 0; NULL means none */
    ANY         /* every value is right, or a test of its own has the wrong ones */
};

struct argument {
    const char *name;
    enum kind kind;
    void *at;         /* the variable */
    const char *word; /* of the message; NULL: the name */
};

struct function {
    const char *name;
    int (*call)(qobs_error *error);
    struct argument arguments[24];
};

/* ---- The variables of all cases, with right values ----------------------------------------------------------------
 */

enum { ROWS = 2, COLUMNS = 32, GROUPS = 1, BINS = 8 };

static float data[ROWS][COLUMNS], ones[COLUMNS], hessians[COLUMNS * 8], scales[ROWS], minima[64], maxima[64],
    out[ROWS][COLUMNS];
static float factors[COLUMNS][COLUMNS], gptq_scales[ROWS][COLUMNS],
    gptq_arrays[4][ROWS][COLUMNS];
static int8_t codes[ROWS][COLUMNS];
static int64_t shape[2], code_shape[2], factor_shape[2], gptq_shape[2], scale_shape[1], column_shape[1], hessian_shape[3], bin_shape[1], edge_shape[1],
    strides[3];
static int32_t steps[64];
static double numbers[64];
static uint64_t counts_of_bins[64];
static float bin_counts[BINS], edges[BINS + 1];
static int8_t zeros[ROWS];
static _Alignas(64) unsigned char memory[1 << 16], saved[1 << 14];
static char text[4096];

static qobs_tensor tensor_, code_tensor, scale_tensor, histogram_tensor, edge_tensor, columns_tensor, hessian_tensor,
    factor_tensor, gptq_scale_tensor;
static qobs_runtime runtime_;
static qobs_counts counts_;
static qobs_result result_;
static qobs_search_report report_;
static qobs_qparam_layout layout_;
static qobs_range range_;
static qobs_run run_;
static qobs_histogram_options options_;
static qobs_minmax_args minmax_, global_minmax_;
static qobs_setting_info info_;
static qobs_histogram_args histogram_;
static qobs_search_args search_, global_search_;
static qobs_qparams_from_ranges_args calculate_;
static qobs_calibrate_args calibrate_;
static qobs_quantize_args quantize_;
static qobs_round_args round_;
static qobs_gptq_block_args gptq_;
static qobs_round_report round_report_;
static qobs_dequantize_args dequantize_;
static qobs_pack_args pack_, unpack_;
static qobs_fake_quantize_args fake_;
static qobs_range_args finder_, l2_finder_;
static qobs_format_array_args codes_;
static qobs_range_buffers ranges_, global_ranges_;
static qobs_qparam_buffers qparams_;
static qobs_histogram_state histogram_state_;
static qobs_quantizer_args quantizer_args_;
static qobs_quantizer_run_args quantizer_run_;
static qobs_quantized_layout quantized_layout_;
static qobs_gguf_type gguf_type_;
static qobs_gguf_quantize_args gguf_quantize_;
static qobs_gguf_dequantize_args gguf_dequantize_;
static float gguf_numbers[32], gguf_importance[32];
static unsigned char gguf_bytes[18];
static qobs_config_needs needs_;

static qobs_config *minmax_config, *mse_config, *old_config, *modelopt_config, *torch_config, *percentile_config;
static qobs_observer *minmax_observer, *mse_observer, *old_observer, *imatrix_observer, *reference_observer,
    *hessian_observer, *nvfp4_observer, *histogram_observer, *search_observer, *saved_observer;
static qobs_plan *plan_;
static qobs_config *made_config;
static qobs_observer *made_observer;
static qobs_plan *made_plan;
static qobs_quantizer *quantizer_, *made_quantizer;

/* The arguments of all calls; a case changes one of them. */
static struct {
    const qobs_config *config;
    qobs_config *own_config;
    qobs_observer *observer;
    const qobs_observer *const *others;
    qobs_observer *const *observers;
    const qobs_plan *plan;
    qobs_config **new_config;
    qobs_observer **new_observer;
    qobs_plan **new_plan;
    const qobs_tensor *value, *g_idx, *activations, *amax, *weight, *hessian;
    const qobs_runtime *runtime;
    qobs_counts *counts;
    qobs_result *result;
    qobs_search_report *report;
    qobs_qparam_layout *layout;
    qobs_range *range;
    qobs_run *run;
    const qobs_minmax_args *minmax;
    const qobs_histogram_args *histogram;
    const qobs_search_args *search, *global_search;
    const qobs_qparams_from_ranges_args *calculate;
    const qobs_calibrate_args *calibrate;
    const qobs_quantize_args *quantize;
    const qobs_round_args *round;
    const qobs_gptq_block_args *gptq;
    const qobs_dequantize_args *dequantize;
    const qobs_pack_args *pack, *unpack;
    const qobs_fake_quantize_args *fake;
    const qobs_range_args *finder, *l2_finder;
    const qobs_format_array_args *codes;
    const qobs_range_buffers *ranges, *global_ranges;
    const qobs_qparam_buffers *qparams;
    const qobs_histogram_state *histogram_state;
    qobs_quantizer **new_quantizer;
    const qobs_quantizer *quantizer;
    const qobs_quantizer_args *quantizer_args;
    const qobs_quantizer_run_args *quantizer_run;
    qobs_quantized_layout *quantized_layout;
    qobs_gguf_type *gguf_type;
    const qobs_gguf_quantize_args *gguf_quantize;
    const qobs_gguf_dequantize_args *gguf_dequantize;
    qobs_config_needs *needs;
    const qobs_format *format;
    const char *key, *setting, *settings, *name, *preset, *text;
    qobs_setting_info *info;
    const qobs_observer *saved_observer;
    void *out_bytes, *copy;
    double *squared_error, *energy;
    size_t get_size, copy_size;
    const qobs_minmax_args *global_minmax;
    char *buffer;
    const int *dim;
    void *memory;
    void *saved;
    void *out;
    int64_t *shape;
    float *global_scale;
    size_t *needed;
    qobs_dtype dtype, *scale_dtype, *zero_point_dtype;
    size_t memory_size, saved_size, out_size, shape_size, text_size;
} v;

static void fill_in(void *structure, size_t size)
{
    memset(structure, 0, size);
    memcpy(structure, &size, sizeof size);
}
#define RENEW(structure) fill_in(&(structure), sizeof(structure))

static void renew_tensor(qobs_tensor *t, qobs_dtype dtype, int ndim, int64_t *dims, const int64_t *values,
                         const void *elements)
{
    memcpy(dims, values, (size_t)ndim * sizeof *dims);
    *t = (qobs_tensor){sizeof *t, elements, dtype, ndim, dims, NULL};
}
#define TENSOR_OF(t, dtype, dims, elements, ...)                                                                       \
    renew_tensor(&(t), dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), dims,                                \
                 (const int64_t[]){__VA_ARGS__}, elements)

static void renew_structures(void)
{
    TENSOR_OF(tensor_, QOBS_F32, shape, data, ROWS, COLUMNS);
    TENSOR_OF(scale_tensor, QOBS_F32, scale_shape, scales, ROWS);
    TENSOR_OF(columns_tensor, QOBS_F32, column_shape, ones, COLUMNS);
    TENSOR_OF(hessian_tensor, QOBS_F32, hessian_shape, hessians, COLUMNS / 8, 8, 8);
    TENSOR_OF(histogram_tensor, QOBS_F32, bin_shape, bin_counts, BINS);
    TENSOR_OF(edge_tensor, QOBS_F32, edge_shape, edges, BINS + 1);
    RENEW(runtime_), RENEW(counts_), RENEW(result_), RENEW(report_), RENEW(layout_), RENEW(range_), RENEW(options_),
        RENEW(info_), RENEW(quantized_layout_), RENEW(needs_);
    options_.count = BINS, options_.min = -1, options_.max = 1;
    minmax_ = (qobs_minmax_args){.struct_size = sizeof minmax_,
                                 .config = minmax_config,
                                 .value = &tensor_,
                                 .min = minima,
                                 .max = maxima,
                                 .size = ROWS * 4,
                                 .counts = &counts_,
                                 .runtime = &runtime_};
    global_minmax_ = minmax_;
    global_minmax_.size = 4;
    histogram_ = (qobs_histogram_args){.struct_size = sizeof histogram_,
                                       .config = minmax_config,
                                       .value = &tensor_,
                                       .options = &options_,
                                       .counts = counts_of_bins,
                                       .counts_size = ROWS * BINS * 8,
                                       .first_edge = minima,
                                       .last_edge = maxima,
                                       .edges_size = ROWS * 4,
                                       .totals = &counts_,
                                       .runtime = &runtime_};
    search_ = (qobs_search_args){.struct_size = sizeof search_,
                                 .config = mse_config,
                                 .value = &tensor_,
                                 .importance = ones,
                                 .importance_size = sizeof ones,
                                 .min = minima,
                                 .max = maxima,
                                 .size = ROWS * 4,
                                 .best_step = steps,
                                 .best_step_size = ROWS * 4,
                                 .errors = numbers,
                                 .errors_size = ROWS * 8,
                                 .report = &report_,
                                 .runtime = &runtime_};
    global_search_ = (qobs_search_args){.struct_size = sizeof global_search_,
                                        .config = old_config,
                                        .value = &tensor_,
                                        .min = minima,
                                        .max = maxima,
                                        .size = 4,
                                        .runtime = &runtime_};
    calculate_ = (qobs_qparams_from_ranges_args){.struct_size = sizeof calculate_,
                                                 .config = minmax_config,
                                                 .dtype = QOBS_F32,
                                                 .count = ROWS,
                                                 .min = data,
                                                 .max = ones,
                                                 .size = ROWS * 4,
                                                 .scale = scales,
                                                 .scale_size = ROWS * 4,
                                                 .zero_point = zeros,
                                                 .zero_point_size = ROWS};
    TENSOR_OF(code_tensor, QOBS_I8, code_shape, codes, ROWS, COLUMNS);
    quantize_ = (qobs_quantize_args){.struct_size = sizeof quantize_,
                                     .config = minmax_config,
                                     .value = &tensor_,
                                     .scale = &scale_tensor,
                                     .codes = out,
                                     .codes_size = ROWS * COLUMNS,
                                     .runtime = &runtime_};
    RENEW(round_report_);
    round_ = (qobs_round_args){.struct_size = sizeof round_,
                               .config = minmax_config,
                               .value = &tensor_,
                               .scale = &scale_tensor,
                               .hessian = &hessian_tensor,
                               .codes = out,
                               .codes_size = ROWS * COLUMNS,
                               .report = &round_report_,
                               .runtime = &runtime_};
    TENSOR_OF(factor_tensor, QOBS_F32, factor_shape, factors, COLUMNS, COLUMNS);
    TENSOR_OF(gptq_scale_tensor, QOBS_F32, gptq_shape, gptq_scales, ROWS, COLUMNS);
    for (int j = 0; j < COLUMNS; j++)
        factors[j][j] = gptq_scales[0][j] = gptq_scales[1][j] = 1;
    gptq_ = (qobs_gptq_block_args){.struct_size = sizeof gptq_,
                                   .config = minmax_config,
                                   .factor = &factor_tensor,
                                   .scale = &gptq_scale_tensor,
                                   .value = gptq_arrays[0][0],
                                   .quantized = gptq_arrays[1][0],
                                   .errors = gptq_arrays[2][0],
                                   .losses = gptq_arrays[3][0],
                                   .value_size = sizeof gptq_arrays[0],
                                   .runtime = &runtime_};
    dequantize_ = (qobs_dequantize_args){.struct_size = sizeof dequantize_,
                                         .config = minmax_config,
                                         .codes = &code_tensor,
                                         .scale = &scale_tensor,
                                         .out = out,
                                         .out_size = sizeof out,
                                         .dtype = QOBS_F32,
                                         .runtime = &runtime_};
    pack_ = (qobs_pack_args){.struct_size = sizeof pack_,
                             .bits = 8,
                             .dim = 1,
                             .rows = ROWS,
                             .columns = COLUMNS,
                             .word_bits = 8,
                             .codes = codes,
                             .codes_size = ROWS * COLUMNS,
                             .packed = out,
                             .packed_size = ROWS * COLUMNS};
    unpack_ = pack_;
    fake_ = (qobs_fake_quantize_args){.struct_size = sizeof fake_,
                                      .config = minmax_config,
                                      .value = &tensor_,
                                      .scale = &scale_tensor,
                                      .out = out,
                                      .out_size = sizeof out,
                                      .runtime = &runtime_};
    quantizer_args_ = (qobs_quantizer_args){.struct_size = sizeof quantizer_args_,
                                            .config = minmax_config,
                                            .dtype = QOBS_F32,
                                            .columns = COLUMNS,
                                            .dynamic = 1,
                                            .runtime = &runtime_};
    quantizer_run_ = (qobs_quantizer_run_args){.struct_size = sizeof quantizer_run_,
                                               .rows = ROWS,
                                               .value = data,
                                               .codes = out,
                                               .codes_size = ROWS * COLUMNS,
                                               .scale = scales,
                                               .scale_size = ROWS * 4,
                                               .zero_point = zeros,
                                               .zero_point_size = ROWS};
    RENEW(gguf_type_);
    gguf_quantize_ = (qobs_gguf_quantize_args){.struct_size = sizeof gguf_quantize_,
                                               .type = "Q4_0",
                                               .dtype = QOBS_F32,
                                               .rows = 1,
                                               .columns = 32,
                                               .value = gguf_numbers,
                                               .importance = gguf_importance,
                                               .search = "optimal",
                                               .out = gguf_bytes,
                                               .out_size = sizeof gguf_bytes,
                                               .runtime = &runtime_,
                                               .hessian = &hessian_tensor,
                                               .report = &round_report_};
    gguf_dequantize_ = (qobs_gguf_dequantize_args){.struct_size = sizeof gguf_dequantize_,
                                                   .type = "Q4_0",
                                                   .rows = 1,
                                                   .columns = 32,
                                                   .blocks = gguf_bytes,
                                                   .blocks_size = sizeof gguf_bytes,
                                                   .out = gguf_numbers,
                                                   .out_size = sizeof gguf_numbers,
                                                   .runtime = &runtime_};
    finder_ = (qobs_range_args){.struct_size = sizeof finder_,
                                .config = modelopt_config,
                                .histogram = &histogram_tensor,
                                .bin_edges = &edge_tensor,
                                .percentile = 99,
                                .stride = 1,
                                .start_bin = 2,
                                .runtime = &runtime_};
    calibrate_ = (qobs_calibrate_args){.struct_size = sizeof calibrate_,
                                       .config = percentile_config,
                                       .value = &tensor_,
                                       .amax = minima,
                                       .amax_size = sizeof *minima,
                                       .runtime = &runtime_};
    l2_finder_ = finder_;
    l2_finder_.config = torch_config;
    codes_ = (qobs_format_array_args){.struct_size = sizeof codes_,
                                      .format = qobs_format_at(0),
                                      .x = ones,
                                      .x_size = sizeof ones,
                                      .out = minima,
                                      .out_size = COLUMNS};
    ranges_ = (qobs_range_buffers){sizeof ranges_, minima, maxima, ROWS * 4};
    global_ranges_ = (qobs_range_buffers){sizeof global_ranges_, minima, maxima, 4};
    qparams_ = (qobs_qparam_buffers){sizeof qparams_, scales, ROWS * 4, zeros, ROWS, minima};
    histogram_state_ = (qobs_histogram_state){
        .struct_size = sizeof histogram_state_, .counts = &histogram_tensor, .bin_edges = &edge_tensor};
}

static void renew(void)
{
    static const qobs_observer *others[1];
    static qobs_observer *observers[1];
    static const int dim[] = {0};
    others[0] = mse_observer;
    observers[0] = nvfp4_observer;
    for (size_t i = 0; i < ROWS; i++) {
        scales[i] = 0.5f;
        for (size_t k = 0; k < COLUMNS; k++)
            data[i][k] = (float)(k + i) / COLUMNS - 0.75f;
    }
    for (size_t k = 0; k < COLUMNS; k++)
        ones[k] = 1;
    for (size_t k = 0; k <= BINS; k++) {
        edges[k] = (float)k;
        if (k < BINS)
            bin_counts[k] = (float)(BINS - k);
    }
    renew_structures();
    memset(&v, 0, sizeof v);
    v.config = minmax_config, v.own_config = minmax_config, v.observer = minmax_observer, v.others = others;
    v.observers = observers, v.plan = plan_, v.new_config = &made_config, v.new_observer = &made_observer;
    v.new_plan = &made_plan, v.value = &tensor_, v.activations = &tensor_, v.amax = &scale_tensor;
    v.weight = &columns_tensor, v.hessian = &hessian_tensor, v.runtime = &runtime_, v.counts = &counts_,
    v.result = &result_, v.report = &report_;
    v.layout = &layout_, v.range = &range_, v.run = &run_, v.minmax = &minmax_, v.histogram = &histogram_;
    v.search = &search_, v.global_search = &global_search_, v.calculate = &calculate_, v.fake = &fake_;
    v.calibrate = &calibrate_;
    v.quantize = &quantize_, v.round = &round_, v.gptq = &gptq_, v.dequantize = &dequantize_, v.pack = &pack_, v.unpack = &unpack_;
    v.finder = &finder_, v.l2_finder = &l2_finder_, v.codes = &codes_, v.ranges = &ranges_;
    v.global_ranges = &global_ranges_, v.qparams = &qparams_, v.histogram_state = &histogram_state_;
    v.new_quantizer = &made_quantizer, v.quantizer = quantizer_, v.quantizer_args = &quantizer_args_;
    v.quantizer_run = &quantizer_run_, v.quantized_layout = &quantized_layout_, v.needs = &needs_;
    v.gguf_type = &gguf_type_, v.gguf_quantize = &gguf_quantize_, v.gguf_dequantize = &gguf_dequantize_;
    v.format = qobs_format_at(3), v.key = "num_bits", v.setting = "4", v.name = "scale";
    v.preset = "llmc.memoryless_minmax", v.text = "llmc.memoryless_minmax strategy=channel", v.buffer = text;
    v.text_size = sizeof text, v.dim = dim, v.memory = memory, v.memory_size = sizeof memory, v.saved = saved;
    v.saved_size = qobs_observer_save_size(saved_observer), v.out = out, v.out_size = ROWS * 4;
    v.shape = (int64_t *)(void *)numbers, v.shape_size = QOBS_PLAN_MAX_NDIM * sizeof(int64_t);
    v.global_scale = minima;
    v.dtype = QOBS_F32;
    static qobs_dtype dtypes[2];
    v.scale_dtype = &dtypes[0], v.zero_point_dtype = &dtypes[1];
    static size_t needed;
    v.needed = &needed, v.settings = "num_bits=4", v.info = &info_;
    v.saved_observer = saved_observer, v.out_bytes = memory, v.copy = out, v.copy_size = sizeof out, v.get_size = 2;
    v.global_minmax = &global_minmax_, v.squared_error = &numbers[0], v.energy = &numbers[1];
}

static void destroy_made(void)
{
    qobs_config_destroy(made_config);
    qobs_observer_destroy(made_observer);
    qobs_plan_destroy(made_plan);
    qobs_quantizer_destroy(made_quantizer);
    made_quantizer = NULL;
    made_config = NULL;
    made_observer = NULL;
    made_plan = NULL;
}

/* ---- The functions ------------------------------------------------------------------------------------------------
 */

#include "test_arguments_cases.h"

/* ---- Wrong arguments ----------------------------------------------------------------------------------------------
 */

static const char *word_of(const struct argument *a) { return a->word ? a->word : a->name; }

/* The call fails and its message names the argument; without an error structure it fails alike. */
static void expect_wrong(const struct function *f, const struct argument *a, const char *how)
{
    error = (qobs_error){0};
    const int status = f->call(&error);
    if (status == QOBS_OK || status != error.status)
        fail_msg("%s accepts %s %s (status %d)", f->name, a->name, how, status);
    if (!strstr(error.message, word_of(a)))
        fail_msg("%s with %s %s: '%s' does not name %s", f->name, a->name, how, error.message, word_of(a));
    assert_int_equal(f->call(NULL), status);
    destroy_made();
}

/* The call does not crash. */
static void try(const struct function *f)
{
    error = (qobs_error){0};
    const int status = f->call(&error);
    assert_int_equal(status, error.status);
    destroy_made();
}

static void expect_right(const struct function *f, const char *when)
{
    error = (qobs_error){0};
    if (f->call(&error) != QOBS_OK)
        fail_msg("%s fails %s: %s", f->name, when, error.message);
    destroy_made();
}

static void wrong_pointer(const struct function *f, const struct argument *a)
{
    void *const old = *(void **)a->at;
    *(void **)a->at = NULL;
    if (a->kind == OPTIONAL || a->kind == MAY_TENSOR || a->kind == MAY_IN || a->kind == MAY_OUT)
        try(f);
    else
        expect_wrong(f, a, "NULL");
    *(void **)a->at = old;
}

static void wrong_tensor(const struct function *f, const struct argument *a)
{
    qobs_tensor *t = *(qobs_tensor **)a->at;
    if (!t)
        return;
    const qobs_tensor right = *t;
    int64_t *dims = (int64_t *)(uintptr_t)t->shape;
    const int64_t first = dims[0];
    static const int64_t far[] = {INT64_MIN, INT64_MAX};
    static const int64_t sizes[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 62};
    for (int i = 0; i < 3; i++) {
        t->struct_size = i == 0 ? 0 : i == 1 ? 1 : SIZE_MAX;
        expect_wrong(f, a, "of a wrong struct_size");
    }
    *t = right;
    for (int i = 0; i < 4; i++) {
        t->dtype = (qobs_dtype)(i == 0 ? 0 : i == 1 ? -1 : i == 2 ? 99 : INT_MAX);
        expect_wrong(f, a, "of an unknown dtype");
    }
    *t = right;
    for (int i = 0; i < 4; i++) {
        t->ndim = i == 0 ? -1 : i == 1 ? QOBS_MAX_NDIM + 1 : i == 2 ? INT_MAX : INT_MIN;
        expect_wrong(f, a, "of a wrong ndim");
    }
    *t = right;
    t->shape = NULL;
    expect_wrong(f, a, "without shape");
    *t = right;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        dims[0] = sizes[i];
        expect_wrong(f, a, "of an impossible shape");
    }
    dims[0] = first;
    for (size_t i = 0; i < sizeof far / sizeof *far && first > 1; i++) {
        for (size_t k = 0; k < 3; k++)
            strides[k] = far[i];
        t->strides = strides;
        expect_wrong(f, a, "of impossible strides");
    }
    *t = right;
}

static void wrong_structure(const struct function *f, const struct argument *a)
{
    size_t *structure = *(size_t **)a->at;
    if (!structure)
        return;
    const bool in = a->kind == IN || a->kind == MAY_IN;
    const size_t right = *structure;
    for (size_t i = 0; i < (in ? 4 : 2); i++) {
        *structure = i == 0 ? 0 : i == 1 ? sizeof right : i == 2 ? SIZE_MAX : right + 100000;
        error = (qobs_error){0};
        if (f->call(&error) == QOBS_OK)
            fail_msg("%s accepts %s with struct_size %zu", f->name, a->name, *structure);
        if (!strstr(error.message, "struct_size") || !strstr(error.message, word_of(a)))
            fail_msg("%s with %s of size %zu: '%s'", f->name, a->name, *structure, error.message);
    }
    *structure = right;
}

static void wrong_size(const struct function *f, const struct argument *a)
{
    size_t *size = a->at;
    const size_t right = *size;
    const size_t exact[] = {0, right - 1, right + 1, SIZE_MAX}, least[] = {0, right - 1};
    for (size_t i = 0; i < (a->kind == BYTES ? 4 : 2); i++) {
        *size = a->kind == BYTES ? exact[i] : least[i];
        expect_wrong(f, a, "of a wrong size");
    }
    *size = right;
}

static void wrong_dtype(const struct function *f, const struct argument *a)
{
    qobs_dtype *dtype = a->at;
    const qobs_dtype right = *dtype;
    static const int values[] = {0, -1, 99, INT_MAX, INT_MIN, QOBS_I8, QOBS_F8_E4M3};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        *dtype = (qobs_dtype)values[i];
        expect_wrong(f, a, "that is none");
    }
    *dtype = right;
}

static void wrong_scale(const struct function *f, const struct argument *a)
{
    const float **scale = a->at, *const right = *scale;
    static const float values[] = {NAN, -NAN, INFINITY, -INFINITY, 0, -0.0f, -1, -1e-45f};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        *scale = &values[i];
        expect_wrong(f, a, "that is not finite, or not above 0");
    }
    *scale = right;
}

static void test_function(void **state)
{
    const struct function *f = *state;
    renew();
    expect_right(f, "with right arguments");
    assert_true(f->call(NULL) == QOBS_OK);
    destroy_made();
    for (const struct argument *a = f->arguments; a->name; a++) {
        if (a->kind <= MAY_OUT)
            wrong_pointer(f, a);
        if (a->kind == TENSOR || a->kind == MAY_TENSOR)
            wrong_tensor(f, a);
        if (a->kind >= IN && a->kind <= MAY_OUT)
            wrong_structure(f, a);
        if (a->kind == BYTES || a->kind == ROOM)
            wrong_size(f, a);
        if (a->kind == DTYPE)
            wrong_dtype(f, a);
        if (a->kind == SCALE)
            wrong_scale(f, a);
        renew();
        expect_right(f, "after a wrong argument");
    }
}

/* ---- Complete? ----------------------------------------------------------------------------------------------------
 */

struct listed {
    const char *name, *arguments;
};

static const struct listed listed_functions[] = {
#define FUNCTION(name, arguments) {#name, arguments},
#define STRUCTURE(name, members)
#include "public_functions.h"
#undef FUNCTION
#undef STRUCTURE
};

static const struct listed listed_structures[] = {
#define FUNCTION(name, arguments)
#define STRUCTURE(name, members) {#name, members},
#include "public_functions.h"
#undef FUNCTION
#undef STRUCTURE
};

static bool has_argument(const struct function *f, const char *name, size_t length)
{
    for (const struct argument *a = f->arguments; a->name; a++)
        if (strlen(a->name) == length && strncmp(a->name, name, length) == 0)
            return true;
    return false;
}

static void expect_arguments(const struct function *f, const char *names)
{
    for (const char *at = names; *at;) {
        const size_t length = strcspn(at, " ");
        if (!has_argument(f, at, length) && strncmp(at, "struct_size", length) != 0)
            fail_msg("%s: no case has its argument %.*s", f->name, (int)length, at);
        at += length + (at[length] == ' ');
    }
}

static const struct function *function_named(const char *name)
{
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}

static void test_complete(void **state)
{
    for (size_t i = 0; i < sizeof listed_functions / sizeof *listed_functions; i++) {
        const struct function *f = function_named(listed_functions[i].name);
        if (!f)
            fail_msg("%s has no case", listed_functions[i].name);
        expect_arguments(f, listed_functions[i].arguments);
    }
    for (size_t i = 0; i < sizeof listed_structures / sizeof *listed_structures; i++) {
        bool used = false;
        for (size_t k = 0; k < sizeof users / sizeof *users; k++)
            if (strcmp(users[k].structure, listed_structures[i].name) == 0) {
                used = true;
                expect_arguments(function_named(users[k].function), listed_structures[i].arguments);
            }
        if (!used)
            fail_msg("%s has no user", listed_structures[i].name);
    }
}

/* ---- Main ---------------------------------------------------------------------------------------------------------
 */

static void make_all(void)
{
    renew(); /* the tensors; configurations come below */
    minmax_config = make_config("llmc.memoryless_minmax", "strategy=channel", NULL);
    mse_config = make_config("llmc.memoryless_mse", "strategy=channel;norm=2", NULL);
    old_config = make_config("llmc.mse",
                             "base_name=weight;version=2025-10;strategy=tensor_group;group_size=16;num_bits=4;"
                             "type=float;norm=2",
                             NULL);
    modelopt_config = make_config("modelopt.HistogramCalibrator", "method=entropy;num_bits=3", NULL);
    percentile_config = make_config("modelopt.HistogramCalibrator", "method=percentile", NULL);
    torch_config = make_config("torch.HistogramObserver", "bins=8", NULL);
    minmax_observer = make("llmc.memoryless_minmax", "strategy=channel");
    mse_observer = make("llmc.memoryless_minmax", "strategy=channel");
    old_observer = make("llmc.minmax", "base_name=weight;version=2025-09;strategy=channel");
    imatrix_observer = make("llmc.imatrix_mse", "strategy=channel;norm=2");
    reference_observer = make("modelopt.MseCalibrator", "axis=0");
    hessian_observer = make("modelopt.MseCalibrator", "axis=0;hessian_block_size=8");
    nvfp4_observer = make("llmc.memoryless_minmax", "num_bits=4;type=float;strategy=tensor_group;group_size=16");
    histogram_observer = make("torch.HistogramObserver", "bins=8");
    search_observer = make("llmc.memoryless_mse", "strategy=channel;norm=2");
    saved_observer = make("llmc.memoryless_minmax", "strategy=channel");
    renew();
    qobs_observer *const fed[] = {minmax_observer,    mse_observer,    nvfp4_observer,
                                  histogram_observer, search_observer, saved_observer};
    for (size_t i = 0; i < sizeof fed / sizeof *fed; i++)
        assert_ok(qobs_observer_observe(fed[i], &tensor_, NULL, &error));
    assert_ok(qobs_plan_create(&plan_, minmax_config, &tensor_, NULL, NULL, &error));
    quantizer_args_.config = minmax_config;
    assert_ok(qobs_quantizer_create(&quantizer_, &quantizer_args_, &error));
    assert_ok(qobs_observer_save(saved_observer, saved, qobs_observer_save_size(saved_observer), &error));
}

static int set_up(void **state)
{
    make_all();
    return 0;
}

static int tear_down(void **state)
{
    qobs_config *const configs[] = {minmax_config,   mse_config,   old_config,
                                    modelopt_config, torch_config, percentile_config};
    qobs_observer *const observers[] = {minmax_observer,    mse_observer,     old_observer,   imatrix_observer,
                                        reference_observer, hessian_observer, nvfp4_observer, histogram_observer,
                                        search_observer,    saved_observer};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        qobs_config_destroy(configs[i]);
    for (size_t i = 0; i < sizeof observers / sizeof *observers; i++)
        qobs_observer_destroy(observers[i]);
    qobs_plan_destroy(plan_);
    qobs_quantizer_destroy(quantizer_);
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[FUNCTIONS + 1];
    for (size_t i = 0; i < FUNCTIONS; i++)
        tests[i] = (struct CMUnitTest){functions[i].name, test_function, NULL, NULL, (void *)(uintptr_t)&functions[i]};
    tests[FUNCTIONS] = (struct CMUnitTest)cmocka_unit_test(test_complete);
    return _cmocka_run_group_tests("arguments", tests, FUNCTIONS + 1, set_up, tear_down);
}
