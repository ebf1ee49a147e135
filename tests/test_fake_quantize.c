/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Fake-quantize of tensors: every granularity, any strides, in place, on threads, against a slow computation. */
#include <math.h>
#include <pthread.h>

#include "base/fpenv.h"
#include "kernels/dispatch.h"
#include "qobs/format.h"
#include "qobs/plan.h"
#include "qobs/stateless.h"
#include "quantize.h"
#include "quantize/qparam_view.h"
#include "quantize/fake_quantize.h"
#include "repeats.h"
#include "calls.h"
#include "unit.h"

struct extents {
    int ndim;
    int64_t extent[4];
};

struct setting {
    const char *key, *value;
};

/* Returns the qparam of the element with these indices, by the test's own rule for each strategy. `place` is the group
 * that g_idx puts a column in. */
typedef int64_t qparam_fn(const struct extents *shape, const int64_t *i, const int64_t *place);

static int64_t group_5(const struct extents *s, const int64_t *i, const int64_t *place)
{
    const int last = s->ndim - 1;
    int64_t row = 0;
    for (int d = 0; d < last; d++)
        row = row * s->extent[d] + i[d];
    return row * ((s->extent[last] + 4) / 5) + (place ? place[i[last]] : i[last] / 5);
}

static int64_t group_128(const struct extents *s, const int64_t *i, const int64_t *place)
{
    return i[0] * (s->extent[1] / 128) + i[1] / 128;
}

static int64_t channel(const struct extents *s, const int64_t *i, const int64_t *place)
{
    int64_t row = 0;
    for (int d = 0; d < s->ndim - 1; d++)
        row = row * s->extent[d] + i[d];
    return row;
}

static int64_t tensor(const struct extents *s, const int64_t *i, const int64_t *place)
{
    return 0;
}

static int64_t block_3_4(const struct extents *s, const int64_t *i, const int64_t *place)
{
    return i[0] / 3 * ((s->extent[1] + 3) / 4) + i[1] / 4;
}

static int64_t second_index(const struct extents *s, const int64_t *i, const int64_t *place)
{
    return i[1];
}

static int64_t activation_group(const struct extents *s, const int64_t *i, const int64_t *place)
{
    return i[s->ndim - 1] / 5;
}

/* Rows and columns swapped, then runs of 5. */
static int64_t swapped_group_5(const struct extents *s, const int64_t *i, const int64_t *place)
{
    return i[1] * ((s->extent[0] + 4) / 5) + i[0] / 5;
}

struct layout {
    const char *name, *preset;
    struct setting settings[6];
    struct extents shape;
    qparam_fn *qparam;
    bool g_idx;
};

