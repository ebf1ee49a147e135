/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Members of a set have one parent: the names up to the part that differs are the same. Names are sorted by parent and
 * set, so that members lie side by side. */
#include "model/fused.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MEMBERS = 6 };

/* A set: its members under one parent, each with ".weight" behind it. The first `needed` must be there. */
struct fused_rule {
    const char *members[MAX_MEMBERS];
    int needed;
    const char *parents; /* endings of the parent, separated by spaces; NULL: any parent */
};

/* model_free_ptq matches the names as text, so that "vision_attn" is a parent of q_proj and "xw1" a member.
 * See llmcompressor/entrypoints/model_free/microscale.py. */
static const struct fused_rule rules_of_llm_compressor[] = {
    {{"q_proj", "k_proj", "v_proj"}, 3, "attn attention"},
    {{"wq_a", "wkv_a_with_mqa"}, 2, "attn attention"},
    {{"gate_proj", "up_proj"}, 2, "mlp"},
    {{"w1", "w3"}, 2, NULL},
};

/* The fused mappings of llm-compressor 0.14.1a20261020, which are those of vLLM's models: required names, then optional
 * ones. */
static const struct fused_rule rules_of_vllm[] = {
    {{"gate_proj", "up_proj"}, 2, NULL},
    {{"w1", "w3"}, 2, NULL},
    {{"q_proj", "k_proj", "v_proj"}, 2, NULL},
    {{"q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj", "g_proj"}, 5, NULL},
    {{"q_proj", "k_proj", "v_proj", "b_proj", "forget_gate.f_a_proj", "g_proj"}, 5, NULL},
    {{"q_a_proj", "kv_a_proj_with_mqa", "g_proj"}, 2, NULL},
    {{"wq_a", "wkv_a_with_mqa"}, 2, NULL},
    {{"q_a_proj", "kv_proj"}, 2, NULL},
    {{"wq_a", "wkv"}, 2, NULL},
    {{"kv_proj", "gate_proj"}, 2, NULL},
    {{"wkv", "wgate"}, 2, NULL},
    {{"wk", "weights_proj"}, 2, NULL},
};

struct fused_member {
    const char *name;
    size_t parent; /* bytes of the name before the member */
    int member;
    size_t index;
};

static bool parent_ends(const char *name, size_t parent, const char *endings)
{
    if (!endings)
        return true;
    if (parent == 0 || name[parent - 1] != '.')
        return false;
    for (const char *p = endings; *p;) {
        const size_t length = strcspn(p, " ");
        if (parent - 1 >= length && memcmp(name + parent - 1 - length, p, length) == 0)
            return true;
        p += length + (p[length] == ' ');
    }
    return false;
}

/* Finds the member of the rule that a name has. By text, "w1" may follow any letter; otherwise a member is a whole
 * component. */
static bool find_member(const struct fused_rule *rule, const char *name, bool by_text, struct fused_member *found)
{
    static const char ending[] = ".weight";
    const size_t length = strlen(name), tail = sizeof ending - 1;
    if (length < tail || strcmp(name + length - tail, ending) != 0)
        return false;
    for (int m = 0; m < MAX_MEMBERS && rule->members[m]; m++) {
        const size_t size = strlen(rule->members[m]);
        if (length - tail < size || memcmp(name + length - tail - size, rule->members[m], size) != 0)
            continue;
        const size_t parent = length - tail - size;
        const bool component = parent == 0 || name[parent - 1] == '.';
        if ((component || (by_text && !rule->parents)) && parent_ends(name, parent, rule->parents)) {
            *found = (struct fused_member){.name = name, .parent = parent, .member = m};
            return true;
        }
    }
    return false;
}

static int compare_parents(const struct fused_member *a, const struct fused_member *b)
{
    const size_t shorter = a->parent < b->parent ? a->parent : b->parent;
    const int order = memcmp(a->name, b->name, shorter);
    return order ? order : (a->parent > b->parent) - (a->parent < b->parent);
}

static int compare_members(const void *a, const void *b)
{
    const struct fused_member *s = a, *t = b;
    const int order = compare_parents(s, t);
    return order ? order : s->member - t->member;
}

