/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Members of a set have one parent: the names up to the part that differs are the same. Names are sorted by parent and
 * set, so that members lie side by side. */
#include "model/fused.h"

#include <stdlib.h>
#include <string.h>

#include "files/text.h"

enum { MAX_MEMBERS = 8 };

/* The fused mappings of llm-compressor 0.14.1a20261020, in their order. */
#define FUSED_MAPPINGS_SETS                                                                                            \
    "gate_proj+up_proj w1+w3 q_proj+k_proj+?v_proj "                                                                   \
    "q_proj+k_proj+v_proj+b_proj+f_a_proj+?g_proj q_proj+k_proj+v_proj+b_proj+forget_gate.f_a_proj+?g_proj "           \
    "q_a_proj+kv_a_proj_with_mqa+?g_proj wq_a+wkv_a_with_mqa q_a_proj+kv_proj wq_a+wkv "                               \
    "kv_proj+gate_proj wkv+wgate wk+weights_proj"

/* The other sets of vLLM 0.32 (packed_modules_mapping of its models). Those whose names mean something else in other
 * models are in the rows of their architectures. */
static const char fused_mappings[] = FUSED_MAPPINGS_SETS,
                  sets_of_vllm[] = FUSED_MAPPINGS_SETS " c_fc_0+c_fc_1 query+key+value wq+wk+wv to_q+to_k+to_v "
                                                       "attn.q+attn.k+attn.v in_proj_qkv+in_proj_z in_proj_b+in_proj_a";

/* model_free_ptq matches the names as text, so that "vision_attn" is a parent of q_proj and "xw1" a member. `parents`
 * are the endings of the parent; NULL: any. See llmcompressor/entrypoints/model_free/microscale.py. */
static const struct {
    const char *set, *parents;
} sets_of_llm_compressor[] = {{"q_proj+k_proj+v_proj", "attn attention"},
                              {"wq_a+wkv_a_with_mqa", "attn attention"},
                              {"gate_proj+up_proj", "mlp"},
                              {"w1+w3", NULL}};

/* A set: its members under one parent, each with ".weight" behind it. */
struct fused_rule {
    struct {
        const char *text;
        size_t length;
    } members[MAX_MEMBERS];
    int count;
    unsigned needed;     /* bits of the members that must be there */
    const char *parents; /* endings of the parent, separated by spaces; NULL: any parent */
    bool by_text;        /* without a parent, a member may begin within a component */
};

struct fused_member {
    const char *name;
    size_t parent; /* bytes of the name before the member */
    int member;
    size_t index;
};

/* Reads "a+b+?c". Returns the end of its text. */
static const char *read_rule(struct fused_rule *rule, const char *text)
{
    *rule = (struct fused_rule){0};
    while (*text && *text != ' ' && rule->count < MAX_MEMBERS) {
        const bool optional = *text == '?';
        text += optional;
        const size_t length = strcspn(text, "+ ");
        rule->members[rule->count].text = text;
        rule->members[rule->count].length = length;
        rule->needed |= optional ? 0 : 1u << rule->count;
        rule->count++;
        text += length + (text[length] == '+');
    }
    return text;
}

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

