#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares observers of torch with ours in one process, on one thread each, in turns. Needs torch.

    beside_torch.py LIBQOBS.SO OUT.json [--repetitions N] [--rows N] [--only REGEX] [--isa NAME]

Writes pairs in the form of bench-qobs: the ratios of torch's time to ours. Results are compared, too.
"""

import argparse
import ctypes as c
import warnings

import numpy as np
import torch
from torch.ao.quantization import observer as ao

from pairs import Pairs, installed
from qobs_library import BF16, F32, Bins, HistogramArgs, Library, MinmaxArgs, QparamBuffers, view

BINS, GROUP = 2048, 128

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("libqobs")
Pairs.add_arguments(parser, 9)
parser.add_argument("--rows", type=int, default=4096, help="of the weight of 4096 columns; fewer may fit a cache")
parser.add_argument("--isa", help="instruction set of ours; ATEN_CPU_CAPABILITY in the environment is that of torch")
arguments = parser.parse_args()
warnings.filterwarnings("ignore")  # torch.ao announces its successor
torch.set_num_threads(1)
qobs = Library(arguments.libqobs, arguments.isa)
pairs, UPSTREAM = Pairs(arguments), installed("torch")


def pair(name, theirs, ours, work):
    pairs.turns(f"torch/{name}", UPSTREAM, theirs, ours, work)


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
        "group-128": (
            {"group_size": "128"},
            lambda x: (torch.amin(x.view(-1, GROUP), 1), torch.amax(x.view(-1, GROUP), 1)),
        ),
    }
    for dtype, (x, value, kind) in tensors.items():
        for name, (settings, theirs) in reductions.items():
            config = qobs.config("llmc.memoryless_minmax", settings)
            count = {"tensor": 1, "channel": arguments.rows, "group-128": x.numel() // GROUP}[name]
            low, high = np.zeros(count, kind), np.zeros(count, kind)
            call = MinmaxArgs(
                config=config, value=c.addressof(value), min=low.ctypes.data, max=high.ctypes.data, size=low.nbytes
            )

            def ours():
                qobs("qobs_minmax", c.byref(call))

            pair(f"minmax/{dtype}/{name}", lambda: theirs(x), ours, x.numel())
            if dtype == "f32" and pairs.wanted(f"torch/minmax/{dtype}/{name}"):
                same(name, low, theirs(x)[0].flatten())


def observers():
    per_channel = {"dtype": "qint8", "qscheme": "per_channel_symmetric"}
    cases = {
        "MinMaxObserver": ({}, ao.MinMaxObserver()),
        "MovingAverageMinMaxObserver": ({}, ao.MovingAverageMinMaxObserver()),
        "PerChannelMinMaxObserver": (
            {"ch_axis": "0", **per_channel},
            ao.PerChannelMinMaxObserver(0, torch.qint8, torch.per_channel_symmetric),
        ),
        "PerChannelMinMaxObserver-ch_axis-1": (
            {"ch_axis": "1", **per_channel},
            ao.PerChannelMinMaxObserver(1, torch.qint8, torch.per_channel_symmetric),
        ),
    }
    x, value, _ = tensors["f32"]
    for name, (settings, theirs) in cases.items():
        mine = qobs.observer("torch." + name.split("-")[0], settings)
        if not pairs.wanted(f"torch/observer/{name}"):
            continue
        pair(
            f"observer/{name}",
            lambda: theirs(x),
            lambda: qobs("qobs_observer_observe", mine, c.byref(value), None),
            x.numel(),
        )
        scale = theirs.calculate_qparams()[0].flatten()
        got = np.zeros(scale.numel(), np.float32)
        qobs("qobs_observer_read", mine, b"scale", c.c_void_p(got.ctypes.data), c.c_size_t(got.nbytes))
        same(name, got, scale)


# ---- Histograms ----


def histogram(value, lo, hi, counts):
    bins = Bins(c.sizeof(Bins), BINS, lo, hi, False, False)
    call = HistogramArgs(
        value=c.addressof(value), options=c.addressof(bins), counts=counts.ctypes.data, counts_size=counts.nbytes
    )
    qobs("qobs_histogram", c.byref(call))


def histc():
    if not pairs.wanted("torch/histc/f32/gaussian"):
        return
    n = 16 << 20
    gaussian = torch.randn(n, generator=generator)
    counts = np.empty(BINS, np.uint64)
    for name, x in {
        "gaussian": gaussian,
        "99-percent-zeros": gaussian * (torch.rand(n, generator=generator) < 0.01),
    }.items():
        lo, hi = x.min().item(), x.max().item()
        bits = (x.numpy().view(np.uint32) >> 16).astype(np.uint16)
        value, half = view(x.data_ptr(), F32, x.shape), view(bits.ctypes.data, BF16, x.shape)
        histogram(value, lo, hi, counts)
        theirs = torch.histc(x, BINS, lo, hi).numpy()
        # torch counts in float32, which stops at 2^24.
        if counts.sum() != n or theirs.max() < 2**24 and np.any(counts != theirs.astype(np.uint64)):
            raise SystemExit(f"histc, {name}: not the same histogram")
        pair(f"histc/f32/{name}", lambda: torch.histc(x, BINS, lo, hi), lambda: histogram(value, lo, hi, counts), n)
        pair(f"histc/bf16/{name}", lambda: torch.histc(x, BINS, lo, hi), lambda: histogram(half, lo, hi, counts), n)


def histogram_observer():
    def forward(views, o):
        for v in views:
            qobs("qobs_observer_observe", o, c.byref(v), None)
        return o

    def torch_forward(batches, o):
        for x in batches:
            o(x)

    if not pairs.wanted("torch/HistogramObserver/forward-steady"):
        return
    n = 2 << 20
    for name, growth in (("steady", 0), ("growing", 0.05)):
        batches = [torch.randn(n, generator=generator) * (1 + growth * i) for i in range(10)]
        views = [view(x.data_ptr(), F32, x.shape) for x in batches]
        ours = lambda: qobs.functions.qobs_observer_destroy(forward(views, qobs.observer("torch.HistogramObserver")))
        pair(
            f"HistogramObserver/forward-{name}",
            lambda: torch_forward(batches, ao.HistogramObserver(bins=BINS)),
            ours,
            10 * n,
        )
    upstream, own = ao.HistogramObserver(bins=BINS), qobs.observer("torch.HistogramObserver")
    torch_forward(batches[:2], upstream)
    forward(views[:2], own)
    scale, zero_point = c.c_float(), c.c_int32()
    out = QparamBuffers(scale=c.addressof(scale), scale_size=4, zero_point=c.addressof(zero_point), zero_point_size=4)
    qobs("qobs_qparams_from_observer", own, c.byref(out))
    same("HistogramObserver", scale.value, upstream.calculate_qparams()[0].item())
    pair(
        "HistogramObserver/calculate_qparams",
        upstream.calculate_qparams,
        lambda: qobs("qobs_qparams_from_observer", own, c.byref(out)),
        1,
    )


minmax()
observers()
histc()
histogram_observer()
pairs.write()
