# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Growth of cost: exponents fitted to the times of growth/<variable>/<work>/<value> and of scale/<work>/<variable>."""

import statistics

import rules

LEAST_POINTS = 3
READ_LOOP = "limit-read"


def level_of(size, caches):
    """Returns the cache level that holds data of that size, or None near the size of a cache.

    Other cores share the last cache, so a size above a quarter of it has no level."""
    for i, cache in enumerate(caches):
        if size <= cache / (4 if i == len(caches) - 1 else 2):
            below = caches[i - 1] if i else 0
            return f"L{i + 1}" if size >= 2 * below else None
    return "memory" if size >= 4 * caches[-1] else None


def series(results):
    """Returns {(variable, work): [(value, times, bytes)]}, ascending."""
    found = {}
    for name, b in results["benchmarks"].items():
        parts = name.removesuffix("/real_time").split("/")
        if parts[0] == "growth":
            found.setdefault((parts[1], "/".join(parts[2:-1])), []).append((int(parts[-1]), b["time"], b["bytes"]))
    return {key: sorted(points) for key, points in found.items()}


def fits(results):
    """Returns {name: exponents}: for elements one a cache level, for other variables one over all values.

    If the read loop's exponent exceeds 1, the excess is subtracted, because the level causes it."""
    found = {}
    for (variable, work), points in series(results).items():
        groups = {}
        for value, times, size in points:
            level = level_of(size, results["caches"]) if variable == "elements" else ""
            if level is not None:
                groups.setdefault(level, []).append((value, times))
        for level, of_level in groups.items():
            if len(of_level) >= (2 if variable == "threads" else LEAST_POINTS):
                values = [value for value, _ in of_level]
                found[variable, work, level] = [
                    rules.exponent(list(zip(values, times))) for times in zip(*(times for _, times in of_level))
                ]
    exponents = {}
    for (variable, work, level), of_repetitions in found.items():
        read = found.get((variable, READ_LOOP, level), [1])
        excess = max(0, statistics.median(read) - 1)
        exponents[f"{variable}, {work}{', ' + level if level else ''}"] = [e - excess for e in of_repetitions]
    return exponents


# ---- The program and whole observers (scale.py) ----

FLAT = "shards"  # the same bytes in more files: cost is to stay; elsewhere it is to grow in proportion
FIXED = 3  # a measurement counts if it takes that many times the cost of the smallest value


def scales(results):
    """Returns {(work, variable): [(value, seconds, bytes of private memory, seconds without the system's)]}, ascending;
    medians of the rounds, and of memory the most, because looking now and then can miss it."""
    found = {}
    for name, rows in results["values"].items():
        parts = name.split("/")
        if parts[0] != "scale":
            continue
        by_value = {}
        for value, processor, _, memory, own in rows:
            by_value.setdefault(value, []).append((processor, memory, own))
        found[parts[1], parts[2]] = [
            (value, statistics.median(seconds), max(memory), statistics.median(own))
            for value, of in sorted(by_value.items())
            for seconds, memory, own in [tuple(zip(*of))]
        ]
    return found


def scale_exponent(variable, points):
    """Returns the exponent of points (value, seconds), for counts without the cost that the smallest value has, too.

    Bytes have no such cost: the smallest model is far larger than nothing."""
    if variable in ("bytes", FLAT):
        above = [(value, t) for value, t in points if t > 0]  # 0: below a tick
    else:
        fixed = points[0][1]
        above = [(value, t - fixed) for value, t in points[1:] if t > fixed and t >= FIXED * fixed]
    return rules.exponent(above) if len(above) > 1 else None


class Scale:
    """How one work grows with one variable. exponent: of all processor time, for models that fit half of the memory,
    so that files come from the page cache; own_exponent: of the program's own, for all."""

    def __init__(self, work, variable, points, memory):
        self.work, self.variable, self.points = work, variable, points
        cached = [p for p in points if variable != "bytes" or p[0] <= memory / 2]
        self.exponent = scale_exponent(variable, [(p[0], p[1]) for p in cached])
        self.own_exponent = scale_exponent(variable, [(p[0], p[3]) for p in points])


def scale_rows(results):
    """Returns a Scale for each work and variable with enough points."""
    memory = results["values"].get("memory", float("inf"))
    return [
        Scale(work, variable, points, memory)
        for (work, variable), points in scales(results).items()
        if len(points) >= LEAST_POINTS
    ]
