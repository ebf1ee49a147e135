#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Writes a Markdown report of one file of results, with charts if gnuplot exists.

    report.py RESULTS.json [README.md]

Writes beside it RESULTS.md, what documents quote: targets, what users run, limits; RESULTS-rows.md, every other figure;
RESULTS-<work>.svg; and short tables between the marks in the README. Prints the targets that are not reached.
"""

import json
import os
import re
import statistics
import sys

import charts
import growth
import readme
import rules
import targets

# Minimum of multiply-adds, additions and multiplications per element and candidate; they occupy the same units.
OPERATIONS = {
    "int4-norm-1": 2,
    "int4-norm-2": 3,
    "int4-norm-3": 4,
    "int4-norm-2.4": 7,
    "fp8-norm-2": 4,
    "fp8-norm-2.4": 8,
    "fp4-16-norm-2.4": 8,
    "int4-1024-norm-2": 3,
    "int4-1024-norm-2.4": 7,
}


def spread(figures):
    """Half of the distance between the extremes, relative to the median."""
    return (max(figures) - min(figures)) / 2 / statistics.median(figures)


class Report:
    def __init__(self, results):
        self.results, self.lines = results, []
        self.benchmarks = results["benchmarks"]

    def write(self, *lines):
        self.lines.extend(lines)

    def save(self, path):
        """Writes what was collected, and begins anew."""
        with open(path, "w", encoding="utf-8") as out:
            out.write(re.sub(r"\n{3,}", "\n\n", "\n".join(self.lines)).strip() + "\n")
        self.lines = []

    def table(self, header, rows):
        self.write("", "| " + " | ".join(header) + " |", "|" + "---|" * len(header))
        self.write(*("| " + " | ".join(row) + " |" for row in rows), "")

    def time(self, name):
        return statistics.median(self.benchmarks[name]["time"])

    def rate(self, name, of):
        """Bytes or items a nanosecond: G/s."""
        return self.benchmarks[name][of] / self.time(name)

    # ---- Sections ----

    def head(self):
        r = self.results
        caches = ", ".join(f"L{i + 1} {size >> 10} KB" for i, size in enumerate(r["caches"]))
        self.write(
            f"# Benchmarks: {r['cpu']}",
            "",
            f"{r['cpu']}, {caches}; {r['date']}, commit {r['commit']}, load average {r['load']} "
            f"when it began. `{readme.command(r)}`",
            "",
            "Figures are medians of repetitions in random order, ± half the distance between the extremes; CPU "
            "time, of the wall "
            "clock where there are threads. Ratios of pairs come from runs that take turns in one process: "
            "medians, with the "
            "interval that holds the median with 95 % whatever the distribution.",
        )
        for key, text in (
            ("conditions", "Conditions: {}."),
            ("restricted", "Restricted: {}."),
            ("without", "Not measured: {}."),
        ):
            if r.get(key):
                self.write("", text.format(r[key].rstrip(".")))
        for run in r.get("runs", []):
            self.write(
                "",
                f"{run['figures']} figures were measured on {run['date']}, commit {run['commit']}, "
                f"load average {run['load']} "
                f"when that began. `{readme.command(run)}` {run.get('conditions', '')}".rstrip(),
            )

    def targets(self):
        rows, missed, unmeasured = [], [], 0
        for t, median, low, high, answer, where in targets.measured(self.results):
            sign = {"at least": "≥", "at most": "≤", "not below": "not below", "not above": "not above"}[t.kind]
            bound = f"{sign} {t.bound:.3g} {t.unit}".strip()
            figure = "-" if median is None else f"{median:.3g} {t.unit}".strip()
            interval = "-" if median is None else f"{low:.3g} to {high:.3g}"
            notes = [where] if where != t.source else self.limit_of(t.source)
            if median is not None and not answer:
                notes.append(targets.reason(t.what) or "nobody has looked for the reason")
            rows.append([t.what, bound, figure, interval, "yes" if answer else "**no**", "; ".join(notes)])
            if median is None:
                rows[-1][-2] = "not measured"
                unmeasured += 1
            elif not answer:
                missed.append(f"{t.what}: {figure}, wanted {bound} ({interval}) {rows[-1][-1]}")
        self.write(
            "",
            "## Targets",
            "",
            f"{len(rows) - len(missed) - unmeasured} of {len(rows)} are reached, {len(missed)} are not, "
            f"{unmeasured} were not measured.",
        )
        self.table(["target", "wanted", "measured", "interval", "reached", "where, and why not"], rows)
        print("\n".join(missed), f"{len(missed)} targets are not reached, {unmeasured} were not measured", sep="\n")

    def limit_of(self, name):
        """The speed of a pair's limit, and its operations, if that is what the pair is about."""
        pair = self.results["pairs"].get(name, {})
        if "operations" not in pair:
            return []
        speed = statistics.median(pair["other_speed"]) / 1e9
        return [f"limit {speed:.3g} GB/s, {pair['operations'][0]:.0f} operations a KB"]

    def upstream(self):
        pairs = {n: p for n, p in self.results["pairs"].items() if "upstream" in p}
        if not pairs:
            return
        self.write(
            "",
            "## Beside what users run",
            "",
            "Elements a second; of searches, elements times candidates; of checkpoints, "
            "bytes. Both sides on one thread, by processor time; `cat` by the wall clock, beside two threads.",
        )
        self.table(
            ["work", "beside", "theirs", "qobs", "times as fast", "from", "to"],
            [
                [
                    n.removeprefix("pair/"),
                    p["upstream"],
                    f"{statistics.median(p['other_speed']):.3g}",
                    f"{statistics.median(p['speed']):.3g}",
                    f"{statistics.median(p['ratio']):.3g}",
                    f"{min(p['ratio']):.3g}",
                    f"{max(p['ratio']):.3g}",
                ]
                for n, p in pairs.items()
            ],
        )

    def limits(self):
        rows = [
            [
                n.removeprefix("limit/"),
                f"{self.rate(n, 'bytes'):.1f} GB/s" if b["bytes"] else f"{self.rate(n, 'items'):.2f} G/s",
                f"± {100 * spread(b['time']):.0f} %",
            ]
            for n, b in self.benchmarks.items()
            if n.startswith("limit/")
        ]
        self.write(
            "",
            "## Limits",
            "",
            "The widest loads that do nothing else; one counter after the other; multiply-adds of floats.",
        )
        self.table(["limit", "figure", "spread"], rows)

    def family(self, family, title, of, limit_of):
        """A table with sizes across: speed, its share of the limit, the spread."""
        found = {}
        for name in self.benchmarks:
            parts = name.split("/")
            if parts[0] == family and len(parts) == 5:
                found.setdefault((parts[2], parts[3], parts[1]), {})[parts[4]] = name
        if not found:
            return
        levels = [level for level in ("L1", "L2", "L3", "memory") if any(level in f for f in found.values())]
        rows = []
        for (dtype, variant, table), names in found.items():
            cells = []
            for level in levels:
                if level not in names:
                    cells.append("-")
                    continue
                speed, limit = self.rate(names[level], of), limit_of(variant, level)
                share = f" ({speed / limit:.2f})" if limit else ""
                cells.append(f"{speed:.3g}{share} ± {100 * spread(self.benchmarks[names[level]]['time']):.0f} %")
            rows.append([f"{dtype} {variant}", table, *cells])
        self.write("", f"## {title}")
        self.table(["kernel", "by", *levels], rows)

    def flat(self, prefix, title, of, unit):
        names = [n for n in self.benchmarks if n.startswith(prefix + "/")]
        if not names:
            return
        rows = []
        for name in names:
            figure = f"{self.rate(name, of):.3g}" if of else f"{self.time(name):.1f}"
            rows.append(
                [name.removeprefix(prefix + "/"), figure, f"± {100 * spread(self.benchmarks[name]['time']):.0f} %"]
            )
        self.write("", f"## {title}")
        self.table(["what", unit, "spread"], rows)

    def pairs(self, prefix, title):
        found = {n: p["ratio"] for n, p in self.results["pairs"].items() if n.startswith(prefix)}
        if not found:
            return
        self.write("", f"## {title}")
        self.table(
            ["what", "ratio", "from", "to"],
            [
                [n.removeprefix(prefix), f"{statistics.median(r):.2f}", f"{min(r):.2f}", f"{max(r):.2f}"]
                for n, r in found.items()
            ],
        )

    def scale(self):
        rows = growth.scale_rows(self.results)
        if not rows:
            return
        self.write(
            "",
            "## How the program and observers grow",
            "",
            "Processor time on one thread and private memory; W4A16. Exponents: the "
            "median log-log slope of all pairs of values (Theil and Sen); for counts, of what exceeds the cost "
            "of the smallest. "
            "1: in proportion; shards split the same bytes: 0. `exponent`: with the system's time, for models "
            "that fit half of "
            "the memory, so that they come from the page cache. `own`: without it, for all.",
        )
        self.table(
            ["work", "variable", "from", "to", "seconds", "exponent", "own", "private memory, MB"],
            [
                [
                    r.work,
                    r.variable,
                    f"{r.points[0][0]:.3g}",
                    f"{r.points[-1][0]:.3g}",
                    f"{r.points[0][1]:.3g} to {r.points[-1][1]:.3g}",
                    *("-" if e is None else f"{e:.3f}" for e in (r.exponent, r.own_exponent)),
                    f"{r.points[0][2] / 1e6:.1f} to {r.points[-1][2] / 1e6:.1f}",
                ]
                for r in rows
            ],
        )

    def growth(self):
        fits = growth.fits(self.results)
        if fits:
            self.write(
                "",
                "## How cost grows",
                "",
                "Exponents of the time a call takes, fitted within a cache level (elements; less what the read "
                "loop's is above 1 there) or over all values (Theil and Sen) for each repetition; medians. "
                "1: in proportion; "
                "0: not at all; threads: -1 is perfect.",
            )
            rows = [(name, rules.reached(e, 1, "not above")) for name, e in fits.items()]
            self.table(
                ["growth with", "exponent", "interval"],
                [[name, f"{r[0]:.2f}", f"{r[1]:.2f} to {r[2]:.2f}"] for name, r in rows],
            )


