# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Growth of cost: an exponent for each repetition, fitted to the times of growth/<variable>/<work>/<value>."""
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
                found[variable, work, level] = [rules.exponent(list(zip(values, times)))
                                                for times in zip(*(times for _, times in of_level))]
    exponents = {}
    for (variable, work, level), of_repetitions in found.items():
        read = found.get((variable, READ_LOOP, level), [1])
        excess = max(0, statistics.median(read) - 1)
        exponents[f"{variable}, {work}{', ' + level if level else ''}"] = [e - excess for e in of_repetitions]
    return exponents
