/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One call of qobs_checkpoint_quantize. */
#pragma once

#include "engine/engine.h"
#include "model/findings.h"
#include "quantize/model_sink.h"
#include "quantize/selection.h"

enum { MAX_PARTS = 100000 }; /* of one model */

struct quantize_call {
    const qobs_checkpoint_quantize_args *args;
    bool compares; /* nothing is written: args->out is compared with what would be */
    struct input_paths paths;
    struct scheme_choice choice;
    struct inputs inputs;
    struct selection selection;
    struct activation_scales activations;
    struct output_layout layout;
    struct output_directory out;
    struct model_sink sink;
    struct engine engine;
    struct meter meter;
    struct findings findings; /* of the audit of the output */
    json_object *report;      /* NULL: nobody wants it, or there is no memory for it */
};

/* Writes the files besides the shards: copies of every file that is no shard, index or configuration; the index of the
 * tensors; config.json with quantization_config, the last file of an output. */
int side_files_copy(struct quantize_call *run, struct fail *f);
int side_files_write_index(struct quantize_call *run, struct fail *f);
int side_files_write_config(struct quantize_call *run, struct fail *f);

/* Returns the report without findings: sizes, layers with their errors, tensors that were left out, warnings. NULL: no
 * memory. */
json_object *report_make(const struct quantize_call *run);

/* Adds the findings of the audit. Returns the text, to be freed with free(). NULL: no memory, or no report. */
char *report_finish(json_object *report, const struct findings *findings);
