/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints the tables of a plan from its report, in at most 80 columns. */
#include "plan/plan_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "files/text.h"
#include "names.h"
#include "program.h"
#include "schemes.h"

enum { WORST = 10, ROOM = 55, LEAST = 11, COST = 13 }; /* ROOM: columns of the schemes of a layer; COST: of a sum */

/* The KL divergence, else the error. */
static double badness_of(const json_object *item)
{
    return json_number_of(item, "kl", json_number_of(item, "error", (double)INFINITY));
}

/* Prints bytes, bits and the KL divergence, which is not predicted above a limit. */
static void print_cost(const json_object *report, const json_object *cost)
{
    const double kl = json_number_of(cost, "kl", (double)NAN), most = json_number_of(report, "prediction_limit", 0);
    printf("%10.1f %7.3f ", json_number_of(cost, "bytes", 0) / 1e6, json_number_of(cost, "bits", 0));
    if (isnan(kl))
        printf("%*.5g\n", COST, json_number_of(cost, "error", (double)NAN));
    else if (kl > most)
        printf("%*s %g\n", COST - 2, "above", most);
    else
        printf("%*.5f\n", COST, kl);
}

static bool predicts_kl(const json_object *report)
{
    const json_object *first = json_at(json_get(report, "schemes"), 0);
    return json_get(first, "kl") != NULL;
}

static void print_schemes_of(const json_object *report)
{
    const json_object *mixture = json_get(report, "mixture");
    printf("%-16s %10s %7s %*s\n", "scheme", "MB", "bits", COST, predicts_kl(report) ? "KL" : "squared error");
    json_each(item, json_get(report, "schemes"))
    {
        printf("%-16s ", json_text_of(item.value, "scheme"));
        print_cost(report, item.value);
    }
    if (!mixture)
        return;
    printf("%-16s ", "mixture");
    print_cost(report, mixture);
}

/* Returns the columns of a scheme in the table of layers: its name, and a space before it. */
static int column_of(const json_object *schemes)
{
    int column = LEAST;
    json_each(item, schemes)
    {
        const int needed = (int)strlen(json_text_of(item.value, "scheme")) + 1;
        column = needed > column ? needed : column;
    }
    return column;
}

/* Prints the layers that cost most under the first scheme. */
static int print_layers(const json_object *report, bool all)
{
    const json_object *schemes = json_get(report, "schemes");
    const json_object *layers = json_get(json_at(schemes, 0), "layers");
    const int column = column_of(schemes);
    const size_t n = json_count(layers), shown = all || n < WORST ? n : WORST, count = json_count(schemes),
                 most = (size_t)(ROOM / column), columns = count < most ? count : most;
    OWNED struct ranked *sorted = rank(layers, "name", badness_of);
    char name[MAX_NAME + 1];
    if (!sorted)
        return print_error(EXIT_SYSTEM, "no memory for the table");
    printf("\n%s of layers, the largest under %s first:\n", predicts_kl(report) ? "KL" : "squared errors",
           json_text_of(json_at(schemes, 0), "scheme"));
    const int width = fit_ranked(sorted, shown, (int)columns * column, all);
    printf("%-*s", width, "layer");
    for (size_t k = 0; k < columns; k++)
        printf("%*s", column, json_text_of(json_at(schemes, k), "scheme"));
    putchar('\n');
    for (size_t i = 0; i < shown; i++) {
        printf("%-*s", width, clean_name(sorted[i].name, width, name));
        for (size_t k = 0; k < columns; k++)
            printf("%*.3g", column, badness_of(json_at(json_get(json_at(schemes, k), "layers"), sorted[i].index)));
        putchar('\n');
    }
    if (shown < n)
        printf("... %zu more layers; --table lists all\n", n - shown);
    return EXIT_OK;
}

/* Counts the layers of each scheme of the mixture. */
static void print_mixture(const json_object *report)
{
    const json_object *mixture = json_get(report, "mixture");
    if (!mixture)
        return;
    printf("\nmixture%s:", json_is_true(json_get(mixture, "optimal")) ? ", optimal" : "");
    json_each(scheme, json_get(report, "schemes"))
    {
        const char *name = json_text_of(scheme.value, "scheme");
        size_t count = 0;
        json_each(layer, json_get(mixture, "layers")) count += strcmp(json_text_of(layer.value, "scheme"), name) == 0;
        if (count > 0)
            printf(" %s %zu", name, count);
    }
    printf(" of %zu layers\n", json_count(json_get(mixture, "layers")));
}

static void print_legend(const json_object *report)
{
    if (predicts_kl(report))
        printf("\nKL: of the next token, in nats a token, by the errors of the weights alone\n");
    else
        printf("\nsquared error: the sum over the weights; importance, if given, weighs columns\n");
}

int plan_print(const json_object *report, bool all)
{
    print_schemes_of(report);
    const int code = print_layers(report, all);
    if (code != EXIT_OK)
        return code;
    print_mixture(report);
    print_legend(report);
    return EXIT_OK;
}

bool plan_warn(const json_object *report)
{
    const json_object *warnings = json_get(report, "warnings");
    print_warnings(report);
    return json_count(warnings) == 0;
}
