/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "plan/plan.h"

unsigned qobs_plan_rectangles(const qobs_plan *plan)
{
    unsigned n = 1;
    for (int i = 0; i < plan->axes; i++)
        n <<= plan->axis[i].coarse >= 0;
    return n;
}

bool qobs_plan_rectangle(const qobs_plan *plan, unsigned ends, struct rectangle *rectangle)
{
    int64_t qparams = 1;
    for (int i = plan->axes - 1; i >= 0; i--) {
        const struct axis *a = &plan->axis[i];
        rectangle->first[i] = 0;
        rectangle->extent[i] = a->extent;
        rectangle->qparam[i] = a->role == AXIS_QPARAM ? qparams : 0;
        qparams *= a->role == AXIS_QPARAM ? a->extent : 1;
    }
    int cut = 0;
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *fine = &plan->axis[i];
        if (fine->coarse < 0)
            continue;
        const int64_t whole = fine->limit / fine->extent, left = fine->limit % fine->extent;
        if (ends >> cut++ & 1) {
            rectangle->first[fine->coarse] = whole;
            rectangle->extent[fine->coarse] = left > 0;
            rectangle->extent[i] = left;
        } else {
            rectangle->extent[fine->coarse] = whole;
        }
    }
    for (int i = 0; i < plan->axes; i++)
        if (rectangle->extent[i] == 0)
            return false;
    return true;
}
