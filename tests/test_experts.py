#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of experts in one tensor: each layout gives the bytes of a model with one tensor for each expert.

    test_experts.py QOBS
"""
import json
import os
import random
import shutil
import struct
import subprocess
import sys

import cli
from cli import check, equal
from test_quantize_command import refused, tree, write

QOBS = os.path.abspath(sys.argv[1])
E, I, H = 3, 32, 64
EXPERTS = "model.layers.0.mlp.experts"
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def quantize(source, out, *options, scheme="W8A8"):
    shutil.rmtree(out, ignore_errors=True)
    return subprocess.run([QOBS, "quantize", source, "--scheme", scheme, "--quiet", "-o", out, *options],
                          capture_output=True, text=True, timeout=300, check=False)


def make(path, tensors, **config):
    shutil.rmtree(path, ignore_errors=True)
    write(f"{path}/model.safetensors", cli.st_bytes(tensors))
    write(f"{path}/config.json", json.dumps({"hidden_size": H, **config}).encode())


def bf16(rows):
    flat = [x for row in rows for x in row] if isinstance(rows[0], list) else rows
    return ("BF16", [len(rows), len(rows[0])] if isinstance(rows[0], list) else [len(rows)],
            struct.pack(f"<{len(flat)}H", *map(cli.bf16_bits, flat)))


def numbers(rows, columns, seed, group=32):
    """Numbers that MXFP4 has: an e2m1 code and an exponent for each group."""
    g = random.Random(seed)
    codes = [[g.randrange(16) for _ in range(columns)] for _ in range(rows)]
    exponents = [[g.choice((0, 118, 125, 127, 130)) for _ in range(columns // group)] for _ in range(rows)]
    values = [[(-1) ** (c >> 3) * E2M1[c & 7] * 2.0 ** (exponents[r][k // group] - 127) for k, c in enumerate(row)]
              for r, row in enumerate(codes)]
    return codes, exponents, values


class Model:
    """E experts with biases, as lists of numbers, and the tensors of each layout."""

    def __init__(self):
        self.gate_up = [numbers(2 * I, H, e) for e in range(E)]  # rows of gate_proj and up_proj alternate
        self.down = [numbers(H, I, 100 + e) for e in range(E)]
        g = random.Random(5)
        self.gate_up_bias = [[g.choice((0.5, -1.0, 3.0)) for _ in range(2 * I)] for _ in range(E)]
        self.down_bias = [[g.choice((0.25, 2.0)) for _ in range(H)] for _ in range(E)]
        self.rest = {"lm_head.weight": bf16([[1.0] * H] * 4)}

    def one_by_one(self, biases=True):
        tensors = dict(self.rest)
        for e in range(E):
            name, values = f"{EXPERTS}.{e}", self.gate_up[e][2]
            tensors |= {f"{name}.gate_proj.weight": bf16(values[::2]), f"{name}.up_proj.weight": bf16(values[1::2]),
                        f"{name}.down_proj.weight": bf16(self.down[e][2])}
            if biases:
                tensors |= {f"{name}.gate_proj.bias": bf16(self.gate_up_bias[e][::2]),
                            f"{name}.up_proj.bias": bf16(self.gate_up_bias[e][1::2]),
                            f"{name}.down_proj.bias": bf16(self.down_bias[e])}
        return tensors

    def biases(self):
        return {f"{EXPERTS}.{n}_bias": ("BF16", [E, len(b[0])], b"".join(bf16(row)[2] for row in b))
                for n, b in (("gate_up_proj", self.gate_up_bias), ("down_proj", self.down_bias))}

    def mxfp4(self):
        tensors = dict(self.rest) | self.biases()
        for name, experts, columns in (("gate_up_proj", self.gate_up, H), ("down_proj", self.down, I)):
            rows = len(experts[0][0])
            packed = b"".join(bytes(row[k] | row[k + 1] << 4 for k in range(0, columns, 2))
                              for codes, _, _ in experts for row in codes)
            tensors[f"{EXPERTS}.{name}_blocks"] = ("U8", [E, rows, columns // 32, 16], packed)
            tensors[f"{EXPERTS}.{name}_scales"] = ("U8", [E, rows, columns // 32],
                                                   b"".join(bytes(row) for _, exps, _ in experts for row in exps))
        return tensors

    def joined(self, reorder, transposed):
        tensors = dict(self.rest)
        for name, experts in (("gate_up_proj", self.gate_up), ("down_proj", self.down)):
            matrices = [reorder(v) if name == "gate_up_proj" else v for _, _, v in experts]
            matrices = [[list(c) for c in zip(*m)] for m in matrices] if transposed else matrices
            tensors[f"{EXPERTS}.{name}"] = ("BF16", [E, len(matrices[0]), len(matrices[0][0])],
                                            b"".join(bf16(m)[2] for m in matrices))
        return tensors


def without_config(path):
    return {k: v for k, v in tree(path).items() if k != "config.json"}


def same(what, tensors, wanted, **config):
    make("in", tensors, **config)
    make("one", wanted)
    for scheme in ("W8A8", "MXFP4"):
        run = quantize("in", "out", scheme=scheme)
        equal(run.returncode, 0, f"{what}: {scheme} {run.stderr}")
        quantize("one", "expected", scheme=scheme)
        equal(without_config("out"), without_config("expected"), f"{what}: {scheme}")


def halves(rows):
    return rows[::2] + rows[1::2]


def test_layouts():
    m = Model()
    same("gpt-oss in MXFP4", m.mxfp4(), m.one_by_one(), model_type="gpt_oss",
         quantization_config={"quant_method": "mxfp4"})
    quantization = json.loads(cli.read("out/config.json"))["quantization_config"]
    equal(quantization["quant_method"], "compressed-tensors", "the old quantization_config is replaced")
    same("gpt-oss in BF16", m.joined(list, True) | m.biases(), m.one_by_one(), model_type="gpt_oss")
    same("rows", m.joined(halves, False), m.one_by_one(False), model_type="qwen3_moe")
    same("columns", m.joined(halves, True), m.one_by_one(False), model_type="llama4")


def test_parts_and_threads():
    make("in", Model().mxfp4(), model_type="gpt_oss", quantization_config={"quant_method": "mxfp4"})
    quantize("in", "out")
    before = tree("out")
    quantize("in", "out", "--threads", "3")
    equal(tree("out"), before, "the same bytes with three threads")
    run = subprocess.run([QOBS, "audit", "out", "--against", "in"], capture_output=True, text=True, check=False)
    check(run.returncode == 0, "an audit against experts in MXFP4", run.stdout + run.stderr)


def test_refusals():
    m, config = Model(), {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    tensors = m.mxfp4()
    name = f"{EXPERTS}.down_proj_blocks"
    tensors[name] = ("U8", [E, H, 2, 8], tensors[name][2])
    make("in", tensors, **config)
    refused("blocks of another size", quantize("in", "out"), 2, "down_proj_blocks", "16")
    tensors = m.mxfp4()
    name = f"{EXPERTS}.gate_up_proj_scales"
    tensors[name] = ("U8", [E, 2 * I, 2], b"\xff" + tensors[name][2][1:])
    make("in", tensors, **config)
    refused("an exponent of NaN", quantize("in", "out"), 2, "gate_proj", "NaN")
    check(not os.path.exists("out"), "refusals leave nothing", os.listdir("."))


if __name__ == "__main__":
    sys.exit(cli.main({k: v for k, v in globals().items() if k != "test_quantize_command"}))
