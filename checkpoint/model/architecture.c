/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The longest pattern of a model's rows decides, then words, then the number of rows. */
#include "model/architecture.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "files/text.h"
#include "qobs/checkpoint.h"

static const struct architecture table[] = {
#include "model/transformers.inc"
};

/* Rows that no script finds. They hold beside those of any source. */
static const struct architecture by_hand[] = {
#include "model/architectures.inc"
};

static const char parts[] =
#include "model/parts.inc"
    ;

/* The general rule: names that are no linear layers in any model. */
static const struct architecture general = {
    .names[MODULE_HEAD] = "lm_head output_layer embed_out unembed shared_head.head score classifier lm_heads.* "
                          "lm_head.* lm_head.out_proj lm_head.decoder predictions.decoder head.decoder vocab_projector "
                          "lm_loss generator_lm_head pred_layer.proj codec_head ctc_head unembedding_projection "
                          "bbox_embed.*.layers.* bbox_predictor.layers.*",
    .names[MODULE_ROUTER] = "gate wg shared_expert_gate",
    .names[MODULE_TABLE] = "wte wpe relative_attention_bias rel_pos_emb iou_token mask_tokens hq_token obj_score_token "
                           "presence_token query_feat segment_emb pos_emb freq_emb",
    .names[MODULE_KEPT] = "eh_proj indexer.wk indexer.weights_proj"};

/* The same outside of numbered blocks, in which these names mean other layers. */
static const struct architecture outside = {.names[MODULE_HEAD] =
                                                "output head proj_out ff_out output_projection ^decoder",
                                            .names[MODULE_TABLE] = "shared emb query queries_features reference_points",
                                            .names[MODULE_KEPT] = "objective"};

/* Words in the last component. */
static const char *const last_words[] = {"norm", "conv1d", "rotary"};

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Returns the number of components that the pattern has if the module's name ends with it, else 0. */
static int match(const char *module, size_t length, const char *pattern, size_t size)
{
    const bool anchored = size > 0 && *pattern == '^';
    const char *first = pattern + anchored;
    size_t at = length, end = pattern + size - first;
    int components = 0;
    for (;;) {
        const size_t begin = component_start(first, end), start = component_start(module, at);
        const bool any = end - begin == 1 && first[begin] == '*';
        if (!any && (end - begin != at - start || memcmp(first + begin, module + start, at - start) != 0))
            return 0;
        components++;
        if (begin == 0)
            return !anchored || start == 0 ? components : 0;
        if (start == 0)
            return 0;
        end = begin - 1;
        at = start - 1;
    }
}

/* Returns the most components of a pattern in the list that matches; 0: none. */
static int match_list(const char *module, size_t length, const char *list)
{
    int most = 0;
    for (const char *p = list; p && *p;) {
        const size_t size = strcspn(p, " ");
        const int components = match(module, length, p, size);
        most = components > most ? components : most;
        p += size + (p[size] == ' ');
    }
    return most;
}

/* Returns true if the text holds `word`, in any case. */
static bool holds(const char *text, size_t length, const char *word)
{
    const size_t size = strlen(word);
    for (size_t i = 0; i + size <= length; i++) {
        size_t k = 0;
        while (k < size && tolower((unsigned char)text[i + k]) == word[k])
            k++;
        if (k == size)
            return true;
    }
    return false;
}

/* Returns the start of what follows the last number that is a component and has components behind it; 0: none. */
static size_t end_of_block(const char *module, size_t length)
{
    size_t end = 0;
    for (size_t i = 0; i < length; i++) {
        bool number = module[i] != '.';
        for (; i < length && module[i] != '.'; i++)
            number = number && isdigit((unsigned char)module[i]);
        if (number && i < length)
            end = i + 1;
    }
    return end;
}

static bool has_component(const char *module, size_t length, const char *word, size_t size)
{
    for (size_t end = length; end > 0;) {
        const size_t begin = component_start(module, end);
        if (end - begin == size && memcmp(module + begin, word, size) == 0)
            return true;
        end = begin > 0 ? begin - 1 : 0;
    }
    return false;
}

enum { MAX_STARS = 8 };

