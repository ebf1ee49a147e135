#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares the search for optimal scales with the searches of AutoRound and Model-Optimizer in one process, on one
thread each, in turns. Each is measured if its package is installed: auto-round 0.16, nvidia-modelopt 0.47.

    beside_optimal.py LIBQOBS.SO OUT.json [--repetitions N] [--only REGEX] [--isa NAME] [--rows N] [--their-rows N]

The weights are bf16 with 4096 columns. Theirs is measured on fewer rows and scaled. Model-Optimizer quantizes with
Triton, which a CPU does not have: its place takes a rounding to e2m1 by torch.
"""

import argparse
import ctypes as c
import time

import torch

from pairs import Pairs, installed
from qobs_library import BF16, F32, Library, view

COLUMNS, GROUP = 4096, 128

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("libqobs")
Pairs.add_arguments(parser, 3)
parser.add_argument("--isa", help="instruction set of ours; ATEN_CPU_CAPABILITY in the environment is that of torch")
parser.add_argument("--rows", type=int, default=1024, help="of ours")
parser.add_argument("--their-rows", type=int, default=128)
arguments = parser.parse_args()
torch.set_num_threads(1)
qobs, pairs = Library(arguments.libqobs, arguments.isa), Pairs(arguments)
generator = torch.Generator().manual_seed(1)
weight = (torch.randn(arguments.rows, COLUMNS, generator=generator) * 0.02).to(torch.bfloat16)
activations = torch.randn(64, COLUMNS, generator=generator) * torch.exp(torch.randn(COLUMNS, generator=generator))
importance = (activations.double() ** 2).mean(0).float()


def ours(preset, settings):
    """Returns a function that observes the weight, which an observer does once."""
    config = qobs.config(preset, settings)
    value, seen = view(weight.data_ptr(), BF16, weight.shape), view(activations.data_ptr(), F32, activations.shape)

    def run():
        observer = c.c_void_p()
        qobs("qobs_observer_create", c.byref(observer), config, None)
        if preset != "qobs.mse_optimal":
            qobs("qobs_observer_observe_importance", observer, c.byref(seen))
        begin = time.process_time()
        qobs("qobs_observer_observe", observer, c.byref(value), None)
        run.seconds = time.process_time() - begin
        qobs.functions.qobs_observer_destroy(observer)

    return run


def pair(name, upstream, theirs, mine):
    """Their time is scaled to our rows."""
    if not pairs.wanted(name):
        return
    mine()
    theirs(8)
    times = []
    for _ in range(arguments.repetitions):
        begin = time.process_time()
        theirs(arguments.their_rows)
        took = time.process_time() - begin
        mine()
        times.append((took * arguments.rows / arguments.their_rows, mine.seconds))
    pairs.add(name, upstream, times, arguments.rows * COLUMNS)


def groups(rows):
    return weight[:rows].float().reshape(-1, GROUP)


def weights(rows):
    return importance.repeat(rows).reshape(-1, GROUP)


def auto_round():
    from auto_round.data_type.int import search_scales
    from auto_round.data_type.neuqi import neuqi_search_scale_zero

    upstream = installed("auto-round")
    int4 = {"num_bits": "4", "group_size": str(GROUP)}
    asymmetric = {**int4, "symmetric": "false"}
    pair(
        "optimal/int4-asymmetric-neuqi",
        upstream,
        lambda rows: neuqi_search_scale_zero(groups(rows), 4, weights(rows)),
        ours("qobs.imatrix_optimal", asymmetric),
    )
    pair(
        "optimal/int4-opt_rtn",
        upstream,
        lambda rows: search_scales(groups(rows), 4, weights(rows)),
        ours("qobs.imatrix_optimal", int4),
    )
    pair(
        "optimal/int4-signed-opt_rtn",
        upstream,
        lambda rows: search_scales(groups(rows), 4, weights(rows)),
        ours("qobs.imatrix_optimal", {**int4, "signed_scale": "true"}),
    )


def model_optimizer():
    from modelopt.torch.quantization.calib.mse import NVFP4MSECalibrator
    from modelopt.torch.quantization.model_calib import _LocalHessianAccumulator

    edges = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    nvfp4 = {"num_bits": "4", "type": "float", "strategy": "tensor_group", "group_size": "16",
             "scale_dtype": "float8_e4m3fn"}

    def quantize(value, of):
        s = (of.reshape(-1, 1) / 6).clamp(min=1e-30)
        return torch.sign(value) * numbers[torch.bucketize((value / s).abs(), edges)] * s

    def sweep(rows, error_of=None):
        x = weight[:rows].float().reshape(-1, 16)
        calibrator = NVFP4MSECalibrator(x.abs().amax(1), x.abs().amax(), axis=0, quant_func=quantize,
                                        error_func=error_of)
        calibrator.collect(x)
        return calibrator.compute_amax()

    def hessian_sweep(rows):
        helper = _LocalHessianAccumulator(rows, COLUMNS, 16)
        helper.accumulate(activations)
        return sweep(rows, helper.build_error_func())

    version = installed("nvidia-modelopt")
    pair("optimal/nvfp4-sweep", version, sweep, ours("qobs.mse_optimal", nvfp4))
    pair("optimal/nvfp4-local-hessian", version, hessian_sweep, ours("qobs.local_hessian", nvfp4))


for suite in auto_round, model_optimizer:
    try:
        suite()
    except ImportError as error:
        print(f"{suite.__name__}: {error}")
pairs.write()
