/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Explains the settings of a preset, and lists names for the completion of shells. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "files/status.h"
#include "files/text.h"
#include "program.h"
#include "schemes/gguf_mixtures.h"
#include "schemes/quant_config.h"

/* ---- A preset ---------------------------------------------------------------------------------------------------- */

/* Writes the shortest text of a number, or 2^n for large and small powers of two. */
static const char *number_text(double x, char *text, size_t size)
{
    const double exponent = log2(fabs(x));
    if (x != 0 && fabs(exponent - round(exponent)) < 1e-12 && fabs(exponent) > 12) {
        snprintf(text, size, "%s2^%.0f", x < 0 ? "-" : "", exponent);
        return text;
    }
    for (int digits = 4; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    return text;
}

/* Writes what a setting accepts. */
static void allowed_text(const qobs_config *config, const qobs_setting_info *info, char *text, size_t size)
{
    static const char *const kinds[] = {[QOBS_SETTING_INTEGER] = "integer",
                                        [QOBS_SETTING_REAL] = "number",
                                        [QOBS_SETTING_AXES] = "list of integers",
                                        [QOBS_SETTING_PAIR] = "height and width, integers"};
    char min[40], max[40];
    text[0] = '\0';
    if (info->kind == QOBS_SETTING_OWN_NAME)
        snprintf(text, size, "the preset's own name");
    else if (info->word_count == 0)
        snprintf(text, size, "%s, %s to %s", kinds[info->kind], number_text(info->min, min, sizeof min),
                 number_text(info->max, max, sizeof max));
    for (size_t i = 0; i < info->word_count && info->kind != QOBS_SETTING_OWN_NAME; i++)
        text_append(text, size, "%s%s", i ? " | " : "", qobs_config_key_word(config, info->key, i));
}

/* Copies the help, which is Markdown, without its backquotes. */
static void plain_text(const char *help, char *text, size_t size)
{
    size_t used = 0;
    for (; *help && used + 1 < size; help++)
        if (*help != '`')
            text[used++] = *help;
    text[used] = '\0';
}

static void print_setting(const qobs_config *config, const char *key)
{
    qobs_setting_info info = {.struct_size = sizeof info};
    char allowed[1024], help[1024];
    if (qobs_config_key_info(config, key, &info, NULL) != QOBS_OK)
        return;
    allowed_text(config, &info, allowed, sizeof allowed);
    plain_text(info.help, help, sizeof help);
    printf("%s\n    ", key);
    print_wrapped(help, 4, 4);
    printf("    allowed: ");
    print_wrapped(allowed, 13, 13);
    printf("    default: %s\n", info.kind == QOBS_SETTING_OWN_NAME        ? "the same"
                                : strcmp(info.default_value, "null") == 0 ? "none"
                                                                          : info.default_value);
}

int info_preset(const char *name)
{
    OWNED_CONFIG qobs_config *config = NULL;
    qobs_error error;
    if (qobs_config_create(&config, name, NULL, &error) != QOBS_OK)
        return print_preset_error(&error, "info", name);
    for (size_t i = 0; i < qobs_preset_count(); i++)
        if (strcmp(qobs_preset_name(i), name) == 0) {
            const int column = printf("%s: ", name);
            print_wrapped(qobs_preset_summary(i), column, 4);
        }
    printf("\n");
    for (size_t i = 0; i < qobs_config_key_count(config); i++)
        print_setting(config, qobs_config_key(config, i));
    printf("\n--set KEY=VALUE sets one; null restores its default.\n");
    printf("Formulas of scale and zero point: docs/presets/%.*s.md\n", (int)strcspn(name, "."), name);
    return EXIT_OK;
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static void list_options(const struct command *command)
{
    for (size_t i = 0; i < command->option_count; i++)
        printf("--%s\n", command->options[i].name);
    puts("--help");
}

/* Lists the settings of a preset, or the words of one. */
static int list_settings(const char *preset, const char *key)
{
    OWNED_CONFIG qobs_config *config = NULL;
    qobs_error error;
    qobs_setting_info info = {.struct_size = sizeof info};
    if (qobs_config_create(&config, preset, NULL, &error) != QOBS_OK)
        return print_preset_error(&error, "info", preset);
    for (size_t k = 0; !key && k < qobs_config_key_count(config); k++)
        puts(qobs_config_key(config, k));
    if (key && qobs_config_key_info(config, key, &info, &error) != QOBS_OK)
        return print_key_error(&error, "info", config, key);
    for (size_t w = 0; w < info.word_count; w++)
        puts(qobs_config_key_word(config, key, w));
    return EXIT_OK;
}

static int list_named(const char *kind, const char *name)
{
    if (strcmp(kind, "commands") == 0)
        for (size_t i = 0; command_at(i); i++)
            puts(command_at(i)->name);
    else if (strcmp(kind, "presets") == 0)
        for (size_t i = 0; i < qobs_preset_count(); i++)
            puts(qobs_preset_name(i));
    else if (strcmp(kind, "isas") == 0) {
        for (size_t i = 0; i < qobs_isa_count(); i++)
            if (qobs_isa_usable(i))
                puts(qobs_isa_name(i));
    } else if (strcmp(kind, "schemes") == 0) {
        for (size_t i = 0; scheme_preset_at(i); i++)
            puts(scheme_preset_at(i)->name);
        for (size_t i = 0; name && strcmp(name, "quantize") == 0 && gguf_scheme_at(i); i++)
            puts(gguf_scheme_at(i)->name);
    } else if (strcmp(kind, "formats") == 0) {
        for (int i = QUANT_FORMAT_NONE + 1; quant_format_row(i); i++)
            if (quant_format_name(i))
                puts(quant_format_name(i));
    } else if (strcmp(kind, "options") == 0 && name) {
        for (size_t i = 0; command_at(i); i++)
            if (strcmp(command_at(i)->name, name) == 0)
                list_options(command_at(i));
    } else if (strcmp(kind, "settings") == 0 && name)
        return list_settings(name, NULL);
    else if (strcmp(kind, "settings") == 0)
        for (size_t i = 0; i < qobs_preset_count(); i++)
            list_settings(qobs_preset_name(i), NULL);
    else
        return print_error(EXIT_USAGE,
                           "--list: is '%s', allowed are commands, options COMMAND, schemes, formats, presets, isas, "
                           "settings, values PRESET SETTING",
                           kind);
    return EXIT_OK;
}

int info_list(const char *const *words, size_t count)
{
    if (count == 3 && strcmp(words[0], "values") == 0)
        return list_settings(words[1], words[2]);
    return list_named(count > 0 ? words[0] : "", count == 2 ? words[1] : NULL);
}
