#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares the observers' work with torch in one process, on one thread each, in turns. Needs python3-torch.

    beside_torch.py LIBQOBS.SO OUT.json [--repetitions N] [--rows N] [--only REGEX]

Writes pairs in the form of bench-qobs: the ratios of torch's time to ours. Results are compared, too. torch 1.13's
HistogramObserver is older than the form that qobs reproduces. Every form computes the minimum, the maximum and histc of
every batch, and these are measured on their own as a lower bound.
"""
import argparse
import ctypes as c
import json
import re
import time

import numpy as np
import torch
from torch.ao.quantization import observer as ao

from qobs_library import BF16, F32, Bins, HistogramArgs, Library, MinmaxArgs, QparamBuffers, SearchArgs, view

BINS, GROUP, STEPS, GRID, PATIENCE = 2048, 128, 20, 100.0, 5

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("libqobs")
parser.add_argument("out")
parser.add_argument("--repetitions", type=int, default=9)
parser.add_argument("--rows", type=int, default=4096, help="of the weight of 4096 columns; fewer may fit a cache")
parser.add_argument("--only", default=".", help="names to run")
arguments = parser.parse_args()
torch.set_num_threads(1)
qobs = Library(arguments.libqobs)
pairs = {}


def seconds(function):
    begin = time.thread_time()
    function()
    return time.thread_time() - begin


def pair(name, theirs, ours, work, repetitions=arguments.repetitions):
    """Runs both sides in turns. work: elements, or elements times candidates."""
    if not re.search(arguments.only, name):
        return
    ours()
    times = [(seconds(theirs), seconds(ours)) for _ in range(repetitions)]
    pairs[f"pair/torch/{name}"] = {"ratio": [t / o for t, o in times], "speed": [work / o for _, o in times],
                                   "other_speed": [work / t for t, _ in times]}


def same(what, ours, theirs):
    if not np.array_equal(np.asarray(ours), np.asarray(theirs)):
        raise SystemExit(f"{what}: the results differ")


# ---- Minimum and maximum ----

generator = torch.Generator().manual_seed(1)
weight = torch.randn(arguments.rows, 4096, generator=generator) * 0.02
tensors = {"f32": (weight, view(weight.data_ptr(), F32, weight.shape), np.float32)}
halves = weight.to(torch.bfloat16)
tensors["bf16"] = (halves, view(halves.data_ptr(), BF16, halves.shape), np.uint16)


def minmax():
    reductions = {
        "tensor": ({"strategy": "tensor"}, torch.aminmax),
        "channel": ({"strategy": "channel"}, lambda x: (torch.amin(x, 1), torch.amax(x, 1))),
        "group-128": ({"group_size": "128"}, lambda x: (torch.amin(x.view(-1, GROUP), 1), torch.amax(x.view(-1, GROUP), 1))),
    }
    for dtype, (x, value, kind) in tensors.items():
        for name, (settings, theirs) in reductions.items():
            config = qobs.config("llmc.memoryless_minmax", settings)
            count = {"tensor": 1, "channel": arguments.rows, "group-128": x.numel() // GROUP}[name]
            low, high = np.zeros(count, kind), np.zeros(count, kind)
            call = MinmaxArgs(config=config, value=c.addressof(value), min=low.ctypes.data, max=high.ctypes.data, size=low.nbytes)

            def ours():
                qobs("qobs_minmax", c.byref(call))

            pair(f"minmax/{dtype}/{name}", lambda: theirs(x), ours, x.numel())
            if dtype == "f32" and re.search(arguments.only, f"minmax/{dtype}/{name}"):
                same(name, low, theirs(x)[0].flatten())


def observers():
    per_channel = {"dtype": "qint8", "qscheme": "per_channel_symmetric"}
    cases = {
        "MinMaxObserver": ({}, ao.MinMaxObserver()),
        "MovingAverageMinMaxObserver": ({}, ao.MovingAverageMinMaxObserver()),
        "PerChannelMinMaxObserver": ({"ch_axis": "0", **per_channel},
                                     ao.PerChannelMinMaxObserver(0, torch.qint8, torch.per_channel_symmetric)),
        "PerChannelMinMaxObserver-ch_axis-1": ({"ch_axis": "1", **per_channel},
                                               ao.PerChannelMinMaxObserver(1, torch.qint8, torch.per_channel_symmetric)),
    }
    x, value, _ = tensors["f32"]
    for name, (settings, theirs) in cases.items():
        mine = qobs.observer("torch." + name.split("-")[0], settings)
        if not re.search(arguments.only, f"observer/{name}"):
            continue
        pair(f"observer/{name}", lambda: theirs(x), lambda: qobs("qobs_observer_observe", mine, c.byref(value), None), x.numel())
        scale = theirs.calculate_qparams()[0].flatten()
        got = np.zeros(scale.numel(), np.float32)
        qobs("qobs_observer_read", mine, b"scale", c.c_void_p(got.ctypes.data), c.c_size_t(got.nbytes))
        same(name, got, scale)


# ---- Histograms ----

def histogram(value, lo, hi, counts):
    bins = Bins(c.sizeof(Bins), BINS, lo, hi, False, False)
    call = HistogramArgs(value=c.addressof(value), options=c.addressof(bins), counts=counts.ctypes.data, counts_size=counts.nbytes)
    qobs("qobs_histogram", c.byref(call))


def histc():
    n = 16 << 20
    gaussian = torch.randn(n, generator=generator)
    counts = np.empty(BINS, np.uint64)
    for name, x in {"gaussian": gaussian, "99-percent-zeros": gaussian * (torch.rand(n, generator=generator) < 0.01)}.items():
        lo, hi = x.min().item(), x.max().item()
        bits = (x.numpy().view(np.uint32) >> 16).astype(np.uint16)
        value, half = view(x.data_ptr(), F32, x.shape), view(bits.ctypes.data, BF16, x.shape)
        histogram(value, lo, hi, counts)
        theirs = torch.histc(x, BINS, lo, hi).numpy()
        # torch before 2 divides before it multiplies, so a few elements lie in a neighbouring bin.
        if counts.sum() != n or theirs.max() < 2**24 and np.abs(np.cumsum(counts.astype(np.int64) - theirs.astype(np.int64))).max() > n / 1000:
            raise SystemExit(f"histc, {name}: not the same histogram")
        pair(f"histc/f32/{name}", lambda: torch.histc(x, BINS, lo, hi), lambda: histogram(value, lo, hi, counts), n)
        pair(f"histc/bf16/{name}", lambda: torch.histc(x, BINS, lo, hi), lambda: histogram(half, lo, hi, counts), n)


def histogram_observer():
    def forward(views, o):
        for v in views:
            qobs("qobs_observer_observe", o, c.byref(v), None)
        return o

    def lower_bound(batches):
        for x in batches:
            lo, hi = torch.aminmax(x)
            torch.histc(x, BINS, min=lo.item(), max=hi.item())

    def torch_forward(batches, o):
        for x in batches:
            o(x)

    n = 2 << 20
    for name, growth in (("steady", 0), ("growing", 0.05)):
        batches = [torch.randn(n, generator=generator) * (1 + growth * i) for i in range(10)]
        views = [view(x.data_ptr(), F32, x.shape) for x in batches]
        ours = lambda: qobs.functions.qobs_observer_destroy(forward(views, qobs.observer("torch.HistogramObserver")))
        pair(f"HistogramObserver/forward-{name}", lambda: torch_forward(batches, ao.HistogramObserver(bins=BINS)), ours, 10 * n)
        pair(f"HistogramObserver/aminmax-and-histc-{name}", lambda: lower_bound(batches), ours, 10 * n)
    upstream, own = ao.HistogramObserver(bins=BINS), qobs.observer("torch.HistogramObserver")
    torch_forward(batches[:2], upstream)
    forward(views[:2], own)
    scale, zero_point = c.c_float(), c.c_int32()
    out = QparamBuffers(scale=c.addressof(scale), scale_size=4, zero_point=c.addressof(zero_point), zero_point_size=4)
    pair("HistogramObserver/calculate_qparams", upstream.calculate_qparams, lambda: qobs("qobs_observer_qparams", own, c.byref(out)), 1)


# ---- The search ----

def search(x, norm):
    """The mse observers' search for symmetric int4, with the tensor operations that upstream uses."""
    low, high = torch.amin(x, dim=(0, -1)), torch.amax(x, dim=(0, -1))
    best = torch.full_like(low, torch.finfo(low.dtype).max)
    best_low, best_high = low.clone(), high.clone()
    waited = 0
    for i in range(STEPS):
        p = 1 - i / GRID
        shrunk_low, shrunk_high = low * p, high * p
        amax = torch.maximum(shrunk_low.clamp(max=0).abs(), shrunk_high.clamp(min=0).abs())
        scale = amax / 7.5
        scale = torch.where(scale == 0, torch.full_like(scale, torch.finfo(scale.dtype).eps), scale).unsqueeze(-1)
        zero_point = torch.zeros_like(scale, dtype=torch.int8)
        scaled = x / scale
        scaled += zero_point.to(x.dtype)
        q = torch.round(torch.clamp(scaled, -8, 7))
        q = (q - zero_point.to(x.dtype)) * scale
        error = (q - x).abs().pow(norm).sum(dim=(0, -1))
        improved = error < best
        if improved.any():
            best[improved] = error[improved]
            best_low[improved] = shrunk_low[improved]
            best_high[improved] = shrunk_high[improved]
            waited = 0
        else:
            waited += 1
            if waited >= PATIENCE:
                break
    return best_low, best_high


