/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Maps of files whose bytes come when they are needed. The file that is mapped has the right size and holes; its owner
 * puts the bytes in their place before something reads them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "files/fail.h"

struct deferred_file;

/* Bytes are read once, by the job of a weight, or also before it and by other calls. */
enum deferred_use { READ_ONCE, READ_OFTEN };

/* Called from any thread. */
struct deferred_functions {
    void (*mapped)(struct deferred_file *file); /* data and size are set */
    void (*unmapped)(struct deferred_file *file);
    int (*hold)(struct deferred_file *file, size_t at, size_t size, enum deferred_use use, struct fail *f);
    void (*release)(struct deferred_file *file, size_t at, size_t size);
};

struct deferred_file {
    struct deferred_file *next;
    const struct deferred_functions *functions;
    struct stat status;  /* its device and inode identify it */
    unsigned char *data; /* of its only map; NULL: none */
    size_t size;
};

/* Makes maps of a file deferred until it is removed. It stays at its address. */
void deferred_add(struct deferred_file *file);
void deferred_remove(struct deferred_file *file);

/* Returns true if the file of a new map is deferred. */
bool deferred_map(const struct stat *status, void *data, size_t size);

/* A map ends. Does nothing for other addresses. */
void deferred_unmap(const void *data);

/* Puts bytes in their place until they are released as often. Does nothing for bytes of other maps. f may be NULL.
 * READ_OFTEN is READ_ONCE for bytes that are held already. */
int deferred_hold(const void *at, size_t size, enum deferred_use use, struct fail *f);
void deferred_release(const void *at, size_t size);