struct name_run {
    const char *text;
    size_t length;
};

/* Returns the end of the components that match FROM from byte `at` of the name; SIZE_MAX: they differ. Writes what the
 * stars stand for. */
static size_t match_run(const char *name, size_t length, size_t at, const char *from, size_t size,
                        struct name_run stars[MAX_STARS])
{
    size_t star = 0;
    for (size_t begin = 0; begin < size;) {
        size_t end = begin, stop = at;
        while (end < size && from[end] != '.')
            end++;
        while (stop < length && name[stop] != '.')
            stop++;
        if (end - begin == 1 && from[begin] == '*' && star < MAX_STARS)
            stars[star++] = (struct name_run){name + at, stop - at};
        else if (end - begin != stop - at || memcmp(from + begin, name + at, stop - at) != 0)
            return SIZE_MAX;
        begin = end + 1;
        at = stop;
        if (begin < size && at++ == length)
            return SIZE_MAX;
    }
    return at;
}

/* Finds FROM in the name. Returns its first byte, and its end in *end; SIZE_MAX: it is not there. */
static size_t find_run(const char *name, size_t length, const char *from, size_t size, size_t *end,
                       struct name_run stars[MAX_STARS])
{
    const bool anchored = size > 0 && *from == '^';
    for (size_t at = 0; at < length;) {
        *end = match_run(name, length, at, from + anchored, size - anchored, stars);
        if (*end != SIZE_MAX)
            return at;
        if (anchored)
            break;
        while (at < length && name[at] != '.')
            at++;
        at++;
    }
    return SIZE_MAX;
}

/* ---- Rows of a model --------------------------------------------------------------------------------------------- */

void versions_set(struct versions *versions, const char *transformers, const char *vllm)
{
    *versions = (struct versions){.transformers = transformers, .vllm = vllm};
    const char *const full[] = {transformers, vllm};
    char *const cut[] = {versions->short_transformers, versions->short_vllm};
    for (int i = 0; i < 2; i++) {
        const size_t major = strcspn(full[i], "."), minor = strcspn(full[i] + major + (full[i][major] == '.'), ".");
        snprintf(cut[i], sizeof versions->short_vllm, "%.*s", (int)(major + minor + 1), full[i]);
    }
}

void architectures_versions(struct versions *versions) { versions_set(versions, TABLE_TRANSFORMERS, TABLE_VLLM); }

const char *knowledge_source_name(enum knowledge_source source)
{
    static const char *const names[] = {[KNOWLEDGE_RULE] = "rule",
                                        [KNOWLEDGE_TABLE] = "table",
                                        [KNOWLEDGE_INSTALLED] = "installed",
                                        [KNOWLEDGE_FILE] = "file"};
    return names[source];
}

static bool has_row(const struct architecture *row, const char *type, const char *class_name)
{
    return (type && row->types && is_one_of(type, row->types)) ||
           (class_name && row->classes && is_one_of(class_name, row->classes));
}

/* Adds those of `count` rows that have the type or the class. Returns false if none has. */
static bool add_rows(struct architectures *found, const struct architecture *rows, size_t count, const char *type,
                     const char *class_name, bool root)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        if (!has_row(&rows[i], type, class_name))
            continue;
        any = true;
        if (found->count == MAX_ARCHITECTURES)
            break;
        found->root[found->count] = root;
        found->rows[found->count++] = &rows[i];
    }
    return any;
}

bool architectures_add(struct architectures *found, const char *type, const char *class_name, bool root)
{
    const struct architecture_file *file = found->file;
    const bool of_file = file && add_rows(found, file->rows, file->count, type, class_name, root);
    const bool of_hand = add_rows(found, by_hand, sizeof by_hand / sizeof *by_hand, type, class_name, root);
    const bool any = of_file || add_rows(found, table, sizeof table / sizeof *table, type, class_name, root) || of_hand;
    found->type_count++;
    if (root) {
        found->source = of_file ? file->source : any ? KNOWLEDGE_TABLE : KNOWLEDGE_RULE;
        if (of_file)
            found->versions = file->versions;
        else
            architectures_versions(&found->versions);
    }
    return any;
}

