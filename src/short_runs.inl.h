/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Short runs, LANES of them at a time, sharing one transposed fold (fold.inl.h). Included by minmax.inl.h and absmax.inl.h after
 * struct K(runs), which says where they are, and K(one_fold), which takes LANES of them. */

/* Runs of fewer vectors than this share one transposed fold; longer ones are folded one by one. */
#define FOLD_TOGETHER 32

/* Returns how many it did. */
static UNFOLDED size_t K(short_runs)(enum K(layout) layout, struct K(runs) r, size_t runs)
{
    size_t done = 0;
    for (; runs - done >= LANES; done += LANES)
        K(one_fold)(layout, &r, done);
    return done;
}

/* Does each run follow the one before at once? */
static inline bool K(packed)(const struct K(runs) *r) { return r->run_stride == (ptrdiff_t)(r->length * sizeof(BITS)); }

/* Those at the beginning that can be folded together; returns how many these are. */
static size_t K(fold_short_runs)(struct K(runs) r, size_t runs)
{
    if (r.length > 2 * LANES && r.length < FOLD_TOGETHER * LANES)
        return K(short_runs)(K(LONGER), r, runs);
    if (r.length > LANES && r.length <= 2 * LANES)
        return K(short_runs)(K(VECTORS), r, runs);
    if (r.length == LANES)
        return K(short_runs)(K(WHOLE), r, runs);
    if (LANES >= 8 && r.length == LANES / 2 && K(packed)(&r))
        return K(short_runs)(K(HALVES), r, runs);
    if (LANES >= 16 && r.length == LANES / 4 && K(packed)(&r))
        return K(short_runs)(K(QUARTERS), r, runs);
    return 0;
}

#undef FOLD_TOGETHER
