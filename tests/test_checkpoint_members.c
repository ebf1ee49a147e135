/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Every member of every argument structure of qobs/checkpoint.h, with NULL, cut short and hostile values. The members
 * come from the header (checkpoint_members.py). A wrong value is refused with a message and without an output; the
 * sanitizers see to the rest. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>

#include "unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "qobs/checkpoint.h"

enum kind { SIZE, COUNT, TEXT, LIST, FLAG, ENUMERATION, RUNTIME, PROGRESS, CONTEXT, NUMBER, RESULT };

union arguments {
    qobs_checkpoint_quantize_args quantize;
    qobs_checkpoint_finish_args finish;
    qobs_checkpoint_audit_args audit;
    qobs_checkpoint_calibrate_args calibrate;
    qobs_checkpoint_plan_args plan;
};

static const struct member {
    const char *function, *name;
    size_t at;
    enum kind kind;
} members[] = {
#define MEMBER(function, name, kind) {#function, #name, offsetof(qobs_checkpoint_##function##_args, name), kind},
#include "checkpoint_members.inc"
};

static const char *checkpoint; /* a directory that quantize has written */
static const char *const schemes[] = {"W8A16"};
static char *report;
static size_t number;

static int count_calls(void *context, const qobs_progress *progress)
{
    return context ? *(const int *)context : 0;
}

/* Arguments that the function accepts. */
static union arguments valid(const char *function)
{
    union arguments a = {0};
    if (strcmp(function, "quantize") == 0)
        a.quantize = (qobs_checkpoint_quantize_args){.struct_size = sizeof a.quantize,
                                                     .model = MODEL,
                                                     .out = "out",
                                                     .scheme = "W8A16",
                                                     .progress = count_calls,
                                                     .report = &report};
    else if (strcmp(function, "calibrate") == 0)
        a.calibrate = (qobs_checkpoint_calibrate_args){.struct_size = sizeof a.calibrate,
                                                       .model = MODEL,
                                                       .out = "out",
                                                       .scheme = "W8A16",
                                                       .progress = count_calls,
                                                       .missing = &number,
                                                       .report = &report};
    else if (strcmp(function, "plan") == 0)
        a.plan = (qobs_checkpoint_plan_args){.struct_size = sizeof a.plan,
                                             .model = MODEL,
                                             .schemes = schemes,
                                             .scheme_count = 1,
                                             .progress = count_calls,
                                             .report = &report};
    else if (strcmp(function, "audit") == 0)
        a.audit = (qobs_checkpoint_audit_args){
            .struct_size = sizeof a.audit, .checkpoint = checkpoint, .findings = &number, .report = &report};
    else
        a.finish = (qobs_checkpoint_finish_args){.struct_size = sizeof a.finish, .out = "out", .report = &report};
    return a;
}

static int call(const char *function, const union arguments *a, qobs_error *error)
{
    if (strcmp(function, "quantize") == 0)
        return qobs_checkpoint_quantize(a ? &a->quantize : NULL, error);
    if (strcmp(function, "calibrate") == 0)
        return qobs_checkpoint_calibrate(a ? &a->calibrate : NULL, error);
    if (strcmp(function, "plan") == 0)
        return qobs_checkpoint_plan(a ? &a->plan : NULL, error);
    if (strcmp(function, "audit") == 0)
        return qobs_checkpoint_audit(a ? &a->audit : NULL, error);
    assert_string_equal(function, "finish");
    return qobs_checkpoint_finish(a ? &a->finish : NULL, error);
}

static void prepare(const char *function)
{
    if (strcmp(function, "finish") == 0) { /* one part of one */
        union arguments a = valid("quantize");
        a.quantize.part = a.quantize.part_count = 1;
        assert_int_equal(call("quantize", &a, NULL), QOBS_OK);
        free(report);
        report = NULL;
    }
}

static void clear(void) { assert_int_equal(system("rm -rf out out.parts"), 0); }

/* Fails if a message does not name the member, or the list of a count. */
static void expect_named(const struct member *m, const char *message, const char *what)
{
    char name[64];
    const char *count = strstr(m->name, "_count");
    snprintf(name, sizeof name, "%.*s", count ? (int)(count - m->name) : (int)strlen(m->name), m->name);
    if (!strstr(message, name))
        fail_msg("%s: %s = %s: '%s' does not name it", m->function, m->name, what, message);
}

