/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Settings: descriptions, typed values, text of many settings, and copies of configurations and observers. */
#include "every_preset.h"

#include <math.h>

static const int wrong = QOBS_ERROR_INVALID_ARGUMENT;

enum { MOST_KEYS = 40, MOST_TEXT = 2048 };

/* ---- Helpers ----------------------------------------------------------------------------------------------------- */

/* Every value of a configuration, as text. */
struct values {
    char text[MOST_KEYS][QOBS_SETTING_VALUE];
};

static struct values values_of(const qobs_config *config)
{
    struct values values = {0};
    assert_true(qobs_config_key_count(config) <= MOST_KEYS);
    for (size_t i = 0; i < qobs_config_key_count(config); i++)
        assert_ok(qobs_config_get(config, qobs_config_key(config, i), values.text[i], QOBS_SETTING_VALUE, &error));
    return values;
}

static void assert_same_values(const qobs_config *a, const qobs_config *b)
{
    const struct values of_a = values_of(a), of_b = values_of(b);
    assert_string_equal(qobs_config_preset(a), qobs_config_preset(b));
    for (size_t i = 0; i < MOST_KEYS; i++)
        assert_string_equal(of_a.text[i], of_b.text[i]);
}

static const char *value_of(const qobs_config *config, const char *key)
{
    static char value[QOBS_SETTING_VALUE];
    assert_ok(qobs_config_get(config, key, value, sizeof value, &error));
    return value;
}

static qobs_setting_info info_of(const qobs_config *config, const char *key)
{
    qobs_setting_info info = {.struct_size = sizeof info};
    assert_ok(qobs_config_key_info(config, key, &info, &error));
    return info;
}

static qobs_config *parse(const char *text)
{
    qobs_config *config = NULL;
    assert_ok(qobs_config_parse(&config, text, NULL, &error));
    return config;
}

/* Refused with the key, the value and what is allowed, and nothing has changed. */
#define assert_unchanged(config, call, words)                                                                          \
    do {                                                                                                               \
        const struct values before = values_of(config);                                                                \
        const int refused_status = (call);                                                                             \
        const qobs_error refused_error = error;                                                                        \
        const struct values after = values_of(config);                                                                 \
        error = refused_error;                                                                                         \
        assert_refused(refused_status, wrong, words);                                                                  \
        assert_memory_equal(&before, &after, sizeof before);                                                           \
    } while (0)

static uint32_t random_state = 1;

static uint32_t draw(void)
{
    random_state = random_state * 1664525 + 1013904223;
    return random_state >> 8;
}

static double draw_between(double min, double max)
{
    const double part = ((double)draw() + (double)draw() * 0x1p-24) * 0x1p-24;
    switch (draw() % 4) {
    case 0:
        return min;
    case 1:
        return max;
    case 2:
        return fmin(fmax(ldexp(part, (int)(draw() % 40) - 20), min), max);
    default:
        return fmin(fmax(min / 2 + part * (max / 2 - min / 2), min), max); /* whose difference may be infinite */
    }
}

static long long draw_integer(const qobs_setting_info *info)
{
    return (long long)floor(draw_between(info->min, info->max));
}

/* An allowed value as text. */
static void draw_value(const qobs_config *config, const qobs_setting_info *info, char value[QOBS_SETTING_VALUE])
{
    size_t used;
    switch (info->kind) {
    case QOBS_SETTING_INTEGER:
        snprintf(value, QOBS_SETTING_VALUE, "%lld", draw_integer(info));
        return;
    case QOBS_SETTING_REAL:
        snprintf(value, QOBS_SETTING_VALUE, "%.17g", draw_between(info->min, info->max));
        return;
    case QOBS_SETTING_AXES:
        used = (size_t)snprintf(value, QOBS_SETTING_VALUE, "[");
        for (uint32_t i = 0, n = draw() % (QOBS_MAX_NDIM + 1); i < n; i++)
            used +=
                (size_t)snprintf(value + used, QOBS_SETTING_VALUE - used, "%s%lld", i ? ", " : "", draw_integer(info));
        snprintf(value + used, QOBS_SETTING_VALUE - used, "]");
        return;
    case QOBS_SETTING_PAIR:
        snprintf(value, QOBS_SETTING_VALUE, "[%lld, %lld]", draw_integer(info), draw_integer(info));
        return;
    default:
        snprintf(value, QOBS_SETTING_VALUE, "%s",
                 qobs_config_key_word(config, info->key, draw() % (uint32_t)info->word_count));
    }
}

