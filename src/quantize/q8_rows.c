/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "quantize/q8_rows.h"

#include <math.h>
#include <string.h>

#include "number/convert.h"

/* Writes the first element of the block's largest magnitude over its maximum. */
static void put_peak(const struct q8_rows *q, const unsigned char *x, const unsigned char *min, unsigned char *max)
{
    const double low = -qobs_element(min, q->dtype), high = qobs_element(max, q->dtype);
    const unsigned char *first = low > high ? min : max;
    if (low == high)
        for (first = x; fabs(qobs_element(first, q->dtype)) != high;)
            first += q->element;
    memmove(max, first, (size_t)q->element);
}

static void put_peaks(const struct q8_rows *q, const struct q8_matrix *m, const unsigned char *min, unsigned char *max)
{
    const int64_t size = q->element, block = q8_elements(q->block) * size;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t b = 0; b < m->blocks; b++, min += size, max += size)
            put_peak(q, m->x + r * m->x_stride + b * block, min, max);
}

enum { READ_BEHIND = 15 }; /* elements behind the last that kernels read and do not use */

void qobs_q8_rows(const struct q8_rows *q, const struct q8_matrix *m, const unsigned char *min, unsigned char *max)
{
    const int64_t bytes = m->rows * m->blocks * q->element;
    const bool dense = m->rows == 1 || (m->x_stride == m->blocks * q8_elements(q->block) * q->element &&
                                        m->out_stride == m->blocks * q8_bytes(q->block));
    if (is_q8_k(q->block))
        put_peaks(q, m, min, max);
    memset(max + bytes, 0, (size_t)(READ_BEHIND * q->element));
    if (dense) {
        q->kernel(q->block, m->x, (size_t)(m->rows * m->blocks), max, m->out);
        return;
    }
    for (int64_t r = 0; r < m->rows; r++)
        q->kernel(q->block, m->x + r * m->x_stride, (size_t)m->blocks, max + r * m->blocks * q->element,
                  m->out + r * m->out_stride);
}
