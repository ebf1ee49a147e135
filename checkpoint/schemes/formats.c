/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* See compressed_tensors/compressors in 0.19 and 0.20, hf_quant_config.json of ModelOpt 0.39, transformers'
 * quant_method fp8 and DeepSeek's files. */
#include "schemes/formats.h"

#include <string.h>

#include "files/text.h"

#define POWERS_OF_TWO (IN_FILE(U8) | IN_FILE(F8_E8M0))
#define E2M1 .code.floats = true, .code.bits = 4, .code.grid = "fp4_e2m1"
#define E2M3 .code.floats = true, .code.bits = 6, .code.grid = "fp6_e2m3"
#define E4M3 .code.floats = true, .code.bits = 8, .code.grid = "fp8_e4m3"
#define MX .group_size = 32, .strategy = QUANT_GROUP, .scale_dtype = FILE_U8, .read.scales = POWERS_OF_TWO
#define NV                                                                                                             \
    .group_size = 16, .strategy = QUANT_TENSOR_GROUP, .scale_dtype = FILE_F8_E4M3, .read.scales = IN_FILE(F8_E4M3)

/* The order of AutoAWQ 0.2 (awq/modules/linear/gemm.py). AutoGPTQ and GPTQModel store zero points minus one, unless
 * checkpoint_format is gptq_v2. */
static const unsigned char awq_places[] = {0, 4, 1, 5, 2, 6, 3, 7};
static const struct word_layout awq = {.along_rows = true, .places = awq_places, .zero_points = "qzeros"};
static const struct word_layout gptq = {.zero_offset = 1, .zero_points = "qzeros", .group_index = "g_idx"};
static const struct word_layout gptq_v2 = {.zero_points = "qzeros", .group_index = "g_idx", .version = "gptq_v2"};
/* Quark 0.13 (utils/pack.py): AutoAWQ's order under other names, signed numbers for int4. */
#define QUARK(dtype) .along_rows = true, .places = awq_places, .zero_points = "weight_zero_point", .version = dtype
static const struct word_layout quark_uint4 = {QUARK("uint4")}, quark_int4 = {QUARK("int4"), .twos = true};
#define WORDS(of) .codes = "qweight", .scale = "scales", PACKED_ROWS(of)
#define PACKED_ROWS(of)                                                                                                \
    .code.ints = true, .word = FILE_I32, .read.scales = HALVES_AND_FLOATS, .read.zero_points = IN_FILE(I32),           \
    .words = &(of)
#define QUARK_WORDS(of) .codes = "weight", .scale = "weight_scale", .code.bits = 4, PACKED_ROWS(of)