bool qobs_checkpoint_knows(const char *model_type, const char *class_name)
{
    struct architectures found = {0};
    return (model_type && is_one_of(model_type, parts)) || architectures_add(&found, model_type, class_name, true);
}

/* Adds the rows of a configuration. The rows of config.json and of the language model decide what is known. */
static void add_config(struct architectures *found, const struct model_config *config)
{
    const bool root = config->path[0] == '\0';
    const char *type = model_config_type(config);
    const char *class_name = json_text(json_at(json_get(config->object, "architectures"), 0));
    if (!root && !type && !class_name)
        return;
    const bool known = architectures_add(found, type, class_name, root);
    if (root)
        found->no_model = !known && !type;
    const bool part = config->rank == 0 && type && !is_one_of(type, parts);
    if (!known && (root || (part && !found->unknown)))
        found->unknown = type ? type : class_name;
}

/* Returns a count that the language model's configuration has; 0: it has none. */
static int64_t number_of(const struct model *model, const char *key)
{
    const json_object *item = model_config_item(model, key);
    const int64_t number = json_is_number(item) ? json_object_get_int64(item) : 0;
    return number > 0 && number < INT32_MAX ? number : 0;
}

void architectures_find(struct architectures *found, const struct model *model, const struct architecture_file *file)
{
    *found = (struct architectures){.file = file, .draft = model_is_draft(model), .no_model = true};
    architectures_versions(&found->versions);
    found->layers = number_of(model, "num_hidden_layers");
    found->draft_layers = number_of(model, "num_nextn_predict_layers");
    for (size_t i = 0; i < model->config_count; i++) {
        const json_object *vocabulary = json_get(model->configs[i].object, "vocab_size");
        if (model->configs[i].object != model->hf_quant_config)
            add_config(found, &model->configs[i]);
        if (json_is_number(vocabulary) && found->vocabulary_count < MAX_VOCABULARIES)
            found->vocabularies[found->vocabulary_count++] = json_object_get_int(vocabulary);
    }
}

/* ---- Kinds ------------------------------------------------------------------------------------------------------- */

/* Sets *kind if a row has a longer pattern than *most components. */
static void apply(const struct architecture *row, const char *module, size_t length, int *most, enum module_kind *kind)
{
    for (int k = 0; k < MODULE_KINDS; k++) {
        const int components = match_list(module, length, row->names[k]);
        if (components > *most) {
            *most = components;
            *kind = (enum module_kind)k;
        }
    }
}

static enum module_kind general_kind(const struct architectures *found, const char *module, size_t length, int64_t rows)
{
    int most = 0;
    enum module_kind kind = MODULE_LINEAR;
    const size_t begin = component_start(module, length);
    const size_t inner = end_of_block(module, length); /* start of the name inside a numbered block */
    apply(&general, module, length, &most, &kind);
    if (inner == 0)
        apply(&outside, module, length, &most, &kind);
    if (most > 0)
        return kind;
    if (has_component(module, length, "gate", 4) || holds(module, length, "router"))
        return MODULE_ROUTER;
    if (holds(module + inner, length - inner, "embed"))
        return MODULE_TABLE;
    for (size_t i = 0; i < sizeof last_words / sizeof *last_words; i++)
        if (holds(module + begin, length - begin, last_words[i]))
            return MODULE_KEPT;
    if (inner > 0 || (length >= 5 && memcmp(module + length - 5, "_proj", 5) == 0))
        return MODULE_LINEAR;
    for (size_t i = 0; i < found->vocabulary_count; i++)
        if (rows > 0 && rows == found->vocabularies[i])
            return MODULE_TABLE;
    return MODULE_LINEAR;
}

bool architecture_in_block(const char *module, size_t length) { return end_of_block(module, length) > 0; }

enum module_kind architecture_kind(const struct architectures *found, const char *module, size_t length, int64_t rows)
{
    int most = 0;
    enum module_kind kind = MODULE_LINEAR;
    for (size_t i = 0; i < found->count; i++)
        apply(found->rows[i], module, length, &most, &kind);
    return most > 0 ? kind : general_kind(found, module, length, rows);
}

