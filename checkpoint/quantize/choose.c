/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Architecture and names decide, because files do not say the classes of modules. */
#include "quantize/choose.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/draft.h"
#include "model/experts.h"
#include "model/layer_words.h"
#include "schemes/match.h"
#include "schemes/runtimes.h"
#include "files/text.h"

struct choice {
    const struct architectures *architectures;
    const struct quant_config *config;
    qobs_compat compat;
    bool keeps_draft;
    struct quant_matchers of;
};

static void release(struct choice *c) { quant_matchers_free(&c->of); }

static bool is_float(const struct weight *w) { return dtype_is_in(w->dtype, HALVES_AND_FLOATS); }

/* Returns the first group with a target that matches; group_count: none. *by_class: only "Linear" matches. Runtimes try
 * names of all groups before classes; model_free_ptq takes the first group. */
static size_t find_group(const struct choice *c, const struct weight *w, bool *by_class)
{
    const size_t count = c->config->group_count;
    size_t linear = count;
    for (size_t g = 0; g < count; g++) {
        *by_class = matcher_find(c->of.groups[g], w->name, w->module) < 0;
        if (!*by_class)
            return g;
        if (linear == count && matcher_has(c->of.groups[g], "Linear"))
            linear = g;
        if (linear < count && c->compat != QOBS_COMPAT_VLLM)
            return linear;
    }
    *by_class = true;
    return linear;
}

/* Returns true if `ignore` names the weight, or the tensor of all experts that it comes from, or that one's module. */
static bool is_ignored(const struct choice *c, const struct weight *w)
{
    const char *source = w->source->stored->name;
    size_t length = module_length(source);
    if (matcher_find(c->of.ignore, w->name, w->module) >= 0)
        return true;
    if (w->experts == EXPERTS_ABSENT || c->compat != QOBS_COMPAT_VLLM)
        return false;
    if (matcher_find(c->of.ignore, source, length) >= 0)
        return true;
    length = component_start(source, length);
    return length > 0 && matcher_find(c->of.ignore, source, length - 1) >= 0;
}

/* Returns true if the group size does not divide the columns. A layer of experts is quantized whole or refused. */
static bool is_uneven(const struct weight *w, const struct quant_args *a)
{
    size_t number;
    const bool grouped = a->strategy == QUANT_GROUP || a->strategy == QUANT_TENSOR_GROUP;
    return grouped && w->shape[1] % a->group_size != 0 && experts_layer(w->name, w->module, &number) == 0;
}

static enum weight_reason choose_one(const struct choice *c, struct weight *w)
{
    const bool whole = w->experts > EXPERTS_OF_ONE; /* not split; check() refuses it if a target has its name */
    bool by_class = false;
    if (!whole && w->module == strlen(w->name))
        return WEIGHT_NOT_A_WEIGHT;
    if (!whole && w->module >= 4 && memcmp(w->name + w->module - 4, "norm", 4) == 0)
        return WEIGHT_NORM;
    w->group = find_group(c, w, &by_class);
    if (w->group == c->config->group_count)
        return WEIGHT_NOT_TARGETED;
    if (is_ignored(c, w))
        return WEIGHT_IGNORED;
    if (by_class && c->keeps_draft && draft_holds(c->architectures, w->name, w->module))
        return WEIGHT_DRAFT;
    if (!by_class || (whole ? w->experts == EXPERTS_UNCLEAR || !is_float(w) : c->compat != QOBS_COMPAT_VLLM))
        return WEIGHT_TAKEN;
    if (whole)
        return w->experts == EXPERTS_STACKED ? WEIGHT_STACKED : WEIGHT_EXPERTS;
    const enum module_kind kind =
        w->ndim == 2 ? architecture_kind(c->architectures, w->name, w->module, w->shape[0]) : MODULE_KEPT;
    if (kind != MODULE_LINEAR)
        return kind == MODULE_CONV1D ? WEIGHT_CONV1D : WEIGHT_NOT_LINEAR;
    if (!is_float(w))
        return WEIGHT_NO_FLOAT;
    if (is_uneven(w, &c->config->groups[w->group].weights))
        return WEIGHT_UNEVEN;
    return architecture_list(c->architectures, LIST_OF(vllm_keeps), w->name, w->module) ? WEIGHT_VLLM_KEEPS
                                                                                        : WEIGHT_TAKEN;
}

