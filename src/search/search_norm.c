/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Tables of |e|^norm for kernels. With e = m * 2^x and 1 <= m < 2 it is m^norm * 2^(norm * x): a polynomial in -m times
 * a table entry. */
#include <math.h>

#include "search/search_errors.h"
#ifdef QOBS_SLEEF
#include <sleef.h>
#endif

/* Norms that searches use by default. */
static const struct search_norm known[] = {
#include "search/known_norms.inc"
};

/* The largest relative error of the polynomial. If it is exceeded, the kernel calls SLEEF's pow instead. */
#define MAX_FIT_ERROR 7e-7

#ifdef QOBS_SLEEF
enum { COEFFICIENTS = 6, NODES = 64 };

/* Table entries are enlarged by 2^TABLE_EXP. Powers far below 1 would otherwise underflow in float. */
enum { TABLE_EXP = 64 };

static double evaluate(const double c[COEFFICIENTS], double m)
{
    double p = c[COEFFICIENTS - 1];
    for (int i = COEFFICIENTS - 2; i >= 0; i--)
        p = p * m + c[i];
    return p;
}

/* Solves the symmetric positive definite a * x = b in place of b. */
static void solve(double a[COEFFICIENTS][COEFFICIENTS], double b[COEFFICIENTS])
{
    for (int k = 0; k < COEFFICIENTS; k++)
        for (int i = k + 1; i < COEFFICIENTS; i++) {
            const double factor = a[i][k] / a[k][k];
            for (int j = k; j < COEFFICIENTS; j++)
                a[i][j] -= factor * a[k][j];
            b[i] -= factor * b[k];
        }
    for (int k = COEFFICIENTS - 1; k >= 0; k--) {
        for (int j = k + 1; j < COEFFICIENTS; j++)
            b[k] -= a[k][j] * b[j];
        b[k] /= a[k][k];
    }
}

/* Least squares of the relative error at Chebyshev nodes, which is close to the minimax polynomial. Returns the largest
 * relative error. Powers of m - 1.5 keep the equations well-conditioned; they are multiplied out at the end. */
static double fit(double norm, double c[COEFFICIENTS])
{
    double a[COEFFICIENTS][COEFFICIENTS] = {{0}}, b[COEFFICIENTS] = {0};
    for (int n = 0; n < NODES; n++) {
        const double h = 0.5 * Sleef_cinz_cosd1_u10purec((n + 0.5) * 3.14159265358979323846 / NODES);
        double power[COEFFICIENTS] = {Sleef_cinz_powd1_u10purec(1.5 + h, -norm)};
        for (int i = 1; i < COEFFICIENTS; i++)
            power[i] = power[i - 1] * h;
        for (int i = 0; i < COEFFICIENTS; i++) {
            b[i] += power[i];
            for (int j = 0; j < COEFFICIENTS; j++)
                a[i][j] += power[i] * power[j];
        }
    }
    solve(a, b);
    for (int i = 0; i < COEFFICIENTS; i++)
        c[i] = 0;
    for (int k = COEFFICIENTS - 1; k >= 0; k--) { /* c = c * (m - 1.5) + b[k] */
        for (int i = COEFFICIENTS - 1; i > 0; i--)
            c[i] = c[i - 1] - 1.5 * c[i];
        c[0] = b[k] - 1.5 * c[0];
    }
    double worst = 0;
    for (int n = 0; n <= 4 * NODES; n++) {
        const double m = 1 + n / (4.0 * NODES);
        worst = fmax(worst, fabs(evaluate(c, m) * Sleef_cinz_powd1_u10purec(m, -norm) - 1));
    }
    return worst;
}

static void make_table(struct error_norm *norm, double value, const double c[COEFFICIENTS])
{
    /* The kernel's polynomial is monic in (-m)^5. Norm 4 has no such term and gets a negligible one. */
    const double leading = -c[5], tiny = 0x1p-40, first = fabs(leading) < tiny ? copysign(tiny, leading) : leading;
    norm->kind = QOBS_NORM_TABLE;
    for (int i = 0; i < 5; i++)
        norm->polynomial[i] = (float)((i % 2 ? -c[i] : c[i]) / first);
    for (int i = 0; i < 8; i++)
        norm->low[i] = (float)(first * Sleef_cinz_exp2d1_u10purec(value * i));
    for (int i = 0; i < 8; i++) /* the unit is 2^-63: 1 has the biased exponent 64 */
        norm->high[i] = i < 4 ? 0 : (float)Sleef_cinz_exp2d1_u10purec(value * (8 * i - 64) + TABLE_EXP);
}

static double exp2_of(double x) { return Sleef_cinz_exp2d1_u10purec(x); }

static void make_powers(struct search_norm *norm, double value)
{
    double c[COEFFICIENTS];
    if (fit(value, c) <= MAX_FIT_ERROR) {
        make_table(&norm->errors, value, c);
        norm->sum_exp = TABLE_EXP;
        return;
    }
    /* Enlarged by 2^up, powers use all exponents of float. The larger the norm, the fewer are left for that. */
    const int up = value > 19 ? (int)(96 / value) : 5;
    norm->errors.kind = QOBS_NORM_POW;
    norm->errors.prescale = (float)ldexp(1, up);
    norm->sum_exp = value * up;
}
#else
/* x is an integer, because the norm is 1, 2 or 3. */
static double exp2_of(double x) { return ldexp(1, (int)x); }
#endif