static const struct layout strategies[] = {
    {"tensor", "llmc.memoryless_minmax", {{"strategy", "tensor"}}, {2, {7, 13}}, tensor, false},
    {"channel", "llmc.memoryless_minmax", {{"strategy", "channel"}}, {2, {17, 31}}, channel, false},
    {"channel of experts", "llmc.memoryless_minmax", {{"strategy", "channel"}}, {3, {3, 5, 31}}, channel, false},
    {"group", "llmc.memoryless_minmax", {{"group_size", "5"}}, {2, {9, 40}}, group_5, false},
    {"group of experts", "llmc.memoryless_minmax", {{"group_size", "5"}}, {3, {4, 3, 20}}, group_5, false},
    {"group, ragged",
     "llmc.memoryless_minmax",
     {{"group_size", "5"}, {"ragged", "true"}},
     {2, {6, 23}},
     group_5,
     false},
    {"group 128", "llmc.memoryless_minmax", {{"group_size", "128"}}, {2, {300, 1024}}, group_128, false},
    {"group, g_idx", "llmc.memoryless_minmax", {{"group_size", "5"}}, {2, {11, 40}}, group_5, true},
    {"group, g_idx, wide", "llmc.memoryless_minmax", {{"group_size", "5"}}, {2, {400, 700}}, group_5, true},
    {"group of experts, g_idx", "llmc.memoryless_minmax", {{"group_size", "5"}}, {3, {2, 3, 25}}, group_5, true},
    {"group, ragged, g_idx",
     "llmc.memoryless_minmax",
     {{"group_size", "5"}, {"ragged", "true"}},
     {2, {6, 23}},
     group_5,
     true},
    {"block",
     "llmc.memoryless_minmax",
     {{"strategy", "block"}, {"block_structure", "[3, 4]"}},
     {2, {12, 20}},
     block_3_4,
     false},
    {"block, partial",
     "llmc.memoryless_minmax",
     {{"strategy", "block"}, {"block_structure", "[3, 4]"}},
     {2, {11, 22}},
     block_3_4,
     false},
    {"token",
     "llmc.memoryless_minmax",
     {{"base_name", "input"}, {"strategy", "token"}, {"dynamic", "true"}},
     {3, {3, 7, 19}},
     second_index,
     false},
    {"activation, tensor",
     "llmc.minmax",
     {{"base_name", "input"}, {"strategy", "tensor"}},
     {3, {3, 7, 19}},
     tensor,
     false},
    {"activation, group",
     "llmc.minmax",
     {{"base_name", "output"}, {"group_size", "5"}},
     {3, {3, 4, 30}},
     activation_group,
     false},
    {"attention, head",
     "llmc.minmax",
     {{"base_name", "k"}, {"strategy", "attn_head"}},
     {4, {2, 5, 6, 8}},
     second_index,
     false},
    {"attention, tensor",
     "llmc.minmax",
     {{"base_name", "v"}, {"strategy", "tensor"}},
     {4, {2, 5, 6, 8}},
     tensor,
     false},
    {"torch", "torch.MinMaxObserver", {{"dtype", "quint8"}}, {3, {5, 6, 7}}, tensor, false},
    {"torch, int32", "torch.MinMaxObserver", {{"dtype", "qint32"}}, {2, {5, 6}}, tensor, false},
    {"torch, large", "torch.MinMaxObserver", {{"dtype", "qint8"}}, {2, {1000, 700}}, tensor, false},
    {"torch, channel",
     "torch.PerChannelMinMaxObserver",
     {{"dtype", "qint8"}, {"ch_axis", "1"}},
     {3, {6, 5, 7}},
     second_index,
     false},
    {"torch, last axis",
     "torch.PerChannelMinMaxObserver",
     {{"dtype", "quint8"}, {"ch_axis", "-1"}},
     {2, {23, 37}},
     second_index,
     false},
    {"torch, many channels",
     "torch.PerChannelMinMaxObserver",
     {{"dtype", "qint8"}, {"ch_axis", "1"}},
     {2, {300, 2500}},
     second_index,
     false},
    {"quark, block",
     "quark.PerBlockMXObserver",
     {{"dtype", "fp4"},
      {"scale_format", "e8m0"},
      {"scale_calculation_mode", "even"},
      {"group_size", "5"},
      {"ch_axis", "0"}},
     {2, {23, 9}},
     swapped_group_5,
     false},
    {"one element", "llmc.memoryless_minmax", {{"strategy", "tensor"}}, {0, {0}}, tensor, false},
};

/* Strides of a tensor in a larger buffer: axes in any order, some backwards, with gaps. Returns the bytes it spans and
 * where its first element is. */