/* Returns true if a layer that vLLM builds unquantized costs no other runtime anything: it is in no numbered block, or
 * transformers has no class of the model. */
static bool stays(const struct choice *c, const struct weight *w)
{
    return w->reason == WEIGHT_VLLM_KEEPS &&
           (architecture_lacks_transformers(c->architectures) || !architecture_in_block(w->name, w->module));
}

/* The other layers with this reason stay if they are few, so that all runtimes load the model. Otherwise they are
 * taken: vLLM does not load them, and uneven ones are refused. */
static void choose_few(const struct choice *c, struct weights *weights, enum weight_reason reason)
{
    enum { FEW = 20 }; /* a twentieth of the bytes */
    uint64_t few = 0, all = 0;
    for (size_t i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->items[i];
        few += w->reason == reason && !stays(c, w) ? w->bytes : 0;
        all += w->reason == WEIGHT_TAKEN || w->reason == WEIGHT_VLLM_KEEPS || w->reason == WEIGHT_UNEVEN ? w->bytes : 0;
    }
    const bool stay = all > 0 && few <= all / FEW; /* tensors without elements are not few, but refused */
    for (size_t i = 0; !stay && i < weights->count; i++)
        if (weights->items[i].reason == reason && !stays(c, &weights->items[i]))
            weights->items[i].reason = WEIGHT_TAKEN;
}

/* Why a weight that is targeted cannot be quantized. */
enum target_refusal {
    REFUSAL_NONE,
    REFUSAL_TABLE,
    REFUSAL_CONV1D,
    REFUSAL_UNCLEAR,
    REFUSAL_STACKED,
    REFUSAL_EXPERTS,
    REFUSAL_SHAPE,
    REFUSAL_DTYPE
};

static enum target_refusal refusal_of(const struct choice *c, const struct weight *w)
{
    const enum module_kind kind = c->compat == QOBS_COMPAT_VLLM && w->ndim == 2
                                      ? architecture_kind(c->architectures, w->name, w->module, w->shape[0])
                                      : MODULE_LINEAR;
    if (w->reason != WEIGHT_TAKEN)
        return REFUSAL_NONE;
    if (kind == MODULE_TABLE || kind == MODULE_CONV1D)
        return kind == MODULE_TABLE ? REFUSAL_TABLE : REFUSAL_CONV1D;
    if (w->experts == EXPERTS_UNCLEAR && is_float(w))
        return REFUSAL_UNCLEAR;
    if ((w->experts == EXPERTS_STACKED || w->experts == EXPERTS_WHOLE) && is_float(w))
        return w->experts == EXPERTS_STACKED ? REFUSAL_STACKED : REFUSAL_EXPERTS;
    if (w->ndim != 2 && (w->experts == EXPERTS_ABSENT || is_float(w)))
        return REFUSAL_SHAPE;
    return is_float(w) ? REFUSAL_NONE : REFUSAL_DTYPE;
}

