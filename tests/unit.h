/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* cmocka with the headers that it needs, those of most tests, and a loop over the usable instruction sets:
 * for (size_t i = 0; select_isa(&i); i++). */
#ifndef QOBS_TEST_UNIT_H
#define QOBS_TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "qobs/qobs.h"

/* Selects the first usable instruction set from *isa on; false if there is none. */
static inline bool select_isa(size_t *isa)
{
    while (*isa < qobs_isa_count() && !qobs_isa_usable(*isa))
        ++*isa;
    if (*isa == qobs_isa_count())
        return false;
    assert_int_equal(qobs_isa_select(qobs_isa_name(*isa), NULL), QOBS_OK);
    return true;
}

#endif
