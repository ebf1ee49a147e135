/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* An observer as bytes.
 *
 * A saved state, all numbers little-endian: "qobs", u32 format version, u64 size of the whole, u32 length of the settings
 * and their text (the preset's name, then "key=value", a line each), u64 batches, elements, NaN, infinite, tokens, tokens with
 * an element other than 0, u32 dtype of the range of the whole (0: there is none), its minimum and maximum, u32 dtype of the
 * ranges (0: there are none); if there are, the shape of the ranges and the shape of scale (u32 ndim, u64 extents), u32 under
 * which names (enum ids), the minima, the maxima, u32 number of candidates voted for and of each u64 votes, scales, zero
 * points; for presets that search u64 columns and tokens of importance and f64 sums of squares, u64 qparams searched, and if there
 * are any u32 steps, stop step, weighted or not and why not, and of each i32 best step, f64 error, f64 error before; for presets
 * with histograms, if there are ranges, u64 bins, of each histogram f32 first edge, last edge and step, then of each the f64
 * masses and, with torch_hist=false, the f64 edges; for those of Model-Optimizer that search u32 dtype and u64 elements of the
 * amax given, if any its shape, f32 amax, u64 error weights given, f32 weights and, where they are summed, f64 errors; and the
 * FNV-1a hash of all that. */
#ifndef QOBS_STATE_FORMAT_H
#define QOBS_STATE_FORMAT_H

#include "observer/observer.h"
#include "observer/post_search.h"
#include "observer/bytes.h"

/* The version; bytes of the settings' text at most; bytes of the hash. */
enum { FORMAT = 2, MOST_TEXT = 4096, HASH = 8 };

/* What else is loaded where the configuration has it, into an observer that has its configuration and its ranges
 * (load_search.c, load_histogram.c). */
int qobs_load_search(qobs_observer *observer, struct source *source, qobs_error *error);
int qobs_load_histogram(qobs_observer *observer, struct source *source, qobs_error *error);
int qobs_load_told(qobs_observer *observer, struct source *source, qobs_error *error);

/* Fails with what is wrong with the bytes. */
int qobs_damaged(qobs_error *error, const char *what);

/* Is anything told to the search before the first batch? */
static inline bool qobs_is_told(const qobs_observer *o)
{
    return o->config.preset->family == FAMILY_MODELOPT && qobs_searches_kept(&o->config);
}

#endif
