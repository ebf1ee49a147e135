/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Checkpoints in words of AWQ and GPTQ, whoever wrote them: their configuration, and each module. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "files/json.h"
#include "files/text.h"
#include "model/fused.h"
#include "model/qparam_facts.h"
#include "model/read_words.h"
#include "model/stored_qparams.h"

/* ---- Configuration ----------------------------------------------------------------------------------------------- */

static const json_object *quantization_of(const struct audit *audit)
{
    return json_get(audit->model.config, "quantization_config");
}

bool audit_is_of_words(const struct audit *audit)
{
    const json_object *method = json_get(quantization_of(audit), "quant_method");
    return json_is_string(method) && is_one_of(json_text(method), "awq gptq auto-round");
}

/* Returns true if the configuration says by module what is quantized, and how. */
static bool is_by_module(const struct audit *audit)
{
    static const char *const members[] = {"dynamic", "extra_config", "modules_in_block_to_quantize",
                                          "block_name_to_quantize"};
    bool found = false;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        found |= json_has(quantization_of(audit), members[i]);
    return found;
}

/* Returns true if modules that are quantized have bits or groups of their own. Members that exclude do not say that. */
static bool is_mixed(const struct audit *audit)
{
    bool found = false;
    json_each(item, json_get(quantization_of(audit), "dynamic")) found |= strncmp(item.key, "-:", 2) != 0;
    json_each(item, json_get(quantization_of(audit), "extra_config")) found |=
        json_number_of(item.value, "bits", 0) < 16;
    return found;
}

/* Reports entries of modules_to_not_convert that are in no name of a tensor. A tied head has none. */
static void check_exclusions(struct audit *audit)
{
    json_each(entry, json_get(quantization_of(audit), "modules_to_not_convert"))
    {
        const char *text = json_is_string(entry.value) ? json_text(entry.value) : "lm_head";
        bool found = strcmp(text, "lm_head") == 0;
        for (size_t i = 0; !found && i < audit->model.count; i++)
            found = strstr(audit->model.tensors[i].stored->name, text) != NULL;
        if (!found)
            audit_find(audit, NULL, "modules_to_not_convert: '%.100s' is in no name of a tensor", text);
    }
}

static bool is_excluded(const struct audit *audit, const char *name)
{
    bool found = false;
    json_each(entry, json_get(quantization_of(audit), "modules_to_not_convert"))
    {
        found |= json_is_string(entry.value) && strstr(name, json_text(entry.value));
    }
    return found;
}

/* ---- Modules ----------------------------------------------------------------------------------------------------- */

static bool has_words(const struct weight *w) { return w->source_codes.format && w->source_codes.format->words; }

/* Returns the weight with codes that vLLM runs as one matrix with a plain one; NULL: none. */
static const struct weight *words_beside(const struct audit *audit, const struct weight *w)
{
    for (size_t i = 0; i < audit->words.count; i++)
        if (audit->words.items[i].set == w->set && has_words(&audit->words.items[i]))
            return &audit->words.items[i];
    return NULL;
}

/* Reports linear layers that have no codes although the configuration or their set does. */
static void check_plain(struct audit *audit, const struct weight *w)
{
    const bool matrix = w->ndim == 2 && !w->source_codes.format && dtype_is_in(w->dtype, HALVES_AND_FLOATS);
    if (!matrix || !ends_with(w->name, ".weight") ||
        architecture_kind(&audit->architectures, w->name, w->module, w->shape[0]) != MODULE_LINEAR)
        return;
    OWNED char *name = strndup(w->name, w->module);
    const struct audit_module module = {.name = name, .length = w->module};
    const struct weight *beside = words_beside(audit, w);
    if (!name)
        audit->failed = true;
    else if (beside)
        audit_find(audit, &module, "is not quantized, but '%.150s' is, and vLLM runs both as one matrix", beside->name);
    else if (!is_excluded(audit, name) && !is_by_module(audit))
        audit_contradict(audit, &module, MEND_IGNORE, "is not quantized (%s), but the configuration claims it",
                         dtype_name(w->dtype));
}

/* Reports scales without codes beside them. */
static void check_orphans(struct audit *audit)
{
    static const char part[] = ".scales";
    for (size_t i = 0; i < audit->model.count; i++) {
        const char *name = audit->model.tensors[i].stored->name;
        if (!ends_with(name, part))
            continue;
        const size_t length = strlen(name) - strlen(part);
        OWNED char *module = strndup(name, length), *codes = module ? text_format("%s.qweight", module) : NULL;
        const struct audit_module m = {.name = module, .length = length};
        audit->failed = audit->failed || !codes;
        if (codes && !model_find(&audit->model, codes))
            audit_find(audit, &m, "has scales, but no qweight");
    }
}

