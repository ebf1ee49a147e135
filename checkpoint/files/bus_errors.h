/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Missing pages of maps, in a process that asks for it. If a mapped file becomes shorter or its disk fails, the system
 * raises SIGBUS in the thread that reads the map. The library leaves that to the process. After bus_errors_handle, a
 * handler replaces missing pages of these ranges with zeros, so that the program continues and finds the change. A
 * SIGBUS from any other address goes to the previous action. Threads that read maps must not block SIGBUS. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "files/fail.h"

/* Installs the handler for the rest of the process. A second call does nothing. */
int bus_errors_handle(struct fail *f);

/* Returns true if maps may be read in place: missing pages become zeros. */
bool bus_errors_are_handled(void);

/* Copies bytes of a map. Returns false if some are missing: without a handler the system copies them, which tells of
 * that in place of a signal. From any thread. */
bool bus_errors_copy(void *out, const void *from, size_t size);

/* A range of memory that is a map. */
struct bus_range;

/* Adds a range. Does nothing, and *range is NULL, if there is no handler. Returns false if there is no memory. */
bool bus_errors_add(struct bus_range **range, const void *data, size_t size);

/* Returns true if pages of the range were missing. range may be NULL. */
bool bus_errors_found(const struct bus_range *range);

/* Removes a range before it is unmapped. range may be NULL. */
void bus_errors_remove(struct bus_range *range);
