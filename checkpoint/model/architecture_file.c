/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Reads rows of architectures from JSON: {"transformers": "5.24.0", "vllm": "0.32.0", "architectures": [ROW, ...]}. The
 * members of a row are the columns of struct architecture. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/text.h"
#include "model/architecture.h"

enum { MAX_ENTRY = 200 };

#define COLUMN(name, separator)                                                                                        \
    {                                                                                                                  \
#name, offsetof(struct architecture, name), separator                                                          \
    }
#define KIND(name, kind)                                                                                               \
    {                                                                                                                  \
        name, offsetof(struct architecture, names) + sizeof(const char *) * (kind), ' '                                \
    }
#define FLAG(name)                                                                                                     \
    {                                                                                                                  \
#name, offsetof(struct architecture, name), 0                                                                  \
    }
static const struct column {
    const char *name;
    size_t offset;
    char separator; /* of the entries in the text of the column; 0: it is a bool */
} columns[] = {COLUMN(types, ' '),
               COLUMN(classes, ' '),
               KIND("linear", MODULE_LINEAR),
               KIND("head", MODULE_HEAD),
               KIND("table", MODULE_TABLE),
               KIND("router", MODULE_ROUTER),
               KIND("conv1d", MODULE_CONV1D),
               KIND("kept", MODULE_KEPT),
               KIND("experts", MODULE_EXPERTS),
               KIND("stacked_experts", MODULE_STACKED_EXPERTS),
               KIND("single_experts", MODULE_SINGLE_EXPERTS),
               KIND("attention", MODULE_ATTENTION),
               COLUMN(fused, ' '),
               COLUMN(vllm_keeps, '|'),
               COLUMN(needs_weight, '|'),
               COLUMN(splits, '|'),
               COLUMN(joins, '|'),
               COLUMN(ties, '|'),
               COLUMN(renames, ' '),
               COLUMN(draft, ' '),
               COLUMN(draft_ignore, ' '),
               FLAG(plain_experts),
               FLAG(lacks_vllm),
               FLAG(lacks_transformers),
               FLAG(draft_plain)};

/* The place of a value: its file, the number of its row and its column. */
struct column_place {
    const char *path;
    size_t row;
    const char *column;
};

#define REFUSE(f, at, ...) refuse(f, at, text_format(__VA_ARGS__))

/* Fails with the place before the reason, which is freed. */
static int refuse(struct fail *f, const struct column_place *at, char *reason)
{
    OWNED char *owned = reason;
    return INVALID(f, "%s: architectures[%zu].%.60s: %s", at->path, at->row, at->column, owned ? owned : "is wrong");
}

/* ---- Columns ----------------------------------------------------------------------------------------------------- */

/* A FROM>TO has one sign; a set has members of at least a letter. */
static bool is_well_formed(const char *entry, const char *column)
{
    const char *sign = strchr(entry, '>');
    if (strcmp(column, "renames") == 0)
        return sign && sign > entry && !strchr(sign + 1, '>');
    if (strcmp(column, "fused") != 0)
        return !sign;
    for (const char *p = entry; *p; p += strcspn(p, "+"), p += *p != '\0') {
        p += *p == '?';
        if (*p == '+' || !*p)
            return false;
    }
    return strchr(entry, '+') && !ends_with(entry, "+");
}

static int check_entry(const json_object *value, const struct column_place *at, struct fail *f)
{
    const char *entry = json_text(value);
    if (!entry)
        return REFUSE(f, at, "has %s, a string is needed", JSON_WORDS(value));
    if (!*entry || strlen(entry) > MAX_ENTRY || strpbrk(entry, " \t\r\n|"))
        return REFUSE(f, at, "has '%.100s'; 1 to %d characters without spaces and | are needed", entry, MAX_ENTRY);
    if (!is_well_formed(entry, at->column))
        return REFUSE(f, at, "has '%.100s'; %s is needed", entry,
                      strcmp(at->column, "renames") == 0 ? "FROM>TO"
                      : strcmp(at->column, "fused") == 0 ? "a+b"
                                                         : "a name without >");
    return QOBS_OK;
}

/* Joins the entries of a list to the text of a column, which belongs to the file. */
static int read_list(struct architecture_file *file, const char **text, const json_object *list, char separator,
                     const struct column_place *at, struct fail *f)
{
    size_t length = 1;
    if (!json_is_array(list))
        return REFUSE(f, at, "is %s, a list of strings is needed", JSON_WORDS(list));
    json_each(item, list)
    {
        RETURN_IF_NOT_OK(check_entry(item.value, at, f));
        length += strlen(json_text(item.value)) + 1;
    }
    if (length == 1)
        return QOBS_OK;
    char *joined = calloc(length, 1);
    if (!joined || !list_append(&file->texts, &file->text_count, sizeof joined, &joined)) {
        free(joined);
        return NO_MEMORY(f, "the architectures");
    }
    *text = joined;
    json_each(item, list)
    {
        const char *entry = json_text(item.value);
        joined += sprintf(joined, "%s", entry);
        *joined++ = separator;
    }
    joined[-1] = '\0';
    return QOBS_OK;
}

