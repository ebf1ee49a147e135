/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Error messages, threads, options and small helpers of the commands. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/mapped.h"
#include "schemes/quant_config.h"

#ifdef HAVE_PTHREADPOOL
#include <pthreadpool.h>
#endif

void open_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
            _exit(EXIT_SYSTEM); /* the lowest free descriptor is fd, or nothing is as it should be */
}

enum { MAX_ABOUT = 400 }; /* bytes of a name before a message */

/* Names out of files may have any bytes and any length. */
static void print_message(const char *format, va_list arguments)
{
    char text[4096];
    const int length = vsnprintf(text, sizeof text, format, arguments);
    make_printable(text);
    fprintf(stderr, "%s%s\n", text, length >= (int)sizeof text ? "..." : "");
}

/* Writes what every message begins with, in colour on a terminal unless NO_COLOR is set (no-color.org). */
static void print_prefix(const char *prefix, const char *colour)
{
    const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");
    const bool plain = !isatty(STDERR_FILENO) || (no && *no) || !terminal || strcmp(terminal, "dumb") == 0;
    if (plain)
        fprintf(stderr, "%s ", prefix);
    else
        fprintf(stderr, "\033[%sm%s\033[0m ", colour, prefix);
}

int(print_error)(int code, const char *format, ...)
{
    struct fail changed;
    va_list arguments;
    va_start(arguments, format);
    print_prefix("qobs:", "1;31");
    if (mapped_check(&changed) != 0) { /* this failure may follow from that change */
        fprintf(stderr, "%s\n", changed.message);
        code = EXIT_SYSTEM;
    } else {
        print_message(format, arguments);
    }
    va_end(arguments);
    return code;
}

int(print_failure)(const struct fail *f, const char *about)
{
    return print_error(f->system ? EXIT_SYSTEM : EXIT_USAGE, "%s%s", about, f->message);
}

void print_warning(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_prefix("qobs: warning:", "1;33");
    print_message(format, arguments);
    va_end(arguments);
}

int check_inputs(void) { return mapped_check(NULL) == 0 ? EXIT_OK : print_error(EXIT_SYSTEM, "input has changed"); }

int exit_code_of(int status)
{
    return status == QOBS_OK               ? EXIT_OK
           : status == QOBS_ERROR_FINDINGS ? EXIT_INCOMPLETE
           : status == QOBS_ERROR_SYSTEM || status == QOBS_ERROR_OUT_OF_MEMORY || status == QOBS_ERROR_CANCELLED
               ? EXIT_SYSTEM
               : EXIT_USAGE;
}

int(print_status_error)(const qobs_error *error, const char *about)
{
    const int code = exit_code_of(error->status);
    const bool cut = about && strlen(about) > MAX_ABOUT; /* a name out of a file may have any length */
    return about ? print_error(code, "%.*s%s: %s", MAX_ABOUT, about, cut ? "..." : "", error->message)
                 : print_error(code, "%s", error->message);
}

const char *suggest_preset(const void *context, size_t index)
{
    (void)context;
    return qobs_preset_name(index);
}

const char *suggest_key(const void *context, size_t index) { return qobs_config_key(context, index); }

int(print_preset_error)(const qobs_error *error, const char *option, const char *preset)
{
    const char *near = suggest(preset, suggest_preset, NULL);
    if (near && error->status == QOBS_ERROR_INVALID_ARGUMENT)
        return print_error(EXIT_USAGE, "%s: '%s' is no preset; did you mean '%s'? (qobs info lists all)", option,
                           preset, near);
    return print_status_error(error, option);
}

int(print_key_error)(const qobs_error *error, const char *option, const qobs_config *config, const char *key)
{
    const bool known = config_has(config, key) || strstr(error->message, "it belongs to");
    const char *near = known ? NULL : suggest(key, suggest_key, config);
    if (near && error->status == QOBS_ERROR_INVALID_ARGUMENT)
        return print_error(EXIT_USAGE, "%s: '%s' is no setting of %s; did you mean '%s'? (qobs info %s explains all)",
                           option, key, qobs_config_preset(config), near, qobs_config_preset(config));
    return print_status_error(error, option);
}

enum { MAX_THREADS = 1024 };

#ifdef HAVE_PTHREADPOOL
static size_t default_threads(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    const int n = CPU_COUNT(&set);
    return n > 0 ? (size_t)n : 1;
}

/* Waits until all threads have been started. */
static void *wait_for_lock(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* Returns how many threads, this one included, can be there at once, up to `count`: pthreadpool waits for ever for
 * threads that the system refuses to start. */
static size_t startable_threads(size_t count)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *started = malloc(count * sizeof *started);
    size_t n = 0;
    pthread_mutex_lock(&lock);
    while (started && n + 1 < count && pthread_create(&started[n], NULL, wait_for_lock, &lock) == 0)
        n++;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < n; i++)
        pthread_join(started[i], NULL);
    free(started);
    return n + 1;
}

/* Only the thread of main handles the signals that remove unfinished files. SIGBUS goes to the thread whose read of a
 * map failed. */
static void start_pool(struct threads *threads)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const size_t startable = startable_threads(threads->count);
    threads->pool = startable > 1 ? pthreadpool_create(startable) : NULL;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (startable < threads->count || !threads->pool)
        print_warning("--threads: the system lets %zu of %zu threads start", threads->pool ? startable : 1,
                      threads->count);
    threads->count = threads->pool ? startable : 1;
}

