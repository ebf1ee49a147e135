/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The last step of a run: the output is audited, and only then gets its name. */
#pragma once

#include "files/output.h"
#include "files/output_directory.h"
#include "files/status.h"
#include "model/findings.h"

struct publish_options {
    const qobs_runtime *runtime; /* NULL: the calling thread */
    const char *architectures;   /* path of a file of rows; NULL: none */
    bool keep_findings;          /* findings stop nothing */
    bool compatible;             /* the bytes are upstream's: findings stop nothing, nor does what cannot be audited */
};

/* Audits the staging directory and commits it. Codes are not read again: they are as they were written. Adds what is
 * found to *findings. Fails with FINDINGS, and leaves *out open, if that stops the run. */
int publish(struct output_directory *out, const struct publish_options *options, struct findings *findings,
            struct fail *f);

/* The same for the temporary file of a GGUF file. Doubts stop nothing. */
int publish_file(struct output *out, const struct publish_options *options, struct audited *audited, struct fail *f);
