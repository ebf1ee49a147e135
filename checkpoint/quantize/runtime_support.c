/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "quantize/runtime_support.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "schemes/runtimes.h"

#define SAY(text, ...) snprintf(text, sizeof(text), __VA_ARGS__)
#define VLLM_OF(run) ((run)->architectures.versions.short_vllm)
#define TRANSFORMERS_OF(run) ((run)->architectures.versions.short_transformers)

/* Returns an expert of a group, or with NULL one that stays as it is, in a matrix of its own; NULL: there is none.
 * *stacked: transformers puts such experts into one tensor. */
static const struct weight *find_expert(const struct quantize_run *run, const struct quant_group *group, bool *stacked)
{
    static const char experts[] = ".experts";
    *stacked = false;
    for (size_t i = 0; i < run->weights.count; i++) {
        const struct weight *w = &run->weights.items[i];
        const char *found = strstr(w->name, ".experts.");
        const bool taken = w->reason == WEIGHT_TAKEN;
        if (w->ndim != 2 || !found || w->reason == WEIGHT_DRAFT || !isdigit((unsigned char)found[sizeof experts]) ||
            (group ? !taken || group != &run->config.groups[w->group] : taken))
            continue;
        const size_t length = (size_t)(found - w->name) + sizeof experts - 1;
        *stacked = architecture_kind_of_experts(&run->architectures, w->name, length) != MODULE_SINGLE_EXPERTS;
        return w;
    }
    return NULL;
}

/* Returns true if the group has matrices beside experts. */
static bool has_others(const struct quantize_run *run, const struct quant_group *group)
{
    for (size_t i = 0; i < run->weights.count; i++) {
        const struct weight *w = &run->weights.items[i];
        if (w->reason == WEIGHT_TAKEN && group == &run->config.groups[w->group] && !strstr(w->name, ".experts."))
            return true;
    }
    return false;
}

/* Returns true if the group has embeddings, which only the compatible mode quantizes. */
static bool has_embeddings(const struct quantize_run *run, const struct quant_group *group)
{
    bool any = false;
    for (size_t i = 0; i < run->weights.count && run->args->compat != QOBS_COMPAT_VLLM && !any; i++) {
        const struct weight *w = &run->weights.items[i];
        any = w->reason == WEIGHT_TAKEN && w->ndim == 2 && group == &run->config.groups[w->group] &&
              architecture_kind(&run->architectures, w->name, w->module, w->shape[0]) == MODULE_TABLE;
    }
    return any;
}

/* Returns the devices on which vLLM has kernels for all layers of a group. */
static unsigned devices_of(const struct quantize_run *run, const struct quant_group *group, bool experts)
{
    const struct runtime_row *row = runtime_find(group);
    unsigned devices = row ? ~0u : 0;
    if (row && experts)
        devices &= row->experts;
    if (row && (!experts || has_others(run, group)))
        devices &= row->linear;
    if (has_embeddings(run, group))
        devices &= runtime_embeddings(group);
    return devices;
}

/* Returns the first layer of the group that is in such a list of the architecture, and the list; NULL: none. */
static const struct weight *find_listed(const struct quantize_run *run, const struct quant_group *g,
                                        const char *(*list_of)(const struct architectures *, const char *, size_t),
                                        const char **list)
{
    for (size_t i = 0; i < run->weights.count; i++) {
        const struct weight *w = &run->weights.items[i];
        if (w->reason == WEIGHT_TAKEN && w->ndim == 2 && g == &run->config.groups[w->group] &&
            (*list = list_of(&run->architectures, w->name, w->module)) != NULL)
            return w;
    }
    *list = NULL;
    return NULL;
}

/* Returns true if transformers finds experts of a group, or with NULL those that stay, in a matrix for each. */
static bool reads_experts(const struct quantize_run *run, const struct quant_group *group)
{
    return !architecture_plain_experts(&run->architectures) && runtime_stacks_experts(&run->config, group);
}

void runtime_support_of_group(struct runtime_support *support, const struct quantize_run *run,
                              const struct quant_group *group)
{
    const struct quant_format_row *format = quant_format_row(group->format);
    const bool packed = strcmp(format->codes, "weight_packed") == 0;
    /* A tensor has one element for the whole weight. */
    const bool single = format->global_scale || group->weights.strategy == QUANT_TENSOR ||
                        (group->has_inputs && group->inputs.dynamic == QUANT_STATIC);
    const char *keeps, *needs = NULL, *splits = NULL, *joins = NULL, *ties;
    bool stacked;
    const struct weight *expert = find_expert(run, group, &stacked);
    const struct weight *kept = find_listed(run, group, architecture_vllm_keeps, &keeps);
    const struct weight *tied = find_listed(run, group, architecture_ties, &ties);
    const struct weight *bare = packed ? find_listed(run, group, architecture_needs_weight, &needs) : NULL;
    const struct weight *split =
        single || format->has_shape ? find_listed(run, group, architecture_splits, &splits) : NULL;
    const struct weight *joined = single ? find_listed(run, group, architecture_joins, &joins) : NULL;
    *support = (struct runtime_support){.devices = devices_of(run, group, expert != NULL)};
    struct refusal *vllm = &support->vllm, *transformers = &support->transformers;
    if (strcmp(VLLM_OF(run), "0") == 0) { /* rows that were made without a vLLM */
        SAY(vllm->why, "nothing is known of vLLM");
    } else if (architecture_lacks_vllm(&run->architectures)) {
        SAY(vllm->why, "vLLM %s does not have this architecture", VLLM_OF(run));
    } else if (!support->devices) {
        SAY(vllm->why, "vLLM %s has no kernel for %s%.40s", VLLM_OF(run), expert ? "experts in " : "", group->name);
    } else if (kept) {
        SAY(vllm->why, "vLLM %s loads no quantized %.40s", VLLM_OF(run), keeps);
        vllm->first = kept->name;
        vllm->list = keeps;
    }
    if (vllm->why[0])
        support->devices = 0;
    if (architecture_lacks_transformers(&run->architectures)) {
        SAY(transformers->why, "transformers %s does not have this architecture", TRANSFORMERS_OF(run));
    } else if (has_embeddings(run, group)) {
        SAY(transformers->why, "transformers %s loads no embeddings quantized", TRANSFORMERS_OF(run));
        transformers->always = true;
    } else if (tied) {
        SAY(transformers->why, "transformers %s ties no scales of %.40s", TRANSFORMERS_OF(run), ties);
        transformers->first = tied->name;
        transformers->list = ties;
        transformers->always = true;
    } else if (bare) {
        SAY(transformers->why, "transformers %s loads no packed %.40s", TRANSFORMERS_OF(run),
            *needs == '*' ? "weights of it" : needs);
        transformers->first = bare->name;
        transformers->list = needs;
    } else if (stacked && !reads_experts(run, group)) {
        SAY(transformers->why, "transformers %s reads no experts in %.40s", TRANSFORMERS_OF(run), group->name);
    } else if (split || joined) {
        SAY(transformers->why, "transformers %s cannot %s %.40s in this format", TRANSFORMERS_OF(run),
            split ? "split" : "join", split ? splits : joins);
        transformers->first = split ? split->name : joined->name;
        transformers->list = split ? splits : joins;
    }
}

