/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Magnitudes as integers, for one element width, after minmax_key.inl.h. A float's bits without the sign have the
 * order of its magnitude; bits above those of infinity are NaN. */

/* The element-by-element form: the definition of the result, the tail of the vector forms, and their fallback for a
 * block with an element that is not finite. */
static inline void K(scan_magnitudes)(const unsigned char *x, size_t n, BITS inf, KEY *absmax,
                                      struct nonfinite_count *nonfinite)
{
    BITS max = (BITS)*absmax;
    uint64_t nan = 0, infinite = 0;
    for (size_t i = 0; i < n; i++) {
        const BITS magnitude = K(load_bits)(x + i * sizeof(BITS)) & ((BITS) ~(BITS)0 >> 1);
        nan += magnitude > inf;
        infinite += magnitude == inf;
        max = magnitude <= inf && magnitude > max ? magnitude : max;
    }
    *absmax = (KEY)max;
    nonfinite->nan += nan;
    nonfinite->inf += infinite;
}

/* Merges a magnitude into the element the caller owns. */
static inline void K(merge_magnitude)(KEY magnitude, unsigned char *absmax)
{
    const BITS max = (BITS)K(key_max)(magnitude, (KEY)K(load_bits)(absmax));
    memcpy(absmax, &max, sizeof max);
}
