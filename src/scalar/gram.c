/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Portable Gram of columns; contract and limits in templates/gram.inl.h. */
#include "scalar/simd.h"

#include "templates/gram.inl.h"
