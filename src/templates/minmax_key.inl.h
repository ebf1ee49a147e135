/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Floating-point minimum and maximum as integers, for one element width, after width_begin.h.
 *
 * A float's bits are sign and magnitude. Its *key* is the two's complement integer of the same order: key = bits ^
 * ((bits >> sign) & ~signbit), an involution. Keys order -NaN < -Inf < ... < -0 < +0 < ... < +Inf < +NaN, so
 *  - one pair of integer comparisons finds NaN and Inf after the fact, at no cost in the loop;
 *  - bf16 and f16 share one body and differ only by the bits of infinity;
 *  - rounding modes, flush-to-zero and signalling NaN cannot change a result. */

#if WIDTH == 16
typedef uint16_t bits16;
typedef int16_t key16;
#elif WIDTH == 32
typedef uint32_t bits32;
typedef int32_t key32;
#else
typedef uint64_t bits64;
typedef int64_t key64;
#endif

/* Elements that plain C reads twice if one is not finite; they fit L2. */
enum { K(PLAIN_BLOCK) = (256 << 10) / sizeof(BITS) };

/* Elements may lie at any byte address. */
static inline BITS K(load_bits)(const void *p)
{
    BITS b;
    memcpy(&b, p, sizeof b);
    return b;
}

static inline KEY K(key_of_bits)(BITS b)
{
    const BITS negative = (BITS)(0 - (b >> (WIDTH - 1))); /* all bits or none: compilers may branch on conditions */
    return (KEY)(b ^ (negative & (BITS)MOST_POSITIVE));
}

/* The key of -0 is -1 and becomes that of +0. */
static inline BITS K(bits_of_key)(KEY k) { return (BITS)K(key_of_bits)((BITS)(k + (k == -1))); }

static inline KEY K(key_min)(KEY a, KEY b) { return a < b ? a : b; }

static inline KEY K(key_max)(KEY a, KEY b) { return a > b ? a : b; }

/* Merges a key range into the pair of elements the caller owns. */
static inline void K(merge_keys)(KEY lo, KEY hi, unsigned char *min, unsigned char *max)
{
    const BITS l = K(bits_of_key)(K(key_min)(lo, K(key_of_bits)(K(load_bits)(min))));
    const BITS h = K(bits_of_key)(K(key_max)(hi, K(key_of_bits)(K(load_bits)(max))));
    memcpy(min, &l, sizeof l);
    memcpy(max, &h, sizeof h);
}

/* The element-by-element form: the definition of the result, the tail of the vector forms, and their fallback for a
 * block with an element that is not finite. */
static inline void K(scan_elements)(const unsigned char *x, size_t n, BITS inf, KEY *lo, KEY *hi,
                                    struct nonfinite_count *nonfinite)
{
    KEY l = *lo, h = *hi;
    uint64_t nan = 0, infinite = 0;
    for (size_t i = 0; i < n; i++) {
        const BITS b = K(load_bits)(x + i * sizeof(BITS));
        const BITS magnitude = b & ((BITS) ~(BITS)0 >> 1);
        const KEY k = K(key_of_bits)(b);
        nan += magnitude > inf;
        infinite += magnitude == inf;
        l = magnitude <= inf && k < l ? k : l;
        h = magnitude <= inf && k > h ? k : h;
    }
    *lo = l;
    *hi = h;
    nonfinite->nan += nan;
    nonfinite->inf += infinite;
}