/* Makes the sets of one rule that have `size` members, none of which is in a set yet. */
static void apply(const struct fused_rule *rule, size_t size, bool by_text, const char *const *names, size_t count,
                  size_t *set, bool *taken, struct fused_member *members)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (find_member(rule, names[i], by_text, &members[n]))
            members[n++].index = i;
    qsort(members, n, sizeof *members, compare_members);
    for (size_t first = 0, end; first < n; first = end) {
        unsigned present = 0;
        bool free_members = true;
        for (end = first; end < n && compare_parents(&members[first], &members[end]) == 0; end++) {
            present |= 1u << members[end].member;
            free_members = free_members && !taken[members[end].index];
        }
        const unsigned needed = (1u << rule->needed) - 1;
        if ((present & needed) != needed || end - first != size || !free_members)
            continue;
        for (size_t i = first; i < end; i++) {
            set[members[i].index] = members[first].index;
            taken[members[i].index] = true;
        }
    }
}

int fused_sets(const char *const *names, size_t count, enum fused_rules rules, size_t *set, struct fail *f)
{
    const bool upstream = rules == FUSED_LLM_COMPRESSOR;
    const struct fused_rule *all = upstream ? rules_of_llm_compressor : rules_of_vllm;
    const size_t rule_count =
        upstream ? sizeof rules_of_llm_compressor / sizeof *all : sizeof rules_of_vllm / sizeof *all;
    struct fused_member *members = malloc((count + 1) * sizeof *members);
    bool *taken = calloc(count + 1, sizeof *taken);
    for (size_t i = 0; i < count; i++)
        set[i] = i;
    for (size_t size = MAX_MEMBERS; members && taken && size > 1; size--)
        for (size_t r = 0; r < rule_count; r++)
            apply(&all[r], size, upstream, names, count, set, taken, members);
    const bool failed = !members || !taken;
    free(members);
    free(taken);
    return failed ? fail(f, "no memory for the fused sets of %zu tensors", count) : 0;
}

/* ---- Shards ------------------------------------------------------------------------------------------------------ */

/* The partners of an owner, written into its shard. See get_weights_map and the dependencies of model_free_ptq. */
static const struct {
    const char *owner, *partners[2], *parents;
} homes[] = {{"q_proj", {"k_proj", "v_proj"}, "attn attention self_attn self_attention"},
             {"wq_a", {"wkv_a_with_mqa", NULL}, "attn attention self_attn"},
             {"gate_proj", {"up_proj", NULL}, "mlp feed_forward"},
             {"w1", {"w3", NULL}, NULL}};

struct named {
    const char *name;
    size_t index;
};

static int compare_named(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Returns true if the parent is "<p>.<m>." with m of the list, or with NULL, any "<p>.". */
static bool is_parent(const char *name, size_t parent, const char *components)
{
    if (parent < 2 || name[parent - 1] != '.')
        return false;
    if (!components)
        return true;
    size_t begin = parent - 1;
    while (begin > 0 && name[begin - 1] != '.')
        begin--;
    const size_t length = parent - 1 - begin;
    for (const char *p = components; *p && begin > 1;) {
        const size_t size = strcspn(p, " ");
        if (size == length && memcmp(name + begin, p, size) == 0)
            return true;
        p += size + (p[size] == ' ');
    }
    return false;
}

static void move_partner(const struct named *sorted, size_t count, const char *owner, size_t parent,
                         const char *partner, size_t index, size_t *home)
{
    const size_t size = parent + strlen(partner) + sizeof ".weight";
    char *name = malloc(size);
    if (!name)
        return;
    snprintf(name, size, "%.*s%s.weight", (int)parent, owner, partner);
    const struct named key = {.name = name}, *found = bsearch(&key, sorted, count, sizeof key, compare_named);
    if (found)
        home[found->index] = index;
    free(name);
}

int fused_homes(const char *const *names, size_t count, size_t *home, struct fail *f)
{
    struct named *sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted)
        return fail(f, "no memory for %zu tensors", count);
    for (size_t i = 0; i < count; i++) {
        home[i] = i;
        sorted[i] = (struct named){.name = names[i], .index = i};
    }
    qsort(sorted, count, sizeof *sorted, compare_named);
    for (size_t i = 0; i < count; i++)
        for (size_t h = 0; h < sizeof homes / sizeof *homes; h++) {
            const struct fused_rule rule = {.members = {homes[h].owner}, .needed = 1};
            struct fused_member m;
            if (!find_member(&rule, names[i], false, &m) || !is_parent(names[i], m.parent, homes[h].parents))
                continue;
            for (int p = 0; p < 2 && homes[h].partners[p]; p++)
                move_partner(sorted, count, names[i], m.parent, homes[h].partners[p], i, home);
        }
    free(sorted);
    return 0;
}
