/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A file takes the place of its stand-in, and the other way round, by one call of mmap: other threads find the one or
 * the other, with the same bytes wherever they may read. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fallocate */
#endif

#include "files/fetched_shards.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/json.h"
#include "files/text.h"

enum { PREFIX = 8, BLOCK_BYTES = 1 << 20 };

/* ---- Bytes of files ---------------------------------------------------------------------------------------------- */

static int read_at(int fd, void *to, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(at + done));
        if (n <= 0 && !(n < 0 && errno == EINTR))
            return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int write_at(int fd, const void *from, size_t bytes, uint64_t at, const char *path, struct fail *f)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pwrite(fd, (const char *)from + done, bytes - done, (off_t)(at + done));
        if (n == 0 || (n < 0 && errno != EINTR))
            return SYSTEM_FAILURE(f, "fetch: %s: cannot be written: %s", path, strerror(errno));
        done += n > 0 ? (size_t)n : 0;
    }
    return QOBS_OK;
}

/* A hash of 64 bits for each file: it finds mistakes, not attacks. */
static int hash_file(int fd, uint64_t size, uint64_t *hash, struct fail *f)
{
    OWNED unsigned char *block = malloc(BLOCK_BYTES);
    if (!block)
        return NO_MEMORY(f, "a hash");
    *hash = UINT64_C(0xcbf29ce484222325) ^ size;
    for (uint64_t at = 0; at < size; at += BLOCK_BYTES) {
        const size_t bytes = size - at < BLOCK_BYTES ? (size_t)(size - at) : BLOCK_BYTES;
        memset(block + (bytes & ~(size_t)7), 0, bytes < BLOCK_BYTES ? 8 : 0);
        if (read_at(fd, block, bytes, at) != 0)
            return SYSTEM_FAILURE(f, "cannot be read to its end");
        for (size_t i = 0; i < bytes; i += 8) {
            uint64_t word;
            memcpy(&word, block + i, sizeof word);
            *hash = (*hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
            *hash ^= *hash >> 32;
        }
    }
    return QOBS_OK;
}

/* ---- Headers ----------------------------------------------------------------------------------------------------- */

/* The facts of a header. */
struct header {
    uint64_t bytes, size; /* of itself with its length, of the file */
    unsigned char *data;
};

static void header_free(struct header *h)
{
    free(h->data);
    *h = (struct header){0};
}

static bool read_offsets(struct json_span tensor, struct fetched_range *r)
{
    struct json_span key, value;
    if (*tensor.text != '{')
        return false;
    for (struct json_walk w = json_enter(tensor.text); json_step(&w, &key, &value);) {
        struct json_span index, number;
        if (!json_span_is(key, "data_offsets") || *value.text != '[' || json_span_count(value) != 2)
            continue;
        struct json_walk in = json_enter(value.text);
        return json_step(&in, &index, &number) && json_span_integer(number, &r->begin) == 0 &&
               json_step(&in, &index, &number) && json_span_integer(number, &r->end) == 0 && r->begin <= r->end;
    }
    return false;
}

/* Finds the size of the file. st_open checks the rest of a header. */
static int read_size(struct header *h, const char *path, struct fail *f)
{
    OWNED char *root = NULL;
    struct json_span key, value;
    RETURN_IF_NOT_OK(json_check(&root, path, "header", h->data + PREFIX, (size_t)h->bytes - PREFIX, JSON_STRICT, f));
    h->size = h->bytes;
    for (struct json_walk w = json_enter(root); json_step(&w, &key, &value);) {
        struct fetched_range r;
        if (json_span_is(key, "__metadata__"))
            continue;
        if (!read_offsets(value, &r))
            return INVALID(f, "a tensor of its header has no data_offsets");
        h->size = h->bytes + r.end > h->size ? h->bytes + r.end : h->size;
    }
    return QOBS_OK;
}

/* Reads the header of a file, of which the end may be missing. */
static int read_header(struct header *h, int fd, const char *path, struct fail *f)
{
    unsigned char prefix[PREFIX + 1];
    uint64_t length = 0;
    if (read_at(fd, prefix, sizeof prefix, 0) != 0)
        return INVALID(f, "it is too short for a safetensors file");
    for (int i = PREFIX; i > 0; i--)
        length = length << 8 | prefix[i - 1];
    if (length < 2 || length > JSON_MAX_BYTES || prefix[PREFIX] != '{')
        return INVALID(f, "it is no safetensors file");
    h->bytes = PREFIX + length;
    h->data = malloc((size_t)h->bytes);
    if (!h->data)
        return NO_MEMORY(f, "a header");
    if (read_at(fd, h->data, (size_t)h->bytes, 0) != 0)
        return INVALID(f, "it is cut off in its header");
    return read_size(h, path, f);
}

static int check_size(uint64_t wanted, int fd, struct fail *f)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return SYSTEM_FAILURE(f, "%s", strerror(errno));
    return (uint64_t)status.st_size == wanted
               ? QOBS_OK
               : INVALID(f, "it has %jd of %" PRIu64 " bytes", (intmax_t)status.st_size, wanted);
}

