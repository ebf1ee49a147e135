/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "schemes.h"

#include <stdio.h>
#include <string.h>

#include "files/text.h"
#include "options.h"
#include "program.h"
#include "schemes/quant_config.h"

static const char *scheme_name(const void *context, size_t index)
{
    (void)context;
    return scheme_preset_at(index) ? scheme_preset_at(index)->name : NULL;
}

void print_schemes(void)
{
    enum { SUMMARY = 26 };
    printf("schemes:           bits  a weight\n");
    for (size_t i = 0; scheme_preset_at(i); i++) {
        const struct scheme_preset *preset = scheme_preset_at(i);
        const int column = printf("  %-16s %5.4g  ", preset->name, scheme_preset_bits(preset));
        print_wrapped(preset->summary, column, SUMMARY);
    }
}

int print_missing_scheme(const char *option)
{
    char known[400] = "";
    for (size_t i = 0; scheme_name(NULL, i); i++)
        text_append(known, sizeof known, "%s%s", i ? ", " : "", scheme_name(NULL, i));
    return print_error(EXIT_USAGE, "%s: is missing; known are %s", option, known);
}

static bool is_preset(const char *name)
{
    for (size_t i = 0; qobs_preset_name(i); i++)
        if (strcmp(qobs_preset_name(i), name) == 0)
            return true;
    return false;
}

static bool print_scheme_error(const struct scheme_words *w, const char *message)
{
    const bool unknown = w->scheme && strncmp(message, "scheme:", 7) == 0 && strstr(message, "is unknown");
    const char *near = unknown ? suggest(w->scheme, scheme_name, NULL) : NULL;
    if (near)
        print_error(EXIT_USAGE, "--scheme: '%s' is unknown; did you mean '%s'? (qobs %s --help lists all)", w->scheme,
                    near, w->command);
    return near != NULL;
}

/* Messages about presets begin with "preset:" or "preset BASE:". */
static bool print_unknown_preset(const struct scheme_words *w, const qobs_error *error)
{
    for (size_t i = 0; i < w->preset_count && strncmp(error->message, "preset", 6) == 0; i++) {
        const char *equals = strchr(w->presets[i], '='), *name = equals ? equals + 1 : w->presets[i];
        char option[64];
        if (!strstr(error->message, name) || is_preset(name))
            continue;
        snprintf(option, sizeof option, "--%.*s", (int)strcspn(error->message, ":"), error->message);
        print_preset_error(error, option, name);
        return true;
    }
    return false;
}

static bool print_setting_error(const struct scheme_words *w, const qobs_error *error)
{
    qobs_config *config;
    const char *preset = "llmc.memoryless_minmax", *near = NULL;
    if (strstr(error->message, "it belongs to"))
        return false;
    for (size_t i = 0; i < w->preset_count; i++)
        preset = strchr(w->presets[i], '=') ? preset : w->presets[i];
    if (qobs_config_create(&config, preset, NULL, NULL) != QOBS_OK)
        return false;
    for (size_t i = 0; !near && i < w->setting_count; i++) {
        char key[64], unknown[96];
        const char *text = w->settings[i], *rest = text + strcspn(text, ".=");
        rest = *rest == '.' ? rest + 1 : text;
        snprintf(key, sizeof key, "%.*s", (int)strcspn(rest, "="), rest);
        snprintf(unknown, sizeof unknown, "'%s' is no setting", key);
        near = strstr(error->message, unknown) ? suggest(key, suggest_key, config) : NULL;
        if (near)
            print_error(EXIT_USAGE, "--set: '%s' is no setting of %s; did you mean '%s'? (qobs info %s explains all)",
                        key, preset, near, preset);
    }
    qobs_config_destroy(config);
    return near != NULL;
}

/* If the error calls a scheme, a preset or a setting unknown and a known one is near, prints an error that names that
 * one and returns true. */
static bool print_suggestion(const struct scheme_words *w, const qobs_error *error)
{
    return print_scheme_error(w, error->message) || print_unknown_preset(w, error) || print_setting_error(w, error);
}

int print_member_error(const struct scheme_words *w, const char *members, const qobs_error *error)
{
    const char *message = error->message;
    const int code = exit_code_of(error->status);
    const size_t length = strncmp(message, "preset ", 7) == 0 ? 6 : strcspn(message, ":"); /* "preset BASE:" */
    if (print_suggestion(w, error))
        return code;
    if (w->setting_count > 0 && is_one_of("setting", members) && strstr(message, "' is no setting") &&
        strncmp(message, "setting:", 8) != 0)
        return print_error(code, "--set: %s", message);
    if (!are_one_of(message, length, members))
        return print_error(code, "%s", message);
    if (strncmp(message, "setting", length) == 0)
        return print_error(code, "--set%s", message + length);
    return strncmp(message, "max_kl", length) == 0 ? print_error(code, "--max-kl%s", message + length)
                                                   : print_error(code, "--%s", message);
}

/* Prints a text of a report as a warning, with the option in place of the member that it begins with. */
static void print_text(const char *text)
{
    static const char members[] = "targets ignore preset states activations importance";
    static const char *const others[][2] = {
        {"setting", "--set"}, {"split_experts", "--split-experts"}, {"fill_experts", "--fill-experts"}};
    const size_t length = strcspn(text, ":");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strlen(others[i][0]) == length && strncmp(text, others[i][0], length) == 0) {
            print_warning("%s%s", others[i][1], text + length);
            return;
        }
    print_warning("%s%s", are_one_of(text, length, members) ? "--" : "", text);
}

void print_warnings(const json_object *report)
{
    json_each(item, json_get(report, "warnings")) print_text(json_text(item.value));
}

void explain_error_of_weights(void)
{
    printf("\nerror of weights: root of their squared error over the root of their squares\n");
}

bool print_unused(const json_object *report)
{
    const json_object *unused = json_get(report, "unused");
    json_each(item, unused) print_text(json_text(item.value));
    return json_count(unused) == 0;
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

int table_run_check(const struct table_run *run)
{
    const struct output_option outputs[] = {{"--out", run->out, false}, {"--json", run->report, true}};
    return check_outputs(outputs, sizeof outputs / sizeof *outputs);
}

int table_run_progress(void *context, const qobs_progress *progress)
{
    struct table_run *run = context;
    if (!run->started)
        run->code = table_run_check(run);
    run->started = true;
    progress_update(&run->progress, progress);
    return run->code != EXIT_OK;
}

int table_run_finish(const struct table_run *run, struct report_file *file, const char *text,
                     int (*print)(const json_object *report, bool all), bool (*warn)(const json_object *report))
{
    OWNED_JSON json_object *report = NULL;
    if (!text || json_parse(&report, "the report", "report", text, strlen(text), NULL) != 0)
        return print_error(EXIT_SYSTEM, "no memory for the report");
    if (run->report)
        RETURN_IF_NOT_OK(report_write(file, text));
    const bool quiet = run->quiet || (run->report && strcmp(run->report, "-") == 0);
    warn_of_table(run->table, quiet);
    if (!quiet)
        RETURN_IF_NOT_OK(print(report, run->table));
    RETURN_IF_NOT_OK(report_publish(file, text));
    const bool used = print_unused(report), complete = warn(report);
    return used && complete ? EXIT_OK : EXIT_INCOMPLETE;
}
