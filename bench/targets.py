# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The targets: one row each, with the source of its figure."""

import collections
import re
import statistics

import growth
import rules

# source: the name of a pair or value, or a function of the results that returns (figures, where).
Target = collections.namedtuple("Target", "what kind bound source unit", defaults=("",))

FAMILIES = ("minmax", "absmax", "histogram", "fake-quantize", "squares", "search")
LAYOUTS = ("row", "channel-4096", "group-128", "group-32", "block-128x128", "head-128", "columns")


def pairs_of(prefix, results):
    return {n: p["ratio"] for n, p in results["pairs"].items() if n.startswith(prefix)}


def mean(prefix):
    """The geometric mean of all pairs with that prefix, for each repetition; where: the smallest of them."""

    def find(results):
        pairs = pairs_of(prefix, results)
        if not pairs:
            return None
        name = min(pairs, key=lambda n: statistics.median(pairs[n]))
        means = [statistics.geometric_mean(ratios) for ratios in zip(*pairs.values())]
        return means, f"mean of {len(pairs)}; least {statistics.median(pairs[name]):.2f}, {name[len(prefix):]}"

    return find


def worst(prefix, kind, bound):
    """The pair with that prefix that is furthest from its bound."""

    def find(results):
        pairs = pairs_of(prefix, results)
        if not pairs:
            return None
        deciding = 2 if kind == "not below" else 0  # the interval's upper end, or the median
        name = min(pairs, key=lambda n: rules.reached(pairs[n], bound, kind)[deciding])
        return pairs[name], f"worst of {len(pairs)}: {name[len(prefix):].strip('/')}"

    return find


NO_SLOWER = 0.97  # AVX-512 relative to AVX2


def shown_slower(results):
    """Names of measured pairs in which AVX-512 is shown to be slower. Some of several hundred are by chance."""
    return [
        n
        for n, ratios in pairs_of("pair/avx512-avx2/", results).items()
        if not rules.reached(ratios, NO_SLOWER, "not below")[3]
    ]


def steepest(results):
    fits = growth.fits(results)
    if not fits:
        return None
    name = max(fits, key=lambda n: rules.reached(fits[n], 1, "not above")[1])
    return fits[name], f"steepest of {len(fits)}: {name}"


def time_of(name):
    def find(results):
        benchmark = results["benchmarks"].get(name)
        return benchmark and (benchmark["time"], name)

    return find


def of_threads(name):
    """Ratios of turns on a quiet machine; where: how many turns these are, and the medians of all turns."""

    def find(results):
        pair = results["pairs"].get(name)
        figures = pair and rules.quiet(pair)
        if not figures:
            return None
        machine = statistics.median(pair["machine_before"] + pair["machine_after"])
        return figures, (
            f"{len(figures)} turns of {len(pair['ratio'])} with a quiet machine; all turns "
            f"{statistics.median(pair['ratio']):.3g}, multiply-adds {machine:.3g}"
        )

    return find


SCALE = {"bytes": 1.05, "tensors": 1.05, "shards": 0.05, "batches": 1.05}


def steepest_scale(variable):
    """The steepest growth of the program or an observer with that variable."""

    def find(results):
        rows = {
            row.work: row.exponent
            for row in growth.scale_rows(results)
            if row.variable == variable and row.exponent is not None
        }
        if not rows:
            return None
        name = max(rows, key=rows.get)
        return [rows[name]], f"steepest of {len(rows)}: {name}"

    return find


def memory_growth(work, variable, unit):
    """Megabytes of private memory that a unit of the variable adds, the most of all works. Names need some."""

    def find(results):
        slopes = {
            name: max(0, points[-1][2] - points[0][2]) / 1e6 / (points[-1][0] - points[0][0]) * unit
            for (name, of), points in growth.scales(results).items()
            if of == variable and name.startswith(work)
        }
        if not slopes:
            return None
        name = max(slopes, key=slopes.get)
        return [slopes[name]], f"most of {len(slopes)}: {name}"

    return find


