/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Number formats against tables made here from their definitions, and against a search for the nearest number in them.
 */
#include <float.h>
#include <math.h>

#include "base/fpenv.h"
#include "number/format.h"
#include "number/number.h"
#include "qobs/format.h"
#include "calls.h"
#include "unit.h"

/* ---- Definitions ------------------------------------------------------------------------------------------------- */

enum specials { NONE, ONE_NAN, IEEE };

struct definition {
    const char *name;
    int sign, exponent, mantissa, bias; /* exponent 0: an integer of `mantissa` bits and a sign */
    enum specials specials;
    double quant_min, quant_max; /* as the specifications state them */
    bool scale;                  /* exponent field 0 is one exponent more */
};

static const struct definition definitions[] = {
    {"int2", 1, 0, 1, 0, NONE, -2, 1, false},
    {"int3", 1, 0, 2, 0, NONE, -4, 3, false},
    {"int4", 1, 0, 3, 0, NONE, -8, 7, false},
    {"int5", 1, 0, 4, 0, NONE, -16, 15, false},
    {"int6", 1, 0, 5, 0, NONE, -32, 31, false},
    {"int7", 1, 0, 6, 0, NONE, -64, 63, false},
    {"int8", 1, 0, 7, 0, NONE, -128, 127, false},
    {"int16", 1, 0, 15, 0, NONE, -32768, 32767, false},
    {"int32", 1, 0, 31, 0, NONE, -2147483648.0, 2147483647, false},
    {"uint2", 0, 0, 2, 0, NONE, 0, 3, false},
    {"uint4", 0, 0, 4, 0, NONE, 0, 15, false},
    {"uint8", 0, 0, 8, 0, NONE, 0, 255, false},
    {"uint16", 0, 0, 16, 0, NONE, 0, 65535, false},
    {"fp4_e2m1", 1, 2, 1, 1, NONE, -6, 6, false},
    {"fp6_e2m3", 1, 2, 3, 1, NONE, -7.5, 7.5, false},
    {"fp6_e3m2", 1, 3, 2, 3, NONE, -28, 28, false},
    {"fp8_e4m3", 1, 4, 3, 7, ONE_NAN, -448, 448, false},
    {"fp8_e5m2", 1, 5, 2, 15, IEEE, -57344, 57344, false},
    {"fp8_e5m3", 0, 5, 3, 15, ONE_NAN, 0, 114688, false},
    {"e8m0", 0, 8, 0, 127, ONE_NAN, 0x1p-127, 0x1p127, true},
    {"bf16", 1, 8, 7, 127, IEEE, -0x1.fep127, 0x1.fep127, false},
    {"f16", 1, 5, 10, 15, IEEE, -65504, 65504, false},
};

enum { DEFINITIONS = sizeof definitions / sizeof *definitions };

static int bits_of(const struct definition *d) { return d->sign + d->exponent + d->mantissa; }

static double value_of(const struct definition *d, uint32_t code)
{
    if (d->exponent == 0) {
        const double value = (double)(code & (uint32_t)((UINT64_C(1) << d->mantissa) - 1));
        return d->sign && code >> d->mantissa & 1 ? value - ldexp(1, d->mantissa) : value;
    }
    const int field = (int)(code >> d->mantissa & ((1u << d->exponent) - 1)), top = (1 << d->exponent) - 1;
    const double fraction = ldexp((double)(code & ((1u << d->mantissa) - 1)), -d->mantissa);
    const double sign = d->sign && code >> (d->exponent + d->mantissa) & 1 ? -1 : 1;
    if (field == top && d->specials == IEEE)
        return fraction != 0 ? NAN : sign * INFINITY;
    if (field == top && d->specials == ONE_NAN && fraction == ldexp((double)((1 << d->mantissa) - 1), -d->mantissa))
        return NAN;
    if (field == 0 && !d->scale)
        return sign * ldexp(fraction, 1 - d->bias);
    return sign * ldexp(1 + fraction, field - d->bias);
}

