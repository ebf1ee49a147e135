/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* An observer's results, kept and written. */
#ifndef QOBS_TOOLS_RESULTS_H
#define QOBS_TOOLS_RESULTS_H

#include <cjson/cJSON.h>

#include "program.h"

struct reading {
    char name[QOBS_RESULT_NAME + 16]; /* with a suffix */
    qobs_dtype dtype;
    int ndim;
    int64_t shape[QOBS_MAX_NDIM];
    size_t size;
    void *data;
};

/* Zero it first. */
struct readings {
    struct reading *items;
    size_t count;
};

/* Reads every result the observer has now; suffix is added to the names. Returns an exit code, complained about. */
int readings_take(struct readings *readings, const qobs_observer *observer, const char *suffix);

/* Reads one; `about` goes before what is wrong with it. */
int readings_take_one(struct readings *readings, const qobs_observer *observer, const char *name, const char *about);

/* Adds what the last `count` readings hold once more, each name without its last `strip` characters. */
int readings_repeat(struct readings *readings, size_t count, size_t strip);

/* Among the readings from `first` on, taken with that suffix: scale and zero_point as they are under this global scale, and
 * global_scale itself. For presets with min_vals and max_vals. */
int readings_use_global_scale(struct readings *readings, size_t first, const char *suffix, const qobs_config *config,
                              float global_scale);

int readings_write_safetensors(const struct readings *readings, const char *path);
int readings_print_json(const struct readings *readings);
void readings_print(const struct readings *readings);
void readings_free(struct readings *readings);

/* Prints a tree on one line and deletes it. Returns an exit code, complained about. */
int print_json(cJSON *root);

/* Element i as a number. */
double reading_value(const struct reading *reading, size_t i);

/* The smallest and the largest element; NaN are passed over. */
void reading_extremes(const struct reading *reading, double *least, double *greatest);

#endif
