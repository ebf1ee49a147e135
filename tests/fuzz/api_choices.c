/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Configurations and tensors out of an input. */
#include "api.h"

/* Values of the settings, so that most configurations are good ones, without those that make a run take seconds. Other
 * settings get a number. */
static const struct {
    const char *key, *values;
} choices[] = {
    {"base_name", "weight|input|output|q|k|v"},
    {"nonfinite", "refuse|ignore|propagate|refuse_nan"},
    {"bins", "1|2|7|100|256|2048"},
    {"num_bins", "1|2|7|100|256|2048"},
    {"percentile", "0|50|99|99.9|100|1e-9"},
    {"stride", "1|2|5|100"},
    {"start_bin", "0|1|5|128|5000"},
    {"method", "entropy|mse|percentile"},
    {"averaging_constant", "0|1|0.01|0.5|1e-30"},
    {"num_bits", "2|3|4|5|6|7|8|16|[4,3]"},
    {"type", "int|float"},
    {"strategy", "tensor|channel|group|tensor_group|block|token|attn_head"},
    {"group_size", "-1|1|2|3|4|8|16|32|64"},
    {"block_structure", "[1,1]|[2,3]|[4,4]|[16,16]|[128,128]"},
    {"dynamic", "false|true|local"},
    {"scale_dtype", "float32|bfloat16|float16|float8_e4m3fn|uint8"},
    {"zp_dtype", "int8|int16|int32|bfloat16|float16|float32|float8_e4m3fn"},
    {"version", "current|2025-10|2025-09"},
    {"maxshrink", "0|0.2|0.5|0.95|1"},
    {"grid", "0.5|1|10|20|33.3|100"},
    {"patience", "0|1|5|1000"},
    {"norm", "1|2|3|2.4|0.4|4|6.5|24|100"},
    {"expand", "1|1.5|1.8|100"},
    {"dtype", "int8|uint8|int4|uint4|int2|int16|int32|qint8|quint8|quint4x2|qint32|uint16|float32|float16|bfloat16|fp8_"
              "e4m3|fp8_e5m2|"
              "fp8_e5m3|fp6_e2m3|fp6_e3m2|fp4|bfp16|mx|mx6|mx9|uint32|int3"},
    {"qscheme",
     "per_tensor_affine|per_tensor_symmetric|per_channel_affine|per_channel_symmetric|per_channel_affine_float_qparams|"
     "per_tensor|per_channel|per_group"},
    {"quant_min", "-128|0|-8|1|-2147483648"},
    {"quant_max", "127|255|7|15|4294967295"},
    {"eps", "0|1e-6|1e-12|1|1e38"},
    {"ch_axis", "0|1|-1|-2|2|5"},
    {"scale", "1|0.1|-2|1e-45"},
    {"zero_point_type", "int32|float32"},
    {"scale_type", "float|float32|float16|bfloat16|pof2|float8_e5m3|float8_e8m0fnu"},
    {"scale_format", "float32|e4m3|e5m3|e8m0"},
    {"scale_calculation_mode", "even|floor|ceil"},
    {"mx_element_dtype", "int8|int4|fp8_e4m3|fp8_e5m2|fp6_e2m3|fp6_e3m2|fp4"},
    {"scope", "0|1|5|127"},
    {"axis", "0|1|[0]|[0,1]|[-1]|[]|null"},
    {"step_size", "0.1|0.5|1"},
    {"start_multiplier", "0.1|0.25|1"},
    {"stop_multiplier", "1|2|4"},
    {"block_size", "1|3|8|16|32"},
    {"hessian_block_size", "null|8|16|24|64"},
};

/* Writes one of the values between the bars. */
static void pick(struct bytes *b, const char *values, char *value)
{
    size_t n = 1;
    for (const char *p = values; *p; p++)
        n += *p == '|';
    for (n = take_below(b, n); n > 0; n--)
        values = strchr(values, '|') + 1;
    const size_t length = strcspn(values, "|");
    memcpy(value, values, length);
    value[length] = '\0';
}

static void take_value(struct bytes *b, const char *key, char *value)
{
    const char *values = "true|false";
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (strcmp(choices[i].key, key) == 0)
            values = choices[i].values;
    pick(b, values, value);
}

qobs_config *take_config(struct run *run)
{
    qobs_config *config;
    qobs_error error;
    char value[64];
    must(qobs_config_create(&config, qobs_preset_name(take_below(&run->b, qobs_preset_count())), run->runtime,
                            &error) == QOBS_OK);
    for (size_t n = take_below(&run->b, 8); n > 0; n--) {
        const char *key = qobs_config_key(config, take_below(&run->b, qobs_config_key_count(config)));
        take_value(&run->b, key, value);
        record_status(&run->record, qobs_config_set(config, key, value, &error), &error);
    }
    if (record_status(&run->record, qobs_config_check(config, &error), &error))
        return config;
    qobs_config_destroy(config);
    return NULL;
}

/* Some elements as the input has them. */
static void put_elements(struct bytes *b, struct tensor *t)
{
    int64_t index[DIMS] = {0};
    do {
        if (b->left == 0)
            break;
        if (take_below(b, 4) == 0) {
            const uint64_t bits = take(b, t->dtype->size);
            memcpy(address(t, index), &bits, t->dtype->size);
        }
    } while (step(t, index));
}

void take_shaped(struct bytes *b, struct tensor *t)
{
    static const int nonfinite[] = {0, 0, 0, 1, 30, 100};
    struct rng r = {take(b, 3)};
    int64_t elements = 1;
    for (int d = 0; d < t->ndim; d++)
        elements *= t->shape[d];
    lay_out(&r, t);
    t->elements = elements;
    if (elements == 0)
        return;
    fill_elements(&r, t, nonfinite[take_below(b, 6)]);
    if (take_below(b, 2))
        put_elements(b, t);
}

void take_tensor(struct bytes *b, struct tensor *t)
{
    static const size_t extents[] = {4, 8, 20, 40, 130};
    enum { MOST_ELEMENTS = 4096 };
    int64_t elements = 1;
    t->dtype = &dtypes[take_below(b, 4)];
    t->ndim = take_below(b, 3) ? 2 : (int)take_below(b, DIMS);
    for (int d = 0; d < t->ndim; d++) {
        t->shape[d] = (int64_t)take_below(b, extents[take_below(b, 5)]) + (take_below(b, 32) ? 1 : 0);
        while (elements * t->shape[d] > MOST_ELEMENTS)
            t->shape[d] /= 2;
        elements *= t->shape[d];
    }
    take_shaped(b, t);
}

const qobs_tensor *take_indices(struct bytes *b, const struct tensor *t, struct indices *indices)
{
    const int64_t columns = t->ndim > 0 ? t->shape[t->ndim - 1] : 0;
    if (take_below(b, 4) || columns == 0 || columns > 64)
        return NULL;
    const size_t groups = 1 + take_below(b, 16), bad = take_below(b, 32);
    for (int64_t i = 0; i < columns; i++)
        indices->narrow[i] = (int32_t)take_below(b, groups);
    if (bad < 2)
        indices->narrow[take_below(b, (size_t)columns)] = bad ? -1 : 1 << 30;
    indices->shape[0] = columns;
    indices->tensor = (qobs_tensor){.struct_size = sizeof(qobs_tensor),
                                    .data = indices->narrow,
                                    .dtype = QOBS_I32,
                                    .ndim = 1,
                                    .shape = indices->shape};
    return &indices->tensor;
}
