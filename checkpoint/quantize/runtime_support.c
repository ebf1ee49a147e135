/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "quantize/runtime_support.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "schemes/dialects.h"
#include "schemes/runtimes.h"

#define SAY(text, ...) snprintf(text, sizeof(text), __VA_ARGS__)
#define VLLM_OF(selection) ((selection)->inputs->architectures.versions.short_vllm)
#define TRANSFORMERS_OF(selection) ((selection)->inputs->architectures.versions.short_transformers)

/* Returns an expert of a group, or with NULL one that stays as it is, in a matrix of its own; NULL: there is none.
 * *stacked: transformers puts such experts into one tensor. */
static const struct weight *find_expert(const struct selection *selection, const struct quant_group *group,
                                        bool *stacked)
{
    static const char experts[] = ".experts";
    *stacked = false;
    for (size_t i = 0; i < selection->weights.count; i++) {
        const struct weight *w = &selection->weights.items[i];
        const char *found = strstr(w->name, ".experts.");
        const bool taken = w->reason == WEIGHT_TAKEN;
        if (w->ndim != 2 || !found || w->reason == WEIGHT_DRAFT || !isdigit((unsigned char)found[sizeof experts]) ||
            (group ? !taken || group != &selection->config.groups[w->group] : taken))
            continue;
        const size_t length = (size_t)(found - w->name) + sizeof experts - 1;
        *stacked =
            architecture_kind_of_experts(&selection->inputs->architectures, w->name, length) != MODULE_SINGLE_EXPERTS;
        return w;
    }
    return NULL;
}

/* Returns true if the group has matrices beside experts. */
static bool has_others(const struct selection *selection, const struct quant_group *group)
{
    for (size_t i = 0; i < selection->weights.count; i++) {
        const struct weight *w = &selection->weights.items[i];
        if (w->reason == WEIGHT_TAKEN && group == &selection->config.groups[w->group] && !strstr(w->name, ".experts."))
            return true;
    }
    return false;
}

/* Returns true if the group has embeddings, which only the compatible mode quantizes. */
static bool has_embeddings(const struct selection *selection, const struct quant_group *group)
{
    bool any = false;
    for (size_t i = 0; i < selection->weights.count && selection->config.compat != QOBS_COMPAT_VLLM && !any; i++) {
        const struct weight *w = &selection->weights.items[i];
        any = w->reason == WEIGHT_TAKEN && w->ndim == 2 && group == &selection->config.groups[w->group] &&
              architecture_kind(&selection->inputs->architectures, w->name, w->module, w->shape[0]) == MODULE_TABLE;
    }
    return any;
}

/* Returns the devices on which vLLM has kernels for all layers of a group. */
static unsigned devices_of(const struct selection *selection, const struct quant_group *group, bool experts)
{
    const struct runtime_row *row = runtime_find(group);
    unsigned devices = row ? ~0u : 0;
    if (row && experts)
        devices &= row->experts;
    if (row && (!experts || has_others(selection, group)))
        devices &= row->linear;
    if (has_embeddings(selection, group))
        devices &= runtime_embeddings(group);
    return devices;
}

/* Returns the first layer of the group that is in a list of the architecture, and the list; NULL: none. */
static const struct weight *find_listed(const struct selection *selection, const struct quant_group *g, size_t column,
                                        const char **list)
{
    for (size_t i = 0; i < selection->weights.count; i++) {
        const struct weight *w = &selection->weights.items[i];
        if (w->reason == WEIGHT_TAKEN && w->ndim == 2 && g == &selection->config.groups[w->group] &&
            (*list = architecture_list(&selection->inputs->architectures, column, w->name, w->module)) != NULL)
            return w;
    }
    *list = NULL;
    return NULL;
}

/* Returns true if transformers finds experts of a group, or with NULL those that stay, in a matrix for each. */
static bool reads_experts(const struct selection *selection, const struct quant_group *group)
{
    return !architecture_plain_experts(&selection->inputs->architectures) &&
           runtime_stacks_experts(&selection->config, group);
}

