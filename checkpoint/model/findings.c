/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A list that grows. */
#include "model/findings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/fail.h"
#include "files/text.h"

bool findings_add(struct findings *findings, const char *module, const char *format, va_list values)
{
    char text[512];
    vsnprintf(text, sizeof text, format, values);
    make_printable(text);
    const struct finding finding = {.module = strdup(module), .text = strdup(text)};
    if (finding.module && finding.text && list_append(&findings->items, &findings->count, sizeof finding, &finding))
        return true;
    free(finding.module);
    free(finding.text);
    return false;
}

static int compare(const void *a, const void *b)
{
    const struct finding *s = a, *t = b;
    const int order = strcmp(s->module, t->module);
    return order ? order : strcmp(s->text, t->text);
}

void findings_sort(struct findings *findings)
{
    if (findings->count > 0)
        qsort(findings->items, findings->count, sizeof *findings->items, compare);
}

bool findings_report(const struct findings *findings, json_object *report)
{
    json_object *array = json_put_array(report, "findings");
    bool good = array != NULL;
    for (size_t i = 0; good && i < findings->count; i++) {
        json_object *finding = json_object_new_object();
        good = json_put_text(finding, "module", findings->items[i].module) &&
               json_put_text(finding, "finding", findings->items[i].text);
        good = json_append(array, finding) && good;
    }
    return good;
}

void findings_free(struct findings *findings)
{
    named_free(findings->items, findings->count, sizeof *findings->items, 2);
    *findings = (struct findings){0};
}
