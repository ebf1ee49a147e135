#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Histograms beside torch's, in one process and one thread each.

    torch_histogram.py LIBQOBS.SO [--elements N] [--repetitions N]

Prints the median time of torch.histc and of qobs_histogram over 2048 bins of a known range, of ten batches through
torch.ao.quantization.HistogramObserver (and of the aminmax and histc that every form of its forward makes, as a lower bound
for newer ones than the installed) and through qobs's, and of calculate_qparams. Counts are compared on the way: torch before 2
divides before it multiplies, so a few elements lie in a neighbouring bin.
"""
import argparse
import ctypes as c
import statistics
import time

import numpy as np
import torch
from torch.ao.quantization.observer import HistogramObserver

BINS = 2048
F32, BF16 = 1, 2


class Tensor(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("data", c.c_void_p), ("dtype", c.c_int), ("ndim", c.c_int),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64))]


class Bins(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("count", c.c_int64), ("min", c.c_float), ("max", c.c_float),
                ("magnitude", c.c_bool), ("skip_zeros", c.c_bool)]


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("message", c.c_char * 252)]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("libqobs")
parser.add_argument("--elements", type=int, default=16 << 20)
parser.add_argument("--repetitions", type=int, default=7)
arguments = parser.parse_args()
qobs = c.CDLL(arguments.libqobs)
qobs.qobs_isa_active.restype = c.c_char_p
error = Error()
torch.set_num_threads(1)


def view(data, dtype):
    shape = (c.c_int64 * 1)(data.size)
    return Tensor(c.sizeof(Tensor), data.ctypes.data, dtype, 1, shape, None)


def check(status):
    assert status == 0, error.message


def histogram(value, lo, hi):
    counts = np.empty(BINS, np.uint64)
    bins = Bins(c.sizeof(Bins), BINS, lo, hi, False, False)
    check(qobs.qobs_histogram(None, c.byref(value), None, c.byref(bins), c.c_void_p(counts.ctypes.data), None, None, None, None,
                              c.byref(error)))
    return counts


def observer():
    config, o = c.c_void_p(), c.c_void_p()
    check(qobs.qobs_config_create(c.byref(config), b"torch.HistogramObserver", None, c.byref(error)))
    check(qobs.qobs_observer_create(c.byref(o), config, None, c.byref(error)))
    qobs.qobs_config_destroy(config)
    return o


def seconds(f):
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def beside(name, unit, theirs, ours):
    """Alternating runs; the ratio of medians."""
    times = [(seconds(theirs), seconds(ours)) for _ in range(arguments.repetitions)]
    a, b = (statistics.median(t) for t in zip(*times))
    print(f"{name:44} torch {a * 1e3:9.2f} ms   qobs {b * 1e3:9.3f} ms   {a / b:7.1f} x" +
          (f"   {unit / a * 1e-9:5.2f} and {unit / b * 1e-9:5.2f} Gelem/s" if unit else ""))


generator = torch.Generator().manual_seed(1)
n = arguments.elements
gaussian = torch.randn(n, generator=generator)
data = {"gaussian": gaussian, "99 % zeros": gaussian * (torch.rand(n, generator=generator) < 0.01),
        "ReLU of gaussian": gaussian.clamp(min=0)}
print(f"torch {torch.__version__}, qobs {qobs.qobs_isa_active().decode()}, {n} elements, {BINS} bins")
for name, x in data.items():
    lo, hi = x.min().item(), x.max().item()
    value, bits = view(x.numpy(), F32), (x.numpy().view(np.uint32) >> 16).astype(np.uint16)
    ours, theirs = histogram(value, lo, hi), torch.histc(x, BINS, lo, hi).numpy()
    assert ours.sum() == n
    if theirs.max() < 2**24:
        assert np.abs(np.cumsum(ours.astype(np.int64) - theirs.astype(np.int64))).max() <= n / 1000, "not the same histogram"
    beside(f"histc, {name}, f32", n, lambda: torch.histc(x, BINS, lo, hi), lambda: histogram(value, lo, hi))
    half = view(bits, BF16)
    beside(f"histc, {name}, bf16 beside torch's f32", n, lambda: torch.histc(x, BINS, lo, hi), lambda: histogram(half, lo, hi))

def torch_forward(batches, o):
    for x in batches:
        o(x)


def torch_lower_bound(batches):
    for x in batches:
        lo, hi = torch.aminmax(x)
        torch.histc(x, BINS, min=lo.item(), max=hi.item())


def forward(views, o):
    for v in views:
        check(qobs.qobs_observer_observe(o, c.byref(v), None, c.byref(error)))


for name, growth in (("of one distribution", 0), ("each wider than the last", 0.05)):
    batches = [torch.randn(n // 8, generator=generator) * (1 + growth * i) for i in range(10)]
    views = [view(x.numpy(), F32) for x in batches]
    beside(f"forward, 10 batches {name}", 10 * (n // 8), lambda: torch_forward(batches, HistogramObserver(bins=BINS)),
           lambda: forward(views, observer()))
    beside("  the same beside aminmax and histc alone", 10 * (n // 8), lambda: torch_lower_bound(batches),
           lambda: forward(views, observer()))
upstream, own = HistogramObserver(bins=BINS), observer()
torch_forward(batches, upstream)
forward(views, own)
scale, zero_point = c.c_float(), c.c_int32()


def qparams():
    check(qobs.qobs_observer_qparams(own, c.byref(scale), c.c_size_t(4), c.byref(zero_point), c.c_size_t(4), c.byref(error)))


beside("calculate_qparams", 0, upstream.calculate_qparams, qparams)
