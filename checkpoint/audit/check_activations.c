/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Stored scales of activations: static inputs and outputs of modules, keys and values of attention. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations/needs.h"
#include "audit/audit.h"
#include "model/names.h"

/* Checks <module>.<part>: it must be there, with one of the dtypes, and all its numbers above 0 and finite. */
static void check_scale(struct audit *audit, const struct audit_module *m, const char *part, const char *dtypes)
{
    const struct st_tensor *t = audit_part(&audit->model, m->name, m->length, part);
    if (!t) {
        audit_find(audit, m, "has no %s", part);
        return;
    }
    if (!audit_is_one_of(t->dtype, dtypes)) {
        audit_find(audit, m, "%s is %s, expected %s", part, t->dtype, dtypes);
        return;
    }
    size_t first;
    const size_t count = audit_element_count(t), wrong = audit_count_wrong(t, count, &first);
    if (count == 0 || wrong > 0)
        audit_find(audit, m, "%s: %zu of %zu numbers are not above 0 and finite; the first is %g", part, wrong, count,
                   count > 0 ? (double)audit_scale_number(t, first) : 0);
}

/* Checks what one scheme of activations stores. */
static void check_base(struct audit *audit, const struct audit_module *m, const char *base, const struct quant_args *a)
{
    char part[64];
    if (a->dynamic == QUANT_STATIC) {
        snprintf(part, sizeof part, "%s_scale", base);
        check_scale(audit, m, part, "BF16 F16 F32 F8_E4M3 U8");
    }
    if (a->dynamic != QUANT_DYNAMIC && a->strategy == QUANT_TENSOR_GROUP) {
        snprintf(part, sizeof part, "%s_global_scale", base);
        check_scale(audit, m, part, "F32");
    }
}

void audit_check_activations(struct audit *audit)
{
    const struct quant_config *config = &audit->config;
    for (size_t i = 0; i < audit->module_count; i++) {
        const struct audit_module *m = &audit->modules[i];
        if (m->group && m->codes && m->scale && m->group->has_inputs)
            check_base(audit, m, activation_bases[ACTIVATION_INPUT], &m->group->inputs);
        if (m->group && m->codes && m->scale && m->group->has_outputs)
            check_base(audit, m, activation_bases[ACTIVATION_OUTPUT], &m->group->outputs);
    }
    for (size_t i = 0; config->has_kv_cache && i < audit->model.count; i++) {
        static const char *const endings[] = {".k_proj.weight", ".k_proj.weight_packed"};
        const char *name = audit->model.tensors[i].stored->name;
        for (int e = 0; e < 2; e++) {
            if (!ends_with(name, endings[e]))
                continue;
            struct audit_module m = {.length = strlen(name) - strlen(endings[e])};
            m.name = strndup(name, m.length);
            audit->failed |= !m.name;
            for (enum activation_kind k = ACTIVATION_K; m.name && k <= ACTIVATION_V; k++)
                check_base(audit, &m, activation_bases[k], &config->kv_cache);
            free(m.name);
        }
    }
}
