#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""GGUF files that the program writes, against PyPI's gguf, which reads them, and the functions of a prebuilt ggml of
PyPI's xllamacpp, which make the same blocks.

    gguf_writer_judge.py QOBS

Models of F32, F16, BF16 and Q8_0 with experts; every scheme; with and without an imatrix in both of its forms.
"""
import ctypes
import glob
import importlib.util
import os
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy as np

import cli
from cli import check

QOBS = os.path.abspath(sys.argv[1])
TYPES = gguf.GGMLQuantizationType
# Sizes that fit all types, and one that makes K-quants fall back.
LAYERS, EXPERTS = 9, 3
SHAPES = {"attn_q": (40, 512), "attn_k": (16, 512), "attn_v": (16, 512), "attn_output": (24, 512),
          "ffn_gate": (33, 512), "ffn_up_exps": (EXPERTS, 21, 512), "ffn_down_exps": (EXPERTS, 17, 256),
          "ffn_down": (20, 768), "narrow": (7, 96)}
UNREAD = ("Q2_0",)  # PyPI's gguf 0.19 does not know the type; gguf_judge.py compares its blocks
# Refused are runs without an effect, and those that llama-quantize refuses, too.
REFUSED = ("changes nothing", "changes no tensor", "of scheme Q2_K_S needs it")


class Ggml:
    def __init__(self):
        package = os.path.dirname(importlib.util.find_spec("xllamacpp").origin)
        self.lib = ctypes.CDLL(glob.glob(package + "/xllamacpp*.so")[0])
        self.lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3,
                                                 ctypes.c_void_p]
        self.lib.ggml_quantize_chunk.restype = ctypes.c_size_t

    def quantize(self, kind, rows, importance):
        rows = np.ascontiguousarray(rows, np.float32)
        block_elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        out = np.empty(rows.size // block_elements * block_bytes, np.uint8)
        q = None if importance is None else np.ascontiguousarray(importance, np.float32).ctypes.data
        assert self.lib.ggml_quantize_chunk(kind, rows.ctypes.data, out.ctypes.data, 0, *rows.shape, q) == out.nbytes
        return out


def to(kind, numbers):
    """Bytes of a source tensor."""
    return gguf.quantize(np.ascontiguousarray(numbers, np.float32), kind)


def names():
    yield "token_embd.weight", (50, 512)
    yield "output.weight", (50, 512)
    yield "output_norm.weight", (512,)
    for layer in range(LAYERS):
        yield f"blk.{layer}.attn_norm.weight", (512,)
        yield f"blk.{layer}.attn_q.bias", (40,)
        yield f"blk.{layer}.ffn_gate_inp.weight", (EXPERTS, 512)
        for name, shape in SHAPES.items():
            yield f"blk.{layer}.{name}.weight", shape


def write_model(path, kind, seed):
    """Writes a model whose matrices are of one type; vectors are F32. Returns its numbers, as they are stored."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    writer.add_token_list([f"token {i}" for i in range(100)])
    writer.add_file_type(1)
    writer.add_bool("a.flag", True)
    numbers = {}
    for name, shape in names():
        x = (random.standard_normal(shape) * 10 ** random.uniform(-3, 0)).astype(np.float32)
        own = kind if len(shape) > 1 else TYPES.F32
        stored = to(own, x)
        numbers[name] = gguf.dequantize(stored, own).reshape(shape)
        writer.add_tensor(name, stored, raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return numbers


def write_imatrix(path, seed, old):
    """Writes importance for all but one layer, whose first expert saw nothing. Returns the means, a row a matrix."""
    random = np.random.default_rng(seed)
    writer = None if old else gguf.GGUFWriter(path, "")
    means, entries = {}, []
    for name, shape in names():
        if len(shape) < 2 or name.startswith(("token_embd", "output", "blk.3.")):
            continue
        matrices, columns = (shape[0] if len(shape) == 3 else 1), shape[-1]
        counts = random.integers(1, 50, matrices).astype(np.float32)
        sums = (np.exp(random.standard_normal((matrices, columns))) * counts[:, None]).astype(np.float32)
        if matrices > 1 and not old:
            counts[0] = 0
        if old:
            counts[:] = 7
        means[name] = np.stack([np.ones(columns, np.float32) if c == 0 else s / c for s, c in zip(sums, counts)])
        entries.append((name, sums))
        if writer:
            writer.add_tensor(name + ".in_sum2", sums)
            writer.add_tensor(name + ".counts", counts[:, None])
    if writer:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    else:
        with open(path, "wb") as file:
            file.write(struct.pack("<i", len(entries)))
            for name, sums in entries:
                file.write(struct.pack("<i", len(name)) + name.encode())
                file.write(struct.pack("<ii", 7, sums.size) + sums.tobytes())
    return means


def run(*words):
    return subprocess.run([QOBS, "quantize", *words], capture_output=True, text=True, check=False)


def fields(reader):
    return {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}


class Judge:
    def __init__(self):
        self.ggml, self.quantized = Ggml(), 0

    def tensor(self, what, source, tensor, numbers, means):
        name, kind = tensor.name, tensor.tensor_type
        if kind == source.tensor_type:
            check(np.array_equal(tensor.data, source.data), f"{what}: {name} is copied")
            return
        self.quantized += 1
        rows = numbers.reshape(-1, *numbers.shape[-2:])
        found = means.get(name)
        expected = np.concatenate([self.ggml.quantize(kind, r, None if found is None else found[m])
                                   for m, r in enumerate(rows)])
        got = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1)
        check(np.array_equal(got, expected), f"{what}: {name} has the bytes of ggml as {kind.name}")

    def file(self, what, model, numbers, means, out):
        source, reader = gguf.GGUFReader(model), gguf.GGUFReader(out)
        before = {t.name: t for t in source.tensors}
        check({t.name for t in reader.tensors} == set(before), f"{what}: the same tensors")
        keys, old = fields(reader), fields(source)
        check(all(keys.get(k) == v for k, v in old.items() if k != "general.file_type"), f"{what}: the keys stay")
        check(keys.get("general.quantization_version") == 2, f"{what}: version of blocks")
        for tensor in reader.tensors:
            self.tensor(what, before[tensor.name], tensor, numbers[tensor.name], means)


