/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What each statistic keeps of the batches, and how a batch enters it: the table behind enum statistic. */
#ifndef QOBS_STATISTIC_KEEP_H
#define QOBS_STATISTIC_KEEP_H

#include "observer/observer.h"

/* n ranges (min, max) of one dtype, which a batch's (lo, hi) are to enter: what the functions in the table of statistics work on.
 * `fresh`: (min, max) are the batch's already, and lo and hi the same memory. */
struct entering {
    const qobs_config *config;
    qobs_dtype dtype;
    size_t n;
    void *min, *max;
    const void *lo, *hi;
    bool fresh;
};

/* What there is to read of the ranges. */
enum keeps {
    KEEPS_NOTHING,
    KEEPS_RANGE,
    KEEPS_ABSMAX, /* ranges from -amax to amax */
    KEEPS_BINS    /* the extremes of a histogram's elements, which are not read */
};
enum keeps qobs_keeps(const qobs_config *config);

/* Is of a batch's ranges only the magnitude wanted? */
bool qobs_takes_absmax(const qobs_config *config);

/* The ranges of several observers as one. */
enum merging {
    MERGE_LAST,     /* the observer's own stay */
    MERGE_EXTREMES, /* the least minimum, the greatest maximum */
    MERGE_MEANS
};
enum merging qobs_merging(const qobs_config *config);

/* Is every batch a vote? */
bool qobs_votes(const qobs_config *config);

/* Does a batch replace what was before? */
bool qobs_memoryless(const qobs_config *config);

/* Does a batch of another shape replace what was before? Else it is refused. */
bool qobs_begins_anew(const qobs_config *config);

/* What becomes of NaN and infinity in the batch: what is asked for, but for BFP, where upstream's own way is to count them
 * as 0, which for a magnitude is to leave them out. */
enum nonfinite_mode qobs_nonfinite_mode(const qobs_config *config);

/* Memory for a batch of that layout in `kept`, so that qobs_keep cannot fail. */
int qobs_keep_reserve(const qobs_observer *o, const struct layout *layout, struct kept *kept, qobs_error *error);

/* The batch in o->kept enters the state; `first`: there is no state, or none that counts. */
void qobs_keep(qobs_observer *o, bool first);

/* The same for the range of whole tensors, of which `batch` has the batch's. */
void qobs_keep_whole(const qobs_config *config, struct whole *whole, const struct whole *batch);

#endif