static const struct quant_format_row rows[] = {
    [QUANT_MXFP4_PACK] = {.name = "mxfp4-pack-quantized",
                          .read.title = "MXFP4",
                          E2M1,
                          MX,
                          .codes = "weight_packed",
                          .word = FILE_U8,
                          .scale = "weight_scale"},
    [QUANT_MXFP6_PACK] = {.name = "mxfp6-pack-quantized",
                          .since = "0.20",
                          .read.title = "MXFP6",
                          E2M3,
                          MX,
                          .codes = "weight_packed",
                          .word = FILE_U8,
                          .scale = "weight_scale"},
    [QUANT_MXFP8] = {.name = "mxfp8-quantized",
                     .read.title = "MXFP8",
                     E4M3,
                     MX,
                     .by_scale_dtype = true,
                     .codes = "weight",
                     .scale = "weight_scale"},
    [QUANT_NVFP4_PACK] = {.name = "nvfp4-pack-quantized",
                          .read.title = "NVFP4",
                          E2M1,
                          NV,
                          .codes = "weight_packed",
                          .word = FILE_U8,
                          .scale = "weight_scale",
                          .global.name = "weight_global_scale",
                          .global.divides = true},
    [QUANT_INT_QUANTIZED] = {.name = "int-quantized",
                             .read.title = "INT8",
                             .code.ints = true,
                             .code.bits = 8,
                             .codes = "weight",
                             .scale = "weight_scale",
                             .read.scales = HALVES_AND_FLOATS,
                             .read.zero_points = IN_FILE(I8)},
    [QUANT_PACK] = {.name = "pack-quantized",
                    .read.title = "packed integers",
                    .code.ints = true,
                    .codes = "weight_packed",
                    .word = FILE_I32,
                    .has_shape = true,
                    .packs_zero_points = true,
                    .scale = "weight_scale",
                    .read.scales = HALVES_AND_FLOATS,
                    .read.zero_points = IN_FILE(I32) | IN_FILE(I8)},
    [QUANT_FLOAT_QUANTIZED] = {.name = "float-quantized",
                               .read.title = "FP8",
                               E4M3,
                               .codes = "weight",
                               .scale = "weight_scale",
                               .read.scales = HALVES_AND_FLOATS,
                               .read.zero_points = IN_FILE(F8_E4M3)},
    [QUANT_NAIVE] = {.name = "naive-quantized", .code.ints = true, E4M3, .codes = "weight", .scale = "weight_scale"},
    [QUANT_BLOCK_FP8] = {.read.title = "block FP8",
                         E4M3,
                         .codes = "weight",
                         .scale = "weight_scale_inv",
                         .scale_dtype = FILE_F32,
                         .read.scales = IN_FILE(F32) | IN_FILE(BF16) | IN_FILE(F8_E8M0),
                         .read.upstream = true},
    [QUANT_MODELOPT_NVFP4] = {.read.title = "NVFP4 of ModelOpt",
                              E2M1,
                              NV,
                              .codes = "weight",
                              .word = FILE_U8,
                              .scale = "weight_scale",
                              .global.name = "weight_scale_2",
                              .modelopt.bare_scales = true,
                              .modelopt.input_scale = "input_scale"},
    [QUANT_MODELOPT_MXFP4] =
        {.read.title = "MXFP4 of ModelOpt", E2M1, MX, .codes = "weight", .word = FILE_U8, .scale = "weight_scale"},
    [QUANT_MXFP4_BLOCKS] =
        {.read.title = "MXFP4 of gpt-oss", E2M1, MX, .codes = "_blocks", .word = FILE_U8, .scale = "_scales"},
    [QUANT_AWQ] = {.read.title = "AWQ", .code.bits = 4, WORDS(awq)},
    [QUANT_GPTQ_V2] = {.read.title = "GPTQ v2", WORDS(gptq_v2)},
    [QUANT_GPTQ] = {.read.title = "GPTQ", WORDS(gptq)},
    [QUANT_QUARK_UINT4] = {.read.title = "uint4 of Quark", QUARK_WORDS(quark_uint4)},
    [QUANT_QUARK_INT4] = {.read.title = "int4 of Quark", QUARK_WORDS(quark_int4)},
    [QUANT_MODELOPT_FP8] = {.read.title = "FP8 of ModelOpt",
                            E4M3,
                            .codes = "weight",
                            .scale = "weight_scale",
                            .scale_dtype = FILE_F32,
                            .modelopt.bare_scales = true,
                            .modelopt.input_scale = "input_scale"},
};

enum { FORMATS = sizeof rows / sizeof *rows };

const struct quant_format_row *quant_format_row(enum quant_format format)
{
    return format > QUANT_FORMAT_NONE && (size_t)format < FORMATS ? &rows[format] : NULL;
}

enum quant_format quant_format_of_row(const struct quant_format_row *row) { return (enum quant_format)(row - rows); }

const char *quant_format_name(enum quant_format format)
{
    const struct quant_format_row *row = quant_format_row(format);
    return row ? row->name : NULL;
}

const char *quant_format_title(enum quant_format format)
{
    const char *name = quant_format_name(format);
    return name || format == QUANT_FORMAT_NONE ? name : rows[format].read.title;
}

enum quant_format quant_format_find(const char *name)
{
    int i = FORMATS - 1;
    while (i > QUANT_FORMAT_NONE && (!rows[i].name || strcmp(rows[i].name, name) != 0))
        i--;
    return (enum quant_format)i;
}

bool quant_format_is_joint(const char *name)
{
    return strcmp(name, QUANT_FORMAT_OF_SEVERAL) == 0 || strcmp(name, QUANT_FORMAT_OF_NONE) == 0;
}

const char *quant_formats_describe(const struct quant_args *weights, struct quant_format_words *words)
{
    words->text[0] = '\0';
    for (int i = QUANT_FORMAT_NONE + 1; i < FORMATS; i++)
        if (rows[i].name && (!weights || quant_format_holds((enum quant_format)i, weights)))
            text_append(words->text, sizeof words->text, "%s%s", *words->text ? ", " : "", rows[i].name);
    return words->text;
}

/* ---- Floats ------------------------------------------------------------------------------------------------------ */

static bool has_grid_of(const struct quant_format_row *row, const struct quant_args *args)
{
    return args->type == QUANT_FLOAT && row->name && row->code.floats && row->code.bits == args->num_bits;
}