def main():
    judge = Judge()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        importance = {"none": {}, "gguf": write_imatrix("i.gguf", 5, False), "dat": write_imatrix("i.dat", 6, True)}
        listed = run("--help").stdout.split("schemes of GGUF files:")[1].split("example:")[0]
        schemes = listed.replace("\n", " ").split(", ")
        for kind in (TYPES.F32, TYPES.F16, TYPES.BF16, TYPES.Q8_0):
            numbers = write_model("in.gguf", kind, kind.value)
            for scheme in (s.strip() for s in schemes if s.strip() not in UNREAD):
                for given, means in importance.items():
                    for pure in ((), ("--pure",)):
                        what = f"{kind.name} to {scheme}, importance {given} {' '.join(pure)}"
                        words = ["in.gguf", "--scheme", scheme, "-o", "out.gguf", "--replace", *pure]
                        words += [] if given == "none" else ["--importance", "i." + given]
                        p = run(*words)
                        if "needs a multiple of" in p.stderr:
                            p = run(*words, "--tensor-type", "narrow=F16")
                        if p.returncode == 0:
                            judge.file(what, "in.gguf", numbers, means, "out.gguf")
                        else:
                            check(any(w in p.stderr for w in REFUSED), f"{what}: {p.stderr}")
    print(f"{judge.quantized} tensors\n{cli.passed} passed, {cli.failed} failed")
    return cli.failed > 0 or judge.quantized < 1000


if __name__ == "__main__":
    sys.exit(main())
