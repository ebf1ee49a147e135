/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Numbers and arrays as bytes, the same on every machine: little-endian, integers in as many bytes as is said, elements in
 * their own size. */
#ifndef QOBS_STATE_BYTES_H
#define QOBS_STATE_BYTES_H

#include "plan/plan.h"

/* Elements of that many bytes in the machine's order to little-endian or back. */
void qobs_copy_elements(unsigned char *to, const unsigned char *from, size_t n, size_t size);

/* FNV-1a. */
uint64_t qobs_hash(const unsigned char *p, size_t n);

/* Where bytes go; with `to` NULL they are only counted. */
struct sink {
    unsigned char *to;
    size_t size;
};

void qobs_put(struct sink *sink, uint64_t value, size_t bytes);
void qobs_put_elements(struct sink *sink, const void *from, size_t n, size_t size);
void qobs_put_shape(struct sink *sink, const struct shape *shape); /* u32 ndim, u64 extents */

/* Where bytes come from; past the end everything is 0 and `short_of` says so. */
struct source {
    const unsigned char *at, *end;
    bool short_of;
};

uint64_t qobs_get(struct source *source, size_t bytes);

/* n bytes, if they are there, or NULL; n elements, if they are there. */
const unsigned char *qobs_get_bytes(struct source *source, size_t n);
bool qobs_get_elements(struct source *source, void *to, size_t n, size_t size);

/* Returns how many elements it has, or 0 if it cannot be. */
size_t qobs_get_shape(struct source *source, struct shape *shape);

#endif