/* ---- Descriptions ------------------------------------------------------------------------------------------------ */

static void check_words(qobs_config *config, const qobs_setting_info *info)
{
    for (size_t i = 0; i < info->word_count; i++) {
        const char *word = qobs_config_key_word(config, info->key, i);
        assert_non_null(word);
        assert_ok(qobs_config_set(config, info->key, word, &error));
        if (strcmp(word, "[4,3]") != 0) /* which is the same as [4, 3] */
            assert_string_equal(value_of(config, info->key), word);
    }
    assert_null(qobs_config_key_word(config, info->key, info->word_count));
    assert_null(qobs_config_key_word(config, info->key, SIZE_MAX));
    assert_unchanged(config, qobs_config_set(config, info->key, "no word", &error), info->key);
    assert_true(info->min == 0 && info->max == 0);
}

static void check_integer(qobs_config *config, const qobs_setting_info *info)
{
    const int64_t limits[] = {(int64_t)info->min, (int64_t)info->max};
    char text[QOBS_SETTING_VALUE];
    for (int i = 0; i < 2; i++) {
        const int64_t beyond = limits[i] + (i ? 1 : -1);
        snprintf(text, sizeof text, "%lld", (long long)limits[i]);
        assert_ok(qobs_config_set(config, info->key, text, &error));
        assert_string_equal(value_of(config, info->key), text);
        snprintf(text, sizeof text, "%lld", (long long)beyond);
        if (info->max < 0x1p53) /* else a double is not exact */
            assert_unchanged(config, qobs_config_set(config, info->key, text, &error), info->key);
    }
}

/* With all digits of a number. */
static int set_real(qobs_config *config, const char *key, double number)
{
    char text[QOBS_SETTING_VALUE];
    snprintf(text, sizeof text, "%.17g", number);
    return qobs_config_set(config, key, text, &error);
}

static void check_real(qobs_config *config, const qobs_setting_info *info)
{
    const double limits[] = {info->min, info->max};
    for (int i = 0; i < 2; i++) {
        const double beyond = nextafter(limits[i], i ? (double)INFINITY : -(double)INFINITY);
        assert_ok(set_real(config, info->key, limits[i]));
        assert_true(strtod(value_of(config, info->key), NULL) == limits[i]);
        assert_unchanged(config, set_real(config, info->key, beyond), info->key);
    }
    assert_unchanged(config, set_real(config, info->key, (double)NAN), info->key);
    assert_unchanged(config, set_real(config, info->key, (double)INFINITY), info->key);
    assert_unchanged(config, set_real(config, info->key, -(double)INFINITY), info->key);
}

/* A list of the smallest and the largest number in turn; the message names the key and both. */
static void check_axes(qobs_config *config, const qobs_setting_info *info)
{
    const int min = (int)info->min, max = (int)info->max;
    char text[96], one[32], wanted[64];
    snprintf(one, sizeof one, "[%d]", min);
    snprintf(wanted, sizeof wanted, "%s|%d|%d", info->key, abs(max), max);
    assert_ok(qobs_config_set(config, info->key, one, &error));
    assert_string_equal(value_of(config, info->key), one);
    snprintf(text, sizeof text, "%d", min); /* one of them needs no brackets */
    assert_ok(qobs_config_set(config, info->key, text, &error));
    assert_string_equal(value_of(config, info->key), one);
    snprintf(text, sizeof text, "[%d, %d,%d,%d, %d, %d, %d, %d]", min, max, min, max, min, max, min, min);
    assert_ok(qobs_config_set(config, info->key, text, &error));
    snprintf(text, sizeof text, "[%d, %d, %d, %d, %d, %d, %d, %d]", min, max, min, max, min, max, min, min);
    assert_string_equal(value_of(config, info->key), text);
    snprintf(text, sizeof text, "%d", max + 1);
    assert_unchanged(config, qobs_config_set(config, info->key, text, &error), wanted);
    snprintf(text, sizeof text, "[%d, %d]", min, max + 1);
    assert_unchanged(config, qobs_config_set(config, info->key, text, &error), wanted);
}