static const struct column *find_column(const char *name)
{
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (strcmp(columns[i].name, name) == 0)
            return &columns[i];
    return NULL;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static int read_row(struct architecture_file *file, struct architecture *row, const json_object *json,
                    struct column_place *at, struct fail *f)
{
    at->column = "types";
    if (!json_is_object(json))
        return INVALID(f, "%s: architectures[%zu]: is %s, an object is needed", at->path, at->row, JSON_WORDS(json));
    json_each(item, json)
    {
        const struct column *column = find_column(item.key);
        void *value = column ? (char *)row + column->offset : NULL;
        at->column = item.key;
        if (!column)
            return REFUSE(f, at, "is no column of an architecture");
        if (column->separator) {
            RETURN_IF_NOT_OK(read_list(file, value, item.value, column->separator, at, f));
            continue;
        }
        if (!json_is_bool(item.value))
            return REFUSE(f, at, "is %s, true or false is needed", JSON_WORDS(item.value));
        *(bool *)value = json_is_true(item.value);
    }
    at->column = "types";
    return row->types || row->classes ? QOBS_OK : REFUSE(f, at, "is empty, and there are no classes either");
}

static int read_rows(struct architecture_file *file, const char *path, const json_object *list, struct fail *f)
{
    struct column_place at = {.path = path};
    if (!json_is_array(list))
        return INVALID(f, "%s: architectures: is %s, a list of rows is needed", path, JSON_WORDS(list));
    file->rows = calloc(json_count(list) + 1, sizeof *file->rows);
    if (!file->rows)
        return NO_MEMORY(f, "the architectures");
    json_each(item, list)
    {
        at.row = file->count;
        RETURN_IF_NOT_OK(read_row(file, &file->rows[file->count++], item.value, &at, f));
    }
    return QOBS_OK;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

/* Keeps a version such as "5.24.0". Returns NULL after a failure. */
static const char *keep_version(struct architecture_file *file, const char *path, const char *member,
                                const json_object *value, struct fail *f)
{
    const char *text = json_text(value);
    if (!text || !*text || strlen(text) > 60 || strspn(text, "0123456789") == 0) {
        INVALID(f, "%s: %s: is %s, a version such as \"5.24.0\" is needed", path, member, JSON_WORDS(value));
        return NULL;
    }
    char *copy = strdup(text);
    if (copy && list_append(&file->texts, &file->text_count, sizeof copy, &copy))
        return copy;
    free(copy);
    NO_MEMORY(f, "the architectures");
    return NULL;
}

static int read_members(struct architecture_file *file, const char *path, const json_object *json, struct fail *f)
{
    json_each(item, json) if (!is_one_of(item.key, "transformers vllm source architectures")) return INVALID(
        f, "%s: %.60s: is unknown, known are transformers, vllm, source, architectures", path, item.key);
    const char *source = json_has(json, "source") ? json_text_of(json, "source") : "file";
    if (!is_one_of(source, "file installed"))
        return INVALID(f, "%s: source: is %s, file and installed are known", path,
                       JSON_WORDS(json_get(json, "source")));
    file->source = strcmp(source, "file") == 0 ? KNOWLEDGE_FILE : KNOWLEDGE_INSTALLED;
    const char *transformers = keep_version(file, path, "transformers", json_get(json, "transformers"), f);
    const char *vllm = transformers ? keep_version(file, path, "vllm", json_get(json, "vllm"), f) : NULL;
    if (!vllm)
        return failure_status(f);
    versions_set(&file->versions, transformers, vllm);
    return read_rows(file, path, json_get(json, "architectures"), f);
}

int architecture_file_read(struct architecture_file *file, const char *path, struct fail *f)
{
    OWNED_JSON json_object *json = NULL;
    *file = (struct architecture_file){0};
    if (!path)
        return QOBS_OK;
    if (json_read(&json, path, "list of architectures", f) != 0)
        return failure_status(f);
    const int status = read_members(file, path, json, f);
    if (status != QOBS_OK)
        architecture_file_free(file);
    return status;
}

void architecture_file_free(struct architecture_file *file)
{
    named_free(file->texts, file->text_count, sizeof *file->texts, 1);
    free(file->rows);
    *file = (struct architecture_file){0};
}
