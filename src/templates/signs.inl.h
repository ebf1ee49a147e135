/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Included by minmax.inl.h and absmax.inl.h for the element width at hand. */

/* True if the four vectors at x hold both signs. Then the largest raw bits of everything they are part of are the
 * maximum if compared as signed integers, and the minimum if compared as unsigned integers. */
static inline bool K(begins_with_both_signs)(const unsigned char *x)
{
    vec lo = vec_load(x), hi = lo;
    for (int i = 1; i < 4; i++) {
        lo = K(vec_min_s)(lo, vec_load(x + i * VEC_BYTES));
        hi = K(vec_max_s)(hi, vec_load(x + i * VEC_BYTES));
    }
    return K(vec_any_ge)(hi, K(vec_splat)(0)) && K(vec_any_ge)(vec_not(lo), K(vec_splat)(0));
}
