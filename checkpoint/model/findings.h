/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Faults of a quantized model, as the audit finds them and reports name them. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "files/json.h"

/* A mend of a fault without the original: another list of modules that are not quantized. */
enum finding_mend { MEND_NONE, MEND_IGNORE, MEND_IGNORE_NO_MORE };

struct finding {
    char *module; /* "": the whole model */
    char *text;
    enum finding_mend mend; /* of `module` */
};

/* Zero-initialize it. */
struct findings {
    struct finding *items;
    size_t count;
};

/* Faults of an output, and doubts: those that its input has, too. Zero-initialize it. */
struct audited {
    struct findings findings, doubts;
};

/* Adds a finding whose text is printable. Returns false if there is no memory. */
bool findings_add(struct findings *findings, const char *module, const char *format, va_list values);

/* Orders them by module and text. */
void findings_sort(struct findings *findings);

/* Adds them to a report as the array "findings". Returns false if there is no memory. */
bool findings_report(const struct findings *findings, json_object *report);

void findings_free(struct findings *findings);
