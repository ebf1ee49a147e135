/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Scales and zero points move from the tensors of a source to those of the output (weight_job.moved). */
#pragma once

#include "quantize/move_words.h"

/* Make the tensors of a whole weight. The bytes are those of the source or in the workspace. */
int move_scales(struct moved_bytes *moved, const struct weight_job *job, struct workspace *work, struct fail *f);
int move_zero_points(struct moved_bytes *moved, const struct weight_job *job, struct workspace *work, struct fail *f);
