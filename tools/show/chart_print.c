/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Prints a chart as text, with horizontal bars of one or several bins each, or as JSON. */
#include <math.h>
#include <stdio.h>

#include "show/chart.h"
#include "options.h"
#include "program.h"

enum { MAX_COLUMNS = 200, LEFT = 14, RIGHT = 14 };

/* Returns a mark if the range begins or ends in these bins. */
static const char *range_mark(const struct chart *c, double low, double high)
{
    const bool begins = c->widest.low >= low && c->widest.low < high;
    const bool ends = c->widest.high > low && c->widest.high <= high;
    return begins && ends ? "<> range" : begins ? "> range" : ends ? "< range" : "";
}

static void print_bar(const struct chart *c, double low, double high, uint64_t count, uint64_t max_count, int bar_width)
{
    const int length = (int)floor(chart_bar(c, count, max_count) * bar_width);
    const bool clipped = high <= c->widest.low || low >= c->widest.high;
    char bar[MAX_COLUMNS + 1];
    int n = 0;
    for (; n < length; n++)
        bar[n] = clipped ? 'x' : '#';
    if (count > 0 && length == 0)
        bar[n++] = '.';
    bar[n] = '\0';
    printf("%*.5g |%-*s %s\n", LEFT - 2, low, bar_width, bar, range_mark(c, low, high));
}

static void print_summary(const struct chart *c)
{
    if (c->qparams == 1)
        printf("range %.9g to %.9g\n", c->widest.low, c->widest.high);
    else
        printf("%zu ranges, the widest %.9g to %.9g, the narrowest %.9g to %.9g\n", c->qparams, c->widest.low,
               c->widest.high, c->narrowest.low, c->narrowest.high);
    printf("%llu of %llu elements are clipped, %.4g %% (%llu below, %llu above)\n",
           (unsigned long long)c->below + (unsigned long long)c->above, (unsigned long long)c->elements,
           100 * chart_clipped(c), (unsigned long long)c->below, (unsigned long long)c->above);
    if (c->nan + c->inf > 0)
        printf("left out: %llu NaN, %llu infinite\n", (unsigned long long)c->nan, (unsigned long long)c->inf);
}

size_t chart_lines(const struct chart *c, struct chart_line lines[CHART_LINES], uint64_t *most)
{
    const size_t bins_per_line = (c->bins + CHART_LINES - 1) / CHART_LINES; /* the last line may have fewer */
    const double width = (c->last - c->first) / (double)c->bins;
    size_t n = 0;
    *most = 1;
    for (size_t i = 0; i < c->bins; i += bins_per_line, n++) {
        const size_t end = i + bins_per_line < c->bins ? i + bins_per_line : c->bins;
        lines[n] = (struct chart_line){.low = c->first + width * (double)i,
                                       .high = end == c->bins ? c->last : c->first + width * (double)end};
        for (size_t k = i; k < end; k++)
            lines[n].count += c->counts[k];
        *most = lines[n].count > *most ? lines[n].count : *most;
    }
    return n;
}

void chart_print(const struct chart *c)
{
    const int bar_width = output_columns() - LEFT - RIGHT;
    struct chart_line lines[CHART_LINES];
    uint64_t most;
    const size_t count = chart_lines(c, lines, &most);
    printf("%s, %s\n", c->title, c->preset);
    if (c->widest.low < c->first) /* a range may begin and end where no elements are */
        printf("%*.5g |%-*s > range\n", LEFT - 2, c->widest.low, bar_width, "");
    for (size_t i = 0; i < count; i++)
        print_bar(c, lines[i].low, lines[i].high, lines[i].count, most, bar_width);
    printf("%*.5g |\n", LEFT - 2, c->last);
    if (c->widest.high > c->last)
        printf("%*.5g |%-*s < range\n", LEFT - 2, c->widest.high, bar_width, "");
    printf("# elements, x clipped elements, . few; > < where the range begins and ends\n");
    print_summary(c);
}

void chart_put_pair(json_object *object, const char *name, double low, double high)
{
    json_object *array = json_put_array(object, name);
    json_append(array, json_number(low));
    json_append(array, json_number(high));
}

void chart_put_bins(json_object *object, const struct chart *c)
{
    json_put(object, "first_edge", json_number(c->first));
    json_put(object, "last_edge", json_number(c->last));
    json_object *counts = json_put_array(object, "counts");
    for (size_t i = 0; i < c->bins; i++)
        json_append(counts, json_object_new_uint64((uint64_t)c->counts[i]));
}

int chart_print_json(const struct chart *c)
{
    json_object *root = json_report();
    json_put_text(root, "title", c->title);
    json_put_text(root, "preset", c->preset);
    json_put_count(root, "qparams", (uint64_t)c->qparams);
    chart_put_pair(root, c->qparams == 1 ? "range" : "widest_range", c->widest.low, c->widest.high);
    if (c->qparams != 1)
        chart_put_pair(root, "narrowest_range", c->narrowest.low, c->narrowest.high);
    json_put_count(root, "elements", (uint64_t)c->elements);
    json_put_count(root, "clipped_below", (uint64_t)c->below);
    json_put_count(root, "clipped_above", (uint64_t)c->above);
    json_put(root, "clipped_share", json_number(chart_clipped(c)));
    json_put_count(root, "nan", (uint64_t)c->nan);
    json_put_count(root, "inf", (uint64_t)c->inf);
    chart_put_bins(root, c);
    return print_json(root);
}
