/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A state is written through output.h and read through a map. */
#include "state_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "files/mapped.h"

int state_begin(struct output *output, const qobs_observer *observer, const char *path)
{
    const size_t size = qobs_observer_save_size(observer);
    void *data = malloc(size);
    qobs_error error;
    struct fail f;
    if (!data)
        return print_error(EXIT_SYSTEM, "%s: no memory for a state of %zu bytes", path, size);
    int code = EXIT_OK;
    if (qobs_observer_save(observer, data, size, &error) != QOBS_OK)
        code = print_status_error(&error, path);
    if (code == EXIT_OK && output_open(output, path, &f) != 0)
        code = print_error(EXIT_SYSTEM, "%s", f.message);
    if (code == EXIT_OK && output_write(output, data, size, 0) != 0)
        code = print_error(EXIT_SYSTEM, "%s: cannot write: %s", path, strerror(errno));
    free(data);
    return code;
}

int state_read(qobs_observer **observer, const char *path, const qobs_runtime *runtime)
{
    struct mapped map;
    struct fail f;
    qobs_error error;
    if (mapped_open(&map, path, &f) != 0)
        return print_failure(&f, "");
    int code = EXIT_OK;
    if (qobs_observer_load(observer, map.data, map.size, runtime, &error) != QOBS_OK)
        code = print_status_error(&error, path);
    mapped_close(&map);
    return code;
}
