/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The name of the processor. */
#ifndef QOBS_TOOLS_CPU_H
#define QOBS_TOOLS_CPU_H

#include <stddef.h>

/* Writes the name that the system has for the first processor; "unknown" if it has none. */
void cpu_name(char *name, size_t size);

#endif
