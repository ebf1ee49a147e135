/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The tensors of one weight in a format of words (struct word_layout), which lie across the rows that slices bring:
 * they are made in memory, and written when the weight is done. */
#pragma once

#include "quantize/layout.h"

struct word_buffers {
    unsigned char *parts[OUTPUT_PARTS]; /* NULL: the weight has none, or is not in work */
};

/* Returns true if a job's weight is stored in words. */
bool job_has_words(const struct weight_job *job);

/* Makes room for the tensors of a weight, and fills the groups of its columns. */
int word_buffers_open(struct word_buffers *b, const struct output_layout *layout, const struct weight_job *job,
                      struct fail *f);
void word_buffers_close(struct word_buffers *b);

/* Takes codes and qparams of whole rows, from any thread; slices begin at multiples of 32 rows. codes: in words of
 * pack-quantized, from byte `offset` on. Fails for a zero point that the format does not have. */
void word_buffers_put_codes(struct word_buffers *b, const struct weight_job *job, uint64_t offset, const void *codes,
                            size_t bytes);
int word_buffers_put_scales(struct word_buffers *b, const struct row_slice *slice, const struct slice_qparams *qparams,
                            struct fail *f);
