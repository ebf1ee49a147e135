/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The search for the tensors of a weight. */
#include "files/bus_errors.h"
#include "model/source_formats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "files/json.h"
#include "files/text.h"
#include "model/adapters.h"
#include "model/stated_schemes.h"

/* Last components of names that other formats have, and the format. */
static const struct {
    const char *part, *format;
} foreign[] = {
    {"qweight", "GPTQ or AWQ without scales"},
    {"weight_g_idx", "compressed-tensors with actorder group"},
    {"pre_quant_scale", "ModelOpt's AWQ"},
    {"svdquant_lora_a", "ModelOpt's SVDQuant"},
    {"absmax", "bitsandbytes"},
    {"SCB", "bitsandbytes"},
};

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static const char *last_component(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Returns the tensor beside `tensor` whose name ends with `part`; NULL: none. */
static const struct st_tensor *beside(const struct model *model, const struct st_tensor *tensor, const char *part)
{
    char name[1024];
    const int length = (int)(last_component(tensor->name) - tensor->name);
    if ((size_t)snprintf(name, sizeof name, "%.*s%s", length, tensor->name, part) >= sizeof name)
        return NULL;
    const struct model_tensor *found = model_find(model, name);
    return found ? found->stored : NULL;
}

static uint64_t elements(const struct st_tensor *t) { return (t->end - t->begin) / dtype_size(t->dtype); }

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

/* Says which rows and columns share a scale: all, a row, a group of a row, or a block. */
static bool fit_scales(struct source_codes *c, const int64_t *shape, const struct source_hints *hints)
{
    const struct st_tensor *s = c->scales;
    const bool apart = s->ndim == 4 && s->shape[1] == 1 && s->shape[3] == 1; /* ModelOpt: [rows, 1, columns, 1] */
    const int64_t rows = s->ndim > 0 ? s->shape[0] : 1, columns = apart ? s->shape[2] : s->ndim > 1 ? s->shape[1] : 1;
    if (s->ndim > 2 && !apart)
        return false;
    c->scale_columns = columns;
    c->block[0] = rows == 1 ? shape[0] : 1;
    c->block[1] = shape[1];
    if (columns == 1 && (c->format->group_size == 0 ? rows == 1 || rows == shape[0]
                                                    : rows == shape[0] && c->format->group_size >= shape[1]))
        return true;
    for (int b = 0; c->format->group_size == 0 && s->ndim > 1 && b < hints->block_count; b++) {
        const int64_t *block = hints->blocks[b];
        if ((shape[0] + block[0] - 1) / block[0] != rows || (shape[1] + block[1] - 1) / block[1] != columns)
            continue;
        memcpy(c->block, block, sizeof c->block);
        return true;
    }
    c->block[0] = 1;
    c->block[1] = columns > 0 ? shape[1] / columns : 0;
    return rows == shape[0] && c->block[1] > 0 && c->block[1] * columns == shape[1] &&
           (c->format->group_size == 0 || c->format->group_size == c->block[1]);
}

/* Finds the one number of bits with which the columns fill the words. */
static int fit_bits(const struct source_hints *hints, int word_bits, int64_t columns, int64_t words)
{
    int bits = 0;
    for (int b = 1; b <= 8; b++)
        if ((hints->bits == 0 || (hints->bits >> b & 1)) && (columns * b + word_bits - 1) / word_bits == words) {
            if (bits > 0)
                return 0;
            bits = b;
        }
    return bits;
}

static int fit_words(struct source_codes *c, int64_t *shape, const struct model *model,
                     const struct source_hints *hints, const struct st_tensor *codes, struct fail *f)
{
    const struct st_tensor *stored = beside(model, codes, "weight_shape");
    if (!stored || !dtype_is_in(stored->dtype, IN_FILE(I64) | IN_FILE(I32)) || elements(stored) != 2)
        return INVALID(f, "tensor '%.150s': its weight_shape, I64 [2], is not there", codes->name);
    int32_t narrow[2];
    if (stored->dtype == FILE_I64)
        bus_errors_copy(shape, stored->data, 2 * sizeof *shape);
    else
        bus_errors_copy(narrow, stored->data, sizeof narrow);
    if (stored->dtype == FILE_I32)
        memcpy(shape, (const int64_t[]){narrow[0], narrow[1]}, 2 * sizeof *shape);
    c->bits = shape[0] == codes->shape[0] && shape[1] > 0 && shape[1] <= INT64_MAX / 8
                  ? fit_bits(hints, quant_word_bits(c->format), shape[1], codes->shape[1])
                  : 0;
    if (c->bits == 0)
        return INVALID(f,
                       "tensor '%.150s': has shape %s for %" PRId64 " x %" PRId64
                       " weights; words of %d bits filled with codes of num_bits are needed, as compressed-tensors "
                       "from 0.18 on writes them",
                       codes->name, SHAPE_WORDS(codes->ndim, codes->shape), shape[0], shape[1],
                       quant_word_bits(c->format));
    return QOBS_OK;
}

/* ---- Words of AWQ and GPTQ --------------------------------------------------------------------------------------- */

/* Returns the bits of codes that fill the words of `count` numbers; 0: there are none. */
static int bits_in_words(int64_t words, int64_t count, int word_bits)
{
    int bits = 8;
    while (bits > 0 && words * word_bits != count * bits)
        bits--;
    return bits;
}

/* Returns true if the tensors have the dimensions that the layout needs. */
static bool has_dimensions(const struct source_codes *c, const struct st_tensor *codes)
{
    const struct st_tensor *s = c->scales, *z = c->zero_points;
    const int64_t limit = INT64_MAX / 64; /* the largest number of words */
    const bool sound = s->ndim == 2 && s->shape[0] > 0 && s->shape[1] > 0 && codes->shape[0] > 0 &&
                       codes->shape[0] <= limit && codes->shape[1] <= limit;
    return sound && (!z || (z->ndim == 2 && z->shape[0] == s->shape[0] && z->shape[1] <= limit));
}

/* Finds the bits of codes: from words along the rows, which codes or zero points have. */
static int bits_of_layout(const struct source_codes *c, const struct st_tensor *codes)
{
    const bool along_rows = c->format->words->along_rows;
    const struct st_tensor *z = c->zero_points, *words = along_rows ? codes : z;
    const int64_t rows = c->scales->shape[1];
    if (!words || (!along_rows && codes->shape[1] != rows) || (z && z->shape[1] != words->shape[1]))
        return 0;
    const int bits = bits_in_words(words->shape[1], rows, quant_word_bits(c->format));
    return c->format->code.bits > 0 && bits != c->format->code.bits ? 0 : bits;
}

/* Finds shape, bits and groups by the tensors alone. */
static bool fit_layout(struct source_codes *c, int64_t *shape, const struct st_tensor *codes)
{
    c->bits = has_dimensions(c, codes) ? bits_of_layout(c, codes) : 0;
    if (c->bits == 0)
        return false;
    const bool along_rows = c->format->words->along_rows;
    shape[0] = c->scales->shape[1];
    shape[1] = along_rows ? codes->shape[0] : codes->shape[0] * quant_word_bits(c->format) / c->bits;
    c->scale_columns = c->scales->shape[0];
    c->block[0] = 1;
    c->block[1] = (shape[1] + c->scale_columns - 1) / c->scale_columns;
    return (shape[1] + c->block[1] - 1) / c->block[1] == c->scale_columns;
}

int64_t source_group(const struct source_codes *c, int64_t column)
{
    int32_t group;
    if (!c->group_index)
        return column / c->block[1];
    memcpy(&group, (const unsigned char *)c->group_index->data + sizeof group * (size_t)column, sizeof group);
    return group;
}

/* Sets c->group_index, if the groups of the columns are not in order. */
static int read_group_index(struct source_codes *c, const int64_t *shape, const struct st_tensor *index, struct fail *f)
{
    bool in_order = true;
    c->group_index = index;
    for (int64_t i = 0; i < shape[1]; i++) {
        const int64_t group = source_group(c, i);
        if (group < 0 || group >= c->scale_columns)
            return INVALID(f, "tensor '%.150s': column %" PRId64 " has group %" PRId64 " of %" PRId64, index->name, i,
                           group, c->scale_columns);
        in_order = in_order && group == i / c->block[1];
    }
    c->group_index = in_order ? NULL : index;
    return QOBS_OK;
}

static int find_group_index(struct source_codes *c, const int64_t *shape, const struct model *model,
                            const struct st_tensor *codes, struct fail *f)
{
    const char *part = c->format->words->group_index;
    const struct st_tensor *index = part ? beside(model, codes, part) : NULL;
    if (!index)
        return QOBS_OK;
    if (index->dtype != FILE_I32 || elements(index) != (uint64_t)shape[1])
        return INVALID(f, "tensor '%.150s': is %s %s; I32 [%" PRId64 "] is needed, the group of each column",
                       index->name, dtype_name(index->dtype), SHAPE_WORDS(index->ndim, index->shape), shape[1]);
    RETURN_IF_NOT_OK(st_borrow(index, f));
    const int status = read_group_index(c, shape, index, f);
    st_release(index);
    return status;
}

static int check_zero_points(const struct source_codes *c, const int64_t *shape, struct fail *f)
{
    const struct st_tensor *z = c->zero_points;
    const int word_bits = quant_word_bits(c->format);
    const bool packed = z->dtype == c->format->word;
    const uint64_t count =
        packed ? (uint64_t)((shape[0] * c->bits + word_bits - 1) / word_bits * c->scale_columns) : elements(c->scales);
    if (dtype_is_in(z->dtype, c->format->read.zero_points) && elements(z) == count && (!packed || c->block[0] == 1))
        return QOBS_OK;
    return INVALID(f, "tensor '%.150s': is %s %s; %s of %" PRIu64 " elements is needed for %s", z->name,
                   dtype_name(z->dtype), SHAPE_WORDS(z->ndim, z->shape),
                   c->format->read.zero_points ? DTYPE_WORDS(c->format->read.zero_points) : "none", count,
                   c->format->read.title);
}

/* ---- One tensor -------------------------------------------------------------------------------------------------- */

static int find_global_scale(struct source_codes *c, const struct model *model, const struct st_tensor *codes,
                             struct fail *f)
{
    c->global_scale = 1;
    if (!c->format->global.name)
        return QOBS_OK;
    const struct st_tensor *global = beside(model, codes, c->format->global.name);
    if (!global || global->dtype != FILE_F32 || elements(global) != 1)
        return INVALID(f, "tensor '%.150s': its %s, one number of F32, is not there", codes->name,
                       c->format->global.name);
    bus_errors_copy(&c->global_scale, global->data, sizeof c->global_scale);
    return QOBS_OK;
}

/* Sets the shape of weights whose codes fill their words. */
static void fill_words(struct source_codes *c, int64_t *shape, const struct st_tensor *codes)
{
    c->bits = c->format->code.bits;
    shape[0] = codes->shape[0];
    shape[1] = codes->shape[1] * (c->format->word ? quant_word_bits(c->format) : c->bits) / c->bits;
}

/* Formats may have names and dtypes in common: then the number of scales tells the bits of a code, or in a short row
 * the configuration does. */
static bool is_of_version(const struct quant_format_row *row, const struct source_hints *hints)
{
    const char *version = row->words ? row->words->version : NULL;
    return !version || (hints->version && strcmp(version, hints->version) == 0);
}

static bool is_of_format(const struct source_codes *codes, const struct source_hints *hints,
                         const struct st_tensor *tensor)
{
    struct source_codes c = *codes;
    const struct word_layout *words = c.format->words;
    int64_t shape[2];
    if (words)
        return fit_layout(&c, shape, tensor);
    if (c.format->has_shape || c.format->group_size == 0)
        return true;
    fill_words(&c, shape, tensor);
    return fit_scales(&c, shape, hints) && (hints->bits == 0 || hints->bits >> c.bits & 1);
}

static int fit_codes(struct source_codes *c, int64_t *shape, const struct model *model,
                     const struct source_hints *hints, const struct st_tensor *codes, struct fail *f)
{
    c->row_step = 1;
    if (c->format->words && !fit_layout(c, shape, codes))
        return INVALID(f,
                       "tensor '%.150s': is %s with scales %s; that is neither AWQ (GEMM, 4 bits) nor GPTQ (with zero "
                       "points)",
                       codes->name, SHAPE_WORDS(codes->ndim, codes->shape),
                       SHAPE_WORDS(c->scales->ndim, c->scales->shape));
    if (c->format->words)
        return find_group_index(c, shape, model, codes, f);
    if (c->format->has_shape)
        RETURN_IF_NOT_OK(fit_words(c, shape, model, hints, codes, f));
    else
        fill_words(c, shape, codes);
    if (!fit_scales(c, shape, hints))
        return INVALID(f, "tensor '%.150s': has shape %s, which is none of the scales of %s %s", c->scales->name,
                       SHAPE_WORDS(c->scales->ndim, c->scales->shape), c->format->read.title, SHAPE_WORDS(2, shape));
    RETURN_IF_NOT_OK(find_global_scale(c, model, codes, f));
    c->zero_points = beside(model, codes, "weight_zero_point");
    return c->zero_points ? check_zero_points(c, shape, f) : QOBS_OK;
}

static int describe_codes(struct source_codes *c, int64_t *shape, enum file_dtype *dtype, const struct model *model,
                          const struct source_hints *hints, const struct st_tensor *codes, struct fail *f)
{
    RETURN_IF_NOT_OK(fit_codes(c, shape, model, hints, codes, f));
    const enum file_dtype s = c->scales->dtype;
    *dtype = s == FILE_F32 ? hints->dtype : s == FILE_F16 ? FILE_F16 : FILE_BF16;
    return QOBS_OK;
}

static int refuse_foreign(const struct st_tensor *tensor, struct fail *f)
{
    const char *part = last_component(tensor->name);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (strcmp(foreign[i].part, part) == 0)
            return INVALID(f, "tensor '%.150s': is of %s, which cannot be quantized again", tensor->name,
                           foreign[i].format);
    return adapters_refuse_tensor(tensor->name, f);
}

/* Fails for codes that no format has, if the model is quantized: nobody knows which numbers they mean. */
static int refuse_unknown(const struct st_tensor *tensor, const struct source_hints *hints, struct fail *f)
{
    const char *part = last_component(tensor->name);
    const bool packed = strcmp(part, "weight_packed") == 0;
    const file_dtypes bytes = IN_FILE(I8) | IN_FILE(F8_E4M3) | IN_FILE(F8_E5M2);
    const bool matrix = tensor->ndim == 2 && strcmp(part, "weight") == 0 &&
                        dtype_is_in(tensor->dtype, bytes | IN_FILE(U8) | IN_FILE(I32));
    const bool experts = tensor->ndim == 3 && dtype_is_in(tensor->dtype, bytes); /* in one tensor */
    if (!packed && !(hints->quantized && (matrix || experts)))
        return QOBS_OK;
    return INVALID(f, "tensor '%.150s': is %s %s without the scales of a known format beside it", tensor->name,
                   dtype_name(tensor->dtype), SHAPE_WORDS(tensor->ndim, tensor->shape));
}

int source_find_codes(struct source_codes *codes, int64_t *shape, enum file_dtype *dtype, const struct model *model,
                      const struct source_hints *hints, const struct st_tensor *tensor, qobs_compat compat,
                      struct fail *f)
{
    const bool compatible = compat != QOBS_COMPAT_VLLM;
    const char *part = last_component(tensor->name);
    struct source_codes first = {0};
    *codes = first;
    for (int i = QUANT_FORMAT_NONE + 1; quant_format_row(i) && tensor->ndim == 2; i++) {
        const struct quant_format_row *row = quant_format_row(i);
        const enum file_dtype dtype_of_codes = row->word ? row->word : row->code.ints ? FILE_I8 : FILE_F8_E4M3;
        if (!row->read.title || (compatible && !row->read.upstream) || !is_of_version(row, hints) ||
            strcmp(row->codes, part) != 0 || tensor->dtype != dtype_of_codes)
            continue;
        codes->scales = beside(model, tensor, row->scale);
        if (!codes->scales || !dtype_is_in(codes->scales->dtype, row->read.scales))
            continue;
        codes->format = row;
        codes->zero_points = row->words ? beside(model, tensor, row->words->zero_points) : NULL;
        if (is_of_format(codes, hints, tensor))
            return describe_codes(codes, shape, dtype, model, hints, tensor, f);
        first = first.format ? first : *codes;
    }
    *codes = first;
    if (first.format)
        return describe_codes(codes, shape, dtype, model, hints, tensor, f);
    if (compatible)
        return QOBS_OK;
    RETURN_IF_NOT_OK(refuse_foreign(tensor, f));
    return refuse_unknown(tensor, hints, f);
}

/* ---- Configurations ---------------------------------------------------------------------------------------------- */

static void add_block(struct source_hints *hints, const json_object *block)
{
    const json_object *rows = json_at(block, 0), *columns = json_at(block, 1);
    const int sizes[] = {json_object_get_int(rows), json_object_get_int(columns)};
    if (!json_is_number(rows) || !json_is_number(columns) || sizes[0] <= 0 || sizes[1] <= 0 ||
        hints->block_count == sizeof hints->blocks / sizeof *hints->blocks)
        return;
    hints->blocks[hints->block_count][0] = sizes[0];
    hints->blocks[hints->block_count++][1] = sizes[1];
}

void source_hints_read(struct source_hints *hints, const struct model *model)
{
    *hints = (struct source_hints){.dtype = FILE_BF16};
    for (size_t i = 0; i < model->config_count; i++) {
        const json_object *quantization = model_config_quantization(&model->configs[i]);
        const json_object *version = json_get(quantization, "checkpoint_format");
        const char *quark = json_text_of(json_get(json_get(quantization, "global_quant_config"), "weight"), "dtype");
        hints->quantized |= quantization != NULL;
        hints->version = json_is_string(version) ? json_text(version) : *quark ? quark : hints->version;
        add_block(hints, json_get(quantization, "weight_block_size"));
        json_each(group, json_get(quantization, "config_groups"))
        {
            const json_object *weights = json_get(group.value, "weights");
            uint64_t bits;
            add_block(hints, json_get(weights, "block_structure"));
            if (json_integer(json_get(weights, "num_bits"), &bits) == 0 && bits >= 1 && bits <= 8)
                hints->bits |= 1U << bits;
        }
    }
    if (hints->block_count == 0)
        memcpy(hints->blocks[hints->block_count++], (const int64_t[]){128, 128}, sizeof *hints->blocks);
    const json_object *dtype = model_config_item(model, "dtype");
    dtype = dtype ? dtype : model_config_item(model, "torch_dtype");
    static const struct {
        const char *name;
        enum file_dtype dtype;
    } names[] = {{"float16", FILE_F16}, {"float32", FILE_F32}};
    for (size_t i = 0; i < 2 && json_is_string(dtype); i++)
        if (strcmp(json_text(dtype), names[i].name) == 0)
            hints->dtype = names[i].dtype;
}

/* Values of quant_algo of ModelOpt whose weights are in the table of formats. */
static const char algorithms[] = "FP8 FP8_PER_CHANNEL_PER_TOKEN FP8_PB_WO NVFP4 W4A16_NVFP4 W4A8_NVFP4_FP8 MXFP4 "
                                 "W4A8_MXFP4_FP8 MXFP8 MIXED_PRECISION";

/* Methods that can be quantized again. values: those of a member that says how codes are stored; NULL: there is none.
 */
static const struct {
    const char *method, *member, *values;
    bool optional, stated; /* stated: its schemes tell how codes are stored */
} methods[] = {{.method = "compressed-tensors"},
               {.method = "fp8"},
               {.method = "fbgemm_fp8"},
               {.method = "mxfp4"},
               {"modelopt", "quant_algo", algorithms, false, false},
               {"modelopt_fp4", "quant_algo", algorithms, false, false},
               {"awq", "version", "gemm GEMM", true, false},
               {"gptq", "checkpoint_format", "gptq gptq_v2", true, false},
               {.method = "quark", .stated = true},
               {"auto-round", "packing_format", "auto_round:auto_gptq auto_round:auto_awq", false, false}};

/* own: formats of the method, which GPTQModel 7 writes to this member, too; NULL: none. */
static int check_format(const char *where, const json_object *object, const char *own, struct fail *f)
{
    const json_object *format = json_get(object, "format");
    if (!json_is_string(format) || (own && is_one_of(json_text(format), own)) ||
        quant_format_is_joint(json_text(format)) || quant_format_find(json_text(format)))
        return QOBS_OK;
    return INVALID(f, "%s: the format '%.60s' cannot be quantized again; known are %s", where, json_text(format),
                   FORMAT_WORDS(NULL));
}

/* Sparse weights, and weights that a transform has rotated, are more than codes and scales. */
static int check_compressed_tensors(const char *where, const json_object *quantization, const char *own, struct fail *f)
{
    const json_object *groups = json_get(quantization, "config_groups");
    const json_object *sparsity = json_get(quantization, "sparsity_config");
    const json_object *transform = json_get(quantization, "transform_config");
    const json_object *transforms = json_get(transform, "config_groups");
    RETURN_IF_NOT_OK(check_format(where, quantization, own, f));
    RETURN_IF_NOT_OK(check_format(where, sparsity, NULL, f));
    json_each(group, groups) RETURN_IF_NOT_OK(check_format(where, group.value, NULL, f));
    if (json_count(transforms) > 0)
        return INVALID(f, "%s: has a transform_config; transformed weights cannot be quantized again", where);
    return QOBS_OK;
}

/* Quark 0.13 writes symmetric AWQ with signed codes, and codes in plain order under another pack_method
 * (torch/export/main_export/quant_config_parser.py). AutoAWQ and vLLM would read other numbers. */
static int check_awq_of_quark(const char *where, const json_object *quantization, struct fail *f)
{
    const json_object *order = json_get(quantization, "pack_method"), *zeros = json_get(quantization, "zero_point");
    if (!order || (strcmp(json_text_of(quantization, "pack_method"), "reorder") == 0 && json_is_true(zeros)))
        return QOBS_OK;
    return INVALID(
        f,
        "%s: pack_method is %s and zero_point is %s, codes of AMD Quark that AutoAWQ reads as other numbers; "
        "with \"reorder\" and true it can be quantized again",
        where, JSON_WORDS(order), JSON_WORDS(zeros));
}

static int check_config(const struct model *m, const struct model_config *config, struct fail *f)
{
    const json_object *quantization = model_config_quantization(config);
    const json_object *method = json_get(quantization, "quant_method");
    const json_object *algorithm = json_get(quantization, "quant_algo");
    const char *name = json_is_string(method) ? json_text(method) : algorithm ? "modelopt" : "";
    char where[512], known[256] = "";
    if (!quantization)
        return QOBS_OK;
    if (config->object == m->hf_quant_config)
        snprintf(where, sizeof where, "%.300s/%s: quantization", m->tree.root, HF_QUANT_CONFIG);
    else
        snprintf(where, sizeof where, "%.300s/%s: %.100s%squantization_config", m->tree.root, m->config_path,
                 config->path, *config->path ? ": " : "");
    if (config->object != m->config && config->object != m->hf_quant_config)
        return INVALID(f,
                       "%s: describes a part of the model, with the quant_method %s; one at the top of the file is "
                       "read. If it is moved there, the model can be quantized again",
                       where, JSON_WORDS(method));
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        text_append(known, sizeof known, "%s%s", i ? ", " : "", methods[i].method);
        if (strcmp(methods[i].method, name) != 0)
            continue;
        const json_object *value = methods[i].member ? json_get(quantization, methods[i].member) : NULL;
        if (methods[i].member && (value || !methods[i].optional) &&
            !(json_is_string(value) && is_one_of(json_text(value), methods[i].values)))
            return INVALID(f, "%s: %s of %s is %s; %s can be quantized again", where, methods[i].member, name,
                           JSON_WORDS(value), methods[i].values);
        if (strcmp(name, "awq") == 0)
            RETURN_IF_NOT_OK(check_awq_of_quark(where, quantization, f));
        return methods[i].stated ? stated_schemes_check(m, f)
                                 : check_compressed_tensors(where, quantization, methods[i].values, f);
    }
    return INVALID(f, "%s: quant_method is %s; %s can be quantized again", where, JSON_WORDS(method), known);
}

int source_check_configs(const struct model *model, struct fail *f)
{
    for (size_t i = 0; i < model->config_count; i++)
        RETURN_IF_NOT_OK(check_config(model, &model->configs[i], f));
    return QOBS_OK;
}
