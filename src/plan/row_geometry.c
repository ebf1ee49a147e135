/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "plan/row_geometry.h"

bool qobs_row_geometry_of(const struct granularity *granularity, int64_t columns, struct row_geometry *geometry)
{
    struct row_geometry g = {.columns = columns};
    if (!granularity->ops->shared || !granularity->ops->shared(&granularity->params, &g.unit, &g.run))
        return false;
    if (g.run <= 0 || g.run > columns)
        g.run = columns;
    g.full = columns / g.run;
    g.left = columns % g.run;
    g.per_unit = g.full + (g.left > 0);
    g.whole_units = g.unit > 1 && granularity->ops->whole_units;
    *geometry = g;
    return true;
}

bool qobs_row_loops(const struct row_geometry *g, const struct row_span *s, unsigned tile, struct loops *loops)
{
    const int64_t unit = qobs_geometry_unit(g, s->rows), units = s->rows / unit, left_rows = s->rows % unit;
    const int64_t runs = s->columns / g->run, left_columns = s->columns % g->run;
    const bool last_rows = tile & 1, last_run = tile & 2;
    const struct loop loop[] = {
        {last_rows ? left_rows > 0 : units, unit * s->in_stride, unit * s->out_stride, g->per_unit},
        {last_run ? left_columns > 0 : runs, g->run * s->in_element, g->run * s->out_element, 1},
        {last_rows ? left_rows : unit, s->in_stride, s->out_stride, 0},
        {last_run ? left_columns : g->run, s->in_element, s->out_element, 0},
    };
    const int64_t row = last_rows ? units : 0, run = last_run ? runs : 0;
    loops->in = s->in + row * loop[0].in + run * loop[1].in;
    loops->out = s->out ? s->out + row * loop[0].out + run * loop[1].out : NULL;
    loops->qparam = s->qparam + row * loop[0].qparam + run;
    loops->count = sizeof loop / sizeof *loop;
    for (int i = 0; i < loops->count; i++) {
        if (loop[i].extent == 0)
            return false;
        loops->loop[i] = loop[i];
    }
    return true;
}
