#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Every storage format: what quantize writes is decoded here, audited, and read again by quantize. Every scheme:
calibrate writes the scales that quantize writes.

    test_formats.py QOBS MODEL
"""
import json
import os
import shutil
import sys

MODEL = os.path.abspath(sys.argv.pop(2))  # what is left is the program and its wrapper

import cli
from cli import check, equal

TENSOR = "model.layers.0.self_attn.k_proj"


def of_tensor(name):
    return name.startswith(TENSOR + ".")


# format: (scheme, codes, bits of a code, dtype of the codes, largest relative error)
FORMATS = {
    "pack-quantized": ("W3A16", "int", 3, "I32", 0.35),
    "int-quantized": ("W8A8", "int", 8, "I8", 0.01),
    "float-quantized": ("FP8_DYNAMIC", "e4m3", 8, "F8_E4M3", 0.03),
    "naive-quantized": ("FP8_DYNAMIC", "e4m3", 8, "F8_E4M3", 0.03),
    "mxfp8-quantized": ("MXFP8A16", "e4m3", 8, "F8_E4M3", 0.03),
    "mxfp6-pack-quantized": ("MXFP6A16", "e2m3", 6, "U8", 0.04),
    "mxfp4-pack-quantized": ("MXFP4A16", "e2m1", 4, "U8", 0.15),
    "nvfp4-pack-quantized": ("NVFP4A16", "e2m1", 4, "U8", 0.12),
}


def decode(grid, bits, code):
    if grid == "int":
        return code - (1 << (bits - 1))
    mantissa = int(grid[-1])
    exponent, fraction = (code & (1 << (bits - 1)) - 1) >> mantissa, code & (1 << mantissa) - 1
    bias = (1 << (bits - mantissa - 2)) - 1
    magnitude = (fraction * 2.0 ** (1 - bias - mantissa) if exponent == 0 else
                 ((1 << mantissa) + fraction) * 2.0 ** (exponent - bias - mantissa))
    return -magnitude if code >> (bits - 1) else magnitude


def scale_numbers(entry):
    dtype, _, values = entry
    if dtype == "U8":
        return [2.0 ** (x - 127) for x in values]
    return [decode("e4m3", 8, x) for x in values] if dtype == "F8_E4M3" else values


def rows_of(tensors, grid, bits):
    """The numbers of the tensor by row, by this decoder alone."""
    packed = f"{TENSOR}.weight_packed" in tensors
    dtype, shape, values = tensors[f"{TENSOR}.weight_packed" if packed else f"{TENSOR}.weight"]
    raw = cli.pack(dtype, values)
    scales = scale_numbers(tensors[f"{TENSOR}.weight_scale"])
    if f"{TENSOR}.weight_global_scale" in tensors:
        total = tensors[f"{TENSOR}.weight_global_scale"][2][0]
        scales = [cli.f32(s / total) for s in scales]
    row_bytes, rows = len(raw) // shape[0], []
    columns = row_bytes * 8 // bits
    if f"{TENSOR}.weight_shape" in tensors:
        columns = tensors[f"{TENSOR}.weight_shape"][2][1]
    table = [decode(grid, bits, c) for c in range(1 << bits)]
    if dtype == "I8":
        table = [c - 256 if c > 127 else c for c in range(256)]
    group = columns * shape[0] // len(scales)
    for r in range(shape[0]):
        stream = int.from_bytes(raw[r * row_bytes:(r + 1) * row_bytes], "little")
        codes = [stream >> c * bits & (1 << bits) - 1 for c in range(columns)]
        exact = [table[x] * scales[(r * columns + c) // group] for c, x in enumerate(codes)]
        rows.append(cli.unpack("F32", cli.pack("F32", exact)))
    return dtype, rows


def quantize(source, *options):
    shutil.rmtree("out" if source == MODEL else "again", ignore_errors=True)
    return cli.run("quantize", source, "--quiet", "-o", "out" if source == MODEL else "again", *options)


def test_every_format_is_here():
    equal(sorted(cli.fine("formats", "info", "--list", "formats").split()), sorted(FORMATS), "the formats of this test")


def test_formats():
    _, shape, numbers = cli.st_read(f"{MODEL}/model.safetensors", of_tensor)[0][f"{TENSOR}.weight"]
    want = [numbers[r * shape[1]:(r + 1) * shape[1]] for r in range(shape[0])]
    for name, (scheme, grid, bits, dtype, most) in FORMATS.items():
        found = quantize(MODEL, "--scheme", scheme, "--set", f"format={name}")
        check(found.returncode == 0, f"{name}: quantize", found.stderr)
        with open("out/config.json", encoding="utf-8") as file:
            equal(json.load(file)["quantization_config"]["format"], name, f"{name}: config.json")
        stored, rows = rows_of(cli.st_read("out/model.safetensors", of_tensor)[0], grid, bits)
        equal(stored, dtype, f"{name}: dtype of the codes")
        error = sum((x - y) ** 2 for a, b in zip(want, rows) for x, y in zip(a, b))
        energy = sum(x * x for row in want for x in row)
        check(0 < error <= (most ** 2) * energy, f"{name}: numbers", f"relative error {(error / energy) ** 0.5}")
        audit = cli.run("audit", "out", "--against", MODEL)
        equal(audit.returncode, 0, f"{name}: the audit finds nothing")
        again = quantize("out", "--scheme", "W8A16", "--ignore", TENSOR, "--allow-mixed-sets")
        check(again.returncode == 0, f"{name}: quantize it again", again.stderr)
        _, _, numbers = cli.st_read("again/model.safetensors", of_tensor)[0][f"{TENSOR}.weight"]
        equal(numbers, cli.unpack("BF16", cli.pack("BF16", sum(rows, []))), f"{name}: numbers that quantize reads")


def test_schemes():
    """Packed zero points are integers of their own in the scales alone."""
    schemes = cli.fine("schemes", "info", "--list", "schemes").split()
    check(len(schemes) >= 30, "the schemes", schemes)
    for scheme in schemes:
        inputs = ["--activations", f"{MODEL}/activations.safetensors"] if scheme in cli.static_schemes() else []
        found = quantize(MODEL, "--scheme", scheme, *inputs)
        check(found.returncode == 0, f"{scheme}: quantize", found.stderr)
        found = cli.run("calibrate", MODEL, "--quiet", "--scheme", scheme, *inputs, "-o", "scales.safetensors")
        check(found.returncode == 0, f"{scheme}: calibrate", found.stderr)
        parts = {"weight_scale", "weight_global_scale", "input_scale", "input_global_scale", "k_scale", "v_scale"}
        model = cli.st_read("out/model.safetensors", lambda name: name.endswith(("scale", "_zero_point")))[0]
        scales = cli.st_read("scales.safetensors")[0]
        wanted = {name: tensor for name, tensor in model.items() if name.rsplit(".", 1)[1] in parts}
        check(len(wanted) >= 14, f"{scheme}: scales", len(wanted))
        equal({n: t for n, t in scales.items() if not n.endswith("_zero_point")}, wanted, f"{scheme}: scales")
        equal({n for n in scales if n.endswith("_zero_point")}, {n for n in model if n.endswith("_zero_point")},
              f"{scheme}: zero points")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