bool architecture_plain_experts(const struct architectures *found)
{
    bool plain = false;
    for (size_t i = 0; i < found->count; i++)
        plain |= found->root[i] && found->rows[i]->plain_experts;
    return plain;
}

bool architecture_lacks_vllm(const struct architectures *found)
{
    bool lacks = false;
    for (size_t i = 0; i < found->count; i++)
        lacks |= found->root[i] && found->rows[i]->lacks_vllm;
    return lacks;
}

/* Returns true if the module's name has components of the list "a|b.c", in their order, or if the list is "*". */
static bool is_listed(const char *list, const char *module, size_t length)
{
    struct name_run stars[MAX_STARS];
    size_t end;
    for (const char *p = list; p && *p;) {
        const size_t size = strcspn(p, "|");
        if (*p == '*' || find_run(module, length, p, size, &end, stars) != SIZE_MAX)
            return true;
        p += size + (p[size] == '|');
    }
    return false;
}

const char *architecture_list(const struct architectures *found, size_t column, const char *module, size_t length)
{
    for (size_t i = 0; i < found->count; i++) {
        const char *const *list = (const void *)((const char *)found->rows[i] + column);
        if ((found->root[i] || column == LIST_OF(vllm_keeps)) && is_listed(*list, module, length))
            return *list;
    }
    return NULL;
}

bool architecture_lacks_transformers(const struct architectures *found)
{
    bool lacks = false;
    for (size_t i = 0; i < found->count; i++) {
        const struct architecture *row = found->rows[i];
        const bool of_hand = row >= by_hand && row < by_hand + sizeof by_hand / sizeof *by_hand;
        if (found->root[i] && row->types && !of_hand) /* its class has another name there */
            return false;
        lacks |= found->root[i] && row->lacks_transformers;
    }
    return lacks;
}

enum module_kind architecture_kind_of_experts(const struct architectures *found, const char *name, size_t length)
{
    const size_t begin = component_start(name, length), parent = begin > 0 ? begin - 1 : 0;
    for (enum module_kind k = MODULE_EXPERTS; k < MODULE_KINDS; k++)
        for (size_t i = 0; i < found->count; i++) {
            const char *list = found->rows[i]->names[k];
            if (match_list(name, length, list) > 0 || match_list(name, parent, list) > 0)
                return k;
        }
    return MODULE_LINEAR;
}

/* ---- Entries of ignore ------------------------------------------------------------------------------------------- */

/* Writes a pattern as an entry of `ignore`: an exact name, or a regular expression if it stands for several. */
static const char *entry_of(const char *pattern, size_t length, bool nested, char *text, size_t size)
{
    const bool anchored = length > 0 && *pattern == '^';
    const bool several = memchr(pattern, '*', length) != NULL || (nested && !anchored);
    size_t n = 0;
    if (2 * length + 32 > size)
        return NULL;
    if (several)
        n = (size_t)snprintf(text, size, "re:%s", anchored ? "" : "(.*[.])?");
    for (size_t i = anchored; i < length; i++) {
        const char *as = several && pattern[i] == '*' ? "[^.]+" : several && pattern[i] == '.' ? "[.]" : NULL;
        n += as ? (size_t)snprintf(text + n, size - n, "%s", as) : 1;
        if (!as)
            text[n - 1] = pattern[i];
    }
    snprintf(text + n, size - n, "%s", several ? "$" : "");
    return text;
}

const char *architecture_anywhere(const char *module, size_t length, int components, char *text, size_t size)
{
    char pattern[256];
    size_t begin = length, n = 0;
    for (; components > 0 && begin > 0; components--)
        begin = component_start(module, begin - (begin < length));
    if (components > 0 || length - begin >= sizeof pattern)
        return NULL;
    while (begin < length) {
        const size_t part = strcspn(module + begin, "."), end = begin + part < length ? begin + part : length;
        const bool number = strspn(module + begin, "0123456789") == end - begin;
        memcpy(pattern + n, number ? "*" : module + begin, number ? 1 : end - begin);
        n += number ? 1 : end - begin;
        if (end < length)
            pattern[n++] = '.';
        begin = end + 1;
    }
    return entry_of(pattern, n, true, text, size);
}

