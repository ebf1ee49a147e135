/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Matches names of modules with targets and ignore entries as compressed-tensors does: an exact name, or "re:" and a
 * Perl-compatible pattern that matches from the start and need not reach the end (Python's re.match). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "files/fail.h"

struct matcher; /* compiled entries; immutable, usable from several threads */

/* Compiles `count` entries. `what` ("--ignore") begins the message about a bad pattern. The caller frees *matcher. */
int matcher_create(struct matcher **matcher, const char *const *entries, size_t count, const char *what,
                   struct fail *f);
void matcher_free(struct matcher *matcher);

/* A matcher that is freed when the block of its variable ends. */
#define OWNED_MATCHER __attribute__((cleanup(matcher_release)))
void matcher_release(struct matcher **matcher);

/* Returns the index of the first entry that matches the name of `length` bytes, or -1. A pattern that exceeds its limit
 * of steps matches nothing any more; matcher_check tells. */
ptrdiff_t matcher_find(const struct matcher *matcher, const char *name, size_t length);

/* Fails if a pattern has exceeded its limit of steps, as patterns of nested repetitions do. `what` begins the message.
 */
int matcher_check(const struct matcher *matcher, const char *what, struct fail *f);

/* Returns true if an entry is exactly `text`, such as "Linear". */
bool matcher_has(const struct matcher *matcher, const char *text);
