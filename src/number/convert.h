/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Single numbers between the four observable dtypes, double and int32. An element may lie at any address. */
#ifndef QOBS_NUMBER_CONVERT_H
#define QOBS_NUMBER_CONVERT_H

#include <stdint.h>

#include "qobs/qobs.h"

/* One element of an observable dtype as a double (exact). */
double qobs_element(const void *element, qobs_dtype dtype);

/* Stores `value`, rounded to the dtype. */
void qobs_put_element(void *to, qobs_dtype dtype, double value);

/* Rounds `value` to the dtype. */
double qobs_round_to(qobs_dtype dtype, double value);

#endif