/* Calls the function with one value in a member. `accepted`: it succeeds; otherwise it says why and writes nothing. */
static void expect(const struct member *m, const void *value, size_t size, bool accepted, const char *what)
{
    prepare(m->function);
    union arguments a = valid(m->function);
    memcpy((char *)&a + m->at, value, size);
    qobs_error error = {0};
    const int status = call(m->function, &a, &error);
    if ((status == QOBS_OK) != accepted)
        fail_msg("%s: %s = %s: status %d, %s", m->function, m->name, what, status, error.message);
    if (status != QOBS_OK) {
        struct stat there;
        assert_int_equal(error.status, status);
        if (m->kind == TEXT || m->kind == COUNT || m->kind == ENUMERATION)
            expect_named(m, error.message, what);
        assert_true(strlen(error.message) > 0);
        assert_int_equal(stat("out", &there), -1);
    }
    free(report);
    report = NULL;
    clear();
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

static void test_text(const struct member *m)
{
    static const char *const needed[] = {"model", "out", "scheme", "checkpoint", NULL};
    static char longest[1 << 16];
    memset(longest, 'x', sizeof longest - 1);
    const char *const hostile[] = {"", "\xff\x01", "no/such/thing", longest, "%s%n"};
    const char *none = NULL;
    static const char *const writes_if_asked[] = {"plan", "audit", NULL};
    const bool optional = is_one_of(m->function, writes_if_asked) && strcmp(m->name, "out") == 0;
    expect(m, &none, sizeof none, optional || !is_one_of(m->name, needed), "NULL");
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        /* An output may have any name; finish finds no parts for it. */
        if (strcmp(m->name, "out") == 0 && i != 0 && i != 3 && strcmp(m->function, "finish") != 0)
            continue;
        expect(m, &hostile[i], sizeof *hostile, false, "hostile text");
    }
}

static void test_list(const struct member *m, const struct member *count)
{
    const char *const null_entry[] = {NULL}, *const hostile[] = {"re:(", "\xff=\xfe"};
    const char *const *none = NULL, *const *list = null_entry;
    assert_int_equal(count->kind, COUNT);
    for (int i = 0; i < 5; i++) {
        union arguments a = valid(m->function);
        const size_t counts[] = {1, SIZE_MAX, 0, 1, 2};
        list = i < 2 ? none : i < 4 ? null_entry : hostile;
        memcpy((char *)&a + m->at, &list, sizeof list);
        memcpy((char *)&a + count->at, &counts[i], sizeof *counts);
        qobs_error error = {0};
        const int status = call(m->function, &a, &error);
        const bool accepted = i == 2 && strcmp(m->name, "schemes") != 0; /* an empty list */
        if (accepted ? status != QOBS_OK : status != QOBS_ERROR_INVALID_ARGUMENT && status != QOBS_ERROR_SYSTEM)
            fail_msg("%s: %s, case %d: status %d, %s", m->function, m->name, i, status, error.message);
        assert_true(accepted || strlen(error.message) > 0);
        free(report);
        report = NULL;
        clear();
    }
}

static void run_in_order(void *context, void (*task)(void *argument, size_t index), void *argument, size_t count)
{
    for (size_t i = 0; i < count; i++)
        task(argument, i);
}

static void *take(void *context, size_t size)
{
    return malloc(size ? size : 1);
}

static void give_back(void *context, void *memory, size_t size)
{
    free(memory);
}

