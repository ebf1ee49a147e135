/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "schemes/gguf_types.h"

#include <stdlib.h>
#include <string.h>

#include "schemes/match.h"

/* ---- Patterns ---------------------------------------------------------------------------------------------------- */

struct pattern {
    char *expression; /* for the matcher */
    qobs_gguf_type type;
    bool chose;
};

struct patterns {
    struct pattern *items;
    size_t count;
    struct matcher *matcher;
};

static void patterns_free(struct patterns *p)
{
    named_free(p->items, p->count, sizeof *p->items, 1);
    matcher_free(p->matcher);
}

/* Finds a type that can be made. */
static int find_type(const char *what, const char *name, qobs_gguf_type *type, struct fail *f)
{
    qobs_error error = {0};
    *type = (qobs_gguf_type){.struct_size = sizeof *type};
    if (qobs_gguf_describe_type(name, type, &error) != QOBS_OK)
        return report_failure(f, error.status, "tensor-type: '%.100s': %.300s", what, error.message);
    return type->made
               ? QOBS_OK
               : report_failure(f, QOBS_ERROR_UNSUPPORTED,
                                "tensor-type: '%.100s': %s is not made here: its grids are searched by ggml alone",
                                what, type->name);
}

static int add_pattern(struct patterns *p, const char *text, struct fail *f)
{
    const char *equals = text ? strrchr(text, '=') : NULL;
    if (!equals || equals == text)
        return INVALID(f, "tensor-type: is '%.100s', needed is PATTERN=TYPE, such as ffn_down=Q6_K", text ? text : "");
    struct pattern *added = list_add(&p->items, &p->count, sizeof *added);
    if (!added)
        return NO_MEMORY(f, "patterns");
    RETURN_IF_NOT_OK(find_type(text, equals + 1, &added->type, f));
    added->expression = text_format("re:.*?(?:%.*s)", (int)(equals - text), text);
    return added->expression ? QOBS_OK : NO_MEMORY(f, "patterns");
}

static int patterns_open(struct patterns *p, const struct texts *texts, struct fail *f)
{
    for (size_t i = 0; i < texts->count; i++)
        RETURN_IF_NOT_OK(add_pattern(p, texts->items[i], f));
    OWNED const char **expressions = malloc((p->count + 1) * sizeof *expressions);
    if (!expressions)
        return NO_MEMORY(f, "patterns");
    for (size_t i = 0; i < p->count; i++)
        expressions[i] = p->items[i].expression;
    return matcher_create(&p->matcher, expressions, p->count, "tensor-type", f);
}

static int patterns_check(const struct patterns *p, const struct texts *texts, struct fail *f)
{
    RETURN_IF_NOT_OK(matcher_check(p->matcher, "tensor-type", f));
    for (size_t i = 0; i < p->count; i++)
        if (!p->items[i].chose)
            return INVALID(
                f,
                "tensor-type: '%.200s' chooses for no tensor that is quantized, or an earlier one does; qobs "
                "info FILE --table lists their names",
                texts->items[i]);
    return QOBS_OK;
}

/* ---- Order ------------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const char *s = ((const struct gguf_choice *)a)->tensor->name, *t = ((const struct gguf_choice *)b)->tensor->name;
    const int64_t of_s = gguf_layer_of(s), of_t = gguf_layer_of(t);
    return of_s != of_t ? ORDER(of_s, of_t) : strcmp(s, t);
}

/* ---- Choices ----------------------------------------------------------------------------------------------------- */

struct chooser {
    const struct gguf_type_request *request;
    struct patterns patterns;
    struct gguf_mixture mixture;
    bool mixes;
};

/* Tensors of one row stay, whatever their number of dimensions. */
static bool stays(const struct gguf_tensor *t)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < t->ndim; d++)
        rows *= t->shape[d];
    return rows <= 1 || !gguf_name_is_quantized(t->name);
}

static void set_type(struct gguf_choice *c, const char *name)
{
    c->type = (qobs_gguf_type){.struct_size = sizeof c->type};
    qobs_gguf_describe_type(name, &c->type, NULL); /* the tables have known types */
}

static bool fits(const struct gguf_choice *c)
{
    return c->tensor->shape[c->tensor->ndim - 1] % c->type.block_elements == 0;
}

/* Replaces a type whose blocks do not divide the columns. */
static int fall_back(struct gguf_choice *c, struct fail *f)
{
    if (fits(c))
        return QOBS_OK;
    const char *other = gguf_type_for_odd_columns(c->type.name);
    if (!other)
        return INVALID(
            f,
            "tensor '%.200s': has %lld columns, %s needs a multiple of %lld; --tensor-type PATTERN=F16 with a "
            "pattern for its name keeps it",
            c->tensor->name, (long long)c->tensor->shape[c->tensor->ndim - 1], c->type.name,
            (long long)c->type.block_elements);
    c->fell_back = true;
    set_type(c, other);
    if (!fits(c))
        set_type(c, "F16");
    return QOBS_OK;
}

static int choose(struct gguf_choice *c, struct chooser *by, struct fail *f)
{
    const char *type = by->request->scheme->type;
    c->stays = stays(c->tensor);
    if (c->stays) {
        c->type = c->tensor->type;
        return QOBS_OK;
    }
    const ptrdiff_t found = matcher_find(by->patterns.matcher, c->tensor->name, strlen(c->tensor->name));
    if (found >= 0) {
        by->patterns.items[found].chose = true;
        c->type = by->patterns.items[found].type;
        return fall_back(c, f);
    }
    if (by->mixes)
        RETURN_IF_NOT_OK(gguf_mixture_type(&by->mixture, c->tensor, &type, f));
    set_type(c, type);
    return fall_back(c, f);
}

static int choose_all(struct gguf_choice *choices, const struct gguf_model *model, struct chooser *by, struct fail *f)
{
    const struct gguf_type_request *request = by->request;
    qobs_gguf_type type = {.struct_size = sizeof type};
    RETURN_IF_NOT_OK(patterns_open(&by->patterns, &request->patterns, f));
    qobs_gguf_describe_type(request->scheme->type, &type, NULL);
    by->mixes = !request->pure && type.block_elements > 1;
    if (by->mixes)
        RETURN_IF_NOT_OK(gguf_mixture_open(&by->mixture, model, request->scheme, request->importance, f));
    for (size_t i = 0; i < model->tensor_count; i++)
        choices[i].tensor = gguf_tensor_at(model, i);
    qsort(choices, model->tensor_count, sizeof *choices, compare);
    for (size_t i = 0; i < model->tensor_count; i++)
        RETURN_IF_NOT_OK(choose(&choices[i], by, f));
    return patterns_check(&by->patterns, &request->patterns, f);
}

int gguf_choose_types(struct gguf_choice **choices, const struct gguf_model *model,
                      const struct gguf_type_request *request, struct fail *f)
{
    struct chooser by = {.request = request};
    *choices = calloc(model->tensor_count + 1, sizeof **choices);
    const int status = *choices ? choose_all(*choices, model, &by, f) : NO_MEMORY(f, "types of tensors");
    patterns_free(&by.patterns);
    return status;
}
