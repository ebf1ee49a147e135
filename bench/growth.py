# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""How cost grows: exponents fitted to the times of growth/<variable>/<work>/<value>."""
import rules

LEAST_POINTS = 3


def level_of(size, caches):
    """Where data of that size lie, None near a cache's size, where they lie partly in the next."""
    for i, cache in enumerate(caches):
        if size <= cache / 2:
            below = caches[i - 1] if i else 0
            return f"L{i + 1}" if size >= 2 * below else None
    return "memory" if size >= 4 * caches[-1] else None


def series(results):
    """{(variable, work): [(value, least time, bytes)]}, ascending."""
    found = {}
    for name, b in results["benchmarks"].items():
        parts = name.removesuffix("/real_time").split("/")
        if parts[0] == "growth":
            found.setdefault((parts[1], "/".join(parts[2:-1])), []).append((int(parts[-1]), min(b["time"]), b["bytes"]))
    return {key: sorted(points) for key, points in found.items()}


def fits(results):
    """{name: exponent}: of elements for each cache level, of other variables over all values."""
    exponents = {}
    for (variable, work), points in series(results).items():
        groups = {}
        for value, time, size in points:
            level = level_of(size, results["caches"]) if variable == "elements" else ""
            if level is not None:
                groups.setdefault(level, []).append((value, time))
        for level, of_level in groups.items():
            if len(of_level) >= (2 if variable == "threads" else LEAST_POINTS):
                exponents[f"{variable}, {work}{', ' + level if level else ''}"] = rules.exponent(of_level)
    return exponents
