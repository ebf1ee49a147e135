/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Many calls on whole checkpoints at once in a process that has a SIGBUS handler of its own: the bytes of one call, and
 * nothing of the process changes. The thread sanitizer runs this, too. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw, process_vm_readv */
#endif

#include <dirent.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "qobs/checkpoint.h"
#include "system_copies.h"
#include "threads.h"
#include "unit.h"

enum { CALLS = 16, PATH = 512 };

static char scratch[200];
static const char *const schemes[] = {"W4A16", "FP8_DYNAMIC", "W8A16", "NVFP4A16", "W8A8"};
enum { SCHEMES = sizeof schemes / sizeof *schemes };

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static unsigned char *contents(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    assert_non_null(file);
    assert_int_equal(stat(path, &status), 0);
    *size = (size_t)status.st_size;
    unsigned char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static void copy(const char *from, const char *to)
{
    size_t size;
    unsigned char *bytes = contents(from, &size);
    FILE *file = fopen(to, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    free(bytes);
}

static void name(char path[PATH], const char *kind, int number, const char *file)
{
    snprintf(path, PATH, "%s/%s%d%s%s", scratch, kind, number, *file ? "/" : "", file);
}

static void expect_same(const char *a, const char *b)
{
    size_t sizes[2];
    unsigned char *bytes[2] = {contents(a, &sizes[0]), contents(b, &sizes[1])};
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    free(bytes[0]);
    free(bytes[1]);
}

/* All files of two directories are the same; returns how many there are. */
static int compare(const char *one, int i, const char *other, int k)
{
    char path[PATH], second[PATH];
    int count = 0;
    name(path, one, i, "");
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        name(path, one, i, entry->d_name);
        name(second, other, k, entry->d_name);
        expect_same(path, second);
        count++;
    }
    closedir(directory);
    return count;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status, (void)kind, (void)place;
    return remove(path);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

struct call {
    int number;
    size_t threads;
    qobs_error errors[4];
    size_t findings;
};

static void run(struct call *c, const char *out)
{
    char model[PATH], quantized[PATH], scales[PATH];
    const qobs_executor executor = {
        .struct_size = sizeof executor, .context = &c->threads, .threads = c->threads, .parallel_for = parallel_for};
    const qobs_runtime runtime = {.struct_size = sizeof runtime, .executor = c->threads > 1 ? &executor : NULL};
    const char *scheme = schemes[c->number % SCHEMES], *two[] = {"W4A16", "W8A16"};
    name(model, "model", c->number, "");
    name(quantized, out, c->number, "");
    name(scales, out, c->number, "scales.safetensors");
    const qobs_checkpoint_quantize_args quantize = {
        .struct_size = sizeof quantize, .model = model, .out = quantized, .scheme = scheme, .runtime = &runtime};
    const qobs_checkpoint_calibrate_args calibrate = {
        .struct_size = sizeof calibrate, .model = model, .out = scales, .scheme = scheme, .runtime = &runtime};
    const qobs_checkpoint_audit_args audit = {.struct_size = sizeof audit,
                                              .checkpoint = quantized,
                                              .against = model,
                                              .findings = &c->findings,
                                              .runtime = &runtime};
    const qobs_checkpoint_plan_args plan = {
        .struct_size = sizeof plan, .model = model, .schemes = two, .scheme_count = 2, .runtime = &runtime};
    qobs_checkpoint_quantize(&quantize, &c->errors[0]);
    qobs_checkpoint_audit(&audit, &c->errors[1]);
    qobs_checkpoint_calibrate(&calibrate, &c->errors[2]); /* the audit would find its file */
    qobs_checkpoint_plan(&plan, &c->errors[3]);
}

static void *run_in_thread(void *call)
{
    run(call, "out");
    return NULL;
}

static void expect_success(const struct call *c)
{
    for (int i = 0; i < 4; i++)
        if (c->errors[i].status != QOBS_OK)
            fail_msg("call %d of thread %d: %s", i, c->number, c->errors[i].message);
    assert_int_equal(c->findings, 0);
}

/* Nothing may raise the signal. */
static void own_handler(int number)
{
    _exit(9);
}

static void test_at_once(void **state)
{
    pthread_t threads[CALLS];
    static struct call calls[CALLS];
    struct sigaction own = {.sa_handler = own_handler}, now;
    struct stat made;
    char path[PATH];
    sigemptyset(&own.sa_mask);
    assert_int_equal(sigaction(SIGBUS, &own, NULL), 0);
    umask(027);
    for (int i = 0; i < CALLS; i++) {
        calls[i] = (struct call){.number = i, .threads = 1};
        run(&calls[i], "one");
        expect_success(&calls[i]);
    }
    for (int i = 0; i < CALLS; i++) {
        calls[i] = (struct call){.number = i, .threads = 1 + (size_t)i % 3};
        assert_int_equal(pthread_create(&threads[i], NULL, run_in_thread, &calls[i]), 0);
    }
    for (int i = 0; i < CALLS; i++) {
        sigaction(SIGBUS, NULL, &now);
        assert_ptr_equal(now.sa_handler, own_handler);
        pthread_join(threads[i], NULL);
    }
    sigaction(SIGBUS, NULL, &now);
    assert_ptr_equal(now.sa_handler, own_handler);
    assert_int_equal(umask(022), 027);
    for (int i = 0; i < CALLS; i++) {
        expect_success(&calls[i]);
        assert_true(compare("one", i, "out", i) >= 3);
        assert_int_equal(compare("out", i, "one", i), compare("one", i, "out", i));
        name(path, "out", i, "");
        assert_int_equal(stat(path, &made), 0);
        assert_int_equal(made.st_mode & 0777, 0750);
    }
}

/* A file that one call finds changed is no failure of another. */
static void test_failures_stay_apart(void **state)
{
    char missing[PATH], out[PATH];
    qobs_error error;
    name(missing, "nothing", 0, "");
    name(out, "refused", 0, "");
    const qobs_checkpoint_quantize_args args = {
        .struct_size = sizeof args, .model = missing, .out = out, .scheme = "W4A16"};
    assert_int_not_equal(qobs_checkpoint_quantize(&args, &error), QOBS_OK);
    struct call call = {.threads = 1};
    run(&call, "after");
    expect_success(&call);
}

/* ---- A file that becomes shorter --------------------------------------------------------------------------------- */

static int shorten(void *path, const qobs_progress *progress)
{
    return progress->bytes_done > 0 ? truncate(path, 1 << 20) : 0;
}

/* Ends with 0 if the call fails as it should. A handler of the process that is called ends the process. */
static int quantize_what_shrinks(int number, const char *scheme, bool handled)
{
    char model[PATH], out[PATH], file[PATH];
    qobs_error error;
    struct stat status;
    struct sigaction now;
    name(model, "model", number, "");
    name(file, "model", number, "model.safetensors");
    name(out, "shrunk", number, "");
    signal(SIGBUS, own_handler);
    if (handled &&
        (qobs_checkpoint_handle_bus_errors(&error) != QOBS_OK || qobs_checkpoint_handle_bus_errors(NULL) != QOBS_OK))
        return 1;
    if (sigaction(SIGBUS, NULL, &now) != 0 || (now.sa_handler == own_handler) == handled)
        return 2;
    const qobs_checkpoint_quantize_args args = {
        .struct_size = sizeof args, .model = model, .out = out, .scheme = scheme, .progress = shorten, .context = file};
    if (qobs_checkpoint_quantize(&args, &error) != QOBS_ERROR_SYSTEM || !strstr(error.message, "became shorter"))
        return 3;
    return stat(out, &status) == 0 ? 4 : 0;
}

static void expect_failure(int number, const char *scheme, bool handled)
{
    int status = -1;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        _exit(quantize_what_shrinks(number, scheme, handled));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_file_that_becomes_shorter(void **state)
{
    expect_failure(0, "W4A16", true);
}

/* Weights are copied by the system in a process without the handler: no signal arrives. */
static void test_file_that_becomes_shorter_without_the_handler(void **state)
{
    SKIP_WITHOUT_COPIES();
    for (int i = 0; i < SCHEMES; i++)
        expect_failure(1 + i, schemes[i], false);
}

static int setup(void **state)
{
    const char *parent = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/qobs-many-calls-XXXXXX", parent && *parent ? parent : "/tmp");
    assert_non_null(mkdtemp(scratch));
    for (int i = 0; i < CALLS; i++) {
        char to[PATH];
        name(to, "model", i, "");
        assert_int_equal(mkdir(to, 0777), 0);
        name(to, "model", i, "config.json");
        copy(MODEL "/config.json", to);
        name(to, "model", i, "model.safetensors");
        copy(MODEL "/model.safetensors", to);
    }
    return 0;
}

static int teardown(void **state)
{
    return nftw(scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_at_once), cmocka_unit_test(test_failures_stay_apart),
                                       cmocka_unit_test(test_file_that_becomes_shorter),
                                       cmocka_unit_test(test_file_that_becomes_shorter_without_the_handler)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
