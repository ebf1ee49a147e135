/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The files of an output besides its shards: index, config.json and copies of all other files. */
#pragma once

#include "quantize/run.h"

/* Copies every file of the model that is no shard, index or configuration. */
int side_files_copy(struct quantize_run *run, struct fail *f);

/* Writes the index of the tensors. */
int side_files_write_index(struct quantize_run *run, struct fail *f);

/* Writes config.json with quantization_config; the last file of an output. */
int side_files_write_config(struct quantize_run *run, struct fail *f);