# Times as fast as upstream's release of November 2026: torch 2.13, llm-compressor 0.14, auto-round 0.16.1,
# nvidia-modelopt 0.47. torch 2.13 counts histograms four times as fast as torch 1.13, of which 12 was the target.
BESIDE = {
    "torch/observer/PerChannelMinMaxObserver": 5,
    "torch/histc/f32/gaussian": 6,
    "torch/histc/f32/99-percent-zeros": 6,
    "torch/HistogramObserver/forward-steady": 6,
    "torch/HistogramObserver/forward-growing": 6,
    "torch/HistogramObserver/calculate_qparams": 20,
    "llmcompressor/memoryless_mse/bf16-int4-group-128-norm-2.4": 30,
    "optimal/int4-asymmetric-neuqi": 300,
    "optimal/int4-opt_rtn": 15,  # notes/optimal.md: upstream decides
    "optimal/nvfp4-sweep": 90,  # the same
    "optimal/nvfp4-local-hessian": 50,
    "modelopt/HistogramCalibrator/entropy-stride-8": 40,
    "dropin/modelopt/entropy-stride-8": 80,
    "dropin/llmcompressor/memoryless_mse/f32-int4-group-128": 60,
    "dropin/llmcompressor/memoryless_mse/bf16-int4-group-128": 30,
    "python/torch/HistogramObserver-steady": 8,  # notes/histogram.md: 20 leaves less than a store an element
    "python/torch/HistogramObserver-growing": 8,
    "dropin/torch/HistogramObserver-steady": 8,
    "dropin/torch/HistogramObserver-growing": 8,
    "checkpoint/model_free_ptq/W8A8": 10,
    "checkpoint/model_free_ptq/W4A16": 14,
    "checkpoint/model_free_ptq/FP8_DYNAMIC": 14,
    "checkpoint/model_free_ptq/FP8_BLOCK": 14,
    "checkpoint/model_free_ptq/NVFP4A16": 40,
    "checkpoint/model_free_ptq/MXFP4": 40,
    "checkpoint/model_free_ptq/W4A16-memoryless_mse": 40,
}
SEARCHES = {"2": (150, 100), "2.4": (80, 50), "2.7": (80, 50)}  # norm: with AVX-512, without


def beside(row, avx512):
    """Targets beside what users run."""
    for norm, bounds in SEARCHES.items():
        row(
            f"memoryless_mse, int4, groups of 128, f32, norm {norm}: times llm-compressor",
            "at least",
            bounds[not avx512],
            f"pair/llmcompressor/memoryless_mse/f32-int4-group-128-norm-{norm}",
        )
    for name, bound in BESIDE.items():
        row(f"{name}: times upstream", "at least", bound, f"pair/{name}")
    for scheme in ("W4A16", "W8A8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4"):
        row(f"qobs quantize --scheme {scheme}, 2 threads: of cat", "at least", 0.8, f"pair/checkpoint/cat/{scheme}")
    row("its private memory", "at most", 64, "quantize-memory", unit="MB")
    row("qobs.minmax of 768 floats: more than the bare call", "at most", 6, "python-minmax-768", unit="us")
    row("a drop-in that declines 768 floats: more than without", "at most", 3, "python-declined-768", unit="us")


