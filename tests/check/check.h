/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The kernel checker's own terms. A *check* is one aspect of one function of one table: a line of the result. It
 * makes many *calls*, each of the function under test and of its reference, and ends with the first that differs. */
#ifndef QOBS_CHECK_CHECK_H
#define QOBS_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "values.h"

enum form { ROWS, ROW_PANELS, COLUMNS, INDEXED, ABSMAX_ROWS, ABSMAX_COLUMNS, FORMS };

extern const char *const form_names[FORMS];

static inline bool is_rows(enum form form) { return form == ROWS || form == ABSMAX_ROWS; }
static inline bool is_columns(enum form form) { return form == COLUMNS || form == ABSMAX_COLUMNS; }
static inline bool is_absmax(enum form form) { return form == ABSMAX_ROWS || form == ABSMAX_COLUMNS; }

/* A table, and how often its functions have been called. */
struct subject {
    const struct kernel_table *table;
    const struct kernel_table *reference; /* NULL: the decoded elements (reference.h) */
    uint64_t calls;
};

struct check {
    struct subject *subject;
    enum form form;
    enum kernel_dtype index;
    const struct dtype *dtype; /* &dtypes[index] */
    const char *aspect;
    struct rng rng;
    bool sample; /* of the lengths at limits of large calls */
    bool failed;
};

/* The contents of min and max before a call; absmax: without signs. */
enum fill {
    IDENTITIES,
    EARLIER_RESULTS, /* any values but NaN and -0 */
    ZEROS,           /* of both signs; only where every result takes in a number, as a result is never -0 */
    FILLS
};

struct call {
    const unsigned char *x;
    ptrdiff_t stride;     /* bytes between runs or rows */
    size_t count;         /* runs or rows */
    size_t length;        /* elements of a run, or of a row: columns, runs of panels */
    ptrdiff_t out_stride; /* elements; rows only */
    enum data data;
    enum fill fill;
    bool at_end; /* x lies `offset` bytes before a no-access area, else behind one */
    size_t offset;
};

/* Before the first check. */
void call_init(void);

/* True if the table has the kernel. */
bool form_is_there(const struct kernel_table *table, enum form form, int dtype);

/* Calls the function under test and its reference and compares everything they wrote. Reports a difference or a
 * fault. */
void call_run(struct check *check, const struct call *call);

/* Bytes from the lowest to the highest that a call may touch. Sets how far x lies above the lowest. */
size_t call_extent(const struct check *check, const struct call *call, size_t *below);

/* A part of a check; it makes more calls for larger `rounds`. */
struct aspect {
    const char *name;
    void (*run)(struct check *check, unsigned rounds);
};

extern const struct aspect aspects[]; /* ends with NULL */

void aspects_init(void);

#endif
