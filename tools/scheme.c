/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "scheme.h"

#include <stddef.h>
#include <string.h>

/* compressed_tensors/quantization/quant_scheme.py */
static const struct scheme schemes[] = {
    {"W8A8", "8", "channel", NULL, "true", "int8 symmetric, a scale a channel; activations int8, dynamic"},
    {"INT8", "8", "channel", NULL, "true", "the same as W8A8"},
    {"W8A16", "8", "channel", NULL, "true", "int8 symmetric, a scale a channel"},
    {"W4A16", "4", "group", "128", "true", "int4 symmetric, groups of 128"},
    {"W4A16_ASYM", "4", "group", "128", "false", "int4 with zero points, groups of 128"},
    {"W4A8", "4", "group", "128", "true", "int4 symmetric, groups of 128; activations int8, dynamic"},
};

enum { COUNT = sizeof schemes / sizeof *schemes };

const struct scheme *scheme_at(int index)
{
    return index >= 0 && index < COUNT ? &schemes[index] : NULL;
}

const struct scheme *scheme_find(const char *name)
{
    for (int i = 0; i < COUNT; i++)
        if (strcmp(schemes[i].name, name) == 0)
            return &schemes[i];
    return NULL;
}
