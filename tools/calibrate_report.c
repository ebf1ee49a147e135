/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "calibrate.h"

static void shape_text(int ndim, const int64_t *shape, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? " x " : "", (long long)shape[d]);
}

/* Names come out of files and go to terminals. */
static void clean_name(const struct layer *l, char *text, size_t size)
{
    size_t n = 0;
    for (; n < l->module && n + 1 < size; n++)
        text[n] = (unsigned char)l->ref->name[n] < 0x20 || l->ref->name[n] == 0x7f ? '?' : l->ref->name[n];
    text[n] = '\0';
}

void calibration_print(const struct calibration *c)
{
    int width = 6;
    int64_t qparams = 0;
    for (size_t i = 0; i < c->count; i++)
        width = (int)c->layers[i].module > width ? (int)c->layers[i].module : width;
    printf("%-*s  %-14s %-5s %-14s %12s %12s\n", width, "module", "weight", "dtype", "scales", "smallest", "largest");
    for (size_t i = 0; i < c->count; i++) {
        const struct layer *l = &c->layers[i];
        char weight[96], scales[96];
        shape_text(l->ref->ndim, l->ref->shape, weight, sizeof weight);
        shape_text(l->ndim, l->shape, scales, sizeof scales);
        char module[256];
        clean_name(l, module, sizeof module);
        printf("%-*s  %-14s %-5s %-14s %12.6g %12.6g\n", width, module, weight, l->ref->dtype, scales,
               l->least_scale, l->greatest_scale);
        qparams += l->qparams;
    }
    printf("%zu layers, %.1f MB of weights, %lld scales%s, %s with %s: %.3f s, %.2f GB/s -> %s\n", c->count,
           (double)c->bytes * 1e-6, (long long)qparams, c->zero_points ? " and zero points" : "", c->scheme->name, c->preset,
           c->seconds, (double)c->bytes * 1e-9 / c->seconds, c->out);
    if (c->skipped)
        printf("%zu selected weights were left out: their dtype cannot be observed\n", c->skipped);
}

static void add_shape(cJSON *object, const char *name, int ndim, const int64_t *shape)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (int d = 0; d < ndim; d++)
        cJSON_AddItemToArray(array, cJSON_CreateNumber((double)shape[d]));
}

static cJSON *report(const struct calibration *c)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "qobs_version", qobs_version());
    cJSON_AddStringToObject(root, "isa", qobs_isa_active());
    cJSON_AddStringToObject(root, "model", c->model);
    cJSON_AddStringToObject(root, "output", c->out);
    cJSON_AddStringToObject(root, "scheme", c->scheme->name);
    cJSON_AddStringToObject(root, "preset", c->preset);
    cJSON_AddNumberToObject(root, "bytes", (double)c->bytes);
    cJSON_AddNumberToObject(root, "seconds", c->seconds);
    cJSON_AddNumberToObject(root, "skipped", (double)c->skipped);
    cJSON *layers = cJSON_AddArrayToObject(root, "layers");
    for (size_t i = 0; i < c->count; i++) {
        const struct layer *l = &c->layers[i];
        char module[512];
        snprintf(module, sizeof module, "%.*s", (int)l->module, l->ref->name);
        cJSON *item = cJSON_CreateObject();
        cJSON_AddItemToArray(layers, item);
        cJSON_AddStringToObject(item, "module", module);
        cJSON_AddStringToObject(item, "dtype", l->ref->dtype);
        add_shape(item, "shape", l->ref->ndim, l->ref->shape);
        add_shape(item, "scale_shape", l->ndim, l->shape);
        cJSON_AddNumberToObject(item, "smallest_scale", l->least_scale);
        cJSON_AddNumberToObject(item, "largest_scale", l->greatest_scale);
    }
    return root;
}

int calibration_write_report(const struct calibration *c)
{
    cJSON *root = report(c);
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text)
        return complain(EXIT_TROUBLE, "no memory for the report");
    FILE *f = strcmp(c->report, "-") == 0 ? stdout : fopen(c->report, "w");
    bool ok = f && fputs(text, f) >= 0 && fputc('\n', f) >= 0;
    const int reason = errno;
    if (f && f != stdout)
        ok = fclose(f) == 0 && ok;
    cJSON_free(text);
    return ok ? EXIT_OK : complain(EXIT_TROUBLE, "%s: cannot write: %s", c->report, strerror(reason));
}
