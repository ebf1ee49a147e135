#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares two builds of libqobs.so in one process. Needs python3-numpy.

    beside_library.py OLD.so NEW.so [--rows N...] [--only REGEX] [--isa NAME] [--turns N]

Both libraries work on the same data on one thread. They take turns, and the one that starts alternates. A turn is a few
milliseconds of the thread's CPU time, or one call if that takes longer. Each pair of turns gives a ratio of speeds. A
longer disturbance slows both libraries, so changes of a few per cent show. Addresses of code and data are fixed for a
process: short calls of two copies of one file may differ by 1 to 3 %. A small change must show in several runs.
The exit status is 1 if NEW is slower in any case.

Items are elements. Items of searches are elements times candidates, with those that patience skips. The libraries share
what both link, such as SLEEF.
"""
import argparse
import ctypes as c
import functools
import math
import mmap
import os
import re
import shutil
import statistics
import sys
import tempfile
import time

import numpy as np

import rules
from qobs_library import BF16, F32, I8, FakeQuantizeArgs, Library, MinmaxArgs, QparamBuffers, SearchArgs, view

COLUMNS, BATCHES = 4096, 4
TURN = 3e-3  # seconds
DTYPES = {"f32": (F32, np.float32), "bf16": (BF16, np.uint16)}
INT4, ASYMMETRIC = {"num_bits": 4, "group_size": 128}, {"num_bits": 4, "group_size": 128, "symmetric": "false"}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
INPUT = {"base_name": "input", "num_bits": 8, "symmetric": "false", "strategy": "tensor"}
INT8_CHANNEL, FP8_TENSOR = {"num_bits": 8, "strategy": "channel"}, {"num_bits": 8, "type": "float",
                                                                    "strategy": "tensor"}


def load(old, new):
    """Loads both libraries. The loader recognizes a file that is already loaded, so NEW is then a copy of it."""
    old = Library(old)
    library = Library(new)
    if library.address("qobs_search") == old.address("qobs_search"):
        with tempfile.TemporaryDirectory() as directory:
            library = Library(shutil.copy(new, directory))
    if library.address("qobs_search") == old.address("qobs_search"):
        raise RuntimeError(f"{new}: the same library twice")
    return old, library


def room(count, kind):
    """Returns zeros in pages of 4 KB, as bench-qobs does."""
    memory = mmap.mmap(-1, max(1, count) * np.dtype(kind).itemsize)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, kind, count)


def pointer(array):
    return c.c_void_p(array.ctypes.data)


class Data:
    """Input as one tensor and as batches, and memory for results."""

    def __init__(self, dtype, rows):
        self.dtype, kind = DTYPES[dtype]
        self.rows, self.n, self.kind = rows, rows * COLUMNS, kind
        self.x, self.out = room(self.n, kind), room(self.n, kind)
        x = np.random.default_rng(1).standard_normal(self.n, np.float32)
        self.x[:] = x if dtype == "f32" else x.view(np.uint32) >> 16
        self.value = view(self.x.ctypes.data, self.dtype, (rows, COLUMNS))
        self.kept = []  # objects that calls point to
        step = rows // BATCHES
        self.batches = [view(self.x.ctypes.data + i * step * COLUMNS * self.x.itemsize, self.dtype, (step, COLUMNS))
                        for i in range(BATCHES)]
        self.low, self.high = room(max(self.n // 16, COLUMNS), np.float32), room(max(self.n // 16, COLUMNS), np.float32)


# ---- Cases: each makes a call from a library and data ----

def search(preset, settings):
    def make(library, data):
        config = library.config(preset, settings)
        size = library.count(config, data.value) * data.x.itemsize
        arguments = SearchArgs(config=config, value=c.addressof(data.value), min=pointer(data.low),
                               max=pointer(data.high), size=size)
        return library.bound("qobs_search", c.byref(arguments))
    return make


def minmax(settings, preset="llmc.memoryless_minmax"):
    def make(library, data):
        # A block is at most as high as the tensor.
        given = {key: setting.format(height=min(data.rows, 128)) for key, setting in settings.items()}
        config = library.config(preset, given)
        size = library.count(config, data.value) * data.x.itemsize
        arguments = MinmaxArgs(config=config, value=c.addressof(data.value), min=pointer(data.low),
                               max=pointer(data.high), size=size)
        return library.bound("qobs_minmax", c.byref(arguments))
    return make


def observer(preset, settings, batches=False, importance=False):
    """Creates an observer, observes the tensor or its batches, reads scale and zero point, destroys the observer.

    llmc's weight observers accept one tensor."""
    def make(library, data):
        config = library.config(preset, settings)
        values = [c.byref(value) for value in (data.batches if batches else [data.value])]
        handle = c.c_void_p()
        steps = [library.bound("qobs_observer_create", c.byref(handle), config, None)]
        if importance:
            steps.append(library.bound("qobs_observer_observe_importance", handle, values[0]))
        steps += [library.bound("qobs_observer_observe", handle, value, None) for value in values]
        destroy = functools.partial(library.functions.qobs_observer_destroy, handle)
        for step in steps:
            library.checked(step)
        if library.elements(handle) != data.n:
            raise RuntimeError(f"{preset}: has not taken all that it was given")
        sizes = [library.size(handle, name) for name in ("scale", "zero_point")]
        destroy()
        scale, zero_point = (c.create_string_buffer(size) for size in sizes)
        data.kept += [scale, zero_point]
        out = QparamBuffers(scale=c.addressof(scale), scale_size=sizes[0], zero_point=c.addressof(zero_point),
                            zero_point_size=sizes[1])
        steps.append(library.bound("qobs_qparams_from_observer", handle, c.byref(out)))

        def call():
            failed = 0
            for step in steps:
                failed |= step()
            destroy()
            return failed
        return call
    return make


