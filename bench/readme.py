# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The tables of README: what they show, and from which pairs."""

import re
import statistics
import textwrap

import rules

WIDTH = 120  # of lines

# Beside what users run: each row names the pair that measures it.
USERS = {
    "`PerChannelMinMaxObserver`, f32 4096x4096": "pair/torch/observer/PerChannelMinMaxObserver",
    "`HistogramObserver`, ten batches of 2 M": "pair/torch/HistogramObserver/forward-steady",
    "`memoryless_minmax`, int4, groups of 128, bf16": "pair/llmcompressor/memoryless_minmax/bf16-int4-group-128",
    "`memoryless_mse`, int4, groups of 128, bf16": "pair/llmcompressor/memoryless_mse/bf16-int4-group-128-norm-2.4",
    "`model_free_ptq`, W4A16": "pair/checkpoint/model_free_ptq/W4A16",
    "`model_free_ptq`, NVFP4A16": "pair/checkpoint/model_free_ptq/NVFP4A16",
    "model-free W4A16": "pair/checkpoint/model-free/W4A16",
    "entropy, 2048 bins, stride 8": "pair/modelopt/HistogramCalibrator/entropy-stride-8",
    "`EntropyCalibrater`, five batches": "pair/onnxruntime/EntropyCalibrater/5-batches",
    "`PerTensorPercentileObserver`, five batches": "pair/quark/PerTensorPercentileObserver/5-batches",
}
# Compared with the limit of the machine: the pair, and what the limit is.
LIMITS = {
    "min/max, bf16, groups of 128": ("pair/minmax-limit/bf16/group-128/4096x4096", "a loop of as many operations"),
    "`qobs calibrate`, 1 GB bf16, two threads": ("pair/calibrate-cat", "`cat` to `/dev/null`"),
    "`qobs quantize --scheme W4A16`, two threads": ("pair/checkpoint/cat/W4A16", "`cat` into a file"),
}


def figures(pair):
    return rules.quiet(pair) if "machine_before" in pair else pair["ratio"]


def table(results, rows, header, cells):
    """The median and the extremes of each pair that was measured."""
    found = [(what, results["pairs"][pair]) for what, pair in rows.items() if pair in results["pairs"]]
    lines = []
    for what, pair in found:
        ratios = figures(pair)
        if ratios:
            lines.append(
                f"| {' | '.join(cells(what, pair))} | "
                + " | ".join(f"{f:.3g}" for f in (statistics.median(ratios), min(ratios), max(ratios)))
                + " |"
            )
    return [f"| {header} | from | to |", "|" + "---|" * (header.count("|") + 3), *lines] if lines else []


def command(run):
    """The command of a run without its conditions, which are said in words beside it."""
    return re.sub(r" --conditions .*?(?= --|$)", "", run["command"])


def source(results):
    """Lines about the runs that the figures come from: the last one of --again, or all."""
    runs = [results, *results.get("runs", [])]
    runs = [r for r in runs if "--again" in r["command"].split()][-1:] or runs
    days = " and ".join(sorted({f"{r['date']}, commit {r['commit']}" for r in runs}))
    conditions = f" {runs[0]['conditions'].rstrip('.')}." if runs[0].get("conditions") else ""
    text = (
        f"{results['cpu']} with {results['isa']}, {days}.{conditions} One thread unless a row says more. Medians and "
        f"extremes of runs that take turns: {' and '.join(f'`{command(r)}`' for r in runs)}"
    )
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def blocks(results):
    """The text between the marks of README, by name."""
    rows = USERS | {what: pair for what, (pair, _) in LIMITS.items()}
    found = table(
        results,
        rows,
        "one thread | compared with | times as fast",
        lambda what, pair: (what, LIMITS[what][1] if what in LIMITS else pair["upstream"]),
    )
    return {"measured": [*found, "", *source(results)]}


def write(path, results):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for name, lines in blocks(results).items():
        marks = f"<!-- {name}: written by bench/report.py -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(marks[0])
        _, found, after = rest.partition(marks[1])
        if not found:
            raise SystemExit(f"{path}: the marks of {name} are missing")
        text = "\n".join([before + marks[0], "", *lines, "", marks[1]]) + after
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def pattern(*tables):
    """The names of the pairs of README as a part of a regular expression, for scripts/bench.sh --again."""
    return "|".join(
        sorted({name.removeprefix("pair/").replace(".", "[.]") for rows in tables for name in rows.values()})
    )


if __name__ == "__main__":
    print(pattern(USERS, {what: pair for what, (pair, _) in LIMITS.items()}))