static bool is_product(double norm) { return norm == 1 || norm == 2 || norm == 3; }

void qobs_compute_search_norm(struct search_norm *norm, double value)
{
    *norm = (struct search_norm){.norm = value, .errors = {.value = (float)value}};
    if (is_product(value))
        norm->errors.kind = value == 1 ? QOBS_NORM_1 : value == 2 ? QOBS_NORM_2 : QOBS_NORM_3;
#ifdef QOBS_SLEEF
    else
        make_powers(norm, value);
#endif
    for (int i = 0; i < FINE_UNITS; i++)
        norm->fine_unit[i] = exp2_of(-i * value);
    for (int i = 0; i < COARSE_UNITS; i++)
        norm->coarse_unit[i] = exp2_of(-(i * FINE_UNITS - MAX_PRESCALE_EXP) * value - norm->sum_exp);
}

int qobs_search_norm(struct search_norm *norm, double value, qobs_error *error)
{
#ifdef QOBS_SLEEF
    const bool any = true;
#else
    const bool any = false;
#endif
    if (!isfinite(value) || value <= 0)
        return qobs_invalid(error, "norm: is %g, allowed are finite numbers above 0", value);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].norm == value)
            return *norm = known[i], QOBS_OK;
    if (!any && !is_product(value))
        return qobs_fail(error, QOBS_ERROR_UNSUPPORTED,
                         "norm: is %g; this build is without SLEEF and has norms 1, 2, 2.4 and 3 only", value);
    qobs_compute_search_norm(norm, value);
    return QOBS_OK;
}

double qobs_search_error_unit(const struct search_norm *norm, int prescale_exp)
{
    const int at = prescale_exp + MAX_PRESCALE_EXP;
    return norm->coarse_unit[at / FINE_UNITS] * norm->fine_unit[at % FINE_UNITS];
}

int qobs_search_prescale_exp(double magnitude, qobs_dtype dtype)
{
    const int max = dtype == QOBS_F64 ? MAX_PRESCALE_EXP - 1 : 126;
    if (!(magnitude > 0) || !isfinite(magnitude))
        return 0;
    const uint64_t bits = bits_of_double(magnitude);
    int exponent = (int)(bits >> 52) - 1022;
    if (bits >> 52 == 0)
        frexp(magnitude, &exponent);
    const int prescale_exp = -exponent - 1;
    return prescale_exp > max ? max : prescale_exp < -max ? -max : prescale_exp;
}

/* ---- Upstream's own arithmetic ----------------------------------------------------------------------------------- */

enum { POWERS = 1 << 15 };

static float round_to_half(bool bf16, float v)
{
    return bf16 ? float_of_bf16(bf16_of_float(v)) : float_of_f16(f16_of_float(v));
}

/* torch computes pow of a half in float and rounds the result; 2 and 3 are products. */
static float power(float e, double exponent)
{
    return exponent == 1 ? e : exponent == 2 ? e * e : exponent == 3 ? e * e * e : (float)pow((double)e, exponent);
}

static void make_series(double norm, float series[4])
{
    double binomial = 1;
    for (int i = 0; i < 4; i++) {
        binomial *= (norm - i) / (i + 1);
        series[i] = (float)binomial;
    }
}

/* Room for the powers of all magnitudes of a dtype in double. */
enum { POWERS_SIZE = POWERS * sizeof(double) };

int qobs_native_search_begin(struct native_search *n, const struct grid_params *params, qobs_dtype dtype,
                             int64_t elements, const struct runtime *runtime, qobs_error *error)
{
    const bool rounded = elements <= params->rounded, bf16 = dtype == QOBS_BF16;
    const bool product = is_product(params->norm);
    *n = (struct native_search){.active = params->native && (bf16 || dtype == QOBS_F16), .is_bf16 = bf16};
    if (!n->active)
        return QOBS_OK;
    n->norm.exponent = product ? (int)params->norm : 0;
    n->largest = !rounded ? (double)FLT_MAX : bf16 ? 0x1.fep127 : 65504;
    if (product && !rounded)
        return QOBS_OK;
    n->powers = qobs_allocate(runtime, POWERS_SIZE);
    RETURN_IF_FAILED(qobs_require_memory(n->powers, "search", (size_t)POWERS_SIZE, error));
    double *const table = n->powers;
    float *const fine = n->powers;
    /* In float the fine table has the upper halves of floats, which are those of BF16. */
    const double exponent = rounded ? (double)round_to_half(bf16, (float)params->norm) : params->norm;
    for (unsigned i = 0; i < POWERS; i++) {
        const uint16_t bits = (uint16_t)i;
        const float p = power(bf16 || !rounded ? float_of_bf16(bits) : float_of_f16(bits), exponent);
        if (rounded)
            table[i] = (double)round_to_half(bf16, p);
        else
            fine[i] = p;
    }
    make_series(params->norm, n->norm.series);
    n->norm.table = rounded ? table : NULL;
    n->norm.fine = rounded ? NULL : fine;
    return QOBS_OK;
}

void qobs_native_search_release(struct native_search *n, const struct runtime *runtime)
{
    qobs_release(runtime, n->powers, POWERS_SIZE);
    n->powers = NULL;
}

double qobs_native_error(const struct native_search *n, double sum)
{
    return (double)(n->norm.table ? round_to_half(n->is_bf16, (float)sum) : (float)sum);
}