/* Fails for the layers of a refusal; w is the first of them. */
static int refuse(enum target_refusal refusal, const struct layer_words *l, const struct weight *w, struct fail *f)
{
    switch (refusal) {
    case REFUSAL_TABLE:
        return INVALID(f,
                       "%s: %s targeted; vLLM " RUNTIMES_VLLM " alone loads embeddings, integers on GPUs. "
                       "--ignore '%s' leaves %s out; --compat llm-compressor quantizes %s",
                       l->names, IS_OR_ARE(l), l->entry, IT_OR_THEM(l), IT_OR_THEM(l));
    case REFUSAL_CONV1D:
        return INVALID(f,
                       "%s: %s targeted; no runtime loads a Conv1D quantized. --ignore '%s' leaves %s out; "
                       "--compat llm-compressor quantizes %s",
                       l->names, IS_OR_ARE(l), l->entry, IT_OR_THEM(l), IT_OR_THEM(l));
    case REFUSAL_UNCLEAR:
        return INVALID(f,
                       "%s: %s shape %s; nothing says which dimensions of these experts are inputs. "
                       "--ignore '%s' leaves them out",
                       l->names, HAS_OR_HAVE(l), SHAPE_WORDS(w->ndim, w->shape), l->entry);
    case REFUSAL_STACKED:
        return INVALID(f,
                       "%s: %s targeted; --split-experts splits these experts for vLLM, --ignore '%s' leaves them out",
                       l->names, IS_OR_ARE(l), l->entry);
    case REFUSAL_EXPERTS:
        return INVALID(f, "%s: %s targeted; no runtime loads these experts quantized. --ignore '%s' leaves them out",
                       l->names, IS_OR_ARE(l), l->entry);
    case REFUSAL_SHAPE:
        return INVALID(f, "%s: %s shape %s; a matrix is needed. --ignore '%s' leaves %s out", l->names, HAS_OR_HAVE(l),
                       SHAPE_WORDS(w->ndim, w->shape), l->entry, IT_OR_THEM(l));
    default:
        return INVALID(f, "%s: %s %s; BF16, F16 and F32 can be quantized. --ignore '%s' leaves %s out", l->names,
                       IS_OR_ARE(l), dtype_name(w->dtype), l->entry, IT_OR_THEM(l));
    }
}

/* Fails with all layers that have the refusal of the first one. */
static int check_taken(const struct choice *c, const struct weights *weights, struct fail *f)
{
    const struct weight *first = NULL;
    struct layer_words words;
    for (size_t i = 0; i < weights->count && !first; i++)
        first = refusal_of(c, &weights->items[i]) ? &weights->items[i] : NULL;
    if (!first)
        return QOBS_OK;
    const enum target_refusal refusal = refusal_of(c, first);
    OWNED bool *marked = calloc(weights->count, sizeof *marked);
    if (!marked)
        return NO_MEMORY(f, "the layers");
    for (size_t i = 0; i < weights->count; i++)
        marked[i] = refusal_of(c, &weights->items[i]) == refusal;
    layer_words_make(&words, weights, marked);
    return refuse(refusal, &words, first, f);
}

/* Fails if a pattern has given up, so that nobody knows what it matches. */
static int check_patterns(const struct choice *c, struct fail *f)
{
    RETURN_IF_NOT_OK(matcher_check(c->of.ignore, "ignore", f));
    for (size_t g = 0; g < c->config->group_count; g++)
        RETURN_IF_NOT_OK(matcher_check(c->of.groups[g], "targets", f));
    return QOBS_OK;
}

int choose_weights(struct weights *weights, const struct architectures *architectures,
                   const struct quant_config *config, qobs_compat compat, qobs_draft draft, struct fail *f)
{
    const bool keeps = draft == QOBS_DRAFT_KEEP || (draft == QOBS_DRAFT_AS_LOADED && !draft_loads(architectures));
    RELEASED_BY(release)
    struct choice c = {.architectures = architectures,
                       .config = config,
                       .compat = compat,
                       .keeps_draft = keeps && compat == QOBS_COMPAT_VLLM};
    RETURN_IF_NOT_OK(quant_matchers_create(&c.of, config, f));
    for (size_t i = 0; i < weights->count; i++)
        weights->items[i].reason = choose_one(&c, &weights->items[i]);
    choose_few(&c, weights, WEIGHT_UNEVEN);
    choose_few(&c, weights, WEIGHT_VLLM_KEEPS);
    RETURN_IF_NOT_OK(check_taken(&c, weights, f));
    return check_patterns(&c, f);
}

void choose_leave_drafts(struct weights *weights, const struct architectures *architectures)
{
    for (size_t i = 0; i < weights->count; i++)
        if (weights->items[i].reason == WEIGHT_TAKEN &&
            draft_holds(architectures, weights->items[i].name, weights->items[i].module))
            weights->items[i].reason = WEIGHT_DRAFT;
}

/* ---- The ignore list --------------------------------------------------------------------------------------------- */

