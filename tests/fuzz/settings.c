/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Any text as a preset's name and settings, "key=value" a line each, all at once and one by one: what is refused changes
 * nothing; what is taken is printed so that it reads back as the same; and what the settings together allow makes plans
 * and an observer. */
#include "fuzz.h"
#include "qobs/experimental.h"
#include "qobs/qobs.h"

enum { MOST_KEYS = 40, MOST_VALUE = 64 };

struct values {
    char text[MOST_KEYS][MOST_VALUE];
};

static void get_all(const qobs_config *config, struct values *values)
{
    const size_t n = qobs_config_key_count(config);
    must(n <= MOST_KEYS && !qobs_config_key(config, n));
    memset(values, 0, sizeof *values);
    for (size_t i = 0; i < n; i++)
        must(qobs_config_get(config, qobs_config_key(config, i), values->text[i], MOST_VALUE, NULL) == QOBS_OK);
}

static void set(qobs_config *config, const char *key, const char *value)
{
    static struct values before, after;
    qobs_error error = {0};
    char got[MOST_VALUE], again[MOST_VALUE];
    get_all(config, &before);
    const int status = qobs_config_set(config, key, value, &error);
    must(status == error.status && (status == QOBS_OK) == (error.message[0] == '\0'));
    must(memchr(error.message, '\0', sizeof error.message));
    if (status != QOBS_OK) {
        get_all(config, &after);
        must(memcmp(&before, &after, sizeof before) == 0);
        return;
    }
    must(qobs_config_get(config, key, got, sizeof got, &error) == QOBS_OK);
    if (qobs_config_set(config, key, got, &error) != QOBS_OK)
        finding("%s=%s was taken, its own print %s is not: %s", key, value, got, error.message);
    must(qobs_config_get(config, key, again, sizeof again, &error) == QOBS_OK);
    if (strcmp(got, again) != 0)
        finding("%s=%s prints as %s, that as %s", key, value, got, again);
}

/* The same settings at once: all or none. */
static void set_all(qobs_config *config, const char *settings)
{
    static struct values before, after;
    qobs_error error = {0};
    get_all(config, &before);
    const int status = qobs_config_set_all(config, settings, &error);
    must(status == error.status && (status == QOBS_OK) == (error.message[0] == '\0'));
    must(memchr(error.message, '\0', sizeof error.message));
    get_all(config, &after);
    must(status == QOBS_OK || memcmp(&before, &after, sizeof before) == 0);
}

/* The text of a configuration makes the same configuration, and that has the same text. */
static void parse(const char *text)
{
    static struct values values, values_again;
    qobs_config *config = NULL, *again = NULL;
    qobs_error error = {0};
    size_t size, size_again;
    if (qobs_config_parse(&config, text, NULL, &error) != QOBS_OK) {
        must(!config && error.message[0] != '\0');
        return;
    }
    must(qobs_config_text(config, NULL, 0, &size, &error) == QOBS_OK);
    char *own = workspace(size), *own_again = workspace(size);
    must(qobs_config_text(config, own, size, NULL, &error) == QOBS_OK && strlen(own) + 1 == size);
    if (qobs_config_parse(&again, own, NULL, &error) != QOBS_OK)
        finding("'%s' is refused: %s", own, error.message);
    must(qobs_config_text(again, own_again, size, &size_again, &error) == QOBS_OK);
    must(size_again == size && strcmp(own, own_again) == 0);
    get_all(config, &values);
    get_all(again, &values_again);
    must(memcmp(&values, &values_again, sizeof values) == 0);
    qobs_config_destroy(config);
    qobs_config_destroy(again);
    free(own);
    free(own_again);
}

static void plan(const qobs_config *config, int ndim, const int64_t *shape)
{
    static const float data[24];
    const qobs_tensor value = {
        .struct_size = sizeof value, .data = data, .dtype = QOBS_F32, .ndim = ndim, .shape = shape};
    int64_t flat[QOBS_PLAN_MAX_NDIM], elements = 1, run_elements = 0;
    float copy[4 * 24];
    qobs_plan *plan = NULL;
    qobs_run run;
    if (qobs_plan_create(&plan, config, &value, NULL, NULL, NULL) != QOBS_OK)
        return;
    const int flat_ndim = qobs_plan_shape(plan, flat, sizeof flat);
    must(flat_ndim >= 2 && flat_ndim <= QOBS_PLAN_MAX_NDIM);
    for (int d = 0; d < flat_ndim; d++)
        elements *= flat[d];
    const int64_t runs = qobs_plan_run_count(plan);
    for (int64_t i = 0; i < runs && i < 1000; i++) {
        must(qobs_plan_run(plan, i, &run, NULL) == QOBS_OK);
        run_elements += run.length;
    }
    must(qobs_plan_run(plan, runs, &run, NULL) != QOBS_OK);
    if (elements <= 4 * 24 && runs < 1000 &&
        qobs_plan_copy(plan, &value, copy, (size_t)elements * sizeof *copy, NULL) == QOBS_OK)
        must(run_elements == elements);
    qobs_plan_destroy(plan);
}

static void observer(const qobs_config *config)
{
    qobs_observer *made = NULL, *loaded = NULL;
    qobs_error error;
    if (qobs_observer_create(&made, config, NULL, &error) != QOBS_OK)
        return;
    const size_t size = qobs_observer_save_size(made);
    unsigned char *saved = workspace(size), *again = workspace(size);
    must(qobs_observer_save(made, saved, size, &error) == QOBS_OK);
    if (qobs_observer_load(&loaded, saved, size, NULL, &error) != QOBS_OK)
        finding("a fresh observer's state is refused: %s", error.message);
    must(qobs_observer_save_size(loaded) == size && qobs_observer_save(loaded, again, size, &error) == QOBS_OK);
    must(memcmp(saved, again, size) == 0);
    free(saved);
    free(again);
    qobs_observer_destroy(made);
    qobs_observer_destroy(loaded);
}

static const char *next_line(char **rest)
{
    char *line = *rest, *end = line + strcspn(line, "\n");
    *rest = *end ? end + 1 : end;
    *end = '\0';
    return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = workspace(size + 1), *rest = text;
    qobs_config *config = NULL;
    qobs_error error;
    memcpy(text, data, size);
    text[size] = '\0';
    parse(text);
    if (qobs_config_create(&config, next_line(&rest), NULL, &error) != QOBS_OK) {
        must(!config && error.message[0] != '\0');
        free(text);
        return 0;
    }
    set_all(config, rest);
    while (*rest) {
        const char *line = next_line(&rest);
        char *equals = strchr(line, '=');
        if (equals) {
            *equals = '\0';
            set(config, line, equals + 1);
        }
    }
    if (qobs_config_check(config, &error) == QOBS_OK) {
        plan(config, 1, (const int64_t[]){24});
        plan(config, 2, (const int64_t[]){4, 6});
        plan(config, 4, (const int64_t[]){1, 2, 3, 4});
        observer(config);
    }
    qobs_config_destroy(config);
    free(text);
    return 0;
}