static size_t random_strides(const struct extents *s, size_t element, bool plain, bool forwards, int64_t *strides,
                             size_t *origin)
{
    int order[4] = {0, 1, 2, 3};
    int64_t step = (int64_t)element;
    *origin = 0;
    for (int i = s->ndim - 1; i > 0 && !plain; i--) {
        const int j = (int)(random_bits() % (unsigned)(i + 1)), swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
    const bool gap_first = !plain && random_bits() % 3 == 0;
    step *= gap_first ? 2 : 1;
    for (int i = s->ndim - 1; i >= 0; i--) {
        const int d = order[i];
        const bool backwards = !plain && !forwards && random_bits() % 3 == 0;
        strides[d] = backwards ? -step : step;
        if (backwards)
            *origin += (size_t)(step * (s->extent[d] - 1));
        step *= s->extent[d];
        if (!plain && random_bits() % 3 == 0)
            step += (int64_t)element * (1 + random_bits() % 3);
    }
    return (size_t)step;
}

/* A thread a task, the last first. */
struct task {
    void (*run)(void *, size_t);
    void *argument;
    size_t index;
};

static void *run_task(void *argument)
{
    const struct task *t = argument;
    t->run(t->argument, t->index);
    return NULL;
}

static size_t tasks_run;

static void threads_for(void *context, void (*run)(void *, size_t), void *argument, size_t count)
{
    pthread_t threads[64];
    struct task tasks[64];
    assert_true(count <= 64);
    for (size_t i = count; i-- > 0;) {
        tasks[i] = (struct task){run, argument, i};
        assert_int_equal(pthread_create(&threads[i], NULL, run_task, &tasks[i]), 0);
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    tasks_run += count;
}

static const qobs_executor executor = {.struct_size = sizeof executor, .threads = 3, .parallel_for = threads_for};
static const qobs_runtime with_threads = {.struct_size = sizeof with_threads, .executor = &executor};

static qobs_config *configure(const struct layout *s)
{
    qobs_config *config;
    qobs_error error;
    if (qobs_config_create(&config, s->preset, NULL, &error) != QOBS_OK)
        fail_msg("%s", error.message);
    for (size_t i = 0; i < 6 && s->settings[i].key; i++)
        if (qobs_config_set(config, s->settings[i].key, s->settings[i].value, &error) != QOBS_OK)
            fail_msg("%s", error.message);
    return config;
}

static int64_t element_count(const struct extents *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->ndim; d++)
        n *= s->extent[d];
    return n;
}

static bool next_index(const struct extents *s, int64_t *i)
{
    for (int d = s->ndim - 1; d >= 0; d--) {
        if (++i[d] < s->extent[d])
            return true;
        i[d] = 0;
    }
    return false;
}

static int64_t offset_of(const struct extents *s, const int64_t *i, const int64_t *strides)
{
    int64_t at = 0;
    for (int d = 0; d < s->ndim; d++)
        at += i[d] * strides[d];
    return at;
}

/* A g_idx of numbers in any order. Groups are pieces of 5 of their stable sort, or ragged: a group a number, all of
 * them named. */
static void make_g_idx(int64_t columns, bool ragged, int32_t *g_idx, int64_t *place)
{
    const uint32_t groups = (uint32_t)((columns + 4) / 5);
    for (int64_t i = 0; i < columns; i++)
        g_idx[i] = (int32_t)(ragged && i % 2 == 0 && i / 2 < groups ? (uint32_t)(i / 2) : random_bits() % groups);
    for (int64_t i = 0; i < columns; i++) {
        place[i] = 0;
        for (int64_t j = 0; j < columns; j++)
            place[i] += g_idx[j] < g_idx[i] || (g_idx[j] == g_idx[i] && j < i);
        place[i] = ragged ? g_idx[i] : place[i] / 5;
    }
}

static void store_zero_point(qobs_dtype dtype, void *array, int64_t i, double value)
{
    static const qobs_format *e4m3;
    if (!e4m3)
        e4m3 = qobs_format_find("fp8_e4m3");
    switch (dtype) {
    case QOBS_I8:
        ((int8_t *)array)[i] = (int8_t)value;
        break;
    case QOBS_I16:
        ((int16_t *)array)[i] = (int16_t)value;
        break;
    case QOBS_I32:
        ((int32_t *)array)[i] = (int32_t)value;
        break;
    case QOBS_I64:
        ((int64_t *)array)[i] = (int64_t)value;
        break;
    case QOBS_F8_E4M3:
        ((uint8_t *)array)[i] = (uint8_t)qobs_format_encode(e4m3, (float)value, true);
        break;
    default:
        put(dtype, array, i, value);
        break;
    }
}

/* One strategy in one dtype, with everything else by chance. */
static void check_tensor(const struct layout *s, qobs_dtype dtype, const qobs_format *format,
                         const qobs_runtime *runtime)
{
    const size_t element = qobs_dtype_size(dtype);
    const bool torch = strncmp(s->preset, "torch", 5) == 0, plain = random_bits() % 3 == 0,
               in_place = random_bits() % 4 == 0;
    const bool with_zero_point = random_bits() & 1, with_global = !torch && random_bits() % 3 == 0;
    const qobs_dtype scale_dtype = torch || random_bits() & 1 ? QOBS_F32 : dtype;
    qobs_config *config = configure(s);
    struct way way = {.format = format, .in_float = scale_dtype == QOBS_F32 || (element == 2 && with_global)};
    if (torch) {
        const char *of = s->settings[0].value;
        way = (struct way){.quant_min = strcmp(of, "qint32") == 0  ? INT32_MIN
                                        : strcmp(of, "qint8") == 0 ? -128
                                                                   : 0,
                           .quant_max = strcmp(of, "qint32") == 0  ? INT32_MAX
                                        : strcmp(of, "qint8") == 0 ? 127
                                                                   : 255};
        format = NULL;
    }
    static int32_t g_idx[1024];
    static int64_t place[1024];
    const int64_t columns = s->shape.ndim ? s->shape.extent[s->shape.ndim - 1] : 1;
    if (s->g_idx)
        make_g_idx(columns, strcmp(s->settings[1].key ? s->settings[1].key : "", "ragged") == 0, g_idx, place);
    const qobs_tensor g = {sizeof g, g_idx, QOBS_I32, 1, &columns, NULL};

    int64_t strides[4], out_strides[4];
    size_t origin, out_origin;
    const size_t bytes = random_strides(&s->shape, element, plain, in_place, strides, &origin);
    size_t out_bytes = random_strides(&s->shape, element, plain && !in_place, true, out_strides, &out_origin);
    if (in_place) {
        memcpy(out_strides, strides, sizeof strides);
        out_origin = origin;
        out_bytes = bytes;
    }
    unsigned char *memory = malloc(bytes + 1), *expected = malloc(out_bytes + 1), *out = malloc(out_bytes + 1);
    unsigned char *x = memory + 1 - (bytes & 1), *out_data = out + 1 - (bytes & 1); /* sometimes unaligned */
    memset(x, 0x33, bytes);
    memset(out_data, 0x33, out_bytes);
    memset(expected, 0x33, out_bytes);

    qobs_plan *plan;
    qobs_error error;
    const qobs_tensor value = {sizeof value, x + origin, dtype, s->shape.ndim, s->shape.extent, plain ? NULL : strides};
    if (qobs_plan_create(&plan, config, &value, s->g_idx ? &g : NULL, NULL, &error) != QOBS_OK)
        fail_msg("%s: %s", s->name, error.message);
    int64_t flattened[QOBS_PLAN_MAX_NDIM], qparams = 1;
    const int ndim = qobs_plan_shape(plan, flattened, sizeof flattened);
    for (int i = 1; i < ndim - 1; i++)
        qparams *= flattened[i];
    qobs_plan_destroy(plan);

    const qobs_dtype zp_dtypes[] = {QOBS_I8, QOBS_I16, QOBS_I32, QOBS_I64, QOBS_F32, QOBS_F8_E4M3};
    const qobs_dtype zp_dtype = zp_dtypes[torch ? 1 + random_bits() % 3 : random_bits() % 6];
    void *scales = malloc((size_t)qparams * 8), *zero_points = malloc((size_t)qparams * 8);
    const float global = with_global ? (float)exp2(uniform(-3, 9)) : 1;
    for (int64_t i = 0; i < qparams; i++) {
        put(scale_dtype, scales, i,
            round_dtype(scale_dtype, exp2(uniform(-6, 0)) * (double)(with_global ? global : 1)));
        store_zero_point(zp_dtype, zero_points, i,
                         torch ? (double)(random_bits() % 100)
                         : zp_dtype >= QOBS_I16 && zp_dtype <= QOBS_I64
                             ? (double)((int)(random_bits() % 2000) - 1000) /* not all are bf16 numbers */
                             : (double)((int)(random_bits() % 16) - 8));
    }
    int64_t i[4] = {0};
    do {
        unsigned char number[8];
        const int64_t q = s->qparam(&s->shape, i, s->g_idx ? place : NULL);
        double scale = get(scale_dtype, scales, q);
        if (with_global)
            scale = round_dtype(scale_dtype == QOBS_F64 ? QOBS_F64 : QOBS_F32, scale / (double)global);
        const double v = random_bits() % 64 == 0   ? NAN
                         : random_bits() % 16 == 0 ? -0.0
                                                   : round_dtype(dtype, uniform(-9, 9) * scale);
        const double z = with_zero_point ? qobs_qparam_at(zero_points, zp_dtype, q) : 0;
        put(dtype, number, 0, v);
        memcpy(x + origin + offset_of(&s->shape, i, strides), number, element);
        /* e2m1 has the sign of the quotient, and that of -0 is 0: as if a zero point of 0 were added. */
        const bool positive =
            way.format && strcmp(way.format->name, "fp4_e2m1") == 0 && strncmp(s->preset, "llmc.", 5) == 0;
        put(dtype, number, 0, slow(&way, dtype, v, scale, with_zero_point || positive ? &z : NULL));
        memcpy(expected + out_origin + offset_of(&s->shape, i, out_strides), number, element);
    } while (next_index(&s->shape, i));

    const qobs_tensor scale = {sizeof scale, scales, scale_dtype, 1, &qparams, NULL};
    const qobs_tensor zero_point = {sizeof zero_point, zero_points, zp_dtype, 1, &qparams, NULL};
    if (in_place)
        memcpy(out_data, x, bytes);
    const qobs_tensor read = {sizeof read,     in_place ? out_data + origin : x + origin,
                              dtype,           s->shape.ndim,
                              s->shape.extent, plain ? NULL : strides};
    const int status = call_fake_quantize(
        config, format, &read, s->g_idx ? &g : NULL, &scale, with_zero_point ? &zero_point : NULL,
        with_global ? &global : NULL, out_data + out_origin, plain && !in_place ? NULL : out_strides, runtime, &error);
    if (status != QOBS_OK)
        fail_msg("%s: %s", s->name, error.message);
    if (memcmp(out_data, expected, out_bytes) != 0)
        fail_msg("%s, %s, %s: differs (zero point %d, global scale %d, in place %d, C order %d, scale %s)", s->name,
                 qobs_dtype_name(dtype), name_of(&way), with_zero_point, with_global, in_place, plain,
                 qobs_dtype_name(scale_dtype));
    free(memory);
    free(expected);
    free(out);
    free(scales);
    free(zero_points);
    qobs_config_destroy(config);
}

static void test_tensors(void **state)
{
    const struct layout *s = *state;
    const bool large = element_count(&s->shape) > 100000;
    static const char *const formats[] = {"int4", "int8", "fp8_e4m3", "fp4_e2m1", "int16", "fp6_e3m2"};
    const size_t tasks_before = tasks_run;
    const struct kernel_table *best = qobs_kernels_active();
    for (size_t t = 0; qobs_kernel_tables[t]; t++) {
        if (!qobs_kernel_tables[t]->usable() || (large && qobs_kernel_tables[t] != best && !repeats(0, 1)))
            continue;
        assert_int_equal(qobs_isa_select(qobs_kernel_tables[t]->isa, NULL), QOBS_OK);
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (int i = 0; i < (large ? 1 : repeats(6, 24)); i++)
                check_tensor(s, dtypes[d], qobs_format_find(formats[random_bits() % 6]),
                             i & 1 || large ? &with_threads : NULL);
    }
    assert_int_equal(qobs_isa_select(NULL, NULL), QOBS_OK);
    if (large)
        assert_true(tasks_run > tasks_before + 1);
}

/* Without a format it is the configuration's integers. */
static void test_format_of_configuration(void **state)
{
    qobs_config *config;
    const float x[4] = {-100, 0.26f, 3.6f, 100}, one = 0.5f;
    const int64_t four = 4, single = 1;
    float out[4];
    const qobs_tensor value = {sizeof value, x, QOBS_F32, 1, &four, NULL},
                      scale = {sizeof scale, &one, QOBS_F32, 1, &single, NULL};
    qobs_config_create(&config, "llmc.memoryless_minmax", NULL, NULL);
    qobs_config_set(config, "num_bits", "4", NULL);
    assert_int_equal(call_fake_quantize(config, NULL, &value, NULL, &scale, NULL, NULL, out, NULL, NULL, NULL),
                     QOBS_OK);
    assert_memory_equal(out, ((float[]){-4, 0.5f, 3.5f, 3.5f}), sizeof out);
    assert_int_equal(
        call_fake_quantize(config, qobs_format_find("fp4"), &value, NULL, &scale, NULL, NULL, out, NULL, NULL, NULL),
        QOBS_OK);
    assert_memory_equal(out, ((float[]){-3, 0.25f, 3, 3}), sizeof out);
    qobs_config_destroy(config);
    qobs_config_create(&config, "torch.MinMaxObserver", NULL, NULL);
    qobs_config_set(config, "dtype", "qint8", NULL);
    qobs_config_set(config, "reduce_range", "true", NULL);
    assert_int_equal(call_fake_quantize(config, NULL, &value, NULL, &scale, NULL, NULL, out, NULL, NULL, NULL),
                     QOBS_OK);
    assert_memory_equal(out, ((float[]){-32, 0.5f, 3.5f, 31.5f}), sizeof out);
    qobs_config_destroy(config);
}

static void refuse(const qobs_config *config, const qobs_format *format, const qobs_tensor *value,
                   const qobs_tensor *scale, const qobs_tensor *zero_point, void *out, const int64_t *out_strides,
                   const char *word)
{
    qobs_error error;
    const int status =
        call_fake_quantize(config, format, value, NULL, scale, zero_point, NULL, out, out_strides, NULL, &error);
    assert_int_equal(status, QOBS_ERROR_INVALID_ARGUMENT);
    if (!strstr(error.message, word))
        fail_msg("'%s' is not in: %s", word, error.message);
}

static void test_refusals(void **state)
{
    qobs_config *llmc, *torch, *quark, *placeholder;
    float x[6] = {0}, s[3] = {1, 1, 1}, out[6] = {7, 7, 7, 7, 7, 7};
    int32_t z[3] = {0, 0, 300};
    const int64_t shape[2] = {2, 3}, two = 2, three = 3, one = 1, none[2] = {0, 4}, apart[1] = {8};
    const qobs_tensor value = {sizeof value, x, QOBS_F32, 2, shape, NULL},
                      half = {sizeof half, x, QOBS_BF16, 2, shape, NULL};
    const qobs_tensor two_scales = {sizeof two_scales, s, QOBS_F32, 1, &two, NULL};
    const qobs_tensor three_scales = {sizeof three_scales, s, QOBS_F32, 1, &three, NULL};
    const qobs_tensor half_scales = {sizeof half_scales, s, QOBS_F16, 1, &two, NULL};
    const qobs_tensor gaps = {sizeof gaps, s, QOBS_F32, 1, &two, apart};
    const qobs_tensor three_zeros = {sizeof three_zeros, z, QOBS_I32, 1, &three, NULL};
    const qobs_tensor far = {sizeof far, z + 2, QOBS_I32, 1, &one, NULL},
                      one_scale = {sizeof one_scale, s, QOBS_F32, 1, &one, NULL};
    qobs_config_create(&llmc, "llmc.memoryless_minmax", NULL, NULL);
    qobs_config_set(llmc, "strategy", "channel", NULL);
    qobs_config_create(&torch, "torch.MinMaxObserver", NULL, NULL);
    qobs_config_create(&quark, "quark.PerChannelMinMaxObserver", NULL, NULL);
    qobs_config_set(quark, "dtype", "int8", NULL);
    qobs_config_set(quark, "ch_axis", "0", NULL);
    qobs_config_create(&placeholder, "torch.PlaceholderObserver", NULL, NULL);
    refuse(llmc, NULL, &value, &three_scales, NULL, out, NULL, "scale: has 3 elements");
    refuse(llmc, NULL, &value, &half_scales, NULL, out, NULL, "scale: dtype is F16");
    refuse(llmc, NULL, &half, &half_scales, NULL, out, NULL, "allowed are F32 and that of value, BF16");
    refuse(llmc, NULL, &value, &gaps, NULL, out, NULL, "scale: strides[0] is 8");
    refuse(llmc, NULL, &value, NULL, NULL, out, NULL, "scale: is NULL");
    refuse(llmc, NULL, &value, &two_scales, &three_zeros, out, NULL, "zero_point: has 3 elements");
    refuse(llmc, NULL, &value, &two_scales, NULL, NULL, NULL, "out: is NULL");
    refuse(llmc, NULL, &value, &two_scales, NULL, out, none, "out_strides: [0] is 0");
    refuse(llmc, NULL, &value, &two_scales, NULL, out, (int64_t[]){-12, 4}, "out_strides: [0] is -12");
    refuse(llmc, NULL, &value, &two_scales, NULL, out, (int64_t[]){4, 4}, "elements would share memory");
    refuse(llmc, NULL, &value, &two_scales, NULL, out, (int64_t[]){12, 2}, "elements would share memory");
    refuse(llmc, NULL, NULL, &two_scales, NULL, out, NULL, "value: is NULL");
    refuse(torch, qobs_format_find("int8"), &value, &one_scale, NULL, out, NULL, "format: is int8");
    refuse(torch, NULL, &value, &one_scale, &far, out, NULL, "zero_point: element 0 is 300");
    refuse(quark, NULL, &value, &two_scales, NULL, out, NULL, "format: is NULL");
    refuse(placeholder, NULL, &value, &two_scales, NULL, out, NULL, "looks at no tensor");
    for (size_t i = 0; i < 6; i++)
        assert_true(out[i] == 7);
    qobs_config_destroy(llmc);
    qobs_config_destroy(torch);
    qobs_config_destroy(quark);
    qobs_config_destroy(placeholder);
}

static void *no_memory(void *context, size_t size)
{
    size_t *left = context;
    return *left > 0 ? (--*left, malloc(size)) : NULL;
}

static void give_back(void *context, void *memory, size_t size)
{
    free(memory);
}

/* At every allocation in turn; what was given is freed (a leak checker sees to that) and nothing is written. */
static void test_no_memory(void **state)
{
    size_t left;
    const qobs_allocator allocator = {sizeof allocator, no_memory, give_back, &left};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .allocator = &allocator};
    qobs_config *config;
    qobs_config_create(&config, "llmc.memoryless_minmax", NULL, NULL);
    qobs_config_set(config, "group_size", "2", NULL);
    const float x[4] = {1, 2, 3, 4}, s[2] = {1, 1};
    const int32_t order[4] = {1, 0, 1, 0};
    const int64_t shape[2] = {1, 4}, two = 2, four = 4;
    const qobs_tensor value = {sizeof value, x, QOBS_F32, 2, shape, NULL},
                      scale = {sizeof scale, s, QOBS_F32, 1, &two, NULL};
    const qobs_tensor g_idx = {sizeof g_idx, order, QOBS_I32, 1, &four, NULL};
    int status = QOBS_ERROR_OUT_OF_MEMORY;
    size_t most = 0;
    for (; status == QOBS_ERROR_OUT_OF_MEMORY && most < 20; most++) {
        float out[4] = {7, 7, 7, 7};
        left = most;
        status = call_fake_quantize(config, NULL, &value, &g_idx, &scale, NULL, NULL, out, NULL, &runtime, NULL);
        assert_true(out[0] == (status == QOBS_OK ? 1 : 7));
    }
    assert_int_equal(status, QOBS_OK);
    assert_true(most > 5);
    qobs_config_destroy(config);
}

