/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "number/format.h"

#include <ctype.h>

#include "base/fpenv.h"
#include "number/grid.h"

#define INTEGER(name, aliases, bits, has_sign) {name, aliases, FORMAT_INTEGER, bits, has_sign, 0, 0, 0, SPECIALS_NONE}

/* A new format is a row here and an entry in enum format_id. Definitions: OCP's 8-bit floating point specification 1.0
 * (e4m3, e5m2) and its microscaling specification 1.0 (fp6, fp4, e8m0). e5m3 is AMD Quark's scale format: no sign, and
 * the largest code is NaN. */
/* A format that the library does not name itself needs no format_id: its row comes last. */
static const qobs_format formats[] = {
    [FORMAT_INT2] = INTEGER("int2", "", 2, true),
    [FORMAT_INT3] = INTEGER("int3", "", 3, true),
    [FORMAT_INT4] = INTEGER("int4", "", 4, true),
    [FORMAT_INT5] = INTEGER("int5", "", 5, true),
    [FORMAT_INT6] = INTEGER("int6", "", 6, true),
    [FORMAT_INT7] = INTEGER("int7", "", 7, true),
    [FORMAT_INT8] = INTEGER("int8", "qint8", 8, true),
    [FORMAT_INT16] = INTEGER("int16", "", 16, true),
    [FORMAT_INT32] = INTEGER("int32", "qint32", 32, true),
    [FORMAT_UINT2] = INTEGER("uint2", "", 2, false),
    [FORMAT_UINT4] = INTEGER("uint4", "quint4x2", 4, false),
    [FORMAT_UINT8] = INTEGER("uint8", "quint8", 8, false),
    [FORMAT_UINT16] = INTEGER("uint16", "", 16, false),
    [FORMAT_E2M1] = {"fp4_e2m1", "fp4 e2m1 mxfp4 nvfp4 float4_e2m1fn float4_e2m1fn_x2", FORMAT_FLOAT, 4, true, 2, 1, 1,
                     SPECIALS_NONE},
    [FORMAT_E2M3] = {"fp6_e2m3", "e2m3 float6_e2m3fn", FORMAT_FLOAT, 6, true, 2, 3, 1, SPECIALS_NONE},
    [FORMAT_E3M2] = {"fp6_e3m2", "e3m2 float6_e3m2fn", FORMAT_FLOAT, 6, true, 3, 2, 3, SPECIALS_NONE},
    [FORMAT_E4M3] = {"fp8_e4m3", "fp8 e4m3 e4m3fn mxfp8 float8_e4m3fn fp8_e4m3fn f8_e4m3", FORMAT_FLOAT, 8, true, 4, 3,
                     7, SPECIALS_NAN},
    [FORMAT_E5M2] = {"fp8_e5m2", "e5m2 float8_e5m2 f8_e5m2", FORMAT_FLOAT, 8, true, 5, 2, 15, SPECIALS_IEEE},
    [FORMAT_E5M3] = {"fp8_e5m3", "e5m3 float8_e5m3", FORMAT_FLOAT, 8, false, 5, 3, 15, SPECIALS_NAN},
    [FORMAT_E8M0] = {"e8m0", "fp8_e8m0 float8_e8m0fnu f8_e8m0", FORMAT_SCALE, 8, false, 8, 0, 127, SPECIALS_NAN},
    [FORMAT_BF16] = {"bf16", "bfloat16", FORMAT_FLOAT, 16, true, 8, 7, 127, SPECIALS_IEEE},
    [FORMAT_F16] = {"f16", "float16 fp16 half", FORMAT_FLOAT, 16, true, 5, 10, 15, SPECIALS_IEEE},
};

enum { FORMAT_COUNT = sizeof formats / sizeof *formats };

size_t qobs_format_count(void) { return FORMAT_COUNT; }

const qobs_format *qobs_format_at(size_t index) { return index < FORMAT_COUNT ? &formats[index] : NULL; }

/* True if `name` is one of the words in `words`. */
static bool is_among(const char *words, const char *name)
{
    while (*words) {
        size_t i = 0;
        while (words[i] && words[i] != ' ' && words[i] == tolower((unsigned char)name[i]))
            i++;
        if (!name[i] && (words[i] == ' ' || !words[i]))
            return true;
        words += strcspn(words, " ");
        words += *words == ' ';
    }
    return false;
}

const qobs_format *qobs_format_find(const char *name)
{
    if (!name || !*name)
        return NULL;
    if (strncmp(name, "torch.", 6) == 0)
        name += 6;
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (is_among(formats[i].name, name) || is_among(formats[i].aliases, name))
            return &formats[i];
    return NULL;
}

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

