/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Copies of the results of an observer, and their output as text, JSON and safetensors. */
#ifndef QOBS_TOOLS_RESULTS_H
#define QOBS_TOOLS_RESULTS_H

#include "files/json.h"
#include "model/stored_qparams.h"

#include "program.h"

struct result {
    char name[QOBS_RESULT_NAME + 16]; /* large enough for a suffix */
    qobs_dtype dtype;
    int ndim;
    int64_t shape[QOBS_MAX_NDIM];
    size_t size;
    void *data;
};

/* Zero-initialize it. */
struct results {
    struct result *items;
    size_t count;
};

/* Reads all current results and appends `suffix` to their names. Returns an exit code, as all functions here with
 * that type. */
int results_read(struct results *results, const qobs_observer *observer, const char *suffix);

/* Returns the result of that name, or NULL. */
const struct result *result_named(const struct results *results, const char *name);

/* Adds a copy of the last `count` results. Their names lose the last `strip` characters. */
int results_append_copies(struct results *results, size_t count, size_t strip);

/* Recomputes scale and zero_point under `global_scale`, and sets the result global_scale. Applies to the results
 * from index `first` on, which have the suffix `suffix`. For presets with min_vals and max_vals. */
int results_apply_global_scale(struct results *results, size_t first, const char *suffix, const qobs_config *config,
                               float global_scale);

/* Places for the results of observe and merge; NULL: none. */
struct result_files {
    const char *out, *state;
    bool json;
};

/* Writes the files, both or none. Prints JSON; else a table, unless `out` has the results, and what the state is. */
int results_write(const struct results *results, const qobs_observer *observer, const struct result_files *files);

void results_print(const struct results *results);
void results_free(struct results *results);

/* Reads a saved state. */
int state_read(qobs_observer **observer, const char *path, const qobs_runtime *runtime);

/* Warns on stderr if the observer ignored tensors. */
void warn_if_ignored(const qobs_observer *observer);

/* Prints a JSON tree on one line and deletes it. */
int print_json(json_object *root);

/* Returns element i as a number. */
double result_value(const struct result *result, size_t i);

#endif