def searches():
    x, _, _ = tensors["f32"]
    for norm in (2.0, 2.4, 2.7):
        config = qobs.config("llmc.memoryless_mse", {"num_bits": 4, "group_size": GROUP, "norm": f"{norm:g}"})

        def both(rows):
            part = x[:rows]
            value, groups = view(part.data_ptr(), F32, part.shape), part.reshape(1, rows, -1, GROUP)
            low, high = np.zeros(part.numel() // GROUP, np.float32), np.zeros(part.numel() // GROUP, np.float32)

            call = SearchArgs(config=config, value=c.addressof(value), min=low.ctypes.data, max=high.ctypes.data, size=low.nbytes)

            def ours():
                qobs("qobs_search", c.byref(call))
                return high

            return lambda: search(groups, norm), ours

        theirs, ours = both(min(arguments.rows, 64))
        differ = np.count_nonzero(ours() != theirs()[1].numpy().flatten())
        if differ > 2:  # of 2048: errors of some candidates agree to a few 1e-7
            raise SystemExit(f"search, norm {norm:g}: {differ} ranges differ")
        # A run takes tens of seconds, so it has fewer repetitions.
        pair(f"search/norm-{norm:g}", *both(arguments.rows), x.numel() * STEPS, max(2, arguments.repetitions // 2))


minmax()
observers()
histc()
histogram_observer()
searches()
with open(arguments.out, "w", encoding="utf-8") as out:
    json.dump({"torch": torch.__version__, "threads": torch.get_num_threads(), "isa": qobs.active(), "rows": arguments.rows,
               "pairs": pairs}, out)
