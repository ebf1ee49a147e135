/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "schemes.h"

#include <stdio.h>
#include <string.h>

#include "options.h"
#include "program.h"
#include "schemes/quant_config.h"

const char *scheme_name(const void *context, size_t index)
{
    (void)context;
    return quant_scheme_name(index, NULL);
}

void print_schemes(void)
{
    const char *summary;
    printf("schemes:\n");
    for (size_t i = 0; quant_scheme_name(i, &summary); i++) {
        const int column = printf("  %-12s ", quant_scheme_name(i, NULL));
        print_wrapped(summary, column, 15);
    }
}

int print_missing_scheme(void)
{
    char known[400] = "";
    for (size_t i = 0; quant_scheme_name(i, NULL); i++) {
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, quant_scheme_name(i, NULL), sizeof known - strlen(known) - 1);
    }
    return print_error(EXIT_USAGE, "--scheme: is missing; known are %s", known);
}

bool is_preset(const char *name)
{
    for (size_t i = 0; qobs_preset_name(i); i++)
        if (strcmp(qobs_preset_name(i), name) == 0)
            return true;
    return false;
}

int fill_experts_option(const char *name, qobs_fill_experts *fill)
{
    static const char *const names[] = {
        [QOBS_FILL_REFUSE] = "refuse", [QOBS_FILL_MAX] = "max", [QOBS_FILL_MEDIAN] = "median"};
    for (int i = QOBS_FILL_REFUSE; i <= QOBS_FILL_MEDIAN; i++)
        if (strcmp(name, names[i]) == 0) {
            *fill = (qobs_fill_experts)i;
            return EXIT_OK;
        }
    return print_error(EXIT_USAGE, "--fill-experts: is '%s', allowed are refuse, max and median", name);
}
