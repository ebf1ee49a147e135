/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "plan/plan.h"

unsigned qobs_plan_tiles(const qobs_plan *plan)
{
    unsigned n = 1;
    for (int i = 0; i < plan->axes; i++)
        n <<= plan->axis[i].outer >= 0;
    return n;
}

bool qobs_plan_tile(const qobs_plan *plan, unsigned ends, struct tile *tile)
{
    int64_t qparams = 1;
    for (int i = plan->axes - 1; i >= 0; i--) {
        const struct axis *a = &plan->axis[i];
        tile->first[i] = 0;
        tile->extent[i] = a->extent;
        tile->qparam[i] = a->role == AXIS_QPARAM ? qparams : 0;
        qparams *= a->role == AXIS_QPARAM ? a->extent : 1;
    }
    int cut = 0;
    for (int i = 0; i < plan->axes; i++) {
        const struct axis *fine = &plan->axis[i];
        if (fine->outer < 0)
            continue;
        const int64_t whole = fine->unpadded / fine->extent, left = fine->unpadded % fine->extent;
        if (ends >> cut++ & 1) {
            tile->first[fine->outer] = whole;
            tile->extent[fine->outer] = left > 0;
            tile->extent[i] = left;
        } else {
            tile->extent[fine->outer] = whole;
        }
    }
    for (int i = 0; i < plan->axes; i++)
        if (tile->extent[i] == 0)
            return false;
    return true;
}
