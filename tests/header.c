/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The public header, alone and twice. */
#include "qobs/qobs.h"
#include "qobs/qobs.h"

int header_compiles(void);

int header_compiles(void)
{
    return QOBS_OK;
}
