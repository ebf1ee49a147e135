/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "state_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mapped.h"

static int write_beside(const char *path, const void *data, size_t size)
{
    const size_t length = strlen(path) + 32;
    char *temporary = malloc(length);
    if (!temporary)
        return complain(EXIT_TROUBLE, "%s: no memory", path);
    snprintf(temporary, length, "%s.%ld.tmp", path, (long)getpid());
    FILE *f = fopen(temporary, "wbx");
    bool ok = f && fwrite(data, 1, size, f) == size;
    int reason = errno;
    if (f && fclose(f) != 0) {
        reason = ok ? errno : reason;
        ok = false;
    }
    if (ok && rename(temporary, path) != 0) {
        reason = errno;
        ok = false;
    }
    if (!ok && f)
        remove(temporary);
    free(temporary);
    return ok ? EXIT_OK : complain(EXIT_TROUBLE, "%s: cannot write: %s", path, strerror(reason));
}

int state_write(const qobs_observer *observer, const char *path)
{
    const size_t size = qobs_observer_save_size(observer);
    void *data = malloc(size);
    qobs_error error;
    if (!data)
        return complain(EXIT_TROUBLE, "%s: no memory for a state of %zu bytes", path, size);
    int code = check_output(path);
    if (code == EXIT_OK && qobs_observer_save(observer, data, size, &error) != QOBS_OK)
        code = complain_status(&error, path);
    if (code == EXIT_OK)
        code = write_beside(path, data, size);
    free(data);
    return code;
}

int state_read(qobs_observer **observer, const char *path, const qobs_runtime *runtime)
{
    struct mapped map;
    struct fail f;
    qobs_error error;
    if (mapped_open(&map, path, &f) != 0)
        return complain(EXIT_WRONG, "%s", f.message);
    int code = EXIT_OK;
    if (qobs_observer_load(observer, map.data, map.size, runtime, &error) != QOBS_OK)
        code = complain_status(&error, path);
    mapped_close(&map);
    return code;
}
