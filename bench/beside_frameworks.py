#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Times frameworks with and without the drop-ins: upstream's own function and qobs take turns in one process, on one
thread.

    beside_frameworks.py [--quick] [CASE ...]

Prints a table: seconds of upstream and of qobs (medians), their ratio and the ratio that is the goal; for small calls
microseconds above the bare C function. Cases of frameworks that are not installed are left out. --quick: smaller
weights. Exit status 1 if a goal is missed."""
import argparse
import ctypes
import importlib.util
import statistics
import sys
import time

import qobs
import torch
from qobs import _library as c

GENERATOR = torch.Generator().manual_seed(0)


def seconds(function, rounds):
    """The median processor time of a call, which other programs hardly change."""
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        function()
        times.append(time.thread_time() - start)
    return statistics.median(times)


def beside(dropin, function, rounds, upstream_rounds=None):
    """Seconds of a function of upstream, without and with a drop-in, in turns."""
    times = [], []
    function()  # warm up
    for _ in range(rounds):
        if len(times[0]) < (upstream_rounds or rounds):
            times[0].append(seconds(function, 1))
        dropin.install(strict=True)
        before = qobs.dropin_calls()
        times[1].append(seconds(function, 1))
        served = {k for k, n in qobs.dropin_calls().items() if n != before.get(k, 0)}
        dropin.uninstall()
        assert served and not any(k.endswith((" declined", " failed")) for k in served), served
    return statistics.median(times[0]), statistics.median(times[1])


def llmc(observer, dtype, size, **args):
    from compressed_tensors.quantization import QuantizationArgs
    from llmcompressor.observers import Observer
    from qobs import llmcompressor as dropin
    made = Observer.load_from_registry(observer, base_name="weight", args=QuantizationArgs(observer=observer, **args))
    weight = (torch.randn(size, size, generator=GENERATOR) * 0.02).to(dtype)

    def run(rows=size):
        made(weight[:rows])
        made.get_qparams()
    run(64)  # warm up: a call of upstream on everything takes half a minute
    upstream = seconds(run, 1)
    dropin.install(strict=True)
    ours = seconds(run, 5)
    dropin.uninstall()
    return upstream, ours


W4 = {"num_bits": 4, "strategy": "group", "group_size": 128}


def batches(growing):
    return [torch.randn(1 << 20, generator=GENERATOR) * (1 + 0.3 * i * growing) for i in range(10)]


def histogram(growing):
    from qobs import torch_ao as dropin
    from torch.ao.quantization import HistogramObserver
    values = batches(growing)

    def run():
        observer = HistogramObserver()
        for x in values:
            observer(x)
        observer.calculate_qparams()
    return beside(dropin, run, 7)


def histogram_observer(growing):
    from torch.ao.quantization import HistogramObserver
    values = batches(growing)

    def upstream():
        observer = HistogramObserver()
        for x in values:
            observer(x)
        return observer.calculate_qparams()

    def ours():
        observer = qobs.Observer("torch.HistogramObserver", qscheme="per_tensor_affine")
        for x in values:
            observer.observe(x)
        return observer.qparams()
    assert upstream()[0] == ours().scale
    pairs = [(seconds(upstream, 1), seconds(ours, 1)) for _ in range(7)]
    return [statistics.median(p) for p in zip(*pairs, strict=True)]


def entropy():
    from modelopt.torch.quantization.calib import HistogramCalibrator
    from qobs import modelopt as dropin
    calibrator = HistogramCalibrator()
    calibrator.collect(torch.randn(1 << 20, generator=GENERATOR))
    return beside(dropin, lambda: calibrator.compute_amax("entropy", stride=8), 3)


def modelopt_histogram():
    from modelopt.torch.quantization.calib import HistogramCalibrator
    from qobs import modelopt as dropin
    values = batches(True)[:5]

    def run():
        calibrator = HistogramCalibrator()
        for x in values:
            calibrator.collect(x)
    return beside(dropin, run, 5)


def per_channel():
    from qobs import torch_ao as dropin
    from torch.ao.quantization import PerChannelMinMaxObserver
    x, observer = torch.randn(64, 128, 28, 28, generator=GENERATOR), PerChannelMinMaxObserver(ch_axis=1)
    return beside(dropin, lambda: observer(x), 9)


def small(function):
    """Microseconds of a call, the median of many medians."""
    def batch():
        for _ in range(2000):
            function()
    return seconds(batch, 15) / 2000 * 1e6


def above_bare():
    """qobs.minmax of 768 floats beside the C function with structures that are made once."""
    x, low, high = torch.randn(768), torch.empty(()), torch.empty(())
    shape = (ctypes.c_int64 * 1)(768)
    tensor = c.Tensor(ctypes.sizeof(c.Tensor), x.data_ptr(), c.F32, 1, ctypes.addressof(shape), None)
    axes, error = (ctypes.c_int * 1)(), c.ErrorText()
    args = c.MinmaxArgs(ctypes.sizeof(c.MinmaxArgs), None, ctypes.addressof(tensor), None, ctypes.addressof(axes), 0,
                        low.data_ptr(), high.data_ptr(), 4)
    pointers = ctypes.byref(args), ctypes.byref(error)
    bare, whole = small(lambda: c.lib.minmax(*pointers)), small(lambda: qobs.minmax(x))
    assert (low, high) == tuple(qobs.minmax(x))
    return bare, whole


def declined():
    """MinMaxObserver of 768 floats without and with the drop-in, which declines."""
    from qobs import torch_ao as dropin
    from torch.ao.quantization import MinMaxObserver
    x, observer = torch.randn(768), MinMaxObserver()
    without = small(lambda: observer(x))
    dropin.install()
    with_dropin = small(lambda: observer(x))
    dropin.uninstall()
    return without, with_dropin


SIZE = 4096
# name: framework, function, goal
CASES = {
    "llm-compressor memoryless_mse W4A16 float32": ("llmcompressor", lambda: llmc("memoryless_mse", torch.float32, SIZE, **W4), 60),
    "llm-compressor memoryless_mse W4A16 bfloat16": ("llmcompressor", lambda: llmc("memoryless_mse", torch.bfloat16, SIZE, **W4), 30),
    "llm-compressor memoryless_minmax W4A16 bfloat16": (
        "llmcompressor", lambda: llmc("memoryless_minmax", torch.bfloat16, SIZE, **W4), None),
    "torch.ao HistogramObserver, 10 x 1 M, range grows": ("torch", lambda: histogram(True), 8),
    "torch.ao HistogramObserver, 10 x 1 M, one law": ("torch", lambda: histogram(False), 8),
    "the same as qobs.Observer, range grows": ("torch", lambda: histogram_observer(True), 20),
    "the same as qobs.Observer, one law": ("torch", lambda: histogram_observer(False), 20),
    "torch.ao PerChannelMinMaxObserver 64x128x28x28": ("torch", per_channel, None),
    "Model-Optimizer HistogramCalibrator, 5 x 1 M": ("modelopt", modelopt_histogram, None),
    "Model-Optimizer entropy, 2048 bins, stride 8": ("modelopt", entropy, 80),
}
SMALL = {"qobs.minmax of 768 floats": (above_bare, 6), "MinMaxObserver of 768 floats, declined": (declined, 3)}


def main():
    global SIZE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="parts of the names of cases")
    given = parser.parse_args()
    SIZE = 1024 if given.quick else 4096
    torch.set_num_threads(1)
    missed = 0
    wanted = lambda name: not given.cases or any(part in name for part in given.cases)  # noqa: E731
    print(f"{'case':52} {'upstream':>10} {'qobs':>10} {'ratio':>7} {'goal':>5}")
    for name, (framework, function, goal) in CASES.items():
        if not wanted(name) or importlib.util.find_spec(framework) is None:
            continue
        upstream, ours = function()
        missed += goal is not None and upstream / ours < goal
        print(f"{name:52} {upstream * 1e3:7.1f} ms {ours * 1e3:7.2f} ms {upstream / ours:7.1f} {goal or '':>5}", flush=True)
    print(f"{'call':52} {'without':>10} {'with':>10} {'more':>7} {'goal':>5}")
    for name, (function, goal) in SMALL.items():
        if wanted(name):
            before, after = function()
            missed += after - before > goal
            print(f"{name:52} {before:7.2f} us {after:7.2f} us {after - before:7.2f} {goal:>5}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
