/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* An observer as bytes, all numbers little-endian. In this order:
 *   - "qobs", u32 FORMAT, u64 size of everything, u32 length of the settings
 *   - the settings: the preset's name and "key=value", a line each
 *   - u64 batches, elements, NaN, infinities, tokens, tokens with an element other than 0
 *     since FORMAT 3: u64 ignored tensors
 *   - u32 dtype of the global range (0: none), its minimum, its maximum
 *   - u32 dtype of the ranges (0: none); if there are ranges:
 *     their shape and that of the scale (u32 ndim, u64 extents), u32 keying, minima, maxima
 *     u32 number of counted scales; for each u64 count, scales, zero points
 *   - if the preset searches: u64 columns and u64 tokens of importance, f64 sums; u64 qparams searched; if any:
 *     u32 steps, u32 stop step, u32 weighted, u32 fault, i32 best steps, f64 errors, f64 errors before
 *   - if errors are weighted by a Hessian: u64 tokens; if any: f64 sums of every block
 *   - if there are histograms: u64 bins; f32 first edge, last edge and step of each; f64 counts; numpy rule: f64 edges
 *   - if the preset takes a reference amax: u32 dtype, u64 elements, if any their shape and f32 amax
 *     u64 error weights, f32 weights; f64 error sums
 *   - u64 FNV-1a hash of all that */
#pragma once

#include "base/codec.h"
#include "observer/observer.h"

/* The version, and the oldest one that is read; the largest size of the settings' text and the size of the hash, in
 * bytes. */
enum { FORMAT = 3, MIN_FORMAT = 2, MOST_TEXT = 4096, HASH = 8 };

/* Everything between the settings and the hash. Saving cannot fail and changes nothing; loading fills an observer that
 * has its configuration. */
int qobs_code_state(struct codec *codec, qobs_observer *observer, qobs_error *error);

/* Fails with what is wrong with the bytes. */
int qobs_damaged(qobs_error *error, const char *what);

/* Ranges and batches may have that dtype. */
bool qobs_is_observable(qobs_dtype dtype);
