/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Dtypes of elements that can be observed. */
#pragma once

/* The element types that kernels read. The order is the index into the slots of a kernel table. */
enum kernel_dtype { QOBS_KERNEL_F32, QOBS_KERNEL_BF16, QOBS_KERNEL_F16, QOBS_KERNEL_F64, QOBS_KERNEL_DTYPES };