/* Experts that are split although not every runtime loads them so. */
static void check_split_experts(struct runtime_support *support, const struct quantize_run *run)
{
    for (size_t i = 0; i < run->weights.count; i++) {
        const struct weight *w = &run->weights.items[i];
        const char *source = w->source->stored->name;
        const enum module_kind kind =
            w->experts == EXPERTS_OF_ONE
                ? architecture_kind_of_experts(&run->architectures, source, module_length(source))
                : MODULE_LINEAR;
        if (kind != MODULE_EXPERTS && kind != MODULE_STACKED_EXPERTS)
            continue;
        support->transformers = (struct refusal){.first = w->name};
        SAY(support->transformers.why, "transformers %s does not find split experts", TRANSFORMERS_OF(run));
        if (kind == MODULE_STACKED_EXPERTS)
            return;
        support->vllm = (struct refusal){.first = w->name};
        SAY(support->vllm.why, "vLLM %s does not find split experts", VLLM_OF(run));
        return;
    }
}

/* Experts that stay as they are and that transformers does not find then. */
static void check_plain_experts(struct runtime_support *support, const struct quantize_run *run)
{
    bool stacked;
    const struct weight *first = find_expert(run, NULL, &stacked);
    if (!first || !stacked || reads_experts(run, NULL))
        return;
    support->transformers = (struct refusal){.first = first->name};
    SAY(support->transformers.why, "transformers %s gives random numbers to experts that stay", TRANSFORMERS_OF(run));
}

/* Layers with packed zero points. */
static void check_zero_points(struct runtime_support *support, const struct quantize_run *run)
{
    for (size_t i = 0; i < run->weights.count; i++) {
        const struct weight *w = &run->weights.items[i];
        if (w->reason != WEIGHT_TAKEN || !runtime_packs_zero_points(&run->config.groups[w->group]))
            continue;
        support->transformers =
            (struct refusal){"transformers 5.24 reads no packed zero points, 5.17 does", w->name, NULL, false};
        return;
    }
}

void runtime_support_find(struct runtime_support *support, const struct quantize_run *run)
{
    bool quantized = false;
    *support = (struct runtime_support){0};
    for (size_t i = 0; i < run->config.group_count; i++) {
        struct runtime_support one;
        if (!run->config.groups[i].used)
            continue;
        runtime_support_of_group(&one, run, &run->config.groups[i]);
        if (one.vllm.why[0] && (!support->vllm.why[0] || one.vllm.list))
            support->vllm = one.vllm;
        if (one.transformers.why[0] && !support->transformers.why[0])
            support->transformers = one.transformers;
        quantized = true;
    }
    if (!quantized)
        return;
    if (run->mixed_sets.count > 0 && !support->vllm.why[0])
        SAY(support->vllm.why, "vLLM %s loads no sets of several schemes", VLLM_OF(run));
    check_split_experts(support, run);
    if (!support->transformers.why[0])
        check_plain_experts(support, run);
    if (!support->transformers.why[0])
        check_zero_points(support, run);
}

int runtime_support_check(const struct quantize_run *run, struct fail *f)
{
    struct runtime_support support;
    char ways[160] = "--scheme FP8_DYNAMIC";
    runtime_support_find(&support, run);
    if (!support.vllm.why[0] || !support.transformers.why[0] || run->args->keep_findings ||
        run->args->compat != QOBS_COMPAT_VLLM)
        return QOBS_OK;
    const char *list = support.transformers.list;
    if (list && *list != '*' && strlen(list) < 80)
        SAY(ways, "--ignore 're:(.*[.])?(%s)([.].*)?$'%s", list,
            support.transformers.always ? "" : " or --scheme FP8_DYNAMIC");
    else if (!list && architecture_plain_experts(&run->architectures))
        SAY(ways, "--ignore 're:.*[.]experts.*'");
    return INVALID(f, "no runtime loads this: %s, %s; with %s %s does; --keep-findings writes this", support.vllm.why,
                   support.transformers.why, ways, list ? "transformers" : "a runtime");
}
