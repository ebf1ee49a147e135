#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The mixture that a plan chooses costs what the optimum of CBC, a solver of integer programs, costs: 1,000 random
instances by PuLP.

    live_plan.py KNAPSACK

KNAPSACK is the program of tests/knapsack.c. Needs pulp.
"""
import random
import sys

import pulp

from knapsacks import instance, solve, sums

COUNT = 1000


def best(limit, table):
    """The smallest cost by CBC; None: the limit cannot be kept."""
    problem = pulp.LpProblem("plan", pulp.LpMinimize)
    takes = [[pulp.LpVariable(f"x_{i}_{c}", cat="Binary") for c in range(len(row))] for i, row in enumerate(table)]
    pairs = [(x, w, c) for row, xs in zip(table, takes) for (w, c), x in zip(row, xs)]
    problem += pulp.lpSum(c * x for x, _, c in pairs)
    problem += pulp.lpSum(w * x for x, w, _ in pairs) <= limit
    for xs in takes:
        problem += pulp.lpSum(xs) == 1
    if problem.solve(pulp.PULP_CBC_CMD(msg=False, gapRel=0, gapAbs=0)) != pulp.LpStatusOptimal:
        return None
    return sums(table, [max(range(len(xs)), key=lambda c: xs[c].value()) for xs in takes])[1]


def main():
    source = random.Random(40)
    instances = [instance(source, source.randint(1, 24), source.randint(1, 6)) for _ in range(COUNT)]
    equal = 0
    for (limit, table), (_, optimal, choice) in zip(instances, solve(sys.argv[1], instances)):
        wanted = best(limit, table)
        got = None if choice is None else sums(table, choice)
        good = optimal and (got is None if wanted is None else got is not None and got[0] <= limit and got[1] == wanted)
        if not good:
            print(f"FAIL limit {limit}, {table}: got {got}, CBC {wanted}")
        equal += good
    print(f"{equal} passed, {COUNT - equal} failed")
    return equal != COUNT


if __name__ == "__main__":
    sys.exit(main())
