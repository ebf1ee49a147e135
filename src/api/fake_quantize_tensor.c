/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs_quantize, qobs_dequantize and qobs_fake_quantize: check their arguments and choose the quantizer. */
#include "base/fpenv.h"
#include "base/struct_size.h"
#include "config/resolve.h"
#include "kernels/dispatch.h"
#include "plan/make_plan.h"
#include "qobs/stateless.h"
#include "quantize/row_quantizer.h"

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
static int check_out(const void *out, const int64_t *strides, size_t size, const struct view *value, qobs_error *error)
{
    const int64_t element = (int64_t)qobs_dtype_size(value->dtype);
    int64_t span = strides ? element : value->elements * element;
    RETURN_IF_FAILED(qobs_require(out, "out", error));
    if (strides && value->elements > 0)
        RETURN_IF_FAILED(check_out_strides(strides, value, &span, error));
    if (size < (uint64_t)span)
        return qobs_invalid(error, "out: has %zu bytes, its elements span %lld", size, (long long)span);
    return QOBS_OK;
}

/* Codes that follow each other without scales between them. */
static int resolve_codes(const qobs_config *config, const qobs_format *format, struct quantize_rule *rule,
                         qobs_error *error)
{
    RETURN_IF_FAILED(qobs_resolve_quantize(config, format, true, rule, error));
    return rule->quantizer.block
               ? qobs_invalid(error, "config: is %s, whose codes lie in blocks; qobs_quantizer_run makes them",
                              rule->formula.params.name)
               : QOBS_OK;
}

/* The three functions have these in common. */
struct call {
    struct runtime runtime;
    struct quantize_rule rule;
    struct fake_quantize f;
    qobs_plan plan; /* of the elements that are read */
};

static int open_call(struct call *c, const qobs_config *config, const qobs_runtime *runtime, qobs_error *error)
{
    RETURN_IF_FAILED(qobs_runtime_resolve(&c->runtime, runtime, error));
    c->f = (struct fake_quantize){.runtime = &c->runtime, .kernels = qobs_kernels_active()};
    return qobs_config_check(config, error);
}

/* Views of scale and zero point, each with an element for each qparam. */
static int open_qparams(struct call *c, const qobs_tensor *scale, const qobs_tensor *zero_point, qobs_error *error)
{
    const int64_t qparams = c->plan.qparams;
    const bool torch = c->f.quantizer.torch;
    struct view scales, zero_points = {0};
    RETURN_IF_FAILED(qobs_view_of_tensor(&scales, scale, "scale", error));
    RETURN_IF_FAILED(check_qparams(&scales, "scale", qparams, error));
    RETURN_IF_FAILED(check_scale(&scales, c->plan.value.dtype, torch, error));
    RETURN_IF_FAILED(qobs_check_runtime_zero_point(&c->f.quantizer, c->f.kind, zero_point, error));
    if (zero_point) {
        RETURN_IF_FAILED(qobs_view_of_tensor(&zero_points, zero_point, "zero_point", error));
        RETURN_IF_FAILED(check_qparams(&zero_points, "zero_point", qparams, error));
        if (torch)
            RETURN_IF_FAILED(
                qobs_check_torch_zero_points(&c->f.quantizer, zero_points.data, zero_points.dtype, qparams, error));
    }
    c->f.scale = scales.data;
    c->f.scale_dtype = scales.dtype;
    c->f.zero_point = zero_points.data;
    c->f.zero_point_dtype = zero_points.dtype;
    return QOBS_OK;
}

/* Quantizes into a tensor of the dtype and shape of the plan's value; strides are in bytes. */
static int write_out(const struct call *c, void *out, const int64_t *strides, qobs_error *error)
{
    const struct view *v = &c->plan.value;
    const qobs_tensor tensor = {sizeof tensor, out, v->dtype, v->ndim, v->shape, strides};
    qobs_plan out_plan;
    RETURN_IF_FAILED(qobs_plan_make(&out_plan, &c->rule.granularity, &tensor, NULL, &c->runtime, error));
    const int status = qobs_fake_quantize_plan(&c->f, &c->plan, v->data, &out_plan, out, error);
    qobs_plan_unmake(&out_plan);
    return status;
}

/* Closes a call, whose plan was made. */
static int close_call(struct call *c, int status, qobs_error *error)
{
    qobs_plan_unmake(&c->plan);
    return qobs_finish(status, error);
}

/* ---- Codes ------------------------------------------------------------------------------------------------------- */