/* ---- The nearest number, found by looking ------------------------------------------------------------------------ */

/* The finite numbers of a format that are not negative or -0, ascending with their codes; at the end what would follow
 * if there were one more exponent. */
struct table {
    const struct definition *d;
    size_t n;
    double *value;
    uint32_t *code;
};

static struct table make_table(const struct definition *d)
{
    const size_t codes = (size_t)1 << (bits_of(d) - d->sign);
    struct table t = {d, 0, malloc((codes + 1) * sizeof(double)), malloc((codes + 1) * sizeof(uint32_t))};
    assert_non_null(t.value);
    assert_non_null(t.code);
    for (uint32_t code = 0; code < codes; code++)
        if (isfinite(value_of(d, code))) {
            t.value[t.n] = value_of(d, code);
            t.code[t.n] = code;
            assert_true(t.n == 0 || t.value[t.n] > t.value[t.n - 1]);
            t.n++;
        }
    const double last = t.value[t.n - 1];
    t.value[t.n] = d->scale ? 2 * last : last + (last - t.value[t.n - 2]);
    t.code[t.n] = t.code[t.n - 1] + 1;
    return t;
}

static void free_table(struct table *t)
{
    free(t->value);
    free(t->code);
}

static float signed_as(float magnitude, float x) { return signbit(x) ? -magnitude : magnitude; }

/* The nearest of the numbers that are not negative; n: beyond the last. */
static size_t nearest(const struct table *t, double x)
{
    size_t low = 0, high = t->n;
    if (x >= t->value[t->n])
        return t->n;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        *(x >= t->value[middle] ? &low : &high) = middle;
    }
    if (x <= t->value[low])
        return low;
    const double below = x - t->value[low], above = t->value[high] - x; /* exact: both have few digits more than x */
    if (below != above)
        return below < above ? low : high;
    return t->d->scale || t->code[low] & 1 ? high : low;
}

struct answer {
    float value;
    uint32_t code;
};

static struct answer search(const struct table *t, float x, bool saturate)
{
    const struct definition *d = t->d;
    const uint32_t sign = d->sign && signbit(x) ? 1u << (bits_of(d) - 1) : 0,
                   all = (uint32_t)((UINT64_C(1) << bits_of(d)) - 1);
    const uint32_t nan = all >> d->sign;
    if (isnan(x))
        return (struct answer){NAN, d->specials == NONE ? 0 : sign | nan};
    if (d->exponent == 0) { /* two's complement: the range is not symmetric */
        const double whole = nearbyint((double)x);
        const double value = whole < d->quant_min ? d->quant_min : whole > d->quant_max ? d->quant_max : whole;
        return (struct answer){d->sign ? copysignf((float)value, x) : fabsf((float)value),
                               (uint32_t)(int64_t)value & all};
    }
    if (!d->sign && !(x > d->quant_min))
        return (struct answer){(float)d->quant_min, 0};
    size_t i = nearest(t, fabs((double)x));
    if (i == t->n && !saturate && d->specials == ONE_NAN)
        return (struct answer){NAN, sign | nan};
    if (i == t->n && !saturate && d->specials == IEEE)
        return (struct answer){signed_as(INFINITY, x), sign | t->code[t->n]};
    i = i == t->n ? i - 1 : i;
    return (struct answer){signed_as((float)t->value[i], x), sign | t->code[i]};
}

static void check_one(const struct table *t, const qobs_format *f, float x, float rounded, uint32_t code, bool saturate)
{
    const struct answer expected = search(t, x, saturate);
    const bool same = isnan(expected.value) ? isnan(rounded) : bits_of_float(rounded) == bits_of_float(expected.value);
    if (same && code == expected.code)
        return;
    fail_msg("%s, %s: %a is %a, code %#x; expected %a, code %#x", f->name, saturate ? "saturating" : "not saturating",
             (double)x, (double)rounded, code, (double)expected.value, expected.code);
}

/* Many inputs through the array functions. */
enum { BATCH = 4096 };