static double power_of_two(int exponent) { return double_of_bits((uint64_t)(1023 + exponent) << 52); }

static int largest_exponent(const qobs_format *f)
{
    return (1 << f->exponent) - 1 - f->bias - (f->specials == SPECIALS_IEEE || f->kind == FORMAT_SCALE);
}

static int smallest_exponent(const qobs_format *f) { return f->kind == FORMAT_SCALE ? -f->bias : 1 - f->bias; }

double qobs_format_max(const qobs_format *f)
{
    if (!f)
        return (double)NAN;
    if (f->kind == FORMAT_INTEGER)
        return power_of_two(f->bits - f->has_sign) - 1;
    if (f->kind == FORMAT_SCALE)
        return power_of_two(largest_exponent(f));
    const int steps = (2 << f->mantissa) - 1 - (f->specials == SPECIALS_NAN);
    return steps * power_of_two(largest_exponent(f) - f->mantissa);
}

const char *qobs_format_name(const qobs_format *format) { return format ? format->name : NULL; }

int qobs_format_bits(const qobs_format *format) { return format ? format->bits : 0; }

double qobs_format_min(const qobs_format *f)
{
    if (!f)
        return (double)NAN;
    if (f->kind == FORMAT_SCALE)
        return power_of_two(smallest_exponent(f));
    if (!f->has_sign)
        return 0;
    return -qobs_format_max(f) - (f->kind == FORMAT_INTEGER);
}

int qobs_format_max_exponent(const qobs_format *f) { return f->kind == FORMAT_INTEGER ? 0 : largest_exponent(f); }

size_t qobs_format_size(const qobs_format *f) { return !f ? 0 : f->bits <= 8 ? 1 : f->bits <= 16 ? 2 : 4; }

/* ---- Rounding ---------------------------------------------------------------------------------------------------- */

/* The grid of integers has min_normal above all of them, as far up as float and double can round. */
enum { INTEGER_DIGITS_FLOAT = 22, INTEGER_DIGITS_DOUBLE = 40 };

static bool fits_float(const qobs_format *f)
{
    return f->kind == FORMAT_INTEGER ? f->bits <= INTEGER_DIGITS_FLOAT : f->exponent < 8;
}

static struct grid_float float_grid(const qobs_format *f)
{
    if (f->kind == FORMAT_INTEGER)
        return grid_float_make(INTEGER_DIGITS_FLOAT, power_of_two(INTEGER_DIGITS_FLOAT));
    return grid_float_make(f->mantissa, power_of_two(smallest_exponent(f)));
}

static struct grid_double double_grid(const qobs_format *f)
{
    if (f->kind == FORMAT_INTEGER)
        return grid_double_make(INTEGER_DIGITS_DOUBLE, power_of_two(INTEGER_DIGITS_DOUBLE));
    return grid_double_make(f->mantissa, power_of_two(smallest_exponent(f)));
}

/* How to round and encode in one format and mode. A magnitude above `limit` becomes `overflow`. */
struct rule {
    struct grid_float grid;
    struct grid_double wide_grid;
    double low, high; /* x is clamped to them first, so that the grid can round it */
    double limit;
    float overflow;
    uint32_t sign; /* the sign bit of a float; 0: the format has no sign */
    bool integer;
    int digits;         /* of the grid */
    uint32_t first;     /* code of the first number at or above min_normal, less 2^digits */
    uint32_t code_sign; /* sign bit of a code */
    uint32_t code_nan, code_overflow;
    uint32_t nan_mask; /* 0: the format has no NaN, not even with a sign */
};

static struct rule make_rule(const qobs_format *f, bool saturate)
{
    const double quant_min = qobs_format_min(f), quant_max = qobs_format_max(f);
    const uint32_t all = f->bits == 32 ? UINT32_MAX : (UINT32_C(1) << f->bits) - 1;
    const uint32_t magnitudes = f->has_sign ? all >> 1 : all;
    struct rule r = {.grid = float_grid(f),
                     .wide_grid = double_grid(f),
                     .low = quant_min,
                     .high = quant_max,
                     .limit = INFINITY,
                     .sign = f->has_sign ? 0x80000000 : 0,
                     .integer = f->kind == FORMAT_INTEGER,
                     .digits = f->mantissa,
                     .first = f->kind == FORMAT_SCALE ? 1 : 0,
                     .code_sign = all & ~magnitudes,
                     .code_nan = magnitudes,
                     .nan_mask = f->specials == SPECIALS_NONE ? 0 : UINT32_MAX};
    if (saturate || f->specials == SPECIALS_NONE)
        return r;
    r.high = power_of_two(largest_exponent(f) + 1);
    r.low = f->has_sign ? -r.high : quant_min;
    r.limit = quant_max;
    r.overflow = f->specials == SPECIALS_IEEE ? INFINITY : NAN;
    r.code_overflow = f->specials == SPECIALS_IEEE ? magnitudes - ((UINT32_C(1) << f->mantissa) - 1) : r.code_nan;
    return r;
}

