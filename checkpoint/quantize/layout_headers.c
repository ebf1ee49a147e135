/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* The order is that of safetensors 0.8: dtypes by falling alignment, then names by bytes. */
#include "quantize/layout.h"

#include <stdlib.h>
#include <string.h>

#include "files/text.h"

static int compare_places(const void *a, const void *b)
{
    const struct output_tensor *s = a, *t = b;
    if (s->shard != t->shard)
        return ORDER(s->shard, t->shard);
    const int ranks = (int)s->dtype - (int)t->dtype;
    return ranks != 0 ? ranks : strcmp(s->name, t->name);
}

/* ---- Headers ----------------------------------------------------------------------------------------------------- */

/* Makes the header of a shard whose tensors are [first, end), and their offsets in the file. transformers up to 4.47
 * need {"format": "pt"} of the input. */
static int make_header(struct output_layout *l, size_t shard, size_t first, size_t end, struct fail *f)
{
    struct output_shard *s = &l->shards[shard];
    OWNED struct st_tensor *tensors = calloc(end - first, sizeof *tensors);
    uint64_t at = 0;
    if (!tensors)
        return NO_MEMORY(f, "a header");
    for (size_t i = first; i < end; i++) {
        const struct output_tensor *o = &l->tensors[i];
        struct st_tensor *t = &tensors[i - first];
        *t = (struct st_tensor){.name = o->name, .dtype = o->dtype, .ndim = o->ndim, .begin = at, .end = at + o->bytes};
        memcpy(t->shape, o->shape, sizeof t->shape);
        at = t->end;
    }
    const int result =
        st_make_header(tensors, end - first, s->source ? s->source->metadata : NULL,
                       s->source ? s->source->metadata_count : 0, s->path, &s->header, &s->header_bytes, f);
    for (size_t i = first; i < end; i++)
        l->tensors[i].offset = s->header_bytes + tensors[i - first].begin;
    s->bytes = s->header_bytes + at;
    l->data_bytes += at;
    return result;
}

void layout_sort(struct output_layout *layout, size_t weight_count)
{
    if (layout->count > 0)
        qsort(layout->tensors, layout->count, sizeof *layout->tensors, compare_places);
    for (size_t i = 0; i < weight_count; i++)
        for (int p = 0; p < OUTPUT_PARTS; p++)
            layout->parts[i][p] = SIZE_MAX;
    for (size_t i = 0; i < layout->count; i++) {
        const struct output_tensor *t = &layout->tensors[i];
        *(t->part == PART_ACTIVATION ? &layout->activations[t->activation] : &layout->parts[t->weight][t->part]) = i;
    }
}

int layout_make_headers(struct output_layout *layout, struct fail *f)
{
    for (size_t first = 0, end; first < layout->count; first = end) {
        const size_t shard = layout->tensors[first].shard;
        for (end = first; end < layout->count && layout->tensors[end].shard == shard;)
            end++;
        RETURN_IF_NOT_OK(make_header(layout, shard, first, end, f));
    }
    return QOBS_OK;
}