struct batch {
    const struct table *table;
    const qobs_format *format;
    size_t n;
    float x[BATCH];
    uint64_t checked;
};

static uint32_t stored_code(const qobs_format *f, const void *codes, size_t i)
{
    const uint32_t all = (uint32_t)((UINT64_C(1) << f->bits) - 1);
    switch (qobs_format_size(f)) {
    case 1:
        return ((const uint8_t *)codes)[i] & all;
    case 2:
        return ((const uint16_t *)codes)[i] & all;
    default:
        return ((const uint32_t *)codes)[i];
    }
}

static void flush(struct batch *b)
{
    static float rounded[BATCH];
    static uint32_t codes[BATCH];
    for (int saturate = 0; saturate < 2; saturate++) {
        qobs_round_floats(b->format, b->n, b->x, rounded, saturate);
        assert_int_equal(call_format_encode_array(b->format, b->n, b->x, codes, saturate), QOBS_OK);
        for (size_t i = 0; i < b->n; i++)
            check_one(b->table, b->format, b->x[i], rounded[i], stored_code(b->format, codes, i), saturate);
    }
    b->checked += b->n;
    b->n = 0;
}

static void add(struct batch *b, float x)
{
    b->x[b->n++] = x;
    if (b->n == BATCH)
        flush(b);
}

/* x, its neighbours and theirs, with both signs. */
static void add_around(struct batch *b, double centre)
{
    const float x = (float)centre;
    float up = x, down = x;
    for (int i = 0; i < 3; i++) {
        add(b, up);
        add(b, -up);
        add(b, down);
        add(b, -down);
        up = nextafterf(up, INFINITY);
        down = nextafterf(down, -INFINITY);
    }
}

static uint64_t random_state = 88172645463325252u;

static uint32_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static void test_table_is_complete(void **state)
{
    assert_int_equal(qobs_format_count(), DEFINITIONS);
    for (size_t i = 0; i < DEFINITIONS; i++) {
        const struct definition *d = &definitions[i];
        const qobs_format *f = qobs_format_find(d->name);
        assert_non_null(f);
        assert_ptr_equal(f, qobs_format_at(i));
        assert_string_equal(f->name, d->name);
        assert_int_equal(f->bits, bits_of(d));
        assert_true(qobs_format_min(f) == d->quant_min);
        assert_true(qobs_format_max(f) == d->quant_max);
        assert_int_equal(qobs_format_size(f), (f->bits + 7) / 8 == 3 ? 4 : (f->bits + 7) / 8);
        assert_int_equal(f->mantissa, d->exponent ? d->mantissa : 0);
    }
    assert_null(qobs_format_at(DEFINITIONS));
}