static void check_pair(qobs_config *config, const qobs_setting_info *info)
{
    char text[QOBS_SETTING_VALUE];
    snprintf(text, sizeof text, "[%.0f, %.0f]", info->min, info->max);
    assert_ok(qobs_config_set(config, info->key, text, &error));
    assert_string_equal(value_of(config, info->key), text);
    snprintf(text, sizeof text, "[%.0f, %.0f]", info->min - 1, info->max);
    assert_unchanged(config, qobs_config_set(config, info->key, text, &error), info->key);
    snprintf(text, sizeof text, "[%.0f, %.0f]", info->min, info->max + 1);
    assert_unchanged(config, qobs_config_set(config, info->key, text, &error), info->key);
}

static void check_setting(qobs_config *config, const char *key)
{
    const qobs_setting_info info = info_of(config, key);
    assert_string_equal(info.key, key);
    assert_true(info.help && info.help[0] && strlen(info.help) < 100 && !strchr(info.help, '\n'));
    assert_string_equal(info.default_value, value_of(config, key));
    assert_ok(qobs_config_set(config, key, info.default_value, &error));
    assert_string_equal(info.default_value, value_of(config, key));
    switch (info.kind) {
    case QOBS_SETTING_BOOL:
        assert_int_equal(info.word_count, 2);
        check_words(config, &info);
        break;
    case QOBS_SETTING_OWN_NAME:
        assert_int_equal(info.word_count, 1);
        assert_string_equal(qobs_config_key_word(config, key, 0), strchr(qobs_config_preset(config), '.') + 1);
        check_words(config, &info);
        break;
    case QOBS_SETTING_WORD:
        assert_true(info.word_count >= 2);
        check_words(config, &info);
        break;
    default:
        assert_int_equal(info.word_count, 0);
        assert_null(qobs_config_key_word(config, key, 0));
        assert_true(info.min < info.max);
        (info.kind == QOBS_SETTING_INTEGER ? check_integer
         : info.kind == QOBS_SETTING_REAL  ? check_real
         : info.kind == QOBS_SETTING_AXES  ? check_axes
                                           : check_pair)(config, &info);
    }
    assert_ok(qobs_config_set(config, key, "null", &error));
    assert_string_equal(info.default_value, value_of(config, key));
}

static void test_descriptions(void **state)
{
    size_t kinds[QOBS_SETTING_OWN_NAME + 1] = {0};
    for (size_t p = 0; p < qobs_preset_count(); p++) {
        qobs_config *config = parse(qobs_preset_name(p));
        assert_string_equal(qobs_config_preset(config), qobs_preset_name(p));
        for (size_t k = 0; k < qobs_config_key_count(config); k++) {
            check_setting(config, qobs_config_key(config, k));
            kinds[info_of(config, qobs_config_key(config, k)).kind]++;
        }
        qobs_config_destroy(config);
    }
    for (int kind = QOBS_SETTING_WORD; kind <= QOBS_SETTING_OWN_NAME; kind++)
        assert_true(kinds[kind] > 0);
}

/* The structure of the first header, a smaller one, and one that has grown. */
static void test_info_size(void **state)
{
    struct {
        qobs_setting_info info;
        unsigned char more[16];
    } big;
    const size_t first = offsetof(qobs_setting_info, default_value) + QOBS_SETTING_VALUE;
    qobs_config *config = parse("llmc.minmax");
    const size_t refused[] = {0, 1, sizeof(size_t), first - 1};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        memset(&big, 0x5a, sizeof big);
        big.info.struct_size = refused[i];
        assert_refused(qobs_config_key_info(config, "num_bits", &big.info, &error), wrong, "info|struct_size");
        for (size_t byte = sizeof(size_t); byte < sizeof big; byte++)
            assert_int_equal(((unsigned char *)&big)[byte], 0x5a);
    }
    memset(&big, 0x5a, sizeof big);
    big.info.struct_size = sizeof big;
    assert_ok(qobs_config_key_info(config, "num_bits", &big.info, &error));
    assert_int_equal(big.info.struct_size, sizeof big);
    assert_string_equal(big.info.default_value, "8");
    for (size_t byte = 0; byte < sizeof big.more; byte++)
        assert_int_equal(big.more[byte], 0x5a);
    big.info.struct_size = first;
    assert_ok(qobs_config_key_info(config, "group_size", &big.info, &error));
    assert_string_equal(big.info.default_value, "null");
    qobs_config_destroy(config);
}

/* ---- Numbers as text --------------------------------------------------------------------------------------------- */

