/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The table of kernels that each instruction set fills, and its construction. Contracts are in kernel_FAMILY.h, what
 * all kernels promise is in slot.h. Files that implement or describe one family include that family's header only. */
#pragma once

#include "base/build.h"
#include "kernels/kernel_gptq.h"
#include "kernels/kernel_hessian.h"
#include "kernels/kernel_histogram.h"
#include "kernels/kernel_minmax.h"
#include "kernels/kernel_quantize.h"
#include "kernels/kernel_search.h"
#include "kernels/kernel_squares.h"
#include "kernels/kernel_superblock.h"

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

/* The sizes at which kernels change their methods, for the tests. They decide about speed only: results are the same
 * bits on every side of every limit. */

/* The kernels that a limit is of, as bits. */
enum {
    QOBS_LIMITS_ROWS = 1, /* minmax_rows and absmax_rows */
    QOBS_LIMITS_MINMAX_COLUMNS = 2,
    QOBS_LIMITS_ABSMAX_COLUMNS = 4,
    QOBS_LIMITS_INDEXED = 8,
    QOBS_LIMITS_HISTOGRAM = 16,
    QOBS_LIMITS_QUANTIZE = 32
};

/* A size at which a kernel changes its method. Every src/ISA/tuning.h lists its limits as TUNING_LIMITS(LIMIT) with
 * entries LIMIT(kernels, of, size); tests call kernels on both sides of each. */
struct kernel_limit {
    const char *name; /* NULL: end of a list */
    unsigned kernels;
    enum kernel_limit_of {
        QOBS_LIMIT_OF_CALL,       /* bytes of all elements */
        QOBS_LIMIT_OF_CONTIGUOUS, /* bytes of all elements, if the runs have no gaps */
        QOBS_LIMIT_OF_RUN,        /* bytes of a run or row */
        QOBS_LIMIT_OF_LENGTH,     /* elements of a run */
        QOBS_LIMIT_OF_COUNT,      /* runs or rows */
        QOBS_LIMIT_OF_DISTANCE    /* bytes from x to out, mod 4096 */
    } of;
    size_t size;
};

/* ---- Slots ------------------------------------------------------------------------------------------------------- */

#define QOBS_SLOTS(EACH, with)                                                                                         \
    QOBS_MINMAX_SLOTS(EACH, with)                                                                                      \
    QOBS_QUANTIZE_SLOTS(EACH, with)                                                                                    \
    QOBS_HISTOGRAM_SLOTS(EACH, with)                                                                                   \
    QOBS_SQUARES_SLOTS(EACH, with)                                                                                     \
    QOBS_GPTQ_SLOTS(EACH, with)                                                                                        \
    QOBS_HESSIAN_SLOTS(EACH, with)                                                                                     \
    QOBS_SEARCH_SLOTS(EACH, with)                                                                                      \
    QOBS_OPTIMAL_SLOTS(EACH, with)                                                                                     \
    QOBS_SUPERBLOCK_SLOTS(EACH, with)

/* The slots that this build fills; those of features that are left out are NULL, and nothing calls them. */
#define QOBS_FILLED_SLOTS(EACH, with)                                                                                  \
    QOBS_MINMAX_SLOTS(EACH, with)                                                                                      \
    QOBS_IF(QOBS_HAS(codes), QOBS_QUANTIZE_SLOTS(EACH, with) QOBS_SQUARES_SLOTS(EACH, with))                           \
    QOBS_IF(QOBS_HAS(histograms), QOBS_HISTOGRAM_SLOTS(EACH, with))                                                    \
    QOBS_IF(QOBS_HAS(searches),                                                                                        \
            QOBS_GPTQ_SLOTS(EACH, with) QOBS_HESSIAN_SLOTS(EACH, with) QOBS_SEARCH_SLOTS(EACH, with)                   \
                QOBS_SUPERBLOCK_SLOTS(EACH, with))                                                                     \
    QOBS_IF(QOBS_HAS(optimal), QOBS_OPTIMAL_SLOTS(EACH, with))

/* One member a slot: a function, or an array of them by enum kernel_dtype. */
#define QOBS_EXTENT_ONE
#define QOBS_EXTENT_EACH_DTYPE [QOBS_KERNEL_DTYPES]
#define QOBS_EXTENT_SCALAR_F64 [QOBS_KERNEL_DTYPES]
#define QOBS_EXTENT_EACH_NARROW [QOBS_KERNEL_F64]
#define QOBS_SLOT_MEMBER(variants, slot, SIGNATURE, unused) qobs_##slot##_fn *slot QOBS_EXTENT_##variants;

struct kernel_table {
    const char *isa;      /* "scalar", "avx2", "avx512", "neon" */
    const char *summary;  /* the extensions it needs, for people */
    bool (*usable)(void); /* does this CPU have them, and does the operating system save their registers? */
    const struct kernel_limit *limits; /* sizes at which kernels change their methods */
    QOBS_SLOTS(QOBS_SLOT_MEMBER, )
};

/* Defines the table of an instruction set; used once in src/ISA/isa.c, after tuning.h of that folder. */
#define QOBS_LIMIT(kernels, of, size) {#size, kernels, QOBS_LIMIT_OF_##of, size},
#define QOBS_SLOT_FUNCTION(SIGNATURE, function) function,
#define QOBS_INITIAL_ONE(slot, SIGNATURE, isa) .slot = qobs_##slot##_##isa,
#define QOBS_INITIAL_EACH_DTYPE(slot, SIGNATURE, isa)                                                                  \
    .slot = {QOBS_EACH_DTYPE(QOBS_SLOT_FUNCTION, slot, SIGNATURE, isa)},
#define QOBS_INITIAL_SCALAR_F64(slot, SIGNATURE, isa)                                                                  \
    .slot = {QOBS_EACH_NARROW(QOBS_SLOT_FUNCTION, slot, SIGNATURE, isa) qobs_##slot##_f64_scalar},
#define QOBS_INITIAL_EACH_NARROW(slot, SIGNATURE, isa)                                                                 \
    .slot = {QOBS_EACH_NARROW(QOBS_SLOT_FUNCTION, slot, SIGNATURE, isa)},
#define QOBS_SLOT_INITIAL(variants, slot, SIGNATURE, isa) QOBS_INITIAL_##variants(slot, SIGNATURE, isa)
#define QOBS_KERNEL_TABLE(name, extensions, is_usable)                                                                 \
    static const struct kernel_limit limits[] = {TUNING_LIMITS(QOBS_LIMIT){0}};                                        \
    const struct kernel_table qobs_kernels_##name = {.isa = #name,                                                     \
                                                     .summary = (extensions),                                          \
                                                     .usable = (is_usable),                                            \
                                                     .limits = limits,                                                 \
                                                     QOBS_FILLED_SLOTS(QOBS_SLOT_INITIAL, name)}

#define QOBS_DECLARE_TABLE(isa) extern const struct kernel_table qobs_kernels_##isa;
QOBS_ISAS(QOBS_DECLARE_TABLE)
