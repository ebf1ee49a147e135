/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Mends names of tensors and the lists of the configuration. */
#include "audit/mend.h"
#include "model/stated_schemes.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "files/text.h"

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

bool mends_note(struct mends *mends, const char *module, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const bool added = findings_add(&mends->made, module, format, values);
    va_end(values);
    return added;
}

struct mended_tensor *mends_part(struct mends *mends, const struct audit *audit, const char *module, const char *part)
{
    OWNED char *name = text_format("%s.%s", module, audit_part_name(audit, part));
    const struct model_tensor *found = name ? model_find(&audit->model, name) : NULL;
    struct mended_tensor *t = found ? &mends->tensors[found - audit->model.tensors] : NULL;
    if (!name || (t && strcmp(t->name, name) == 0))
        return t;
    const struct mended_name *renamed = named_find(mends->renamed, mends->renamed_count, sizeof *mends->renamed, name);
    return renamed ? &mends->tensors[renamed->tensor] : NULL;
}

unsigned char *mends_own(struct mends *mends, struct mended_tensor *t)
{
    const size_t bytes = (size_t)(t->is.end - t->is.begin);
    if (!t->owned && (t->owned = malloc(bytes + 1)))
        memcpy(t->owned, t->is.data, bytes);
    t->is.data = t->owned;
    mends->shards[t->shard] = true;
    return t->owned;
}

struct mended_tensor *mends_add(struct mends *mends, const char *module, const char *part,
                                const struct mended_tensor *like, size_t shard)
{
    const struct st_tensor is = like->is;
    struct mended_tensor *t = list_add(&mends->tensors, &mends->count, sizeof *mends->tensors);
    if (!t || !(t->name = text_format("%s.%s", module, part)))
        return NULL;
    t->shard = shard;
    t->is = is;
    mends->names = mends->shards[shard] = true;
    return t;
}

static int take_tensors(struct mends *mends, const struct audit *audit, struct fail *f)
{
    mends->shards = calloc(audit->model.shard_count + 1, sizeof *mends->shards);
    for (size_t i = 0; mends->shards && i < audit->model.count; i++) {
        const struct model_tensor *from = &audit->model.tensors[i];
        struct mended_tensor *t = list_add(&mends->tensors, &mends->count, sizeof *mends->tensors);
        if (!t || !(t->name = strdup(from->stored->name)))
            return NO_MEMORY(f, "the tensors");
        t->old = from->stored;
        t->shard = from->shard;
        t->is = *from->stored;
    }
    return mends->shards ? QOBS_OK : NO_MEMORY(f, "the tensors");
}

