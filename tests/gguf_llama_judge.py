#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""GGUF files of the program against llama_model_quantize of a built llama.cpp, which is what llama-quantize calls.

    gguf_llama_judge.py QOBS LIBLLAMA.SO [--write GGUF_TYPES.JSON]

Whole files, byte for byte: small models, every scheme, as mixtures and pure, with and without an imatrix, with
patterns. Then the types of tensors: the headers of large models, whose data nobody reads. --write keeps these types for
test_gguf_types.py. PyPI's llama-cpp-py-sync has such a library; it needs glibc 2.38.
"""
import ctypes
import filecmp
import json
import os
import re
import subprocess
import sys
import tempfile

import gguf
import numpy as np

import cli
import gguf_headers
from cli import check
from gguf_headers import expand

QOBS, LIBRARY = map(os.path.abspath, sys.argv[1:3])
TYPES = gguf.GGMLQuantizationType
# Numbers of llama_ftype. NVFP4 is not among those that the release makes of a model; F32, F16, BF16 are plain.
SCHEMES = {"Q4_K_M": 15, "Q4_K_S": 14, "Q5_K_M": 17, "Q5_K_S": 16, "Q6_K": 18, "Q8_0": 7, "Q3_K_L": 13, "Q3_K_M": 12,
           "Q3_K_S": 11, "Q2_K": 10, "Q2_K_S": 21, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "IQ4_NL": 25,
           "IQ4_XS": 30, "MXFP4_MOE": 38, "TQ1_0": 36, "TQ2_0": 37, "Q1_0": 40, "Q2_0": 41, "BF16": 32, "F32": 0}
SMALL = {"GQA": {"architecture": "llama", "heads": 8, "keys": 2},
         "one key a head": {"architecture": "llama", "heads": 8, "keys": 8},
         "tied": {"architecture": "llama", "heads": 8, "keys": 2, "tied": True},
         "Falcon": {"architecture": "falcon", "heads": 8, "keys": 1},
         "8 experts": {"architecture": "llama", "heads": 8, "keys": 2, "experts": 8},
         "odd columns": {"architecture": "llama", "heads": 8, "keys": 2, "columns": 288}}
PATTERNS = (("attn_v", "Q8_0", TYPES.Q8_0), (r"blk\.[12]\.ffn_down", "Q6_K", TYPES.Q6_K))
LINE = re.compile(r"\[\s*\d+/\s*\d+\]\s+(\S+)\s+- .*\((\w+)\)\s*$", re.M)

# ---- llama.cpp -------------------------------------------------------------------------------------------------------

class Params(ctypes.Structure):
    _fields_ = [("threads", ctypes.c_int32), ("scheme", ctypes.c_int), ("of_output", ctypes.c_int),
                ("of_embedding", ctypes.c_int),
                *((n, ctypes.c_bool) for n in ("requantize", "output", "copy", "pure", "split", "dry_run")),
                *((n, ctypes.c_void_p) for n in ("imatrix", "keys", "patterns", "pruned")),
                ("rest", ctypes.c_char * 256)]


class Importance(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("means", ctypes.c_void_p), ("count", ctypes.c_size_t)]


class Key(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("name", ctypes.c_char * 128), ("value", ctypes.c_int64 * 16)]


class Pattern(ctypes.Structure):
    _fields_ = [("expression", ctypes.c_char_p), ("type", ctypes.c_int)]


def key(name, value):
    made = Key(kind=3 if isinstance(value, str) else 0, name=name.encode())
    if isinstance(value, str):
        ctypes.memmove(made.value, value.encode()[:127] + b"\0", min(len(value.encode()), 127) + 1)
    else:
        made.value[0] = value
    return made


class Llama:
    def __init__(self):
        self.lib, self.log = ctypes.CDLL(LIBRARY), []
        self.callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
            lambda level, text, context: self.log.append(text.decode(errors="replace")))
        self.lib.llama_log_set(self.callback, None)
        self.lib.llama_model_quantize_default_params.restype = Params
        self.lib.llama_backend_init()

    def quantize(self, source, out, scheme, means=None, keys=(), patterns=(), **more):
        """Returns true if it did."""
        p = self.lib.llama_model_quantize_default_params()
        p.threads, p.scheme = 2, SCHEMES[scheme]
        for name, value in more.items():
            setattr(p, name, value)
        lists = [[Importance(n.encode(), x.ctypes.data, x.size) for n,
                  x in means.items()] + [Importance()] if means else [],
                 [key(*k) for k in keys] + [Key()] if keys else [],
                 [Pattern(e.encode(), t) for e, t in patterns] + [Pattern()]
                 if patterns else []]
        arrays = [(type(items[0]) * len(items))(*items) if items else None for items in lists]
        p.imatrix, p.keys, p.patterns = (ctypes.cast(a, ctypes.c_void_p) if a else None for a in arrays)
        self.log.clear()
        return self.lib.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(p)) == 0

    def types(self, source, scheme):
        """The types of the tensors that change; None: it refuses."""
        if not self.quantize(source, os.devnull, scheme, dry_run=True):
            return None
        return {name: kind.upper() for name, kind in LINE.findall("".join(self.log))}


# ---- Whole files -----------------------------------------------------------------------------------------------------

def write_small(path, kind, facts):
    """Writes a model with numbers."""
    random, columns = np.random.default_rng(0), facts.get("columns", 256)
    header = gguf_headers.dense(8, 256, 512, facts["heads"], facts["keys"], head=32, experts=facts.get("experts", 0),
                                expert_rows=512, tied=facts.get("tied", False), vocabulary=64,
                                fused=facts["architecture"] == "falcon")
    with gguf_headers.Writer(path, facts["architecture"], header["keys"]) as writer:
        for name, shape in expand(header["tensors"]).items():
            shape = [*shape[:-1],
                     columns] if name.endswith(("attn_q.weight", "output.weight")) and columns != 256 else shape
            own = TYPES.F32 if len(shape) == 1 or "gate_inp" in name else kind
            x = (random.standard_normal(shape) * random.uniform(.01, .5)).astype(np.float32)
            writer.add_tensor(name, gguf.quantize(x, own), raw_dtype=own)


def write_imatrix(path, model):
    """Writes importance for all matrices of layers. Returns the means."""
    random, means = np.random.default_rng(1), {}
    writer = gguf.GGUFWriter(path, "")
    writer.add_array("imatrix.datasets", ["a text.txt", "another"])
    writer.add_uint32("imatrix.chunk_count", 11)
    writer.add_uint32("imatrix.chunk_size", 512)
    for tensor in gguf.GGUFReader(model).tensors:
        if not tensor.name.startswith("blk.") or len(tensor.shape) < 2 or "gate_inp" in tensor.name:
            continue
        columns, matrices = int(tensor.shape[0]), int(tensor.shape[2]) if len(tensor.shape) > 2 else 1
        counts = random.integers(1, 50, (matrices, 1)).astype(np.float32)
        sums = (np.exp(random.standard_normal((matrices, columns))) * counts).astype(np.float32)
        writer.add_tensor(tensor.name + ".in_sum2", sums)
        writer.add_tensor(tensor.name + ".counts", counts)
        means[tensor.name] = np.ascontiguousarray(sums / counts)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return means


def run(*words):
    return subprocess.run([QOBS, "quantize", *words], capture_output=True, text=True, check=False)


def compare_files(llama):
    """Returns the number of files that are equal."""
    equal = 0
    for kind in (TYPES.F16, TYPES.BF16, TYPES.F32):
        for model, facts in (SMALL if kind == TYPES.F16 else {"GQA": SMALL["GQA"]}).items():
            write_small("in.gguf", kind, facts)
            means = write_imatrix("i.gguf", "in.gguf")
            keys = [("quantize.imatrix.file", "i.gguf"), ("quantize.imatrix.dataset", "a text.txt"),
                    ("quantize.imatrix.entries_count", len(means)), ("quantize.imatrix.chunks_count", 11)]
            patterns = [w for e, t, _ in PATTERNS for w in ("--tensor-type", f"{e}={t}")]
            for what, words, more in (
                    ("", [], {}), ("pure", ["--pure"], {"pure": True}),
                    ("imatrix", ["--importance", "i.gguf"], {"means": means, "keys": keys}),
                    ("patterns", patterns, {"patterns": [(e, t) for e, _, t in PATTERNS]})):
                for scheme in SCHEMES if what != "patterns" else [s for s in SCHEMES if s not in ("BF16", "F32")]:
                    equal += compare_file(llama, f"{kind.name}, {model}, {what} {scheme}", scheme, words, more)
    return equal


def compare_file(llama, what, scheme, words, more):
    p = run("in.gguf", "--scheme", scheme, "-o", "ours.gguf", "--replace", "--quiet", *words)
    theirs = llama.quantize("in.gguf", "theirs.gguf", scheme, **more)
    if p.returncode != 0 and ("changes no" in p.stderr or "patterns" in what and "tensor-type" in p.stderr):
        return 0  # a copy of the model, which the program refuses
    check((p.returncode == 0) == theirs, f"{what}: one refuses: {p.stderr} {''.join(llama.log[-2:])}")
    if p.returncode != 0 or not theirs:
        return 0
    same = filecmp.cmp("ours.gguf", "theirs.gguf", shallow=False)
    check(same, f"{what}: the files are equal")
    return same


# ---- Types -----------------------------------------------------------------------------------------------------------

def compare_types(llama):
    """Returns the types of llama.cpp, as test_gguf_types.py reads them."""
    golden = {}
    for model, header in gguf_headers.MODELS.items():
        gguf_headers.write("in.gguf", header)
        golden[model] = {**header, "types": {}}
        for scheme in SCHEMES:
            theirs = llama.types("in.gguf", scheme)
            p = run("in.gguf", "--scheme", scheme, "--dry-run", "--json", "-")
            check((p.returncode == 0) == (theirs is not None),
                  f"{model}, {scheme}: one refuses: {p.stderr} {llama.log[-1:]}")
            if p.returncode != 0 or theirs is None:
                continue
            ours = {layer["name"]: layer["format"] for layer in json.loads(p.stdout)["layers"]}
            check(ours == theirs, f"{model}, {scheme}: types of {len(theirs)} tensors")
            golden[model]["types"][scheme] = gguf_headers.fold(theirs)
    return golden


def main():
    llama = Llama()
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.abspath(sys.argv[4]) if sys.argv[3:4] == ["--write"] else None
        os.chdir(folder)
        files, golden = compare_files(llama), compare_types(llama)
    if target:
        with open(target, "w", encoding="utf-8") as file:
            lines = (f"{json.dumps(name)}:{json.dumps(model, separators=(',', ':'))}" for name, model in golden.items())
            file.write("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{files} files, {sum(len(m['types']) for m in golden.values())} schemes of {len(golden)} models\n"
          f"{cli.passed} passed, {cli.failed} failed")
    return cli.failed > 0 or files < 400


if __name__ == "__main__":
    sys.exit(main())