/* Adds an entry unless one of the first `count` is the same. */
static int add_entry(struct quant_config *config, size_t count, const char *entry, struct fail *f)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(config->ignore[i], entry) == 0)
            return QOBS_OK;
    return quant_config_add_ignore(config, entry, f);
}

static bool is_targeted(const struct choice *c, const char *name, size_t length)
{
    for (size_t g = 0; g < c->config->group_count; g++)
        if (matcher_has(c->of.groups[g], "Linear") || matcher_find(c->of.groups[g], name, length) >= 0)
            return true;
    return false;
}

int entry_matches(bool *matches, const char *entry, const struct weights *weights, bool kept, struct fail *f)
{
    OWNED_MATCHER struct matcher *matcher;
    RETURN_IF_NOT_OK(matcher_create(&matcher, &entry, 1, "ignore", f));
    *matches = false;
    for (size_t i = 0; i < weights->count && !*matches; i++) {
        const struct weight *w = &weights->items[i];
        *matches = (w->reason == WEIGHT_TAKEN || (kept && w->reason == WEIGHT_KEPT)) &&
                   matcher_find(matcher, w->name, w->module) >= 0;
    }
    return QOBS_OK;
}

/* Returns true if a loader would quantize the module: a target claims it, and no entry of `ignore` names it. */
static bool is_claimed(const struct choice *c, const char *name, size_t length)
{
    return matcher_find(c->of.ignore, name, length) < 0 && is_targeted(c, name, length);
}

static int list_heads(const struct choice *c, const struct weights *weights, struct quant_config *config,
                      struct fail *f)
{
    char entry[512];
    bool matches;
    for (size_t i = 0; architecture_head(c->architectures, i, entry, sizeof entry); i++) {
        RETURN_IF_NOT_OK(entry_matches(&matches, entry, weights, false, f));
        if (!matches && is_claimed(c, entry, strlen(entry)))
            RETURN_IF_NOT_OK(add_entry(config, config->ignore_count, entry, f));
    }
    return QOBS_OK;
}

/* Adds entries for experts that stay in one tensor, under any name that a loader may have for them. */
static int list_experts(const struct choice *c, const struct weights *weights, const struct weight *w,
                        struct quant_config *config, struct fail *f)
{
    struct expert_entry e;
    char text[512];
    bool matches;
    for (size_t i = 0; experts_ignored_as(w, i, &e); i++) {
        if (!is_claimed(c, e.name, strlen(e.name)))
            continue;
        RETURN_IF_NOT_OK(entry_matches(&matches, e.everywhere, weights, false, f));
        RETURN_IF_NOT_OK(add_entry(config, config->ignore_count, matches ? e.here : e.everywhere, f));
    }
    for (size_t i = 0; w->reason == WEIGHT_EXPERTS && architecture_experts(c->architectures, i, text, sizeof text); i++)
        RETURN_IF_NOT_OK(add_entry(config, config->ignore_count, text, f));
    return QOBS_OK;
}

static bool is_quantized(const struct weights *weights, const char *module)
{
    char name[1024 + sizeof ".weight"];
    snprintf(name, sizeof name, "%s.weight", module);
    const struct weight *found = weights_find(weights, name);
    return found && found->reason == WEIGHT_TAKEN;
}

/* Adds the other names of a module that stays as it is. */
static int list_aliases(const struct choice *c, const struct weights *weights, const char *module, size_t length,
                        size_t count, struct quant_config *config, struct fail *f)
{
    char alias[1024];
    for (size_t i = 0; architecture_alias(c->architectures, module, length, i, alias, sizeof alias); i++)
        if (is_claimed(c, alias, strlen(alias)) && !is_quantized(weights, alias))
            RETURN_IF_NOT_OK(add_entry(config, count, alias, f));
    return QOBS_OK;
}

/* Adds the shortest last components of a module that no quantized one has: what loads a model without rows may have
 * other prefixes than the file. */