/* Finds the member of the rule that a name has. */
static bool find_member(const struct fused_rule *rule, const char *name, struct fused_member *found)
{
    static const char ending[] = ".weight";
    const size_t length = strlen(name), tail = sizeof ending - 1;
    if (length < tail || strcmp(name + length - tail, ending) != 0)
        return false;
    for (int m = 0; m < rule->count; m++) {
        const size_t size = rule->members[m].length;
        if (length - tail < size || memcmp(name + length - tail - size, rule->members[m].text, size) != 0)
            continue;
        const size_t parent = length - tail - size;
        const bool component = parent == 0 || name[parent - 1] == '.';
        if ((component || (rule->by_text && !rule->parents)) && parent_ends(name, parent, rule->parents)) {
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
    return order ? order : ORDER(a->parent, b->parent);
}

static int compare_members(const void *a, const void *b)
{
    const struct fused_member *s = a, *t = b;
    const int order = compare_parents(s, t);
    return order ? order : s->member - t->member;
}

/* The names whose sets are found. */
struct fused_names {
    const char *const *names;
    size_t count;
    size_t *set;
    bool *taken;
    struct fused_member *members; /* of the rule at hand */
};

/* Makes the sets of one rule that have `size` members, none of which is in a set yet. */
static void apply(struct fused_names *n, const struct fused_rule *rule, int size)
{
    size_t found = 0;
    for (size_t i = 0; i < n->count; i++)
        if (find_member(rule, n->names[i], &n->members[found]))
            n->members[found++].index = i;
    qsort(n->members, found, sizeof *n->members, compare_members);
    for (size_t first = 0, end; first < found; first = end) {
        unsigned present = 0;
        bool free_members = true;
        for (end = first; end < found && compare_parents(&n->members[first], &n->members[end]) == 0; end++) {
            present |= 1u << n->members[end].member;
            free_members = free_members && !n->taken[n->members[end].index];
        }
        if ((present & rule->needed) != rule->needed || end - first != (size_t)size || !free_members)
            continue;
        for (size_t i = first; i < end; i++) {
            n->set[n->members[i].index] = n->members[first].index;
            n->taken[n->members[i].index] = true;
        }
    }
}

/* Applies a list of rules, larger sets first. */
static void apply_list(struct fused_names *n, const char *list, const char *parents, bool by_text)
{
    for (int size = MAX_MEMBERS; list && size > 1; size--)
        for (const char *p = list; *p;) {
            struct fused_rule rule;
            p = read_rule(&rule, p);
            p += *p == ' ';
            rule.parents = parents;
            rule.by_text = by_text;
            if (size <= rule.count)
                apply(n, &rule, size);
        }
}

int fused_sets(const char *const *names, size_t count, enum fused_rules rules,
               const struct architectures *architectures, size_t *set, struct fail *f)
{
    OWNED bool *taken = calloc(count + 1, sizeof *taken);
    OWNED struct fused_member *members = malloc((count + 1) * sizeof *members);
    struct fused_names n = {.names = names, .count = count, .set = set, .taken = taken, .members = members};
    if (!taken || !members)
        return fail_system(f, "no memory for the fused sets of %zu tensors", count);
    for (size_t i = 0; i < count; i++)
        set[i] = i;
    if (rules == FUSED_VLLM) {
        for (size_t i = 0; architectures && i < architectures->count; i++)
            apply_list(&n, architectures->rows[i]->fused, NULL, false);
        apply_list(&n, sets_of_vllm, NULL, false);
    } else if (rules == FUSED_MAPPINGS) {
        apply_list(&n, fused_mappings, NULL, false);
    } else {
        for (size_t i = 0; i < sizeof sets_of_llm_compressor / sizeof *sets_of_llm_compressor; i++)
            apply_list(&n, sets_of_llm_compressor[i].set, sets_of_llm_compressor[i].parents, true);
    }
    return 0;
}

int weights_find_sets(struct weights *weights, const struct architectures *architectures, struct fail *f)
{
    OWNED const char **names = malloc((weights->count + 1) * sizeof *names);
    OWNED size_t *set = malloc((weights->count + 1) * sizeof *set);
    if (!names || !set)
        return NO_MEMORY(f, "the fused sets");
    for (size_t i = 0; i < weights->count; i++)
        names[i] = weights->items[i].name;
    RETURN_IF_NOT_OK(fused_sets(names, weights->count, FUSED_VLLM, architectures, set, f));
    for (size_t i = 0; i < weights->count; i++)
        weights->items[i].set = set[i];
    return QOBS_OK;
}

int qobs_checkpoint_fused_sets(const char *const *names, size_t count, const char *model_type, size_t *set,
                               qobs_error *error)
{
    struct architectures architectures = {0};
    struct fail f = {.message = ""};
    int status = names && set ? QOBS_OK : INVALID(&f, "%s: is NULL", names ? "set" : "names");
    for (size_t i = 0; status == QOBS_OK && i < count; i++)
        status = names[i] ? QOBS_OK : INVALID(&f, "names: entry %zu is NULL", i);
    if (status == QOBS_OK && model_type)
        architectures_add(&architectures, model_type, NULL, true);
    if (status == QOBS_OK)
        status = fused_sets(names, count, FUSED_VLLM, &architectures, set, &f);
    return give_error(error, status, &f);
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

/* Returns true if the parent is "<p>.<m>." with m of the list, or with NULL, any "<p>.". */
static bool is_parent(const char *name, size_t parent, const char *components)
{
    if (parent < 2 || name[parent - 1] != '.')
        return false;
    if (!components)
        return true;
    const size_t begin = component_start(name, parent - 1);
    return begin > 1 && are_one_of(name + begin, parent - 1 - begin, components);
}

static void move_partner(const struct named *sorted, size_t count, const char *owner, size_t parent,
                         const char *partner, size_t index, size_t *home)
{
    OWNED char *name = text_format("%.*s%s.weight", (int)parent, owner, partner);
    const struct named *found = name ? named_find(sorted, count, sizeof *sorted, name) : NULL;
    if (found)
        home[found->index] = index;
}

int fused_homes(const char *const *names, size_t count, enum fused_rules rules, size_t *home, struct fail *f)
{
    if (rules != FUSED_LLM_COMPRESSOR)
        return fused_sets(names, count, rules, NULL, home, f);
    OWNED struct named *sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted)
        return fail_system(f, "no memory for %zu tensors", count);
    for (size_t i = 0; i < count; i++) {
        home[i] = i;
        sorted[i] = (struct named){.name = names[i], .index = i};
    }
    named_sort(sorted, count, sizeof *sorted);
    for (size_t i = 0; i < count; i++)
        for (size_t h = 0; h < sizeof homes / sizeof *homes; h++) {
            struct fused_rule rule;
            struct fused_member m;
            read_rule(&rule, homes[h].owner);
            if (!find_member(&rule, names[i], &m) || !is_parent(names[i], m.parent, homes[h].parents))
                continue;
            for (int p = 0; p < 2 && homes[h].partners[p]; p++)
                move_partner(sorted, count, names[i], m.parent, homes[h].partners[p], i, home);
        }
    return 0;
}