/* ---- Whole files ------------------------------------------------------------------------------------------------- */

static char *stand_of(const struct fetched_shard *s) { return path_join(s->all->stands, s->name); }

/* Writes a file under another name first. */
static int write_file(const char *path, const void *data, size_t bytes, uint64_t size, struct fail *f)
{
    OWNED char *unfinished = text_format("%s.new", path);
    OWNED_DESCRIPTOR const int fd = unfinished ? open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
        return SYSTEM_FAILURE(f, "fetch: %s: cannot be written: %s", path, strerror(errno));
    RETURN_IF_NOT_OK(write_at(fd, data, bytes, 0, path, f));
    return rename(unfinished, path) == 0 ? QOBS_OK
                                         : SYSTEM_FAILURE(f, "fetch: %s: cannot be written: %s", path, strerror(errno));
}

/* Compares the hash with that of the first time. */
static int check_hash(const struct fetched_shard *s, int fd, struct fail *f)
{
    uint64_t hash = 0;
    char text[17], before[17] = "";
    OWNED char *path = path_join(s->all->hashes, s->name);
    if (!path)
        return NO_MEMORY(f, "a path");
    RETURN_IF_NOT_OK(hash_file(fd, s->size, &hash, f));
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    OWNED_DESCRIPTOR const int first = open(path, O_RDONLY | O_CLOEXEC);
    if (first < 0 || read_at(first, before, 16, 0) != 0)
        return write_file(path, text, 16, 16, f);
    return strcmp(text, before) == 0
               ? QOBS_OK
               : INVALID(f,
                         "its bytes are not those that were fetched before: the model has changed, or a copy is "
                         "damaged; remove %s to begin anew",
                         s->all->state);
}

/* Compares the header with that of the stand-in. */
static int check_header(const struct fetched_shard *s, int fd, struct fail *f)
{
    OWNED char *stand = stand_of(s);
    OWNED unsigned char *headers = malloc(2 * (size_t)s->header + 1);
    OWNED_DESCRIPTOR const int from = stand ? open(stand, O_RDONLY | O_CLOEXEC) : -1;
    if (!headers)
        return NO_MEMORY(f, "a header");
    if (from < 0 || read_at(from, headers, (size_t)s->header, 0) != 0)
        return SYSTEM_FAILURE(f, "its header is gone");
    unsigned char *own = headers + s->header;
    return read_at(fd, own, (size_t)s->header, 0) == 0 && memcmp(own, headers, (size_t)s->header) == 0
               ? QOBS_OK
               : INVALID(f,
                         "its header is not the one that was fetched before: the model has changed; remove %s to begin "
                         "anew",
                         s->all->state);
}