static void test_shortest(void **state)
{
    qobs_config *config = parse("torch.FixedQParamsObserver");
    static const struct {
        double number;
        const char *text;
    } known[] = {{0.2, "0.2"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {100, "100"},
                 {1e6, "1e+06"},
                 {20000, "20000"},
                 {0, "0"},
                 {-0.0, "-0"},
                 {5e-324, "5e-324"},
                 {0x1p-23, "1.1920928955078125e-07"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_ok(set_real(config, "scale", known[i].number));
        assert_string_equal(value_of(config, "scale"), known[i].text);
    }
    for (int i = 0; i < 4000; i++) {
        const double number = ldexp((double)draw() * 0x1p24 + (double)draw(), -(int)(draw() % 64));
        assert_ok(set_real(config, "scale", number));
        const char *text = value_of(config, "scale");
        assert_true(strtod(text, NULL) == number);
        for (int digits = 1; digits <= 17; digits++) {
            char other[400];
            snprintf(other, sizeof other, "%.*g", digits, number);
            assert_true(strlen(other) >= strlen(text) || strtod(other, NULL) != number);
        }
    }
    qobs_config_destroy(config);
}

/* A buffer that is too small is refused for every setting and stays as it is. */
static void test_small_buffers(void **state)
{
    for (size_t p = 0; p < qobs_preset_count(); p++) {
        qobs_config *config = parse(qobs_preset_name(p));
        for (size_t k = 0; k < qobs_config_key_count(config); k++) {
            const char *key = qobs_config_key(config, k);
            char value[QOBS_SETTING_VALUE];
            const size_t length = strlen(value_of(config, key));
            assert_refused(qobs_config_get(config, key, NULL, 0, &error), wrong, "size|is 0");
            memset(value, 'x', sizeof value);
            assert_refused(qobs_config_get(config, key, value, length, &error), wrong, "size|needs");
            for (size_t i = 0; i < sizeof value; i++)
                assert_int_equal(value[i], 'x');
            assert_ok(qobs_config_get(config, key, value, length + 1, &error));
        }
        qobs_config_destroy(config);
    }
}

/* ---- Many settings ----------------------------------------------------------------------------------------------- */

static void test_set_all(void **state)
{
    static const struct {
        const char *preset, *settings, *text;
    } accepted[] = {
        {"llmc.minmax", "", "llmc.minmax"},
        {"llmc.minmax", " ;\n\t; ", "llmc.minmax"},
        {"llmc.minmax", "num_bits=4 group_size=128", "llmc.minmax num_bits=4 group_size=128"},
        {"llmc.minmax", ";num_bits=4;;group_size=128;", "llmc.minmax num_bits=4 group_size=128"},
        {"llmc.minmax", "group_size=128\nnum_bits=\"4\"\r\n", "llmc.minmax num_bits=4 group_size=128"},
        {"llmc.minmax", "num_bits=4 num_bits=5", "llmc.minmax num_bits=5"},
        {"llmc.minmax", "num_bits=4 num_bits=null", "llmc.minmax"},
        {"llmc.minmax", "block_structure=[128, 64];strategy=block",
         "llmc.minmax strategy=block block_structure=[128, 64]"},
        {"llmc.minmax", "block_structure=(2; 3)x4 ", NULL},
        {"modelopt.MaxCalibrator", "axis=[0, -1] num_bits=[4, 3]",
         "modelopt.MaxCalibrator num_bits=[4, 3] axis=[0, -1]"},
        {"modelopt.MaxCalibrator", "axis=(0, 1) unsigned=TRUE", "modelopt.MaxCalibrator axis=[0, 1] unsigned=true"},
        {"trt.MaxCalibrator", "axis=[]", "modelopt.MaxCalibrator axis=[]"},
        {"llmc_2025_09.minmax", "num_bits=4", "llmc.minmax num_bits=4 version=2025-09"},
        {"llmc_2025_10.mse", "", "llmc.mse version=2025-10"},
        {"llmc_2026_10.imatrix_mse", "version=current", "llmc.imatrix_mse"},
        {"llmc.mse", "norm=0.1 grid=1e2", "llmc.mse norm=0.1"},
    };
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        qobs_config *config = parse(accepted[i].preset);
        char text[MOST_TEXT];
        if (accepted[i].text) {
            assert_ok(qobs_config_set_all(config, accepted[i].settings, &error));
            assert_ok(qobs_config_text(config, text, sizeof text, NULL, &error));
            assert_string_equal(text, accepted[i].text);
        } else {
            assert_unchanged(config, qobs_config_set_all(config, accepted[i].settings, &error),
                             "block_structure|(2; 3)x4");
        }
        qobs_config_destroy(config);
    }
}

static void test_set_all_or_nothing(void **state)
{
    static const char *const refused[][2] = {
        {"symmetric=false num_bits=17", "num_bits|'17'|2|16"},
        {"symmetric=false bits=4", "bits|num_bits"},
        {"symmetric=false num_bits", "'num_bits'|KEY=VALUE"},
        {"symmetric=false num_bits = 4", "'num_bits'|KEY=VALUE"},
        {"symmetric=false num_bits=", "num_bits|''|2|16"},
        {"symmetric=false =4", "''|num_bits"},
        {"symmetric=false block_structure=[1, 2", "block_structure|[1, 2|bracket"},
        {"symmetric=false block_structure=1,2]", "block_structure|bracket"},
        {"symmetric=false strategy=\"group ", "strategy|quote"},
        {"num_bits=4 symmetric=false type=double strategy=group", "type|'double'|int, float"},
    };
    qobs_config *config = parse("llmc.minmax num_bits=6");
    char text[MOST_TEXT];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_unchanged(config, qobs_config_set_all(config, refused[i][0], &error), refused[i][1]);
    /* Keys and values longer than any buffer. */
    memset(text, '4', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_unchanged(config, qobs_config_set_all(config, text, &error), "444|KEY=VALUE");
    memcpy(text, "num_bits=", 9);
    assert_unchanged(config, qobs_config_set_all(config, text, &error), "num_bits|long|127");
    memset(text, 'k', 1000);
    text[1000] = '=';
    text[1010] = '\0';
    assert_unchanged(config, qobs_config_set_all(config, text, &error), "kkk|no setting");
    qobs_config_destroy(config);
}

static void test_parse(void **state)
{
    static const char *const refused[][2] = {
        {"", "preset|''|llmc.*"},
        {" ; ", "preset|''"},
        {"num_bits=4", "preset|'num_bits=4'"},
        {"llmc.percentile num_bits=4", "preset|'llmc.percentile'|llmc.minmax"},
        {"llmc.minmax num_bits=4 axis=0", "llmc.minmax|'axis'"},
        {"modelopt.MaxCalibrator axis=[", "axis|'['|bracket"},
        {"modelopt.MaxCalibrator axis=[[0]]", "axis|'[[0]]'|lists of integers"},
        {"modelopt.MaxCalibrator axis=0]", "axis|'0]'"},
        {"modelopt.MaxCalibrator axis=(0]", "axis|'(0]'"},
        {"llmc.minmax group_size=9223372036854775807", "group_size|'9223372036854775807'|integers"},
        {"llmc.minmax group_size=9223372036854775808", "group_size|'9223372036854775808'|integers"},
        {"llmc.minmax strategy=\033[31mred", "strategy|'?[31mred'"}, /* no control character reaches a terminal */
        {"llmc.minmax strategy=\xe2\x82\xac\xe2\x82", "strategy|'\xe2\x82\xac?" "?'"}, /* nor a part of a character */
        {"llmc.minmaxllmc.minmaxllmc.minmaxllmc.minmaxllmc.minmaxllmc.minmaxllmc.minmaxllmc.minmaxllmc.minmax",
         "preset|unknown"},
    };
    qobs_config *config = NULL;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_refused(qobs_config_parse(&config, refused[i][0], NULL, &error), wrong, refused[i][1]);
        assert_null(config);
    }
    config = parse("  llmc.minmax;num_bits=4\ngroup_size=128 ");
    assert_string_equal(value_of(config, "group_size"), "128");
    qobs_config_destroy(config);
}

/* Random settings as text make the same configuration. */
static void test_round_trip(void **state)
{
    for (size_t p = 0; p < qobs_preset_count(); p++)
        for (int round = 0; round < 30; round++) {
            qobs_config *config = parse(qobs_preset_name(p));
            for (size_t k = 0; k < qobs_config_key_count(config); k++) {
                const qobs_setting_info info = info_of(config, qobs_config_key(config, k));
                char value[QOBS_SETTING_VALUE];
                draw_value(config, &info, value);
                if (draw() % 3)
                    assert_ok(qobs_config_set(config, info.key, value, &error));
            }
            size_t size = 0, size_again = 0;
            char text[MOST_TEXT], again[MOST_TEXT];
            assert_ok(qobs_config_text(config, NULL, 0, &size, &error));
            assert_true(size <= sizeof text);
            memset(text, 'x', sizeof text);
            assert_refused(qobs_config_text(config, text, size - 1, &size_again, &error), wrong, "size|needs");
            assert_true(text[0] == 'x' && size_again == 0);
            assert_ok(qobs_config_text(config, text, size, NULL, &error));
            assert_true(strlen(text) + 1 == size && text[size] == 'x');
            qobs_config *back = parse(text);
            assert_same_values(config, back);
            assert_ok(qobs_config_text(back, again, sizeof again, &size_again, &error));
            assert_string_equal(text, again);
            assert_int_equal(size, size_again);
            qobs_config_destroy(config);
            qobs_config_destroy(back);
        }
}

/* ---- Observers --------------------------------------------------------------------------------------------------- */

enum { ROWS = 100, COLUMNS = 48, ELEMENTS = ROWS * COLUMNS };

/* The status, which is that of an observer that takes no second batch. */
static int observe_matrix(qobs_observer *o, const struct every_preset *p, uint32_t seed)
{
    static float data[ELEMENTS];
    fill_matrix(data, ELEMENTS, seed);
    const qobs_tensor value = tensor(QOBS_F32, data, ROWS, COLUMNS);
    if (weighs_columns(p))
        assert_ok(qobs_observer_observe_importance(o, &value, &error));
    return qobs_observer_observe(o, &value, NULL, &error);
}

static void assert_same_state(const qobs_observer *a, const qobs_observer *b)
{
    size_t size_a, size_b;
    unsigned char *of_a = saved_state(a, &size_a), *of_b = saved_state(b, &size_b);
    assert_int_equal(size_a, size_b);
    assert_memory_equal(of_a, of_b, size_a);
    free(of_a);
    free(of_b);
    assert_int_equal(qobs_observer_result_count(a), qobs_observer_result_count(b));
    for (size_t i = 0; i < qobs_observer_result_count(a); i++) {
        qobs_result result = {.struct_size = sizeof result};
        assert_ok(qobs_observer_result_info(a, i, &result, &error));
        unsigned char *bytes_a = calloc(2, result.size + 1), *bytes_b = bytes_a + result.size;
        assert_non_null(bytes_a);
        assert_int_equal(qobs_observer_read(a, result.name, bytes_a, result.size, &error),
                         qobs_observer_read(b, result.name, bytes_b, result.size, &error));
        assert_memory_equal(bytes_a, bytes_b, result.size);
        free(bytes_a);
    }
}

static void test_observer_clone(void **state)
{
    const struct every_preset *p;
    for (size_t i = 0; (p = preset_at(i)); i++) {
        qobs_observer *o = make(p->preset, p->settings), *clone = NULL;
        for (uint32_t batch = 0; batch < 4; batch++) {
            assert_ok(qobs_observer_clone(&clone, o, NULL, &error));
            assert_same_values(qobs_observer_config(o), qobs_observer_config(clone));
            assert_same_state(o, clone);
            const int status = observe_matrix(o, p, batch);
            assert_int_equal(observe_matrix(clone, p, batch), status);
            assert_true(status == QOBS_OK || batch > 0);
            assert_same_state(o, clone);
            /* They are independent. */
            size_t before, after;
            unsigned char *kept = saved_state(o, &before), *now;
            qobs_observer_reset(clone);
            now = saved_state(o, &after);
            assert_true(before == after && memcmp(kept, now, before) == 0);
            free(kept);
            free(now);
            qobs_observer_destroy(clone);
            clone = NULL;
        }
        qobs_observer_destroy(o);
    }
}

/* The global scale that was set, and reference amax and weights, are copied, too. */
static void test_clone_of_what_was_set(void **state)
{
    const struct every_preset fp4 = {"llmc.minmax", "strategy=tensor_group group_size=16 type=float num_bits=4"};
    qobs_observer *o = make(fp4.preset, fp4.settings), *clone = NULL;
    float global[2] = {0}, own;
    assert_ok(observe_matrix(o, &fp4, 1));
    assert_ok(qobs_observer_read(o, "global_scale", &own, sizeof own, &error));
    assert_ok(qobs_observer_set_global_amax(o, 1000, &error));
    assert_ok(qobs_observer_clone(&clone, o, NULL, &error));
    assert_ok(qobs_observer_read(o, "global_scale", &global[0], sizeof global[0], &error));
    assert_ok(qobs_observer_read(clone, "global_scale", &global[1], sizeof global[1], &error));
    assert_true(global[0] == global[1] && global[0] != own);
    assert_same_state(o, clone);
    qobs_observer_destroy(o);
    qobs_observer_destroy(clone);

    const struct every_preset mse = {"modelopt.MseCalibrator", "axis=0"};
    float amax[ROWS], weight[COLUMNS];
    for (int i = 0; i < ROWS; i++)
        amax[i] = (float)(i + 1) / 16;
    for (int i = 0; i < COLUMNS; i++)
        weight[i] = (float)(i % 5);
    const qobs_tensor reference = tensor(QOBS_F32, amax, ROWS, 1), weights = tensor(QOBS_F32, weight, COLUMNS);
    o = make(mse.preset, mse.settings);
    assert_ok(qobs_observer_set_reference_amax(o, &reference, &error));
    assert_ok(qobs_observer_set_error_weights(o, &weights, &error));
    assert_ok(qobs_observer_clone(&clone, o, NULL, &error));
    assert_ok(observe_matrix(o, &mse, 1));
    assert_ok(observe_matrix(clone, &mse, 1));
    assert_same_state(o, clone);
    qobs_observer *plain = make(mse.preset, mse.settings);
    assert_ok(observe_matrix(plain, &mse, 1));
    float of_clone[ROWS], of_plain[ROWS];
    assert_ok(qobs_observer_read(clone, "amax", of_clone, sizeof of_clone, &error));
    assert_ok(qobs_observer_read(plain, "amax", of_plain, sizeof of_plain, &error));
    assert_true(memcmp(of_clone, of_plain, sizeof of_clone) != 0);
    qobs_observer_destroy(o);
    qobs_observer_destroy(clone);
    qobs_observer_destroy(plain);
}

/* An allocator that fails at the allocation with number `left`. */
struct counter {
    size_t left, live;
};

static void *allocate(void *context, size_t size)
{
    struct counter *c = context;
    if (c->left == 0)
        return NULL;
    c->left--;
    c->live++;
    return malloc(size);
}

static void release(void *context, void *memory, size_t size)
{
    struct counter *c = context;
    c->live -= memory != NULL;
    free(memory);
}

static void test_no_memory(void **state)
{
    struct counter counter = {0};
    const qobs_allocator allocator = {sizeof allocator, allocate, release, &counter};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .allocator = &allocator};
    const struct every_preset p = {"modelopt.HistogramCalibrator", "torch_hist=false"};
    qobs_observer *o = make(p.preset, p.settings), *made = NULL;
    qobs_config *config = NULL;
    assert_ok(observe_matrix(o, &p, 1));
    size_t failures = 0;
    for (int kind = 0; kind < 3; kind++)
        for (size_t n = 0;; n++) {
            counter.left = n;
            const int status = kind == 0   ? qobs_observer_clone(&made, o, &runtime, &error)
                               : kind == 1 ? qobs_observer_open(&made, "llmc.minmax num_bits=4", &runtime, &error)
                                           : qobs_config_parse(&config, "llmc.minmax num_bits=4", &runtime, &error);
            if (status == QOBS_OK) {
                qobs_observer_destroy(made);
                qobs_config_destroy(config);
                assert_int_equal(counter.live, 0);
                made = NULL;
                config = NULL;
                break;
            }
            failures++;
            assert_int_equal(status, QOBS_ERROR_OUT_OF_MEMORY);
            assert_true(!made && !config && counter.live == 0);
        }
    assert_true(failures >= 6);
    qobs_observer_destroy(o);
}

