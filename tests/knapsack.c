/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

/* Solves the multiple-choice knapsacks of standard input for test_plan.py and live_plan.py. Each is
 * "ITEMS CHOICES LIMIT", then weight and cost of every choice. Prints a line for each: the least weight, whether the
 * solution is optimal, and the choices, unless the least weight is above the limit. */
#include <stdio.h>
#include <stdlib.h>

#include "mixture/knapsack.h"

int main(void)
{
    struct knapsack k;
    while (scanf("%zu %zu %lf", &k.items, &k.choices, &k.limit) == 3) {
        const size_t count = k.items * k.choices;
        struct knapsack_choice *table = malloc(count * sizeof *table);
        size_t *choice = malloc(k.items * sizeof *choice);
        struct fail f;
        double least;
        bool optimal;
        if (!table || !choice)
            return 1;
        for (size_t i = 0; i < count; i++)
            if (scanf("%lf %lf", &table[i].weight, &table[i].cost) != 2)
                return 2;
        k.table = table;
        if (knapsack_solve(&k, choice, &least, &optimal, &f) != QOBS_OK)
            return 3;
        printf("%.17g %d", least, optimal);
        for (size_t i = 0; i < k.items && least <= k.limit; i++)
            printf(" %zu", choice[i]);
        putchar('\n');
        free(table);
        free(choice);
    }
    return 0;
}
