/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Writes JSON as Python does, so that the files are those of upstream. */
#include "quantize/side_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json_print.h"
#include "model/names.h"

int side_files_copy(struct quantize_run *run, struct fail *f)
{
    const struct source_tree *tree = &run->model.tree;
    for (size_t i = 0; i < tree->count; i++) {
        const char *path = tree->files[i].path;
        const bool rewritten = ends_with(path, ".safetensors") ||
                               (run->model.index && strcmp(path, run->model.index) == 0) ||
                               (run->model.config_path && strcmp(path, run->model.config_path) == 0);
        if (rewritten)
            continue;
        const size_t size = strlen(tree->root) + strlen(path) + 2;
        char *source = malloc(size);
        if (!source)
            return NO_MEMORY(f, "a path");
        snprintf(source, size, "%s/%s", tree->root, path);
        const int result = output_directory_copy(&run->out, path, source, f);
        free(source);
        if (result != 0)
            return QOBS_ERROR_SYSTEM;
    }
    return QOBS_OK;
}

static int write_json(struct quantize_run *run, const char *path, const cJSON *json, struct fail *f)
{
    char *text = json ? json_print_sorted(json) : NULL;
    if (!text)
        return NO_MEMORY(f, path);
    const int result = output_directory_write(&run->out, path, text, strlen(text), f);
    free(text);
    return result == 0 ? QOBS_OK : QOBS_ERROR_SYSTEM;
}

int side_files_write_index(struct quantize_run *run, struct fail *f)
{
    char size[32];
    cJSON *index = cJSON_CreateObject(), *metadata = cJSON_AddObjectToObject(index, "metadata");
    cJSON *map = cJSON_AddObjectToObject(index, "weight_map");
    snprintf(size, sizeof size, "%" PRIu64, run->layout.data_bytes);
    bool complete = metadata && map && cJSON_AddItemToObject(metadata, "total_size", json_exact_number(size));
    cJSON *last = NULL;
    for (size_t i = 0; complete && i < run->layout.count; i++) {
        const char *path = run->layout.shards[run->layout.tensors[i].shard].path, *slash = strrchr(path, '/');
        cJSON *item = cJSON_CreateString(slash ? slash + 1 : path);
        /* cJSON finds the end of a list by its head; keeping the last item saves the walk over 100,000 names. */
        complete = item && (item->string = strdup(run->layout.tensors[i].name));
        if (!complete) {
            cJSON_Delete(item);
            break;
        }
        item->prev = last;
        *(last ? &last->next : &map->child) = item;
        map->child->prev = item;
        last = item;
    }
    const int status =
        complete ? write_json(run, run->model.index ? run->model.index : "model.safetensors.index.json", index, f)
                 : NO_MEMORY(f, "the index");
    cJSON_Delete(index);
    return status;
}

int side_files_write_config(struct quantize_run *run, struct fail *f)
{
    static const char key[] = "quantization_config";
    if (!run->model.config)
        return QOBS_OK;
    cJSON *quantization = quant_config_json(&run->config, run->earlier);
    if (!quantization)
        return NO_MEMORY(f, key);
    if (run->args->compat == QOBS_COMPAT_LLM_COMPRESSOR)
        cJSON_DeleteItemFromObjectCaseSensitive(run->model.config, key);
    else
        model_remove_quantizations(&run->model);
    if (!cJSON_AddItemToObject(run->model.config, key, quantization)) {
        cJSON_Delete(quantization);
        return NO_MEMORY(f, key);
    }
    return write_json(run, run->model.config_path, run->model.config, f);
}
