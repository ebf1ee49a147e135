/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Results of an observer under upstream's names. Each result is a row of the table in result_rows.c; results.c looks
 * rows up and names them. */
#pragma once

#include "observer/observer.h"

struct result_type {
    qobs_dtype dtype;
    struct shape shape;
};

/* The destination of a part of a result. */
struct reading {
    size_t part;
    void *out;
    size_t size; /* of out, in bytes: the type's */
    qobs_error *error;
};

struct result_row {
    const char *name;
    bool is_range;                                 /* upstream may keep it in parts: one for each block or group */
    bool (*exists)(const qobs_observer *observer); /* for this configuration */
    /* QOBS_OK: there is a value now. `name` is for the message. */
    int (*check)(const qobs_observer *observer, const char *name, qobs_error *error);
    struct result_type (*type)(const qobs_observer *observer);
    int (*read)(const qobs_observer *observer, const struct reading *reading); /* NULL: the value is stored */
    size_t member;                                                             /* of the observer, where it is */
    bool is_array;                                                             /* the member points to it */
};

extern const struct result_row qobs_result_rows[];
extern const size_t qobs_result_row_count;

/* A result, and which part of it. */
struct result_item {
    const struct result_row *row;
    size_t part;
};

/* The parts of a row that can be read now. */
size_t qobs_result_parts(const qobs_observer *observer, const struct result_row *row);

/* The result of that name, if it can be read now. */
int qobs_result_find(const qobs_observer *observer, const char *name, struct result_item *item, qobs_error *error);

/* Writes a result that can be read now. */
int qobs_result_read(const qobs_observer *observer, struct result_item item, void *out, size_t size, qobs_error *error);

/* Fills all but struct_size. */
void qobs_result_describe(const qobs_observer *observer, struct result_item item, qobs_result *result);

/* The number of groups or blocks in a row of the layout, whose ranges are two-dimensional. */
static inline size_t qobs_groups_per_row(const struct layout *layout)
{
    return (size_t)layout->range.extent[layout->range.ndim - 1];
}
