/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Each assertion of the tests' framework, once where it must hold and once where it must not, so that no other test can
 * pass because an assertion says nothing. Built with whichever framework the tests use. */
#include "unit.h"

static const int *nothing, thing;

static void holds(void **state)
{
    assert_true(1 < 2);
    assert_false(2 < 1);
    assert_null(nothing);
    assert_non_null(&thing);
    assert_ptr_equal(&thing, &thing);
    assert_int_equal(-1, -1);
    assert_int_not_equal(1, 2);
    assert_in_range(2, 1, 2);
    assert_memory_equal("ab", "ab", 3);
    assert_memory_not_equal("ab", "ac", 3);
    assert_string_equal("ab", "ab");
}

#define REFUSES(name, assertion)                                                                                       \
    static void refuses_##name(void **state)                                                                           \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        assertion;                                                                                                     \
    }
REFUSES(true, assert_true(2 < 1))
REFUSES(false, assert_false(1 < 2))
REFUSES(null, assert_null(&thing))
REFUSES(non_null, assert_non_null(nothing))
REFUSES(pointers, assert_ptr_equal(&thing, nothing))
REFUSES(integers, assert_int_equal(INT64_C(1) << 40, 0))
REFUSES(same_integers, assert_int_not_equal(7, 7))
REFUSES(range, assert_in_range(3, 1, 2))
REFUSES(memory, assert_memory_equal("ab", "ac", 3))
REFUSES(same_memory, assert_memory_not_equal("ab", "ab", 3))
REFUSES(string, assert_string_equal("ab", "abc"))
REFUSES(always, fail())
REFUSES(message, fail_msg("%d", 1))
REFUSES(call, _fail(__FILE__, __LINE__))

int main(void)
{
    const struct CMUnitTest good[] = {cmocka_unit_test(holds)};
    const struct CMUnitTest bad[] = {
        cmocka_unit_test(refuses_true),          cmocka_unit_test(refuses_false),    cmocka_unit_test(refuses_null),
        cmocka_unit_test(refuses_non_null),      cmocka_unit_test(refuses_pointers), cmocka_unit_test(refuses_integers),
        cmocka_unit_test(refuses_same_integers), cmocka_unit_test(refuses_range),    cmocka_unit_test(refuses_memory),
        cmocka_unit_test(refuses_same_memory),   cmocka_unit_test(refuses_string),   cmocka_unit_test(refuses_always),
        cmocka_unit_test(refuses_message),       cmocka_unit_test(refuses_call),
    };
    const int failed = cmocka_run_group_tests(good, NULL, NULL), refused = cmocka_run_group_tests(bad, NULL, NULL);
    const int expected = (int)(sizeof bad / sizeof *bad);
    printf("%d failed where they must not, %d of %d where they must\n", failed, refused, expected);
    return failed != 0 || refused != expected;
}