/* Writes pattern `index` of a kind in the rows of the model, or of those with a star. NULL: there are fewer. */
static const char *entry_at(const struct architectures *found, enum module_kind kind, bool starred, bool nested,
                            size_t index, char *text, size_t size)
{
    for (size_t r = 0; r < found->count; r++)
        for (const char *p = found->rows[r]->names[kind]; p && *p;) {
            const size_t length = strcspn(p, " ");
            if ((!starred || memchr(p, '*', length)) && index-- == 0)
                return entry_of(p, length, nested, text, size);
            p += length + (p[length] == ' ');
        }
    return NULL;
}

const char *architecture_experts(const struct architectures *found, size_t index, char *text, size_t size)
{
    return entry_at(found, MODULE_EXPERTS, true, true, index, text, size);
}

/* Writes pattern `index` of both lists of heads of the general rule, for any prefix. NULL: there are fewer. */
static const char *head_of_rule(size_t index, char *text, size_t size)
{
    const char *const lists[] = {general.names[MODULE_HEAD], outside.names[MODULE_HEAD]};
    for (int i = 0; i < 2; i++)
        for (const char *p = lists[i]; *p;) {
            const size_t length = strcspn(p, " ");
            if (index-- == 0)
                return entry_of(p, length, true, text, size);
            p += length + (p[length] == ' ');
        }
    return NULL;
}

const char *architecture_head(const struct architectures *found, size_t index, char *text, size_t size)
{
    static const char head[] = "lm_head";
    const bool composite = found->type_count > 1;
    const size_t own = composite ? 2 : 1;
    if (index < own)
        return entry_of(head, strlen(head), index == 1, text, size);
    if (found->source == KNOWLEDGE_RULE)
        return head_of_rule(index - own, text, size);
    return entry_at(found, MODULE_HEAD, false, composite, index - own, text, size);
}

/* ---- Other names ------------------------------------------------------------------------------------------------- */

/* Text that grows by components. */
struct joined {
    char *text;
    size_t size, length;
    bool full;
};

static void join(struct joined *j, const char *text, size_t length, bool dot)
{
    if (j->full || j->length + dot + length + 1 > j->size) {
        j->full = true;
        return;
    }
    if (dot)
        j->text[j->length++] = '.';
    memcpy(j->text + j->length, text, length);
    j->length += length;
    j->text[j->length] = '\0';
}

/* Writes the name with the bytes from `begin` to `end` replaced by TO, and stars filled in. Returns NULL if it is too
 * long. */
static const char *replace(const char *name, size_t length, size_t begin, size_t end, const char *to, size_t size,
                           const struct name_run stars[MAX_STARS], char *text, size_t capacity)
{
    struct joined j = {.text = text, .size = capacity};
    size_t star = 0;
    if (begin > 0)
        join(&j, name, begin - 1, false);
    for (size_t i = 0; i < size; i++) {
        const bool any = to[i] == '*' && star < MAX_STARS, dot = i == 0 && begin > 0;
        join(&j, any ? stars[star].text : to + i, any ? stars[star].length : 1, dot);
        star += any;
    }
    if (end < length)
        join(&j, name + end + 1, length - end - 1, j.length > 0);
    return j.full ? NULL : text;
}

const char *architecture_alias(const struct architectures *found, const char *module, size_t length, size_t index,
                               char *text, size_t size)
{
    struct name_run stars[MAX_STARS];
    size_t end;
    for (size_t r = 0; r < found->count; r++)
        for (const char *p = found->root[r] ? found->rows[r]->renames : NULL; p && *p;) {
            const char *to = strchr(p, '>') + 1;
            const size_t from_size = (size_t)(to - 1 - p), to_size = strcspn(to, " ");
            const size_t begin = find_run(module, length, p, from_size, &end, stars);
            if (begin != SIZE_MAX && index-- == 0)
                return replace(module, length, begin, end, to, to_size, stars, text, size);
            p = to + to_size + (to[to_size] == ' ');
        }
    return NULL;
}
