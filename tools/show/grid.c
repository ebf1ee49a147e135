/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Finds the format by the setting that each family has for it. */
#include "show/spans.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_setting(const qobs_config *config, const char *key, char text[QOBS_SETTING_VALUE])
{
    return qobs_config_get(config, key, text, QOBS_SETTING_VALUE, NULL) == QOBS_OK && strcmp(text, "null") != 0;
}

/* Finds a format by a name of torch or ONNX Runtime: qint8, QUInt8, quint4x2, int8. */
static const qobs_format *find(const char *name)
{
    char plain[QOBS_SETTING_VALUE];
    size_t n = 0;
    for (const char *c = name + (tolower((unsigned char)*name) == 'q'); *c && n + 1 < sizeof plain; c++)
        plain[n++] = (char)tolower((unsigned char)*c);
    plain[n] = '\0';
    char *packed = strstr(plain, "x2"); /* two in a byte */
    if (packed)
        *packed = '\0';
    return qobs_format_find(plain);
}

/* The format of num_bits, type and unsigned. */
static const qobs_format *by_bits(const qobs_config *config)
{
    char bits[QOBS_SETTING_VALUE], type[QOBS_SETTING_VALUE], sign[QOBS_SETTING_VALUE], name[QOBS_SETTING_VALUE + 8];
    if (!read_setting(config, "num_bits", bits))
        return NULL;
    if (*bits == '[')
        return qobs_format_find("fp8_e4m3");
    if (read_setting(config, "type", type) && strcmp(type, "float") == 0)
        return qobs_format_find(*bits == '4' ? "fp4_e2m1" : *bits == '6' ? "fp6_e2m3" : "fp8_e4m3");
    const bool is_unsigned = read_setting(config, "unsigned", sign) && strcmp(sign, "true") == 0;
    snprintf(name, sizeof name, "%s%s", is_unsigned ? "uint" : "int", bits);
    return qobs_format_find(name);
}

const qobs_format *grid_format(const qobs_config *config)
{
    static const char *const keys[] = {"mx_element_dtype", "dtype", "target_dtype", "activation_type"};
    char name[QOBS_SETTING_VALUE];
    const qobs_format *format = by_bits(config);
    for (size_t i = 0; !format && i < sizeof keys / sizeof *keys; i++)
        if (read_setting(config, keys[i], name))
            format = find(name);
    return format;
}

/* Numbers of integers that the settings allow. */
static void narrow(const qobs_config *config, double *smallest, double *largest)
{
    char text[QOBS_SETTING_VALUE];
    if (read_setting(config, "quant_min", text))
        *smallest = strtod(text, NULL);
    if (read_setting(config, "quant_max", text))
        *largest = strtod(text, NULL);
    if (read_setting(config, "reduce_range", text) && strcmp(text, "true") == 0) {
        *smallest = floor(*smallest / 2);
        *largest = floor(*largest / 2);
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

size_t grid_levels(const qobs_config *config, double scale, double zero_point, double levels[MAX_GRID])
{
    const qobs_format *format = grid_format(config);
    const int bits = qobs_format_bits(format);
    double smallest = qobs_format_min(format), largest = qobs_format_max(format);
    size_t count = 0, kept = 0;
    if (!format || bits > 8)
        return 0;
    narrow(config, &smallest, &largest);
    for (uint32_t code = 0; code < 1u << bits; code++) {
        const double number = (double)qobs_format_decode(format, code);
        if (number >= smallest && number <= largest) /* not NaN, not infinite */
            levels[count++] = (number - zero_point) * scale + 0.0;
    }
    qsort(levels, count, sizeof *levels, compare);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || levels[i] != levels[kept - 1])
            levels[kept++] = levels[i];
    return kept;
}
