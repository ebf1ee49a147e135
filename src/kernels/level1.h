/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The first-level data cache, by which kernels and their callers choose what they prefetch. */
#pragma once

/* UNKNOWN: the C library does not say. LARGE: 48 KB or more, as Zen 5 and Intel from Ice Lake on have; SMALL: less, as
 * Zen 4 has. */
enum qobs_l1_kind { QOBS_L1_UNKNOWN, QOBS_L1_SMALL, QOBS_L1_LARGE };
enum qobs_l1_kind qobs_l1_kind(void);
