/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Signatures are those of the formats' documents and of file(1)'s database. */
#include "files/file_kind.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/text.h"

#define PICKLE                                                                                                         \
    "a file of PyTorch (.bin, .pt, .pth), no safetensors; save_pretrained(NEW) of its model writes safetensors"
#define ANSWER ", an answer of a server in place of the file; fetch the file again, with a token if it is gated"
#define ARCHIVE "; unpack it, what is needed is inside"

/* Bytes at a place. text: they are letters in any case, behind white space. */
static const struct {
    size_t at, length;
    const char *bytes, *kind;
    bool text;
} signatures[] = {
    {0, 34, "version https://git-lfs.github.com",
     "a Git LFS pointer, not the file itself; git lfs pull fetches the file", true},
    {0, 14, "<!doctype html", "an HTML page" ANSWER, true},
    {0, 5, "<html", "an HTML page" ANSWER, true},
    {0, 5, "<?xml", "XML" ANSWER, true},
    {0, 7, "<error>", "XML" ANSWER, true},
    {0, 8, "{\"error\"", "a message of an error in JSON" ANSWER, true},
    {0, 15, "entry not found", "the text 'Entry not found'" ANSWER, true},
    {0, 16, "invalid username", "the text 'Invalid username'" ANSWER, true},
    {0, 16, "access to model ", "a text about access to a model" ANSWER, true},
    {0, 4, "GGUF",
     "GGUF of llama.cpp: qobs quantize, info and audit take such a file, this takes safetensors alone", false},
    {0, 4, "PK\3\4", "a zip archive: " PICKLE, false},
    {0, 2, "\x80\2", "a pickle: " PICKLE, false},
    {0, 2, "\x80\3", "a pickle: " PICKLE, false},
    {0, 2, "\x80\4", "a pickle: " PICKLE, false},
    {0, 2, "\x80\5", "a pickle: " PICKLE, false},
    {0, 6, "\x93NUMPY", "an array of NumPy (.npy)", false},
    {0, 4, "\x89HDF", "HDF5 of Keras or TensorFlow; save_pretrained(NEW) of the model in PyTorch writes safetensors",
     false},
    {0, 2, "\x1f\x8b", "compressed by gzip" ARCHIVE, false},
    {0, 3, "BZh", "compressed by bzip2" ARCHIVE, false},
    {0, 6,
     "\xfd"
     "7zXZ",
     "compressed by xz" ARCHIVE, false},
    {0, 4, "\x28\xb5\x2f\xfd", "compressed by zstd" ARCHIVE, false},
    {0, 6, "7z\xbc\xaf\x27\x1c", "a 7z archive" ARCHIVE, false},
    {257, 5, "ustar", "a tar archive" ARCHIVE, false},
    {0, 4, "PAR1", "a Parquet file of a data set", false},
    {0, 4, "qobs", "the state of an observer of qobs", false},
    {0, 4,
     "\x7f"
     "ELF",
     "a program or a library", false},
    {0, 4, "\x89PNG", "a picture", false},
    {0, 2, "\xff\xfe", "text in UTF-16; UTF-8 is needed", false},
    {0, 2, "\xfe\xff", "text in UTF-16; UTF-8 is needed", false},
};

static bool is_space(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool matches(const unsigned char *p, size_t size, size_t i)
{
    const size_t at = signatures[i].at, length = signatures[i].length;
    if (size < at || size - at < length)
        return false;
    if (!signatures[i].text)
        return memcmp(p + at, signatures[i].bytes, length) == 0;
    for (size_t k = 0; k < length; k++)
        if (tolower(p[k]) != signatures[i].bytes[k])
            return false;
    return true;
}

/* Downloads reserve the size of a file and fill it later. */
static bool are_zeros(const unsigned char *p, size_t size)
{
    size_t i = 0;
    while (i < size && i < 64 && p[i] == 0)
        i++;
    return i == 64;
}

const char *file_kind(const void *data, size_t size)
{
    const unsigned char *p = data;
    size_t skip = size >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* the mark of UTF-8 */
    if (size == 0)
        return "empty: 0 bytes; fetch the file again";
    if (are_zeros(p, size))
        return "filled with zeros where it begins, as an unfinished download is; fetch the file again";
    while (skip < size && skip < 64 && is_space(p[skip]))
        skip++;
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        const size_t from = signatures[i].text ? skip : 0;
        if (matches(p + from, size - from, i))
            return signatures[i].kind;
    }
    return size > 9 && p[8] == '{' && p[7] == 0 ? "a safetensors file" : NULL;
}

int file_kind_refuse(const char *path, const void *data, size_t size, struct fail *f)
{
    const char *kind = file_kind(data, size);
    return kind ? fail(f, "%s: is %s", path, kind) : 0;
}

/* ---- Files of weights by their names ----------------------------------------------------------------------------- */

#define TORCH "weights of PyTorch", "In Python: AutoModel.from_pretrained(DIR).save_pretrained(NEW) writes safetensors"
#define LLAMA_CPP "weights of llama.cpp", "quantize the model in safetensors that they were made of"
#define OTHER(format) format, "the model in safetensors is needed"

static const struct {
    const char *ending, *format, *way;
} weights[] = {
    {".bin", TORCH},
    {".pt", TORCH},
    {".pth", TORCH},
    {".ckpt", TORCH},
    {".gguf", LLAMA_CPP},
    {".ggml", LLAMA_CPP},
    {".onnx", OTHER("a graph of ONNX")},
    {".h5", OTHER("weights of TensorFlow")},
    {".msgpack", OTHER("weights of Flax")},
    {".npz", OTHER("arrays of NumPy")},
    {".tflite", OTHER("a model of TensorFlow Lite")},
};

const char *file_kind_of_weights(const char *path, const char **way)
{
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        if (ends_with(path, weights[i].ending)) {
            *way = weights[i].way;
            return weights[i].format;
        }
    return NULL;
}

/* ---- Access ------------------------------------------------------------------------------------------------------ */

int file_refuse_access(const char *path, const char *what, int error, struct fail *f)
{
    struct stat status;
    char target[256];
    const bool link = error == ENOENT && lstat(path, &status) == 0 && S_ISLNK(status.st_mode);
    const ssize_t length = link ? readlink(path, target, sizeof target - 1) : -1;
    if (length < 0)
        return fail(f, "%s: %s: %s", path, what, strerror(error));
    target[length] = '\0';
    return fail(f, "%s: is a link to '%s', which is not there; fetch the file again", path, target);
}
