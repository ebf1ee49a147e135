/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A preset is a name for a fixed triple of granularity, statistic and convention, with the defaults of the upstream class. */
#ifndef QOBS_PRESET_H
#define QOBS_PRESET_H

#include "qobs/qobs.h"

/* Which upstream's settings, granularity rules, convention and result names a preset has. */
enum family { FAMILY_LLMC = 1, FAMILY_TORCH = 2 };

enum statistic {
    STATISTIC_MEMORYLESS,     /* the last batch */
    STATISTIC_RUNNING,        /* the extremes of all batches */
    STATISTIC_AVERAGE_LERP,   /* min * (1 - c) + lo * c, in the tensor's dtype */
    STATISTIC_AVERAGE_TOWARDS /* min + c * (lo - min), in f32 */
};

struct preset {
    const char *name;
    enum family family;
    enum statistic statistic;
    const char *summary;
};

/* The preset called `name`, or NULL. */
const struct preset *qobs_preset_find(const char *name);

#endif
