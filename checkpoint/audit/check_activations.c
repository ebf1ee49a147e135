/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Stored scales of activations: static inputs and outputs of modules, keys and values of attention. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations/needs.h"
#include "audit/audit.h"
#include "files/text.h"
#include "model/draft.h"

/* Checks <module>.<part>: it must be there, with one of the dtypes, and all its numbers above 0 and finite. */
static void check_scale(struct audit *audit, const struct audit_module *m, const char *part, file_dtypes dtypes)
{
    const struct st_tensor *t = audit_part(audit, m, part);
    part = audit_part_name(audit, part);
    if (!t) {
        audit_find(audit, m, "has no %s", part);
        return;
    }
    if (!dtype_is_in(t->dtype, dtypes)) {
        audit_find(audit, m, "%s is %s, expected %s", part, dtype_name(t->dtype), DTYPE_WORDS(dtypes));
        return;
    }
    if (st_borrow(t, NULL) != QOBS_OK) {
        audit->failed = true;
        return;
    }
    size_t first;
    const size_t count = audit_element_count(t), wrong = audit_count_wrong(t, count, false, &first);
    if (count == 0 || wrong > 0)
        audit_find(audit, m, "%s: %zu of %zu numbers are not above 0 and finite; the first is %g", part, wrong, count,
                   count > 0 ? (double)audit_scale_number(t, first) : 0);
    st_release(t);
}

/* Checks what one scheme of activations stores. */
static void check_base(struct audit *audit, const struct audit_module *m, const char *base, const struct quant_args *a)
{
    char part[64];
    if (a->dynamic == QUANT_STATIC) {
        snprintf(part, sizeof part, "%s_scale", base);
        check_scale(audit, m, part, HALVES_AND_FLOATS | IN_FILE(F8_E4M3) | IN_FILE(U8));
    }
    if (a->dynamic != QUANT_DYNAMIC && a->strategy == QUANT_TENSOR_GROUP) {
        snprintf(part, sizeof part, "%s_global_scale", base);
        check_scale(audit, m, part, IN_FILE(F32));
    }
}

/* Returns the length of the attention's name if the tensor is the weight of its keys, else 0. */
static size_t attention_of(const char *name)
{
    static const char *const endings[] = {".k_proj.weight", ".k_proj.weight_packed"};
    for (int e = 0; e < 2; e++)
        if (ends_with(name, endings[e]))
            return strlen(name) - strlen(endings[e]);
    return 0;
}

/* A model that runs in transformers has no draft layers, so that a calibration may give them no scales. */
static bool needs_scales(const struct audit *audit, const struct audit_module *m)
{
    return audit_part(audit, m, "k_scale") || audit_part(audit, m, "v_scale") ||
           !draft_holds(&audit->architectures, m->name, m->length);
}

/* Scales of keys and values are those of all attentions, or of none: runtimes then take 1. */
static void check_kv_cache(struct audit *audit)
{
    bool any = false;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < audit->model.count; i++) {
            const char *name = audit->model.tensors[i].stored->name;
            struct audit_module m = {.length = attention_of(name)};
            m.name = m.length > 0 ? strndup(name, m.length) : NULL;
            audit->failed |= m.length > 0 && !m.name;
            if (m.name && pass == 0)
                any |= audit_part(audit, &m, "k_scale") || audit_part(audit, &m, "v_scale");
            for (enum activation_kind k = ACTIVATION_K;
                 m.name && any && pass == 1 && k <= ACTIVATION_V && needs_scales(audit, &m); k++)
                check_base(audit, &m, activation_bases[k], &audit->config.kv_cache);
            free(m.name);
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
    if (config->has_kv_cache)
        check_kv_cache(audit);
    audit_check_cache_scales(audit);
}
