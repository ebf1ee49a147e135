/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Values that vary in every model that was trained: codes of a layer, scales of the layers, scales of keys and values.
 * Files that were not filled, and calibrations that saw nothing, do not vary. */
#include <string.h>

#include "audit/audit.h"
#include "files/text.h"

enum { FEW = 64, FEW_LAYERS = 16 }; /* numbers that may be the same by chance */

void audit_see_codes(struct audit_module *m, const unsigned char *codes, size_t count)
{
    struct audit_use *use = &m->use;
    if (count < 2 || use->varied)
        return;
    if (!use->seen)
        memcpy(use->pair, codes, sizeof use->pair);
    use->seen = true;
    use->varied = memcmp(codes, use->pair, sizeof use->pair) != 0 || memcmp(codes, codes + 2, count - 2) != 0;
}

void audit_see_scales(struct audit_module *m)
{
    const unsigned char *data = m->scale->data;
    const size_t bytes = (size_t)(m->scale->end - m->scale->begin), size = dtype_size(m->scale->dtype);
    m->use.one_scale = bytes >= size && memcmp(data, data + size, bytes - size) == 0;
    m->use.scale = m->use.one_scale ? audit_scale_number(m->scale, 0) : 0;
}

/* The original may not vary either. */
static bool is_near_original(const struct audit_module *m)
{
    return m->difference.known && m->difference.error < m->difference.energy / 4;
}

/* A layer of zeros has codes of zero, or under zero points any, and one scale. */
void audit_check_constant(struct audit *audit, const struct audit_module *m)
{
    const bool zeros = m->use.one_scale && (m->use.used == 0 || m->zero_point);
    if (m->use.varied || zeros || is_near_original(m) || m->rows * m->columns < FEW)
        return;
    if (m->use.pair[0] == m->use.pair[1])
        audit_find(audit, m, "all codes are one, %d", (signed char)m->use.pair[0]);
    else
        audit_find(audit, m, "its codes are two, %d and %d, again and again", (signed char)m->use.pair[0],
                   (signed char)m->use.pair[1]);
}

void audit_check_same_scales(struct audit *audit)
{
    size_t count = 0;
    bool used = false;
    if (audit->module_count <= FEW_LAYERS)
        return;
    const float first = audit->modules->use.scale;
    for (size_t i = 0; i < audit->module_count; i++) {
        const struct audit_module *m = &audit->modules[i];
        if (!m->use.one_scale || m->use.scale != first || is_near_original(m))
            return;
        count += audit_element_count(m->scale);
        used = used || m->use.used > 0;
    }
    if (used && count >= FEW)
        audit_find(audit, NULL, "all %zu scales of weights are %g", count, (double)first);
}

/* Scales of keys and values are no weights of 1. Model-Optimizer writes 1 where smaller ones would do. */
void audit_check_cache_scales(struct audit *audit)
{
    size_t count = 0, ones = 0;
    for (size_t i = 0; i < audit->model.count; i++) {
        const struct st_tensor *t = audit->model.tensors[i].stored;
        if (!ends_with(t->name, ".k_scale") && !ends_with(t->name, ".v_scale"))
            continue;
        if (audit_element_count(t) != 1 || !dtype_is_in(t->dtype, HALVES_AND_FLOATS) || st_borrow(t, NULL) != QOBS_OK)
            return;
        count++;
        ones += audit_scale_number(t, 0) == 1;
        st_release(t);
    }
    if (count > 1 && ones == count && !audit->maker)
        audit_find(audit, NULL, "all %zu scales of keys and values are 1: nothing was calibrated", count);
}
