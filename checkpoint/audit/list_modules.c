/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A module is quantized if it has a scale. The configuration claims the linear layers that its targets match. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "model/stated_schemes.h"
#include "schemes/match.h"
#include "files/text.h"

static void add(struct audit *audit, struct findings *list, const struct audit_module *module, enum finding_mend mend,
                const char *format, va_list values)
{
    pthread_mutex_lock(&audit->lock);
    const bool added = findings_add(list, module ? module->name : "", format, values);
    if (added)
        list->items[list->count - 1].mend = mend;
    audit->failed |= !added;
    pthread_mutex_unlock(&audit->lock);
}

void audit_contradict(struct audit *audit, const struct audit_module *module, enum finding_mend mend,
                      const char *format, ...)
{
    va_list values;
    va_start(values, format);
    add(audit, &audit->findings, module, mend, format, values);
    va_end(values);
}

void audit_find(struct audit *audit, const struct audit_module *module, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    add(audit, &audit->findings, module, MEND_NONE, format, values);
    va_end(values);
}

void audit_doubt(struct audit *audit, const struct audit_module *module, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    add(audit, audit->is_output ? &audit->gguf.notes : &audit->findings, module, MEND_NONE, format, values);
    va_end(values);
}

void audit_note(struct audit *audit, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    add(audit, &audit->gguf.notes, NULL, MEND_NONE, format, values);
    va_end(values);
}

/* ---- Tensors of a module ----------------------------------------------------------------------------------------- */

static bool is_fp8(const struct audit *audit) { return audit->maker && strcmp(audit->maker, STATED_FP8) == 0; }

const char *audit_part_name(const struct audit *audit, const char *part)
{
    static const struct {
        bool fp8;
        const char *part, *name;
    } names[] = {{false, "weight_packed", "weight"},
                 {false, "weight_global_scale", "weight_scale_2"},
                 {false, "input_global_scale", "input_scale"},
                 {true, "weight_packed", "weight"},
                 {true, "weight_scale", "weight_scale_inv"}};
    const bool fp8 = is_fp8(audit);
    for (size_t i = 0; audit->maker && i < sizeof names / sizeof *names; i++)
        if (fp8 == names[i].fp8 && strcmp(part, names[i].part) == 0)
            return names[i].name;
    return part;
}

const struct st_tensor *audit_part(const struct audit *audit, const struct audit_module *m, const char *part)
{
    part = audit_part_name(audit, part);
    OWNED char *name = text_format("%.*s.%s", (int)m->length, m->name, part);
    const struct model_tensor *found = name ? model_find(&audit->model, name) : NULL;
    return found ? found->stored : NULL;
}

static void find_parts(const struct audit *audit, struct audit_module *m)
{
    const struct st_tensor *weight = audit_part(audit, m, "weight"), *packed = audit_part(audit, m, "weight_packed");
    const bool is_float = weight && dtype_is_in(weight->dtype, HALVES_AND_FLOATS);
    m->codes = packed && packed != weight ? packed : is_float ? NULL : weight;
    m->plain = is_float && !m->codes ? weight : NULL;
    m->scale = audit_part(audit, m, "weight_scale");
    m->zero_point = audit_part(audit, m, "weight_zero_point");
    m->global_scale = audit_part(audit, m, "weight_global_scale");
    m->shape = audit_part(audit, m, "weight_shape");
}

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

bool audit_ignores(const struct quant_matchers *targets, const char *name, size_t length)
{
    return matcher_find(targets->ignore, name, length) >= 0;
}

/* ---- List -------------------------------------------------------------------------------------------------------- */

/* Returns the length of the module if the tensor is a scale or a weight; 0: neither. */
static size_t module_of(const char *name)
{
    static const char *const endings[] = {".weight_scale", ".weight_scale_inv", ".weight_packed", ".weight"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(name, endings[i]))
            return strlen(name) - strlen(endings[i]);
    return 0;
}

/* Adds every module that has a weight, a packed weight or a scale, once. */
static int collect(struct audit *audit, struct fail *f)
{
    audit->modules = calloc(audit->model.count + 1, sizeof *audit->modules);
    if (!audit->modules)
        return NO_MEMORY(f, "the modules");
    size_t n = 0;
    for (size_t i = 0; i < audit->model.count; i++) {
        const char *name = audit->model.tensors[i].stored->name;
        const size_t length = module_of(name);
        const struct audit_module *last = n > 0 ? &audit->modules[n - 1] : NULL;
        if (length == 0 || (last && last->length == length && memcmp(last->name, name, length) == 0))
            continue;
        audit->modules[n].name = strndup(name, length);
        audit->modules[n].length = length;
        audit->module_count = n + 1;
        if (!audit->modules[n++].name)
            return NO_MEMORY(f, "the modules");
    }
    named_sort(audit->modules, n, sizeof *audit->modules);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (kept > 0 && strcmp(audit->modules[kept - 1].name, audit->modules[i].name) == 0)
            free(audit->modules[i].name);
        else
            audit->modules[kept++] = audit->modules[i];
    audit->module_count = kept;
    return QOBS_OK;
}

