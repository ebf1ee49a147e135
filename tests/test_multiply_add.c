/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* multiply_add rounds once, for any three numbers: the scalar kernels and everything outside of kernels rely on it. */
#include "check/fused.h"
#include "number/multiply_add.h"
#include "repeats.h"
#include "unit.h"

static uint32_t random_bits(void)
{
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 32);
}

static void compare(float a, float b, float c)
{
    const float got = multiply_add(a, b, c), expected = fused(a, b, c);
    if (isnan(expected))
        assert_true(isnan(got));
    else
        assert_int_equal(bits_of_float(got), bits_of_float(expected));
}

/* Rounded twice, by way of double or of the x87's long double, these become other numbers. */
static void test_known(void **state)
{
    static const struct {
        float a, b, c, expected;
    } known[] = {
        {0x1.000002p0f, 0x1.000002p0f, -0x1p-60f, 0x1.000004p0f},
        {0x1.8p0f, 0x1.000002p0f, 0x1p-60f, 0x1.800004p0f},
        {0x1.8p0f, 0x1.000002p0f, -0x1p-60f, 0x1.800002p0f},
        {-0x1.8p0f, 0x1.000002p0f, -0x1p-60f, -0x1.800004p0f},
        {-0x1.8p0f, 0x1.000002p0f, 0x1p-60f, -0x1.800002p0f},
        {0x1.8p0f, 0x1.000002p0f, 0x1p-149f, 0x1.800004p0f},
        {0x1.8p0f, 0x1.000002p0f, -0x1p-149f, 0x1.800002p0f},
        {0x1p-75f, 0x1p-75f, 0x1p-149f, 0x1p-148f},
        {0x1.000002p-75f, 0x1p-75f, 0, 0x1p-149f},
        {0x1p-75f, 0x1p-75f, 0, 0},
        {0x1.8p-75f, 0x1p-74f, -0x1p-149f, 0},
        {0x1p127f, 2, -0x1.8p103f, 0x1.fffffep127f},
        {0x1p127f, 2, -0x1p103f, INFINITY},
        {0x1.fffffep127f, 1, 0x1p102f, 0x1.fffffep127f},
        {0x1.fffffep127f, 1, 0x1p103f, INFINITY},
        {0x1p127f, 2, -INFINITY, -INFINITY},
        {-0.0f, 1, -0.0f, -0.0f},
        {-0.0f, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const float got = multiply_add(known[i].a, known[i].b, known[i].c);
        assert_int_equal(bits_of_float(got), bits_of_float(known[i].expected));
        compare(known[i].a, known[i].b, known[i].c);
    }
    compare(INFINITY, 0, 1);
    compare(INFINITY, 1, -INFINITY);
    compare(NAN, 1, 1);
    compare(1, 1, NAN);
}

/* Any bits: subnormals, overflow, infinity and NaN among them. */
static void test_any(void **state)
{
    for (int i = 0; i < repeats(400000, 8000000); i++)
        compare(float_of_bits(random_bits()), float_of_bits(random_bits()), float_of_bits(random_bits()));
}

/* The addend almost cancels the product. */
static void test_cancelled(void **state)
{
    for (int i = 0; i < repeats(400000, 8000000); i++) {
        const float a = float_of_bits(random_bits()), b = float_of_bits(random_bits());
        compare(a, b, float_of_bits(bits_of_float(-a * b) + random_bits() % 5 - 2));
    }
}

/* Factors of few bits and an addend of one: sums that lie halfway between two floats, or next to it. */
static void test_halfway(void **state)
{
    for (int i = 0; i < repeats(400000, 8000000); i++) {
        const float a = float_of_bits(random_bits() & 0xfffff000), b = float_of_bits(random_bits() & 0xfffff000);
        const uint32_t exponent = (bits_of_float(a * b) >> 23 & 255) + 30 - random_bits() % 60;
        compare(a, b, float_of_bits((random_bits() & 0x80000000) | (exponent & 255) << 23));
    }
}

/* Products of subnormals and sums that are subnormal. */
static void test_small(void **state)
{
    for (int i = 0; i < repeats(400000, 8000000); i++) {
        const float a = float_of_bits((random_bits() & 0x83ffffff) + (random_bits() % 60 << 23));
        const float b = float_of_bits((random_bits() & 0x80ffffff) + 0x1f000000);
        compare(a, b, float_of_bits(random_bits() & 0x81ffffff));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known), cmocka_unit_test(test_any),
                                       cmocka_unit_test(test_cancelled), cmocka_unit_test(test_halfway),
                                       cmocka_unit_test(test_small)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