static int check_whole(void *context, const char *path, bool ended, struct fail *f)
{
    const struct fetched_shard *s = context;
    (void)ended;
    OWNED_DESCRIPTOR const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return SYSTEM_FAILURE(f, "it cannot be opened: %s", strerror(errno));
    RETURN_IF_NOT_OK(check_size(s->size, fd, f));
    RETURN_IF_NOT_OK(check_header(s, fd, f));
    return check_hash(s, fd, f);
}

/* ---- Stand-ins --------------------------------------------------------------------------------------------------- */

/* Makes a stand-in of a file of which the header is there. */
static int make_stand(void *context, const char *path, bool ended, struct fail *f)
{
    const struct fetched_shard *s = context;
    RELEASED_BY(header_free) struct header h = {0};
    OWNED_DESCRIPTOR const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return SYSTEM_FAILURE(f, "it cannot be opened: %s", strerror(errno));
    RETURN_IF_NOT_OK(read_header(&h, fd, path, f));
    if (ended)
        RETURN_IF_NOT_OK(check_size(h.size, fd, f));
    OWNED char *stand = stand_of(s);
    return stand ? write_file(stand, h.data, (size_t)h.bytes, h.size, f) : NO_MEMORY(f, "a path");
}

static bool parse_range(const char *line, struct fetched_range *r)
{
    char *end;
    r->begin = strtoull(line, &end, 10);
    if (end == line || *end != ' ')
        return false;
    r->end = strtoull(end + 1, &end, 10);
    return *end == ';';
}

/* Reads which bytes the stand-in has for good. A line without its end was cut off. */
static int read_often(struct fetched_shard *s, struct fail *f)
{
    OWNED char *path = path_join(s->all->ranges, s->name);
    FILE *file = path ? fopen(path, "re") : NULL;
    struct fetched_range r;
    char line[64];
    int status = path ? QOBS_OK : NO_MEMORY(f, "a path");
    while (file && status == QOBS_OK && fgets(line, sizeof line, file))
        if (parse_range(line, &r) && !list_append(&s->often.items, &s->often.count, sizeof r, &r))
            status = NO_MEMORY(f, "the tensors");
    if (file)
        fclose(file);
    return status;
}

/* Takes header and size from a stand-in. */
static int read_stand(struct fetched_shard *s, struct fail *f)
{
    RELEASED_BY(header_free) struct header h = {0};
    OWNED char *stand = stand_of(s);
    OWNED_DESCRIPTOR const int fd = stand ? open(stand, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &s->file.status) != 0)
        return SYSTEM_FAILURE(f, "fetch: %s: cannot be opened: %s", s->name, strerror(errno));
    RETURN_IF_NOT_OK(read_header(&h, fd, stand, f));
    s->header = h.bytes;
    s->size = h.size;
    return read_often(s, f);
}

static int open_stand(struct fetched_shard *s, struct fail *f)
{
    const struct fetch_check check = {make_stand, s, true};
    OWNED char *stand = stand_of(s), *file = path_join(s->all->command.folder, s->name);
    if (!stand || !file)
        return NO_MEMORY(f, "a path");
    unlink(file); /* a run that was killed may have left it */
    if (access(stand, F_OK) != 0) {
        RETURN_IF_NOT_OK(fetch_file(&s->all->command, s->name, &check, f));
        unlink(file);
    }
    return read_stand(s, f);
}

/* ---- Maps -------------------------------------------------------------------------------------------------------- */

/* Shows a file of the size of the shard at the addresses of its map. */
static int show(const struct fetched_shard *s, const char *folder, struct fail *f)
{
    if (!s->file.data)
        return QOBS_OK;
    OWNED char *path = path_join(folder, s->name);
    OWNED_DESCRIPTOR const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 ||
        mmap(s->file.data, s->file.size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) /* NOLINT */
        return SYSTEM_FAILURE(f, "fetch: %s: cannot be mapped: %s", s->name, strerror(errno));
    return QOBS_OK;
}

static bool is_within(const struct fetched_ranges *ranges, struct fetched_range r)
{
    for (size_t i = 0; i < ranges->count; i++)
        if (r.begin >= ranges->items[i].begin && r.end <= ranges->items[i].end)
            return true;
    return false;
}