# Why a target is missed where it is: a pattern of its name, the reason, the note with the figures. The first one counts.
REASONS = (
    ("minimum and maximum, .*, g_idx-", "loads and stores of accumulators; rows a power of two apart share cache sets",
     "g-idx"),
    ("minimum and maximum, .*, columns,", "three operations a vector, the end of each tile, the order of lines",
     "minmax-columns"),
    ("(minmax|absmax), AVX-512: of AVX2", "groups of 32 from L1 on a Zen 4, columns on a Zen 5, g_idx on a Xeon",
     "avx512-and-avx2"),
    ("minimum and maximum, .*, group-", "horizontal reductions leave fewer loads in flight; AVX2 has no prefetch",
     "minmax-groups"),
    ("minimum and maximum, .*, block-", "as rows; prefetches are slower", "minmax-blocks"),
    ("minimum and maximum,", "maxima beside the loads; prefetches and two streams change nothing", "minmax-rows"),
    ("qobs calibrate of 1 GB", "its groups of 128 from memory", "minmax-groups"),
    ("qobs_minmax, .*of the contiguous", "32 and 64 MB are around the size of L3; causes are those of memory",
     "avx512-and-avx2"),
    (".*/HistogramObserver[-/]", "counting: a store for each element", "histogram"),
    ("modelopt/HistogramCalibrator/entropy", "an AMD EPYC has 61, a Xeon 36 to 45: the cause was not found", "histogram"),
    ("checkpoint/model_free_ptq/FP8", "codes of e4m3 take nine times the operations of AVX-512", "dynamic"),
    ("checkpoint/model_free_ptq/W8A8", "two repetitions have 9.1 and 10.6", "checkpoint"),
    ("search, .*, 2 threads", "threads start and end in each call; a range is bound by memory", "threads"),
    ("quantize and pack, .*of its limit", "lines that are written next come late", "checkpoint"),
    ("dynamic quantization, .*of its limit", "a row's codes wait for its maximum, which the limit does not do", "dynamic"),
    ("growth: exponent within", "neighbours in L3 evict more of a longer pass; L3 holds less of more data", "growth"),
    ("growth with (tensors|shards)", "two reports of one machine differ by .05", "growth"),
    ("(qobs.minmax of|a drop-in that declines) 768", "two reports of one machine have 4.7 and 8.1, 1.7 and 3.7 us", "front-end"),
)


def reason(what):
    """Why a target is missed, with a link for a report; "": nobody has looked."""
    for pattern, text, note in REASONS:
        if re.match(pattern, what):
            return f"{text}: [{note}](../notes/{note}.md)"
    return ""


# The share of its limit that a kernel has to reach: a loop over the same bytes with as many vector operations of no
# dependence on each other, in turns with the kernel (limits.h, operations.cc).
OF_LIMIT = 0.8
# Searches by their operations (notes/search.md). An element in float that was bf16 takes three more, beside five for each
# of 20 candidates. A candidate of nvfp4 takes 19, one of int4 16.
IN_FLOAT = 0.97
OF_INT4 = OF_LIMIT * 16 / 19