static int add_module(struct audit *audit, const struct weight *w, struct fail *f)
{
    const struct source_codes *c = &w->source_codes;
    struct audit_module *m = &audit->modules[audit->module_count];
    *m = (struct audit_module){.name = strndup(w->name, w->module),
                               .length = w->module,
                               .group = audit->config.groups,
                               .codes = w->source->stored,
                               .scale = c->scales,
                               .zero_point = c->zero_points,
                               .quantized = true,
                               .rows = w->shape[0],
                               .columns = w->shape[1]};
    if (!m->name)
        return NO_MEMORY(f, "the modules");
    audit->module_count++;
    return QOBS_OK;
}

/* One scheme stands for all modules; its format is that of the first. */
static int list_modules(struct audit *audit, struct fail *f)
{
    RETURN_IF_NOT_OK(quant_config_add_scheme(&audit->config, "W4A16", NULL, 0, f));
    RETURN_IF_NOT_OK(weights_find_sets(&audit->words, &audit->architectures, f));
    audit->modules = calloc(audit->words.count + 1, sizeof *audit->modules);
    if (!audit->modules)
        return NO_MEMORY(f, "the modules");
    for (size_t i = 0; i < audit->words.count; i++) {
        const struct weight *w = &audit->words.items[i];
        if (has_words(w) && audit->module_count == 0)
            audit->config.groups->format = quant_format_of_row(w->source_codes.format);
        if (has_words(w))
            RETURN_IF_NOT_OK(add_module(audit, w, f));
        else
            check_plain(audit, w);
    }
    if (audit->module_count == 0)
        audit_find(audit, NULL, "holds no codes, but the configuration says that it is quantized");
    return QOBS_OK;
}

int audit_list_words(struct audit *audit, struct fail *f)
{
    RETURN_IF_NOT_OK(source_check_configs(&audit->model, f));
    const int status = weights_list(&audit->words, &audit->model, &audit->architectures, QOBS_COMPAT_VLLM, false, f);
    check_exclusions(audit);
    audit_check_entries(audit);
    check_orphans(audit);
    if (status == QOBS_ERROR_INVALID_ARGUMENT) {
        audit_find(audit, NULL, "%s", f->message);
        return QOBS_OK;
    }
    return status == QOBS_OK ? list_modules(audit, f) : status;
}

/* ---- One module -------------------------------------------------------------------------------------------------- */

/* Compares what the tensors say with the configuration. */
static void check_described(struct audit *audit, const struct audit_module *m, const struct weight *w)
{
    const struct source_codes *c = &w->source_codes;
    const json_object *quantization = quantization_of(audit);
    const json_object *group = json_get(quantization, "group_size");
    uint64_t bits;
    if (json_integer(json_get(quantization, "bits"), &bits) == 0 && bits != (uint64_t)c->bits && !is_mixed(audit))
        audit_find(audit, m, "has codes of %d bits, but the configuration says %" PRIu64, c->bits, bits);
    const int64_t size = json_is_number(group) ? json_object_get_int64(group) : 0;
    if (json_is_number(group) && c->block[1] != (size > 0 ? size : w->shape[1]) && !is_mixed(audit))
        audit_find(audit, m, "has groups of %" PRId64 " columns, but the configuration says %" PRId64, c->block[1],
                   size);
    if (c->group_index && !json_is_true(json_get(quantization, "desc_act")))
        audit_find(audit, m, "%s puts columns into groups out of order, but the configuration has no desc_act",
                   c->format->words->group_index);
}

/* Signs are free: who rounds by gradients writes negative scales, and every runtime multiplies. */
static void check_scales(struct audit *audit, const struct audit_module *m)
{
    size_t first;
    const size_t count = audit_element_count(m->scale), wrong = audit_count_wrong(m->scale, count, true, &first);
    if (wrong > 0)
        audit_find(audit, m, "%zu of %zu scales are not other than 0 and finite; the first, %zu, is %g", wrong, count,
                   first, (double)audit_scale_number(m->scale, first));
}

