/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Checks config.json against the whole model: sizes of matrices, heads that are not in the file. */
#include <string.h>

#include "audit/audit.h"
#include "model/stated_schemes.h"
#include "files/bus_errors.h"
#include "model/decoders.inc"
#include "files/text.h"

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

/* Returns a size of a row: a draft's head has the vocabulary of the draft, the inputs of its attention have any size.
 */
static int64_t size_of_module(const struct audit *audit, const char *module, const char *const *size, int dimension)
{
    const bool draft = model_is_draft(&audit->model);
    if (draft && dimension == 0 && strcmp(module, "lm_head") == 0 && audit_config_number(audit, "draft_vocab_size") > 0)
        return audit_config_number(audit, "draft_vocab_size");
    const bool input = dimension == 1 && strncmp(module, "self_attn.", 10) == 0 && strcmp(size[1], "hidden_size") == 0;
    return draft && input ? 0 : size_of(audit, size[dimension]);
}

/* A row of DECODER_SHAPES, and how often a module has its numbers of rows and of columns. */
struct decoder_shape {
    const char *module, *size[2];
    int64_t expected[2]; /* 0: config.json does not say */
    size_t agree[2];
};

static struct decoder_shape *find_shape_row(struct decoder_shape *rows, size_t count, const char *module)
{
    for (size_t i = 0; i < count; i++)
        if (ends_with(module, rows[i].module))
            return &rows[i];
    return NULL;
}

/* Finds the shape of a matrix, by the format of its group if it is in codes. */
static bool find_matrix(const struct audit_module *m, int64_t *shape)
{
    const struct st_tensor *t = m->plain ? m->plain : m->codes;
    const struct quant_format_row *row = !m->plain && m->group ? quant_format_row(m->group->format) : NULL;
    const bool has_shape = m->shape && m->shape->ndim == 1 && m->shape->shape[0] == 2 && m->shape->dtype == FILE_I64;
    if (!t || t->ndim != 2 || (!m->plain && (!row || (row->has_shape && !has_shape))))
        return false;
    memcpy(shape, t->shape, 2 * sizeof *shape);
    if (row && row->has_shape)
        bus_errors_copy(shape, m->shape->data, 2 * sizeof *shape);
    else if (row && row->word)
        shape[1] = shape[1] * quant_word_bits(row) / m->group->weights.num_bits;
    return true;
}

/* Reports a size that config.json contradicts: of the embeddings and the head always, of other matrices if another
 * layer agrees with config.json. */
static void check_matrix(struct audit *audit, const struct audit_module *m, const struct decoder_shape *row,
                         const int64_t *shape)
{
    int64_t wanted[2] = {shape[0], shape[1]};
    for (int d = 0; d < 2; d++)
        if (row->expected[d] > 0 && (row->agree[d] > 0 || !strchr(row->module, '.')))
            wanted[d] = row->expected[d];
    if (wanted[0] != shape[0] || wanted[1] != shape[1])
        audit_find(audit, m, "is %s, but config.json says %s", SHAPE_WORDS(2, shape), SHAPE_WORDS(2, wanted));
}

void audit_check_sizes(struct audit *audit)
{
    struct decoder_shape rows[] = {
#define ROW(name, row_count, column_count) {.module = (name), .size = {(row_count), (column_count)}},
        DECODER_SHAPES(ROW)
#undef ROW
    };
    enum { COUNT = sizeof rows / sizeof *rows };
    const char *type = main_type(audit);
    if (!type || !is_one_of(type, DECODER_TYPES))
        return;
    for (size_t i = 0; i < COUNT; i++)
        for (int d = 0; d < 2; d++)
            rows[i].expected[d] = size_of_module(audit, rows[i].module, rows[i].size, d);
    for (int reports = 0; reports < 2; reports++)
        for (size_t i = 0; i < audit->module_count; i++) {
            int64_t shape[2];
            struct decoder_shape *row = find_shape_row(rows, COUNT, audit->modules[i].name);
            if (!row || !find_matrix(&audit->modules[i], shape))
                continue;
            if (reports)
                check_matrix(audit, &audit->modules[i], row, shape);
            for (int d = 0; d < 2 && !reports; d++)
                row->agree[d] += shape[d] == row->expected[d];
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
        if (type && is_one_of(type, TIED_TYPES))
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

/* Returns true if the file has embeddings: it is a model, not a part of one. */
static bool has_table(const struct audit *audit)
{
    for (size_t i = 0; i < audit->module_count; i++) {
        const struct audit_module *m = &audit->modules[i];
        const struct st_tensor *t = m->plain ? m->plain : m->codes;
        if (t && t->ndim == 2 &&
            architecture_kind(&audit->architectures, m->name, m->length, t->shape[0]) == MODULE_TABLE)
            return true;
    }
    return false;
}

void audit_check_heads(struct audit *audit, const struct quant_matchers *targets)
{
    static const char *const names[] = {"language_model.lm_head", "model.lm_head"}; /* that transformers renames */
    char head[512];
    bool by_class, present = false, ignored = false;
    const struct quant_group *group = NULL;
    for (size_t i = 0; architecture_head(&audit->architectures, i, head, sizeof head); i++) {
        if (strncmp(head, "re:", 3) == 0)
            continue;
        const struct quant_group *g = stated_group(&audit->config, targets, head, strlen(head), &by_class);
        group = g ? g : group;
        present |= has_tensor_of(&audit->model, head);
        ignored |= audit_ignores(targets, head, strlen(head));
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ignored |= audit_ignores(targets, names[i], strlen(names[i]));
    if (group && !present && has_table(audit) && !ignored && is_tied(audit))
        audit_contradict(audit, &(const struct audit_module){.name = "lm_head"}, MEND_IGNORE,
                         "shares its weight with the embeddings, but the configuration claims it: it is not in ignore");
}
