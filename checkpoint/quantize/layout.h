/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The tensors of the output: dtypes and shapes, shards and offsets, as safetensors
 * and compressed-tensors write them (compressed_tensors/compressors, safetensors' serialize_file). */
#pragma once

#include "activations/activation_scales.h"
#include "engine/sink.h"
#include "quantize/choose.h"

/* The contents of a tensor of the output. PART_SAME: the tensor of the input as it is, or dequantized. */
enum output_part {
    PART_SAME,
    PART_CODES,
    PART_SCALE,
    PART_ZERO_POINT,
    PART_SHAPE,
    PART_GLOBAL_SCALE,
    PART_GROUP_INDEX,
    OUTPUT_PARTS,
    PART_ACTIVATION = OUTPUT_PARTS /* a scale of activations, of which a weight may have several */
};

struct output_tensor {
    char *name;
    enum file_dtype dtype;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    size_t shard;
    uint64_t offset; /* bytes from the start of the file */
    uint64_t bytes;
    size_t weight; /* index of its weight */
    enum output_part part;
    size_t activation; /* index of its scale, if part is PART_ACTIVATION */
};

struct output_shard {
    const char *path; /* relative; belongs to the model */
    char *header;     /* length in 8 bytes, JSON, padding */
    size_t header_bytes;
    uint64_t bytes; /* of the file */
    size_t tensors;
    const struct st_file *source; /* the file whose __metadata__ is kept; NULL: none is */
};

/* How the weights of a group are stored. */
struct group_storage {
    const struct quant_format_row *format;
    enum file_dtype codes_dtype;
    bool packed_zero_points;          /* in words along the rows */
    enum file_dtype zero_point_dtype; /* FILE_NONE: there are none */
};

struct output_layout {
    struct output_tensor *tensors; /* sorted by shard, then in the order of the file */
    size_t count;
    struct output_shard *shards; /* indices as in the model; tensors == 0: the file is not written */
    size_t shard_count;
    size_t (*parts)[OUTPUT_PARTS]; /* for each weight, the indices of its tensors; SIZE_MAX: none */
    size_t *activations;           /* for each scale of activations, the index of its tensor */
    uint64_t data_bytes;           /* of all tensors */
};

/* CONTENTS_SCALES: scales, zero points that are not packed and global scales of weights and activations alone. */
enum layout_contents { CONTENTS_MODEL, CONTENTS_SCALES };

/* Fails if weights do not fit their scheme: columns that the group does not divide, no elements. */
int layout_check_shapes(const struct weights *weights, const struct quant_config *config, struct fail *f);

/* Lists the tensors of the output of weights that fit, without their order. Fails if two would have one name. */
int layout_list(struct output_layout *layout, const struct model *model, const struct weights *weights,
                const struct quant_config *config, const struct activation_scales *activations,
                enum layout_contents contents, struct fail *f);

/* The same, sorted; of CONTENTS_MODEL with their places in the shards, and the headers. */
int layout_make(struct output_layout *layout, const struct model *model, const struct weights *weights,
                const struct quant_config *config, const struct activation_scales *activations,
                enum layout_contents contents, struct fail *f);
void layout_free(struct output_layout *layout);

/* Returns the bytes of a weight's tensors. */
uint64_t layout_weight_bytes(const struct output_layout *layout, size_t weight);

/* Says how a group stores its weights. */
struct group_storage group_storage(const struct quant_group *group, enum layout_contents contents);

/* Sorts layout->tensors as safetensors does, and fills the parts of `weight_count` weights (layout_headers.c). */
void layout_sort(struct output_layout *layout, size_t weight_count);

/* Fills the offsets of sorted tensors, and the shards' headers and sizes. */
int layout_make_headers(struct output_layout *layout, struct fail *f);

/* ---- What sinks write -------------------------------------------------------------------------------------------- */

/* Writes bytes of a tensor of the layout, from any thread. */
typedef int layout_put(void *context, const struct output_tensor *tensor, uint64_t offset, const void *data,
                       size_t bytes, struct fail *f);

/* Writes scales and zero points of a slice in the dtypes of the layout (layout_scales.c), and the tensors of a weight
 * that are one number or two, with the scales of activations in its shard. */
struct layout_writer {
    const struct output_layout *layout;
    const struct activation_scales *activations;
    enum layout_contents contents;
    layout_put *put;
    void *context;
};
int layout_put_scales(const struct layout_writer *writer, const struct row_slice *slice,
                      const struct slice_qparams *qparams, struct workspace *work, struct fail *f);
int layout_put_small(const struct layout_writer *writer, const struct weight_job *job, struct fail *f);