void runtime_support_of_group(struct runtime_support *support, const struct selection *selection,
                              const struct quant_group *group)
{
    const struct quant_format_row *format = quant_format_row(group->stored);
    const bool packed = strcmp(format->codes, "weight") != 0;
    const bool whole = format->has_shape || format->words; /* its tensors are of the whole weight */
    /* A tensor has one element for the whole weight. */
    const bool single = format->global.name || group->weights.strategy == QUANT_TENSOR ||
                        (group->has_inputs && group->inputs.dynamic == QUANT_STATIC);
    const char *keeps, *needs = NULL, *splits = NULL, *joins = NULL, *ties;
    bool stacked;
    const struct weight *expert = find_expert(selection, group, &stacked);
    const struct weight *kept = find_listed(selection, group, LIST_OF(vllm_keeps), &keeps);
    const struct weight *tied = find_listed(selection, group, LIST_OF(ties), &ties);
    const struct weight *bare = packed ? find_listed(selection, group, LIST_OF(needs_weight), &needs) : NULL;
    const struct weight *split = single || whole ? find_listed(selection, group, LIST_OF(splits), &splits) : NULL;
    const struct weight *joined =
        single || format->words ? find_listed(selection, group, LIST_OF(joins), &joins) : NULL;
    *support = (struct runtime_support){.devices = devices_of(selection, group, expert != NULL)};
    struct refusal *vllm = &support->vllm, *transformers = &support->transformers;
    if (strcmp(VLLM_OF(selection), "0") == 0) { /* rows that were made without a vLLM */
        SAY(vllm->why, "nothing is known of vLLM");
    } else if (architecture_lacks_vllm(&selection->inputs->architectures)) {
        SAY(vllm->why, "vLLM %s does not have this architecture", VLLM_OF(selection));
    } else if (!support->devices) {
        SAY(vllm->why, "vLLM %s has no kernel for %s%.40s", VLLM_OF(selection), expert ? "experts in " : "",
            group->name);
    } else if (kept) {
        SAY(vllm->why, "vLLM %s loads no quantized %.40s", VLLM_OF(selection), keeps);
        vllm->first = kept->name;
        vllm->list = keeps;
    }
    if (vllm->why[0])
        support->devices = 0;
    if (architecture_lacks_transformers(&selection->inputs->architectures)) {
        SAY(transformers->why, "transformers %s does not have this architecture", TRANSFORMERS_OF(selection));
    } else if (selection->config.dialect && !selection->config.dialect->needs) {
        SAY(transformers->why, "transformers %s does not read %s", TRANSFORMERS_OF(selection),
            selection->config.dialect->name);
        transformers->always = true;
    } else if (has_embeddings(selection, group)) {
        SAY(transformers->why, "transformers %s loads no embeddings quantized", TRANSFORMERS_OF(selection));
        transformers->always = true;
    } else if (tied) {
        SAY(transformers->why, "transformers %s ties no scales of %.40s", TRANSFORMERS_OF(selection), ties);
        transformers->first = tied->name;
        transformers->list = ties;
        transformers->always = true;
    } else if (bare) {
        SAY(transformers->why, "transformers %s loads no packed %.40s", TRANSFORMERS_OF(selection),
            *needs == '*' ? "weights of it" : needs);
        transformers->first = bare->name;
        transformers->list = needs;
    } else if (stacked && !reads_experts(selection, group)) {
        SAY(transformers->why, "transformers %s reads no experts in %.40s", TRANSFORMERS_OF(selection), group->name);
    } else if (split || joined) {
        SAY(transformers->why, "transformers %s cannot %s %.40s in this format", TRANSFORMERS_OF(selection),
            split ? "split" : "join", split ? splits : joins);
        transformers->first = split ? split->name : joined->name;
        transformers->list = split ? splits : joins;
    }
}

