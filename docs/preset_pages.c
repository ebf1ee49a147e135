/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Checks the generated blocks of docs/presets/PAGE.md against the library; with --write it rewrites them.
 *
 *     preset_pages [--write] PAGE.md...
 *
 * A block is the text between a line "<!-- settings FAMILY -->" or "<!-- preset NAME -->" and the next "<!-- end -->".
 * All other text is written by hand. A family block has the settings that at least half of its presets share. A preset
 * block has the summary and the settings that differ. Every preset must have a block on one of the pages. Everything
 * comes from public functions. Exit status: 0 up to date, 1 not. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qobs/qobs.h"

enum { TEXT = 512, MAX_KEYS = 64 };

static void fail(const char *path, const char *problem)
{
    fprintf(stderr, "%s: %s\n", path, problem);
    exit(1);
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Prints the shortest text of a number, or 2^n for large and small powers of two. */
static void put_number(FILE *out, double x)
{
    const double exponent = log2(fabs(x));
    char text[32];
    if (x != 0 && fabs(exponent - round(exponent)) < 1e-12 && fabs(exponent) > 12) {
        fprintf(out, "%s2^%.0f", x < 0 ? "-" : "", exponent);
        return;
    }
    for (int digits = 4; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    fputs(text, out);
}

static void put_allowed(FILE *out, const qobs_config *config, const qobs_setting_info *info)
{
    static const char *const numbers[] = {
        [QOBS_SETTING_INTEGER] = "integers",
        [QOBS_SETTING_REAL] = "numbers",
        [QOBS_SETTING_AXES] = "lists of integers",
        [QOBS_SETTING_PAIR] = "two integers [height, width]",
    };
    if (info->kind == QOBS_SETTING_OWN_NAME) {
        fputs("the preset's own name", out);
        return;
    }
    for (size_t i = 0; i < info->word_count; i++)
        fprintf(out, "%s`%s`", i ? ", " : "", qobs_config_key_word(config, info->key, i));
    if (info->word_count > 0)
        return;
    fprintf(out, "%s from ", numbers[info->kind]);
    put_number(out, info->min);
    fputs(" to ", out);
    put_number(out, info->max);
}

static void put_default(FILE *out, const qobs_setting_info *info)
{
    char *end;
    const double number = strtod(info->default_value, &end);
    if (info->kind == QOBS_SETTING_OWN_NAME) {
        fputs("the same", out);
        return;
    }
    putc('`', out);
    if (*end == '\0')
        put_number(out, number);
    else
        fputs(info->default_value, out);
    putc('`', out);
}

/* The row of a setting, to be freed; NULL: the preset does not have the setting. */
static char *make_row(const char *preset, const char *key)
{
    char *row = NULL;
    size_t size;
    qobs_config *config;
    qobs_error error;
    qobs_setting_info info = {.struct_size = sizeof info};
    if (qobs_config_create(&config, preset, NULL, &error) != QOBS_OK)
        fail(preset, error.message);
    if (qobs_config_key_info(config, key, &info, &error) == QOBS_OK) {
        FILE *out = open_memstream(&row, &size);
        fprintf(out, "| `%s` | ", key);
        put_allowed(out, config, &info);
        fputs(" | ", out);
        put_default(out, &info);
        fprintf(out, " | %s |\n", info.help);
        fclose(out);
    }
    qobs_config_destroy(config);
    return row;
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

static bool is_of_family(const char *preset, const char *family)
{
    const size_t length = strlen(family);
    return strncmp(preset, family, length) == 0 && preset[length] == '.';
}

/* The row that most presets of the family have for the setting, to be freed. NULL: no row is that of at least half. */
static char *family_row(const char *family, const char *key)
{
    char *best = NULL;
    size_t best_count = 0, presets = 0;
    for (size_t i = 0; i < qobs_preset_count(); i++) {
        if (!is_of_family(qobs_preset_name(i), family))
            continue;
        presets++;
        char *row = make_row(qobs_preset_name(i), key);
        size_t count = 0;
        for (size_t k = 0; row && k < qobs_preset_count(); k++) {
            char *other = is_of_family(qobs_preset_name(k), family) ? make_row(qobs_preset_name(k), key) : NULL;
            count += other && strcmp(other, row) == 0;
            free(other);
        }
        if (count > best_count) {
            free(best);
            best = row;
            best_count = count;
        } else {
            free(row);
        }
    }
    if (2 * best_count >= presets)
        return best;
    free(best);
    return NULL;
}

static void put_table_row(FILE *out, const char *row, size_t *rows)
{
    if (row)
        fprintf(out, "%s%s", (*rows)++ ? "" : "\n| setting | allowed | default | meaning |\n|---|---|---|---|\n", row);
}

/* The names of all settings that a preset of the family has, in the order of the library. */
static size_t list_keys(const char *family, const char *keys[MAX_KEYS])
{
    size_t count = 0;
    for (size_t i = 0; i < qobs_preset_count(); i++) {
        qobs_config *config;
        if (!is_of_family(qobs_preset_name(i), family) ||
            qobs_config_create(&config, qobs_preset_name(i), NULL, NULL) != QOBS_OK)
            continue;
        for (size_t k = 0; k < qobs_config_key_count(config); k++) {
            size_t at = 0;
            while (at < count && strcmp(keys[at], qobs_config_key(config, k)) != 0)
                at++;
            if (at == count && count < MAX_KEYS)
                keys[count++] = qobs_config_key(config, k);
        }
        qobs_config_destroy(config);
    }
    return count;
}

static void put_family(FILE *out, const char *family)
{
    const char *keys[MAX_KEYS];
    const size_t count = list_keys(family, keys);
    size_t rows = 0;
    if (count == 0)
        fail(family, "is no family of presets");
    for (size_t i = 0; i < count; i++) {
        char *row = family_row(family, keys[i]);
        put_table_row(out, row, &rows);
        free(row);
    }
    putc('\n', out);
}

/* Prints the summary, the settings that differ from those of the family, and the names of those that are missing. */
static void put_preset(FILE *out, const char *preset, bool *described)
{
    const char *keys[MAX_KEYS];
    char family[TEXT];
    size_t i = 0, rows = 0, missing = 0;
    while (i < qobs_preset_count() && strcmp(qobs_preset_name(i), preset) != 0)
        i++;
    if (i == qobs_preset_count())
        fail(preset, "is no preset");
    described[i] = true;
    fprintf(out, "*%s*\n", qobs_preset_summary(i));
    snprintf(family, sizeof family, "%.*s", (int)strcspn(preset, "."), preset);
    const size_t count = list_keys(family, keys);
    const char *absent[MAX_KEYS] = {0};
    for (size_t k = 0; k < count; k++) {
        char *row = make_row(preset, keys[k]), *usual = family_row(family, keys[k]);
        if (row && (!usual || strcmp(row, usual) != 0))
            put_table_row(out, row, &rows);
        if (!row && usual)
            absent[missing++] = keys[k];
        free(row);
        free(usual);
    }
    for (size_t k = 0; k < missing; k++)
        fprintf(out, "%s`%s`", k ? ", " : "\nNot a setting of this preset: ", absent[k]);
    fputs(missing ? ".\n" : "", out);
    putc('\n', out);
}

/* ---- Pages ------------------------------------------------------------------------------------------------------- */

static char *read_page(const char *path)
{
    char *text = NULL, part[4096];
    size_t size, n;
    FILE *in = fopen(path, "r"), *out = open_memstream(&text, &size);
    if (!in)
        fail(path, "cannot open");
    while ((n = fread(part, 1, sizeof part, in)) > 0)
        fwrite(part, 1, n, out);
    fclose(in);
    fclose(out);
    return text;
}

/* Copies the page and replaces the text of its blocks. */
static char *update(const char *path, const char *page, bool *described)
{
    static const char end[] = "<!-- end -->";
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    while (*page) {
        char name[TEXT];
        const int length = (int)strcspn(page, "\n") + 1;
        const bool family = sscanf(page, "<!-- settings %500s -->", name) == 1;
        const bool preset = !family && sscanf(page, "<!-- preset %500s -->", name) == 1;
        fprintf(out, "%.*s", length, page);
        page += length;
        if (!family && !preset)
            continue;
        if (family)
            put_family(out, name);
        else
            put_preset(out, name, described);
        page = strstr(page, end);
        if (!page)
            fail(path, "a block has no end");
    }
    fclose(out);
    return text;
}

int main(int argc, char **argv)
{
    const bool write = argc > 1 && strcmp(argv[1], "--write") == 0;
    bool *described = calloc(qobs_preset_count(), sizeof *described);
    int result = 0;
    for (int i = write ? 2 : 1; i < argc; i++) {
        char *page = read_page(argv[i]), *text = update(argv[i], page, described);
        if (strcmp(page, text) != 0) {
            FILE *out = write ? fopen(argv[i], "w") : NULL;
            if (!out || fputs(text, out) < 0 || fclose(out) != 0) {
                fprintf(stderr, "%s: is stale; run preset_pages --write docs/presets/*.md\n", argv[i]);
                result = 1;
            }
        }
        free(page);
        free(text);
    }
    for (size_t i = 0; i < qobs_preset_count(); i++)
        if (!described[i]) {
            fprintf(stderr,
                    "%s: has no block on any page; put the lines \"<!-- preset %s -->\" and \"<!-- end -->\" on one, "
                    "then run with --write\n",
                    qobs_preset_name(i), qobs_preset_name(i));
            result = 1;
        }
    free(described);
    return result;
}
