/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Included by minmax.inl.h and absmax.inl.h for the element width at hand. */

/* Do four vectors from x on hold both signs? Of what they are part of the largest raw bits as signed are then the maximum and the largest
 * as unsigned the minimum, whatever follows. */
static inline bool K(begins_with_both)(const unsigned char *x)
{
    vec quant_min = vec_load(x), most = quant_min;
    for (int i = 1; i < 4; i++) {
        quant_min = K(vec_min_s)(quant_min, vec_load(x + i * VEC_BYTES));
        most = K(vec_max_s)(most, vec_load(x + i * VEC_BYTES));
    }
    return K(vec_any_ge)(most, K(vec_splat)(0)) && K(vec_any_ge)(vec_not(quant_min), K(vec_splat)(0));
}