/* Experts that are split although not every runtime loads them so. */
static void check_split_experts(struct runtime_support *support, const struct selection *selection)
{
    for (size_t i = 0; i < selection->weights.count; i++) {
        const struct weight *w = &selection->weights.items[i];
        const char *source = w->source->stored->name;
        const enum module_kind kind =
            w->experts == EXPERTS_OF_ONE
                ? architecture_kind_of_experts(&selection->inputs->architectures, source, module_length(source))
                : MODULE_LINEAR;
        if (kind != MODULE_EXPERTS && kind != MODULE_STACKED_EXPERTS)
            continue;
        support->transformers = (struct refusal){.first = w->name};
        SAY(support->transformers.why, "transformers %s does not find split experts", TRANSFORMERS_OF(selection));
        if (kind == MODULE_STACKED_EXPERTS)
            return;
        support->vllm = (struct refusal){.first = w->name};
        SAY(support->vllm.why, "vLLM %s does not find split experts", VLLM_OF(selection));
        return;
    }
}

/* Experts that stay as they are and that transformers does not find then. */
static void check_plain_experts(struct runtime_support *support, const struct selection *selection)
{
    bool stacked;
    const struct weight *first = find_expert(selection, NULL, &stacked);
    if (!first || !stacked || reads_experts(selection, NULL))
        return;
    support->transformers = (struct refusal){.first = first->name};
    SAY(support->transformers.why, "transformers %s gives random numbers to experts that stay",
        TRANSFORMERS_OF(selection));
}

/* Layers with packed zero points. transformers 5.24 makes room for them as they are without packing, and stops; 5.17
 * reads them. */
static void check_zero_points(struct runtime_support *support, const struct selection *selection)
{
    for (size_t i = 0; i < selection->weights.count; i++) {
        const struct weight *w = &selection->weights.items[i];
        if (w->reason != WEIGHT_TAKEN || !quant_packs_zero_points(selection->config.groups[w->group].stored,
                                                                  &selection->config.groups[w->group].weights))
            continue;
        support->transformers =
            (struct refusal){"transformers 5.24 reads no packed zero points, 5.17 does", w->name, NULL, false};
        return;
    }
}

void runtime_support_find(struct runtime_support *support, const struct selection *selection)
{
    bool quantized = false;
    *support = (struct runtime_support){0};
    for (size_t i = 0; i < selection->config.group_count; i++) {
        struct runtime_support one;
        if (!selection->config.groups[i].used)
            continue;
        runtime_support_of_group(&one, selection, &selection->config.groups[i]);
        if (one.vllm.why[0] && (!support->vllm.why[0] || one.vllm.list))
            support->vllm = one.vllm;
        if (one.transformers.why[0] && !support->transformers.why[0])
            support->transformers = one.transformers;
        quantized = true;
    }
    if (!quantized)
        return;
    if (selection->mixed_sets.count > 0 && !support->vllm.why[0])
        SAY(support->vllm.why, "vLLM %s loads no sets of several schemes", VLLM_OF(selection));
    check_split_experts(support, selection);
    if (!support->transformers.why[0])
        check_plain_experts(support, selection);
    if (!support->transformers.why[0])
        check_zero_points(support, selection);
}

int runtime_support_check(const struct selection *selection, bool mixed_sets, bool findings, struct fail *f)
{
    struct runtime_support support;
    char ways[160] = "--scheme FP8_DYNAMIC";
    if (selection->config.compat != QOBS_COMPAT_VLLM)
        return QOBS_OK;
    if (selection->mixed_sets.count > 0 && !mixed_sets)
        return INVALID(f, "%s", selection->mixed_sets.refusal.message);
    runtime_support_find(&support, selection);
    if (findings || !support.vllm.why[0] || !support.transformers.why[0])
        return QOBS_OK;
    const char *list = support.transformers.list;
    if (list && *list != '*' && strlen(list) < 80)
        SAY(ways, "--ignore 're:(.*[.])?(%s)([.].*)?$'%s", list,
            support.transformers.always ? "" : " or --scheme FP8_DYNAMIC");
    else if (!list && architecture_plain_experts(&selection->inputs->architectures))
        SAY(ways, "--ignore 're:.*[.]experts.*'");
    return INVALID(f, "no runtime loads this: %s, %s; with %s %s does; --keep-findings writes this", support.vllm.why,
                   support.transformers.why, ways, list ? "transformers" : "a runtime");
}