/* Results do not depend on the caller's rounding and flush modes, which stay as they were. */
static void test_modes(void **state)
{
#if defined(__x86_64__)
    enum { N = 512 };
    uint16_t x[N], expected[N], got[N], scale = 0x0040; /* a subnormal bf16 */
    for (size_t i = 0; i < N; i++)
        x[i] = (uint16_t)(random_bits() & 0x80ff);
    const float global = 3;
    const int64_t n = N, one = 1;
    const qobs_tensor value = {sizeof value, x, QOBS_BF16, 1, &n, NULL},
                      s = {sizeof s, &scale, QOBS_BF16, 1, &one, NULL};
    qobs_config *config;
    qobs_config_create(&config, "llmc.memoryless_minmax", NULL, NULL);
    for (int with = 0; with < 2; with++) {
        const float *g = with ? &global : NULL;
        assert_int_equal(call_fake_quantize(config, NULL, &value, NULL, &s, NULL, g, expected, NULL, NULL, NULL),
                         QOBS_OK);
        const unsigned before = _mm_getcsr();
        _mm_setcsr(0xffc0);
        const int status = call_fake_quantize(config, NULL, &value, NULL, &s, NULL, g, got, NULL, NULL, NULL);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        assert_int_equal(status, QOBS_OK);
        assert_int_equal(after & 0xffc0, 0xffc0);
        assert_memory_equal(got, expected, sizeof got);
    }
    qobs_config_destroy(config);
#endif
}

static void test_empty(void **state)
{
    const int64_t shape[2] = {0, 4};
    const qobs_tensor value = {sizeof value, NULL, QOBS_F32, 2, shape, NULL};
    qobs_config *config;
    qobs_config_create(&config, "llmc.memoryless_minmax", NULL, NULL);
    assert_int_equal(call_fake_quantize(config, NULL, &value, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), QOBS_OK);
    qobs_config_destroy(config);
}

int main(void)
{
    enum { LAYOUTS = sizeof strategies / sizeof *strategies };
    const struct CMUnitTest others[] = {cmocka_unit_test(test_format_of_configuration), cmocka_unit_test(test_refusals),
                                        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_modes),
                                        cmocka_unit_test(test_empty)};
    static struct CMUnitTest tests[LAYOUTS + sizeof others / sizeof *others];
    for (size_t i = 0; i < LAYOUTS; i++)
        tests[i] = (struct CMUnitTest){
            .name = strategies[i].name, .test_func = test_tensors, .initial_state = (void *)(uintptr_t)&strategies[i]};
    memcpy(tests + LAYOUTS, others, sizeof others);
    return _cmocka_run_group_tests("fake-quantize", tests, sizeof tests / sizeof *tests, NULL, NULL);
}
