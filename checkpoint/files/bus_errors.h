/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Missing pages of maps. If a mapped file becomes shorter or its disk fails, the system raises SIGBUS in the thread
 * that reads the map. After bus_errors_handle, a handler replaces missing pages of these ranges with zeros, so that the
 * program continues and finds the change. A SIGBUS from any other address goes to the previous action. Threads that
 * read maps must not block SIGBUS. Without the handler the system makes copies, on Linux: it tells of missing bytes,
 * and copies have zeros in their place. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "files/fail.h"

/* Installs the handler for the rest of the process. A second call does nothing. */
int bus_errors_handle(struct fail *f);

/* Returns true if maps may be read in place: missing pages become zeros. */
bool bus_errors_are_handled(void);

/* Copies bytes of a map, with zeros for missing ones. Returns false if some are missing. From any thread. */
bool bus_errors_copy(void *out, const void *from, size_t size);

/* Makes bytes of a range safe to read in place until they are released or the range is removed: without a handler a
 * copy takes their place. Other bytes stay as they are. Returns false if there is no memory. From any thread; bytes may
 * be held several times, and are released as often. */
bool bus_errors_hold(const void *at, size_t size);
void bus_errors_release(const void *at, size_t size);

/* A range of memory that is a map. */
struct bus_range;

/* Adds a range. source: a shared map of the same file that only copies read; NULL: nothing can be held. Returns false
 * if there is no memory. */
bool bus_errors_add(struct bus_range **range, const void *data, size_t size, const void *source);

/* Returns true if pages of the range were missing. range may be NULL. */
bool bus_errors_found(const struct bus_range *range);

/* Removes a range before it is unmapped. range may be NULL. */
void bus_errors_remove(struct bus_range *range);
