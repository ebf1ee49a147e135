/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Models of one GGUF file or several. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "files/gguf.h"
#include "files/text.h"

/* The parts of a model, as a file describes them; one part if it says nothing. */
struct gguf_split {
    uint64_t number, count, tensors;
    bool knows_tensors;
};

static int read_split(const struct gguf_file *file, struct gguf_split *split, struct fail *f)
{
    *split = (struct gguf_split){.count = 1};
    uint64_t *const to[] = {&split->number, &split->count, &split->tensors};
    static const char *const names[] = {"split.no", "split.count", "split.tensors.count"};
    for (int i = 0; i < 3; i++) {
        const struct gguf_key *key = gguf_find_key(file, names[i]);
        if (key && (!gguf_whole_number(key, to[i]) || *to[i] > GGUF_MOST_TENSORS))
            return fail(f, "%s: %s is no number of %s", file->map.path, names[i], i < 2 ? "parts" : "tensors");
        split->knows_tensors |= key && i == 2;
    }
    if (split->count == 0)
        split->count = 1;
    return QOBS_OK;
}

/* Returns the path of part i of those that begin as `path` does; NULL: it is not named as a part. *failed: no memory.
 */
static char *part_path(const char *path, uint64_t i, uint64_t number, uint64_t count, bool *failed)
{
    OWNED char *ending = text_format("-%05" PRIu64 "-of-%05" PRIu64 ".gguf", number + 1, count);
    *failed = !ending;
    if (!ending || !ends_with(path, ending))
        return NULL;
    char *made = text_format("%.*s-%05" PRIu64 "-of-%05" PRIu64 ".gguf", (int)(strlen(path) - strlen(ending)), path,
                             i + 1, count);
    *failed = !made;
    return made;
}

/* Opens part i and checks that it is one of this model. */
static int open_part(struct gguf_model *model, uint64_t i, const struct gguf_split *split, struct fail *f)
{
    const char *first = model->files[0].map.path;
    bool failed;
    OWNED char *path = part_path(first, i, 0, split->count, &failed);
    struct gguf_split part;
    if (failed)
        return NO_MEMORY(f, "names of files");
    if (!path)
        return fail(f, "%s: is part 1 of %" PRIu64 ", so its name should end in -00001-of-%05" PRIu64 ".gguf", first,
                    split->count, split->count);
    struct gguf_file *file = list_add(&model->files, &model->file_count, sizeof *file);
    if (!file)
        return NO_MEMORY(f, "files of a model");
    RETURN_IF_NOT_OK(gguf_open(file, path, f));
    RETURN_IF_NOT_OK(read_split(file, &part, f));
    if (part.number != i || part.count != split->count)
        return fail(f, "%s: is part %" PRIu64 " of %" PRIu64 ", expected is part %" PRIu64 " of %" PRIu64, path,
                    part.number + 1, part.count, i + 1, split->count);
    return QOBS_OK;
}

static int refuse_first(const struct gguf_file *file, const struct gguf_split *split, struct fail *f)
{
    bool failed;
    OWNED char *first = part_path(file->map.path, 0, split->number, split->count, &failed);
    return fail(f, "%s: is part %" PRIu64 " of %" PRIu64 "; name the first part%s%s", file->map.path, split->number + 1,
                split->count, first ? ", " : "", first ? first : "");
}

static int refuse_repeated_tensor(const struct gguf_model *model, struct fail *f)
{
    OWNED const char **names = malloc((model->tensor_count + 1) * sizeof *names);
    bool failed = !names;
    for (size_t i = 0; !failed && i < model->tensor_count; i++)
        names[i] = gguf_tensor_at(model, i)->name;
    const char *twice = failed ? NULL : named_repeated(names, model->tensor_count, sizeof *names, &failed);
    if (failed)
        return NO_MEMORY(f, "names of tensors");
    return twice ? fail(f, "%s: tensor '%.200s' is in two parts", model->files[0].map.path, twice) : QOBS_OK;
}

static int open_parts(struct gguf_model *model, struct fail *f)
{
    struct gguf_split split;
    RETURN_IF_NOT_OK(read_split(&model->files[0], &split, f));
    if (split.number != 0)
        return refuse_first(&model->files[0], &split, f);
    for (uint64_t i = 1; i < split.count; i++)
        RETURN_IF_NOT_OK(open_part(model, i, &split, f));
    for (size_t i = 0; i < model->file_count; i++) {
        model->tensor_count += model->files[i].count;
        for (size_t t = 0; t < model->files[i].count; t++)
            model->bytes += model->files[i].tensors[t].bytes;
    }
    if (split.knows_tensors && split.tensors != model->tensor_count)
        return fail(f, "%s: split.tensors.count is %" PRIu64 ", the parts have %zu tensors", model->files[0].map.path,
                    split.tensors, model->tensor_count);
    return split.count > 1 ? refuse_repeated_tensor(model, f) : QOBS_OK;
}

int gguf_open_model(struct gguf_model *model, const char *path, struct fail *f)
{
    *model = (struct gguf_model){0};
    struct gguf_file *first = list_add(&model->files, &model->file_count, sizeof *first);
    int status = first ? gguf_open(first, path, f) : NO_MEMORY(f, "files of a model");
    if (status == QOBS_OK)
        status = open_parts(model, f);
    if (status != QOBS_OK)
        gguf_close_model(model);
    return status;
}

void gguf_close_model(struct gguf_model *model)
{
    for (size_t i = 0; i < model->file_count; i++)
        gguf_close(&model->files[i]);
    free(model->files);
    *model = (struct gguf_model){0};
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf_model *model, size_t i)
{
    const struct gguf_file *file = model->files;
    for (; i >= file->count; file++)
        i -= file->count;
    return &file->tensors[i];
}