/* Symmetric codes have one zero point; GPTQ v1 and v2 differ by one. */
static void check_zero_points(struct audit *audit, const struct audit_module *m, const struct weight *w)
{
    const struct source_codes *c = &w->source_codes;
    const int half = 1 << (c->bits - 1);
    const bool symmetric = json_is_true(json_get(quantization_of(audit), "sym"));
    size_t wrong = 0, large = 0;
    int first = 0;
    struct qparam_facts facts;
    if (weight_qparam_facts(w, &facts, NULL) == QOBS_OK && (symmetric ? !facts.low && !facts.high : facts.high < half))
        return;
    for (int64_t r = 0; c->zero_points && r < m->rows; r++)
        for (int64_t g = 0; g < c->scale_columns; g++) {
            int16_t zero_point;
            source_zero_points(c, r, 1, g, &zero_point);
            first = zero_point != 0 && wrong == 0 ? zero_point : first;
            wrong += zero_point != 0;
            large += zero_point >= half;
        }
    if (symmetric && wrong > 0)
        audit_find(audit, m, "%zu zero points are not %d, which symmetric codes have; the first is %d%s", wrong, half,
                   first + half, first == 1 || first == -1 ? ": off by one, see checkpoint_format" : "");
    else if (large > 0)
        audit_find(audit, m, "%zu zero points are %d, which is no code", large, 2 * half);
}

/* ---- Codes and numbers ------------------------------------------------------------------------------------------- */

enum { ROWS = 64 }; /* at a time */

struct word_values {
    unsigned char *codes, *numbers, *rows; /* of ROWS rows; dequantized and original ones have up to 4 bytes */
    float *x, *y;
    const struct weight *original; /* NULL: none */
};

static void measure_codes(struct audit_module *m, const unsigned char *codes, size_t count, int *low, int *high)
{
    for (size_t i = 0; i < count; i++) {
        const int code = codes[i] < 128 ? codes[i] : codes[i] - 256;
        *low = code < *low ? code : *low;
        *high = code > *high ? code : *high;
    }
    m->use.used = abs(*low) > *high ? abs(*low) : *high;
}

static void compare_rows(struct audit_module *m, const struct word_values *v, const struct weight *w, int64_t first,
                         int64_t rows)
{
    const size_t count = (size_t)m->columns;
    weight_read_rows(w, first, rows, v->numbers);
    weight_read_rows(v->original, first, rows, v->rows);
    for (int64_t r = 0; r < rows; r++) {
        floats_of(v->numbers, dtype_in_library(w->dtype), (size_t)r * count, count, v->x);
        floats_of(v->rows, dtype_in_library(v->original->dtype), (size_t)r * count, count, v->y);
        for (size_t k = 0; k < count; k++) {
            const double difference = (double)v->x[k] - (double)v->y[k];
            m->difference.error += difference * difference;
            m->difference.energy += (double)v->y[k] * (double)v->y[k];
        }
    }
    m->difference.known = true;
}

static void check_values(struct audit *audit, struct audit_module *m, const struct weight *w,
                         const struct word_values *v)
{
    int low = 127, high = -128;
    m->use.range = (1 << (w->source_codes.bits - 1)) - 1;
    for (int64_t first = 0; first < m->rows; first += ROWS) {
        const int64_t rows = m->rows - first < ROWS ? m->rows - first : ROWS;
        weight_read_codes(w, first, rows, v->codes);
        measure_codes(m, v->codes, (size_t)(rows * m->columns), &low, &high);
        if (v->original)
            compare_rows(m, v, w, first, rows);
    }
    audit_see_scales(m);
    if (low == high)
        audit_find(audit, m, "all codes are %d", low + m->use.range + 1);
    else if (m->use.used > 0 && 2 * m->use.used < m->use.range)
        audit_find(audit, m, "the largest magnitude of its codes is %d of %d", m->use.used, m->use.range);
    audit_check_error(audit, m);
}

void audit_check_words(void *argument, size_t index)
{
    struct audit *audit = argument;
    struct audit_module *m = &audit->modules[index];
    OWNED char *name = text_format("%s.weight", m->name);
    const struct weight *w = name ? weights_find(&audit->words, name) : NULL;
    const size_t count = (size_t)m->columns * ROWS;
    struct word_values v = {malloc(count),     malloc(4 * count), malloc(4 * count),
                            malloc(4 * count), malloc(4 * count), audit_original_of(audit, m)};
    const bool good = w && v.codes && v.numbers && v.rows && v.x && v.y && weight_borrow(w, NULL) == QOBS_OK &&
                      (!v.original || weight_borrow(v.original, NULL) == QOBS_OK);
    if (good) {
        check_described(audit, m, w);
        check_scales(audit, m);
        check_zero_points(audit, m, w);
        if (!audit->is_output)
            check_values(audit, m, w, &v);
        weight_release(w);
        if (v.original)
            weight_release(v.original);
    } else {
        audit->failed = true;
    }
    free(v.codes);
    free(v.numbers);
    free(v.rows);
    free(v.x);
    free(v.y);
}
