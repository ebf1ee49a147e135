/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Common parts of the tests of the program's file readers and writers. */
#ifndef QOBS_TEST_IO_H
#define QOBS_TEST_IO_H


#include "unit.h"
#undef fail /* cmocka has a macro of that name, the program a function. fail_msg of cmocka needs a replacement: */
#define io_stop(...) (print_error(__VA_ARGS__), _fail(__FILE__, __LINE__))

#include "files/file_dtype.h"
#include "files/fail.h"
#include "files/bus_errors.h"
#include "files/mapped.h"
#include "files/npy.h"
#include "files/safetensors.h"
#include "files/tensor_files.h"
#include "files/tensors.h"

/* Group fixtures: a temporary directory, removed with its contents. */
int io_setup(void **state);
int io_teardown(void **state);

/* Returns the path of a name in that directory; valid until 16 calls later. "" is the directory. */
const char *io_path(const char *name);

/* Create a file there and return its path. The contents are the given bytes; or a safetensors header and `data`
 * bytes 0, 1, 2, ...; or a .npy header of version 1.0, padded as by NumPy, and such bytes. */
const char *io_bytes(const char *name, const void *data, size_t size);
const char *io_st(const char *name, const char *header, size_t data);
const char *io_npy(const char *name, const char *header, size_t data);

/* Creates a directory there and returns its path. */
const char *io_directory(const char *name);

#define IO_DIMS(...) ((const int64_t[]){__VA_ARGS__})

/* Declares tensor "w" of four bytes. */
void io_add_four(struct st_writer *w);

/* Returns the number of directory entries, without "." and "..". */
size_t io_entries(const char *path);

/* Checks that the call failed and that its message has all of the words. The words end with NULL. */
void io_expect_refusal(int result, const struct fail *f, const char *const *words);
#define assert_refused(call, f, ...) io_expect_refusal((call), (f), (const char *const[]){__VA_ARGS__, NULL})

/* The test groups. Each returns the number of failed tests. */
int io_test_safetensors(void);
int io_test_changes(void);
int io_test_writer(void);
int io_test_writer_refusals(void);
int io_test_npy(void);
int io_test_gguf(void);
int io_test_tensors(void);

/* Maps a file and reads it as .npy. */
static inline int npy_open(struct npy_file *file, const char *path, struct fail *f)
{
    struct mapped map;
    *file = (struct npy_file){0};
    return mapped_open(&map, path, f) != 0 ? -1 : npy_open_mapped(file, &map, f);
}

#endif