def fake_quantize(settings, qparams, zero_points=False):
    def make(library, data):
        config = library.config("llmc.memoryless_minmax", settings)
        count = qparams(data)
        scale, zero_point = room(count, data.kind), room(count, np.int8)
        scale[:] = 2**-5 if data.dtype == F32 else 0x3d00
        zero_point[:] = 1
        scales, zeros = view(scale.ctypes.data, data.dtype, (count,)), view(zero_point.ctypes.data, I8, (count,))
        data.kept += [scale, zero_point, scales, zeros]
        arguments = FakeQuantizeArgs(config=config, value=c.addressof(data.value), scale=c.addressof(scales),
                                     zero_point=c.addressof(zeros) if zero_points else None, out=pointer(data.out),
                                     out_size=data.out.nbytes)
        return library.bound("qobs_fake_quantize", c.byref(arguments))
    return make


# By name: the function that makes the call, and items per element.
CASES = {
    "search": {
        "int4-group-128-norm-2": (search("llmc.memoryless_mse", {**INT4, "norm": 2}), 20),
        "int4-group-128-norm-2.4": (search("llmc.memoryless_mse", {**INT4, "norm": 2.4}), 20),
        "int4-asymmetric-group-128": (search("llmc.memoryless_mse", ASYMMETRIC), 20),
        "int4-group-32-norm-2": (search("llmc.memoryless_mse", {**INT4, "group_size": 32, "norm": 2}), 20),
        "nvfp4-expanded": (search("llmc.nvfp4_expanded_mse", NVFP4), 111),
        "int8-channel": (search("llmc.memoryless_mse", INT8_CHANNEL), 20),
        "fp8-tensor": (search("llmc.memoryless_mse", FP8_TENSOR), 20),
    },
    "minmax": {
        "tensor": (minmax({"strategy": "tensor"}), 1),
        "channel": (minmax({"strategy": "channel"}), 1),
        "columns": (minmax({"ch_axis": "1"}, "torch.PerChannelMinMaxObserver"), 1),
        "group-128": (minmax({"group_size": "128"}), 1),
        "group-32": (minmax({"group_size": "32"}), 1),
        "block": (minmax({"strategy": "block", "block_structure": "[{height}, 128]"}), 1),
    },
    "observer": {
        "torch.HistogramObserver": (observer("torch.HistogramObserver", {}, batches=True), 1),
        "llmc.memoryless_minmax": (observer("llmc.memoryless_minmax", INT4), 1),
        "llmc.static_minmax": (observer("llmc.static_minmax", INPUT, batches=True), 1),
        "llmc.minmax": (observer("llmc.minmax", INPUT, batches=True), 1),
        "llmc.memoryless_mse": (observer("llmc.memoryless_mse", INT4), 20),
        "llmc.mse": (observer("llmc.mse", {**INT4, "base_name": "weight"}), 20),
        "llmc.imatrix_mse": (observer("llmc.imatrix_mse", INT4, importance=True), 20),
        "llmc.nvfp4_expanded_mse": (observer("llmc.nvfp4_expanded_mse", NVFP4), 111),
    },
    "fake-quantize": {
        "int4-group-128": (fake_quantize(INT4, lambda data: data.n // 128), 1),
        "int4-asymmetric-group-128": (fake_quantize(ASYMMETRIC, lambda data: data.n // 128, zero_points=True), 1),
        "int8-channel": (fake_quantize(INT8_CHANNEL, lambda data: data.rows), 1),
        "fp8-tensor": (fake_quantize(FP8_TENSOR, lambda data: 1), 1),
    },
}


def named_cases(dtype, rows):
    return {f"{kind}/{dtype}/{name}/{rows}x{COLUMNS}": case for kind, cases in CASES.items() for name,
            case in cases.items()}


# ---- Turns ----

def seconds(call, calls):
    begin = time.thread_time()
    for _ in range(calls):
        call()
    return time.thread_time() - begin


def take_turns(old, new, turns):
    """Returns one pair of seconds per call, old and new, for each turn."""
    sides = old, new
    calls = max(1, math.ceil(TURN / max(seconds(new, 1), 1e-7)))
    calls = max(1, math.ceil(TURN / max(seconds(new, calls) / calls, 1e-7)))  # the first call may be slow
    pairs = []
    for turn in range(-2, turns):
        took = [0.0, 0.0]
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            took[side] = seconds(sides[side], calls) / calls
        if turn >= 0:
            pairs.append(took)
    return pairs


def fitting_rows():
    """Returns the rows that fill a quarter of the second-level cache. Results then fit as well."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index2/size", encoding="ascii") as file:
            size = int(file.read().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        size = 1 << 20
    return max(1, size // 4 // (COLUMNS * 4) // BATCHES) * BATCHES


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rows", type=int, nargs="+", default=[fitting_rows(), 4096],
                        help=f"of {COLUMNS} columns, multiples of {BATCHES} (%(default)s: second-level cache and "
                             "memory)")
    parser.add_argument("--only", default=".", help="names to run")
    parser.add_argument("--isa", help="instruction set of both (the best)")
    parser.add_argument("--turns", type=int, default=100, help="of each (%(default)s)")
    arguments = parser.parse_args()
    if arguments.turns < 1 or any(rows < BATCHES or rows % BATCHES for rows in arguments.rows):
        parser.error(f"--turns: at least 1; --rows: multiples of {BATCHES}")
    libraries = load(os.path.abspath(arguments.old), os.path.abspath(arguments.new))
    if arguments.isa:
        for library in libraries:
            library("qobs_isa_select", arguments.isa.encode())

    print(f"{arguments.turns} turns each, {' and '.join(library.active() for library in libraries)}\n")
    print(f"{'case':56} {'old, M/s':>10} {'new, M/s':>10} {'new/old speed':>13}   99 % interval   verdict")
    verdicts = []
    for rows in arguments.rows:
        for dtype in DTYPES:
            wanted = {name: case for name, case in named_cases(dtype, rows).items() if re.search(arguments.only, name)}
            data = Data(dtype, rows) if wanted else None
            for name, (make, items) in wanted.items():
                pairs = take_turns(*(library.checked(make(library, data)) for library in libraries), arguments.turns)
                ratios = [old / new for old, new in pairs]
                low, high = rules.median_interval(ratios, 0.99)
                old, new = (items * data.n / statistics.median(side) * 1e-6 for side in zip(*pairs))
                verdicts.append(rules.change(ratios))
                print(f"{name:56} {old:10.1f} {new:10.1f} {statistics.median(ratios):13.3f}"
                      f"   {low:.3f} - {high:.3f}   {verdicts[-1]}", flush=True)
    if not verdicts:
        parser.error(f"no case matches {arguments.only}")
    print("\n" + rules.tally(verdicts))
    return 1 if "slower" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
