/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* NEON Gram of columns; contract and limits in templates/gram.inl.h. */
#include "neon/simd.h"

#include "templates/gram.inl.h"
