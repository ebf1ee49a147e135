/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table of results: one row for each name upstream has. */
#include <string.h>

#include "base/error.h"
#include "observer/qparams.h"
#include "observer/results.h"

static const struct shape one = {.ndim = 1, .extent = {1}};

static int fail_unobserved(const char *name, qobs_error *error)
{
    return qobs_fail(error, QOBS_ERROR_NO_DATA, "%s: nothing has been observed yet", name);
}

static int check_ranges(const qobs_observer *o, qobs_error *error)
{
    return qobs_state_is_empty(&o->state) ? fail_unobserved("observer", error) : QOBS_OK;
}

static int copy(void *out, const void *from, size_t size)
{
    memcpy(out, from, size);
    return QOBS_OK;
}

/* ---- Ranges: min_val, max_val, amax ---------------------------------------------------------------------------------- */

static bool has_min_max(const qobs_observer *o)
{
    return o->stages.results.min_max || qobs_finds_min_max(&o->stages.range);
}

/* All ranges, or those that upstream keeps under one name. */
static struct shape range_shape(const qobs_observer *o)
{
    const struct layout *layout = &o->state.layout;
    if (layout->keying == KEYING_GROUPS)
        return (struct shape){.ndim = 2, .extent = {layout->range.extent[0], 1}};
    return layout->keying == KEYING_BLOCKS ? (struct shape){.ndim = 2, .extent = {1, 1}} : layout->range;
}

/* Upstream's percentile of an empty histogram is a list of one range. */
static struct result_type max_type(const qobs_observer *o)
{
    return (struct result_type){o->state.layout.dtype, qobs_found_is_list(o) ? one : range_shape(o)};
}

static struct result_type min_type(const qobs_observer *o)
{
    struct result_type type = max_type(o);
    if (qobs_min_is_integer(o))
        type.dtype = QOBS_I64;
    return type;
}

/* One part of the ranges: a column of groups, one block, or all. */
static int read_part(const qobs_observer *o, const unsigned char *from, size_t part, void *out)
{
    const struct layout *layout = &o->state.layout;
    const size_t element = qobs_dtype_size(layout->dtype);
    const size_t step = layout->keying == KEYING_GROUPS   ? qobs_groups_per_row(layout)
                        : layout->keying == KEYING_BLOCKS ? layout->qparams
                                                          : 1;
    for (size_t i = part, n = 0; i < layout->qparams; i += step, n++)
        memcpy((unsigned char *)out + n * element, from + i * element, element);
    return QOBS_OK;
}

static int read_min(const qobs_observer *o, size_t part, void *out, qobs_error *error)
{
    float min;
    if (!qobs_finds_min_max(&o->stages.range))
        return read_part(o, o->state.ranges.min, part, out);
    const int status = qobs_find_ranges(o, &min, NULL, error);
    const int64_t integer = (int64_t)min;
    if (status == QOBS_OK)
        copy(out, qobs_min_is_integer(o) ? (const void *)&integer : &min, qobs_min_is_integer(o) ? sizeof integer : sizeof min);
    return status;
}

static int read_max(const qobs_observer *o, size_t part, void *out, qobs_error *error)
{
    return qobs_finds_min_max(&o->stages.range) ? qobs_find_ranges(o, NULL, out, error)
                                                : read_part(o, o->state.ranges.max, part, out);
}
