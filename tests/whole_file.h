/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Files as a whole, by the C library alone. */
#ifndef QOBS_TEST_WHOLE_FILE_H
#define QOBS_TEST_WHOLE_FILE_H

#include <stdio.h>
#include <stdlib.h>

/* Returns the bytes of a file and a NUL, to be freed; NULL: it cannot be read. */
static inline char *whole_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    *size = 0;
    if (!file)
        return NULL;
    const long length = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (length >= 0 && fseek(file, 0, SEEK_SET) == 0)
        bytes = malloc((size_t)length + 1);
    if (bytes)
        *size = fread(bytes, 1, (size_t)length, file);
    fclose(file);
    if (!bytes || *size != (size_t)length) {
        free(bytes);
        return NULL;
    }
    bytes[*size] = 0;
    return bytes;
}

#endif
