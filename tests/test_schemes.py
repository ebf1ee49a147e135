#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The schemes of `qobs calibrate` against `qobs observe` on the example model, layer by layer.

    test_schemes.py QOBS MODEL.safetensors

activations.safetensors is in the directory of the model. Scales stored as codes are decoded here. Global scales are
compared with those of the layers that share one. Ends with `N passed, N failed`.
"""
import json
import os
import struct
import sys
import tempfile

model = sys.argv.pop(2)  # what is left is the program

import cli

SIZES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1}


def read(path):
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in head.items()}


def e4m3(code):
    sign, exponent, fraction = (-1 if code & 128 else 1), code >> 3 & 15, code & 7
    return sign * (fraction * 2.0 ** -9 if exponent == 0 else (8 + fraction) * 2.0 ** (exponent - 10))


def numbers(tensor):
    dtype, _, data = tensor
    if dtype == "F32":
        return [x[0] for x in struct.iter_unpack("<f", data)]
    if dtype == "BF16":
        return [struct.unpack("<f", struct.pack("<I", x[0] << 16))[0] for x in struct.iter_unpack("<H", data)]
    if dtype == "F8_E4M3":
        return [e4m3(x) for x in data]
    if dtype == "U8":
        return [2.0 ** (x - 127) for x in data]
    return [x[0] for x in struct.iter_unpack("<b", data)]


# scheme: (settings of observe, dtype of the stored scale, True if there are zero points)
SCHEMES = {
    "W8A8": ("num_bits=8 strategy=channel", "BF16", False),
    "W8A16": ("num_bits=8 strategy=group group_size=128", "BF16", False),
    "W4A16": ("num_bits=4 strategy=group group_size=128", "BF16", False),
    "W4A16_ASYM": ("num_bits=4 strategy=group group_size=128 symmetric=false", "BF16", True),
    "FP8": ("type=float num_bits=8 strategy=tensor", "BF16", False),
    "FP8_DYNAMIC": ("type=float num_bits=8 strategy=channel", "BF16", False),
    "FP8_BLOCK": ("type=float num_bits=8 strategy=block block_structure=[128,128]", "BF16", False),
    "MXFP4": ("type=float num_bits=4 strategy=group group_size=32 scale_dtype=uint8", "U8", False),
    "MXFP8A16": ("type=float num_bits=8 strategy=group group_size=32 scale_dtype=uint8", "U8", False),
    "NVFP4": ("type=float num_bits=4 strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn", "F8_E4M3", False),
}
LAYERS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
          "mlp.up_proj",
          "mlp.down_proj"]
SHARED = [("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.o_proj",),
          ("mlp.gate_proj", "mlp.up_proj"),
          ("mlp.down_proj",)]
passed = failed = 0


def check(what, good):
    global passed, failed
    passed += good
    failed += not good
    if not good:
        print("FAIL " + what)


def run(*arguments):
    cli.run(*arguments).check_returncode()


with tempfile.TemporaryDirectory() as tmp:
    out, one = os.path.join(tmp, "out.safetensors"), os.path.join(tmp, "one.safetensors")
    for scheme, (settings, dtype, zero_points) in SCHEMES.items():
        run("calibrate", model, "--scheme", scheme, "-o", out, "--quiet", "--preset", "input=none")
        got = read(out)
        options = [o for s in settings.split() for o in ("--set", s)]
        suffixes = ["_scale"] + ["_zero_point"] * zero_points + ["_global_scale"] * (scheme == "NVFP4")
        check(f"{scheme}: names", sorted(got) == sorted(f"model.layers.{i}.{l}.weight{s}" for i in (0, 1)
                                                        for l in LAYERS
                                                        for s in suffixes))
        for i in (0, 1):
            own = {}
            for layer in LAYERS:
                name = f"model.layers.{i}.{layer}.weight"
                run("observe", "--preset", "llmc.memoryless_minmax", *options, "--out", one, f"{model}:{name}")
                want = own[layer] = read(one)
                scale = got[name + "_scale"]
                check(f"{scheme} {name}: dtype {scale[0]}", scale[0] == dtype)
                check(f"{scheme} {name}: shape", scale[1] == want["scale"][1])
                if scheme not in ("NVFP4", "FP8"):
                    check(f"{scheme} {name}: scale", numbers(scale) == numbers(want["scale"]))
                if zero_points:
                    check(f"{scheme} {name}: zero point",
                          numbers(got[name + "_zero_point"]) == numbers(want["zero_point"]))
            for members in SHARED if scheme == "FP8" else ():  # one scale for what vLLM runs as one matrix
                shared = max(numbers(own[m]["scale"])[0] for m in members)
                for m in members:
                    name = f"model.layers.{i}.{m}.weight"
                    check(f"FP8 {name}: scale", numbers(got[name + "_scale"]) == [shared])
            for members in SHARED if scheme == "NVFP4" else ():
                # The largest magnitude gives the smallest global scale. Its member has its own scales.
                shared = min(numbers(own[m]["global_scale"])[0] for m in members)
                for m in members:
                    name = f"model.layers.{i}.{m}.weight"
                    check(f"NVFP4 {name}: global scale", numbers(got[name + "_global_scale"]) == [shared])
                    if numbers(own[m]["global_scale"]) == [shared]:
                        check(f"NVFP4 {name}: scale", numbers(got[name + "_scale"]) == numbers(own[m]["scale"]))
    # Recorded activations: the results of observe, under the name of each module with that input.
    activations = os.path.join(os.path.dirname(model), "activations.safetensors")
    for scheme, result, settings, states in (
            ("FP8", "scale", "type=float num_bits=8 strategy=tensor", "tensor"),
            ("NVFP4", "global_scale",
             "type=float num_bits=4 strategy=tensor_group group_size=16 scale_dtype=float8_e4m3fn", "attn_head")):
        run("calibrate", model, "--scheme", scheme, "-o", out, "--quiet", "--activations", activations, "--set",
            f"kv.strategy={states}")
        got = {n: t for n, t in read(out).items() if ".weight_" not in n}
        check(f"{scheme} activations: as many as there are", len(got) == 2 * (len(LAYERS) + 2))
        for i in (0, 1):
            recordings = [(m, "input", members[0] + ".input", settings, result) for members in SHARED for m in members]
            recordings += [("self_attn", s, f"self_attn.{s}_states", f"type=float num_bits=8 strategy={states}",
                            "scale") for s in "kv"]
            for module, base, recorded, chosen, what in recordings:
                name = f"model.layers.{i}.{module}.{base}_{what}"
                options = [o for s in chosen.split() for o in ("--set", s)]
                run("observe", "--preset", "llmc.static_minmax", "--base-name", base, *options, "--out", one,
                    f"{activations}:model.layers.{i}.{recorded}")
                check(f"{scheme} {name}", got.get(name) == read(one)[what])
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
