/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "quantize/fake_quantize.h"

#include "number/grid.h"
#include "number/round.h"

int qobs_amax_factors(const struct amax_numbers *numbers, const void *amax, qobs_dtype dtype, int64_t n, float *factor,
                      qobs_error *error)
{
    const float quant_max = (float)numbers->quant_max;
    for (int64_t i = 0; i < n; i++) {
        const float a = (float)qobs_qparam_at(amax, dtype, i);
        if (!isfinite(a) || a < 0)
            return qobs_invalid(error, "amax: element %lld is %g, must be finite and not negative", (long long)i,
                                (double)a);
        factor[i] = qobs_amax_factor(numbers->e4m3, quant_max, a, numbers->zero_amax);
    }
    return QOBS_OK;
}

struct amax_rule {
    float quant_min, quant_max;
};

/* NaN stays NaN. Clamping before rounding is the same, as the limits are numbers of the grid. */
static inline float fake_quantized(const struct amax_rule *r, bool e4m3, float x, float factor, float inverse)
{
    float v = x * factor;
    v = v < r->quant_min ? r->quant_min : v;
    v = v > r->quant_max ? r->quant_max : v;
    return e4m3 ? grid_round_e4m3(v) * inverse : grid_round_integer_float(v) / inverse;
}

/* e4m3: the reciprocal, by which the way back multiplies; else the divisor of the way back. */
static inline float inverse_of(bool e4m3, float factor) { return e4m3 ? 1 / factor : factor == 0 ? 1 : factor; }

static inline struct amax_rule rule_of(const struct quantizer *q)
{
    return (struct amax_rule){(float)q->quant_min, (float)q->quant_max};
}

#define NATIVE_BODY "quantize/fake_quantize_amax.inl.h"
#include "number/native_each.inl.h"

#define EACH_OF(name, numbers)                                                                                         \
    {[QOBS_KERNEL_F32] = name##_##numbers##_f32,                                                                       \
     [QOBS_KERNEL_BF16] = name##_##numbers##_bf16,                                                                     \
     [QOBS_KERNEL_F16] = name##_##numbers##_f16,                                                                       \
     [QOBS_KERNEL_F64] = name##_##numbers##_f64}
const struct fake_quantize_by_amax qobs_amax_integers = {EACH_OF(rows, integer), EACH_OF(columns, integer)};
const struct fake_quantize_by_amax qobs_amax_e4m3 = {EACH_OF(rows, e4m3), EACH_OF(columns, e4m3)};