static int list_anywhere(const struct weights *weights, const struct weight *w, size_t count,
                         struct quant_config *config, struct fail *f)
{
    enum { MOST = 4 };
    char entry[512];
    bool matches = true;
    for (int i = 1; i <= MOST && matches; i++) {
        if (!architecture_anywhere(w->name, w->module, i, entry, sizeof entry))
            return QOBS_OK;
        for (size_t k = 0; k < config->ignore_count; k++)
            if (strcmp(config->ignore[k], entry) == 0)
                return QOBS_OK;
        RETURN_IF_NOT_OK(entry_matches(&matches, entry, weights, false, f));
    }
    return matches ? QOBS_OK : add_entry(config, count, entry, f);
}

/* Lists one matrix that is left out. A projection of nn.MultiheadAttention is no "<module>.weight"; transformers makes
 * linear layers of it in some architectures. */
static int list_weight(const struct choice *c, const struct weights *weights, const struct weight *w, size_t count,
                       struct quant_config *config, struct fail *f)
{
    char name[1024];
    size_t length = w->module;
    if (length == strlen(w->name)) {
        if (!architecture_alias(c->architectures, w->name, w->module, 0, name, sizeof name))
            return QOBS_OK;
        while (length > 0 && w->name[length] != '.')
            length--;
    }
    if (length > 0 && length < sizeof name && is_claimed(c, w->name, length)) {
        snprintf(name, sizeof name, "%.*s", (int)length, w->name);
        RETURN_IF_NOT_OK(add_entry(config, count, name, f));
        if (c->architectures->source == KNOWLEDGE_RULE && w->module < strlen(w->name))
            RETURN_IF_NOT_OK(list_anywhere(weights, w, count, config, f));
    }
    return list_aliases(c, weights, w->name, w->module, count, config, f);
}

static int list_weights(const struct choice *c, const struct weights *weights, struct quant_config *config,
                        struct fail *f)
{
    const size_t count = config->ignore_count;
    for (size_t i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->items[i];
        if (w->reason == WEIGHT_TAKEN || w->reason == WEIGHT_DRAFT)
            continue;
        if (w->experts > EXPERTS_OF_ONE && w->reason != WEIGHT_NOT_A_WEIGHT)
            RETURN_IF_NOT_OK(list_experts(c, weights, w, config, f));
        else if (w->experts <= EXPERTS_OF_ONE && w->ndim == 2)
            RETURN_IF_NOT_OK(list_weight(c, weights, w, count, config, f));
    }
    return QOBS_OK;
}

/* Draft layers that stay are named by patterns, because runtimes number them in their own way. */
static int list_drafts(const struct choice *c, const struct weights *weights, struct quant_config *config,
                       struct fail *f)
{
    char entry[512];
    bool any = false;
    for (size_t i = 0; i < weights->count; i++)
        any |= weights->items[i].reason == WEIGHT_DRAFT;
    for (size_t i = 0; any && draft_ignore(c->architectures, i, entry, sizeof entry); i++) {
        bool matches;
        RETURN_IF_NOT_OK(entry_matches(&matches, entry, weights, true, f));
        if (!matches)
            RETURN_IF_NOT_OK(add_entry(config, config->ignore_count, entry, f));
    }
    return QOBS_OK;
}

/* ---- Patterns of what has no row --------------------------------------------------------------------------------- */

enum { MAX_PATTERN = 256 };

/* Writes a pattern of the last `count` components of a name, numbers as any. Returns false if it has fewer before them
 * than a pattern needs, or characters that mean something in one. */
static bool write_pattern(const char *name, size_t length, int count, bool nested, char text[MAX_PATTERN])
{
    size_t begin = length;
    for (int i = 0; i < count && begin > 0; i++)
        begin = component_start(name, i > 0 ? begin - 1 : begin);
    if (nested && begin == 0)
        return false;
    *text = '\0';
    bool fits = text_append(text, MAX_PATTERN, "re:%s", nested ? ".*[.]" : "(.*[.])?");
    while (begin < length) {
        size_t end = begin;
        bool number = true, plain = true;
        for (; end < length && name[end] != '.'; end++) {
            number = number && isdigit((unsigned char)name[end]);
            plain = plain && (isalnum((unsigned char)name[end]) || name[end] == '_' || name[end] == '-');
        }
        fits = fits && plain &&
               (number ? text_append(text, MAX_PATTERN, "[0-9]+")
                       : text_append(text, MAX_PATTERN, "%.*s", (int)(end - begin), name + begin));
        fits = fits && text_append(text, MAX_PATTERN, end < length ? "[.]" : "$");
        begin = end + 1;
    }
    return fits;
}