/* Returns true if a loader makes a linear layer of the module: it is one, or the head. Classes of routers differ. */
static bool is_linear(const struct audit *audit, const struct audit_module *m)
{
    const int64_t rows = m->plain && m->plain->ndim == 2 ? m->plain->shape[0] : 0;
    const enum module_kind kind = architecture_kind(&audit->architectures, m->name, m->length, rows);
    return kind == MODULE_LINEAR || (kind == MODULE_HEAD && ends_with(m->name, "lm_head"));
}

static const char *last_part(const char *name) { return name + component_start(name, strlen(name)); }

/* Keeps the modules that are quantized or should be. Returns false for the others. */
static bool belongs(struct audit *audit, const struct quant_matchers *t, struct audit_module *m)
{
    bool by_class;
    const bool ignored = audit_ignores(t, m->name, m->length);
    m->group = stated_group(&audit->config, t, m->name, m->length, &by_class);
    const bool norm = m->length >= 4 && strcmp(m->name + m->length - 4, "norm") == 0;
    const bool claimed = m->group && !ignored && !norm && (!by_class || is_linear(audit, m));
    if (m->codes && (m->scale || claimed)) {
        if (ignored || !m->group)
            audit_contradict(audit, m, ignored ? MEND_IGNORE_NO_MORE : MEND_NONE,
                             "is quantized, but the configuration %s", ignored ? "ignores it" : "does not target it");
        return m->group != NULL;
    }
    if (claimed && m->plain && m->plain->ndim == 2)
        audit_contradict(audit, m, MEND_IGNORE, "is not quantized (%s), but the configuration claims it",
                         dtype_name(m->plain->dtype));
    if (m->scale && !m->codes && !m->plain)
        audit_find(audit, m, "has %s, but no weight", last_part(m->scale->name));
    return false;
}

/* Reports tensors of quantized modules that no loader of compressed-tensors reads. */
static void check_names(struct audit *audit)
{
    const char *known = is_fp8(audit) ? "weight weight_scale_inv input_scale"
                        : audit->maker
                            ? "weight weight_scale weight_scale_2 input_scale output_scale"
                            : "weight weight_packed weight_scale weight_zero_point weight_global_scale weight_shape "
                              "weight_g_idx input_scale input_zero_point input_global_scale output_scale "
                              "output_zero_point output_global_scale";
    for (size_t i = 0, k = 0; i < audit->module_count; i++) {
        const struct audit_module *m = &audit->modules[i];
        while (k < audit->model.count && strcmp(audit->model.tensors[k].stored->name, m->name) < 0)
            k++;
        for (size_t t = k; t < audit->model.count; t++) {
            const char *name = audit->model.tensors[t].stored->name, *part = name + m->length + 1;
            if (strncmp(name, m->name, m->length) != 0)
                break;
            if (name[m->length] == '.' && !strchr(part, '.') && !is_one_of(part, known) &&
                (strncmp(part, "weight", 6) == 0 || strncmp(part, "input_", 6) == 0 ||
                 strncmp(part, "output_", 7) == 0 || is_one_of(part, "qweight qzeros scales g_idx")))
                audit_find(audit, m, "has %s, which no loader of %s reads", part,
                           audit->maker ? audit->maker : "compressed-tensors");
        }
    }
}

int audit_list_modules(struct audit *audit, struct fail *f)
{
    RELEASED_BY(quant_matchers_free) struct quant_matchers targets = {0};
    RETURN_IF_NOT_OK(quant_matchers_create(&targets, &audit->config, f));
    RETURN_IF_NOT_OK(collect(audit, f));
    for (size_t i = 0; i < audit->module_count; i++)
        find_parts(audit, &audit->modules[i]);
    audit_check_heads(audit, &targets);
    audit_check_experts(audit);
    audit_check_stacked(audit, &targets);
    for (size_t i = 0; i < audit->module_count; i++)
        audit->modules[i].quantized = belongs(audit, &targets, &audit->modules[i]);
    audit_check_sizes(audit);
    if (!audit->is_output) { /* a run has said what names nothing */
        audit_check_entries(audit);
        RETURN_IF_NOT_OK(audit_check_sets(audit, true, f));
    }
    size_t kept = 0;
    for (size_t i = 0; i < audit->module_count; i++)
        if (audit->modules[i].quantized)
            audit->modules[kept++] = audit->modules[i];
        else
            free(audit->modules[i].name);
    audit->module_count = kept;
    check_names(audit);
    return QOBS_OK;
}