static void test_open(void **state)
{
    qobs_observer *o = NULL, *loaded = NULL;
    char text[MOST_TEXT];
    assert_refused(qobs_observer_open(&o, "llmc.minmax num_bits=17", NULL, &error), wrong, "num_bits|17");
    assert_refused(qobs_observer_open(&o, "llmc.minmax strategy=group", NULL, &error), wrong, "group_size");
    assert_null(o);
    assert_ok(qobs_observer_open(&o, "llmc.minmax group_size=16 averaging_constant=0.2", NULL, &error));
    assert_ok(observe_matrix(o, &(struct every_preset){"llmc.minmax", ""}, 3));
    size_t size;
    unsigned char *bytes = saved_state(o, &size);
    assert_ok(qobs_observer_load(&loaded, bytes, size, NULL, &error));
    free(bytes);
    assert_string_equal(qobs_config_preset(qobs_observer_config(loaded)), "llmc.minmax");
    assert_ok(qobs_config_text(qobs_observer_config(loaded), text, sizeof text, NULL, &error));
    assert_string_equal(text, "llmc.minmax averaging_constant=0.2 group_size=16");
    qobs_observer_destroy(o);
    qobs_observer_destroy(loaded);
}

/* ---- NULL -------------------------------------------------------------------------------------------------------- */

