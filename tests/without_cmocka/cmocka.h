/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The part of cmocka's interface that these tests use, for machines without a package (meson -Dcmocka=false). A test
 * ends at its first failed assertion; the status is the number of failed tests. test_stand_in.c tests it. */
#ifndef QOBS_TEST_WITHOUT_CMOCKA_H
#define QOBS_TEST_WITHOUT_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func, teardown_func;
    void *initial_state;
};

static jmp_buf stand_in_end; /* of the test that runs */

__attribute__((format(printf, 1, 2))) static inline void print_message(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    fflush(stdout);
}

__attribute__((format(printf, 1, 2))) static inline void print_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

__attribute__((noreturn)) static inline void _fail(const char *file, int line)
{
    print_error("%s:%d: failure\n", file, line);
    longjmp(stand_in_end, 1);
}

static inline void stand_in_expect(int holds, const char *what, const char *file, int line)
{
    if (holds)
        return;
    print_error("%s\n", what);
    _fail(file, line);
}

static inline void stand_in_equal(int equal, uint64_t a, uint64_t b, const char *file, int line)
{
    if ((a == b) == (equal != 0))
        return;
    print_error("%#llx %s %#llx\n", (unsigned long long)a, equal ? "!=" : "==", (unsigned long long)b);
    _fail(file, line);
}

static inline void stand_in_memory(int equal, const void *a, const void *b, size_t size, const char *file, int line)
{
    const unsigned char *p = a, *q = b;
    size_t i = 0;
    while (i < size && p[i] == q[i])
        i++;
    if ((i == size) == (equal != 0))
        return;
    if (equal)
        print_error("byte %zu of %zu is 0x%02x, not 0x%02x\n", i, size, p[i], q[i]);
    else
        print_error("%zu bytes are the same\n", size);
    _fail(file, line);
}

static inline void stand_in_string(const char *a, const char *b, const char *file, int line)
{
    if (strcmp(a, b) == 0)
        return;
    print_error("\"%s\" != \"%s\"\n", a, b);
    _fail(file, line);
}

#define fail() _fail(__FILE__, __LINE__)
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))
#define assert_true(x) stand_in_expect(!!(x), "not true: " #x, __FILE__, __LINE__)
#define assert_false(x) stand_in_expect(!(x), "not false: " #x, __FILE__, __LINE__)
#define assert_null(x) stand_in_expect((x) == NULL, "not NULL: " #x, __FILE__, __LINE__)
#define assert_non_null(x) stand_in_expect((x) != NULL, "NULL: " #x, __FILE__, __LINE__)
#define assert_ptr_equal(a, b) stand_in_expect((const void *)(a) == (const void *)(b), #a " is not " #b, __FILE__, __LINE__)
#define assert_int_equal(a, b) stand_in_equal(1, (uint64_t)(a), (uint64_t)(b), __FILE__, __LINE__)
#define assert_int_not_equal(a, b) stand_in_equal(0, (uint64_t)(a), (uint64_t)(b), __FILE__, __LINE__)
#define assert_in_range(x, quant_min, most)                                                                              \
    stand_in_expect((uint64_t)(x) >= (uint64_t)(quant_min) && (uint64_t)(x) <= (uint64_t)(most),                         \
                    #x " is not from " #quant_min " to " #most, __FILE__, __LINE__)
#define assert_memory_equal(a, b, size) stand_in_memory(1, a, b, size, __FILE__, __LINE__)
#define assert_memory_not_equal(a, b, size) stand_in_memory(0, a, b, size, __FILE__, __LINE__)
#define assert_string_equal(a, b) stand_in_string(a, b, __FILE__, __LINE__)

#define cmocka_unit_test(function) {#function, function, NULL, NULL, NULL}
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                                    \
    _cmocka_run_group_tests(name, tests, sizeof(tests) / sizeof *(tests), setup, teardown)
#define cmocka_run_group_tests(tests, setup, teardown) cmocka_run_group_tests_name(#tests, tests, setup, teardown)

/* One test, out of the loop's frame, whose variables longjmp might spoil. Returns whether it passed. */
static inline int stand_in_run(const struct CMUnitTest *test, void **state)
{
    if (setjmp(stand_in_end) != 0)
        return 0;
    if (test->setup_func)
        stand_in_expect(test->setup_func(state) == 0, "setup", test->name, 0);
    test->test_func(state);
    if (test->teardown_func)
        stand_in_expect(test->teardown_func(state) == 0, "teardown", test->name, 0);
    return 1;
}

static inline int _cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                          CMFixtureFunction setup, CMFixtureFunction teardown)
{
    void *group_state = NULL;
    int failed = 0;
    if (setup && setup(&group_state) != 0) {
        print_error("%s: setup failed\n", name);
        return (int)n;
    }
    for (size_t i = 0; i < n; i++) {
        void *state = tests[i].initial_state ? tests[i].initial_state : group_state;
        if (stand_in_run(&tests[i], &state))
            continue;
        failed++;
        print_error("FAILED: %s\n", tests[i].name);
    }
    if (teardown && teardown(&group_state) != 0) {
        print_error("%s: teardown failed\n", name);
        failed++;
    }
    print_message("%s: %zu of %zu tests passed\n", name, n - (size_t)failed, n);
    return failed;
}

#endif
