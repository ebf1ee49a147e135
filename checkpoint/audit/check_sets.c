/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Modules that vLLM runs as one matrix: they need one scheme, and one global scale. */
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "files/bus_errors.h"
#include "files/text.h"
#include "model/fused.h"

int audit_find_sets(const struct audit *audit, size_t *set, struct fail *f)
{
    const size_t count = audit->module_count;
    char **names = calloc(count + 1, sizeof *names);
    int status = names ? QOBS_OK : NO_MEMORY(f, "the fused sets");
    for (size_t i = 0; status == QOBS_OK && i < count; i++) {
        names[i] = text_format("%s.weight", audit->modules[i].name);
        status = names[i] ? QOBS_OK : NO_MEMORY(f, "the fused sets");
    }
    if (status == QOBS_OK)
        status = fused_sets((const char *const *)names, count, FUSED_VLLM, &audit->architectures, set, f);
    named_free(names, names ? count : 0, sizeof *names, 1);
    return status;
}

/* The group counts if the module is quantized. */
static bool same_scheme(const struct audit_module *m, const struct audit_module *n)
{
    const struct quant_group *a = m->codes ? m->group : NULL, *b = n->codes ? n->group : NULL;
    return a && b ? quant_groups_alike(a, b) : a == b;
}

/* Returns true if the module is quantized, or a linear layer that could be. Runtimes keep others, such as the
 * weights_proj of an indexer, in the dtype of the model. */
static bool counts(const struct audit *audit, const struct audit_module *m)
{
    return m->codes || (m->plain && architecture_kind(&audit->architectures, m->name, m->length, m->plain->shape[0]) ==
                                        MODULE_LINEAR);
}

static void check_scheme(struct audit *audit, const struct audit_module *m, const struct audit_module *first)
{
    if (counts(audit, m) && counts(audit, first) && !same_scheme(m, first))
        audit_find(audit, m, "%s, but %s, with which it runs as one matrix, %s",
                   m->codes ? "is quantized by its own scheme" : "is not quantized", first->name,
                   first->codes ? "is quantized by another" : "is not");
}

static void check_global_scale(struct audit *audit, const struct audit_module *m, const struct audit_module *first)
{
    float own, other;
    if (!m->global_scale || !first->global_scale || !m->sound || !first->sound)
        return;
    bus_errors_copy(&own, m->global_scale->data, sizeof own);
    bus_errors_copy(&other, first->global_scale->data, sizeof other);
    if (!(own == other))
        audit_find(audit, m, "has the global scale %g, but %s, with which it runs as one matrix, has %g", (double)own,
                   first->name, (double)other);
}

int audit_check_sets(struct audit *audit, bool schemes, struct fail *f)
{
    OWNED size_t *set = malloc((audit->module_count + 1) * sizeof *set);
    RETURN_IF_NOT_OK(set ? audit_find_sets(audit, set, f) : NO_MEMORY(f, "the fused sets"));
    for (size_t i = 0; i < audit->module_count; i++)
        if (set[i] != i)
            (schemes ? check_scheme : check_global_scale)(audit, &audit->modules[i], &audit->modules[set[i]]);
    return QOBS_OK;
}
