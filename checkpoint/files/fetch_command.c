/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Commands run in a process group of their own, so that all their processes can be stopped. */
#include "files/fetch_command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "files/text.h"

enum { ATTEMPTS = 3, POLL_MILLISECONDS = 10, PATIENCE_MILLISECONDS = 2000, LOCK_DESCRIPTOR = 9 };

extern char **environ;

/* ---- Names ------------------------------------------------------------------------------------------------------- */

int fetch_command_check(const char *text, struct fail *f)
{
    return strstr(text, "{}")
               ? QOBS_OK
               : INVALID(f, "fetch: the command '%.150s' has no {}, the name of the file to fetch", text);
}

int fetch_name_check(const char *name, const char *from, struct fail *f)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t length = strlen(name);
    if (length > 0 && length <= 200 && strspn(name, allowed) == length && *name != '.' && *name != '-')
        return QOBS_OK;
    return INVALID(f,
                   "fetch: %.200s names the file '%.150s', which is not given to a command: names of letters, digits, "
                   "'.', '_' and '-' are fetched",
                   from, name);
}

/* Returns the script: the command with the name in place of each {}. NULL: no memory. */
static char *make_script(const char *text, const char *name)
{
    char *script = strdup("cd -- \"$0\" || exit 126\n");
    for (const char *hole; script && (hole = strstr(text, "{}")); text = hole + 2) {
        char *longer = text_format("%s%.*s%s", script, (int)(hole - text), text, name);
        free(script);
        script = longer;
    }
    char *whole = script ? text_format("%s%s\n", script, text) : NULL;
    free(script);
    return whole;
}

/* ---- What a command prints --------------------------------------------------------------------------------------- */

/* The end of what a command prints. A file might find no room on a disk that the command has filled. */
struct last_words {
    int from, to; /* of a pipe */
    size_t length;
    char text[2048];
};

static int words_open(struct last_words *w, struct fail *f)
{
    int ends[2];
    *w = (struct last_words){.from = -1, .to = -1};
    if (pipe(ends) != 0)
        return SYSTEM_FAILURE(f, "fetch: there is no pipe: %s", strerror(errno));
    w->from = ends[0];
    w->to = ends[1];
    fcntl(w->from, F_SETFD, FD_CLOEXEC);
    fcntl(w->to, F_SETFD, FD_CLOEXEC);
    fcntl(w->from, F_SETFL, O_NONBLOCK);
    return QOBS_OK;
}

static void words_close(struct last_words *w)
{
    descriptor_close(&w->from);
    descriptor_close(&w->to);
}

/* Takes what was printed since the last call. */
static void words_read(struct last_words *w)
{
    char chunk[1024];
    for (ssize_t n; (n = read(w->from, chunk, sizeof chunk)) > 0; w->length += (size_t)n) {
        const size_t room = sizeof w->text - 1 - (size_t)n, kept = w->length < room ? w->length : room;
        memmove(w->text, w->text + w->length - kept, kept);
        memcpy(w->text + kept, chunk, (size_t)n);
        w->length = kept;
    }
}

/* Appends the last line to a message. */
static void words_add(struct last_words *w, struct fail *f)
{
    words_read(w);
    size_t length = w->length;
    while (length > 0 && strchr("\r\n ", w->text[length - 1]))
        length--;
    w->text[length] = '\0';
    const char *line = w->text + length;
    while (line > w->text && line[-1] != '\n' && line[-1] != '\r')
        line--;
    if (*line) {
        make_printable(w->text + (line - w->text));
        text_append(f->message, sizeof f->message, "; it says: %.200s", line);
    }
}

/* ---- Processes --------------------------------------------------------------------------------------------------- */

static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t signals;
    sigemptyset(&signals);
    int error = posix_spawnattr_setsigmask(attributes, &signals);
    sigaddset(&signals, SIGPIPE);
    error = error ? error : posix_spawnattr_setsigdefault(attributes, &signals);
    error = error ? error : posix_spawnattr_setpgroup(attributes, 0);
    return error ? error
                 : posix_spawnattr_setflags(attributes,
                                            POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
}

static int set_descriptors(posix_spawn_file_actions_t *actions, const struct fetch_command *c, int output)
{
    int error = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    error = error ? error : posix_spawn_file_actions_adddup2(actions, output, STDOUT_FILENO);
    error = error ? error : posix_spawn_file_actions_adddup2(actions, STDOUT_FILENO, STDERR_FILENO);
    return error ? error : posix_spawn_file_actions_adddup2(actions, c->lock, LOCK_DESCRIPTOR);
}