def targets(isa):
    """Returns the targets of a machine whose best instruction set is isa.

    Without AVX-512 there are no targets that compare it with AVX2."""
    rows = []
    avx512 = isa == "avx512"

    def row(*arguments, **named):
        rows.append(Target(*arguments, **named))

    for dtype in ("f32", "bf16"):
        for layout in LAYOUTS:
            for level in ("L2", "L3", "memory"):
                row(
                    f"minimum and maximum, {dtype}, {layout}, {level}: of its limit",
                    "at least",
                    OF_LIMIT,
                    f"pair/minmax-limit/{dtype}/{layout}/{level}",
                )
        for layout in ("columns", "group-128", "group-32", "g_idx-128"):
            row(
                f"minimum and maximum, {dtype}, {layout}, 4096x4096: of its limit",
                "at least",
                OF_LIMIT,
                f"pair/minmax-limit/{dtype}/{layout}/4096x4096",
            )
    row("qobs calibrate of 1 GB bf16, groups of 128, 2 threads: of cat", "at least", 0.8, "pair/calibrate-cat")
    row("its memory beyond the mapped file", "at most", 64, "calibrate-memory", unit="MB")
    for dtype in ("f32", "bf16"):
        for granularity in ("channel", "block-128x128", "head-128"):
            row(
                f"qobs_minmax, {dtype}, {granularity}, 4096x4096: of the contiguous",
                "at least",
                0.9,
                f"pair/granularity-contiguous/{dtype}/{granularity}",
            )
    beside(row, avx512)
    for norm in ("2", "2.4", "2.7"):
        row(
            f"search, norm {norm}, bf16 in float32: of f32",
            "not below",
            IN_FLOAT,
            f"pair/search-bf16-f32/int4-group-128-norm-{norm}",
        )
    for kind in ("int4-group-128-norm-2", "int4-group-128-norm-2.4", "int8-channel", "fp8-tensor"):
        row(f"search, {kind}, 2 threads: times one", "at least", 1.9, of_threads(f"pair/search-2-threads/{kind}"))
    row("search, nvfp4_expanded: of int4's rate", "at least", OF_INT4, "pair/search-nvfp4-expanded-int4")
    for kind in ("int4-group-128", "fp8-channel", "nvfp4-group-16"):
        row(
            f"quantize and pack, bf16, {kind}, memory: of its limit",
            "at least",
            OF_LIMIT,
            f"pair/codes-limit/{kind}",
        )
    for level in ("L2", "memory"):
        for kind in ("int8-token", "int8-asymmetric-token", "fp8-token", "fp8-group-128", "mxfp8", "mxfp4", "nvfp4"):
            row(
                f"dynamic quantization, bf16, {kind}, {level}: of its limit",
                "at least",
                OF_LIMIT,
                f"pair/dynamic-limit/{kind}/{level}",
            )
    for data in ("gaussian", "99-percent-zeros"):
        row(
            f"histogram, f32, {data}: of the read loop (2 Gelem/s where that does 30 GB/s)",
            "at least",
            8 / 30,
            f"pair/histogram-read/f32/{data}",
        )
        row(f"histogram, {data}, bf16: of f32's elements", "not below", 1, f"pair/histogram-bf16-f32/{data}")
    row("range by entropy of 2048 bins", "at most", 10, time_of("observer-range/entropy-2048"), unit="ms")
    for family in FAMILIES:
        row(
            f"{family}, AVX2: times plain C by gcc -O3 -march=haswell",
            "at least",
            1,
            mean(f"pair/avx2-plain/{family}/"),
        )
        if avx512:
            row(
                f"{family}, AVX-512: of AVX2",
                "not below",
                NO_SLOWER,
                worst(f"pair/avx512-avx2/{family}/", "not below", NO_SLOWER),
            )
    for dtype in ("f32", "bf16"):
        row(
            f"qobs_minmax of 64 elements, {dtype}",
            "at most",
            150,
            time_of(f"small/qobs_minmax-64/{isa}/{dtype}"),
            unit="ns",
        )
        row(f"kernel call of 64 elements, {dtype}", "at most", 40, time_of(f"small/kernel-64/{isa}/{dtype}"), unit="ns")
    row("growth: exponent within a cache level", "not above", 1.05, steepest)
    for variable, bound in SCALE.items():
        row(f"growth with {variable}: exponent", "at most", bound, steepest_scale(variable))
    for work in ("quantize", "calibrate"):
        row(
            f"qobs {work}: private memory that a GB of model adds",
            "at most",
            0.1,
            memory_growth(work, "bytes", 1e9),
            unit="MB",
        )
        row(
            f"qobs {work}: private memory that a tensor adds",
            "at most",
            3,
            memory_growth(work, "tensors", 1e3),
            unit="KB",
        )
    row(
        "observers: private memory that 10,000 batches add",
        "at most",
        0.1,
        memory_growth("", "batches", 1e4),
        unit="MB",
    )
    return rows


def measured(results):
    """Returns (target, median, low, high, reached, where) for each target; None and False if not measured."""
    rows = []
    for t in targets(results["isa"]):
        if callable(t.source):
            found = t.source(results)
        else:
            figures = results["pairs"].get(t.source, {}).get("ratio") or results["values"].get(t.source)
            found = figures and (figures, t.source)
        if not found:
            rows.append((t, None, None, None, False, "not measured"))
            continue
        scale = {"ms": 1e-6, "ns": 1}.get(t.unit, 1)
        rows.append((t, *rules.reached([f * scale for f in found[0]], t.bound, t.kind), found[1]))
    return rows