static int choose_packing(struct call *c, const qobs_quantize_args *a, qobs_error *error)
{
    const struct view *v = &c->plan.value;
    if (a->packed != 0 && a->packed != 1)
        return qobs_invalid(error, "packed: is %d, allowed are 0 and 1", a->packed);
    if (!a->packed)
        return QOBS_OK;
    const int64_t columns = v->ndim > 0 ? v->shape[v->ndim - 1] : 1;
    if (c->rule.code_bits != 4)
        return qobs_invalid(error, "packed: is 1, but codes have %d bits; packed are codes of 4", c->rule.code_bits);
    if (columns % 8 != 0)
        return qobs_invalid(error, "packed: is 1, but the last dimension of value is %lld, not a multiple of 8",
                            (long long)columns);
    c->f.packed = true;
    c->f.pack_offset = c->rule.kind == QOBS_CODE_INTEGER ? 8 : 0;
    return QOBS_OK;
}

/* Quantizes the elements of the plan. */
static int quantize(struct call *c, const qobs_quantize_args *a, qobs_error *error)
{
    const struct view *v = &c->plan.value;
    int64_t strides[QOBS_MAX_NDIM], next = 1; /* of bytes in C order */
    RETURN_IF_FAILED(qobs_check_runtime_codes(&c->f.quantizer, v->dtype, a->squared_error || a->energy, error));
    RETURN_IF_FAILED(choose_packing(c, a, error));
    if (v->elements == 0)
        return QOBS_OK;
    if (!a->codes || a->codes_size < (uint64_t)v->elements / (a->packed ? 2 : 1))
        return qobs_invalid(error, "codes: has %zu bytes%s, value has %lld elements%s", a->codes ? a->codes_size : 0,
                            a->codes ? "" : " (NULL)", (long long)v->elements, a->packed ? ", two in a byte" : "");
    RETURN_IF_FAILED(open_qparams(c, a->scale, a->zero_point, error));
    for (int i = v->ndim - 1; i >= 0; next *= v->shape[i--])
        strides[i] = next;
    return write_out(c, a->codes, strides, error);
}

