#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch's observers beside ours on a 4096x4096 f32 weight, one thread, in one process, in turns.

    torch_minmax.py LIBQOBS.SO [--repetitions N] [--rows N] [--columns N]

Needs python3-torch. Prints, for each observer, the median time of a batch and how many times faster ours is; the results are
compared, too.
"""
import argparse
import ctypes
import statistics
import time

import torch
from torch.ao.quantization import observer as ao

parser = argparse.ArgumentParser()
parser.add_argument("libqobs")
parser.add_argument("--repetitions", type=int, default=9)
parser.add_argument("--rows", type=int, default=4096)
parser.add_argument("--columns", type=int, default=4096)
arguments = parser.parse_args()
torch.set_num_threads(1)
library = ctypes.CDLL(arguments.libqobs)


class Tensor(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("ndim", ctypes.c_int),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64))]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 252)]


def call(name, *args):
    error = Error()
    if getattr(library, name)(*args, ctypes.byref(error)) != 0:
        raise SystemExit(f"{name}: {error.message.decode()}")


def ours(preset, settings):
    config, observer = ctypes.c_void_p(), ctypes.c_void_p()
    call("qobs_config_create", ctypes.byref(config), preset.encode(), None)
    for key, value in settings.items():
        call("qobs_config_set", config, key.encode(), value.encode())
    call("qobs_observer_create", ctypes.byref(observer), config, None)
    return observer


def timed(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


generator = torch.Generator().manual_seed(1)
weight = torch.randn(arguments.rows, arguments.columns, generator=generator)
shape = (ctypes.c_int64 * 2)(*weight.shape)
view = Tensor(ctypes.sizeof(Tensor), weight.data_ptr(), 1, 2, shape, None)
cases = [("PerChannelMinMaxObserver", {"ch_axis": "0", "dtype": "qint8", "qscheme": "per_channel_symmetric"},
          ao.PerChannelMinMaxObserver(ch_axis=0, dtype=torch.qint8, qscheme=torch.per_channel_symmetric)),
         ("PerChannelMinMaxObserver, ch_axis 1", {"ch_axis": "1", "dtype": "qint8", "qscheme": "per_channel_symmetric"},
          ao.PerChannelMinMaxObserver(ch_axis=1, dtype=torch.qint8, qscheme=torch.per_channel_symmetric)),
         ("MinMaxObserver", {}, ao.MinMaxObserver())]
print("| observer | torch, ms | qobs, ms | times faster |\n|---|---|---|---|")
for name, settings, theirs in cases:
    mine = ours("torch." + name.split(",")[0], settings)
    torch_times, our_times = [], []
    for _ in range(arguments.repetitions):
        torch_times.append(timed(lambda: theirs(weight)))
        our_times.append(timed(lambda: call("qobs_observer_observe", mine, ctypes.byref(view), None)))
    scale, zero_point = theirs.calculate_qparams()
    got = (ctypes.c_float * scale.numel())()
    call("qobs_observer_read", mine, b"scale", got, ctypes.c_size_t(ctypes.sizeof(got)))
    if list(got) != scale.flatten().tolist():
        raise SystemExit(f"{name}: the scales differ")
    a, b = statistics.median(torch_times), statistics.median(our_times)
    print(f"| {name} | {a * 1e3:.2f} | {b * 1e3:.2f} | {a / b:.1f} |")