void mends_free(struct mends *mends)
{
    for (size_t i = 0; i < mends->count; i++) {
        free(mends->tensors[i].name);
        free(mends->tensors[i].owned);
    }
    free(mends->tensors);
    free(mends->renamed);
    free(mends->shards);
    findings_free(&mends->made);
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Names of another dialect, and those that the checkpoint's own has for them. Global scales divide in
 * compressed-tensors and multiply elsewhere. */
static const struct rename {
    bool maker; /* the files have the names of a maker */
    const char *from, *to;
    bool reciprocal, global; /* of a global scale, for schemes that have one */
} renames[] = {{false, "weight_scale_2", "weight_global_scale", true, true},
               {false, "input_scale", "input_global_scale", true, true},
               {true, "weight_packed", "weight", false, false},
               {true, "weight_global_scale", "weight_scale_2", true, true},
               {true, "input_global_scale", "input_scale", true, true},
               {false, "weight_scale_inv", "weight_scale", false, false},
               {true, "weight_scale_inv", "weight_scale", false, false}};

/* Returns false if the number cannot be turned over. */
static bool invert(struct mends *mends, struct mended_tensor *t)
{
    float number;
    if (t->is.dtype != FILE_F32 || t->is.end - t->is.begin != sizeof number || !mends_own(mends, t))
        return false;
    memcpy(&number, t->owned, sizeof number);
    number = 1 / number;
    memcpy(t->owned, &number, sizeof number);
    return true;
}

static int rename_tensor(struct mends *mends, struct audit *audit, struct mended_tensor *t, const struct rename *r,
                         const struct quant_matchers *targets, struct fail *f)
{
    bool by_class;
    const size_t length = strlen(t->name) - strlen(r->from) - 1;
    const struct quant_group *g = stated_group(&audit->config, targets, t->name, length, &by_class);
    OWNED char *module = strndup(t->name, length), *name = module ? text_format("%s.%s", module, r->to) : NULL;
    if (!name)
        return NO_MEMORY(f, "a name");
    if (!g || audit_ignores(targets, module, length) || model_find(&audit->model, name) ||
        (r->global && g->weights.strategy != QUANT_TENSOR_GROUP) || (r->reciprocal && !invert(mends, t)))
        return QOBS_OK;
    if (!mends_note(mends, module, "%s is named %s%s", r->from, r->to, r->reciprocal ? ", and is its reciprocal" : ""))
        return NO_MEMORY(f, "a name");
    free(t->name);
    t->name = name;
    name = NULL;
    struct mended_name *renamed = list_add(&mends->renamed, &mends->renamed_count, sizeof *mends->renamed);
    if (!renamed)
        return NO_MEMORY(f, "a name");
    *renamed = (struct mended_name){t->name, (size_t)(t - mends->tensors)};
    mends->names = mends->shards[t->shard] = true;
    return QOBS_OK;
}

int mend_names(struct mends *mends, struct audit *audit, struct fail *f)
{
    RELEASED_BY(quant_matchers_free) struct quant_matchers targets = {0};
    RETURN_IF_NOT_OK(quant_matchers_create(&targets, &audit->config, f));
    for (size_t i = 0; i < mends->count; i++)
        for (size_t r = 0; r < sizeof renames / sizeof *renames; r++) {
            struct mended_tensor *t = &mends->tensors[i];
            const char *last = t->name + component_start(t->name, strlen(t->name));
            if (renames[r].maker != (audit->maker != NULL) || last == t->name || strcmp(last, renames[r].from) != 0)
                continue;
            RETURN_IF_NOT_OK(rename_tensor(mends, audit, t, &renames[r], &targets, f));
            break;
        }
    if (mends->renamed_count > 0)
        named_sort(mends->renamed, mends->renamed_count, sizeof *mends->renamed);
    return QOBS_OK;
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

/* Lists of what is not quantized, by the object that has them. */
static json_object *list_of(json_object *quantization, const char *method)
{
    static const char *const keys[] = {"ignore", "exclude_modules", "exclude", "modules_to_not_convert"};
    const char *key = strcmp(method, "quark") == 0 ? "exclude" : strcmp(method, "awq") == 0 ? keys[3] : "ignore";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_is_array(json_get(quantization, keys[i])))
            return json_get(quantization, keys[i]);
    const bool known = is_one_of(method, "compressed-tensors modelopt quark awq");
    return quantization && known ? json_put_array(quantization, key) : NULL;
}

/* Removes entries that are the name itself; patterns stay. Returns false if there is none. */
static bool remove_entry(json_object *list, const char *name)
{
    for (size_t i = json_count(list); i-- > 0;)
        if (json_is_string(json_at(list, i)) && strcmp(json_text(json_at(list, i)), name) == 0)
            return json_object_array_del_idx(list, i, 1) == 0;
    return false;
}

/* Returns the entry of a module; of experts in one tensor a pattern, as loaders ask for them by several names. NULL: no
 * memory. */
static char *entry_of(const char *module, const char *method)
{
    static const char word[] = "experts.";
    const char *experts = strstr(module, word), *rest = experts ? experts + sizeof word - 1 : NULL;
    if (!rest || isdigit((unsigned char)*rest))
        return strdup(module);
    const int length = (int)(rest - 1 - module);
    if (strcmp(method, "compressed-tensors") != 0)
        return text_format("%.*s%s", length, module, strcmp(method, "awq") == 0 ? "" : "*");
    return text_format("re:%.*s.*", length, module);
}

static bool change_list(struct mends *mends, json_object *list, const char *method, const struct finding *fault)
{
    OWNED char *entry = list && fault->mend == MEND_IGNORE ? entry_of(fault->module, method) : NULL;
    if (!list || (fault->mend == MEND_IGNORE ? !entry : !remove_entry(list, fault->module)))
        return false;
    for (size_t i = 0; entry && i < json_count(list); i++)
        if (json_is_string(json_at(list, i)) && strcmp(json_text(json_at(list, i)), entry) == 0)
            return true; /* of another tensor of these experts */
    mends->config = true;
    return !entry || json_append_text(list, entry);
}

int mend_lists(struct mends *mends, struct audit *audit, struct fail *f)
{
    json_object *own = json_get(audit->model.config, "quantization_config");
    json_object *other = json_get(audit->model.hf_quant_config, "quantization");
    const char *method = json_text_of(own, "quant_method");
    json_object *lists[] = {list_of(own, method), list_of(other, "modelopt")};
    for (size_t i = 0; i < audit->findings.count; i++) {
        const struct finding *fault = &audit->findings.items[i];
        if (fault->mend == MEND_NONE)
            continue;
        bool changed = change_list(mends, lists[0], method, fault);
        changed |= change_list(mends, lists[1], "modelopt", fault);
        if (changed && !mends_note(mends, fault->module, "%s the layers that are not quantized",
                                   fault->mend == MEND_IGNORE ? "is one of" : "is no more one of"))
            return NO_MEMORY(f, "a list");
    }
    return QOBS_OK;
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

int mends_find(struct mends *mends, struct audit *audit, struct fail *f)
{
    OWNED size_t *sets = malloc((audit->module_count + 1) * sizeof *sets);
    RETURN_IF_NOT_OK(take_tensors(mends, audit, f));
    RETURN_IF_NOT_OK(mend_lists(mends, audit, f));
    if (audit_is_of_words(audit))
        return QOBS_OK;
    RETURN_IF_NOT_OK(sets ? audit_find_sets(audit, sets, f) : NO_MEMORY(f, "the sets"));
    RETURN_IF_NOT_OK(mend_names(mends, audit, f));
    RETURN_IF_NOT_OK(mend_sets(mends, audit, sets, f));
    RETURN_IF_NOT_OK(mend_inputs(mends, audit, sets, f));
    findings_sort(&mends->made);
    return QOBS_OK;
}
