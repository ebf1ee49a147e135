/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Runs that are not long, LANES of them at a time, sharing one transposed fold (fold.inl.h). Included by minmax.inl.h and absmax.inl.h after
 * signs.inl.h, struct K(runs), which says where they are; K(merge_extent), which merges the bounds of LANES of them into the caller's; and
 * K(one_by_one), which takes LANES of them whatever they hold. FORM: what is tried first. */

/* Runs of fewer bytes than FOLD_MOST share one transposed fold; from nearer than memory (bytes of all runs) longer ones do, too, but for doubles,
 * which only long runs have instructions for. */
#define FOLD_MOST 4160
#define FOLD_MOST_NEAR 131072
#define FOLD_NEAR ((size_t)16 << 20)
/* From this size on keys take longer than runs one by one. */
#define LONGER_RUNS 2048
/* Where LANES of the longer ones do not hold, so many are taken one by one before the rest is tried again. */
#define APART (8 * LANES)
/* Where raw bits do not do, so many folds are made with keys before they are tried again. */
#define KEYED 64

/* Are the bounds what the form makes them for? Raw bits: the sign inverted, unsigned order is signed order, in which what is wanted is
 * below infinity: minima that are negative and maxima that are not, all of them finite. */
static UNFOLDED bool K(hold)(enum K(form) form, struct K(extent) e, BITS inf)
{
    if (form == K(RAW)) {
        const vec most = K(vec_max_s)(e.lo, vec_xor(e.hi, K(vec_splat)(MOST_NEGATIVE)));
        return !K(vec_any_ge)(most, K(vec_splat)((KEY)(inf ^ (BITS)MOST_NEGATIVE)));
    }
    return !K(vec_any_ge)(form == K(KEYS) ? K(vec_max_s)(e.hi, vec_not(e.lo)) : e.hi, K(vec_splat)((KEY)inf));
}

/* Folds from `run` on while their bounds hold; returns the run it came to. A call in the loop would take its constants from it. */
static UNFOLDED size_t K(folds)(enum K(form) form, enum K(layout) layout, const struct K(runs) *runs, size_t run, size_t end)
{
    const struct K(runs) r = *runs;
    const unsigned char *x = r.x + (ptrdiff_t)run * r.run_stride;
    for (; end - run >= LANES; run += LANES, x += (ptrdiff_t)LANES * r.run_stride) {
        const struct K(extent) e = K(fold_runs)(form, layout, x, r.run_stride, r.length);
        if (__builtin_expect(!K(hold)(form, e, r.inf), 0))
            break;
        K(merge_extent)(form, e, &r, run);
    }
    return run;
}

static inline bool K(is_longer)(const struct K(runs) *r) { return r->length * sizeof(BITS) >= LONGER_RUNS; }

/* Where FORM does not do: some folds with keys, or, where something is not finite or runs are longer, one by one. */
static __attribute__((noinline)) size_t K(slow_folds)(enum K(layout) layout, const struct K(runs) *r, size_t run, size_t end)
{
    if (FORM == K(RAW) && K(is_longer)(r)) {
        const size_t most = end - run < APART ? (end - run) / LANES * LANES : APART;
        for (size_t done = 0; done < most; done += LANES)
            K(one_by_one)(r, run + done);
        return run + most;
    }
    if (FORM == K(RAW)) {
        const size_t most = end - run < KEYED * LANES ? end : run + KEYED * LANES;
        size_t done;
        if (layout == K(LONGER))
            done = K(folds)(K(KEYS), K(LONGER), r, run, most);
        else if (layout == K(FOUR))
            done = K(folds)(K(KEYS), K(FOUR), r, run, most);
        else if (layout == K(TWO))
            done = K(folds)(K(KEYS), K(TWO), r, run, most);
        else if (LANES >= 16 && layout == K(QUARTERS))
            done = K(folds)(K(KEYS), K(QUARTERS), r, run, most);
        else if (LANES >= 8 && layout == K(HALVES))
            done = K(folds)(K(KEYS), K(HALVES), r, run, most);
        else
            done = K(folds)(K(KEYS), K(WHOLE), r, run, most);
        if (done > run)
            return done;
    }
    K(one_by_one)(r, run);
    return run + LANES;
}

/* Returns how many it did. */
static UNFOLDED size_t K(short_runs)(enum K(layout) layout, const struct K(runs) *r, size_t runs)
{
    size_t done = 0;
    while (runs - done >= LANES) {
        if (FORM != K(RAW) || !K(is_longer)(r) || K(begins_with_both)(r->x + (ptrdiff_t)done * r->run_stride))
            done = K(folds)(FORM, layout, r, done, runs);
        if (runs - done >= LANES)
            done = K(slow_folds)(layout, r, done, runs);
    }
    return done;
}

/* Does each run follow the one before at once? */
static inline bool K(packed)(const struct K(runs) *r) { return r->run_stride == (ptrdiff_t)(r->length * sizeof(BITS)); }

/* Those at the beginning that can be folded together; returns how many these are. */
static size_t K(fold_short_runs)(const struct K(runs) *r, size_t runs)
{
    const bool near = WIDTH != 64 && runs * r->length < FOLD_NEAR / sizeof(BITS);
    const size_t most = (near ? FOLD_MOST_NEAR : FOLD_MOST) / sizeof(BITS);
    if (r->length > 4 * LANES && r->length < most)
        return K(short_runs)(K(LONGER), r, runs);
    if (r->length > 2 * LANES && r->length <= 4 * LANES)
        return K(short_runs)(K(FOUR), r, runs);
    if (r->length > LANES && r->length <= 2 * LANES)
        return K(short_runs)(K(TWO), r, runs);
    if (r->length == LANES)
        return K(short_runs)(K(WHOLE), r, runs);
    if (LANES >= 8 && r->length == LANES / 2 && K(packed)(r))
        return K(short_runs)(K(HALVES), r, runs);
    if (LANES >= 16 && r->length == LANES / 4 && K(packed)(r))
        return K(short_runs)(K(QUARTERS), r, runs);
    return 0;
}

#undef FOLD_MOST
#undef FOLD_MOST_NEAR
#undef FOLD_NEAR
#undef LONGER_RUNS
#undef KEYED
#undef APART