int qobs_quantize(const qobs_quantize_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(codes, error);
    struct call c;
    qobs_quantize_args a;
    double sum[2] = {0};
    RETURN_IF_FAILED(ARGS_READ(qobs_quantize_args, &a, args, runtime, error));
    RETURN_IF_FAILED(qobs_check_global_scale(a.global_scale, error));
    RETURN_IF_FAILED(open_call(&c, a.config, a.runtime, error));
    RETURN_IF_FAILED(resolve_codes(a.config, a.format, &c.rule, error));
    RETURN_IF_FAILED(qobs_plan_make(&c.plan, &c.rule.granularity, a.value, a.g_idx, &c.runtime, error));
    c.f.quantizer = c.rule.quantizer;
    c.f.kind = c.rule.kind;
    c.f.global_scale = a.global_scale;
    c.f.direction = TO_CODES;
    c.f.sum = a.squared_error || a.energy ? sum : NULL;
    RETURN_IF_FAILED(close_call(&c, quantize(&c, &a, error), error));
    if (a.squared_error)
        *a.squared_error = sum[0];
    if (a.energy)
        *a.energy = sum[1];
    return QOBS_OK;
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

/* Dequantizes the codes of the plan. */
static int dequantize(struct call *c, const qobs_dequantize_args *a, qobs_error *error)
{
    if (c->plan.value.elements == 0)
        return QOBS_OK;
    RETURN_IF_FAILED(check_out(a->out, a->out_strides, a->out_size, &c->plan.value, error));
    RETURN_IF_FAILED(open_qparams(c, a->scale, a->zero_point, error));
    return write_out(c, a->out, a->out_strides, error);
}

int qobs_dequantize(const qobs_dequantize_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(codes, error);
    struct call c;
    struct view codes;
    qobs_dequantize_args a;
    RETURN_IF_FAILED(ARGS_READ(qobs_dequantize_args, &a, args, runtime, error));
    RETURN_IF_FAILED(qobs_check_global_scale(a.global_scale, error));
    RETURN_IF_FAILED(qobs_view_of_tensor(&codes, a.codes, "codes", error));
    RETURN_IF_FAILED(check_code_dtypes(&codes, a.dtype, error));
    RETURN_IF_FAILED(open_call(&c, a.config, a.runtime, error));
    RETURN_IF_FAILED(resolve_codes(a.config, a.format, &c.rule, error));
    const qobs_tensor bytes = {sizeof bytes, codes.data, a.dtype, codes.ndim, codes.shape, codes.strides};
    RETURN_IF_FAILED(qobs_plan_make(&c.plan, &c.rule.granularity, &bytes, a.g_idx, &c.runtime, error));
    c.f.kind = c.rule.kind;
    c.f.global_scale = a.global_scale;
    c.f.direction = FROM_CODES;
    return close_call(&c, dequantize(&c, &a, error), error);
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
static int check_signs(const struct call *c, qobs_error *error)
{
    const struct view *v = &c->plan.value;
    const qobs_tensor value = {sizeof value, v->data, v->dtype, v->ndim, v->shape, v->strides};
    struct nonfinite_count nonfinite = {0};
    double min, max;
    qobs_plan plan;
    RETURN_IF_FAILED(qobs_plan_make(&plan, &qobs_whole_tensor, &value, NULL, &c->runtime, error));
    const int status = qobs_reduce_minmax(&c->runtime, c->f.kernels, &plan, v->data, NONFINITE_PROPAGATE, &min, &max,
                                          &nonfinite, error);
    qobs_plan_unmake(&plan);
    if (status == QOBS_OK && qobs_element(&min, v->dtype) < 0)
        return qobs_invalid(error, "value: has negative elements, which unsigned=true does not take");
    return status;
}

/* Quantizes by the factors of the magnitudes. */
static int fake_quantize_by_amax(struct call *c, const qobs_fake_quantize_args *a, const struct amax_numbers *numbers,
                                 qobs_error *error)
{
    struct view amax;
    RETURN_IF_FAILED(qobs_view_of_tensor(&amax, a->amax, "amax", error));
    RETURN_IF_FAILED(check_qparams(&amax, "amax", c->plan.qparams, error));
    RETURN_IF_FAILED(qobs_require_kernel_dtype(amax.dtype, "amax", error));
    const size_t size = (size_t)c->plan.qparams * sizeof(float);
    float *factors = qobs_allocate(&c->runtime, size);
    RETURN_IF_FAILED(qobs_require_memory(factors, "amax", size, error));
    c->f.scale = factors;
    c->f.scale_dtype = QOBS_F32;
    FP_SCOPE;
    int status = qobs_amax_factors(numbers, amax.data, amax.dtype, c->plan.qparams, factors, error);
    if (status == QOBS_OK && !numbers->e4m3 && numbers->quant_min == 0)
        status = check_signs(c, error);
    if (status == QOBS_OK)
        status = write_out(c, a->out, a->out_strides, error);
    qobs_release(&c->runtime, factors, size);
    return status;
}

static int fake_quantize(struct call *c, const qobs_fake_quantize_args *a, const struct amax_numbers *numbers,
                         qobs_error *error)
{
    if (c->plan.value.elements == 0)
        return QOBS_OK;
    RETURN_IF_FAILED(check_out(a->out, a->out_strides, a->out_size, &c->plan.value, error));
    if (a->amax)
        return fake_quantize_by_amax(c, a, numbers, error);
    RETURN_IF_FAILED(open_qparams(c, a->scale, a->zero_point, error));
    return write_out(c, a->out, a->out_strides, error);
}

int qobs_fake_quantize(const qobs_fake_quantize_args *args, qobs_error *error)
{
    RETURN_IF_LEFT_OUT(codes, error);
    struct amax_numbers numbers = {0};
    struct call c;
    qobs_fake_quantize_args a;
    RETURN_IF_FAILED(ARGS_READ(qobs_fake_quantize_args, &a, args, runtime, error));
    RETURN_IF_FAILED(qobs_check_global_scale(a.global_scale, error));
    RETURN_IF_FAILED(open_call(&c, a.config, a.runtime, error));
    if (a.amax) {
        RETURN_IF_FAILED(choose_amax_numbers(&c.f, &a, &numbers, error));
        qobs_resolve_granularity(a.config, &c.rule.granularity);
    } else {
        RETURN_IF_FAILED(qobs_resolve_quantize(a.config, a.format, false, &c.rule, error));
        c.f.quantizer = c.rule.quantizer;
        c.f.positive_zero = c.rule.positive_zero;
    }
    c.f.global_scale = a.global_scale;
    RETURN_IF_FAILED(qobs_plan_make(&c.plan, &c.rule.granularity, a.value, a.g_idx, &c.runtime, error));
    return close_call(&c, fake_quantize(&c, &a, &numbers, error), error);
}
