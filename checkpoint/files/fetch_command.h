/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Runs a command of the user that fetches one file. */
#pragma once

#include <stdbool.h>

#include "files/fail.h"

struct fetch_command {
    const char *text; /* for /bin/sh; each {} stands for the name of the file */
    char *folder;     /* absolute path of the directory in which it runs and leaves the file */
    int lock;         /* a descriptor that the command inherits: its lock lasts until the command has ended, too */
    /* Returns true if the caller wants to stop; called often while a file is fetched. */
    bool (*stopped)(void *context, const char *name);
    void *context;
};

/* Judges a file that was fetched. */
struct fetch_check {
    int (*check)(void *context, const char *path, bool ended, struct fail *f); /* ended: so has the command */
    void *context;
    bool early; /* the file is judged while it grows, too; the command is stopped as soon as what is there suffices */
};

/* Fails if the command does not name the file. */
int fetch_command_check(const char *text, struct fail *f);

/* Fails if a name is not safe in a shell, or not that of a file in the folder. `from` says where it stands. */
int fetch_name_check(const char *name, const char *from, struct fail *f);

/* Fetches a file. A command that fails, and a file that does not pass the check, are tried again twice. On failure the
 * file is not there. Returns SYSTEM, or CANCELLED if the caller wants to stop. */
int fetch_file(const struct fetch_command *command, const char *name, const struct fetch_check *check, struct fail *f);
