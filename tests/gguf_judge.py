#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Compares the blocks of GGUF types with those of ggml, which the extension module of PyPI's xllamacpp exports, and
what they stand for with PyPI's gguf:

    gguf_judge.py LIBQOBS.so [--weights MILLIONS] [--record FILE] [TYPE...]

Every type with and without importance, 21 kinds of rows of an odd number of blocks, from F32, BF16 and F16, on every
instruction set of this CPU. Rows that upstream refuses are refused. --weights compares that many gaussian numbers
of each type more. --record writes the hashes that tests/test_gguf.c reads.
"""
import argparse
import ctypes
import glob
import importlib.util
import os
import sys

import numpy as np

ROWS, COLUMNS = 3, 2304
KINDS, WEIGHTS = 21, 4
RECORDED = (-1, 0, 3)  # the kinds of importance, -1: none
UNREAD = (b"Q1_0", b"Q2_0")  # gguf 0.19 does not dequantize them
F32, BF16, F16 = 1, 2, 3
OK, NONFINITE = 0, -4


# ---- Rows, as tests/gguf_rows.h makes them ---------------------------------------------------------------------------

def bits(i):
    z = (i + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def to_bf16(x):
    u = np.asarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def of_bf16(u):
    return (u.astype(np.uint32) << 16).view(np.float32)


def rows(n, kind):
    i = np.arange(n, dtype=np.uint64)
    z = bits(i + np.uint64(kind << 40))
    more = (bits(z) >> np.uint64(40)).astype(np.int64)
    g = (sum((z >> np.uint64(s) & np.uint64(0xFFFF)).astype(np.float64) for s in (0, 16, 32, 48)) - 131070) * 2.0**-15
    u, i = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53, i.astype(np.int64)
    zero = np.zeros(n)
    with np.errstate(over="ignore"):
        x = [lambda: of_bf16(to_bf16(np.where(more % 1024 == 0, g * 0.4, g * 0.02).astype(np.float32))),
             lambda: g,
             lambda: u - 0.3,
             lambda: np.where(i & 4096, -0.0, 0.0),
             lambda: i // 256 % 7 - 3,
             lambda: -1000 - u / 1024,
             lambda: 1000 + u / 128,
             lambda: np.where(more % 16, 0, g),
             lambda: np.ldexp(g, -66),
             lambda: np.ldexp(g, -136),
             lambda: np.ldexp(g, 100),
             lambda: np.ldexp(g, 125),
             lambda: np.ldexp(g, more % 80 - 40),
             lambda: np.floor(3 * g + 0.5),
             lambda: np.where(more % 2, 0.25, -0.75),
             lambda: np.where((i // 32 % 3 == 1) | (i // 512 % 5 == 2), 0, g),
             lambda: np.where(i % 32 == i // 32 % 32, g, 0),
             lambda: (g / 16).astype(np.float32).astype(np.float16),
             lambda: g / (2.0**-10 + u * u),
             lambda: -5 - np.where(i % 64 == 3, u, zero),
             lambda: np.ldexp(np.where(more % 2, 1, 1 - (more // 2 % 8) * 2.0**-24), i // 32 % 61 - 30)][kind]()
        return np.ascontiguousarray(np.asarray(x, np.float64).astype(np.float32))


def importance(n, kind):
    i = np.arange(n, dtype=np.uint64)
    z = bits(i + np.uint64((kind + 100) << 40))
    u, low = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53, (z & np.uint64(15)).astype(np.int64)
    q = [np.ldexp(1 + u, low - 8), np.ones(n), np.where(low % 4 == 0, 0, u / 1024),
         np.where(i % np.uint64(512) < 256, 0, u)]
    return q[kind].astype(np.float32)


def fnv(data):
    """FNV-1a."""
    h = 0xCBF29CE484222325
    for byte in data.tobytes():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


# ---- The two libraries -----------------------------------------------------------------------------------------------

class Args(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("type", ctypes.c_char_p), ("dtype", ctypes.c_int),
                ("rows", ctypes.c_int64), ("columns", ctypes.c_int64), ("value", ctypes.c_void_p),
                ("importance", ctypes.c_void_p), ("out", ctypes.c_void_p), ("out_size", ctypes.c_size_t),
                ("runtime", ctypes.c_void_p), ("search", ctypes.c_char_p)]


class Numbers(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("type", ctypes.c_char_p), ("rows", ctypes.c_int64),
                ("columns", ctypes.c_int64), ("blocks", ctypes.c_void_p), ("blocks_size", ctypes.c_size_t),
                ("out", ctypes.c_void_p), ("out_size", ctypes.c_size_t), ("runtime", ctypes.c_void_p)]


class Type(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("number", ctypes.c_int),
                ("uses_importance", ctypes.c_int), ("elements", ctypes.c_int64), ("size", ctypes.c_size_t),
                ("made", ctypes.c_int)]


class ErrorText(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 252)]


def address(array):
    return None if array is None else array.ctypes.data


class Qobs:
    def __init__(self, path):
        self.lib, self.error = ctypes.CDLL(path), ErrorText()
        self.lib.qobs_gguf_type_name.argtypes = [ctypes.c_size_t]
        for name in ("qobs_gguf_type_name", "qobs_isa_name"):
            getattr(self.lib, name).restype = ctypes.c_char_p
        self.lib.qobs_isa_usable.restype = ctypes.c_bool

    def isas(self):
        return [self.lib.qobs_isa_name(i) for i in range(self.lib.qobs_isa_count()) if self.lib.qobs_isa_usable(i)]

    def types(self):
        i = 0
        while name := self.lib.qobs_gguf_type_name(i):
            described = Type(ctypes.sizeof(Type))
            assert self.lib.qobs_gguf_describe_type(name, ctypes.byref(described), None) == OK
            yield described
            i += 1

    def quantize(self, isa, of, dtype, x, q, out, search=None):
        self.lib.qobs_isa_select(isa, None)
        columns = x.shape[1]
        args = Args(ctypes.sizeof(Args), of.name, dtype, x.shape[0], columns, address(x), address(q), address(out),
                    out.nbytes, None, search)
        return self.lib.qobs_gguf_quantize(ctypes.byref(args), ctypes.byref(self.error))

    def dequantize(self, of, blocks, shape):
        out = np.empty(shape, np.float32)
        args = Numbers(ctypes.sizeof(Numbers), of.name, *shape, address(blocks), blocks.nbytes, address(out),
                       out.nbytes)
        assert self.lib.qobs_gguf_dequantize(ctypes.byref(args), ctypes.byref(self.error)) == OK, self.error.message
        return out


class Ggml:
    def __init__(self):
        package = os.path.dirname(importlib.util.find_spec("xllamacpp").origin)
        self.lib = ctypes.CDLL(glob.glob(package + "/xllamacpp*.so")[0])
        self.lib.ggml_validate_row_data.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
        self.lib.ggml_validate_row_data.restype = ctypes.c_bool
        self.lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3,
                                                 ctypes.c_void_p]
        self.lib.ggml_quantize_chunk.restype = ctypes.c_size_t

    def quantize(self, of, x, q, out):
        assert self.lib.ggml_quantize_chunk(of.number, address(x), address(out), 0, *x.shape, address(q)) == out.nbytes

    def dequantize(self, of, blocks, shape):
        out, name = np.empty(shape, np.float32), of.name.decode()
        if of.elements == 1:
            return {"F32": lambda: blocks.view(np.float32), "F16": lambda: blocks.view(np.float16).astype(np.float32),
                    "BF16": lambda: of_bf16(blocks.view(np.uint16))}[name]().reshape(shape)
        function = getattr(self.lib, "dequantize_row_" + name.lower().replace("_k", "_K"))
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
        function(address(blocks), address(out), out.size)
        return out

    def is_valid(self, of, blocks):
        return self.lib.ggml_validate_row_data(of.number, address(blocks), blocks.nbytes)


# ---- Comparisons -----------------------------------------------------------------------------------------------------

class Judge:
    def __init__(self, qobs):
        self.qobs, self.ggml, self.failed, self.passed, self.lines = qobs, Ggml(), 0, 0, []

    def blocks(self, of, shape, fill):
        return np.full(shape[0] * shape[1] // of.elements * of.size, fill, np.uint8)

    def case(self, of, x, q, what, dtypes=(F32,)):
        """Bytes that differ on any instruction set, and faults in what is refused."""
        expected = self.blocks(of, x.shape, 0xAA)
        self.ggml.quantize(of, x, q, expected)
        valid = self.ggml.is_valid(of, expected)
        differ = 0
        for isa in self.qobs.isas():
            for dtype in dtypes:
                out = self.blocks(of, x.shape, 0x55)
                given = x if dtype == F32 else to_bf16(x) if dtype == BF16 else x.astype(np.float16).view(np.uint16)
                status = self.qobs.quantize(isa, of, dtype, given, q, out)
                if status != (OK if valid else NONFINITE):
                    self.failed += 1
                    verdict = "accepts" if valid else "refuses"
                    print(f"FAIL {what}, {isa.decode()}: status {status}, upstream {verdict} it")
                differ += int((out != expected).sum())
        self.failed += differ > 0
        self.passed += differ == 0
        if differ:
            print(f"FAIL {what}: {differ} bytes of {expected.nbytes} differ")
        return expected, valid

    def kinds(self, of, shape):
        for weights in (range(-1, WEIGHTS) if of.uses_importance else (-1, 0)):
            q = None if weights < 0 else importance(shape[1], weights)
            line = [of.name.decode(), str(weights)]
            for kind in range(KINDS):
                x = rows(shape[0] * shape[1], kind).reshape(shape)
                what = f"{of.name.decode()} {weights} {kind}"
                expected, valid = self.case(of, x, q, what)
                if shape == (ROWS, COLUMNS) and weights in RECORDED:
                    numbers = "refused"
                    if valid:
                        numbers = f"{fnv(self.ggml.dequantize(of, expected, shape).view(np.uint8)):016x}"
                    line += [f"{fnv(expected):016x}", numbers]
                if kind in (0, 17):
                    self.case(of, x if kind == 0 else x.astype(np.float16).astype(np.float32), q, what + " halves",
                              (BF16,) if kind == 0 else (F16,))
                if valid:
                    self.numbers(of, expected, shape, what)
                    self.optimal(of, x, q, expected, what)
            if len(line) > 2:
                self.lines.append(" ".join(line) + "\n")

    def numbers(self, of, blocks, shape, what):
        """What ggml and PyPI's gguf make of blocks."""
        import gguf
        got = self.qobs.dequantize(of, blocks, shape)
        expected = {"ggml": self.ggml.dequantize(of, blocks, shape)}
        if of.name not in UNREAD:
            kind = gguf.GGMLQuantizationType(of.number)
            numbers = gguf.dequantize(blocks.reshape(shape[0], -1), kind)
            expected["PyPI's gguf"] = numbers.reshape(shape).astype(np.float32)
        for who, numbers in expected.items():
            same = np.array_equal(got, numbers)
            self.passed, self.failed = self.passed + same, self.failed + (not same)
            if not same:
                print(f"FAIL {what}: {int((got != numbers).sum())} numbers are not those of {who}")

    def optimal(self, of, x, q, theirs, what):
        """No block of the search "optimal" has a larger error than ggml's."""
        blocks = np.empty_like(theirs)
        status = self.qobs.quantize(self.qobs.isas()[-1], of, F32, x, q, blocks, b"optimal")
        weights = 1.0 if q is None else q.astype(float)
        errors = [(e * e * weights).reshape(-1, of.elements).sum(1)
                  for e in (self.qobs.dequantize(of, b, x.shape).astype(float) - x for b in (blocks, theirs))]
        right = status == OK and bool((errors[0] <= errors[1] * (1 + 1e-13)).all()) and self.ggml.is_valid(of, blocks)
        self.passed, self.failed = self.passed + right, self.failed + (not right)
        if not right:
            print(f"FAIL {what}: the search optimal has a larger error than ggml")
        self.numbers(of, blocks, x.shape, what + " optimal")

    def many(self, of, millions):
        random = np.random.default_rng(of.number)
        for part in range(0, millions, 4):
            x = (random.standard_normal((1024, 4096)) * 0.02).astype(np.float32)
            x[random.random(x.shape) < 0.001] *= 20
            weights = [np.exp(random.standard_normal(4096)).astype(np.float32)] if of.uses_importance else []
            for q in [None, *weights]:
                self.case(of, x, q, f"{of.name.decode()} many, from {part} M on{'' if q is None else ', importance'}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("libqobs")
    parser.add_argument("types", nargs="*")
    parser.add_argument("--weights", type=int, default=0)
    parser.add_argument("--record")
    options = parser.parse_args()
    judge = Judge(Qobs(options.libqobs))
    for of in judge.qobs.types():
        name = of.name.decode()
        if not of.made or (options.types and name not in options.types):
            continue
        judge.kinds(of, (ROWS, COLUMNS))
        judge.kinds(of, (37, of.elements * 3))
        judge.many(of, options.weights)
        print(f"{name}: {judge.passed} passed, {judge.failed} failed so far", flush=True)
    if options.record:
        with open(options.record, "w", encoding="utf-8") as file:
            file.writelines(judge.lines)
    print(f"{judge.passed} passed, {judge.failed} failed")
    return judge.failed > 0


if __name__ == "__main__":
    sys.exit(main())
