/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Experts of a layer: runtimes stack their matrices, so that all are quantized or none, and none is missing. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "model/stated_schemes.h"
#include "files/text.h"

enum { MAX_PROJECTIONS = 8 };

/* The matrices of one layer: modules <prefix><number>.<projection>. */
struct expert_matrices {
    size_t prefix; /* length of the name up to the number */
    size_t quantized, plain;
    int64_t count; /* the largest number plus 1 */
    struct {
        const char *name;
        size_t length;
        int64_t count;
    } projections[MAX_PROJECTIONS];
};

size_t audit_parse_expert(const char *name, int64_t *number, const char **projection)
{
    static const char word[] = "experts.";
    for (const char *p = strstr(name, word); p; p = strstr(p + 1, word)) {
        const char *digits = p + sizeof word - 1;
        char *end;
        if ((p > name && p[-1] != '.') || !isdigit((unsigned char)*digits))
            continue;
        *number = strtol(digits, &end, 10);
        if (*end != '.' || *number > 100000)
            continue;
        *projection = end + 1;
        return (size_t)(digits - name);
    }
    return 0;
}

static void add_projection(struct expert_matrices *layer, const char *projection)
{
    for (int i = 0; i < MAX_PROJECTIONS; i++) {
        if (!layer->projections[i].name)
            layer->projections[i].name = projection;
        if (strcmp(layer->projections[i].name, projection) != 0)
            continue;
        layer->projections[i].count++;
        return;
    }
}

/* Returns the number of experts that config.json says; 0: nothing, or several numbers. */
static int64_t expert_count(const struct audit *audit)
{
    static const char *const keys[] = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"};
    int64_t count = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const int64_t number = audit_config_number(audit, keys[i]);
        if (number > 0 && count > 0 && number != count)
            return 0;
        count = number > 0 ? number : count;
    }
    return count;
}

/* Returns true if a tensor of three dimensions holds experts of the layer, such as <prefix>gate_proj. */
static bool has_stacked(const struct audit *audit, const char *prefix, size_t length)
{
    for (size_t i = 0; i < audit->model.count; i++) {
        const struct st_tensor *t = audit->model.tensors[i].stored;
        if (t->ndim == 3 && strncmp(t->name, prefix, length) == 0)
            return true;
    }
    return false;
}

static void check_layer(struct audit *audit, const struct expert_matrices *layer, const struct audit_module *first)
{
    struct audit_module m = *first;
    m.length = layer->prefix - 1;
    m.name = strndup(first->name, m.length);
    if (!m.name) {
        audit->failed = true;
        return;
    }
    if (layer->quantized > 0 && layer->plain > 0)
        audit_find(audit, &m, "%zu of %zu matrices of its experts are quantized; runtimes take all or none",
                   layer->quantized, layer->quantized + layer->plain);
    else if (layer->quantized > 0 && has_stacked(audit, first->name, layer->prefix))
        audit_find(audit, &m, "has quantized experts beside experts in one tensor");
    /* Experts behind the last one that return their input: a file may have matrices of them, which nothing reads. */
    const int64_t expected = expert_count(audit), unused = audit_config_number(audit, "zero_expert_num");
    const bool more = expected > 0 && unused > 0 && layer->count == expected + unused;
    const int64_t count = more ? expected : layer->count;
    for (int i = 0; layer->quantized > 0 && i < MAX_PROJECTIONS && layer->projections[i].name; i++)
        if (layer->projections[i].count < count)
            audit_find(audit, &m, "%s is missing in %lld of %lld experts", layer->projections[i].name,
                       (long long)(count - layer->projections[i].count), (long long)count);
    if (layer->quantized > 0 && count < expected) /* a layer may have several kinds of experts */
        audit_find(audit, &m, "has %lld experts, but config.json says %lld", (long long)layer->count,
                   (long long)expected);
    free(m.name);
}

void audit_check_experts(struct audit *audit)
{
    struct expert_matrices layer = {0};
    const struct audit_module *first = NULL;
    for (size_t i = 0; i <= audit->module_count; i++) {
        const struct audit_module *m = i < audit->module_count ? &audit->modules[i] : NULL;
        int64_t number = 0;
        const char *projection = NULL;
        const size_t prefix = m ? audit_parse_expert(m->name, &number, &projection) : 0;
        if (first && (!m || prefix != layer.prefix || strncmp(first->name, m->name, prefix) != 0)) {
            check_layer(audit, &layer, first);
            first = NULL;
        }
        if (prefix == 0)
            continue;
        if (!first) {
            first = m;
            layer = (struct expert_matrices){.prefix = prefix};
        }
        layer.quantized += m->codes != NULL;
        layer.plain += m->plain && m->plain->ndim == 2;
        layer.count = number + 1 > layer.count ? number + 1 : layer.count;
        add_projection(&layer, projection);
    }
}

/* ---- Experts in one tensor --------------------------------------------------------------------------------------- */

static bool ignores(const struct quant_matchers *targets, const char *name, size_t length, const char *more)
{
    char text[1024];
    const int size = snprintf(text, sizeof text, "%.*s%s", (int)length, name, more);
    return size > 0 && (size_t)size < sizeof text && audit_ignores(targets, text, (size_t)size);
}

/* Loaders ask for the layer, for its parent or for its first expert, by the architecture. */
static bool is_ignored(const struct quant_matchers *targets, const char *name, size_t module)
{
    static const char *const ways[] = {"", ".0.gate_proj", ".0.up_proj", ".0.w1", ".experts", ".experts.0.gate_proj"};
    if (ignores(targets, name, module, ""))
        return true;
    module = component_start(name, module);
    for (size_t i = 0; module > 1 && i < sizeof ways / sizeof *ways; i++)
        if (ignores(targets, name, module - 1, ways[i]))
            return true;
    return false;
}

void audit_check_stacked(struct audit *audit, const struct quant_matchers *targets)
{
    bool by_class;
    for (size_t i = 0; i < audit->model.count; i++) {
        const struct st_tensor *t = audit->model.tensors[i].stored;
        const struct audit_module m = {.name = t->name, .length = module_length(t->name)};
        const char *experts = strstr(t->name, "experts.");
        if (t->ndim != 3 || !dtype_is_in(t->dtype, HALVES_AND_FLOATS) || !experts ||
            (experts > t->name && experts[-1] != '.') || is_ignored(targets, t->name, m.length) ||
            !stated_group(&audit->config, targets, t->name, m.length, &by_class))
            continue;
        audit_contradict(audit, &m, MEND_IGNORE,
                         "holds experts that are not quantized (%s), but the configuration claims them",
                         dtype_name(t->dtype));
    }
}