static void test_runtime(const struct member *m)
{
    qobs_runtime runtime = {.struct_size = 0};
    const qobs_runtime *given = &runtime;
    expect(m, &given, sizeof given, false, "size 0");
    runtime.struct_size = sizeof runtime;
    expect(m, &given, sizeof given, true, "an empty one");
    /* One wrong member at a time, in the structures that a runtime points to. */
    const qobs_executor executor = {.struct_size = sizeof executor, .threads = 1, .parallel_for = run_in_order};
    const qobs_allocator allocator = {.struct_size = sizeof allocator, .allocate = take, .release = give_back};
    runtime.executor = &executor;
    runtime.allocator = &allocator;
    expect(m, &given, sizeof given, true, "a whole one");
    const qobs_executor executors[] = {{.struct_size = 0},
                                       {.struct_size = sizeof executor},
                                       {.struct_size = sizeof executor - 1, .threads = 1, .parallel_for = run_in_order},
                                       {.struct_size = sizeof executor, .threads = 0, .parallel_for = run_in_order},
                                       {.struct_size = sizeof executor, .threads = 1}};
    for (size_t i = 0; i < sizeof executors / sizeof *executors; i++) {
        runtime.executor = &executors[i];
        expect(m, &given, sizeof given, false, "a wrong executor");
    }
    runtime.executor = NULL;
    const qobs_allocator allocators[] = {{.struct_size = 0},
                                         {.struct_size = sizeof allocator},
                                         {.struct_size = SIZE_MAX, .allocate = take, .release = give_back},
                                         {.struct_size = sizeof allocator, .allocate = take},
                                         {.struct_size = sizeof allocator, .release = give_back}};
    for (size_t i = 0; i < sizeof allocators / sizeof *allocators; i++) {
        runtime.allocator = &allocators[i];
        expect(m, &given, sizeof given, false, "a wrong allocator");
    }
    runtime.allocator = NULL;
    given = NULL;
    expect(m, &given, sizeof given, true, "NULL");
}

static void test_progress(const struct member *m)
{
    int (*none)(void *, const qobs_progress *) = NULL;
    expect(m, &none, sizeof none, true, "NULL");
}

static void test_context(const struct member *m)
{
    static int stop = 1;
    void *const contexts[] = {NULL, &stop};
    expect(m, &contexts[0], sizeof *contexts, true, "NULL");
    expect(m, &contexts[1], sizeof *contexts, false, "one that stops the run");
}

static void test_member(void **state)
{
    const struct member *m = *state;
    const void *none = NULL;
    const size_t sizes[] = {0, 1, sizeof(size_t), SIZE_MAX};
    const double limits[] = {0, -1, 4.5, (double)NAN, (double)INFINITY};
    const int numbers[] = {-1, 4, INT_MAX, INT_MIN};
    switch (m->kind) {
    case SIZE:
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            expect(m, &sizes[i], sizeof *sizes, false, "another size");
        break;
    case NUMBER: /* a limit, which needs states */
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
            expect(m, &limits[i], sizeof *limits, limits[i] == 0, "a number");
        break;
    case COUNT: /* without its list, or the part without part_count and the other way round */
        if (strcmp(m->name, "scheme_count") == 0) { /* its list is there */
            expect(m, &sizes[0], sizeof *sizes, false, "0");
            break;
        }
        expect(m, &sizes[1], sizeof *sizes, false, "1 alone");
        expect(m, &sizes[3], sizeof *sizes, false, "the largest alone");
        break;
    case TEXT:
        test_text(m);
        break;
    case LIST:
        test_list(m, m + 1);
        break;
    case FLAG:
        /* The model is not quantized, so that it has no numbers to keep. */
        expect(m, &(bool){true}, sizeof(bool), strcmp(m->name, "keep_numbers") != 0, "true");
        break;
    case ENUMERATION:
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            expect(m, &numbers[i], sizeof *numbers, false, "no value of the enumeration");
        break;
    case RUNTIME:
        test_runtime(m);
        break;
    case PROGRESS:
        test_progress(m);
        break;
    case CONTEXT:
        test_context(m);
        break;
    case RESULT:
        expect(m, &none, sizeof none, true, "NULL");
        break;
    }
}