static void test_null(void **state)
{
    qobs_config *config = parse("llmc.minmax"), *made = NULL;
    qobs_observer *o = NULL, *clone = NULL;
    qobs_setting_info info = {.struct_size = sizeof info};
    char text[MOST_TEXT];
    size_t size;
    assert_ok(qobs_observer_create(&o, config, NULL, &error));
    assert_refused(qobs_config_parse(NULL, "llmc.minmax", NULL, &error), wrong, "config|NULL");
    assert_refused(qobs_config_parse(&made, NULL, NULL, &error), wrong, "text|NULL");
    assert_refused(qobs_config_set_all(NULL, "", &error), wrong, "config|NULL");
    assert_refused(qobs_config_set_all(config, NULL, &error), wrong, "settings|NULL");
    assert_refused(qobs_config_get(NULL, "num_bits", text, sizeof text, &error), wrong, "config|NULL");
    assert_refused(qobs_config_get(config, NULL, text, sizeof text, &error), wrong, "key|NULL");
    assert_refused(qobs_config_get(config, "num_bits", NULL, sizeof text, &error), wrong, "value|NULL");
    assert_refused(qobs_config_text(NULL, text, sizeof text, &size, &error), wrong, "config|NULL");
    assert_refused(qobs_config_text(config, NULL, sizeof text, &size, &error), wrong, "text|NULL");
    assert_refused(qobs_config_text(config, NULL, 0, NULL, &error), wrong, "needed|NULL");
    assert_refused(qobs_config_text(config, text, 0, &size, &error), wrong, "size|0");
    assert_refused(qobs_config_key_info(NULL, "num_bits", &info, &error), wrong, "config|NULL");
    assert_refused(qobs_config_key_info(config, NULL, &info, &error), wrong, "key|NULL");
    assert_refused(qobs_config_key_info(config, "num_bits", NULL, &error), wrong, "info|NULL");
    assert_refused(qobs_config_key_info(config, "bits", &info, &error), wrong, "bits|num_bits");
    assert_refused(qobs_observer_open(NULL, "llmc.minmax", NULL, &error), wrong, "observer|NULL");
    assert_refused(qobs_observer_open(&clone, NULL, NULL, &error), wrong, "text|NULL");
    assert_refused(qobs_observer_clone(NULL, o, NULL, &error), wrong, "clone|NULL");
    assert_refused(qobs_observer_clone(&clone, NULL, NULL, &error), wrong, "observer|NULL");
    assert_null(made);
    assert_null(clone);
    assert_null(qobs_config_preset(NULL));
    assert_null(qobs_observer_config(NULL));
    assert_null(qobs_config_key(NULL, 0));
    assert_null(qobs_config_key_word(NULL, "num_bits", 0));
    assert_null(qobs_config_key_word(config, NULL, 0));
    assert_null(qobs_config_key_word(config, "bits", 0));
    assert_int_equal(qobs_config_key_count(NULL), 0);
    /* Without an error structure, too. */
    assert_int_equal(qobs_config_set_all(config, "num_bits=17", NULL), wrong);
    assert_int_equal(qobs_config_parse(&made, "llmc.minmax num_bits=17", NULL, NULL), wrong);
    assert_int_equal(qobs_config_set_all(config, "num_bits=4", NULL), QOBS_OK);
    qobs_observer_destroy(o);
    qobs_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptions),   cmocka_unit_test(test_info_size),
        cmocka_unit_test(test_shortest),       cmocka_unit_test(test_small_buffers),
        cmocka_unit_test(test_set_all),        cmocka_unit_test(test_set_all_or_nothing),
        cmocka_unit_test(test_parse),          cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_observer_clone), cmocka_unit_test(test_clone_of_what_was_set),
        cmocka_unit_test(test_no_memory),      cmocka_unit_test(test_open),
        cmocka_unit_test(test_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
