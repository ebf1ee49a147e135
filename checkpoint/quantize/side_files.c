/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Writes JSON as Python does, so that the files are those of upstream. */
#include "quantize/quantize_call.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "files/text.h"
#include "quantize/dialect_config.h"
#include "schemes/dialects.h"

int side_files_copy(struct quantize_call *run, struct fail *f)
{
    const struct source_tree *tree = &run->inputs.model.tree;
    for (size_t i = 0; i < tree->count; i++) {
        const char *path = tree->files[i].path;
        const bool part = run->args->compat == QOBS_COMPAT_VLLM && model_has_part(&run->inputs.model, path);
        const bool rewritten = (ends_with(path, ".safetensors") && !part) ||
                               (run->inputs.model.index && strcmp(path, run->inputs.model.index) == 0) ||
                               (run->inputs.model.config_path && strcmp(path, run->inputs.model.config_path) == 0) ||
                               (run->args->compat == QOBS_COMPAT_VLLM && is_one_of(path, QUANT_CONFIGS));
        if (rewritten)
            continue;
        OWNED char *source = path_join(tree->root, path);
        if (!source)
            return NO_MEMORY(f, "a path");
        RETURN_IF_NOT_OK(output_directory_copy(&run->out, path, source, f));
    }
    return QOBS_OK;
}

static bool is_sorted(const struct quantize_call *run) { return run->args->compat != QOBS_COMPAT_VLLM; }

static int write_json(struct quantize_call *run, const char *path, const json_object *json, struct fail *f)
{
    OWNED char *text = json ? json_print(json, is_sorted(run) ? JSON_SORTED : JSON_INDENTED) : NULL;
    return text ? output_directory_write(&run->out, path, text, strlen(text), f) : NO_MEMORY(f, path);
}

/* Returns the path of a shard from the folder of the index, in which it is; upstream's is its name alone. */
static const char *path_from_index(const struct quantize_call *run, const char *path)
{
    const char *folder = run->inputs.model.index ? strrchr(run->inputs.model.index, '/') : NULL,
               *name = strrchr(path, '/');
    if (run->args->compat != QOBS_COMPAT_VLLM)
        return name ? name + 1 : path;
    return folder ? path + (folder + 1 - run->inputs.model.index) : path;
}

struct index_entry {
    const char *name; /* first, as named_sort needs it */
    size_t shard;
};

/* Prints what json_print would, without a tree: it may have 400,000 tensors. */
static void print_index(struct text_buffer *out, const struct quantize_call *run, const struct index_entry *entries)
{
    const size_t count = run->layout.count;
    text_printf(out, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
                run->layout.data_bytes);
    for (size_t i = 0; i < count; i++) {
        text_puts(out, i == 0 ? "\n    " : ",\n    ");
        json_print_string(out, entries[i].name, true);
        text_puts(out, ": ");
        json_print_string(out, path_from_index(run, run->layout.shards[entries[i].shard].path), true);
    }
    text_puts(out, count > 0 ? "\n  }\n}" : "}\n}");
}

int side_files_write_index(struct quantize_call *run, struct fail *f)
{
    const struct output_layout *layout = &run->layout;
    OWNED struct index_entry *entries = malloc((layout->count + 1) * sizeof *entries);
    if (!entries)
        return NO_MEMORY(f, "the index");
    for (size_t i = 0; i < layout->count; i++)
        entries[i] = (struct index_entry){layout->tensors[i].name, layout->tensors[i].shard};
    if (is_sorted(run))
        named_sort(entries, layout->count, sizeof *entries);
    struct text_buffer out = {0};
    print_index(&out, run, entries);
    OWNED char *text = out.text;
    if (out.failed)
        return NO_MEMORY(f, "the index");
    const char *path = run->inputs.model.index ? run->inputs.model.index : "model.safetensors.index.json";
    return output_directory_write(&run->out, path, text, out.size, f);
}

/* Writes the file in which a dialect describes the quantization once more. */
static int write_dialect_file(struct quantize_call *run, struct fail *f)
{
    const struct dialect_row *d = run->selection.config.dialect;
    if (!d || !d->config.file)
        return QOBS_OK;
    OWNED_JSON json_object *json = dialect_file_json(&run->selection);
    return write_json(run, HF_QUANT_CONFIG, json, f);
}

int side_files_write_config(struct quantize_call *run, struct fail *f)
{
    static const char key[] = "quantization_config";
    RETURN_IF_NOT_OK(write_dialect_file(run, f));
    if (!run->inputs.model.config)
        return QOBS_OK;
    json_object *quantization = run->selection.config.dialect
                                    ? dialect_config_json(&run->selection)
                                    : quant_config_json(&run->selection.config, run->selection.existing_config);
    if (!quantization)
        return NO_MEMORY(f, key);
    if (run->args->compat != QOBS_COMPAT_VLLM)
        json_object_object_del(run->inputs.model.config, key);
    else
        model_remove_quantizations(&run->inputs.model);
    if (!json_put(run->inputs.model.config, key, quantization))
        return NO_MEMORY(f, key);
    return write_json(run, run->inputs.model.config_path, run->inputs.model.config, f);
}