static inline float round_float(const struct rule *r, float x)
{
    const float low = (float)r->low, high = (float)r->high, limit = (float)r->limit;
    float v = x < low ? low : x;
    v = v > high ? high : v;
    const uint32_t b = bits_of_float(v);
    const float shifter = grid_shifter_float(r->grid, v);
    const float m = (float_of_bits(b & 0x7fffffff) + shifter) - shifter;
    return float_of_bits(bits_of_float(m > limit ? r->overflow : m) | (b & r->sign));
}

static inline float round_double(const struct rule *r, float x)
{
    double v = (double)x < r->low ? r->low : (double)x;
    v = v > r->high ? r->high : v;
    const double shifter = grid_shifter_double(r->wide_grid, v);
    const float m = (float)((double_of_bits(bits_of_double(v) & INT64_MAX) + shifter) - shifter);
    return float_of_bits(bits_of_float((double)m > r->limit ? r->overflow : m) | (bits_of_float(x) & r->sign));
}

/* Codes count the numbers from 0 up. The steps from the power of two below x to x are the difference of two sums that
 * have the same exponent. Every power of two above min_normal adds 2^digits. */
static inline uint32_t encode_float(const struct rule *r, float x)
{
    const float low = (float)r->low, high = (float)r->high, limit = (float)r->limit;
    float v = x < low ? low : x;
    v = v > high ? high : v;
    const uint32_t b = bits_of_float(v), origin = bits_of_float(r->grid.min_normal) + r->grid.shifter;
    const float shifter = grid_shifter_float(r->grid, v), sum = float_of_bits(b & 0x7fffffff) + shifter;
    const uint32_t steps = bits_of_float(sum) - bits_of_float(shifter);
    uint32_t code = ((bits_of_float(shifter) - origin) >> (23 - r->digits)) + steps;
    code = sum - shifter > limit ? r->code_overflow : code;
    code = x != x ? r->code_nan : code;
    const uint32_t negative = r->integer ? 0 - code : code | r->code_sign;
    code = b & 0x80000000 ? negative : code;
    return x != x ? code & r->nan_mask : code;
}

static inline uint32_t encode_double(const struct rule *r, float x)
{
    double v = (double)x < r->low ? r->low : (double)x;
    v = v > r->high ? r->high : v;
    const uint64_t b = bits_of_double(v), origin = bits_of_double(r->wide_grid.min_normal) + r->wide_grid.shifter;
    const double shifter = grid_shifter_double(r->wide_grid, v), sum = double_of_bits(b & INT64_MAX) + shifter;
    const uint64_t steps = bits_of_double(sum) - bits_of_double(shifter);
    uint32_t code = (uint32_t)(((bits_of_double(shifter) - origin) >> (52 - r->digits)) + steps) - r->first;
    code = sum - shifter > r->limit ? r->code_overflow : code;
    code = x != x ? r->code_nan : code;
    const uint32_t negative = r->integer ? 0 - code : code | r->code_sign;
    /* On some machines a NaN loses its sign when it becomes a double. */
    code = (x != x ? bits_of_float(x) : (uint32_t)(b >> 32)) >> 31 ? negative : code;
    return x != x ? code & r->nan_mask : code;
}

/* Not inlined: in a caller, arithmetic could move out of the floating-point mode that is set here. */
__attribute__((noinline)) void qobs_round_floats(const qobs_format *f, size_t n, const float *x, float *out,
                                                 bool saturate)
{
    const struct rule r = make_rule(f, saturate);
    FP_SCOPE;
    if (fits_float(f)) {
        NO_DEPENDENCE
        for (size_t i = 0; i < n; i++)
            out[i] = round_float(&r, x[i]);
    } else {
        NO_DEPENDENCE
        for (size_t i = 0; i < n; i++)
            out[i] = round_double(&r, x[i]);
    }
}