/* Returns true if the stand-in has these bytes. */
static bool stands_for(const struct fetched_shard *s, struct fetched_range r)
{
    return r.end <= s->header || is_within(&s->often, r) || is_within(&s->kept, r);
}

/* Gives the stand-in bytes of the file that is here. */
static int keep(const struct fetched_shard *s, struct fetched_range r, struct fetched_ranges *list, struct fail *f)
{
    OWNED char *stand = stand_of(s);
    OWNED_DESCRIPTOR const int fd = stand ? open(stand, O_WRONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return SYSTEM_FAILURE(f, "fetch: %s: cannot be opened: %s", s->name, strerror(errno));
    RETURN_IF_NOT_OK(write_at(fd, s->file.data + r.begin, (size_t)(r.end - r.begin), r.begin, stand, f));
    return list_append(&list->items, &list->count, sizeof r, &r) ? QOBS_OK : NO_MEMORY(f, "the tensors");
}

/* Keeps bytes for this run and later ones. */
static int keep_for_good(struct fetched_shard *s, struct fetched_range r, struct fail *f)
{
    RETURN_IF_NOT_OK(keep(s, r, &s->often, f));
    OWNED char *path = path_join(s->all->ranges, s->name);
    FILE *file = path ? fopen(path, "ae") : NULL;
    const bool written = file && fprintf(file, "\n%" PRIu64 " %" PRIu64 ";", r.begin, r.end) > 0;
    return (file && fclose(file) == 0 && written)
               ? QOBS_OK
               : SYSTEM_FAILURE(f, "fetch: %s: cannot be written: %s", path ? path : s->name, strerror(errno));
}

/* Frees what the stand-in keeps for readers; where the system cannot, it stays on the disk. */
static void drop_kept(struct fetched_shard *s)
{
    OWNED char *stand = s->kept.count > 0 ? stand_of(s) : NULL;
    OWNED_DESCRIPTOR const int fd = stand ? open(stand, O_WRONLY | O_CLOEXEC) : -1;
#ifdef FALLOC_FL_PUNCH_HOLE
    for (size_t i = 0; fd >= 0 && i < s->kept.count; i++)
        (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->kept.items[i].begin,
                         (off_t)(s->kept.items[i].end - s->kept.items[i].begin));
#endif
    s->kept.count = 0;
}

/* Copies what somebody reads to the stand-in. */
static int keep_held(struct fetched_shard *s, struct fail *f)
{
    for (size_t i = 0; i < s->held.count; i++)
        if (!stands_for(s, s->held.items[i]))
            RETURN_IF_NOT_OK(keep(s, s->held.items[i], &s->kept, f));
    return QOBS_OK;
}

static void remove_file(struct fetched_shard *s)
{
    OWNED char *path = path_join(s->all->command.folder, s->name);
    if (path)
        unlink(path);
    s->here = false;
}

/* Puts the stand-in in the place of the file. */
static int put_away(struct fetched_shard *s, struct fail *f)
{
    RETURN_IF_NOT_OK(keep_held(s, f));
    RETURN_IF_NOT_OK(show(s, s->all->stands, f));
    remove_file(s);
    return QOBS_OK;
}

/* Makes room for one more file. */
static int make_room(struct fetched_shards *all, struct fail *f)
{
    for (;;) {
        size_t here = 0;
        struct fetched_shard *oldest = NULL;
        for (size_t i = 0; i < all->count; i++)
            if (all->items[i].here) {
                here++;
                oldest = oldest && oldest->used < all->items[i].used ? oldest : &all->items[i];
            }
        if (!oldest || here < FETCHED_AT_ONCE)
            return QOBS_OK;
        RETURN_IF_NOT_OK(put_away(oldest, f));
    }
}

static int bring(struct fetched_shard *s, struct fail *f)
{
    const struct fetch_check check = {check_whole, s, false};
    RETURN_IF_NOT_OK(make_room(s->all, f));
    RETURN_IF_NOT_OK(fetch_file(&s->all->command, s->name, &check, f));
    s->here = true;
    return show(s, s->all->command.folder, f);
}

/* ---- Deferred files ---------------------------------------------------------------------------------------------- */

/* Makes bytes readable. all->lock is held. */
static int hold_range(struct fetched_shard *s, struct fetched_range r, enum deferred_use use, struct fail *f)
{
    const bool stands = stands_for(s, r);
    if (!s->here && !stands)
        RETURN_IF_NOT_OK(bring(s, f));
    if (use == READ_OFTEN && !stands && !is_within(&s->held, r))
        RETURN_IF_NOT_OK(keep_for_good(s, r, f));
    s->used = ++s->all->clock;
    return list_append(&s->held.items, &s->held.count, sizeof r, &r) ? QOBS_OK : NO_MEMORY(f, "the tensors");
}

static int hold(struct deferred_file *file, size_t at, size_t size, enum deferred_use use, struct fail *f)
{
    struct fetched_shard *s = (struct fetched_shard *)file;
    struct fetched_shards *all = s->all;
    const struct fetched_range r = {at, at + size};
    struct fail own = {.message = ""};
    pthread_mutex_lock(&all->lock);
    const int status = all->status != QOBS_OK ? all->status : hold_range(s, r, use, &own);
    if (status != QOBS_OK && all->status == QOBS_OK) {
        all->status = status;
        all->failure = own;
    }
    if (status != QOBS_OK)
        report_failure(f, status, "%s", all->failure.message);
    pthread_mutex_unlock(&all->lock);
    return status;
}

static void release(struct deferred_file *file, size_t at, size_t size)
{
    struct fetched_shard *s = (struct fetched_shard *)file;
    pthread_mutex_lock(&s->all->lock);
    for (size_t i = s->held.count; i > 0; i--)
        if (s->held.items[i - 1].begin == at && s->held.items[i - 1].end == at + size) {
            s->held.items[i - 1] = s->held.items[--s->held.count];
            break;
        }
    if (s->held.count == 0)
        drop_kept(s);
    pthread_mutex_unlock(&s->all->lock);
}

static void mapped(struct deferred_file *file)
{
    struct fetched_shard *s = (struct fetched_shard *)file;
    pthread_mutex_lock(&s->all->lock);
    if (s->here && show(s, s->all->command.folder, NULL) != QOBS_OK)
        remove_file(s); /* it is fetched again */
    pthread_mutex_unlock(&s->all->lock);
}

static void unmapped(struct deferred_file *file)
{
    struct fetched_shard *s = (struct fetched_shard *)file;
    pthread_mutex_lock(&s->all->lock);
    s->held.count = 0;
    drop_kept(s);
    pthread_mutex_unlock(&s->all->lock);
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

int fetched_shards_open(struct fetched_shards *all, const char *const *names, size_t count, struct fail *f)
{
    static const struct deferred_functions functions = {mapped, unmapped, hold, release};
    all->items = calloc(count + 1, sizeof *all->items);
    if (!all->items)
        return NO_MEMORY(f, "the shards");
    pthread_mutex_init(&all->lock, NULL);
    for (; all->count < count; all->count++) {
        struct fetched_shard *s = &all->items[all->count];
        *s = (struct fetched_shard){.file = {.functions = &functions}, .all = all, .name = names[all->count]};
        RETURN_IF_NOT_OK(open_stand(s, f));
        deferred_add(&s->file);
    }
    return QOBS_OK;
}

void fetched_shards_close(struct fetched_shards *all)
{
    if (!all->items)
        return;
    for (size_t i = 0; i < all->count; i++) {
        struct fetched_shard *s = &all->items[i];
        deferred_remove(&s->file);
        remove_file(s);
        free(s->often.items);
        free(s->held.items);
        free(s->kept.items);
    }
    free(all->items);
    all->items = NULL;
    all->count = 0;
    pthread_mutex_destroy(&all->lock);
}
