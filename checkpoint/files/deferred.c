/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* One list for the process, because bytes are held by their address alone, in any thread. */
#include "files/deferred.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct deferred_file *files;
static atomic_size_t file_count; /* most processes have none and take no lock */

void deferred_add(struct deferred_file *file)
{
    pthread_mutex_lock(&lock);
    file->next = files;
    files = file;
    atomic_fetch_add(&file_count, 1);
    pthread_mutex_unlock(&lock);
}

void deferred_remove(struct deferred_file *file)
{
    pthread_mutex_lock(&lock);
    struct deferred_file **at = &files;
    while (*at && *at != file)
        at = &(*at)->next;
    if (*at) {
        *at = file->next;
        atomic_fetch_sub(&file_count, 1);
    }
    pthread_mutex_unlock(&lock);
}

bool deferred_map(const struct stat *status, void *data, size_t size)
{
    if (atomic_load(&file_count) == 0)
        return false;
    pthread_mutex_lock(&lock);
    struct deferred_file *file = files;
    while (file && (file->data || file->status.st_dev != status->st_dev || file->status.st_ino != status->st_ino))
        file = file->next;
    if (file) {
        file->data = data;
        file->size = size;
    }
    pthread_mutex_unlock(&lock);
    if (file)
        file->functions->mapped(file);
    return file != NULL;
}

/* Returns the file with the address in its map; NULL: none. */
static struct deferred_file *find(const void *at)
{
    const uintptr_t address = (uintptr_t)at;
    if (atomic_load(&file_count) == 0)
        return NULL;
    pthread_mutex_lock(&lock);
    struct deferred_file *file = files;
    while (file && (!file->data || address < (uintptr_t)file->data || address - (uintptr_t)file->data >= file->size))
        file = file->next;
    pthread_mutex_unlock(&lock);
    return file;
}

void deferred_unmap(const void *data)
{
    struct deferred_file *file = find(data);
    if (!file)
        return;
    file->functions->unmapped(file);
    pthread_mutex_lock(&lock);
    file->data = NULL;
    pthread_mutex_unlock(&lock);
}

int deferred_hold(const void *at, size_t size, enum deferred_use use, struct fail *f)
{
    struct deferred_file *file = size > 0 ? find(at) : NULL;
    return file ? file->functions->hold(file, (size_t)((const unsigned char *)at - file->data), size, use, f) : QOBS_OK;
}

void deferred_release(const void *at, size_t size)
{
    struct deferred_file *file = size > 0 ? find(at) : NULL;
    if (file)
        file->functions->release(file, (size_t)((const unsigned char *)at - file->data), size);
}
