# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Charts by gnuplot, legible on light and dark pages: transparent, with lines and letters of medium brightness.

Speed against size: a line for each instruction set, and the limit. Growth of cost."""

import shutil
import statistics
import subprocess

import growth

TITLES = {
    "minmax-row": "Minimum and maximum, f32, contiguous",
    "minmax-group-128": "Minimum and maximum, f32, groups of 128",
    "minmax-columns": "Minimum and maximum, f32, columns",
    "histogram": "Histogram of 2048 bins, f32, gaussian",
    "squares": "Sums of squares, f32, columns",
    "fake-quantize": "Fake-quantize to int8, f32",
    "search": "Search, int4, groups of 128, norm 2.4",
}
INK = "#7d8590"
COLOURS = {"scalar": "#b07cd8", "avx2": "#d9822b", "avx512": "#2f81f7", "neon": "#2f81f7"}
OURS, THEIRS = "#2f81f7", "#d9822b"
ITEMS = {"histogram": "G elements/s", "search": "G elements x candidates/s"}  # others in GB/s


def lines_of(results, of):
    """Returns {work: {isa: [(bytes, speed)]}}."""
    lines = {}
    for name, b in results["benchmarks"].items():
        parts = name.split("/")
        if parts[:2] == ["growth", "elements"]:
            work, isa = parts[2], parts[3] if len(parts) == 5 else "read loop"
            lines.setdefault(work, {}).setdefault(isa, []).append(
                (b["bytes"], b[of(work)] / statistics.median(b["time"]))
            )
    return lines


def head(path, size, title):
    """Returns the first lines of a script."""
    return [
        f'set terminal svg size {size} font "sans,12"',
        f'set output "{path}"',
        f'set title "{title}" textcolor rgb "{INK}"',
        f'set border lc rgb "{INK}"',
        f'set tics textcolor rgb "{INK}"',
        f'set key textcolor rgb "{INK}"',
        f'set xlabel textcolor rgb "{INK}"',
        f'set ylabel textcolor rgb "{INK}"',
        f"set grid lc rgb '{INK}' lw 0.3 dt 3",
    ]


def script(work, lines, limit, caches, path):
    """Returns the gnuplot script."""
    unit = ITEMS.get(work, "GB/s")
    out = head(path, "760,420", TITLES[work]) + [
        "set logscale x 2",
        'set xlabel "bytes"',
        'set format x "%.0b %B"',
        f'set ylabel "{unit}"',
        "set yrange [0:*]",
        "set key top right",
        "set xtics ("
        + ", ".join(
            f'"{n >> 10} KB" {n}' if n < 1 << 20 else f'"{n >> 20} MB" {n}'
            for n in (4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20, 1 << 30)
        )
        + ")",
    ]
    for cache in caches:
        out.append(f"set arrow from {cache}, graph 0 to {cache}, graph 1 nohead dt 3 lc rgb '{INK}'")
    plots, data = [], []
    for isa, points in lines.items():
        style = (
            f"lw 2 dt 2 lc rgb '{INK}'" if isa == "read loop" else f"lw 2 pt 7 ps 0.4 lc rgb '{COLOURS.get(isa, OURS)}'"
        )
        plots.append(f"'-' with {'lines' if isa == 'read loop' else 'linespoints'} {style} title '{isa}'")
        data += [f"{x} {y:.6g}" for x, y in sorted(points)] + ["e"]
    if limit:
        plots.append(f"{limit[1]:.6g} with lines lw 2 dt 2 lc rgb '{INK}' title '{limit[0]}'")
    return out + ["plot " + ", ".join(plots)] + data


def gnuplot(lines):
    subprocess.run(["gnuplot"], input="\n".join(lines) + "\n", text=True, check=True)


def scale(results, path):
    """Cost against bytes, tensors, shards and batches, in one picture; returns False if nothing was measured."""
    found = growth.scales(results)
    variables = [v for v in ("bytes", "tensors", "shards", "batches") if any(v == name for _, name in found)]
    if not variables:
        return False
    out = head(path, f"{410 * min(2, len(variables))},{330 * ((len(variables) + 1) // 2)}", "")
    out += [
        "unset title",
        "set logscale xy 10",
        "set format x '10^{%L}'",
        "set format y '10^{%L}'",
        f"set multiplot layout {(len(variables) + 1) // 2},{min(2, len(variables))}",
    ]
    for variable in variables:
        works = {work: points for (work, name), points in found.items() if name == variable}
        plots, data = [], []
        for i, (work, points) in enumerate(works.items()):
            colour = f"lc rgb '{(OURS, THEIRS)[i]}'" if len(works) < 3 else ""
            plots.append(
                f"'-' with linespoints lw 1.5 pt 7 ps 0.4 {colour} title '{work}' noenhanced"
            )
            data += [f"{value} {t:.6g}" for value, t, *_ in points] + ["e"]
        out += [
            "set key left top inside font ',9'" if len(works) > 2 else "set key outside top center horizontal",
            f'set xlabel "{variable}"',
            'set ylabel "seconds"',
            "plot " + ", ".join(plots),
            *data,
        ]
    gnuplot(out + ["unset multiplot"])
    return True


def draw(results, stem):
    """Returns the charts as (title, path), or none without gnuplot."""
    if not shutil.which("gnuplot"):
        return []
    lines = lines_of(results, lambda work: "items" if work in ITEMS else "bytes")
    read = lines.pop("limit-read", {})
    pictures = []
    for work in TITLES:
        if work not in lines:
            continue
        limit, shown = None, lines[work]
        if work not in ITEMS:
            shown = shown | read
        elif work == "histogram" and "limit/count" in results["benchmarks"]:
            b = results["benchmarks"]["limit/count"]
            limit = ("one counter a time", b["items"] / statistics.median(b["time"]))
        elif "limit/multiply-add" in results["benchmarks"]:
            b = results["benchmarks"]["limit/multiply-add"]
            limit = ("7 multiply-adds each", b["items"] / statistics.median(b["time"]) / 7)
        path = f"{stem}-{work}.svg"
        gnuplot(script(work, shown, limit, results["caches"], path))
        pictures.append((TITLES[work], path))
    if scale(results, f"{stem}-scale.svg"):
        pictures.append(("Cost against bytes, tensors, shards and batches", f"{stem}-scale.svg"))
    return pictures