__attribute__((noinline)) void qobs_encode_floats(const qobs_format *f, size_t n, const float *x, void *out,
                                                  bool saturate)
{
    const struct rule r = make_rule(f, saturate);
    FP_SCOPE;
    uint8_t *bytes = out;
    uint16_t *halves = out;
    uint32_t *words = out;
    if (!fits_float(f) && f->bits == 32)
        for (size_t i = 0; i < n; i++)
            words[i] = encode_double(&r, x[i]);
    else if (!fits_float(f) && f->bits == 16)
        for (size_t i = 0; i < n; i++)
            halves[i] = (uint16_t)encode_double(&r, x[i]);
    else if (!fits_float(f))
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)encode_double(&r, x[i]);
    else if (f->bits == 16)
        for (size_t i = 0; i < n; i++)
            halves[i] = (uint16_t)encode_float(&r, x[i]);
    else
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)encode_float(&r, x[i]);
}

float qobs_format_round(const qobs_format *f, float x, bool saturate)
{
    float rounded = NAN;
    if (f)
        qobs_round_floats(f, 1, &x, &rounded, saturate);
    return rounded;
}

uint32_t qobs_format_encode(const qobs_format *f, float x, bool saturate)
{
    if (!f)
        return 0;
    const uint32_t all = f->bits == 32 ? UINT32_MAX : (UINT32_C(1) << f->bits) - 1;
    union {
        uint8_t byte;
        uint16_t half;
        uint32_t word;
    } code = {0};
    qobs_encode_floats(f, 1, &x, &code, saturate);
    return (f->bits <= 8 ? code.byte : f->bits <= 16 ? code.half : code.word) & all;
}

float qobs_format_decode(const qobs_format *f, uint32_t code)
{
    if (!f)
        return NAN;
    if (f->kind == FORMAT_INTEGER) {
        const uint32_t top = UINT32_C(1) << (f->bits - 1), all = top + (top - 1);
        code &= all;
        return f->has_sign ? (float)((int64_t)(code ^ top) - (int64_t)top) : (float)code;
    }
    if (f->kind == FORMAT_SCALE) {
        code &= 0xff;
        return float_of_bits(code == 0xff ? 0x7fc00000 : code == 0 ? 0x00400000 : code << 23);
    }
    const uint32_t steps = UINT32_C(1) << f->mantissa, fields = UINT32_C(1) << f->exponent;
    const uint32_t mantissa = code & (steps - 1), field = code >> f->mantissa & (fields - 1);
    const uint32_t sign = f->has_sign ? (code >> (f->bits - 1) & 1) << 31 : 0;
    if (f->exponent == 8) /* the exponent of float: the code is its first bits */
        return float_of_bits(sign | field << 23 | mantissa << (23 - f->mantissa));
    if (field == fields - 1 && f->specials == SPECIALS_IEEE)
        return float_of_bits(sign | (mantissa ? 0x7fc00000 : 0x7f800000));
    if (field == fields - 1 && f->specials == SPECIALS_NAN && mantissa == steps - 1)
        return float_of_bits(sign | 0x7fc00000);
    const double magnitude = field ? (steps + mantissa) * power_of_two((int)field - f->bias - f->mantissa)
                                   : mantissa * power_of_two(1 - f->bias - f->mantissa);
    return float_of_bits(sign | bits_of_float((float)magnitude));
}

/* ---- Fake-quantize ----------------------------------------------------------------------------------------------- */

void qobs_quantizer_for_format(struct quantizer *q, const qobs_format *f)
{
    const struct grid_float grid = float_grid(f);
    const struct grid_double wide = double_grid(f);
    *q = (struct quantizer){
        .quant_min = qobs_format_min(f),
        .quant_max = qobs_format_max(f),
        .in_double = !fits_float(f),
        /* upstream casts to formats of 8 bits and more from float only; it has no cast to the others */
        .through_float = f->kind != FORMAT_INTEGER && f->bits > 4,
        .min_normal = grid.min_normal,
        .shifter = grid.shifter,
        .wide_min_normal = wide.min_normal,
        .wide_shifter = wide.shifter};
}

void qobs_quantizer_for_integers(struct quantizer *q, int64_t quant_min, int64_t quant_max, bool torch)
{
    const qobs_format shape = INTEGER("", "", 32, true);
    qobs_quantizer_for_format(q, &shape);
    q->quant_min = (double)quant_min;
    q->quant_max = (double)quant_max;
    q->in_double = quant_min < -(INT64_C(1) << 20) || quant_max > INT64_C(1) << 20;
    q->torch = torch;
}
