/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Files are compared by device and inode, so that links and spellings make no difference. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "outputs.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "files/mapped.h"
#include "files/output_directory.h"
#include "files/source_tree.h"
#include "files/text.h"
#include "program.h"

/* The inputs of the run. Progress is reported from any thread, and the first report checks the outputs. */
static struct mapped_files inputs;

void remember_inputs(void)
{
    mapped_files_begin(&inputs);
    inputs.remembers = true;
}

/* Returns true if two paths name one file, which need not exist: by its inode, or by its name in a directory. */
static bool is_same_output(const char *a, const char *b)
{
    struct stat of_a, of_b;
    if (stat(a, &of_a) == 0 && stat(b, &of_b) == 0)
        return is_same_file(&of_a, &of_b);
    OWNED char *real_a = output_place_resolve(a, NULL), *real_b = output_place_resolve(b, NULL);
    return real_a && real_b && strcmp(real_a, real_b) == 0;
}

/* Returns true if the path, which need not exist, lies in a directory that this run has read as a whole. */
static bool is_in_input(const char *path)
{
    struct stat status;
    OWNED char *real = output_place_resolve(path, NULL);
    char *slash = real ? strrchr(real, '/') : NULL;
    bool found = false;
    for (; !found && slash; slash = strrchr(real, '/')) {
        *slash = '\0';
        found = stat(*real ? real : "/", &status) == 0 && mapped_was_read(&inputs, &status);
    }
    return found;
}

static int check_one(const struct output_option *o)
{
    struct stat status;
    const bool there = stat(o->path, &status) == 0; /* else whoever opens it says what is wrong with its directory */
    if (there && (S_ISDIR(status.st_mode) || (!S_ISREG(status.st_mode) && !o->report)))
        return print_error(EXIT_USAGE, "%s: %s: is %s; only a regular file is replaced", o->option, o->path,
                           S_ISDIR(status.st_mode) ? "a directory" : "no regular file");
    if (there && mapped_was_read(&inputs, &status))
        return print_error(EXIT_USAGE, "%s: %s: is an input; another name is needed", o->option, o->path);
    if (is_in_input(o->path))
        return print_error(EXIT_USAGE, "%s: %s: lies in an input; another directory is needed", o->option, o->path);
    return EXIT_OK;
}

static bool is_given(const struct output_option *o) { return o->path && !(o->report && strcmp(o->path, "-") == 0); }

int check_outputs(const struct output_option *outputs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_given(&outputs[i]))
            continue;
        RETURN_IF_NOT_OK(check_one(&outputs[i]));
        for (size_t k = 0; k < i; k++)
            if (is_given(&outputs[k]) && is_same_output(outputs[i].path, outputs[k].path))
                return print_error(EXIT_USAGE, "%s: %s: is also %s; two names are needed", outputs[i].option,
                                   outputs[i].path, outputs[k].option);
    }
    return EXIT_OK;
}

/* Returns true if a directory holds the file, perhaps through a link. */
static bool holds(const char *directory, const struct stat *file)
{
    RELEASED_BY(source_tree_free) struct source_tree tree;
    bool found = false;
    if (source_tree_read(&tree, directory, false, NULL) != 0)
        return false; /* who reads it says what is wrong */
    for (size_t i = 0; !found && i < tree.count; i++) {
        struct stat status;
        OWNED char *path = path_join(directory, tree.files[i].path);
        found = path && stat(path, &status) == 0 && is_same_file(&status, file);
    }
    return found;
}

/* Returns true if the path, which need not exist, lies below the directory. */
static bool lies_below(const char *directory, const char *path)
{
    OWNED char *upper = output_place_resolve(directory, NULL), *lower = output_place_resolve(path, NULL);
    const size_t length = upper ? strlen(upper) : 0;
    return upper && lower && strncmp(upper, lower, length) == 0 && lower[length] == '/';
}

int check_output_apart(const struct output_option *output, const char *input, bool below)
{
    struct stat of_input, of_output;
    if (!input || !is_given(output))
        return EXIT_OK;
    const bool there = stat(input, &of_input) == 0, directory = there && S_ISDIR(of_input.st_mode);
    if (below && (directory || !there) && lies_below(input, output->path))
        return print_error(EXIT_USAGE, "%s: %s: lies in %s; another directory is needed", output->option, output->path,
                           input);
    if (there && stat(output->path, &of_output) == 0 &&
        (directory ? holds(input, &of_output) : is_same_file(&of_input, &of_output)))
        return print_error(EXIT_USAGE, "%s: %s: is an input; another name is needed", output->option, output->path);
    return EXIT_OK;
}

/* ---- Reports ----------------------------------------------------------------------------------------------------- */

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
    if ((r->output.path && output_write(&r->output, text, strlen(text), 0) != 0) ||
        (r->device && (fputs(text, r->device) < 0 || fflush(r->device) != 0)))
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
