/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* A regular file is replaced when the report is complete; a pipe or a device is written to. */
#include "report_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "program.h"

int report_open(struct report_file *r, const char *path)
{
    struct stat status;
    struct fail f;
    r->path = path;
    if (!path || strcmp(path, "-") == 0)
        return EXIT_OK;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
        r->device = fopen(path, "w");
        return r->device ? EXIT_OK : print_error(EXIT_SYSTEM, "--json: %s: cannot write: %s", path, strerror(errno));
    }
    return output_open(&r->output, path, &f) == 0 ? EXIT_OK : print_error(EXIT_SYSTEM, "--json: %s", f.message);
}

int report_write(struct report_file *r, const char *text)
{
    if (r->output.path && output_write(&r->output, text, strlen(text), 0) != 0)
        return print_error(EXIT_SYSTEM, "--json: %s: cannot write: %s", r->path, strerror(errno));
    if (r->device && (fputs(text, r->device) < 0 || fflush(r->device) != 0))
        return print_error(EXIT_SYSTEM, "--json: %s: cannot write: %s", r->path, strerror(errno));
    return EXIT_OK;
}

int report_publish(struct report_file *r, const char *text)
{
    struct fail f;
    if (r->path && strcmp(r->path, "-") == 0)
        printf("%s%s", text, *text && text[strlen(text) - 1] == '\n' ? "" : "\n");
    if (r->output.path && output_commit(&r->output, &f) != 0)
        return print_error(EXIT_SYSTEM, "--json: %s", f.message);
    return EXIT_OK;
}

void report_close(struct report_file *r)
{
    if (r->device)
        fclose(r->device);
    output_abort(&r->output);
}
