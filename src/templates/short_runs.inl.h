/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Short runs, LANES of them at a time, through one transposed reduction (transpose_reduce.inl.h). Included by
 * minmax.inl.h and absmax.inl.h after transpose_reduce.inl.h and these:
 *   struct K(runs)        where the runs and their outputs are
 *   K(merge_extent)       merges bounds of LANES runs into the outputs
 *   K(one_by_one)         reduces LANES runs whatever they hold
 *   FORM                  the form of accumulators that is tried first */

/* True if bounds of this form are right. Keys and magnitudes: all elements are finite. Raw bits: every minimum is
 * negative, every maximum is not, and both are finite; with the sign inverted, unsigned order is signed order. */
DEEP_INLINE bool K(is_right)(enum bounds_form form, struct K(extent) e, BITS inf)
{
    if (form == AS_RAW_BITS) {
        const vec most = K(vec_max_s)(e.lo, e.hi ^ K(vec_splat)(MOST_NEGATIVE));
        return !K(vec_any_ge)(most, K(vec_splat)((KEY)(inf ^ (BITS)MOST_NEGATIVE)));
    }
    return !K(vec_any_ge)(form == AS_KEYS ? K(vec_max_s)(e.hi, ~e.lo) : e.hi, K(vec_splat)((KEY)inf));
}

/* True if there is no gap between runs. */
static inline bool K(packed)(const struct K(runs) * r)
{
    return r->run_stride == (ptrdiff_t)(r->length * sizeof(BITS));
}

/* Reduces groups of LANES runs from `run` on while their bounds are right; returns the first run that is left. There
 * is no call in the loop: it would evict the constants from registers. */
DEEP_INLINE size_t K(reduce_groups)(enum bounds_form form, enum run_layout layout, const struct K(runs) * runs,
                                    size_t run, size_t end)
{
    const struct K(runs) r = *runs;
    const unsigned char *x = r.x + (ptrdiff_t)run * r.run_stride;
    const ptrdiff_t ahead = K(packed)(&r) ? r.ahead : 0; /* nothing in gaps between runs */
    for (; end - run >= LANES; run += LANES, x += (ptrdiff_t)LANES * r.run_stride) {
        const struct K(extent) e = K(reduce_runs)(form, layout, x, r.run_stride, r.length, ahead);
        if (__builtin_expect(!K(is_right)(form, e, r.inf), 0))
            break;
        K(merge_extent)(form, e, &r, run);
    }
    return run;
}

static inline bool K(exceeds_keys)(const struct K(runs) * r) { return r->length * sizeof(BITS) >= KEYS_RUN_BYTES; }

/* At least one group for which FORM is not right: as keys, or, if an element is not finite or runs are too long for
 * that, one by one. */
static __attribute__((noinline)) size_t K(reduce_group_slowly)(enum run_layout layout, const struct K(runs) * r,
                                                               size_t run, size_t end)
{
    if (FORM == AS_RAW_BITS && K(exceeds_keys)(r)) {
        const size_t most = end - run < SINGLE_GROUPS * LANES ? (end - run) / LANES * LANES : SINGLE_GROUPS * LANES;
        for (size_t done = 0; done < most; done += LANES)
            K(one_by_one)(r, run + done);
        return run + most;
    }
    if (FORM == AS_RAW_BITS) {
        const size_t most = end - run < KEYED_GROUPS * LANES ? end : run + KEYED_GROUPS * LANES;
        size_t done;
        if (layout == OVER_4_VECTORS)
            done = K(reduce_groups)(AS_KEYS, OVER_4_VECTORS, r, run, most);
        else if (layout == OVER_2_VECTORS)
            done = K(reduce_groups)(AS_KEYS, OVER_2_VECTORS, r, run, most);
        else if (layout == OVER_1_VECTOR)
            done = K(reduce_groups)(AS_KEYS, OVER_1_VECTOR, r, run, most);
        else if (LANES >= 16 && layout == QUARTER_VECTORS)
            done = K(reduce_groups)(AS_KEYS, QUARTER_VECTORS, r, run, most);
        else if (LANES >= 8 && layout == HALF_VECTORS)
            done = K(reduce_groups)(AS_KEYS, HALF_VECTORS, r, run, most);
        else
            done = K(reduce_groups)(AS_KEYS, ONE_VECTOR, r, run, most);
        if (done > run)
            return done;
    }
    K(one_by_one)(r, run);
    return run + LANES;
}

/* Returns the number of runs done. */
DEEP_INLINE size_t K(short_runs)(enum run_layout layout, const struct K(runs) * r, size_t runs)
{
    size_t done = 0;
    while (runs - done >= LANES) {
        if (FORM != AS_RAW_BITS || !K(exceeds_keys)(r) ||
            K(begins_with_both_signs)(r->x + (ptrdiff_t)done * r->run_stride))
            done = K(reduce_groups)(FORM, layout, r, done, runs);
        if (runs - done >= LANES)
            done = K(reduce_group_slowly)(layout, r, done, runs);
    }
    return done;
}

/* Reduces the groups at the beginning that are short enough; returns the number of runs done. */
static size_t K(reduce_short_runs)(const struct K(runs) * r, size_t runs)
{
    if (r->length > 4 * LANES && r->length < REDUCE_RUN_BYTES / sizeof(BITS))
        return K(short_runs)(OVER_4_VECTORS, r, runs);
    if (r->length > 2 * LANES && r->length <= 4 * LANES)
        return K(short_runs)(OVER_2_VECTORS, r, runs);
    if (r->length > LANES && r->length <= 2 * LANES)
        return K(short_runs)(OVER_1_VECTOR, r, runs);
    if (r->length == LANES)
        return K(short_runs)(ONE_VECTOR, r, runs);
    if (LANES >= 8 && r->length == LANES / 2 && K(packed)(r))
        return K(short_runs)(HALF_VECTORS, r, runs);
    if (LANES >= 16 && r->length == LANES / 4 && K(packed)(r))
        return K(short_runs)(QUARTER_VECTORS, r, runs);
    return 0;
}
