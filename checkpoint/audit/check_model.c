/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* What config.json says of the whole model: sizes of matrices, heads that are not in the file. */
#include <stdio.h>
#include <string.h>

#include "audit/audit.h"
#include "model/decoders.inc"
#include "model/names.h"

/* Returns the model_type of config.json itself, whose members are then those of one model. */
static const char *main_type(const struct audit *audit)
{
    for (size_t i = 0; i < audit->model.config_count; i++)
        if (!*audit->model.configs[i].path)
            return model_config_type(&audit->model.configs[i]);
    return NULL;
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

int64_t audit_config_number(const struct audit *audit, const char *key)
{
    uint64_t number;
    return json_integer(model_config_item(&audit->model, key), &number) == 0 ? (int64_t)number : 0;
}

/* Returns a size of DECODER_SHAPES; 0: config.json does not say. */
static int64_t size_of(const struct audit *audit, const char *key)
{
    const bool query = strcmp(key, "query") == 0;
    if (query || strcmp(key, "key") == 0)
        return audit_config_number(audit, query ? "num_attention_heads" : "num_key_value_heads") *
               audit_config_number(audit, "head_dim");
    return audit_config_number(audit, key);
}

void audit_check_size(struct audit *audit, const struct audit_module *m, int64_t rows, int64_t columns)
{
    static const char *const shapes[][3] = {
#define ROW(module, rows, columns) {module, rows, columns},
        DECODER_SHAPES(ROW)
#undef ROW
    };
    for (size_t i = 0; audit->plain_decoder && i < sizeof shapes / sizeof *shapes; i++) {
        if (!ends_with(m->name, shapes[i][0]))
            continue;
        const int64_t expected[2] = {size_of(audit, shapes[i][1]), size_of(audit, shapes[i][2])};
        if ((expected[0] > 0 && rows != expected[0]) || (expected[1] > 0 && columns != expected[1])) {
            struct shape_words is, should;
            const int64_t shape[2] = {rows, columns};
            const int64_t wanted[2] = {expected[0] > 0 ? expected[0] : rows, expected[1] > 0 ? expected[1] : columns};
            audit_find(audit, m, "is %s, but config.json says %s", shape_describe(2, shape, &is),
                       shape_describe(2, wanted, &should));
        }
        return;
    }
}

/* ---- Heads ------------------------------------------------------------------------------------------------------- */

/* Returns true if the head shares its weight with the embeddings. */
static bool is_tied(const struct audit *audit)
{
    const json_object *item = model_config_item(&audit->model, "tie_word_embeddings");
    if (item)
        return json_is_true(item);
    for (size_t i = 0; i < audit->model.config_count; i++) {
        const char *type = model_config_type(&audit->model.configs[i]);
        if (type && audit_is_one_of(type, TIED_TYPES))
            return true;
    }
    return false;
}

static bool has_tensor_of(const struct model *model, const char *module)
{
    const size_t length = strlen(module);
    for (size_t i = 0; i < model->count; i++) {
        const char *name = model->tensors[i].stored->name, *found = strstr(name, module);
        if (found && (found == name || found[-1] == '.') && found[length] == '.')
            return true;
    }
    return false;
}

void audit_check_heads(struct audit *audit, const struct audit_targets *targets)
{
    static const char *const names[] = {"language_model.lm_head", "model.lm_head"}; /* that transformers renames */
    char head[512];
    bool by_class, present = false, ignored = false;
    const struct quant_group *group = NULL;
    for (size_t i = 0; architecture_head(&audit->architectures, i, head, sizeof head); i++) {
        if (strncmp(head, "re:", 3) == 0)
            continue;
        const struct quant_group *g = audit_group_of(targets, audit, head, strlen(head), &by_class);
        group = g ? g : group;
        present |= has_tensor_of(&audit->model, head);
        ignored |= audit_ignores(targets, head, strlen(head));
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ignored |= audit_ignores(targets, names[i], strlen(names[i]));
    if (group && !present && !ignored && is_tied(audit))
        audit_find(audit, NULL, "lm_head shares its weight with the embeddings, but the configuration claims it: "
                                "it is not in ignore");
}

void audit_open_model(struct audit *audit)
{
    const char *type = main_type(audit);
    audit->plain_decoder = type && audit_is_one_of(type, DECODER_TYPES);
}
