/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* qobs merge: merges the states of several runs of qobs observe. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "program.h"
#include "results.h"
#include "state_file.h"

static const char help[] =
    "usage: qobs merge [OPTION]... STATE...\n"
    "\n"
    "Merges the states of several runs of qobs observe --state as if one observer had observed all batches: extrema\n"
    "of running ranges, mean of moving averages. The states must come from the same settings.\n"
    "\n"
    "  --out FILE.safetensors   write the results there\n"
    "  --state FILE             write the merged state there\n"
    "  --json                   print the results as JSON\n"
    "  --help                   print this and exit\n";

static int merge(qobs_observer **observers, int count, char **paths)
{
    int code = EXIT_OK;
    for (int i = 0; code == EXIT_OK && i < count; i++)
        code = state_read(&observers[i], paths[i], NULL);
    qobs_error error;
    const qobs_observer *const *others = (const qobs_observer *const *)observers + 1;
    if (code == EXIT_OK && qobs_observer_merge(observers[0], others, (size_t)count - 1, &error) != QOBS_OK)
        code = print_status_error(&error, NULL);
    return code;
}

int command_merge(int argc, char **argv)
{
    enum { OUT = 256, STATE, JSON };
    static const struct option options[] = {{"out", required_argument, NULL, OUT},
                                            {"state", required_argument, NULL, STATE},
                                            {"json", no_argument, NULL, JSON},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const char *out = NULL, *state = NULL;
    bool json = false;
    for (int c; (c = getopt_long(argc, argv, "ho:", options, NULL)) != -1;)
        switch (c) {
        case OUT:
        case 'o':
            out = optarg;
            break;
        case STATE:
            state = optarg;
            break;
        case JSON:
            json = true;
            break;
        case 'h':
            fputs(help, stdout);
            return EXIT_OK;
        default:
            return EXIT_USAGE;
        }
    const int count = argc - optind;
    if (count == 0)
        return print_error(EXIT_USAGE, "merge: no state given (see qobs merge --help)");
    qobs_observer **observers = calloc((size_t)count, sizeof *observers);
    if (!observers)
        return print_error(EXIT_SYSTEM, "no memory");
    struct results results = {0};
    int code = out ? check_output(out) : EXIT_OK;
    if (code == EXIT_OK)
        code = merge(observers, count, argv + optind);
    if (code == EXIT_OK)
        code = results_read(&results, observers[0], "");
    if (code == EXIT_OK)
        code = check_inputs();
    if (code == EXIT_OK)
        warn_if_ignored(observers[0]);
    if (code == EXIT_OK && state)
        code = state_write(observers[0], state);
    if (code == EXIT_OK && out)
        code = results_write_safetensors(&results, out);
    if (code == EXIT_OK && json)
        code = results_print_json(&results);
    else if (code == EXIT_OK && !out && !state)
        results_print(&results);
    results_free(&results);
    for (int i = 0; i < count; i++)
        qobs_observer_destroy(observers[i]);
    free(observers);
    return code;
}
