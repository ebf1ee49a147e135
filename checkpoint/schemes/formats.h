/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* How codes, scales and zero points of weights are stored: a row for each format. Whoever stores, reads or checks them
 * asks the row, so that a new format is a new row. */
#pragma once

#include "qobs/stateless.h"
#include "schemes/quant_args.h"

enum quant_format {
    QUANT_FORMAT_NONE,
    QUANT_MXFP4_PACK,
    QUANT_MXFP6_PACK,
    QUANT_MXFP8,
    QUANT_NVFP4_PACK,
    QUANT_INT_QUANTIZED,
    QUANT_PACK,
    QUANT_FLOAT_QUANTIZED,
    QUANT_NAIVE,
    /* These have no name in compressed-tensors. */
    QUANT_BLOCK_FP8,
    QUANT_MODELOPT_NVFP4,
    QUANT_MODELOPT_MXFP4,
    QUANT_MXFP4_BLOCKS,
    QUANT_AWQ,
    QUANT_GPTQ_V2,
    QUANT_GPTQ,
    QUANT_QUARK_UINT4,
    QUANT_QUARK_INT4,
    QUANT_MODELOPT_FP8 /* is written alone: FLOAT_QUANTIZED reads it */
};

/* Codes in words that lie [columns, rows], as AWQ and GPTQ have them, with scales [groups, rows] and zero points that
 * are packed along the rows. */
struct word_layout {
    bool along_rows;             /* a word has codes of neighbouring rows; else of neighbouring columns */
    const unsigned char *places; /* of 8 codes or zero points, in which place of a word each lies; NULL: in order */
    int zero_offset;             /* a zero point is so much more than its code */
    const char *zero_points;     /* last components of the names of these tensors */
    const char *group_index;     /* says the group of each column; NULL: groups lie in order */
    const char *version;         /* that the configuration states; NULL: any that no other row has */
    bool twos;                   /* codes and zero points are in two's complement; it is read alone */
};

struct quant_format_row {
    const char *name;  /* in config.json of compressed-tensors; NULL: it does not have the format */
    const char *since; /* the release of compressed-tensors that has it first; NULL: all that we know */
    struct {
        bool ints, floats; /* the codes that it holds */
        int bits;          /* of floats, and of the integers that vLLM takes in this format if it is no pack */
        const char *grid;  /* number format of floats */
    } code;
    int64_t group_size;           /* the only one; 0: any granularity */
    enum quant_strategy strategy; /* if there is a group size */
    enum file_dtype scale_dtype;  /* of the scheme and in the file; FILE_NONE: that of the weight */
    bool by_scale_dtype;          /* the scheme's scale_dtype tells it from a format of plain codes */
    const char *codes, *scale;    /* last components of the names of these tensors */
    enum file_dtype word;   /* the codes of a row are a stream of bits in such words; FILE_NONE: an element each */
    bool has_shape;         /* weight_shape has the shape of the weight; else codes fill the words */
    bool packs_zero_points; /* in such words along the rows, if scales have rows; else an element each */
    struct {
        const char *name; /* last component of the global scale's; NULL: there is none */
        bool divides;     /* scales are divided by it; else multiplied */
    } global;
    struct {
        /* Scales are [] of a tensor, [rows] of channels, [rows, 1, columns, 1] of blocks; else [1], [rows, 1] and
         * [rows, columns]. */
        bool bare_scales;
        const char *input_scale; /* last component of scales of inputs, F32, which multiply; NULL: by the observer */
    } modelopt;                  /* as Model-Optimizer writes them */
    const struct word_layout *words; /* NULL: codes lie [rows, columns] */
    struct {
        const char *title;       /* of weights that are read or in a dialect; NULL: another row has the same tensors */
        file_dtypes scales;      /* dtypes of weight_scale that are read */
        file_dtypes zero_points; /* of weight_zero_point; 0: there are none */
        bool upstream;           /* llm-compressor dequantizes it, too */
    } read;
};

/* Returns the row of a format; NULL for QUANT_FORMAT_NONE and after the last one. */
const struct quant_format_row *quant_format_row(enum quant_format format);

/* Returns the format of a row. */
enum quant_format quant_format_of_row(const struct quant_format_row *row);

/* Returns the name in config.json, such as "pack-quantized"; NULL for formats without one. */
const char *quant_format_name(enum quant_format format);

/* Returns that name, or the title of weights that are read in formats without one. */
const char *quant_format_title(enum quant_format format);

/* Finds a format by its name in config.json; QUANT_FORMAT_NONE: it is unknown. */
enum quant_format quant_format_find(const char *name);

/* Writes the names of the formats that can hold the weights, or of all if they are NULL, to `words`, for messages. */
struct quant_format_words {
    char text[400];
};
const char *quant_formats_describe(const struct quant_args *weights, struct quant_format_words *words);
#define FORMAT_WORDS(weights) quant_formats_describe(weights, &(struct quant_format_words){{0}})

/* The formats of a configuration whose groups have several, and that has no groups. */
#define QUANT_FORMAT_OF_SEVERAL "mixed-precision"
#define QUANT_FORMAT_OF_NONE "dense"
bool quant_format_is_joint(const char *name);

/* Fails if weights are floats that the format does not store, and says what formats do. */
int quant_format_check_floats(enum quant_format format, const struct quant_args *weights, const char *where,
                              struct fail *f);

/* Returns the number format of codes of floats; NULL for integers, and for floats that no format holds. */
const char *quant_grid(const struct quant_args *args);

/* Returns the bits of the words of a format; 0 if each code is an element. */
int quant_word_bits(const struct quant_format_row *row);

/* Returns the arguments of qobs_pack and qobs_unpack for codes of `bits` in words of a format, along a dimension. */
qobs_pack_args quant_pack_args(const struct quant_format_row *row, int bits, int dim, int64_t rows, int64_t columns,
                               void *codes, const void *packed, size_t packed_size);

/* Returns the format that compressed-tensors infers for weights (compressors/format.py). */
enum quant_format quant_format_infer(const struct quant_args *weights, bool has_inputs);

/* Returns true if zero points of weights are packed along the rows. */
bool quant_packs_zero_points(enum quant_format format, const struct quant_args *weights);

/* Returns true if a format can hold the codes of weights. */
bool quant_format_holds(enum quant_format format, const struct quant_args *weights);
