/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs merge: merges the states of several runs of qobs observe. */
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "files/text.h"
#include "outputs.h"
#include "program.h"
#include "results.h"

struct merge_options {
    struct machine_options machine;
    const char *out, *state;
    bool json;
};

#define AT(member) offsetof(struct merge_options, member)
static const struct option_row rows[] = {
    RESULTS_ROW,
    TEXT_ROW("state", "FILE", state, "write the merged state there", NULL),
    JSON_ROW("the results", NULL),
};

static int merge(qobs_observer **observers, int count, char **paths)
{
    for (int i = 0; i < count; i++)
        RETURN_IF_NOT_OK(state_read(&observers[i], paths[i], NULL));
    qobs_error error;
    const qobs_observer *const *others = (const qobs_observer *const *)observers + 1;
    if (qobs_observer_merge(observers[0], others, (size_t)count - 1, &error) == QOBS_OK)
        return EXIT_OK;
    static const char others_of[] = "others["; /* the library knows no files */
    char *end = error.message;
    size_t i = 0;
    if (strncmp(error.message, others_of, sizeof others_of - 1) == 0)
        i = strtoul(error.message + sizeof others_of - 1, &end, 10);
    if (strncmp(end, "]: ", 3) != 0 || i + 1 >= (size_t)count)
        return print_status_error(&error, NULL);
    return print_error(exit_code_of(error.status), "%s: %s; the observer is %s", paths[i + 1], end + 3, paths[0]);
}

static int merge_to_files(const struct merge_options *o, qobs_observer **observers, int count, char **paths)
{
    RELEASED_BY(results_free) struct results results = {0};
    const struct result_files files = {.out = o->out, .state = o->state, .json = o->json};
    const struct output_option outputs[] = {{"--out", o->out, false}, {"--state", o->state, false}};
    RETURN_IF_NOT_OK(check_outputs(outputs, 2));
    RETURN_IF_NOT_OK(merge(observers, count, paths));
    RETURN_IF_NOT_OK(results_read(&results, observers[0], ""));
    RETURN_IF_NOT_OK(check_inputs());
    warn_if_ignored(observers[0]);
    return results_write(&results, observers[0], &files);
}

static int run(void *options, int count, char **paths, struct threads *threads)
{
    const struct merge_options *o = options;
    (void)threads;
    if (count == 0)
        return print_error(EXIT_USAGE, "merge: no state given (see qobs merge -h)");
    OWNED qobs_observer **observers = calloc((size_t)count, sizeof *observers);
    if (!observers)
        return print_error(EXIT_SYSTEM, "no memory");
    const int code = merge_to_files(o, observers, count, paths);
    for (int i = 0; i < count; i++)
        qobs_observer_destroy(observers[i]);
    return code;
}

const struct command command_merge = {
    .name = "merge",
    .run = run,
    .size = sizeof(struct merge_options),
    .summary = "merge the states of several runs of observe",
    .usage = "[OPTION]... STATE...",
    .description = "Merges the states of several runs of qobs observe --state as if one observer had observed all "
                   "batches: extrema of running ranges, mean of moving averages. The states must come from the same "
                   "settings.",
    OPTION_ROWS(rows),
    .example = "qobs merge run0.state run1.state --out r.safetensors"};