static void test_functions(void **state)
{
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        qobs_error error = {0};
        if (members[i].kind != SIZE) /* one of each function */
            continue;
        assert_int_equal(call(members[i].function, NULL, &error), QOBS_ERROR_INVALID_ARGUMENT);
        assert_true(strlen(error.message) > 0);
        assert_int_equal(call(members[i].function, NULL, NULL), QOBS_ERROR_INVALID_ARGUMENT);
    }
    const char *const names[] = {"a.q_proj.weight", NULL};
    size_t set[2];
    assert_int_equal(qobs_checkpoint_fused_sets(NULL, 1, NULL, set, NULL), QOBS_ERROR_INVALID_ARGUMENT);
    assert_int_equal(qobs_checkpoint_fused_sets(names, 1, NULL, NULL, NULL), QOBS_ERROR_INVALID_ARGUMENT);
    assert_int_equal(qobs_checkpoint_fused_sets(names, 2, NULL, set, NULL), QOBS_ERROR_INVALID_ARGUMENT);
    assert_int_equal(qobs_checkpoint_fused_sets(names, 1, "\xff no such model", set, NULL), QOBS_OK);
    assert_true(qobs_checkpoint_knows("llama", NULL));
    assert_true(qobs_checkpoint_knows(NULL, "InternVLChatModel"));
    assert_true(qobs_checkpoint_knows("no_such_type", "InternVLChatModel"));
    assert_false(qobs_checkpoint_knows("no_such_type", "NoSuchForCausalLM"));
    assert_false(qobs_checkpoint_knows(NULL, NULL));
}

/* ---- Before an output gets its name ------------------------------------------------------------------------------ */

enum { MOST_FLUSHED = 64 };

/* The files and directories that were flushed, in order. */
static char flushed[MOST_FLUSHED][PATH_MAX];
static size_t flushed_count;

/* The directory that got the name "flushed", and how many were flushed before. */
static char renamed[PATH_MAX];
static size_t flushed_before;

/* This program has these two in place of those of the C library. */
int fsync(int fd)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length =
        flushed_count < MOST_FLUSHED ? readlink(link, flushed[flushed_count], sizeof *flushed - 1) : 0;
    if (length > 0)
        flushed[flushed_count++][length] = '\0';
    return fdatasync(fd);
}

int rename(const char *from, const char *to)
{
    if (strcmp(strrchr(to, '/') ? strrchr(to, '/') : to, "/flushed") == 0) {
        snprintf(renamed, sizeof renamed, "%s", from);
        flushed_before = flushed_count;
    }
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static bool was_flushed(const char *path, size_t first, size_t end)
{
    while (first < end && strcmp(flushed[first], path) != 0)
        first++;
    return first < end;
}

/* After a power cut an output that has its name holds all of its bytes. */
static void test_flushed(void **state)
{
    union arguments a = valid("quantize");
    char path[2 * PATH_MAX], parent[PATH_MAX];
    size_t files = 0;
    a.quantize.out = "flushed";
    flushed_count = 0;
    assert_int_equal(call("quantize", &a, NULL), QOBS_OK);
    free(report);
    report = NULL;
    assert_true(was_flushed(renamed, 0, flushed_before)); /* the directory */
    DIR *directory = opendir("flushed");
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", renamed, entry->d_name);
        if (!was_flushed(path, 0, flushed_before))
            fail_msg("%s is not flushed before the rename", path);
        files++;
    }
    closedir(directory);
    assert_true(files > 3);
    assert_non_null(getcwd(parent, sizeof parent));
    assert_true(was_flushed(parent, flushed_before, flushed_count)); /* the name itself */
}

int main(void)
{
    enum { COUNT_OF_MEMBERS = sizeof members / sizeof *members };
    static struct CMUnitTest tests[COUNT_OF_MEMBERS + 2];
    static char names[COUNT_OF_MEMBERS][128], folder[] = "/tmp/qobs-members-XXXXXX";
    if (!mkdtemp(folder) || chdir(folder) != 0)
        return 1;
    union arguments a = valid("quantize");
    qobs_error error;
    a.quantize.out = checkpoint = "checkpoint";
    if (call("quantize", &a, &error) != QOBS_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    free(report);
    report = NULL;
    tests[0] = (struct CMUnitTest){.name = "functions", .test_func = test_functions};
    for (size_t i = 0; i < COUNT_OF_MEMBERS; i++) {
        snprintf(names[i], sizeof names[i], "%s.%s", members[i].function, members[i].name);
        tests[i + 1] = (struct CMUnitTest){names[i], test_member, NULL, NULL, (void *)&members[i]};
    }
    tests[COUNT_OF_MEMBERS + 1] = (struct CMUnitTest){.name = "flushed", .test_func = test_flushed};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || failed;
}
