#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares what qobs quantize reads in quantized weights with compressed-tensors' own decompression, bit for bit.

    live_sources.py QOBS [SAVE]

Needs torch and compressed-tensors 0.19, or 0.20 for MXFP6, which makes the golden vectors. For each format a model has
one module of random codes, which --ignore leaves out, so that the output holds the numbers that qobs read. With SAVE (a
directory) the cases become golden vectors, SAVE/sources.json and SAVE/sources.safetensors, which test_sources.py reads.
Upstream's ModelOpt converter divides by a rounded reciprocal; the numbers of ModelOpt itself are code * (scale *
scale_2), computed here in float. Ends with `N passed, N failed`.
"""
import json
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import save_file

SAVE = sys.argv.pop(2) if len(sys.argv) > 2 else None  # the modules below read the other arguments

import cli
import test_sources

MODULE = "model.layers.0.mlp.down_proj"
F8 = torch.float8_e4m3fn
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
generator = torch.Generator().manual_seed(36)


def numbers(shape, dtype, low=-9, high=3):
    """Positive numbers over a wide range of exponents."""
    exponents = torch.randint(low, high, shape, generator=generator).float()
    return ((1 + torch.rand(shape, generator=generator)) * 2 ** exponents).to(DTYPES[dtype])


def codes(shape, kind, bits=8):
    if kind == "float":
        return torch.randint(0, 256, shape, generator=generator).to(torch.uint8).apply_(
            lambda x: x if x & 127 != 127 else 0).view(F8)
    return torch.randint(-2 ** (bits - 1), 2 ** (bits - 1), shape, generator=generator).to(torch.int8)


def args(**more):
    return {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False, **more}


def config_of(form, weights):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": [], "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None,
                                          "output_activations": None, "format": form}}}


SHAPES = {"tensor": lambda r, c: (1,), "channel": lambda r, c: (r, 1), "group": lambda r, c: (r, c // 32),
          "block": lambda r, c: (-(-r // 16), -(-c // 24))}


def upstream(form, weights, tensors):
    compressor = BaseCompressor.get_value_from_registry(form)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    return compressor.decompress(dict(tensors), scheme)["weight"]


def case(name, form, weights, tensors, dtype="bfloat16"):
    expected = upstream(form, weights, tensors)
    if expected.dtype == torch.float32:
        expected = expected.to(getattr(torch, dtype))
    return {"name": name,
            "config": {"dtype": dtype, "quantization_config": config_of(form, weights)}}, tensors, expected


def cases():
    """Yields (name and configuration, tensors of the module, its weight as upstream dequantizes it)."""
    shape = (18, 96)
    for kind, form in (("float", "float-quantized"), ("int", "int-quantized")):
        for strategy, of in SHAPES.items():
            for scale in DTYPES:
                for symmetric in (True, False):
                    weights = args(type=kind, strategy=strategy, symmetric=symmetric)
                    weights.update(group_size=32 if strategy == "group" else None,
                                   block_structure=[16, 24] if strategy == "block" else None)
                    tensors = {"weight": codes(shape, kind), "weight_scale": numbers(of(*shape), scale)}
                    if not symmetric:
                        tensors["weight_zero_point"] = codes(of(*shape), kind)
                    yield case(f"{form} {strategy} {scale} {'symmetric' if symmetric else 'asymmetric'}", form, weights,
                               tensors)
    for dtype in ("float16", "float32"):
        yield case(f"float-quantized, a model of {dtype}", "float-quantized", args(type="float", strategy="tensor"),
                   {"weight": codes(shape, "float"), "weight_scale": numbers((1,), "F32")}, dtype)
    for bits in range(1, 9):
        for strategy in ("channel", "group", "tensor"):
            for symmetric in (True, False):
                weights = args(num_bits=bits, strategy=strategy, symmetric=symmetric,
                               group_size=32 if strategy == "group" else None)
                of, scale = SHAPES[strategy](*shape), ("BF16", "F16", "F32")[bits % 3]
                tensors = {"weight_packed": pack_to_int32(codes(shape, "int", bits), bits),
                           "weight_scale": numbers(of, scale),
                           "weight_shape": torch.tensor(shape)}
                if not symmetric:
                    zero = codes(of, "int", bits)
                    tensors["weight_zero_point"] = (zero if strategy == "tensor" else
                                                    pack_to_int32(zero, bits, packed_dim=0).contiguous())
                kind = "symmetric" if symmetric else "asymmetric"
                yield case(f"pack-quantized {bits} bits {strategy} {scale} {kind}", "pack-quantized", weights, tensors)
    yield case("pack-quantized, long rows", "pack-quantized", args(num_bits=3, strategy="group", group_size=48),
               {"weight_packed": pack_to_int32(codes((3, 2400), "int", 3), 3), "weight_scale": numbers((3, 50), "BF16"),
                "weight_shape": torch.tensor((3, 2400))})
    fp4 = args(num_bits=4, type="float")
    bytes_of = lambda *s: torch.randint(0, 256, s, generator=generator).to(torch.uint8)
    nibbles, e4m3 = bytes_of(18, 48), numbers((18, 6), "F32", -8, 8).to(F8)
    for value in (1.0, 371.25, 0.0123):
        yield case(f"nvfp4-pack-quantized, global scale {value}", "nvfp4-pack-quantized",
                   {**fp4, "strategy": "tensor_group", "group_size": 16, "scale_dtype": "torch.float8_e4m3fn"},
                   {"weight_packed": nibbles, "weight_scale": e4m3, "weight_global_scale": torch.tensor([value])})
    exponents = torch.randint(0, 240, (18, 3), generator=generator).to(torch.uint8)
    yield case("mxfp4-pack-quantized", "mxfp4-pack-quantized",
               {**fp4, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"},
               {"weight_packed": nibbles, "weight_scale": exponents})
    yield case("mxfp8-quantized", "mxfp8-quantized",
               args(type="float", strategy="group", group_size=32, scale_dtype="torch.uint8"),
               {"weight": codes(shape, "float"), "weight_scale": exponents})
    yield from foreign(shape, nibbles, e4m3)
    if "mxfp6-pack-quantized" in BaseCompressor.registered_names():
        for columns in (96, 32):  # MXFP4 has as many bytes for 48 columns as this has for 32
            exponents = torch.randint(0, 240, (18, columns // 32), generator=generator).to(torch.uint8)
            yield case(f"mxfp6-pack-quantized, {columns} columns", "mxfp6-pack-quantized",
                       args(num_bits=6, type="float", strategy="group", group_size=32, scale_dtype="torch.uint8"),
                       {"weight_packed": bytes_of(18, columns * 6 // 8), "weight_scale": exponents})


def foreign(shape, nibbles, e4m3):
    """Other methods, and their arithmetic in a line each."""
    codes8, scale = codes(shape, "float"), numbers((2, 4), "F32")
    blocks = scale.repeat_interleave(16, 0).repeat_interleave(24, 1)[:18]
    yield ({"name": "fp8 block",
            "config": {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 24]}}},
           {"weight": codes8, "weight_scale_inv": scale}, (codes8.float() * blocks).bfloat16())
    one, rows = numbers((1,), "F32").reshape(()), numbers((18,), "F32")
    yield ({"name": "fp8 tensor",
            "config": {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}}},
           {"weight": codes8, "weight_scale": one, "input_scale": one}, (codes8.float() * one).bfloat16())
    yield ({"name": "modelopt FP8",
            "config": {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}},
           {"weight": codes8, "weight_scale": one, "input_scale": one}, (codes8.float() * one).bfloat16())
    yield ({"name": "modelopt FP8 channel", "config": {"quantization_config": {
                "quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}}},
           {"weight": codes8, "weight_scale": rows}, (codes8.float() * rows[:, None]).bfloat16())
    second = torch.tensor(0.00037)
    group = (e4m3.float() * second).repeat_interleave(16, 1)
    yield ({"name": "modelopt NVFP4",
            "config": {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}},
           {"weight": nibbles, "weight_scale": e4m3, "weight_scale_2": second, "input_scale": one},
           (unpack_fp4_from_uint8(nibbles, 18, 96, torch.float32) * group).bfloat16())
    exponents = torch.randint(100, 140, (18, 3), generator=generator).to(torch.uint8)
    powers = torch.exp2(exponents.float() - 127).repeat_interleave(32, 1)
    yield ({"name": "modelopt MXFP4",
            "config": {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MXFP4"}}},
           {"weight": nibbles, "weight_scale": exponents},
           (unpack_fp4_from_uint8(nibbles, 18, 96, torch.float32) * powers).bfloat16())
    large, of_blocks = codes((130, 136), "float"), numbers((2, 1, 2, 1), "F32")
    spread = of_blocks.reshape(2, 2).repeat_interleave(128, 0).repeat_interleave(128, 1)[:130, :136]
    yield ({"name": "modelopt FP8 block",
            "config": {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}}},
           {"weight": large, "weight_scale": of_blocks}, (large.float() * spread).bfloat16())
    yield ({"name": "fbgemm FP8", "config": {"quantization_config": {"quant_method": "fbgemm_fp8"}}},
           {"weight": codes8, "weight_scale": rows[:, None]}, (codes8.float() * rows[:, None]).bfloat16())
    for name, stored in (("BF16", scale.bfloat16()),
                         ("E8M0", torch.exp2(scale.log2().round()).to(torch.float8_e8m0fnu))):
        blocks = stored.float().repeat_interleave(16, 0).repeat_interleave(24, 1)[:18]
        yield ({"name": f"fp8 block, {name}",
                "config": {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 24]}}},
               {"weight": codes8, "weight_scale_inv": stored}, (codes8.float() * blocks).bfloat16())


def raw(tensor):
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", F8: "F8_E4M3",
             torch.float8_e8m0fnu: "F8_E8M0", torch.int8: "I8",
             torch.uint8: "U8", torch.int32: "I32", torch.int64: "I64"}
    return names[tensor.dtype], list(tensor.shape), tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def main(save=None):
    saved, described = {}, []
    for description, tensors, expected in cases():
        name = description["name"]
        want = test_sources.summary(*raw(expected))
        test_sources.check_numbers(name, description["config"], {f"{MODULE}.{k}": raw(v) for k, v in tensors.items()},
                                   MODULE, want)
        described.append({**description, "expected": want})
        saved.update({f"{name}|{MODULE}.{k}": v.contiguous().clone() for k, v in tensors.items()})
    if save:
        save_file(saved, f"{save}/sources.safetensors")
        with open(f"{save}/sources.json", "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in described) + "\n]\n")
    return cli.end()


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(SAVE))
