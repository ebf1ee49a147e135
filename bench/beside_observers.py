#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares whole observers of the frameworks with ours in one process, on one thread each, in turns.

    beside_observers.py LIBQOBS.SO OUT.json [--repetitions N] [--only REGEX] [--isa NAME]

A call makes an observer, gives it a weight or ten batches, and reads scale and zero point. Scales are compared. Cases
of frameworks that are not installed are left out: llm-compressor, torchao, ONNX Runtime, Model-Optimizer, AMD Quark.
"""

import argparse
import contextlib
import ctypes as c
import importlib.util
import io
import os
import warnings

import numpy as np
import torch

from pairs import Pairs, installed
from qobs_library import BF16, F32, Library, view

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("libqobs")
Pairs.add_arguments(parser, 5)
parser.add_argument("--isa", help="instruction set of ours; ATEN_CPU_CAPABILITY in the environment is that of torch")
parser.add_argument("--rows", type=int, default=1024, help="of the weight of 4096 columns (%(default)s)")
parser.add_argument("--search-rows", type=int, default=4096, help="of weights that are searched (%(default)s)")
arguments = parser.parse_args()
torch.set_num_threads(1)
qobs, pairs = Library(arguments.libqobs, arguments.isa), Pairs(arguments)
generator = torch.Generator().manual_seed(1)
DTYPES = {torch.float32: F32, torch.bfloat16: BF16}


def weight(dtype, rows=None):
    return (torch.randn(rows or arguments.rows, 4096, generator=generator) * 0.02).to(dtype)


def batches(count=10, elements=1 << 20):
    return [torch.randn(256, elements // 256, generator=generator) for _ in range(count)]


def ours(preset, settings, values, result="scale"):
    """Returns a function that observes all values and returns the result, of the dtype of the last call."""
    views = [view(x.data_ptr(), DTYPES[x.dtype], x.shape) for x in values]
    config, room = qobs.config(preset, settings), [None]

    def run():
        observer = c.c_void_p()
        qobs("qobs_observer_create", c.byref(observer), config, None)
        for v in views:
            qobs("qobs_observer_observe", observer, c.byref(v), None)
        if room[0] is None:
            room[0] = np.zeros(qobs.size(observer, result), np.uint8)
        qobs(
            "qobs_observer_read",
            observer,
            result.encode(),
            room[0].ctypes.data_as(c.c_void_p),
            c.c_size_t(room[0].nbytes),
        )
        qobs.functions.qobs_observer_destroy(observer)
        return room[0]

    return run


def compare(name, upstream, theirs, mine, work, repetitions=None, within=0, search=False):
    """theirs returns the scale, which must have the bits of ours. within: relative difference, where
    docs/differences.md has one. search: 1 in 1,000 may differ, because errors of two candidates agree to a few 1e-7."""
    if not pairs.wanted(name):
        return
    wanted, got = theirs(), mine().copy()
    wanted = (
        wanted.detach().contiguous().flatten() if torch.is_tensor(wanted) else torch.from_numpy(np.atleast_1d(wanted))
    )
    got = torch.from_numpy(got).view(wanted.dtype)
    if wanted.shape != got.shape:
        raise SystemExit(f"{name}: {wanted.numel()} results, ours are {got.numel()}")
    differ = torch.count_nonzero((wanted.double() - got.double()).abs() > within * wanted.double().abs()).item()
    if differ > (wanted.numel() // 1000 if search else 0):
        raise SystemExit(f"{name}: {differ} of {wanted.numel()} results differ")
    pairs.turns(name, upstream, theirs, mine, work, repetitions=repetitions)


# ---- Frameworks ----

W4 = {"num_bits": 4, "strategy": "group", "group_size": 128}
INPUT = {"num_bits": 8, "symmetric": False, "strategy": "tensor"}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}


def llmcompressor():
    from compressed_tensors.quantization import QuantizationArgs
    from llmcompressor.observers import Observer

    upstream = installed("llmcompressor")

    def case(label, observer, values, args, work, base_name="weight", **search):
        def theirs():
            made = Observer.load_from_registry(observer, base_name=base_name, args=QuantizationArgs(**args), **search)
            for x in values:
                made(x)
            return next(v for name, v in made.get_qparams().items() if name.endswith("scale") and v is not None)

        settings = {k: str(v).lower() for k, v in (args | search | {"base_name": base_name}).items()}
        compare(
            f"llmcompressor/{observer}/{label}",
            upstream,
            theirs,
            ours("llmc." + observer, settings, values),
            work,
            repetitions=max(2, arguments.repetitions // 2) if search else None,
            search=bool(search),
        )

    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        x = [weight(dtype)]
        case(f"{name}-int4-group-128", "memoryless_minmax", x, W4, x[0].numel())
        x = [weight(dtype, arguments.search_rows)]
        for norm in (2, 2.4, 2.7) if dtype == torch.float32 else (2.4,):
            case(f"{name}-int4-group-128-norm-{norm}", "memoryless_mse", x, W4, x[0].numel() * 20, norm=norm)
    values = batches()
    for observer in ("static_minmax", "minmax"):
        case("int8-tensor-10-batches", observer, values, INPUT, 10 << 20, base_name="input")


def torchao():
    from torchao.quantization import observer
    from torchao.quantization.granularity import PerGroup, PerTensor
    from torchao.quantization.quant_primitives import MappingType

    upstream = installed("torchao")

    def case(label, granularity, settings, values):
        def theirs():
            made = observer.AffineQuantizedMinMaxObserver(MappingType.SYMMETRIC, torch.int8, granularity)
            for x in values:
                made(x)
            return made.calculate_qparams()[0]

        mine = ours(
            "torchao.AffineQuantizedMinMaxObserver",
            {"mapping_type": "SYMMETRIC", "target_dtype": "int8"} | settings,
            values,
        )
        compare(
            f"torchao/AffineQuantizedMinMaxObserver/{label}", upstream, theirs, mine, sum(x.numel() for x in values)
        )

    case("int8-group-128", PerGroup(128), {"granularity": "PerGroup", "group_size": "128"}, [weight(torch.float32)])
    case("int8-tensor-10-batches", PerTensor(), {"granularity": "PerTensor"}, batches())


def onnxruntime():
    from onnxruntime.quantization.calibrate import HistogramCollector

    upstream, values = installed("onnxruntime"), batches(5, 1 << 18)
    arrays = [x.numpy() for x in values]

    def case(method, preset, bins, settings):
        def theirs():
            made = HistogramCollector(method, method == "percentile", bins, 128, 99.999, "same")
            with contextlib.redirect_stdout(io.StringIO()):
                for x in arrays:
                    made.collect({"t": [x]})
                return np.float32(made.compute_collection_result()["t"][1])

        compare(
            f"onnxruntime/{preset}/5-batches",
            upstream,
            theirs,
            ours("ort." + preset, settings, values, "highest"),
            5 << 18,
        )

    case("entropy", "EntropyCalibrater", 512, {"num_bins": "512"})
    case("percentile", "PercentileCalibrater", 2048, {"num_bins": "2048", "symmetric": "true", "percentile": "99.999"})


def modelopt():
    from modelopt.torch.quantization import calib

    upstream, values = installed("nvidia-modelopt"), batches(5)

    def case(label, preset, make, settings, repetitions=None, **compute):
        def theirs():
            made = make()
            for x in values:
                made.collect(x)
            return made.compute_amax(**compute)

        compare(
            f"modelopt/{preset}/{label}",
            upstream,
            theirs,
            ours("modelopt." + preset, settings, values, "amax"),
            5 << 20,
            repetitions,
            within=1e-6 if compute else 0,
        )  # edges of histograms that grow

    case("axis-0", "MaxCalibrator", lambda: calib.MaxCalibrator(8, (0,), False), {"axis": "[0]"})
    case(
        "percentile",
        "HistogramCalibrator",
        calib.HistogramCalibrator,
        {"method": "percentile", "percentile": "99.99"},
        method="percentile",
    )
    case(
        "entropy-stride-8",
        "HistogramCalibrator",
        calib.HistogramCalibrator,
        {"method": "entropy", "stride": "8"},
        3,
        method="entropy",
        stride=8,
    )


def quark():
    from quark.torch.quantization.config.config import QTensorConfig
    from quark.torch.quantization.config.type import Dtype, QSchemeType, RoundType, ScaleType
    from quark.torch.quantization.observer import observer

    upstream = installed("amd-quark")
    common = {
        "dtype": Dtype.int8,
        "symmetric": True,
        "round_method": RoundType.half_even,
        "is_dynamic": False,
        "scale_type": ScaleType.float,
        "qscheme": QSchemeType.per_tensor,
    }
    plain = {"dtype": "int8", "symmetric": "true", "qscheme": "per_tensor"}

    def case(label, name, more, settings, values):
        def theirs():
            made = getattr(observer, name)(QTensorConfig(observer_cls=getattr(observer, name), **common | more))
            for x in values:
                made(x)
            return made._calculate_qparams()[0]

        compare(
            f"quark/{name}/{label}",
            upstream,
            theirs,
            ours("quark." + name, plain | settings, values),
            sum(x.numel() for x in values),
        )

    values = batches(5)
    case(
        "int4-group-128",
        "PerGroupMinMaxObserver",
        {"dtype": Dtype.int4, "qscheme": QSchemeType.per_group, "ch_axis": -1, "group_size": 128},
        {"dtype": "int4", "qscheme": "per_group", "ch_axis": "-1", "group_size": "128"},
        [weight(torch.float32)],
    )
    case("5-batches", "PerTensorPercentileObserver", {}, {}, values)
    case("5-batches", "PerTensorMSEObserver", {}, {}, values)


FRAMEWORKS = {
    "llmcompressor": llmcompressor,
    "torchao": torchao,
    "onnxruntime": onnxruntime,
    "modelopt": modelopt,
    "quark": quark,
}

if __name__ == "__main__":
    for package, cases in FRAMEWORKS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not installed: its observers are left out")
        else:
            cases()
    pairs.write()
