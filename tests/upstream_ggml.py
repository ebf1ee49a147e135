#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Blocks of activations of ggml-cpu beside presets ggml.q8_0 and ggml.q8_K, byte for byte, and their speed.

    upstream_ggml.py compare LIBQOBS.SO [--tensors N]
    upstream_ggml.py speed LIBQOBS.SO [--isa NAME]
    upstream_ggml.py record FILE [--blocks COMMAND]

The other side are quantize_row_q8_0 and quantize_row_q8_K of the extension module of PyPI's xllamacpp, of this
processor's architecture. compare quantizes the 21 kinds of rows of gguf_judge.py, and N random tensors (10,000) by each
instruction set of this CPU. record appends the hashes that tests/test_ggml.c reads; COMMAND NAME IN OUT writes the
blocks that a function of that name makes of the floats of IN, for a build that cannot be loaded here.
"""
import argparse
import ctypes as c
import os
import platform
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "bench")]
from gguf_judge import COLUMNS, KINDS, ROWS, Ggml, fnv, of_bf16, rows, to_bf16  # noqa: E402
from qobs_library import Library, QuantizerArgs, RunArgs  # noqa: E402

BUILD = "arm64" if platform.machine() == "aarch64" else "x86"
TYPES = {"ggml.q8_0": ("quantize_row_q8_0", 32, 34), "ggml.q8_K": ("quantize_row_q8_K", 256, 292)}
DTYPES = {"F32": 1, "BF16": 2, "F16": 3}
SCALES = (1, 1e-3, 1e-8, 1e-37, 3e-39, 1e-43, 1e6, 1e30, 1e38)


def blocks_of(preset, fill):
    return lambda x: np.full(x.size // TYPES[preset][1] * TYPES[preset][2], fill, np.uint8)


def theirs_of(ggml, preset, x):
    """Upstream leaves the sums of blocks of zeros of q8_K as they are; here they are 0 before."""
    name, out = TYPES[preset][0], blocks_of(preset, 0)(x)
    getattr(ggml, name)(c.c_void_p(x.ctypes.data), c.c_void_p(out.ctypes.data), c.c_int64(x.size))
    return out


class Ours:
    """Prepared quantizers, one for each preset, dtype and number of columns."""

    def __init__(self, path, isa):
        self.qobs, self.isa, self.made = Library(path, isa), isa, {}

    def quantizer(self, preset, dtype, columns):
        key = (preset, dtype, columns)
        if key not in self.made:
            self.qobs("qobs_isa_select", self.isa.encode())
            self.made[key] = c.c_void_p()
            config = self.qobs.config(preset, {"build": BUILD})
            args = QuantizerArgs(config=config, dtype=DTYPES[dtype], columns=columns, dynamic=1)
            self.qobs("qobs_quantizer_create", c.byref(self.made[key]), c.byref(args))
        return self.made[key]

    def call(self, preset, dtype, x, out):
        """The arguments of qobs_quantizer_run."""
        run = RunArgs(rows=x.shape[0], value=x.ctypes.data, codes=out.ctypes.data, codes_size=out.size)
        return self.quantizer(preset, dtype, x.shape[1]), c.byref(run), None

    def quantize(self, preset, dtype, x):
        out = blocks_of(preset, 0x55)(x)
        handle, run, _ = self.call(preset, dtype, x, out)
        self.qobs("qobs_quantizer_run", handle, run)
        return out


def in_dtype(x, dtype):
    """The numbers of a dtype nearest to x, as its bits and as floats."""
    if dtype == "F32":
        return x, x
    if dtype == "BF16":
        return to_bf16(x), of_bf16(to_bf16(x))
    half = np.clip(x, -65504, 65504).astype(np.float16)
    return half.view(np.uint16), half.astype(np.float32)


def cases(preset, tensors):
    """Yields a name, a dtype and a matrix of floats."""
    random = np.random.default_rng(7)
    for kind in range(KINDS):
        x = rows(ROWS * COLUMNS, kind).reshape(ROWS, COLUMNS)
        yield from ((f"rows {kind}", dtype, x) for dtype in DTYPES)
    for i in range(tensors):
        x = random.standard_normal((int(random.integers(1, 6)), int(random.integers(1, 5)) * 256))
        x *= SCALES[i % len(SCALES)] if i % 4 else 2.0 ** random.integers(-140, 120, x.shape)
        if i % 5 == 0:
            x = np.sign(x) * np.abs(x).max()
        if i % 7 == 0:
            x[:, ::256 if i % 2 else 3] = 0
        yield f"random {i}", list(DTYPES)[i % 3], np.clip(x, -3.4e38, 3.4e38).astype(np.float32)


def compare(library, tensors):
    ggml = Ggml().lib
    ggml.ggml_cpu_init()
    ours = [Ours(library, isa) for isa in (["scalar", "neon"] if BUILD == "arm64" else ["scalar", "avx2", "avx512"])]
    passed = failed = 0
    for preset in TYPES:
        for name, dtype, x in cases(preset, tensors):
            given, numbers = in_dtype(x, dtype)
            if not np.isfinite(numbers).all():
                continue  # refused
            numbers = np.ascontiguousarray(numbers)
            expected = theirs_of(ggml, preset, numbers)
            for o in ours:
                differ = int((o.quantize(preset, dtype, np.ascontiguousarray(given)) != expected).sum())
                passed, failed = passed + (differ == 0), failed + (differ > 0)
                if differ and failed < 20:
                    print(f"FAIL {preset} {o.isa} {dtype} {name}: {differ} of {expected.size} bytes differ")
    print(f"{passed} passed, {failed} failed")
    return failed or not passed


def speed(library, isa):
    """Medians of 31 in turns, one thread, float32."""
    ggml, ours = Ggml().lib, Ours(library, isa)
    ggml.ggml_cpu_init()
    random = np.random.default_rng(0)
    for preset, (name, _, _) in TYPES.items():
        for count in (1, 32, 512):
            x = random.standard_normal((count, 4096), np.float32)
            out = blocks_of(preset, 0)(x)
            calls = ((getattr(ggml, name), (c.c_void_p(x.ctypes.data), c.c_void_p(out.ctypes.data), c.c_int64(x.size))),
                     (ours.qobs.functions.qobs_quantizer_run, ours.call(preset, "F32", x, out)))
            calls[0][0].restype, times = None, ([], [])
            for _ in range(31):
                for (function, args), taken in zip(calls, times):
                    begin = time.perf_counter()
                    for _ in range(1 + 400000 // x.size):
                        function(*args)
                    taken.append((time.perf_counter() - begin) / (1 + 400000 // x.size))
            theirs, own = (float(np.median(t)) for t in times)
            print(f"{preset} {isa}, {count} x 4096: ggml-cpu {theirs * 1e6:.2f} us, qobs {own * 1e6:.2f} us, "
                  f"{theirs / own:.2f} times")
    return 0


def by_command(command, preset, x):
    name, elements, size = TYPES[preset]
    with tempfile.TemporaryDirectory() as directory:
        source, target = (os.path.join(directory, n) for n in ("in", "out"))
        x.tofile(source)
        subprocess.run([*command.split(), name, source, target, str(size), str(elements)], check=True)
        return np.fromfile(target, np.uint8)


def record(path, command):
    build = "arm64" if command else BUILD
    ggml = None if command else Ggml().lib
    with open(path, "a", encoding="utf-8") as file:
        for preset in TYPES:
            kinds = (rows(ROWS * COLUMNS, kind) for kind in range(KINDS))
            got = (by_command(command, preset, x) if command else theirs_of(ggml, preset, x) for x in kinds)
            file.write(" ".join([preset, build, *(f"{fnv(blocks):016x}" for blocks in got)]) + "\n")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("compare", "speed", "record"))
    parser.add_argument("path")
    parser.add_argument("--tensors", type=int, default=10000)
    parser.add_argument("--isa", default="avx512")
    parser.add_argument("--blocks", metavar="COMMAND", help="of an Arm64 build")
    given = parser.parse_args()
    if given.verb == "record":
        return record(given.path, given.blocks)
    return compare(given.path, given.tensors) if given.verb == "compare" else speed(given.path, given.isa)


if __name__ == "__main__":
    sys.exit(main())
