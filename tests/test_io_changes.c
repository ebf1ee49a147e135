/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Files that change while they are mapped, in a process that handles bus errors. Each test has its own process. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS, process_vm_readv */
#endif

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_io.h"

#include "system_copies.h"

static struct fail f;

/* Ends the child process if a condition does not hold. */
#define expect(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, f.message);                                         \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static int status_of(void (*body)(void))
{
    int status = -1;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* Begins what the body reads. */
static void begin(void)
{
    static struct mapped_files files;
    mapped_files_begin(&files);
    expect(bus_errors_handle(&f) == 0);
}

static void leave(int number)
{
    _exit(9);
}

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Creates a file of so many pages of ones. */
static const char *ones(const char *name, size_t pages)
{
    const size_t size = pages * page_size();
    char *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, 1, size);
    const char *path = io_bytes(name, bytes, size);
    free(bytes);
    return path;
}

static size_t sum(const struct mapped *map)
{
    size_t n = 0;
    for (size_t i = 0; i < map->size; i++)
        n += ((const volatile unsigned char *)map->data)[i];
    return n;
}

static bool found_out(const char *path, const char *words)
{
    f.message[0] = '\0';
    return mapped_check(&f) != 0 && strstr(f.message, path) && strstr(f.message, words);
}

/* ---- Shorter files ----------------------------------------------------------------------------------------------- */

enum { READERS = 4 };

struct reader {
    const struct mapped *map;
    pthread_barrier_t *begin;
    size_t found;
};

static void *read_map(void *argument)
{
    struct reader *r = argument;
    pthread_barrier_wait(r->begin);
    r->found = sum(r->map);
    return NULL;
}

/* All threads read the missing pages at the same time and find zeros. */
static void read_on_threads(const struct mapped *map, size_t wanted)
{
    struct reader readers[READERS];
    pthread_t threads[READERS];
    pthread_barrier_t begin;
    expect(pthread_barrier_init(&begin, NULL, READERS) == 0);
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.map = map, .begin = &begin};
        expect(pthread_create(&threads[i], NULL, read_map, &readers[i]) == 0);
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        expect(readers[i].found == wanted);
    }
    pthread_barrier_destroy(&begin);
}

static void shorten(void)
{
    struct mapped map, other;
    struct sigaction before, now;
    const size_t page = page_size();
    const char *path = io_path("shortened");
    sigaction(SIGBUS, NULL, &before);
    begin();
    expect(mapped_open(&other, io_path("other"), &f) == 0);
    expect(mapped_open(&map, path, &f) == 0);
    sigaction(SIGBUS, NULL, &now);
    expect(now.sa_sigaction != before.sa_sigaction);
    expect(mapped_check(&f) == 0);
    expect(sum(&map) == 64 * page);
    expect(truncate(path, (off_t)(10 * page + 100)) == 0);
    read_on_threads(&map, 10 * page + 100);
    expect(found_out(path, "became shorter"));
    expect(sum(&other) == 2 * page);
    mapped_close(&map);
    expect(found_out(path, "became shorter"));

    struct output output;
    const char *out = io_path("made-of-it");
    expect(output_open(&output, out, &f) == 0);
    expect(output_commit(&output, &f) != 0 && strstr(f.message, path) && strstr(f.message, "became shorter"));
    expect(access(out, F_OK) != 0);
    mapped_close(&other);
}

static void test_shortened(void **state)
{
    ones("shortened", 64);
    ones("other", 2);
    const size_t entries = io_entries(io_path(""));
    assert_int_equal(status_of(shorten), 0);
    assert_int_equal(io_entries(io_path("")), entries);
}

/* ---- Changes without a signal ------------------------------------------------------------------------------------ */

static void shorten_a_little(void)
{
    struct mapped map;
    begin();
    expect(mapped_open(&map, io_path("changed"), &f) == 0);
    expect(truncate(io_path("changed"), 5) == 0);
    expect(found_out(io_path("changed"), "5 bytes instead of"));
    mapped_close(&map);
    expect(found_out(io_path("changed"), "5 bytes instead of"));
}

static void write_to_it(void)
{
    struct mapped map;
    const struct timespec later[2] = {{.tv_sec = 4000000000}, {.tv_sec = 4000000000}};
    begin();
    expect(mapped_open(&map, io_path("changed"), &f) == 0);
    const int fd = open(io_path("changed"), O_WRONLY);
    expect(fd >= 0 && write(fd, "x", 1) == 1 && futimens(fd, later) == 0);
    mapped_close(&map);
    expect(found_out(io_path("changed"), "written to"));
}

/* The map still shows the original file. */
static void replace(void)
{
    struct mapped map;
    begin();
    expect(mapped_open(&map, io_path("changed"), &f) == 0);
    expect(rename(io_path("another"), io_path("changed")) == 0);
    expect(mapped_check(&f) == 0);
    expect(sum(&map) == page_size());
    mapped_close(&map);
    expect(mapped_check(&f) == 0);
}

