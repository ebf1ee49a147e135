# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Charts of speed against size by gnuplot: a line for each instruction set, and the limit."""
import shutil
import statistics
import subprocess

TITLES = {
    "minmax-row": "Minimum and maximum, f32, contiguous", "minmax-group-128": "Minimum and maximum, f32, groups of 128",
    "minmax-columns": "Minimum and maximum, f32, columns", "histogram": "Histogram of 2048 bins, f32, gaussian",
    "squares": "Sums of squares, f32, columns", "fake-quantize": "Fake-quantize to int8, f32",
    "search": "Search, int4, groups of 128, norm 2.4",
}
ITEMS = {"histogram": "G elements/s", "search": "G elements x candidates/s"}  # others in GB/s


def lines_of(results, of):
    """Returns {work: {isa: [(bytes, speed)]}}."""
    lines = {}
    for name, b in results["benchmarks"].items():
        parts = name.split("/")
        if parts[:2] == ["growth", "elements"]:
            work, isa = parts[2], parts[3] if len(parts) == 5 else "read loop"
            lines.setdefault(work, {}).setdefault(isa, []).append((b["bytes"], b[of(work)] / statistics.median(b["time"])))
    return lines


def script(work, lines, limit, caches, path):
    """Returns the gnuplot script."""
    unit = ITEMS.get(work, "GB/s")
    out = [f'set terminal svg size 760,420 font "sans,12" background "white"', f'set output "{path}"', f'set title "{TITLES[work]}"',
           "set logscale x 2", 'set xlabel "bytes"', 'set format x "%.0b %B"', f'set ylabel "{unit}"', "set yrange [0:*]",
           "set grid ytics lc rgb '#dddddd'", "set key top right",
           "set xtics (" + ", ".join(f'"{n >> 10} KB" {n}' if n < 1 << 20 else f'"{n >> 20} MB" {n}' for n in
                                     (4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20, 1 << 30)) + ")"]
    for cache in caches:
        out.append(f"set arrow from {cache}, graph 0 to {cache}, graph 1 nohead dt 3 lc rgb '#aaaaaa'")
    plots, data = [], []
    for isa, points in lines.items():
        style = "lw 2 dt 2 lc rgb 'black'" if isa == "read loop" else "lw 2 pt 7 ps 0.4"
        plots.append(f"'-' with {'lines' if isa == 'read loop' else 'linespoints'} {style} title '{isa}'")
        data += [f"{x} {y:.6g}" for x, y in sorted(points)] + ["e"]
    if limit:
        plots.append(f"{limit[1]:.6g} with lines lw 2 dt 2 lc rgb 'black' title '{limit[0]}'")
    return "\n".join(out + ["plot " + ", ".join(plots)] + data) + "\n"


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
        subprocess.run(["gnuplot"], input=script(work, shown, limit, results["caches"], path), text=True, check=True)
        pictures.append((TITLES[work], path))
    return pictures