static int start(const struct fetch_command *c, const char *name, int output, pid_t *pid, struct fail *f)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    OWNED char *script = make_script(c->text, name);
    if (!script)
        return NO_MEMORY(f, "the command");
    char *const words[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", script, c->folder, NULL};
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return NO_MEMORY(f, "the command");
    error = posix_spawnattr_init(&attributes);
    if (!error) {
        error = set_attributes(&attributes);
        error = error ? error : set_descriptors(&actions, c, output);
        error = error ? error : posix_spawn(pid, "/bin/sh", &actions, &attributes, words, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error ? SYSTEM_FAILURE(f, "fetch: %s: /bin/sh cannot be started: %s", name, strerror(error)) : QOBS_OK;
}

static void pause_for(int milliseconds)
{
    nanosleep(&(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L}, NULL);
}

/* Returns true if the process has ended. A caller that ignores SIGCHLD does not get to know how. */
static bool has_ended(pid_t pid, int *status)
{
    const pid_t ended = waitpid(pid, status, WNOHANG);
    return ended == pid || (ended < 0 && errno != EINTR);
}

/* Stops the command and all that it has started. */
static void stop(pid_t pid)
{
    int status = 0;
    kill(-pid, SIGTERM);
    for (int waited = 0; !has_ended(pid, &status); waited += POLL_MILLISECONDS) {
        if (waited >= PATIENCE_MILLISECONDS)
            kill(-pid, SIGKILL);
        pause_for(POLL_MILLISECONDS);
    }
    kill(-pid, SIGKILL);
}

/* ---- Attempts ---------------------------------------------------------------------------------------------------- */

/* Says how a command ended that should have left a file. */
static int judge(const struct fetch_command *c, const char *path, int status, const struct fetch_check *check,
                 struct last_words *words, struct fail *f)
{
    struct stat info;
    int result;
    if (WIFSIGNALED(status))
        result = SYSTEM_FAILURE(f, "the command was ended by signal %d", WTERMSIG(status));
    else if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        result = SYSTEM_FAILURE(f, "the command has exit status %d", WEXITSTATUS(status));
    else if (lstat(path, &info) != 0)
        result = SYSTEM_FAILURE(f, "the command leaves no file of that name in the folder in which it runs, %.150s",
                                c->folder);
    else if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        result = SYSTEM_FAILURE(f, "the command leaves something that is no regular file");
    else
        return check->check(check->context, path, true, f);
    words_add(words, f);
    return result;
}

static int stopped_by_caller(const struct fetch_command *c, const char *name, struct fail *f)
{
    return c->stopped(c->context, name) ? report_failure(f, QOBS_ERROR_CANCELLED, "stopped by the caller") : QOBS_OK;
}

static int attempt(const struct fetch_command *c, const char *name, const char *path, const struct fetch_check *check,
                   struct fail *f)
{
    pid_t pid;
    int status = 0;
    RELEASED_BY(words_close) struct last_words words;
    RETURN_IF_NOT_OK(words_open(&words, f));
    RETURN_IF_NOT_OK(start(c, name, words.to, &pid, f));
    while (!has_ended(pid, &status)) {
        words_read(&words);
        const int wish = stopped_by_caller(c, name, f);
        const bool suffices =
            wish == QOBS_OK && check->early && check->check(check->context, path, false, NULL) == QOBS_OK;
        if (wish != QOBS_OK || suffices) {
            stop(pid);
            return wish;
        }
        pause_for(POLL_MILLISECONDS);
    }
    return judge(c, path, status, check, &words, f);
}

int fetch_file(const struct fetch_command *c, const char *name, const struct fetch_check *check, struct fail *f)
{
    struct fail reason = {.message = ""};
    OWNED char *path = path_join(c->folder, name);
    if (!path)
        return NO_MEMORY(f, "a path");
    for (int tried = 0; tried < ATTEMPTS; tried++) {
        for (int waited = 0; waited < tried * 500; waited += POLL_MILLISECONDS) { /* servers may be busy */
            RETURN_IF_NOT_OK(stopped_by_caller(c, name, f));
            pause_for(POLL_MILLISECONDS);
        }
        unlink(path);
        const int status = attempt(c, name, path, check, &reason);
        if (status == QOBS_OK)
            return QOBS_OK;
        unlink(path);
        if (status == QOBS_ERROR_CANCELLED || status == QOBS_ERROR_OUT_OF_MEMORY)
            return report_failure(f, status, "%s", reason.message);
    }
    return SYSTEM_FAILURE(f, "fetch: %s: failed %d times: %s", name, ATTEMPTS, reason.message);
}