static void test_changes(void **state)
{
    ones("changed", 1);
    assert_int_equal(status_of(shorten_a_little), 0);
    ones("changed", 1);
    assert_int_equal(status_of(write_to_it), 0);
    ones("changed", 1);
    io_bytes("another", "abc", 3);
    assert_int_equal(status_of(replace), 0);
}

/* ---- Calls of their own ------------------------------------------------------------------------------------------ */

/* A change belongs to the call that has read the file, and to those around it in the same thread. */
static void nest(void)
{
    struct mapped_files outer, inner;
    struct mapped map;
    mapped_files_begin(&outer);
    mapped_files_begin(&inner);
    expect(mapped_open(&map, io_path("changed"), &f) == 0);
    expect(truncate(io_path("changed"), 5) == 0);
    expect(found_out(io_path("changed"), "became shorter"));
    mapped_close(&map);
    mapped_files_end(&inner);
    expect(found_out(io_path("changed"), "became shorter"));
    mapped_files_end(&outer);
    mapped_files_begin(&outer);
    expect(mapped_check(&f) == 0);
    mapped_files_end(&outer);
}

static void *check_in_thread(void *argument)
{
    struct mapped_files files;
    struct fail own;
    mapped_files_begin(&files);
    *(bool *)argument = mapped_check(&own) == 0;
    mapped_files_end(&files);
    return NULL;
}

static void in_another_thread(void)
{
    struct mapped_files files;
    struct mapped map;
    pthread_t thread;
    bool unchanged = false;
    mapped_files_begin(&files);
    expect(mapped_open(&map, io_path("changed"), &f) == 0);
    expect(truncate(io_path("changed"), 5) == 0);
    expect(pthread_create(&thread, NULL, check_in_thread, &unchanged) == 0);
    expect(pthread_join(thread, NULL) == 0 && unchanged);
    mapped_close(&map);
    expect(found_out(io_path("changed"), "became shorter"));
    mapped_files_end(&files);
}

static void without_handler(void)
{
    struct sigaction before, now;
    struct mapped_files files;
    struct mapped map;
    sigaction(SIGBUS, NULL, &before);
    mapped_files_begin(&files);
    expect(mapped_open(&map, io_path("changed"), &f) == 0);
    sigaction(SIGBUS, NULL, &now);
    expect(now.sa_sigaction == before.sa_sigaction);
    mapped_close(&map);
    mapped_files_end(&files);
}

/* ---- Bytes that are held ----------------------------------------------------------------------------------------- */

static bool is_one(const struct mapped *map, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (((const volatile unsigned char *)map->data)[i] != 1)
            return false;
    return true;
}

/* Ranges that share pages are safe as long as one of them is held. */
static void hold(void)
{
    struct mapped_files files;
    struct mapped map;
    const size_t page = page_size();
    signal(SIGBUS, leave);
    mapped_files_begin(&files);
    expect(mapped_open(&map, io_path("changed"), &f) == 0 && map.size == 16 * page);
    expect(bus_errors_hold(map.data + 4 * page + 7, 3 * page));
    expect(bus_errors_hold(map.data + 6 * page, 4 * page));
    expect(bus_errors_hold(map.data + 6 * page, 4 * page));
    bus_errors_release(map.data + 6 * page, 4 * page);
    bus_errors_release(map.data + 2 * page, page); /* nothing holds it */
    expect(sum(&map) == map.size);
    expect(truncate(io_path("changed"), 0) == 0);
    expect(is_one(&map, 4 * page, 10 * page));
    bus_errors_release(map.data + 4 * page + 7, 3 * page);
    expect(is_one(&map, 6 * page, 10 * page));
    char copy[2] = {1, 1};
    expect(!bus_errors_copy(copy, map.data + 5 * page, sizeof copy) && copy[0] == 0 && copy[1] == 0);
    expect(mapped_hold(&map, 12 * page, page, &f) != 0 && strstr(f.message, "became shorter"));
    expect(((const volatile unsigned char *)map.data)[12 * page] == 0);
    mapped_close(&map);
    expect(found_out(io_path("changed"), "became shorter"));
    mapped_files_end(&files);
}

/* Every second thread takes back what the others hold; the bytes are those of the file at any time. */
static void *hold_often(void *argument)
{
    const struct reader *r = argument;
    const size_t page = page_size();
    pthread_barrier_wait(r->begin);
    for (size_t i = 0; i < 200; i++) {
        const size_t at = (i * 5 + r->found) % 12 * page;
        expect(bus_errors_hold(r->map->data + at, 4 * page));
        expect(is_one(r->map, at, at + 4 * page));
        bus_errors_release(r->map->data + at, 4 * page);
    }
    return NULL;
}

