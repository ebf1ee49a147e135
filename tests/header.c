/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A public header, alone and twice. */
#include QOBS_HEADER
#include QOBS_HEADER

int header_compiles(void);

int header_compiles(void) { return QOBS_OK; }
