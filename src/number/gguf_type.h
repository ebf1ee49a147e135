/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The types of tensors in GGUF files, as rows: what a block holds, where, and how its scales are found. Kernels make
 * blocks of them (kernels/kernel_superblock.h). Facts of ggml 0.21.0 (ggml-quants.c, ggml-common.h); formulas only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* How the scale of a run is found. */
enum gguf_fit {
    GGUF_FIT_NONE,     /* a copy in another dtype */
    GGUF_FIT_PEAK,     /* the element of the largest magnitude becomes the lowest code */
    GGUF_FIT_RANGE,    /* minimum and maximum become the lowest and the highest code */
    GGUF_FIT_LARGEST,  /* the largest magnitude becomes the highest code */
    GGUF_FIT_MEAN,     /* the mean of the magnitudes */
    GGUF_FIT_AFFINE,   /* scale and minimum: candidates of the least weighted error */
    GGUF_FIT_SIGNED,   /* a scale: the same */
    GGUF_FIT_CODEBOOK, /* a scale for the numbers of IQ4: the same */
    GGUF_FIT_DESCENT   /* a scale: codes change one by one as long as the error falls */
};

/* The weights of the errors of a run. x: an element, q: its importance. */
enum gguf_weight {
    GGUF_WEIGHT_SQUARE,    /* x * x */
    GGUF_WEIGHT_MAGNITUDE, /* |x| */
    GGUF_WEIGHT_RAISED,    /* |x| + the root of the mean square of the run */
    GGUF_WEIGHT_GIVEN,     /* q */
    /* q * sqrt(s + x * x) with s of sums of squares of n elements: */
    GGUF_WEIGHT_RUN,           /* sum * (2 / n) of the run */
    GGUF_WEIGHT_BLOCK,         /* the same of the block */
    GGUF_WEIGHT_BLOCK_DOUBLED, /* 2 * sum / n of the block */
    GGUF_WEIGHT_BLOCK_ONCE,    /* sum / n of the block */
    GGUF_WEIGHT_ROW            /* sum / n of the row */
};

/* A search with or without importance. Candidates of GGUF_FIT_AFFINE are (first + step * k + top) / range for k up to
 * `last`; absolute: their errors count by magnitude, else by square. PEAK, RANGE and LARGEST divide by `first`. */
struct gguf_search {
    uint8_t fit, weight; /* enum gguf_fit, enum gguf_weight */
    float first, step;
    uint8_t last;
    bool absolute;
};

/* How the scales of the runs of a block are stored. */
enum gguf_scales {
    GGUF_SCALES_NONE,    /* f16 for the block: its only run has this scale */
    GGUF_SCALES_NIBBLES, /* Q2_K: 4 bits of scale and of minimum a byte */
    GGUF_SCALES_3,       /* Q3_K: 6 bits in 12 bytes */
    GGUF_SCALES_4,       /* Q4_K and Q5_K: 6 bits of scale and of minimum in 12 bytes */
    GGUF_SCALES_BYTES,   /* Q6_K: int8 */
    GGUF_SCALES_XS,      /* IQ4_XS: 6 bits in a word of high and 4 bytes of low bits */
    GGUF_SCALES_E8M0,    /* MXFP4 */
    GGUF_SCALES_E4M3     /* NVFP4 */
};

/* How a number becomes a code, and what codes stand for. */
enum gguf_code {
    GGUF_CODE_F32, /* the bits of the number, rounded to that dtype */
    GGUF_CODE_F16,
    GGUF_CODE_BF16,
    GGUF_CODE_NEAREST,  /* the nearest integer; half plus the number, cut off, after PEAK and RANGE */
    GGUF_CODE_AWAY,     /* the nearest integer, ties away from 0 */
    GGUF_CODE_LIMITED,  /* the same; scales whose inverse is infinite have codes 0 */
    GGUF_CODE_TRITS,    /* the same without that, five in a byte */
    GGUF_CODE_SIGN,     /* 1 for numbers from 0 on */
    GGUF_CODE_CODEBOOK, /* the numbers of IQ4 */
    GGUF_CODE_E2M1      /* 4 bits of float */
};

/* Bits of the codes of a block, from byte `at` on. Bits `shift` to `shift + bits - 1` of codes lie side by side in a
 * byte, the first lowest: those of codes `apart` places from each other, in groups of as many bytes. apart 1: of
 * neighbours. bits 0: there is no such part. */
struct gguf_plane {
    uint8_t at, shift, bits, apart;
};

enum { NOWHERE = -1 };

/* Numbers are (code - low) * scale. Those with a minimum are code * scale + minimum, or - minimum in blocks of several
 * runs. */
struct gguf_type {
    const char *name;
    int16_t number;                          /* in files */
    uint16_t elements, bytes;                /* of a block */
    uint16_t run;                            /* elements with a scale of their own */
    uint8_t scales, code;                    /* enum gguf_scales, enum gguf_code */
    uint8_t top, low;                        /* the highest code; the code of 0 */
    int16_t scale_at, minimum_at, scales_at; /* bytes in a block; NOWHERE */
    struct gguf_plane plane[2];
    struct gguf_search search[2]; /* without and with importance */
    const char *refused;          /* why blocks are neither made nor read here; NULL: they are */
};

extern const struct gguf_type qobs_gguf_types[]; /* ends with a name of NULL; those that are refused come last */

/* The type of that name, in any case of letters; NULL: none. */
const struct gguf_type *qobs_find_gguf_type(const char *name);

/* The numbers of IQ4 in the order of codes, and magnitudes of e2m1, doubled. */
extern const int8_t qobs_iq4_numbers[16];
extern const uint8_t qobs_e2m1_doubled[8];
