# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Random multiple-choice knapsacks, and the program tests/knapsack that solves them."""
import subprocess


def instance(source, items, choices):
    """(limit, weights and costs by item): whole numbers, ties, dominated choices, limits from impossible to ample."""
    spread = source.choice([3, 30, 10 ** 6])
    table = []
    for _ in range(items):
        size = source.choice([1, 1, 4, source.randint(1, 9)])
        if source.random() < .2:
            table.append([(size * source.randint(0, spread), source.randint(0, spread)) for _ in range(choices)])
        else:  # costs fall as weights rise, as with bits
            weights = sorted(size * source.randint(1, spread) for _ in range(choices))
            costs = sorted((source.randint(0, spread ** 2) for _ in range(choices)), reverse=True)
            table.append(list(zip(weights, costs)))
    least, most = (sum(f(w for w, _ in row) for row in table) for f in (min, max))
    return least + (most - least) * source.choice([-.01, 0, .1, .3, .5, .7, .9, 1.1]), table


def solve(program, instances):
    """(least weight, whether it is optimal, choices or None) of each."""
    text = "\n".join(f"{len(table)} {len(table[0])} {limit!r} " +
                     " ".join(f"{w!r} {c!r}" for row in table for w, c in row)
                     for limit, table in instances)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    found = []
    for (limit, _), line in zip(instances, done.stdout.splitlines()):
        least, optimal, *choice = line.split()
        found.append((float(least), optimal == "1", [int(c) for c in choice] if float(least) <= limit else None))
    assert len(found) == len(instances)
    return found


def sums(table, choice):
    return tuple(sum(row[c][k] for row, c in zip(table, choice)) for k in range(2))
