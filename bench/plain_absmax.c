/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The largest magnitude; compiled as plain.c is. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

#define WIDTH 16
#include "plain_absmax.inl.h"
#define WIDTH 32
#include "plain_absmax.inl.h"
#define WIDTH 64
#include "plain_absmax.inl.h"

#define ENTRY_(name, march) name##_##march
#define ENTRY__(name, march) ENTRY_(name, march)
#define ENTRY(name) ENTRY__(name, MARCH)
#include "templates/absmax_entries.inl.h"
