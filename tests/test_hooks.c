/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Settings that are refused; the choice of instruction set; the caller's floating-point mode. */
#include <fenv.h>
#include <math.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "bits.h"
#include "observing.h"
#include "qobs/stateless.h"
#include "calls.h"

/* ---- Configurations ---------------------------------------------------------------------------------------------- */

static void test_settings(void **state)
{
    static const char llmc[] = "llmc.minmax", torch[] = "torch.MinMaxObserver",
                      average[] = "torch.MovingAverageMinMaxObserver";
    static const struct {
        const char *preset, *settings, *words;
    } refused[] = {
        /* names and values */
        {llmc, "bits=4", "'bits'|num_bits|group_size|averaging_constant"},
        {"llmc.memoryless_minmax", "averaging_constant=0.1", "'averaging_constant'|belongs to llmc.minmax"},
        {llmc, "qscheme=per_tensor_affine", "'qscheme'|num_bits"},
        {torch, "num_bits=8", "'num_bits'|qscheme|quant_min"},
        {torch, "averaging_constant=0.1", "'averaging_constant'"},
        {llmc, "num_bits=1", "num_bits|'1'|2 to 16"},
        {llmc, "num_bits=17", "num_bits|'17'"},
        {llmc, "num_bits=4.5", "num_bits|'4.5'|integers"},
        {llmc, "num_bits=", "num_bits|''"},
        {llmc, "num_bits=0x8", "num_bits|'0x8'"},
        {llmc, "num_bits=nan", "num_bits|'nan'"},
        {llmc, "symmetric=1", "symmetric|'1'|true and false"},
        {llmc, "strategy=row", "strategy|'row'|tensor, channel, group, tensor_group, block, token, attn_head"},
        {llmc, "type=double", "type|'double'|int|float"},
        {llmc, "base_name=bias", "base_name|'bias'|weight, input, output, q, k, v"},
        {llmc, "nonfinite=maybe", "nonfinite|'maybe'|refuse, ignore, propagate"},
        {llmc, "version=2024-01", "version|'2024-01'|current, 2025-10"},
        {llmc, "observer=mse", "observer|'mse'|llmc.minmax"},
        {llmc, "group_size=-2", "group_size|'-2'|-1 to"},
        {llmc, "block_structure=128", "block_structure|'128'|[height, width]"},
        {llmc, "block_structure=[0, 4]", "block_structure|'[0, 4]'"},
        {llmc, "block_structure=[1, 2, 3]", "block_structure|'[1, 2, 3]'"},
        {llmc, "averaging_constant=1.5", "averaging_constant|'1.5'|0 to 1"},
        {llmc, "averaging_constant=1e999", "averaging_constant|'1e999'"},
        {torch, "dtype=float16", "dtype|'float16'|quint8, qint8"},
        {torch, "qscheme=per_channel_affine", "qscheme|'per_channel_affine'|per_tensor_affine, per_tensor_symmetric"},
        /* what does not go together */
        {llmc, "base_name=input;strategy=token", "token|dynamic"},
        {llmc, "strategy=tensor;group_size=128", "group_size|128|tensor"},
        {llmc, "strategy=channel;group_size=128", "group_size|128|channel"},
        {llmc, "strategy=group", "group_size|group"},
        {llmc, "strategy=tensor_group;group_size=-1", "group_size|tensor_group"},
        {llmc, "group_size=0", "group_size|above 0"},
        {llmc, "strategy=group;group_size=0", "group_size: is 0|above 0"},
        {llmc, "strategy=group;group_size=-1", "group_size: is -1|above 0"},
        {llmc, "strategy=group", "group_size|above 0"},
        {llmc, "group_size=0;strategy=tensor", "group_size|is 0|-1"},
        {llmc, "strategy=block", "block_structure|[height, width]"},
        {llmc, "strategy=channel;block_structure=[4, 4]", "block_structure|block"},
        {llmc, "strategy=channel;dynamic=true", "dynamic|channel"},
        {llmc, "strategy=group;group_size=4;dynamic=local", "dynamic|local|tensor_group|group"},
        {torch, "quant_min=-8", "quant_min|quant_max|both"},
        {torch, "quant_min=1;quant_max=7", "quant_min|1 to 7|include 0"},
        {torch, "quant_min=-7;quant_max=-1", "quant_max|-7 to -1|include 0"},
        {torch, "quant_min=0;quant_max=0", "quant_min|0 is not below 0"},
        {torch, "quant_min=0;quant_max=256", "quant_max|257 wide|quint8|256"},
        {torch, "dtype=qint32;quant_min=-2147483648;quant_max=2147483647", "4294967296 wide|qint32|2147483648"},
        {torch, "reduce_range=true;qscheme=per_tensor_symmetric;dtype=quint8", "reduce_range|quint8|symmetric"},
        {average, "is_dynamic=true", "is_dynamic|averaging_constant|0.01"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        qobs_config *config = make_config(refused[i].preset, "", NULL);
        qobs_observer *o = NULL;
        const int status = qobs_config_set_all(config, refused[i].settings, &error);
        assert_refused(status == QOBS_OK ? qobs_config_check(config, &error) : status, QOBS_ERROR_INVALID_ARGUMENT,
                       refused[i].words);
        if (status == QOBS_OK) /* whoever uses the configuration says the same */
            assert_refused(qobs_observer_create(&o, config, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT,
                           refused[i].words);
        else /* and a setting that was refused has changed nothing */
            assert_ok(qobs_config_check(config, &error));
        assert_null(o);
        qobs_config_destroy(config);
    }
    static const char *const accepted[][2] = {
        {llmc, "num_bits=4.0;strategy=\"group\";group_size=32;group_size=null;strategy=null;symmetric=False"},
        {llmc, "block_structure=[128,128];strategy=BLOCK"},
        {llmc, "block_structure=2x3;strategy=block;observer=minmax;zp_dtype=torch.int8"},
        {llmc, "group_size=-1;averaging_constant=1e-2;ragged=true"},
        {llmc, "base_name=input;strategy=tensor_group;group_size=16;dynamic=local"},
        {torch, "quant_min=-128;quant_max=127;quant_min=null;quant_max=null;dtype=torch.qint8"},
        {torch, "dtype=qint32;quant_min=-1073741824;quant_max=1073741823"},
        {average, "is_dynamic=true;averaging_constant=1"},
    };
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        qobs_config *config = make_config(accepted[i][0], accepted[i][1], NULL);
        assert_ok(qobs_config_check(config, &error));
        qobs_config_destroy(config);
    }
}

static void test_presets(void **state)
{
    qobs_config *config = NULL;
    char words[256] = "'llmc.percentile'";
    assert_true(qobs_preset_count() >= 5);
    for (size_t i = 0; i < 5; i++) {
        strcat(strcat(words, "|"), qobs_preset_name(i));
        assert_ok(qobs_config_create(&config, qobs_preset_name(i), NULL, &error));
        assert_ok(qobs_config_check(config, &error));
        assert_non_null(qobs_preset_summary(i));
        const size_t keys = qobs_config_key_count(config);
        for (size_t k = 0; k < keys; k++) /* every key is one that can be set */
            assert_ok(qobs_config_set(config, qobs_config_key(config, k), "null", &error));
        assert_null(qobs_config_key(config, keys));
        qobs_config_destroy(config);
    }
    assert_null(qobs_preset_name(qobs_preset_count()));
    assert_refused(qobs_config_create(&config, "llmc.percentile", NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, words);
    assert_refused(qobs_config_create(&config, NULL, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "preset|llmc.*");
    config = make_config("llmc.minmax", "", NULL);
    assert_refused(qobs_config_set(config, "num_bits", NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "value|NULL");
    assert_refused(qobs_config_set(config, NULL, "8", &error), QOBS_ERROR_INVALID_ARGUMENT, "key|NULL");
    assert_refused(qobs_config_set(NULL, "num_bits", "8", &error), QOBS_ERROR_INVALID_ARGUMENT, "config|NULL");
    assert_refused(qobs_config_check(NULL, &error), QOBS_ERROR_INVALID_ARGUMENT, "config|NULL");
    qobs_config_destroy(config);
}

static void test_isa(void **state)
{
    assert_refused(qobs_isa_select("mmx", &error), QOBS_ERROR_INVALID_ARGUMENT, "name|'mmx'|scalar");
    assert_string_equal(qobs_isa_name(0), "scalar");
    for (size_t i = 0; i < qobs_isa_count(); i++)
        if (qobs_isa_usable(i)) {
            assert_ok(qobs_isa_select(qobs_isa_name(i), &error));
            assert_string_equal(qobs_isa_active(), qobs_isa_name(i));
        } else {
            assert_refused(qobs_isa_select(qobs_isa_name(i), &error), QOBS_ERROR_UNSUPPORTED, qobs_isa_name(i));
        }
    assert_null(qobs_isa_name(qobs_isa_count()));
    assert_ok(qobs_isa_select(NULL, &error));
}

/* ---- Floating-point modes ---------------------------------------------------------------------------------------- */

static unsigned mode_now(void)
{
#if defined(__x86_64__)
    return _mm_getcsr() & ~0x3fU; /* without the flags */
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return (unsigned)fpcr;
#else
    return (unsigned)fegetround();
#endif
}

/* mingw-w64 10 restores nothing of the register for vectors. */
struct environment {
    fenv_t c_library;
    unsigned mode;
};

static void keep(struct environment *e)
{
    fegetenv(&e->c_library);
    e->mode = mode_now();
}

static void restore(const struct environment *e)
{
    fesetenv(&e->c_library);
#if defined(__x86_64__)
    _mm_setcsr(e->mode);
#endif
}

/* Subnormals to zero, both as operands and as results. */
static void flush_subnormals(void)
{
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode_now() | (UINT64_C(3) << 19) | (UINT64_C(1) << 24)));
#endif
}

enum { MODES = 6 };

static void set_mode(int mode)
{
    static const int roundings[MODES] = {FE_TONEAREST, FE_TONEAREST,  FE_UPWARD,
                                         FE_DOWNWARD,  FE_TOWARDZERO, FE_TONEAREST};
    fesetround(roundings[mode]);
    if (mode > 0)
        flush_subnormals();
#if defined(__x86_64__)
    if (mode == MODES - 1) /* upwards, but only where vectors are computed: fegetround does not see it */
        _mm_setcsr(_mm_getcsr() | 0x4000);
#endif
}

/* Runs tasks under floating-point modes that a pool's threads might have set. */
static void serial_with_modes(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
    struct environment before;
    keep(&before);
    for (size_t i = 0; i < count; i++) {
        set_mode(1 + (int)(i % (MODES - 1)));
        const unsigned mode = mode_now();
        task(argument, i);
        assert_int_equal(mode_now(), mode);
    }
    restore(&before);
}

/* Everything that is computed from subnormal and small numbers. */
static size_t compute_all(const char *preset, const char *settings, qobs_dtype dtype, unsigned char *out)
{
    static _Alignas(8) unsigned char data[8 << 16];
    const qobs_executor executor = {sizeof executor, 4, serial_with_modes, NULL};
    const qobs_runtime runtime = {sizeof runtime, NULL, &executor};
    static const int mantissa[] = {[QOBS_F32] = 23, [QOBS_BF16] = 7, [QOBS_F16] = 10, [QOBS_F64] = 52};
    const size_t element = qobs_dtype_size(dtype), n = sizeof data / element;
    const qobs_tensor value = tensor(dtype, data, (int64_t)n / 2, 2);
    const unsigned mode = mode_now();
    size_t used = 0;
    qobs_config *config = make_config(preset, settings, NULL);
    qobs_observer *o = NULL;
    assert_ok(qobs_observer_create(&o, config, &runtime, &error));
    for (int batch = 0; batch < 3; batch++) {
        const uint64_t sign = UINT64_C(1) << (8 * element - 1);
        for (size_t i = 0; i < n; i++) { /* subnormal all of them */
            const uint64_t bits =
                (uint64_t)(i % (size_t)(31 + 26 * batch)) << (mantissa[dtype] - 7) | (i & 1 ? sign | 1 : 0);
            put_bits(data + i * element, bits, element);
        }
        assert_ok(qobs_observer_observe(o, &value, NULL, &error));
        for (size_t i = 0; i < qobs_observer_result_count(o); i++) {
            qobs_result r = {.struct_size = sizeof r};
            assert_ok(qobs_observer_result_info(o, i, &r, &error));
            assert_ok(qobs_observer_read(o, r.name, out + used, r.size, &error));
            used += (r.size + 7) / 8 * 8;
        }
    }
    const float ranges[][2] = {{-0.1f, 0.7f}, {-0x1.8p-140f, 0x1p-126f}, {-3, 1e30f}};
    for (size_t i = 0; dtype == QOBS_F32 && i < 3; i++, used += 16)
        assert_ok(call_calculate_qparams(config, dtype, 1, &ranges[i][0], &ranges[i][1], NULL, out + used,
                                         out + used + 8, &error));
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
    assert_int_equal(mode_now(), mode);
    return used;
}

static void test_modes(void **state)
{
    static const char *const cases[][2] = {
        {"llmc.minmax", "base_name=input;averaging_constant=0.3"},
        {"llmc.minmax", "base_name=input;averaging_constant=0.7;symmetric=false;num_bits=4"},
        {"llmc.static_minmax", "base_name=input;strategy=group;group_size=1;symmetric=false"},
        {"torch.MovingAverageMinMaxObserver", "averaging_constant=0.3;eps=1e-42"},
        {"torch.MinMaxObserver", "qscheme=per_tensor_symmetric;eps=0"},
    };
    struct environment before;
    keep(&before);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int dtype = QOBS_F32; dtype <= QOBS_F64; dtype++) {
            _Alignas(8) unsigned char expected[512] = {0}, got[512] = {0};
            const size_t size = compute_all(cases[i][0], cases[i][1], (qobs_dtype)dtype, expected);
            assert_in_range(size, 1, sizeof expected);
            for (int mode = 1; mode < MODES; mode++) {
                set_mode(mode);
                const size_t used = compute_all(cases[i][0], cases[i][1], (qobs_dtype)dtype, got);
                restore(&before);
                if (used != size || memcmp(got, expected, size) != 0)
                    fail_msg("%s, %s, %s: other results in mode %d", cases[i][0], cases[i][1],
                             qobs_dtype_name((qobs_dtype)dtype), mode);
            }
        }
}

/* A search has as many candidates in every mode: 3 / 0.03 rounds to 100, or upwards above it. */
static void test_modes_of_candidates(void **state)
{
    struct environment before;
    size_t expected = 0;
    keep(&before);
    for (int mode = 0; mode < MODES; mode++) {
        set_mode(mode);
        qobs_observer *o = make("modelopt.MseCalibrator", "start_multiplier=0.25;stop_multiplier=3.25;step_size=0.03");
        assert_ok(observe(o, 1, 4, F32(0.1f, 0.7f, -2.3f, 7.1f)));
        const size_t size = qobs_observer_save_size(o);
        qobs_observer_destroy(o);
        restore(&before);
        if (mode == 0)
            expected = size;
        if (size != expected)
            fail_msg("mode %d: a state of %zu bytes, not %zu", mode, size, expected);
    }
}

/* Whatever NaN is seen, the state has the same. */
static void test_importance_of_nan(void **state)
{
    static unsigned char expected[4096], got[sizeof expected];
    static float x[2][40];
    for (size_t i = 0; i < 80; i++) {
        const uint32_t bits = 0x7fc00000 + (uint32_t)i * 77 + (i % 3 == 0 ? 0x80000000 : 0);
        memcpy(&x[0][0] + i, &bits, sizeof bits);
    }
    const qobs_tensor activations = tensor(QOBS_F32, x, 2, 40);
    size_t expected_size = 0;
    for (size_t i = 0; select_isa(&i); i++) {
        qobs_observer *o = make("llmc.imatrix_mse", "");
        assert_ok(qobs_observer_observe_importance(o, &activations, &error));
        const size_t size = qobs_observer_save_size(o);
        assert_in_range(size, 1, sizeof got);
        assert_ok(qobs_observer_save(o, i == 0 ? expected : got, size, &error));
        expected_size = i == 0 ? size : expected_size;
        assert_int_equal(size, expected_size);
        assert_memory_equal(i == 0 ? expected : got, expected, size);
        qobs_observer_destroy(o);
    }
    assert_ok(qobs_isa_select(NULL, &error));
}

/* Numbers in text, and edges, which are computed when they are read. */
static void test_modes_of_texts(void **state)
{
    float expected[12], got[12];
    qobs_observer *o =
        make("modelopt.HistogramCalibrator", "num_bins=11;torch_hist=true;method=percentile;percentile=99.3");
    struct environment before;
    assert_ok(observe(o, 1, 4, F32(0.1f, 0.7f, -2.3f, 7.1f)));
    assert_ok(qobs_observer_read(o, "calib_bin_edges", expected, sizeof expected, &error));
    keep(&before);
    for (int mode = 0; mode < MODES; mode++) {
        char value[64];
        set_mode(mode);
        qobs_config *config = make_config("llmc.minmax", "averaging_constant=0.01", NULL);
        assert_ok(qobs_config_get(config, "averaging_constant", value, sizeof value, &error));
        assert_string_equal(value, "0.01");
        qobs_config_destroy(config);
        config = make_config("torch.MovingAverageMinMaxObserver", "averaging_constant=0.3;is_dynamic=true", NULL);
        assert_refused(qobs_config_check(config, &error), QOBS_ERROR_INVALID_ARGUMENT, "not 0.3");
        qobs_config_destroy(config);
        qobs_observer *searching = make("modelopt.MseCalibrator", "");
        const double wide = 1e300;
        const qobs_tensor amax = tensor(QOBS_F64, &wide, 1);
        assert_refused(qobs_observer_set_reference_amax(searching, &amax, &error), QOBS_ERROR_INVALID_ARGUMENT,
                       "amax|element 0 is inf");
        qobs_observer_destroy(searching);
        assert_ok(qobs_observer_read(o, "calib_bin_edges", got, sizeof got, &error));
        restore(&before);
        assert_memory_equal(got, expected, sizeof got);
    }
    qobs_observer_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_modes_of_candidates),
        cmocka_unit_test(test_modes_of_texts),
        cmocka_unit_test(test_importance_of_nan),
    };
    return cmocka_run_group_tests_name("hooks", tests, NULL, NULL) != 0;
}
