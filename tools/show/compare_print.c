/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints a comparison as text, one histogram with a column for each observer, or as JSON. */
#include <math.h>
#include <stdio.h>

#include "options.h"
#include "program.h"
#include "show/compare.h"

enum { LEFT = 14, MAX_BAR = 200 };

static char letter_of(size_t i) { return (char)('A' + i); }

/* Returns what a candidate has between two numbers: nothing, its range, or numbers of its grid. */
static char mark(const struct compared *c, double low, double high)
{
    const struct span *range = &c->chart.widest;
    if (high <= range->low || low >= range->high)
        return ' ';
    for (size_t i = 0; i < c->level_count; i++)
        if (c->levels[i] >= low && c->levels[i] < high)
            return '+';
    return '|';
}

static void print_line(const struct comparison *c, double low, double high, uint64_t count, uint64_t max_count)
{
    const int width = output_columns() - LEFT - 3 * (int)c->count - 2;
    const int length = (int)floor(chart_bar(&c->items[0].chart, count, max_count) * width);
    char bar[MAX_BAR + 1] = "";
    for (int n = 0; n < length && n < MAX_BAR; n++)
        bar[n] = '#';
    if (count > 0 && length == 0)
        bar[0] = '.';
    printf("%*.5g |%-*s", LEFT - 2, low, width, bar);
    for (size_t i = 0; i < c->count; i++)
        printf("  %c", mark(&c->items[i], low, high));
    putchar('\n');
}

static void print_table(const struct comparison *c)
{
    char texts[COMPARE_COLUMNS][COMPARE_TEXT];
    printf("\n   %-24s %-20s", compare_headings[0], compare_headings[1]);
    for (int k = 2; k < compare_columns(c); k++)
        printf(" %8s", compare_headings[k]);
    for (size_t i = 0; i < c->count; i++) {
        compare_texts(&c->items[i], texts);
        printf("\n%c  %-24s %-20s", letter_of(i), texts[0], texts[1]);
        for (int k = 2; k < compare_columns(c); k++)
            printf(" %8s", texts[k]);
    }
    putchar('\n');
    putchar('\n');
    for (size_t i = 0; i < c->count; i++) {
        printf("%c  ", letter_of(i));
        print_wrapped(c->items[i].name, 3, 5);
        if (*c->items[i].lacks)
            printf("     has no %s\n", c->items[i].lacks);
        if (c->items[i].chart.qparams > 1)
            printf("     %zu ranges, of which the widest is shown\n", c->items[i].chart.qparams);
    }
    print_wrapped("| range, + with numbers of its grid. clipped: elements outside of their range. error: root of the "
                  "squared error over the root of the squares",
                  0, 0);
    if (c->weighted)
        print_wrapped("weighted: the same, columns weighted by the mean squares of --importance", 0, 0);
}

void compare_print(const struct comparison *c)
{
    const struct chart *chart = &c->items[0].chart;
    const int bar = output_columns() - LEFT - 3 * (int)c->count - 2;
    struct chart_line lines[CHART_LINES];
    uint64_t most;
    const size_t count = chart_lines(chart, lines, &most);
    printf("%s\n%*s", chart->title, LEFT + bar, "");
    for (size_t i = 0; i < c->count; i++)
        printf("  %c", letter_of(i));
    putchar('\n');
    for (size_t i = 0; i < count; i++)
        print_line(c, lines[i].low, lines[i].high, lines[i].count, most);
    printf("%*.5g |\n", LEFT - 2, chart->last);
    print_table(c);
}

static json_object *candidate_json(const struct compared *c)
{
    json_object *item = json_object_new_object();
    json_put_text(item, "observer", c->name);
    json_put_count(item, "qparams", (uint64_t)c->chart.qparams);
    chart_put_pair(item, "range", c->chart.widest.low, c->chart.widest.high);
    if (c->chart.qparams > 1)
        chart_put_pair(item, "narrowest_range", c->chart.narrowest.low, c->chart.narrowest.high);
    chart_put_pair(item, "scale", c->min_scale, c->max_scale);
    json_object *grid = json_put_array(item, "grid");
    for (size_t i = 0; i < c->level_count; i++)
        json_append(grid, json_number(c->levels[i]));
    json_put(item, "clipped_share", json_number(chart_clipped(&c->chart)));
    json_put(item, "error", json_number(compare_error(c)));
    json_put(item, "weighted_error", json_number(compare_weighted_error(c)));
    return item;
}

int compare_print_json(const struct comparison *c)
{
    const struct chart *chart = &c->items[0].chart;
    json_object *root = json_report();
    json_put_text(root, "title", chart->title);
    json_put_count(root, "elements", (uint64_t)chart->elements);
    chart_put_bins(root, chart);
    json_object *items = json_put_array(root, "compared");
    for (size_t i = 0; i < c->count; i++)
        json_append(items, candidate_json(&c->items[i]));
    return print_json(root);
}