/* Starts the workers with the first loop, because small work needs none. Between loops workers sleep: pthreadpool's own
 * would spin for a million pauses, mostly for nothing. A pool of NULL is this thread alone. */
static void parallel_for(void *context, void (*task)(void *, size_t), void *argument, size_t count)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct threads *threads = context;
    pthread_mutex_lock(&lock);
    if (!threads->started)
        start_pool(threads);
    threads->started = true;
    pthread_mutex_unlock(&lock);
    pthreadpool_parallelize_1d(threads->pool, task, argument, count, PTHREADPOOL_FLAG_YIELD_WORKERS);
}
#else
static size_t default_threads(void) { return 1; }
#endif

int threads_start(struct threads *threads, const char *argument)
{
    *threads = (struct threads){.runtime = {.struct_size = sizeof(qobs_runtime)}};
    threads->count = default_threads();
    if (argument) {
        char *end;
        const long n = strtol(argument, &end, 10);
        if (*argument == '\0' || *end != '\0' || n < 1 || n > MAX_THREADS)
            return print_error(EXIT_USAGE, "--threads: is '%s', allowed are 1 to %d", argument, MAX_THREADS);
        threads->count = (size_t)n;
    }
    if (threads->count == 1)
        return EXIT_OK;
#ifdef HAVE_PTHREADPOOL
    const size_t most = default_threads(); /* more would wait for each other */
    if (threads->count > most)
        print_warning("--threads: this process may use %zu processors; %zu of %zu threads are started", most, most,
                      threads->count);
    threads->count = threads->count > most ? most : threads->count;
    threads->executor = (qobs_executor){.struct_size = sizeof(qobs_executor),
                                        .threads = threads->count,
                                        .parallel_for = parallel_for,
                                        .context = threads};
    threads->runtime.executor = &threads->executor;
    return EXIT_OK;
#else
    return print_error(EXIT_USAGE, "--threads: is '%s', but this program was built without pthreadpool and has 1",
                       argument);
#endif
}

void threads_stop(struct threads *threads)
{
#ifdef HAVE_PTHREADPOOL
    if (threads->pool)
        pthreadpool_destroy(threads->pool);
#endif
    threads->pool = NULL;
}

int check_model(const char *path)
{
    struct stat status;
    const char *slash = strchr(path, '/');
    if (stat(path, &status) == 0 || errno != ENOENT)
        return EXIT_OK; /* whoever opens it says what is wrong with it */
    const bool is_name = slash && slash != path && slash[1] && !strchr(slash + 1, '/') && *path != '.' && *path != '~';
    return print_error(EXIT_USAGE, "%s: No such file or directory%s%s%s", path,
                       is_name ? "; if it is a model on Hugging Face: hf download " : "", is_name ? path : "",
                       is_name ? " --local-dir DIR" : "");
}

void warn_of_table(bool table, bool quiet)
{
    if (table && quiet)
        print_warning("--table: no table is printed with --quiet or --json");
}

int set_option(qobs_config *config, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    char key[64];
    if (!equals || equals == assignment || (size_t)(equals - assignment) >= sizeof key)
        return print_error(EXIT_USAGE, "--set: is '%s', expected KEY=VALUE", assignment);
    memcpy(key, assignment, (size_t)(equals - assignment));
    key[equals - assignment] = '\0';
    qobs_error error;
    if (qobs_config_set(config, key, equals + 1, &error) != QOBS_OK)
        return print_key_error(&error, "--set", config, key);
    return EXIT_OK;
}

int set_options(qobs_config *config, const char *const *assignments, size_t count)
{
    struct fail f;
    if (settings_check_once(assignments, count, &f) != QOBS_OK)
        return print_error(EXIT_USAGE, "--set%s", f.message + strcspn(f.message, ":"));
    for (size_t i = 0; i < count; i++)
        RETURN_IF_NOT_OK(set_option(config, assignments[i]));
    return EXIT_OK;
}

int check_apart(const char *const *assignments, size_t count, const char *key, const char *option, const char *value)
{
    const size_t length = strlen(key);
    for (size_t i = 0; i < count && value; i++)
        if (strncmp(assignments[i], key, length) == 0 && assignments[i][length] == '=' &&
            strcmp(assignments[i] + length + 1, value) != 0)
            return print_error(EXIT_USAGE, "%s: is '%s', but --set gives %s", option, value, assignments[i]);
    return EXIT_OK;
}

bool config_is(const qobs_config *config, const char *key, const char *value)
{
    char text[64] = "";
    return qobs_config_get(config, key, text, sizeof text, NULL) == QOBS_OK && strcmp(text, value) == 0;
}

bool config_has(const qobs_config *config, const char *key)
{
    for (size_t i = 0; qobs_config_key(config, i); i++)
        if (strcmp(qobs_config_key(config, i), key) == 0)
            return true;
    return false;
}

static qobs_config_needs needs_of(const qobs_config *config)
{
    qobs_config_needs needs = {.struct_size = sizeof needs};
    qobs_config_get_needs(config, &needs, NULL); /* a wrong one needs nothing */
    return needs;
}

bool config_weighs_columns(const qobs_config *config) { return needs_of(config).importance; }

bool config_searches_scale(const qobs_config *config) { return needs_of(config).searches_scale; }

void cpu_name(char *name, size_t size)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(name, size, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon && colon[1] == ' ') {
            snprintf(name, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}