static bool is_in_block(const char *name, size_t length)
{
    for (size_t i = 0; i + 1 < length; i++)
        if (name[i] == '.' && isdigit((unsigned char)name[i + 1]))
            return true;
    return false;
}

/* Adds the shortest pattern for a matrix that stays and for no layer that is quantized. A draft needs one. */
static int list_pattern(const struct weights *weights, const struct weight *w, bool draft, struct quant_config *config,
                        struct fail *f)
{
    enum { MOST = 4 };
    const bool nested = is_in_block(w->name, w->module);
    char text[MAX_PATTERN];
    for (int count = 1 + nested; count <= MOST && write_pattern(w->name, w->module, count, nested, text); count++) {
        bool matches;
        RETURN_IF_NOT_OK(entry_matches(&matches, text, weights, true, f));
        if (!matches)
            return add_entry(config, config->ignore_count, text, f);
    }
    if (!draft)
        return QOBS_OK;
    const size_t last = component_start(w->name, w->module);
    return INVALID(f,
                   "'%.200s': stays, and others of its name do not; vLLM numbers the layers of a draft after those of "
                   "its model, so that no entry of ignore names one alone. --ignore 're:.*[.]%.*s$' leaves all of them",
                   w->name, (int)(w->module - last), w->name + last);
}

/* A runtime may have the modules of an unknown model under other prefixes. vLLM 0.32 has those of a draft below `model`
 * and numbers its layers after those of the model that it drafts for: no name of the file is right, also a given one.
 */
static int list_patterns(const struct choice *c, const struct weights *weights, struct quant_config *config,
                         struct fail *f)
{
    const bool draft = c->architectures->draft;
    for (size_t i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->items[i];
        if (w->reason != WEIGHT_TAKEN && w->reason != WEIGHT_DRAFT && w->experts <= EXPERTS_OF_ONE && w->ndim == 2 &&
            w->module < strlen(w->name) && (draft ? is_targeted : is_claimed)(c, w->name, w->module))
            RETURN_IF_NOT_OK(list_pattern(weights, w, draft, config, f));
    }
    return QOBS_OK;
}

int choose_list_ignored(const struct weights *weights, const struct architectures *architectures,
                        struct quant_config *config, struct fail *f)
{
    RELEASED_BY(release) struct choice c = {.architectures = architectures, .config = config};
    RETURN_IF_NOT_OK(quant_matchers_create(&c.of, config, f));
    RETURN_IF_NOT_OK(list_heads(&c, weights, config, f));
    RETURN_IF_NOT_OK(list_weights(&c, weights, config, f));
    RETURN_IF_NOT_OK(list_drafts(&c, weights, config, f));
    return architectures->unknown || architectures->draft ? list_patterns(&c, weights, config, f) : QOBS_OK;
}

const char *weight_reason_name(enum weight_reason reason)
{
    static const char *const names[WEIGHT_REASONS] = {
        [WEIGHT_TAKEN] = "quantized",
        [WEIGHT_NOT_A_WEIGHT] = "not a weight",
        [WEIGHT_NORM] = "norm",
        [WEIGHT_IGNORED] = "ignored",
        [WEIGHT_NOT_TARGETED] = "not targeted",
        [WEIGHT_NOT_LINEAR] = "not linear",
        [WEIGHT_CONV1D] = "of class Conv1D, which transformers does not load quantized",
        [WEIGHT_VLLM_KEEPS] = "linear, but vLLM does not load it quantized",
        [WEIGHT_UNEVEN] = "columns that the group size does not divide",
        [WEIGHT_NO_FLOAT] = "not floating point",
        [WEIGHT_EXPERTS] = "experts that no runtime loads quantized",
        [WEIGHT_STACKED] = "experts in one tensor",
        [WEIGHT_KEPT] = "quantized already",
        [WEIGHT_DRAFT] = "of draft layers that stay"};
    return reason < WEIGHT_REASONS ? names[reason] : "unknown";
}
