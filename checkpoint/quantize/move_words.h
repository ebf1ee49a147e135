/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Codes of integers move from the words of a source to those of the output: no code is unpacked. */
#pragma once

#include "quantize/layout.h"

/* Bytes [offset, offset + size) of a tensor. */
struct moved_bytes {
    const void *data;
    uint64_t offset;
    size_t size;
};

/* Makes the part of a job's codes that a slice stands for: as large a share of the tensor as its rows are of the
 * weight's. It may be empty. The bytes are those of the source or in the workspace. */
int move_words(struct moved_bytes *moved, const struct row_slice *slice, struct workspace *work, struct fail *f);

/* Puts rows of words of pack-quantized, `count` of them from row `first` on, in their places in the output. */
void spread_words(void *tensor, const struct weight_job *job, int64_t first, int64_t count, const void *words);
