/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_quantize, qobs_dequantize and qobs_fake_quantize: check their arguments and choose the quantizer. */
#include "base/build.h"
#include "base/fpenv.h"
#include "base/struct_size.h"
#include "base/tensor.h"
#include "config/stages.h"
#include "kernels/dispatch.h"
#include "number/convert.h"
#include "plan/make_plan.h"
#include "qobs/format.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "quantize/row_quantizer.h"
#include "measure/reduce.h"

/* An array of qparams has an element for each qparam of the plan, in C order without gaps. */
static int check_qparams(const struct view *v, const char *name, int64_t qparams, qobs_error *error)
{
    if (v->elements != qparams)
        return qobs_invalid(error, "%s: has %lld elements, the granularity gives %lld", name, (long long)v->elements,
                            (long long)qparams);
    int64_t expected = (int64_t)qobs_dtype_size(v->dtype);
    for (int i = v->ndim - 1; i >= 0 && v->elements > 0; i--) {
        if (v->shape[i] > 1 && v->strides[i] != expected)
            return qobs_invalid(error, "%s: strides[%d] is %lld, C order without gaps needs %lld", name, i,
                                (long long)v->strides[i], (long long)expected);
        expected *= v->shape[i];
    }
    return QOBS_OK;
}

static int check_scale(const struct view *v, qobs_dtype value, bool torch, qobs_error *error)
{
    if (v->dtype == QOBS_F32 || (v->dtype == value && !torch))
        return QOBS_OK;
    return qobs_invalid(error, "scale: dtype is %s, allowed are F32%s%s", qobs_dtype_name(v->dtype),
                        torch || value == QOBS_F32 ? "" : " and that of value, ",
                        torch || value == QOBS_F32 ? "" : qobs_dtype_name(value));
}