static void test_names(void **state)
{
    static const char *const same[][2] = {
        {"float8_e4m3fn", "fp8_e4m3"},
        {"torch.float8_e4m3fn", "fp8_e4m3"},
        {"FP8_E4M3", "fp8_e4m3"},
        {"e4m3", "fp8_e4m3"},
        {"F8_E4M3", "fp8_e4m3"},
        {"fp8", "fp8_e4m3"},
        {"float8_e5m2", "fp8_e5m2"},
        {"torch.float8_e5m2", "fp8_e5m2"},
        {"fp8_e5m2", "fp8_e5m2"},
        {"float8_e5m3", "fp8_e5m3"},
        {"e5m3", "fp8_e5m3"},
        {"fp4", "fp4_e2m1"},
        {"nvfp4", "fp4_e2m1"},
        {"mxfp4", "fp4_e2m1"},
        {"float4_e2m1fn_x2", "fp4_e2m1"},
        {"fp6_e2m3", "fp6_e2m3"},
        {"e3m2", "fp6_e3m2"},
        {"float8_e8m0fnu", "e8m0"},
        {"int4", "int4"},
        {"torch.int8", "int8"},
        {"torch.qint8", "int8"},
        {"quint8", "uint8"},
        {"quint4x2", "uint4"},
        {"qint32", "int32"},
        {"bfloat16", "bf16"},
        {"torch.float16", "f16"},
        {"uint16", "uint16"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const qobs_format *f = qobs_format_find(same[i][0]);
        assert_non_null(f);
        assert_string_equal(f->name, same[i][1]);
    }
    static const char *const unknown[] = {"",     " ",   "fp",     "fp8_e4m",     "fp8_e4m33", "float8",
                                          "int1", "int", "torch.", "e4m3 e4m3fn", "x"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_null(qobs_format_find(unknown[i]));
    assert_null(qobs_format_find(NULL));
    /* No name or alias means two formats. */
    for (size_t i = 0; i < DEFINITIONS; i++) {
        char words[256];
        strcpy(words, qobs_format_at(i)->aliases);
        for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
            assert_ptr_equal(qobs_format_find(word), qobs_format_at(i));
    }
}

static bool has_every_code(const struct definition *d) { return bits_of(d) <= 16; }

static void test_codes(void **state)
{
    const struct definition *d = *state;
    const qobs_format *f = qobs_format_find(d->name);
    const uint64_t codes = UINT64_C(1) << bits_of(d), step = has_every_code(d) ? 1 : 65521;
    for (uint64_t c = 0; c < codes; c += step) {
        const uint32_t code = (uint32_t)c;
        const double value = value_of(d, code);
        const float decoded = qobs_format_decode(f, code);
        if (isnan(value)) {
            assert_true(isnan(decoded));
            const uint32_t again = qobs_format_encode(f, decoded, false);
            assert_true(isnan(value_of(d, again)));
            assert_int_equal(qobs_format_encode(f, decoded, true), again);
            continue;
        }
        assert_int_equal(bits_of_float(decoded), bits_of_float((float)value));
        if ((double)decoded != value)
            continue; /* an int32 that is no float */
        assert_int_equal(qobs_format_encode(f, decoded, false), code);
        if (isfinite(value))
            assert_int_equal(qobs_format_encode(f, decoded, true), code);
        /* Bits above the format's do not count. */
        if (bits_of(d) < 32)
            assert_int_equal(bits_of_float(qobs_format_decode(f, code | ~(uint32_t)(codes - 1))),
                             bits_of_float(decoded));
    }
}

static void test_inputs(void **state)
{
    const struct definition *d = *state;
    struct table table = {.d = d};
    if (has_every_code(d))
        table = make_table(d);
    static struct batch b;
    b = (struct batch){.table = &table, .format = qobs_format_find(d->name)};
    for (uint32_t half = 0; half < 65536; half++) {
        add(&b, float_of_bf16((uint16_t)half));
        add(&b, float_of_f16((uint16_t)half));
    }
    for (size_t i = 0; i < table.n; i++) {
        add_around(&b, table.value[i]);
        add_around(&b, (table.value[i] + table.value[i + 1]) / 2);
    }
    for (int i = -40; i <= 40; i++) { /* around the halves and limits of integers */
        add_around(&b, i * 0.5);
        add_around(&b, d->quant_min + i * 0.5);
        add_around(&b, d->quant_max + i * 0.5);
        add_around(&b, 0x1p22 + i * 0.5);
        add_around(&b, 0x1p23 + i);
    }
    static const float corners[] = {0,           FLT_MIN,         FLT_MAX,          FLT_TRUE_MIN,     INFINITY,
                                    0x1.8p-127f, 0x1p-127f,       0x1.fffffep-128f, 0x1.7ffffep-127f, 0x1.fffffep-127f,
                                    0x1.8p127f,  0x1.7ffffep127f, 0x1p104f,         0x1p105f,         0x1p111f};
    for (size_t i = 0; i < sizeof corners / sizeof *corners; i++)
        add_around(&b, (double)corners[i]);
    add(&b, float_of_bits(0x7fffffff));
    add(&b, float_of_bits(0xffffffff));
    add(&b, float_of_bits(0x7f800001));
    add(&b, float_of_bits(0xff800001));
    for (int e = 0; e < 256; e++) /* every exponent: what the steps are found from */
        for (uint32_t m = 0; m < 64; m++) {
            const uint32_t random = random_bits();
            add(&b, float_of_bits((uint32_t)e << 23 | (random & 0x807fffff)));
            add(&b, float_of_bits((uint32_t)e << 23 | (m & 63) << 17 | (random & 0x80000000)));
        }
    for (int i = 0; i < 300000; i++)
        add(&b, float_of_bits(random_bits()));
    for (int i = 0; i < 100000; i++) { /* within the range */
        const float x = (float)(d->quant_max * (1 + ldexp(1, -10)) * ldexp((double)random_bits(), -32));
        add(&b, random_bits() & 1 ? -x : x);
    }
    flush(&b);
    print_message("%s: %llu inputs\n", d->name, (unsigned long long)b.checked);
    if (has_every_code(d))
        free_table(&table);
}

/* One by one, in place and in an array it is the same; nothing is written behind the array; integers fill their
 * storage. */
static void test_arrays(void **state)
{
    const struct definition *d = *state;
    const qobs_format *f = qobs_format_find(d->name);
    float x[67], in_place[67], out[68];
    unsigned char codes[68 * 4];
    for (size_t n = 0; n <= 67; n++) {
        for (size_t i = 0; i < n; i++)
            x[i] = in_place[i] = float_of_bits(random_bits());
        out[n] = 12345;
        memset(codes, 0xa5, sizeof codes);
        qobs_round_floats(f, n, x, out, n & 1);
        qobs_round_floats(f, n, in_place, in_place, n & 1);
        assert_int_equal(call_format_encode_array(f, n, x, codes, n & 1), QOBS_OK);
        assert_true(out[n] == 12345);
        assert_int_equal(codes[n * qobs_format_size(f)], 0xa5);
        for (size_t i = 0; i < n; i++) {
            const float one = qobs_format_round(f, x[i], n & 1);
            const uint32_t code = qobs_format_encode(f, x[i], n & 1);
            assert_int_equal(bits_of_float(out[i]), bits_of_float(one));
            assert_int_equal(bits_of_float(in_place[i]), bits_of_float(one));
            assert_int_equal(stored_code(f, codes, i), code);
            if (d->exponent == 0 && d->sign) {
                const int64_t whole = qobs_format_size(f) == 1   ? ((const int8_t *)codes)[i]
                                      : qobs_format_size(f) == 2 ? ((const int16_t *)codes)[i]
                                                                 : ((const int32_t *)codes)[i];
                assert_true((double)whole == value_of(d, code));
            } else if (f->bits < 8) {
                assert_int_equal(codes[i] >> f->bits, 0);
            }
        }
    }
}

#if defined(__x86_64__)
/* Whatever rounding and flush modes the caller has. */
static void test_modes(void **state)
{
    const struct definition *d = *state;
    const qobs_format *f = qobs_format_find(d->name);
    enum { N = 4096 };
    static float x[N], expected[N], got[N];
    static uint32_t expected_codes[N], codes[N];
    for (size_t i = 0; i < N; i++)
        x[i] = float_of_bits(i < N / 2 ? random_bits() : random_bits() & 0x80ffffff);
    qobs_round_floats(f, N, x, expected, false);
    assert_int_equal(call_format_encode_array(f, N, x, expected_codes, false), QOBS_OK);
    static const unsigned modes[] = {0x9fc0, 0x3f80, 0x5f80, 0x7f80, 0xffc0};
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        const unsigned before = _mm_getcsr();
        _mm_setcsr(modes[m]);
        const unsigned kept = _mm_getcsr() & 0xffc0; /* valgrind keeps the rounding mode alone */
        qobs_round_floats(f, N, x, got, false);
        assert_int_equal(call_format_encode_array(f, N, x, codes, false), QOBS_OK);
        const float decoded = qobs_format_decode(f, 1);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        assert_int_equal(after & 0xffc0, kept);
        assert_memory_equal(got, expected, sizeof got);
        assert_memory_equal(codes, expected_codes, N * qobs_format_size(f));
        assert_int_equal(bits_of_float(decoded), bits_of_float((float)value_of(d, 1)));
    }
}
#endif

/* Results of torch's casts, as facts beside the definition. */
static void test_known(void **state)
{
    const qobs_format *e4m3 = qobs_format_find("e4m3"), *e5m2 = qobs_format_find("e5m2"),
                      *e2m1 = qobs_format_find("fp4");
    assert_true(qobs_format_round(e4m3, 464, false) == 448);
    assert_true(isnan(qobs_format_round(e4m3, nextafterf(464, 500), false)));
    assert_true(isnan(qobs_format_round(e4m3, INFINITY, false)));
    assert_true(qobs_format_round(e4m3, -INFINITY, true) == -448);
    assert_int_equal(qobs_format_encode(e4m3, -1000, false), 0xff);
    assert_int_equal(qobs_format_encode(e4m3, NAN, true) & 0x7f, 0x7f);
    assert_true(qobs_format_round(e5m2, 61439, false) == 57344);
    assert_true(isinf(qobs_format_round(e5m2, 61440, false)));
    assert_int_equal(qobs_format_encode(e5m2, -INFINITY, false), 0xfc);
    static const float ties[][2] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2},
                                    {2.5f, 2},  {3.5f, 4},  {5, 4},     {7, 6}};
    for (size_t i = 0; i < sizeof ties / sizeof *ties; i++) {
        assert_true(qobs_format_round(e2m1, ties[i][0], false) == ties[i][1]);
        assert_true(qobs_format_round(e2m1, -ties[i][0], false) == -ties[i][1]);
    }
    assert_true(signbit(qobs_format_round(e2m1, -0.0f, false)));
    assert_false(signbit(qobs_format_round(qobs_format_find("e5m3"), -0.0f, false)));
    assert_int_equal(qobs_format_encode(qobs_format_find("int4"), -3, true), 0xd);
    assert_int_equal(qobs_format_encode(qobs_format_find("int8"), NAN, true), 0);
    assert_int_equal(qobs_format_encode(qobs_format_find("int32"), 3e9f, true), 0x7fffffff);
    assert_true(qobs_format_round(qobs_format_find("int32"), 3e9f, true) == 0x1p31f); /* the nearest float */
    assert_true(qobs_format_decode(qobs_format_find("e8m0"), 0) == 0x1p-127f);
    assert_int_equal(qobs_format_encode(qobs_format_find("e8m0"), 0, false), 0);
    assert_int_equal(qobs_format_encode(qobs_format_find("e8m0"), 1.5f, false), 128); /* a tie: up */
}

int main(void)
{
    static struct CMUnitTest tests[3 + 4 * DEFINITIONS];
    static char names[4 * DEFINITIONS][32];
    static const struct {
        const char *name;
        CMUnitTestFunction function;
    } each[] = {
        {"codes", test_codes},
        {"inputs", test_inputs},
        {"arrays", test_arrays},
#if defined(__x86_64__)
        {"modes", test_modes},
#endif
    };
    size_t n = 0, named = 0;
    tests[n++] = (struct CMUnitTest){.name = "table", .test_func = test_table_is_complete};
    tests[n++] = (struct CMUnitTest){.name = "names", .test_func = test_names};
    tests[n++] = (struct CMUnitTest){.name = "known values", .test_func = test_known};
    for (size_t i = 0; i < DEFINITIONS; i++)
        for (size_t j = 0; j < sizeof each / sizeof *each; j++) {
            char *name = names[named++];
            snprintf(name, sizeof names[0], "%s, %s", definitions[i].name, each[j].name);
            tests[n++] = (struct CMUnitTest){
                .name = name, .test_func = each[j].function, .initial_state = (void *)(uintptr_t)&definitions[i]};
        }
    return _cmocka_run_group_tests("formats", tests, n, NULL, NULL);
}
