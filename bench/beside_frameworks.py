#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Times Python calls: functions of frameworks with and without the drop-ins, and libqobs.Observer beside upstream's, in
turns in one process, on one thread; small calls beside the bare C function.

    beside_frameworks.py OUT.json [--repetitions N] [--only REGEX] [--rows N] [--isa NAME]

Needs the package qobs and torch. Cases of frameworks that are not installed are left out. Small calls are microseconds
more than the bare call. ATEN_CPU_CAPABILITY in the environment is the instruction set of torch, --isa that of qobs.
"""

import argparse
import copy
import ctypes
import importlib.util
import os
import statistics
import warnings

import libqobs as qobs
import torch
from libqobs import _library as c

from pairs import Pairs, installed, seconds

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
Pairs.add_arguments(parser, 5)
parser.add_argument("--isa", help="instruction set of qobs")
parser.add_argument("--rows", type=int, default=4096, help="of the weight of 4096 columns (%(default)s)")
arguments = parser.parse_args()
pairs = Pairs(arguments)
GENERATOR = torch.Generator().manual_seed(0)
W4 = {"num_bits": 4, "strategy": "group", "group_size": 128}


def beside(name, upstream, dropin, function, work, repetitions=None):
    """A function of upstream without and with a drop-in, in turns. The drop-in must serve every call."""
    if not pairs.wanted(name):
        return
    times = []
    function()
    for _ in range(repetitions or arguments.repetitions):
        without = seconds(function)
        dropin.install(strict=True)
        before = qobs.dropin_calls()
        times.append((without, seconds(function)))
        served = {k for k, n in qobs.dropin_calls().items() if n != before.get(k, 0)}
        dropin.uninstall()
        if not served or any(k.endswith((" declined", " failed")) for k in served):
            raise SystemExit(f"{name}: not served by the drop-in: {served}")
    pairs.add(name, upstream, times, work)


def batches(growing, count=10):
    return [torch.randn(1 << 20, generator=GENERATOR) * (1 + 0.3 * i * growing) for i in range(count)]


def llmcompressor():
    from compressed_tensors.quantization import QuantizationArgs
    from llmcompressor.observers import Observer
    from libqobs import llmcompressor as dropin

    def case(observer, dtype, label, repetitions=None, work=1):
        weight = (torch.randn(arguments.rows, 4096, generator=GENERATOR) * 0.02).to(dtype)

        def run():
            made = Observer.load_from_registry(
                observer, base_name="weight", args=QuantizationArgs(observer=observer, **W4)
            )
            made(weight)
            made.get_qparams()

        beside(
            f"dropin/llmcompressor/{observer}/{label}",
            installed("llmcompressor"),
            dropin,
            run,
            weight.numel() * work,
            repetitions,
        )

    case("memoryless_minmax", torch.bfloat16, "bf16-int4-group-128")
    few = max(1, arguments.repetitions // 2)  # a call of upstream takes seconds
    case("memoryless_mse", torch.float32, "f32-int4-group-128", few, 20)
    case("memoryless_mse", torch.bfloat16, "bf16-int4-group-128", few, 20)


def torch_ao():
    from libqobs import torch_ao as dropin
    from torch.ao.quantization import HistogramObserver, PerChannelMinMaxObserver

    upstream = installed("torch")
    for label, growing in (("growing", True), ("steady", False)):
        values = batches(growing)

        def theirs():
            observer = HistogramObserver()
            for x in values:
                observer(x)
            return observer.calculate_qparams()

        def ours():
            observer = qobs.Observer("torch.HistogramObserver", qscheme="per_tensor_affine")
            for x in values:
                observer.observe(x)
            return observer.qparams()

        beside(f"dropin/torch/HistogramObserver-{label}", upstream, dropin, theirs, 10 << 20)
        if pairs.wanted(f"python/torch/HistogramObserver-{label}") and theirs()[0] != ours().scale:
            raise SystemExit("HistogramObserver: the scales differ")
        pairs.turns(f"python/torch/HistogramObserver-{label}", upstream, theirs, ours, 10 << 20)
    x, observer = torch.randn(64, 128, 28, 28, generator=GENERATOR), PerChannelMinMaxObserver(ch_axis=1)
    beside("dropin/torch/PerChannelMinMaxObserver-64x128x28x28", upstream, dropin, lambda: observer(x), x.numel())


def modelopt():
    from modelopt.torch.quantization.calib import HistogramCalibrator
    from libqobs import modelopt as dropin

    upstream, values = installed("nvidia-modelopt"), batches(True, 5)

    def collect():
        calibrator = HistogramCalibrator()
        for x in values:
            calibrator.collect(x)

    beside("dropin/modelopt/HistogramCalibrator-5-batches", upstream, dropin, collect, 5 << 20)
    calibrator = HistogramCalibrator()
    calibrator.collect(values[0])
    beside(
        "dropin/modelopt/entropy-stride-8", upstream, dropin, lambda: calibrator.compute_amax("entropy", stride=8), 1
    )
    local_hessian(upstream, dropin)


def local_hessian(upstream, dropin):
    """mtq.quantize of a layer: two passes of 512 tokens, the largest magnitudes and the search of the weight."""
    import modelopt.torch.quantization as mtq

    layer, candidates = torch.nn.Linear(4096, arguments.rows, bias=False), 39
    tokens = torch.randn(512, 4096, generator=GENERATOR)
    few = max(1, arguments.repetitions // 2)  # a call of upstream takes seconds

    def case(label, **quantizer):
        config = {
            "quant_cfg": [
                {"quantizer_name": "*", "enable": False},
                {"quantizer_name": "*weight_quantizer", "cfg": quantizer},
            ],
            "algorithm": {"method": "local_hessian", "fp8_scale_sweep": False},
        }

        def run():
            mtq.quantize(copy.deepcopy(layer), config, lambda model: model(tokens))

        work = layer.weight.numel() * candidates
        beside(f"dropin/modelopt/local-hessian-{label}", upstream, dropin, run, work, few)

    case("int8-channel", num_bits=8, axis=0)
    case("int4-block-128", num_bits=4, block_sizes={-1: 128})


def quark():
    """The scales of MX blocks of 1024 x 1024: the magnitudes in shared buffers, and the search."""
    from libqobs import quark as dropin
    from quark.torch.quantization.config.config import QTensorConfig
    from quark.torch.quantization.config.type import Dtype, QSchemeType
    from quark.torch.quantization.observer import observer

    upstream = installed("amd-quark")

    def case(label, name):
        cls = getattr(observer, name)
        config = QTensorConfig(
            observer_cls=cls,
            dtype=Dtype.fp4,
            qscheme=QSchemeType.per_group,
            ch_axis=-1,
            group_size=32,
            scale_format="e8m0",
            scale_calculation_mode="even",
            symmetric=True,
        )
        for dtype in (torch.float32, torch.bfloat16):
            x, made = torch.randn(1024, 1024, generator=GENERATOR).to(dtype), cls(config)
            made(x)
            run = (lambda: made(x)) if label == "forward" else (lambda: made.calculate_qparams())
            beside(f"dropin/quark/{name}-{label}/{str(dtype)[6:]}", upstream, dropin, run, x.numel())

    case("forward", "PerBlockMXBufferReuseObserver")
    case("search", "PerBlockMXDiffsObserver")


# ---- Small calls ----


def small(function):
    """Microseconds of a call, the median of many medians."""

    def some():
        for _ in range(2000):
            function()

    return statistics.median(seconds(some) for _ in range(15)) / 2000 * 1e6


def above_bare():
    """qobs.minmax of 768 floats beside the C function with structures that are made once."""
    x, low, high = torch.randn(768), torch.empty(()), torch.empty(())
    shape = (ctypes.c_int64 * 1)(768)
    tensor = c.Tensor(ctypes.sizeof(c.Tensor), x.data_ptr(), c.F32, 1, ctypes.addressof(shape), None)
    axes, error = (ctypes.c_int * 1)(), c.ErrorText()
    args = c.MinmaxArgs(
        ctypes.sizeof(c.MinmaxArgs),
        None,
        ctypes.addressof(tensor),
        None,
        ctypes.addressof(axes),
        0,
        low.data_ptr(),
        high.data_ptr(),
        4,
    )
    pointers = ctypes.byref(args), ctypes.byref(error)
    bare, whole = small(lambda: c.lib.minmax(*pointers)), small(lambda: qobs.minmax(x))
    if (low, high) != tuple(qobs.minmax(x)):
        raise SystemExit("qobs.minmax: the results differ")
    return whole - bare


def declined():
    """MinMaxObserver of 768 floats without and with the drop-in, which declines."""
    from libqobs import torch_ao as dropin
    from torch.ao.quantization import MinMaxObserver

    x, observer = torch.randn(768), MinMaxObserver()
    without = small(lambda: observer(x))
    dropin.install()
    with_dropin = small(lambda: observer(x))
    dropin.uninstall()
    return with_dropin - without


CASES = {"llmcompressor": llmcompressor, "torch": torch_ao, "modelopt": modelopt, "quark": quark}
SMALL = {"python-minmax-768": above_bare, "python-declined-768": declined}


def main():
    torch.set_num_threads(1)
    error = c.ErrorText()
    if arguments.isa and c.lib.isa_select(arguments.isa.encode(), ctypes.byref(error)):
        raise SystemExit(f"--isa {arguments.isa}: not usable here")
    for package, cases in CASES.items():
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not installed: its calls are left out")
        else:
            cases()
    for name, function in SMALL.items():
        if pairs.wanted(name):
            pairs.values[name] = [function() for _ in range(3)]
            print(f"{name:52} {pairs.values[name][1]:.2f} us more")
    pairs.write()


if __name__ == "__main__":
    main()
