/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Any bytes as the index of a sharded checkpoint: refused, or no file is named outside the index's directory; and then
 * opened as the program does, beside two good shards, 101 with a and b and 102 with c, and whatever else the process
 * has open. */
#include "file.h"
#include "files/shards.h"
#include "files/tensors.h"

volatile unsigned touched;

static void fill_shard(int number, const char *header, size_t bytes)
{
    const size_t length = strlen(header);
    uint8_t file[256] = {(uint8_t)length};
    memcpy(file + 8, header, length);
    file_fill(number, file, 8 + length + bytes);
}

static void check_index(const struct shard_index *index)
{
    for (size_t i = 0; i < index->count; i++) {
        const struct shard_entry *entry = &index->entries[i];
        char *path = shard_path("/proc/self/fd/100", entry->shard);
        must(path && strncmp(path, "/proc/self/fd/", 14) == 0 && strcmp(path + 14, entry->shard) == 0);
        must(entry->shard[0] != '/' && entry->shard[0] != '\0' && strcmp(entry->shard, "..") != 0);
        must(strncmp(entry->shard, "../", 3) != 0 && !strstr(entry->shard, "/../"));
        must(strlen(entry->shard) < 3 || strcmp(entry->shard + strlen(entry->shard) - 3, "/..") != 0);
        must(i == 0 || strcmp(entry[-1].shard, entry->shard) <= 0);
        free(path);
    }
}

static void open_all(void)
{
    struct tensor_set set;
    struct fail f = {.message = ""};
    if (tensors_open(&set, "/proc/self/fd/100", &f) != 0) {
        must(f.message[0] != '\0');
        return;
    }
    for (size_t i = 0; i < set.count; i++) {
        const struct tensor_ref *ref = &set.refs[i];
        must(tensors_find(&set, ref->name) == ref);
        touched = touch(ref->data, ref->bytes);
    }
    tensors_close(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mapped map;
    struct shard_index index;
    struct fail f = {.message = ""};
    if (fcntl(101, F_GETFD) < 0) {
        fill_shard(101,
                   "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
                   "\"b\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[8,9]}}",
                   9);
        fill_shard(102, "{\"c\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]}}", 6);
    }
    file_fill(100, data, size);
    file_map(&map, 100);
    if (shard_index_read(&index, &map, &f) == 0) {
        check_index(&index);
        shard_index_free(&index);
    } else {
        must(f.message[0] != '\0' && index.count == 0 && !index.entries);
    }
    mapped_close(&map);
    open_all();
    return 0;
}