/* Elements of out share no memory if each dimension, from the smallest stride up, steps over all before it. */
static int check_out_strides(const int64_t *strides, const struct view *value, int64_t *span, qobs_error *error)
{
    int order[QOBS_MAX_NDIM], n = 0;
    for (int i = 0; i < value->ndim; i++) {
        if (value->shape[i] == 1)
            continue;
        if (strides[i] <= 0)
            return qobs_invalid(error, "out_strides: [%d] is %lld, allowed are numbers above 0", i,
                                (long long)strides[i]);
        int at = n++;
        for (; at > 0 && strides[order[at - 1]] > strides[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int k = 0; k < n; k++) {
        const int i = order[k];
        int64_t reach;
        if (strides[i] < *span)
            return qobs_invalid(error,
                                "out_strides: [%d] is %lld, elements would share memory; at least %lld is needed", i,
                                (long long)strides[i], (long long)*span);
        if (!qobs_multiply(strides[i], value->shape[i] - 1, &reach) || __builtin_add_overflow(*span, reach, span))
            return qobs_invalid(error, "out_strides: they reach further than 2^61 bytes");
    }
    return QOBS_OK;
}

/* The bytes from the first to the last element of out must be those of the caller. */
static int check_out(const qobs_fake_quantize_args *a, const struct view *value, qobs_error *error)
{
    const int64_t *strides = a->out_strides;
    const int64_t element = (int64_t)qobs_dtype_size(value->dtype);
    int64_t span = strides ? element : value->elements * element;
    if (!a->out)
        return qobs_invalid(error, "out: is NULL");
    if (strides && value->elements > 0)
        RETURN_IF_FAILED(check_out_strides(strides, value, &span, error));
    if (a->out_size < (uint64_t)span)
        return qobs_invalid(error, "out: has %zu bytes, its elements span %lld", a->out_size, (long long)span);
    return QOBS_OK;
}

/* Views of scale and zero point, each with an element for each qparam. */
static int open_qparams(struct fake_quantize *f, const qobs_fake_quantize_args *a, const qobs_plan *plan,
                        qobs_error *error)
{
    struct view scales, zero_points = {0};
    RETURN_IF_FAILED(qobs_view_of_tensor(&scales, a->scale, "scale", error));
    RETURN_IF_FAILED(check_qparams(&scales, "scale", plan->qparams, error));
    RETURN_IF_FAILED(check_scale(&scales, plan->value.dtype, f->quantizer.torch, error));
    if (a->zero_point) {
        RETURN_IF_FAILED(qobs_view_of_tensor(&zero_points, a->zero_point, "zero_point", error));
        RETURN_IF_FAILED(check_qparams(&zero_points, "zero_point", plan->qparams, error));
    }
    if (a->zero_point && f->quantizer.torch)
        RETURN_IF_FAILED(qobs_check_torch_zero_points(&f->quantizer, zero_points.data, zero_points.dtype,
                                                      zero_points.elements, error));
    f->scale = scales.data;
    f->scale_dtype = scales.dtype;
    f->zero_point = zero_points.data;
    f->zero_point_dtype = zero_points.dtype;
    return QOBS_OK;
}

/* ---- Codes ------------------------------------------------------------------------------------------------------- */

static int choose_packing(struct fake_quantize *f, const qobs_quantize_args *a, const struct quantize_rule *rule,
                          qobs_error *error)
{
    const int ndim = a->value->ndim;
    if (a->packed != 0 && a->packed != 1)
        return qobs_invalid(error, "packed: is %d, allowed are 0 and 1", a->packed);
    if (!a->packed)
        return QOBS_OK;
    if (rule->code_bits != 4)
        return qobs_invalid(error, "packed: is 1, but codes have %d bits; packed are codes of 4", rule->code_bits);
    if (ndim == 0 || a->value->shape[ndim - 1] % 8 != 0)
        return qobs_invalid(error, "packed: is 1, but the last dimension of value is %lld, not a multiple of 8",
                            ndim == 0 ? 1LL : (long long)a->value->shape[ndim - 1]);
    f->packed = true;
    f->pack_offset = rule->kind == QOBS_CODE_INTEGER ? 8 : 0;
    return QOBS_OK;
}

/* Fills strides of bytes in C order. */
static void byte_strides(const qobs_tensor *value, int64_t *strides)
{
    int64_t next = 1;
    for (int i = value->ndim - 1; i >= 0; i--) {
        strides[i] = next;
        next *= value->shape[i];
    }
}

/* Quantizes the elements of `plan`, of which there are some. */
static int quantize(struct fake_quantize *f, const qobs_quantize_args *a, const struct quantize_rule *rule,
                    const qobs_plan *plan, qobs_error *error)
{
    const qobs_fake_quantize_args qparams = {.scale = a->scale, .zero_point = a->zero_point};
    int64_t strides[QOBS_PLAN_MAX_NDIM];
    qobs_plan code_plan;
    if (!a->codes || a->codes_size < (uint64_t)plan->value.elements / (a->packed ? 2 : 1))
        return qobs_invalid(error, "codes: has %zu bytes%s, value has %lld elements%s", a->codes ? a->codes_size : 0,
                            a->codes ? "" : " (NULL)", (long long)plan->value.elements,
                            a->packed ? ", two in a byte" : "");
    RETURN_IF_FAILED(open_qparams(f, &qparams, plan, error));
    byte_strides(a->value, strides);
    const qobs_tensor codes = {sizeof codes, a->codes, a->value->dtype, a->value->ndim, a->value->shape, strides};
    RETURN_IF_FAILED(qobs_plan_make(&code_plan, &rule->granularity, &codes, NULL, f->runtime, error));
    const int status = qobs_fake_quantize_plan(f, plan, a->value->data, &code_plan, a->codes, error);
    qobs_plan_unmake(&code_plan);
    return status;
}

int qobs_quantize(const qobs_quantize_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(codes, error);
    struct quantize_rule rule;
    struct runtime runtime;
    qobs_quantize_args a;
    qobs_plan plan;
    RETURN_IF_FAILED(ARGS_READ(qobs_quantize_args, &a, args, runtime, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, a.runtime, error));
    RETURN_IF_FAILED(qobs_config_check(a.config, error));
    RETURN_IF_FAILED(qobs_resolve_quantize(a.config, a.format, true, &rule, error));
    RETURN_IF_FAILED(qobs_plan_make(&plan, &rule.granularity, a.value, a.g_idx, &runtime, error));
    double sum[2] = {0};
    struct fake_quantize f = {.runtime = &runtime,
                              .kernels = qobs_kernels_active(),
                              .quantizer = rule.quantizer,
                              .kind = rule.kind,
                              .global_scale = a.global_scale,
                              .direction = TO_CODES,
                              .sum = a.squared_error || a.energy ? sum : NULL};
    int status = choose_packing(&f, &a, &rule, error);
    if (status == QOBS_OK && plan.value.elements > 0)
        status = quantize(&f, &a, &rule, &plan, error);
    qobs_plan_unmake(&plan);
    if (status != QOBS_OK)
        return status;
    if (a.squared_error)
        *a.squared_error = sum[0];
    if (a.energy)
        *a.energy = sum[1];
    return qobs_succeed(error);
}

static int check_code_dtypes(const struct view *codes, qobs_dtype dtype, qobs_error *error)
{
    enum kernel_dtype index;
    if (qobs_dtype_size(codes->dtype) != 1)
        return qobs_invalid(error, "codes: dtype is %s, allowed are those of one byte", qobs_dtype_name(codes->dtype));
    if (!qobs_kernel_dtype_of(dtype, &index))
        return qobs_invalid(error, "dtype: is %s, allowed are F32, BF16, F16 and F64", qobs_dtype_name(dtype));
    return QOBS_OK;
}

/* Dequantizes the codes of `plan`, of which there are some. `out` has what is common with fake-quantize. */
static int dequantize(struct fake_quantize *f, const qobs_fake_quantize_args *out, const struct quantize_rule *rule,
                      const qobs_plan *plan, const struct view *codes, qobs_error *error)
{
    const qobs_tensor numbers = {sizeof numbers, out->out, plan->dtype, codes->ndim, codes->shape, out->out_strides};
    qobs_plan out_plan;
    RETURN_IF_FAILED(check_out(out, &plan->value, error));
    RETURN_IF_FAILED(open_qparams(f, out, plan, error));
    RETURN_IF_FAILED(qobs_plan_make(&out_plan, &rule->granularity, &numbers, NULL, f->runtime, error));
    const int status = qobs_fake_quantize_plan(f, plan, codes->data, &out_plan, out->out, error);
    qobs_plan_unmake(&out_plan);
    return status;
}

int qobs_dequantize(const qobs_dequantize_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(codes, error);
    struct quantize_rule rule;
    struct runtime runtime;
    struct view codes;
    qobs_dequantize_args a;
    qobs_plan plan;
    RETURN_IF_FAILED(ARGS_READ(qobs_dequantize_args, &a, args, runtime, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, a.runtime, error));
    RETURN_IF_FAILED(qobs_view_of_tensor(&codes, a.codes, "codes", error));
    RETURN_IF_FAILED(check_code_dtypes(&codes, a.dtype, error));
    RETURN_IF_FAILED(qobs_config_check(a.config, error));
    RETURN_IF_FAILED(qobs_resolve_quantize(a.config, a.format, true, &rule, error));
    const qobs_tensor bytes = {sizeof bytes, codes.data, a.dtype, codes.ndim, codes.shape, codes.strides};
    RETURN_IF_FAILED(qobs_plan_make(&plan, &rule.granularity, &bytes, a.g_idx, &runtime, error));
    const qobs_fake_quantize_args out = {.scale = a.scale,
                                         .zero_point = a.zero_point,
                                         .out = a.out,
                                         .out_strides = a.out_strides,
                                         .out_size = a.out_size};
    struct fake_quantize f = {.runtime = &runtime,
                              .kernels = qobs_kernels_active(),
                              .kind = rule.kind,
                              .global_scale = a.global_scale,
                              .direction = FROM_CODES};
    const int status = plan.value.elements > 0 ? dequantize(&f, &out, &rule, &plan, &codes, error) : QOBS_OK;
    qobs_plan_unmake(&plan);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}

/* ---- Fake-quantize ----------------------------------------------------------------------------------------------- */

/* Model-Optimizer's numbers, and what has no meaning beside amax. */
static int choose_amax_numbers(struct fake_quantize *f, const qobs_fake_quantize_args *a, struct amax_numbers *numbers,
                               qobs_error *error)
{
    const char *other = a->format         ? "format"
                        : a->scale        ? "scale"
                        : a->zero_point   ? "zero_point"
                        : a->global_scale ? "global_scale"
                                          : NULL;
    if (!qobs_resolve_amax_numbers(a->config, numbers))
        return qobs_invalid(error, "amax: config is %s, amax is for modelopt presets", a->config->preset->name);
    if (other)
        return qobs_invalid(error, "%s: is set, amax takes its place", other);
    if (numbers->e4m3)
        qobs_quantizer_for_format(&f->quantizer, qobs_format_at(FORMAT_E4M3));
    else
        qobs_quantizer_for_integers(&f->quantizer, (int64_t)numbers->quant_min, (int64_t)numbers->quant_max, false);
    f->by_amax = numbers->e4m3 ? &qobs_amax_e4m3 : &qobs_amax_integers;
    return QOBS_OK;
}

/* Upstream's unsigned integers refuse negative elements; NaN hides them. */
static int check_signs(const struct fake_quantize *f, const qobs_fake_quantize_args *a, qobs_error *error)
{
    struct nonfinite_count nonfinite = {0};
    double min, max;
    qobs_plan plan;
    RETURN_IF_FAILED(qobs_plan_make(&plan, &qobs_whole_tensor, a->value, NULL, f->runtime, error));
    const int status = qobs_reduce_minmax(f->runtime, f->kernels, &plan, a->value->data, NONFINITE_PROPAGATE, &min,
                                          &max, &nonfinite, error);
    qobs_plan_unmake(&plan);
    if (status == QOBS_OK && qobs_element(&min, a->value->dtype) < 0)
        return qobs_invalid(error, "value: has negative elements, which unsigned=true does not take");
    return status;
}

/* The factors of the magnitudes, in memory that the caller releases, also after an error. */
static int open_amax(struct fake_quantize *f, const qobs_fake_quantize_args *a, const struct amax_numbers *numbers,
                     const qobs_plan *plan, float **factors, qobs_error *error)
{
    enum kernel_dtype unused;
    struct view amax;
    RETURN_IF_FAILED(qobs_view_of_tensor(&amax, a->amax, "amax", error));
    RETURN_IF_FAILED(check_qparams(&amax, "amax", plan->qparams, error));
    if (!qobs_kernel_dtype_of(amax.dtype, &unused))
        return qobs_invalid(error, "amax: dtype is %s, allowed are F32, BF16, F16 and F64",
                            qobs_dtype_name(amax.dtype));
    const size_t size = (size_t)plan->qparams * sizeof **factors;
    *factors = qobs_allocate(f->runtime, size);
    if (!*factors)
        return qobs_no_memory(error, "amax: no memory for %zu bytes", size);
    f->scale = *factors;
    f->scale_dtype = QOBS_F32;
    const fp_mode mode = fp_enter();
    int status = qobs_amax_factors(numbers, amax.data, amax.dtype, plan->qparams, *factors, error);
    if (status == QOBS_OK && !numbers->e4m3 && numbers->quant_min == 0)
        status = check_signs(f, a, error);
    fp_leave(mode);
    return status;
}

/* Fake-quantizes the elements of `plan`, of which there are some. */
static int fake_quantize(struct fake_quantize *f, const qobs_fake_quantize_args *a, const struct amax_numbers *numbers,
                         const struct quantize_rule *rule, const qobs_plan *plan, qobs_error *error)
{
    const qobs_tensor out = {sizeof out, a->out, a->value->dtype, a->value->ndim, a->value->shape, a->out_strides};
    float *factors = NULL;
    qobs_plan out_plan;
    RETURN_IF_FAILED(check_out(a, &plan->value, error));
    int status = a->amax ? open_amax(f, a, numbers, plan, &factors, error) : open_qparams(f, a, plan, error);
    if (status == QOBS_OK)
        status = qobs_plan_make(&out_plan, &rule->granularity, &out, NULL, f->runtime, error);
    if (status == QOBS_OK) {
        status = qobs_fake_quantize_plan(f, plan, a->value->data, &out_plan, a->out, error);
        qobs_plan_unmake(&out_plan);
    }
    if (factors)
        qobs_release(f->runtime, factors, (size_t)plan->qparams * sizeof *factors);
    return status;
}

int qobs_fake_quantize(const qobs_fake_quantize_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(codes, error);
    struct amax_numbers numbers = {0};
    struct quantize_rule rule;
    struct runtime runtime;
    qobs_fake_quantize_args a;
    qobs_plan plan;
    RETURN_IF_FAILED(ARGS_READ(qobs_fake_quantize_args, &a, args, runtime, error));
    RETURN_IF_FAILED(qobs_runtime_resolve(&runtime, a.runtime, error));
    RETURN_IF_FAILED(qobs_config_check(a.config, error));
    struct fake_quantize f = {.runtime = &runtime, .kernels = qobs_kernels_active(), .global_scale = a.global_scale};
    if (a.amax) {
        RETURN_IF_FAILED(choose_amax_numbers(&f, &a, &numbers, error));
        qobs_resolve_granularity(a.config, &rule.granularity);
    } else {
        RETURN_IF_FAILED(qobs_resolve_quantize(a.config, a.format, false, &rule, error));
        f.quantizer = rule.quantizer;
        f.positive_zero = rule.positive_zero;
    }
    RETURN_IF_FAILED(qobs_plan_make(&plan, &rule.granularity, a.value, a.g_idx, &runtime, error));
    const int status = plan.value.elements > 0 ? fake_quantize(&f, &a, &numbers, &rule, &plan, error) : QOBS_OK;
    qobs_plan_unmake(&plan);
    return status == QOBS_OK ? qobs_succeed(error) : status;
}