def main():
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        results = json.load(file)
    report = Report(results)
    benchmarks = report.benchmarks

    def read(_, level):
        return report.rate(f"limit/read/{level}", "bytes") if f"limit/read/{level}" in benchmarks else None

    def count(*_):
        return report.rate("limit/count", "items") if "limit/count" in benchmarks else None

    def multiply_add(variant, _):
        return report.rate("limit/multiply-add", "items") / OPERATIONS[variant] if variant in OPERATIONS else None

    report.head()
    report.targets()
    report.upstream()
    report.limits()
    stem = os.path.splitext(path)[0]
    report.save(stem + ".md")
    report.write(f"# Every figure: {results['cpu']}", "", f"[Targets and limits]({os.path.basename(stem)}.md)")
    pictures = charts.draw(results, stem)
    if pictures:
        report.write("", "## Speed against size", "")
        report.write(*(f"![{title}]({os.path.basename(picture)})" for title, picture in pictures))
    report.family("minmax", "Minimum and maximum: GB/s (share of the read loop)", "bytes", read)
    report.family("absmax", "Largest magnitude: GB/s (share of the read loop)", "bytes", read)
    report.family("histogram", "Histograms of 2048 bins: G elements/s (share of one counter a time)", "items", count)
    report.family("fake-quantize", "Fake-quantize: GB/s read and written (share of the read loop)", "bytes", read)
    report.family("squares", "Sums of squares: GB/s (share of the read loop)", "bytes", read)
    report.family(
        "search", "Errors of candidates: G elements x candidates/s (share of the multiply-adds)", "items", multiply_add
    )
    report.flat("granularity", "qobs_minmax of 4096x4096", "bytes", "GB/s")
    report.flat("search-whole", "qobs_search of 128x4096", "items", "G elements x candidates/s")
    report.flat("observer", "Observers as a whole: reset, observe 64x4096, read scale and zero point", "bytes", "GB/s")
    report.flat("small", "Small inputs", None, "ns")
    report.growth()
    report.scale()
    report.pairs("pair/granularity-contiguous/", "Granularities: of the contiguous minimum and maximum")
    report.pairs("pair/search-", "Searches in turns")
    report.pairs("pair/avx2-plain/", "AVX2: times plain C by gcc -O3 -march=haswell")
    report.pairs("pair/avx512-avx2/", "AVX-512: of AVX2")
    if len(sys.argv) > 2:
        readme.write(sys.argv[2], results)
    report.save(stem + "-rows.md")


if __name__ == "__main__":
    main()
