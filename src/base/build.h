/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The contents of this build: a build system defines QOBS_WITHOUT_WORD as 1 for each instruction set, family of presets
 * and feature that its options leave out (meson_options.txt). A table does not name them, so that a linker drops
 * them: rows of presets (config/preset_rows.h), slots of kernels (kernels/kernels.h), tables of instruction sets
 * (kernels/dispatch.c). A public function that would need it fails. */
#pragma once

#include "base/error.h"

/* QOBS_HAS(codes): 0 if QOBS_WITHOUT_codes is 1, else 1. An undefined word makes the name of no macro, and the 1 is the
 * second argument. */
#define QOBS_HAS(word) QOBS_HAS_VALUE(QOBS_WITHOUT_##word)
#define QOBS_HAS_VALUE(value) QOBS_HAS_PASTE(value)
#define QOBS_HAS_PASTE(value) QOBS_HAS_SECOND(QOBS_LEFT_OUT_##value, 1, 0)
#define QOBS_LEFT_OUT_1 0, 0
#define QOBS_HAS_SECOND(...) QOBS_HAS_SECOND_OF(__VA_ARGS__)
#define QOBS_HAS_SECOND_OF(first, second, ...) second

/* QOBS_IF(QOBS_HAS(codes), text): the text, or nothing if codes are left out. */
#define QOBS_IF(has, ...) QOBS_IF_PASTE(has, __VA_ARGS__)
#define QOBS_IF_PASTE(has, ...) QOBS_IF_##has(__VA_ARGS__)
#define QOBS_IF_0(...)
#define QOBS_IF_1(...) __VA_ARGS__

/* The first statement of a public function that needs a feature. */
#define RETURN_IF_LEFT_OUT(feature, error)                                                                             \
    do {                                                                                                               \
        if (!QOBS_HAS(feature))                                                                                        \
            return qobs_fail(error, QOBS_ERROR_UNSUPPORTED,                                                            \
                             "this build has no " #feature "; -Dfeatures=" #feature " brings them");                   \
    } while (0)