const char *quant_grid(const struct quant_args *args)
{
    for (int i = QUANT_FORMAT_NONE + 1; i < FORMATS; i++)
        if (has_grid_of(&rows[i], args))
            return rows[i].code.grid;
    return NULL;
}

/* Writes what the formats with one group size need of floats. */
static void describe_groups(char *text, size_t size)
{
    text[0] = '\0';
    for (int i = QUANT_FORMAT_NONE + 1; i < FORMATS; i++)
        if (rows[i].name && rows[i].group_size > 0)
            text_append(text, size, "%s%s num_bits=%d strategy=%s group_size=%lld scale_dtype=%s", *text ? "; " : "",
                        rows[i].read.title, rows[i].code.bits, quant_strategy_name(rows[i].strategy),
                        (long long)rows[i].group_size, quant_dtype_name(rows[i].scale_dtype));
}

int quant_format_check_floats(enum quant_format format, const struct quant_args *w, const char *where, struct fail *f)
{
    const struct quant_format_row *row = &rows[format];
    const char *grid = quant_grid(w);
    bool zero_points = false;
    char needed[400];
    describe_groups(needed, sizeof needed);
    for (int i = QUANT_FORMAT_NONE + 1; i < FORMATS; i++)
        zero_points |= has_grid_of(&rows[i], w) && rows[i].read.zero_points;
    if (!grid)
        return fail(f, "%s: weights: num_bits is %d, floats of no format. Formats are %s, and any groups of num_bits=8",
                    where, w->num_bits, needed);
    if (!zero_points && !w->symmetric)
        return fail(f, "%s: weights: symmetric is false; no format stores zero points of %s", where, grid);
    if (row->code.bits != w->num_bits ||
        (w->strategy == QUANT_TENSOR_GROUP) != (row->group_size > 0 && row->strategy == QUANT_TENSOR_GROUP) ||
        w->scale_dtype != row->scale_dtype)
        return fail(f,
                    "%s: weights: num_bits, strategy, group_size and scale_dtype of no format: %d, %s, %lld, %s. "
                    "Formats are %s",
                    where, w->num_bits, quant_strategy_name(w->strategy), (long long)w->group_size,
                    quant_dtype_name(w->scale_dtype), needed);
    return 0;
}

/* ---- One format -------------------------------------------------------------------------------------------------- */

int quant_word_bits(const struct quant_format_row *row) { return (int)dtype_bits(row->word); }

qobs_pack_args quant_pack_args(const struct quant_format_row *row, int bits, int dim, int64_t rows, int64_t columns,
                               void *codes, const void *packed, size_t packed_size)
{
    return (qobs_pack_args){.struct_size = sizeof(qobs_pack_args),
                            .bits = bits,
                            .dim = dim,
                            .rows = rows,
                            .columns = columns,
                            .word_bits = quant_word_bits(row),
                            .offset = row->code.ints ? 1 << (bits - 1) : 0,
                            .codes = codes,
                            .codes_size = (size_t)(rows * columns),
                            .packed = (void *)(uintptr_t)packed,
                            .packed_size = packed_size};
}

enum quant_format quant_format_infer(const struct quant_args *w, bool has_inputs)
{
    const bool is_int = w->type == QUANT_INT;
    for (int i = QUANT_FORMAT_NONE + 1; i < FORMATS && !is_int; i++)
        if (rows[i].name && rows[i].group_size > 0 && w->group_size == rows[i].group_size &&
            w->num_bits == rows[i].code.bits && (!rows[i].by_scale_dtype || w->scale_dtype == rows[i].scale_dtype))
            return (enum quant_format)i;
    if (is_int)
        return has_inputs ? QUANT_INT_QUANTIZED : QUANT_PACK;
    return has_inputs ? QUANT_FLOAT_QUANTIZED : QUANT_NAIVE;
}

bool quant_format_holds(enum quant_format format, const struct quant_args *w)
{
    const struct quant_format_row *row = &rows[format];
    const enum quant_format inferred = quant_format_infer(w, false);
    if (row->group_size > 0 || rows[inferred].group_size > 0)
        return row->name && format == inferred;
    return w->type == QUANT_INT ? row->code.ints : row->code.floats;
}

bool quant_packs_zero_points(enum quant_format format, const struct quant_args *weights)
{
    const bool by_row = weights->strategy == QUANT_GROUP || weights->strategy == QUANT_CHANNEL;
    return !weights->symmetric && quant_format_row(format)->packs_zero_points && by_row;
}
