/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What this build has: a build system defines what its options leave out as 0 (meson_options.txt). Left out is what a
 * table does not name, so that a linker drops it: rows of presets (config/preset_rows.h), slots of kernels
 * (kernels/kernels.h), tables of instruction sets (kernels/dispatch.c). A public function that would need it fails. */
#pragma once

#include "base/error.h"

/* Instruction sets. */
#define QOBS_HAS_scalar 1
#ifndef QOBS_HAS_avx2
#define QOBS_HAS_avx2 1
#endif
#ifndef QOBS_HAS_avx512
#define QOBS_HAS_avx512 1
#endif
#ifndef QOBS_HAS_neon
#define QOBS_HAS_neon 1
#endif

/* Families of presets. */
#ifndef QOBS_HAS_LLMC
#define QOBS_HAS_LLMC 1
#endif
#ifndef QOBS_HAS_TORCH
#define QOBS_HAS_TORCH 1
#endif
#ifndef QOBS_HAS_TORCHAO
#define QOBS_HAS_TORCHAO 1
#endif
#ifndef QOBS_HAS_ORT
#define QOBS_HAS_ORT 1
#endif
#ifndef QOBS_HAS_QUARK
#define QOBS_HAS_QUARK 1
#endif
#ifndef QOBS_HAS_MODELOPT
#define QOBS_HAS_MODELOPT 1
#endif
#ifndef QOBS_HAS_AIEDGE
#define QOBS_HAS_AIEDGE 1
#endif
#ifndef QOBS_HAS_NNCF
#define QOBS_HAS_NNCF 1
#endif
#ifndef QOBS_HAS_QOBS
#define QOBS_HAS_QOBS 1
#endif

/* Features. */
#ifndef QOBS_HAS_CODES
#define QOBS_HAS_CODES 1
#endif
#ifndef QOBS_HAS_OBSERVERS
#define QOBS_HAS_OBSERVERS 1
#endif
#ifndef QOBS_HAS_HISTOGRAMS
#define QOBS_HAS_HISTOGRAMS 1
#endif
#ifndef QOBS_HAS_SEARCHES
#define QOBS_HAS_SEARCHES 1
#endif
#ifndef QOBS_HAS_OPTIMAL
#define QOBS_HAS_OPTIMAL 1
#endif

/* QOBS_IF(QOBS_HAS_CODES, text): the text, or nothing if codes are left out. */
#define QOBS_IF(has, ...) QOBS_IF_PASTE(has, __VA_ARGS__)
#define QOBS_IF_PASTE(has, ...) QOBS_IF_##has(__VA_ARGS__)
#define QOBS_IF_0(...)
#define QOBS_IF_1(...) __VA_ARGS__

/* The first statement of a public function that needs a feature. */
#define RETURN_IF_LEFT_OUT(has, feature, error)                                                                        \
    do {                                                                                                               \
        if (!(has))                                                                                                    \
            return qobs_fail(error, QOBS_ERROR_UNSUPPORTED, "this build has no %s; -Dfeatures=%s brings them",         \
                             (feature), (feature));                                                                    \
    } while (0)
