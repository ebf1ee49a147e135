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
                found[variable, work, level] = [rules.exponent(list(zip(values, times)))
                                                for times in zip(*(times for _, times in of_level))]
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
    """Returns {(work, variable): [(value, seconds, bytes of private memory)]}, ascending; medians of the rounds."""
    found = {}
    for name, rows in results["values"].items():
        parts = name.split("/")
        if parts[0] != "scale":
            continue
        by_value = {}
        for value, processor, _, memory in rows:
            by_value.setdefault(value, []).append((processor, memory))
        found[parts[1], parts[2]] = [(value, statistics.median(t for t, _ in of), statistics.median(m for _, m in of))
                                     for value, of in sorted(by_value.items())]
    return found


def scale_exponent(variable, points):
    """Returns the exponent of the seconds, for counts without the cost that the smallest value has, too.

    Bytes have no such cost: the smallest model is far larger than nothing."""
    if variable in ("bytes", FLAT):
        return rules.exponent([(value, t) for value, t, _ in points])
    fixed = points[0][1]
    above = [(value, t - fixed) for value, t, _ in points[1:] if t >= FIXED * fixed]
    return rules.exponent(above) if len(above) > 1 else None


def scale_rows(results):
    """Returns (work, variable, smallest, largest, seconds of both, exponent, memory of both)."""
    rows = []
    for (work, variable), points in scales(results).items():
        (smallest, t0, m0), (largest, t1, m1) = points[0], points[-1]
        if len(points) >= LEAST_POINTS:
            rows.append((work, variable, smallest, largest, t0, t1, scale_exponent(variable, points), m0, m1))
    return rows
