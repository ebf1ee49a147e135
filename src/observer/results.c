/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Results by name and by index. Ranges that upstream keeps in parts are named min_val[default], min_val[1], ... for
 * groups and min_val[block_0_0], ... for blocks. */
#include "observer/results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static size_t parts_of(const qobs_observer *o, const struct result_row *row)
{
    const struct layout *layout = &o->state.layout;
    if (!row->is_range || layout->keying < KEYING_GROUPS)
        return 1;
    return layout->keying == KEYING_GROUPS ? qobs_groups_per_row(layout) : layout->qparams;
}

size_t qobs_result_parts(const qobs_observer *o, const struct result_row *row)
{
    return row->exists(o) && row->check(o, row->name, NULL) == QOBS_OK ? parts_of(o, row) : 0;
}

static void name_of(const qobs_observer *o, struct result_item item, char name[QOBS_RESULT_NAME])
{
    const struct layout *layout = &o->state.layout;
    const char *plain = item.row->name;
    if (!item.row->is_range || layout->keying == KEYING_NONE)
        snprintf(name, QOBS_RESULT_NAME, "%s%s", plain, item.row->is_range && o->stages.traits.plural_names ? "s" : "");
    else if (layout->keying == KEYING_BLOCKS)
        snprintf(name, QOBS_RESULT_NAME, "%s[block_%zu_%zu]", plain, item.part / qobs_groups_per_row(layout),
                 item.part % qobs_groups_per_row(layout));
    else if (item.part > 0)
        snprintf(name, QOBS_RESULT_NAME, "%s[%zu]", plain, item.part);
    else
        snprintf(name, QOBS_RESULT_NAME, "%s[default]", plain);
}

/* The index in the brackets of `name`; the caller compares the full name. */
static size_t part_in(const qobs_observer *o, const char *name)
{
    const struct layout *layout = &o->state.layout;
    const char *key = strchr(name, '[');
    if (!key || layout->keying == KEYING_NONE)
        return 0;
    if (layout->keying != KEYING_BLOCKS)
        return (size_t)strtoull(key + 1, NULL, 10);
    if (strncmp(key, "[block_", 7) != 0)
        return 0;
    const char *column = strrchr(key, '_');
    return (size_t)strtoull(key + 7, NULL, 10) * qobs_groups_per_row(layout) + (size_t)strtoull(column + 1, NULL, 10);
}

int qobs_result_find(const qobs_observer *o, const char *name, struct result_item *item, qobs_error *error)
{
    char known[230] = "", own[QOBS_RESULT_NAME];
    size_t length = 0;
    for (size_t i = 0; i < qobs_result_row_count; i++) {
        const struct result_row *row = &qobs_result_rows[i];
        const bool exists = row->exists(o);
        *item = (struct result_item){.row = row, .part = name && row->is_range ? part_in(o, name) : 0};
        name_of(o, (struct result_item){.row = row}, own);
        if (exists && length < sizeof known)
            length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", length > 0 ? ", " : "", own);
        if (item->part < parts_of(o, row))
            name_of(o, *item, own);
        if (exists && name && strcmp(name, own) == 0)
            return row->check(o, name, error);
    }
    return qobs_invalid(error, "name: '%s' is no result of %s; known are %s", name ? name : "(null)",
                        o->config.preset->name, *known ? known : "none");
}

void qobs_result_describe(const qobs_observer *o, struct result_item item, qobs_result *result)
{
    const struct result_type type = item.row->type(o);
    *result = (qobs_result){.struct_size = result->struct_size,
                            .dtype = type.dtype,
                            .ndim = type.shape.ndim,
                            .size = qobs_dtype_size(type.dtype)};
    name_of(o, item, result->name);
    memcpy(result->shape, type.shape.extent, sizeof result->shape);
    for (int d = 0; d < type.shape.ndim; d++)
        result->size *= (size_t)type.shape.extent[d];
}

int qobs_result_read(const qobs_observer *o, struct result_item item, void *out, size_t size, qobs_error *error)
{
    const void *from = (const unsigned char *)o + item.row->member;
    if (item.row->read)
        return item.row->read(o, &(struct reading){item.part, out, size, error});
    if (item.row->is_array)
        memcpy(&from, from, sizeof from);
    memcpy(out, from, size);
    return QOBS_OK;
}