static void hold_on_threads(void)
{
    struct mapped_files files;
    struct mapped map;
    struct reader readers[READERS];
    pthread_t threads[READERS];
    pthread_barrier_t barrier;
    mapped_files_begin(&files);
    expect(mapped_open(&map, io_path("changed"), &f) == 0);
    expect(pthread_barrier_init(&barrier, NULL, READERS) == 0);
    for (size_t i = 0; i < READERS; i++) {
        readers[i] = (struct reader){&map, &barrier, i};
        expect(pthread_create(&threads[i], NULL, hold_often, &readers[i]) == 0);
    }
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    expect(sum(&map) == map.size && mapped_check(&f) == 0);
    pthread_barrier_destroy(&barrier);
    mapped_close(&map);
    mapped_files_end(&files);
}

static void test_held(void **state)
{
    SKIP_WITHOUT_COPIES();
    ones("changed", 16);
    assert_int_equal(status_of(hold), 0);
    ones("changed", 16);
    assert_int_equal(status_of(hold_on_threads), 0);
}

static void test_calls(void **state)
{
    void (*const bodies[])(void) = {nest, in_another_thread, without_handler};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        ones("changed", 1);
        assert_int_equal(status_of(bodies[i]), 0);
    }
}

/* ---- Other bus errors -------------------------------------------------------------------------------------------- */

/* An address that is not mapped any more and does not belong to a map of the program. */
static volatile unsigned char *gone(void)
{
    const char *path = io_path("gone");
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    expect(fd >= 0 && ftruncate(fd, 1000) == 0);
    unsigned char *p = mmap(NULL, 1000, PROT_READ, MAP_SHARED, fd, 0);
    expect(p != MAP_FAILED && ftruncate(fd, 0) == 0);
    return p;
}

static sigjmp_buf back;
static volatile unsigned char *expected_address;

static void jump_with_address(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    siglongjmp(back, info->si_addr == (void *)(uintptr_t)expected_address ? 1 : 2);
}

static void jump(int number)
{
    siglongjmp(back, 1);
}

static void open_and_read_gone(void)
{
    static struct mapped map;
    begin();
    expect(mapped_open(&map, io_path("changed"), &f) == 0);
    expected_address = gone();
    const int jumped = sigsetjmp(back, 1);
    if (jumped == 0)
        (void)expected_address[0];
    expect(jumped == 1);
    mapped_close(&map);
    expect(mapped_check(&f) == 0);
}

static void with_an_action(void)
{
    const struct sigaction action = {.sa_sigaction = jump_with_address, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    open_and_read_gone();
}

static void with_a_handler(void)
{
    signal(SIGBUS, jump);
    open_and_read_gone();
}

static void without_any(void)
{
    signal(SIGBUS, SIG_DFL);
    open_and_read_gone();
}

static void sent(void)
{
    static struct mapped map;
    signal(SIGBUS, SIG_DFL);
    begin();
    expect(mapped_open(&map, io_path("changed"), &f) == 0);
    kill(getpid(), SIGBUS);
}

/* ---- Identities -------------------------------------------------------------------------------------------------- */

struct question {
    const struct mapped_files *files;
    struct stat status;
    bool was_read;
};

static void *ask(void *argument)
{
    struct question *q = argument;
    q->was_read = mapped_was_read(q->files, &q->status);
    return NULL;
}

static bool asked_by_a_thread(const struct mapped_files *files, const char *path)
{
    struct question q = {.files = files};
    pthread_t thread;
    assert_int_equal(stat(path, &q.status), 0);
    assert_int_equal(pthread_create(&thread, NULL, ask, &q), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return q.was_read;
}

/* An outer call knows the files of an inner one, and any thread may ask it. */
static void test_identities(void **state)
{
    struct mapped_files outer, inner;
    struct mapped map;
    ones("read", 1);
    ones("other", 1);
    mapped_files_begin(&outer);
    outer.remembers = true;
    mapped_files_begin(&inner);
    assert_int_equal(mapped_open(&map, io_path("read"), &f), 0);
    mapped_close(&map);
    mapped_files_end(&inner);
    assert_true(asked_by_a_thread(&outer, io_path("read")));
    assert_false(asked_by_a_thread(&outer, io_path("other")));
    mapped_files_end(&outer);
}

static void test_others(void **state)
{
    ones("changed", 1);
    assert_int_equal(status_of(with_an_action), 0);
    assert_int_equal(status_of(with_a_handler), 0);
    void (*const deadly[])(void) = {without_any, sent};
    for (int i = 0; i < 2; i++) {
        const int status = status_of(deadly[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    }
}

int io_test_changes(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shortened), cmocka_unit_test(test_changes),    cmocka_unit_test(test_calls),
        cmocka_unit_test(test_others),    cmocka_unit_test(test_identities), cmocka_unit_test(test_held),
    };
    return cmocka_run_group_tests_name("changes", tests, io_setup, io_teardown);
}
