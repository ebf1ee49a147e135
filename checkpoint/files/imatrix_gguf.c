/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Importance matrices in GGUF: tensors NAME.in_sum2 and NAME.counts. */
#include <string.h>

#include "files/gguf.h"
#include "files/imatrix.h"
#include "files/text.h"

static bool is_f32(const struct gguf_tensor *t) { return strcmp(t->type.name, "F32") == 0; }

/* Adds the entry of sums whose name without its ending has `length` bytes. Tensors are sorted by name. */
static int add_entry(struct imatrix *im, const struct gguf_file *file, const struct gguf_tensor *sums, size_t length,
                     struct fail *f)
{
    const int64_t columns = sums->ndim > 0 ? sums->shape[sums->ndim - 1] : 0;
    OWNED char *name = text_format("%.*s.counts", (int)length, sums->name);
    if (!name)
        return NO_MEMORY(f, "names of an importance matrix");
    const struct gguf_tensor *counts = named_find(file->tensors, file->count, sizeof *counts, name);
    struct imatrix_entry *entry = imatrix_add(im, (const unsigned char *)sums->name, length, f);
    if (!entry)
        return failure_status(f);
    if (!counts || !is_f32(sums) || !is_f32(counts) || columns == 0 ||
        counts->elements != sums->elements / (uint64_t)columns || counts->elements == 0)
        return fail(f, "%s: '%.200s' has no F32 tensors in_sum2 and counts that fit together", im->map.path,
                    entry->name);
    entry->values = sums->data;
    entry->counts = counts->data;
    entry->value_count = sums->elements;
    entry->matrices = counts->elements;
    return QOBS_OK;
}

static int add_entries(struct imatrix *im, const struct gguf_file *file, struct fail *f)
{
    static const char ending[] = ".in_sum2";
    named_sort(file->tensors, file->count, sizeof *file->tensors);
    for (size_t i = 0; i < file->count; i++)
        if (ends_with(file->tensors[i].name, ending))
            RETURN_IF_NOT_OK(
                add_entry(im, file, &file->tensors[i], strlen(file->tensors[i].name) - (sizeof ending - 1), f));
    return im->count > 0 ? QOBS_OK : fail(f, "%s: is no importance matrix: it has no tensor *.in_sum2", im->map.path);
}

static void read_origin(struct imatrix *im, const struct gguf_file *file)
{
    const struct gguf_key *datasets = gguf_find_key(file, "imatrix.datasets");
    const struct gguf_key *chunks = gguf_find_key(file, "imatrix.chunk_count");
    uint64_t count = 0;
    if (datasets && datasets->kind == GGUF_STRING && datasets->count > 0)
        gguf_value_text(GGUF_STRING, datasets->at, im->dataset, sizeof im->dataset);
    if (chunks && gguf_whole_number(chunks, &count) && count <= INT32_MAX)
        im->chunks = (uint32_t)count;
}

int imatrix_read_gguf(struct imatrix *im, struct fail *f)
{
    struct gguf_file file;
    RETURN_IF_NOT_OK(gguf_open_mapped(&file, &im->map, f));
    im->map = file.map; /* the entries point into it */
    file.map = (struct mapped){0};
    const int status = add_entries(im, &file, f);
    read_origin(im, &file);
    gguf_close(&file);
    return status;
}
