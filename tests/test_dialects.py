#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Tests of sources and outputs in words of AWQ and GPTQ. Words are packed and read here, code by code.

    test_dialects.py QOBS
"""
import json
import os
import shutil
import struct
import sys

import cli
from cli import check, equal
from test_casts import random_bytes
from test_quantize_command import quantize, refused, tensor, write
from test_sources import make, st_raw

MODULE = "model.layers.0.mlp.down_proj"
ROWS, COLUMNS, GROUP = 64, 128, 32
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False, "desc_act": False}
AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": GROUP, "packing_format": "auto_round:auto_gptq"}
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # of the codes in a word of AWQ, from its lowest bits on


# ---- Matrices of codes -----------------------------------------------------------------------------------------------

class Matrix:
    """Codes [row][column], zero points and scales [row][group], of a number of bits."""

    def __init__(self, name, bits=4, zero=None, negative=False):
        count = 1 << bits
        self.bits = bits
        self.codes = self.numbers_of(name + " codes", COLUMNS, lambda b: b % count)
        self.zeros = self.numbers_of(name + " zeros", COLUMNS // GROUP,
                                     lambda b: b % (count - 1) + 1 if zero is None else zero)
        self.scales = self.numbers_of(name + " scales", COLUMNS // GROUP,
                                      lambda b: cli.ROUND["F16"]((b + 1) * (-0.0007 if negative and b % 3 else 0.0007)))

    @staticmethod
    def numbers_of(name, columns, of):
        data = random_bytes(name, ROWS * columns)
        return [[of(b) for b in data[r * columns:(r + 1) * columns]] for r in range(ROWS)]

    def values(self, groups=None):
        """The numbers in F16."""
        groups = groups or [c // GROUP for c in range(COLUMNS)]
        return [cli.ROUND["F16"]((self.codes[r][c] - self.zeros[r][groups[c]]) * self.scales[r][groups[c]])
                for r in range(ROWS) for c in range(COLUMNS)]

    def mirrored(self):
        """The same numbers with positive scales: (q - z) s = (~q - ~z) |s|."""
        out, top = Matrix("mirrored", self.bits), (1 << self.bits) - 1
        out.codes = [[top - c if self.scales[r][i // GROUP] < 0 else c for i, c in enumerate(row)]
                     for r, row in enumerate(self.codes)]
        out.zeros = [[top - z if s < 0 else z for z, s in zip(*rows)] for rows in zip(self.zeros, self.scales)]
        out.scales = [[abs(s) for s in row] for row in self.scales]
        return out

    def stored_scales(self):
        columns = COLUMNS // GROUP
        return "F16", [columns, ROWS], struct.pack(f"<{ROWS * columns}e",
                                                   *(self.scales[r][g] for g in range(columns) for r in range(ROWS)))

    def awq(self, zeros=True):
        words = lambda rows: b"".join(struct.pack("<I", sum(row[8 * w + code] << 4 * place for place,
                                                            code in enumerate(ORDER)))
                                      for row in rows for w in range(ROWS // 8))
        out = {f"{MODULE}.qweight": ("I32", [COLUMNS, ROWS // 8], words(zip(*self.codes))),
               f"{MODULE}.scales": self.stored_scales()}
        return out | ({f"{MODULE}.qzeros": ("I32", [COLUMNS // GROUP, ROWS // 8], words(zip(*self.zeros)))} if zeros
                      else {})

    def gptq(self, lacking=1, groups=None):
        def stream(codes):
            value = sum(code << i * self.bits for i, code in enumerate(codes))
            return [value >> 32 * i & 0xffffffff for i in range(len(codes) * self.bits // 32)]

        columns = [stream(row) for row in self.codes]
        words = [columns[r][k] for k in range(len(columns[0])) for r in range(ROWS)]
        zeros = [w for column in zip(*self.zeros) for w in stream([z - lacking for z in column])]
        groups = groups or [c // GROUP for c in range(COLUMNS)]
        of = lambda values: struct.pack(f"<{len(values)}I", *values)
        return {f"{MODULE}.qweight": ("I32", [COLUMNS * self.bits // 32, ROWS], of(words)),
                f"{MODULE}.scales": self.stored_scales(),
                f"{MODULE}.qzeros": ("I32", [COLUMNS // GROUP, ROWS * self.bits // 32], of(zeros)),
                f"{MODULE}.g_idx": ("I32", [COLUMNS], of(groups))}


def packed_values(tensors, bits):
    """The numbers of a module in packed integers of compressed-tensors."""
    def codes(words, count):
        value = sum(w << 32 * i for i, w in enumerate(words))
        return [(value >> bits * i & (1 << bits) - 1) - (1 << bits - 1) for i in range(count)]

    _, (rows, width), data = tensors[f"{MODULE}.weight_packed"]
    words = struct.unpack(f"<{rows * width}I", data)
    _, columns = struct.unpack("<2q", tensors[f"{MODULE}.weight_shape"][2])
    dtype, (_, groups), data = tensors[f"{MODULE}.weight_scale"]
    equal(dtype, "F16", "the dtype of scales")
    scales = cli.unpack("F16", data)
    zeros = [[0] * rows for _ in range(groups)]
    if f"{MODULE}.weight_zero_point" in tensors:
        stored = struct.unpack(f"<{rows * bits // 32 * groups}I", tensors[f"{MODULE}.weight_zero_point"][2])
        zeros = [codes(stored[g::groups], rows) for g in range(groups)]
    out = []
    for r in range(rows):
        row = codes(words[r * width:(r + 1) * width], columns)
        out += [cli.ROUND["F16"]((code - zeros[c * groups // columns][r]) * scales[r * groups + c * groups // columns])
                for c, code in enumerate(row)]
    return out


def run(what, tensors, config, scheme, *options):
    make("in", tensors, quantization_config=config)
    shutil.rmtree("out", ignore_errors=True)
    p = cli.run("quantize", "in", "--scheme", scheme, "-o", "out", "--json", "report.json", *options)
    equal(p.returncode, 0, f"{what}: exit status {p.stderr}")
    check(max(map(len, p.stdout.splitlines())) <= 80, f"{what}: the summary in 80 columns", p.stdout)
    return st_raw("out/model.safetensors"), json.loads(cli.read("report.json")), p.stdout


# ---- Tests -----------------------------------------------------------------------------------------------------------

def sources():
    """Yields (name, title, matrix, tensors, configuration, symmetric scheme or none)."""
    for bits in (2, 3, 4, 8):
        m = Matrix(f"{bits} bits", bits)
        yield f"GPTQ of {bits} bits", "GPTQ", m, m.gptq(), {**GPTQ, "bits": bits}, None
        m = Matrix(f"{bits} bits v2", bits)
        yield f"GPTQ v2 of {bits} bits", "GPTQ v2", m, m.gptq(0), {**GPTQ, "bits": bits,
                                                                   "checkpoint_format": "gptq_v2"}, None
    m = Matrix("symmetric", 4, 8)
    yield "symmetric GPTQ", "GPTQ", m, m.gptq(), {**GPTQ, "sym": True, "checkpoint_format": "gptq"}, "W4A16"
    yield "GPTQ without g_idx", "GPTQ", m, {k: v for k, v in m.gptq().items() if "g_idx" not in k}, GPTQ, "W4A16"
    m = Matrix("awq")
    yield "AWQ", "AWQ", m, m.awq(), AWQ, None
    m = Matrix("awq without zero points", 4, 8)
    yield "AWQ without zero points", "AWQ", m, m.awq(False), {**AWQ, "zero_point": False}, "W4A16"
    m = Matrix("auto-round")
    yield "AutoRound", "GPTQ", m, m.gptq(), AUTO_ROUND, None
    m = Matrix("auto-round, symmetric", 4, 8, True)
    yield "AutoRound with negative scales", "GPTQ", m, m.gptq(), AUTO_ROUND, None
    yield "AutoRound, AWQ", "AWQ", m, m.awq(), {**AUTO_ROUND, "packing_format": "auto_round:auto_awq"}, None


def test_kept():
    """A scheme with the same groups, or smaller ones, and zero points if there are some, keeps every number."""
    for what, title, m, tensors, config, scheme in sources():
        options = ("--set", f"num_bits={m.bits}") + (("--set", "symmetric=false") if not scheme else ())
        for group in (GROUP, GROUP // 2):
            out, report, printed = run(f"{what}, groups of {group}", tensors, config, "W4A16", "--set",
                                       f"group_size={group}", *options)
            equal(packed_values(out, m.bits), m.values(), f"{what}, groups of {group}: numbers")
            equal({n[len(MODULE) + 1:] for n in out} - {"weight_zero_point"},
                  {"weight_packed", "weight_scale", "weight_shape"},
                  f"{what}: nothing else is left")
            blocks = ROWS * COLUMNS // GROUP
            equal(report["layers"][0]["cast"], {"source": title, "blocks": blocks, "lossless": blocks},
                  f"{what}: the report")
            check(f"{title} to pack-quantized: {blocks} of {blocks} blocks lossless\n" in printed,
                  f"{what}: the summary", printed)


def test_dequantized():
    """What --ignore leaves out has its numbers, and what a scheme does not hold is quantized from them."""
    for what, _, m, tensors, config, scheme in sources():
        other = {"model.layers.0.self_attn.q_proj.weight": tensor([128, 128], 1)}
        out, _, _ = run(f"{what}, ignored", {**tensors, **other}, config, "W8A16", "--ignore", MODULE)
        equal(out[f"{MODULE}.weight"], ("F16", [ROWS, COLUMNS], struct.pack(f"<{ROWS * COLUMNS}e", *m.values())),
              f"{what}: numbers")
        equal([n for n in out if n.startswith(MODULE)], [f"{MODULE}.weight"], f"{what}: nothing else is left")
        if not scheme:
            _, report, _ = run(f"{what}, symmetric", tensors, config, "W4A16", "--set", f"group_size={GROUP}")
            check("cast" not in report["layers"][0] and len(report["dequantized"]) == 1, f"{what}: dequantized",
                  str(report["layers"]))
            hints = str(report["warnings"])
            check(m.bits != 4 or "1 weight has zero points" in hints and "symmetric=false" in hints,
                  f"{what}: what would keep them", hints)


def test_orders():
    """Columns in an order of their own are read, and quantized from their numbers."""
    m, groups = Matrix("order"), [b % (COLUMNS // GROUP) for b in random_bytes("groups", COLUMNS)]
    tensors = m.gptq(groups=groups)
    out, report, _ = run("desc_act", {**tensors, "a_proj.weight": tensor([128, 128], 1)}, {**GPTQ, "desc_act": True},
                         "W8A16", "--ignore", MODULE)
    equal(out[f"{MODULE}.weight"][2], struct.pack(f"<{ROWS * COLUMNS}e", *m.values(groups)), "desc_act: numbers")
    _, report, _ = run("desc_act", tensors, {**GPTQ, "desc_act": True}, "W4A16_ASYM", "--set", f"group_size={GROUP}")
    check("cast" not in report["layers"][0], "desc_act: no cast")
    for what, index in (("a group too large", [COLUMNS // GROUP] * COLUMNS),
                        ("a negative group", [0xffffffff] * COLUMNS)):
        make("in", m.gptq(groups=index), quantization_config=GPTQ)
        refused(what, quantize("in", "-o", "out", "--replace"), 2, f"{MODULE}.g_idx", "column 0 has group")
    make("in", {**tensors, f"{MODULE}.g_idx": ("I32", [4], bytes(16))}, quantization_config=GPTQ)
    refused("a short index", quantize("in", "-o", "out", "--replace"), 2, f"{MODULE}.g_idx", f"I32 [{COLUMNS}]")


def test_descriptions():
    """Files beside config.json that describe the earlier quantization go."""
    make("in", Matrix("files").awq(), quantization_config=AWQ)
    for name in ("quant_config.json", "quantize_config.json", "quantization_config.json", "generation_config.json"):
        with open(f"in/{name}", "w", encoding="utf-8") as file:
            file.write("{}")
    equal(quantize("in", "-o", "out", "--replace", "--set", f"group_size={GROUP}", scheme="W4A16_ASYM").returncode, 0,
          "the run")
    equal([n for n in sorted(os.listdir("out")) if n.endswith("config.json")],
          ["config.json", "generation_config.json"], "configurations")


def test_sixteen():
    """A zero point of 16, which GPTQ can store and 4 bits of compressed-tensors cannot, is quantized from the
    numbers."""
    m = Matrix("sixteen", 4, 16)
    _, report, _ = run("zero points of 16", m.gptq(), GPTQ, "W4A16_ASYM", "--set", f"group_size={GROUP}")
    check("cast" not in report["layers"][0], "zero points of 16: no cast")


def test_refusals():
    """Layouts that are none of these are refused by name."""
    m = Matrix("refusals")
    for what, tensors, config, words in (
            ("GEMV", m.awq(), {**AWQ, "version": "gemv"}, ("version", "gemv", "gemm")),
            ("Quark, symmetric", m.awq(False), {**AWQ, "zero_point": False, "pack_method": "reorder"},
             ("zero_point is false", "AMD Quark", "reorder")),
            ("Quark, plain order", m.awq(), {**AWQ, "pack_method": "order"}, ('pack_method is "order"', "AMD Quark")),
            ("Marlin", m.gptq(), {**GPTQ, "checkpoint_format": "marlin"}, ("checkpoint_format", "marlin", "gptq_v2")),
            ("AutoRound of another kind", m.gptq(), {**AUTO_ROUND, "packing_format": "auto_round:mlx"},
             ("packing_format", "auto_round:mlx")),
            ("codes without scales", {f"{MODULE}.qweight": m.gptq()[f"{MODULE}.qweight"]}, GPTQ,
             (f"{MODULE}.qweight", "without scales")),
            ("scales of other rows", {**m.awq(), f"{MODULE}.scales": ("F16", [4, 40], bytes(320))}, AWQ,
             (f"{MODULE}.qweight", "[4,40]", "GEMM")),
            ("NaN", {**m.awq(), f"{MODULE}.scales": ("F16", [4, 64], b"\0\x7e" * 256)}, AWQ, (MODULE, "NaN"))):
        make("in", tensors, quantization_config=config)
        shutil.rmtree("out", ignore_errors=True)
        p = quantize("in", "-o", "out", "--set", f"group_size={GROUP}", scheme="W4A16_ASYM")
        refused(what, p, 2, *words)
        check(not os.path.exists("out"), f"{what}: nothing is written")


# ---- Output ----------------------------------------------------------------------------------------------------------

DIALECTS = {"awq": ("AWQ", Matrix.awq), "gptq": ("GPTQ", Matrix.gptq), "gptq-v2": ("GPTQ v2", lambda m: m.gptq(0))}


def configuration(dialect, bits, group, symmetric):
    if dialect == "awq":
        return {"quant_method": "awq", "version": "gemm", "zero_point": True, "bits": bits, "group_size": group,
                "modules_to_not_convert": []}
    return {"quant_method": "gptq", "checkpoint_format": dialect.replace("-", "_"), "desc_act": False, "lm_head": False,
            "bits": bits, "group_size": group, "sym": symmetric, "dynamic": {}}


def convert(what, *options):
    shutil.rmtree("out", ignore_errors=True)
    p = cli.run("convert", "in", "-o", "out", "--json", "report.json", *options)
    equal(p.returncode, 0, f"{what}: exit status {p.stderr}")
    return st_raw("out/model.safetensors") if p.returncode == 0 else {}


def test_converted():
    """Each source becomes each dialect that holds its bits: the bytes are those that are packed here."""
    for what, title, m, tensors, config, scheme in sources():
        negative = any(s < 0 for row in m.scales for s in row)
        equal(m.mirrored().values(), m.values(), f"{what}: the same numbers")
        for dialect, (name, pack) in DIALECTS.items():
            make("in", tensors, quantization_config=config)
            if dialect == "awq" and m.bits != 4:
                p = cli.run("convert", "in", "-o", "out", "--replace", "--dialect", "awq")
                refused(f"{what} to awq", p, 2, "awq does not store", "4 bits", "--dialect compressed-tensors")
                continue
            out = convert(f"{what} to {dialect}", "--dialect", dialect)
            described = json.loads(cli.read("out/config.json"))["quantization_config"]
            symmetric = bool(scheme) or all(z == 1 << m.bits - 1 for row in m.zeros for z in row) and not negative
            equal(described, configuration(dialect, m.bits, GROUP, symmetric), f"{what} to {dialect}: configuration")
            equal(out, pack(m.mirrored()), f"{what} to {dialect}")
            blocks = ROWS * COLUMNS // GROUP
            layer = json.loads(cli.read("report.json"))["layers"][0]
            equal((layer["format"], layer["cast"]), (name, {"source": title, "blocks": blocks, "lossless": blocks}),
                  f"{what} to {dialect}: the report")
        make("in", tensors, quantization_config=config)
        out = convert(f"{what} to compressed-tensors")
        equal(packed_values(out, m.bits), m.values(), f"{what} to compressed-tensors: numbers")


def test_there_and_back():
    """compressed-tensors to a dialect and back gives the same bytes."""
    for what, _, m, tensors, config, _ in sources():
        for dialect in DIALECTS:
            if dialect == "awq" and m.bits != 4:
                continue
            make("in", tensors, quantization_config=config)
            first = convert(what)
            shutil.rmtree("in")
            shutil.move("out", "in")
            convert(f"{what} to {dialect}", "--dialect", dialect)
            shutil.rmtree("in")
            shutil.move("out", "in")
            equal(convert(f"{what} from {dialect}"), first, f"{what}, {dialect}: there and back")


def test_many_words():
    """A matrix of several tiles and slices, with rests: each source becomes each dialect, code by code, and back."""
    rows, columns, group = 808, 2304, 128
    groups, width = columns // group, rows // 8
    of = lambda name, *shape: ("I32", list(shape), random_bytes(name, 4 * shape[0] * shape[1]))
    scales = b"".join(struct.pack("<e", (b + 1) / 997) for b in random_bytes("many scales", groups * rows))
    source = {f"{MODULE}.qweight": of("many", columns, width), f"{MODULE}.scales": ("F16", [groups, rows], scales),
              f"{MODULE}.qzeros": of("many zeros", groups, width)}
    words = {"awq": struct.unpack(f"<{columns * width}I", source[f"{MODULE}.qweight"][2])}
    codes = {"awq": lambda r, c: words["awq"][c * width + r // 8] >> 4 * ORDER.index(r % 8) & 15,
             "gptq-v2": lambda r, c: words["gptq-v2"][c // 8 * rows + r] >> 4 * (c % 8) & 15,
             "compressed-tensors": lambda r, c: words["compressed-tensors"][(r * columns + c) // 8] >> 4 * (c % 8) & 15}
    make("in", source, quantization_config={**AWQ, "group_size": group})
    for dialect in ("gptq-v2", "awq", "compressed-tensors", "gptq-v2", "compressed-tensors", "awq"):
        out = convert(f"many words to {dialect}", "--dialect", dialect)
        part = "weight_packed" if dialect == "compressed-tensors" else "qweight"
        words[dialect] = struct.unpack(f"<{columns * width}I", out[f"{MODULE}.{part}"][2])
        places = [(i % rows, i % columns) for i in range(0, rows * columns, 89)]
        equal([codes[dialect](r, c) for r, c in places], [codes["awq"](r, c) for r, c in places],
              f"many words to {dialect}: codes")
        shutil.rmtree("in")
        shutil.move("out", "in")
    equal(st_raw("in/model.safetensors"), source, "many words: there and back")


def test_slices_of_squares():
    """Slices of symmetric AWQ begin with whole words of eight rows, whatever the number of columns."""
    rows, columns = 136, 16512
    groups, width = columns // 128, rows // 8
    source = {f"{MODULE}.qweight": ("I32", [columns, width], random_bytes("slices", 4 * columns * width)),
              f"{MODULE}.qzeros": ("I32", [groups, width], b"\x88" * (4 * groups * width)),
              f"{MODULE}.scales": ("F16", [groups, rows], struct.pack("<e", 0.01) * (groups * rows))}
    make("in", source, quantization_config={**AWQ, "zero_point": False, "group_size": 128})
    for dialect in ("compressed-tensors", "awq"):
        out = convert(f"slices to {dialect}", "--scheme", "W4A16", "--dialect", dialect)
        shutil.rmtree("in")
        shutil.move("out", "in")
    equal(out, source, "slices: there and back")


def read_words(tensors, module, bits, dialect):
    """The numbers of a module, by its tensors alone."""
    _, (groups, rows), data = tensors[f"{module}.scales"]
    scales = cli.unpack(tensors[f"{module}.scales"][0], data)
    words = lambda name: struct.unpack(f"<{len(tensors[f'{module}.{name}'][2]) // 4}I", tensors[f"{module}.{name}"][2])
    code = lambda stream, i: sum(stream[i * bits // 32 + k] << 32 * k for k in range(2) if i * bits // 32 + k
                                 < len(stream)) >> i * bits % 32 & (1 << bits) - 1
    qweight, qzeros, width = words("qweight"), words("qzeros"), rows * bits // 32
    zero = lambda g, r: code(qzeros[g * width:(g + 1) * width], r) + (dialect == "gptq")
    if dialect == "awq":
        columns = tensors[f"{module}.qweight"][1][0]
        place = [ORDER.index(i) for i in range(8)]
        number = lambda word, r: word >> 4 * place[r % 8] & 15
        codes = [[number(qweight[c * width + r // 8], r) for c in range(columns)] for r in range(rows)]
        zero = lambda g, r: number(qzeros[g * width + r // 8], r)
    else:
        columns = tensors[f"{module}.qweight"][1][0] * 32 // bits
        codes = [[code(qweight[r::rows], c) for c in range(columns)] for r in range(rows)]
    return [(codes[r][c] - zero(c * groups // columns, r)) * scales[c * groups // columns * rows + r]
            for r in range(rows) for c in range(columns)]


def test_quantized():
    """A plain model has in each dialect the numbers that it has in compressed-tensors."""
    name = MODULE + ".weight"
    for rows, columns, group, bits, asymmetric in ((64, 128, 32, 4, True), (96, 256, 128, 4, False),
                                                   (32, 96, 32, 3, True), (64, 64, 0, 8, False), (48, 64, 16, 2, True)):
        if bits == 2:
            rows = 64
        values = random_bytes(f"plain {bits} {rows}", 2 * rows * columns)
        values = b"".join(struct.pack("<e", (b - 128) / 97) for b in values[:rows * columns])
        make("in", {name: ("F16", [rows, columns], values),
                    "lm_head.weight": ("F16", [64, columns], bytes(128 * columns))}, torch_dtype="float16")
        options = ["--set", f"num_bits={bits}", "--set", f"symmetric={'false' if asymmetric else 'true'}"]
        options += ["--set", f"group_size={group}"] if group else ["--set", "strategy=channel"]
        what = f"{bits} bits, {rows} x {columns}, groups of {group}"
        q = lambda *more: quantize("in", "-o", "out", "--replace", *options, *more, scheme="W4A16")
        equal(q().returncode, 0, f"{what}: compressed-tensors")
        shutil.rmtree("packed", ignore_errors=True)
        shutil.move("out", "packed")
        want = packed_numbers("packed", bits)
        for dialect in DIALECTS:
            if dialect == "awq" and bits != 4:
                continue
            p = q("--dialect", dialect, "--keep-findings")
            equal(p.returncode, 0, f"{what}, {dialect}: {p.stderr}")
            out = st_raw("out/model.safetensors")
            equal(read_words(out, MODULE, bits, dialect), want, f"{what}, {dialect}: numbers")
            check("lm_head.weight" in out, f"{what}, {dialect}: the head stays")
            described = json.loads(cli.read("out/config.json"))["quantization_config"]
            equal((described["bits"], described["group_size"]), (bits, group or -1), f"{what}, {dialect}: described")
            equal(described.get("modules_to_not_convert", list(described.get("dynamic", {}))),
                  ["lm_head"] if dialect == "awq" else ["-:^lm_head$"], f"{what}, {dialect}: what stays")
            status = cli.run("audit", "out")
            check(status.returncode == 0, f"{what}, {dialect}: the audit", status.stdout + status.stderr)


def packed_numbers(path, bits):
    """The numbers of the module in pack-quantized, without rounding."""
    tensors = st_raw(f"{path}/model.safetensors")
    _, (rows, width), data = tensors[f"{MODULE}.weight_packed"]
    _, columns = struct.unpack("<2q", tensors[f"{MODULE}.weight_shape"][2])
    words = struct.unpack(f"<{rows * width}I", data)
    half = 1 << bits - 1

    def codes(stream, count):
        value = sum(w << 32 * i for i, w in enumerate(stream))
        return [(value >> bits * i & (1 << bits) - 1) - half for i in range(count)]
    _, (_, groups), data = tensors[f"{MODULE}.weight_scale"]
    scales, zeros = cli.unpack(tensors[f"{MODULE}.weight_scale"][0], data), [[0] * rows for _ in range(groups)]
    if f"{MODULE}.weight_zero_point" in tensors:
        data = tensors[f"{MODULE}.weight_zero_point"][2]
        stored = struct.unpack(f"<{len(data) // 4}I", data)
        zeros = [codes(stored[g::groups], rows) for g in range(groups)]
    group = [c * groups // columns for c in range(columns)]
    return [(code - zeros[group[c]][r]) * scales[r * groups + group[c]]
            for r in range(rows) for c, code in enumerate(codes(words[r * width:(r + 1) * width], columns))]


def test_parts():
    """Parts, which processes of their own write, have the bytes of one run; experts of a mixture are layers as
    others."""
    layers = [f"model.layers.{i}.mlp.experts.{e}.{m}_proj" for i in (0, 1) for e in (0, 1)
              for m in ("gate", "up", "down")]
    make("in", {})
    os.remove("in/model.safetensors")
    files = {f"model-{i + 1:05}-of-00002.safetensors":
             {n + ".weight": tensor([64, 64], i) for n in layers[6 * i:6 * i + 6]} for i in (0, 1)}
    for name, tensors in files.items():
        write(f"in/{name}", cli.st_bytes(tensors))
    index = {"weight_map": {n: name for name, tensors in files.items() for n in tensors}}
    write("in/model.safetensors.index.json", json.dumps(index).encode())
    for dialect in DIALECTS:
        for path in ("out", "whole"):
            shutil.rmtree(path, ignore_errors=True)
        options = ("in", "--scheme", "W4A16", "--set", "group_size=32", "--dialect", dialect, "--keep-findings")
        equal(cli.run("quantize", *options, "-o", "whole").returncode, 0, f"{dialect}: one run")
        for part in ("2/2", "1/2"):
            equal(cli.run("quantize", *options, "-o", "out", "--part", part).returncode, 0, f"{dialect}: part {part}")
        equal(cli.run("quantize", "--finish", "out", "--keep-findings").returncode, 0, f"{dialect}: finish")
        equal(sorted(os.listdir("out")), sorted(os.listdir("whole")), f"{dialect}: files of parts")
        for name in os.listdir("whole"):
            check(cli.read(f"out/{name}") == cli.read(f"whole/{name}"), f"{dialect}: {name} of parts")
        names = {n for name in files for n in st_raw(f"out/{name}")}
        check({f"{n}.qweight" for n in layers} <= names, f"{dialect}: experts", str(names))


def test_zero_point_of_zero():
    """GPTQ v1 has no zero point 0; the others do."""
    m = Matrix("zero", 4, 0)
    make("in", m.awq(), quantization_config=AWQ)
    shutil.rmtree("out", ignore_errors=True)
    refused("a zero point of 0", cli.run("convert", "in", "-o", "out", "--dialect", "gptq"), 2, MODULE,
            "zero point 0", "gptq-v2")
    check(not os.path.exists("out"), "a zero point of 0: nothing is written")
    for dialect, pack in (("awq", Matrix.awq), ("gptq-v2", lambda m: m.gptq(0))):
        equal(convert(dialect, "--dialect", dialect), pack(m), f"a zero point of 0 in {dialect}")


def floats(tensor):
    """The numbers of a tensor, of one byte as e4m3."""
    dtype, _, data = tensor
    e4m3 = lambda b: (-1) ** (b >> 7) * ((8 + b % 8) * 2.0 ** ((b >> 3 & 15) - 10) if b & 120 else b % 8 * 2.0 ** -9)
    return [e4m3(b) for b in data] if dtype == "F8_E4M3" else list(cli.unpack(dtype, data))


F8, F4 = {"num_bits": 8, "type": "float"}, {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
STATIC, MX = {"dynamic": False, **F8}, {**F8, "group_size": 32, "strategy": "group"}
# Scheme: quant_algo, group_size, shape of weight_scale of 256 x 512, weights and inputs of the configuration, as
# Model-Optimizer 0.48 writes them.
MODELOPT = {
    "FP8": ("FP8", None, [], STATIC, STATIC),
    "FP8_DYNAMIC": ("FP8_PER_CHANNEL_PER_TOKEN", None, [256], {**STATIC, "strategy": "channel"},
                    {"dynamic": True, **F8, "strategy": "token"}),
    "FP8_BLOCK": ("FP8_PB_WO", 128, [2, 1, 4, 1], {**STATIC, "strategy": "block", "block_structure": [128, 128]}, None),
    "NVFP4": ("NVFP4", 16, [256, 32], F4, F4),
    "NVFP4A16": ("W4A16_NVFP4", 16, [256, 32], F4, None),
    "MXFP8": ("MXFP8", 32, [256, 16], {"dynamic": False, **MX}, {"dynamic": True, **MX})}


def test_fp8():
    """DeepSeek's names and configuration; codes and scales are those of compressed-tensors, and audit reads them."""
    weight = b"".join(struct.pack("<f", (b - 128) / 97)[2:] for b in random_bytes("down", 256 * 512))
    make("in", {f"{MODULE}.weight": ("BF16", [256, 512], weight), "lm_head.weight": ("BF16", [64, 512], bytes(65536))},
         torch_dtype="bfloat16")
    for path, dialect in (("packed", "compressed-tensors"), ("out", "fp8")):
        p = quantize("in", "-o", path, "--dialect", dialect, scheme="FP8_BLOCK")
        equal(p.returncode, 0, f"FP8_BLOCK, {dialect}: {p.stderr}")
    out, want = st_raw("out/model.safetensors"), st_raw("packed/model.safetensors")
    equal(out[f"{MODULE}.weight"], want[f"{MODULE}.weight"], "fp8: codes")
    scale = out.pop(f"{MODULE}.weight_scale_inv")
    equal((scale[:2], floats(scale)), (("F32", [2, 4]), floats(want[f"{MODULE}.weight_scale"])), "fp8: scales")
    equal({n for n in out if n.startswith(MODULE)}, {f"{MODULE}.weight"}, "fp8: names of tensors")
    equal(json.loads(cli.read("out/config.json"))["quantization_config"],
          {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
           "modules_to_not_convert": ["lm_head"]}, "fp8: the configuration")
    p = cli.run("audit", "out", "--against", "in")
    check(p.returncode == 0 and "1 quantized layers, 0 findings" in p.stdout and "nearest: 0 of 131072" in p.stdout,
          "fp8: audit", p.stdout + p.stderr)
    sound = st_raw("out/model.safetensors")
    os.remove("out/model.safetensors.index.json")
    scales = f"{MODULE}.weight_scale_inv"
    for name, words in ((f"{MODULE}.weight_scale", "has weight_scale, which"), (None, "has no weight_scale_inv")):
        broken = {**sound, name: sound[scales]} if name else {n: t for n, t in sound.items() if n != scales}
        write("out/model.safetensors", cli.st_bytes(broken))
        p = cli.run("audit", "out")
        check(p.returncode == 3 and words in p.stdout + p.stderr, f"fp8: {words}", p.stdout + p.stderr)


def modelopt_configuration(algorithm, size, weights, inputs, kv_cache):
    """config.json's member and the contents of hf_quant_config.json."""
    group = {**({"input_activations": inputs} if inputs else {}), "weights": weights, "targets": ["Linear"]}
    sized = {"group_size": size} if size else {}
    producer = {"producer": {"name": "modelopt", "version": "0.48.0"}}
    return ({"config_groups": {"group_0": group}, "ignore": ["lm_head"], "quant_algo": algorithm, **sized, **producer,
             "quant_method": "modelopt",
             **({"kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}} if kv_cache else {})},
            {**producer, "quantization": {"quant_algo": algorithm, **sized, "exclude_modules": ["lm_head"],
                                          "kv_cache_quant_algo": "FP8" if kv_cache else None}})


def check_modelopt(scheme, out, want):
    """The tensors of a layer in ModelOpt's spelling and in compressed-tensors have the same numbers."""
    part = lambda tensors, name: tensors.get(f"{MODULE}.{name}")
    algorithm, _, shape, _, _ = MODELOPT[scheme]
    dtype = {16: "F8_E4M3", 32: "U8"}.get(MODELOPT[scheme][1], "F32")
    equal(part(out, "weight_scale")[:2], (dtype, shape), f"{scheme}: the shape of scales")
    packed = "weight_packed" if "NVFP4" in scheme else "weight"
    equal(part(out, "weight"), part(want, packed), f"{scheme}: codes")
    equal(floats(part(out, "weight_scale")) if dtype != "U8" else part(out, "weight_scale")[2],
          floats(part(want, "weight_scale")) if dtype != "U8" else part(want, "weight_scale")[2], f"{scheme}: scales")
    names = {"weight", "weight_scale"}
    if "NVFP4" in scheme:
        names.add("weight_scale_2")
        (divisor,), (factor,) = floats(part(want, "weight_global_scale")), floats(part(out, "weight_scale_2"))
        equal(part(out, "weight_scale_2")[:2], ("F32", []), f"{scheme}: the global scale")
        f32, bf16 = cli.ROUND["F32"], cli.ROUND["BF16"]
        products = {(s, code) for s in floats(part(want, "weight_scale")) for code in (.5, 1, 1.5, 2, 3, 4, 6)}
        check(all(bf16(f32(code * f32(s * factor))) == bf16(f32(code * f32(s / divisor))) for s, code in products),
              f"{scheme}: numbers under the global scale", f"{divisor} {factor}")
    if scheme in ("FP8", "NVFP4"):
        names.add("input_scale")
        (stored,) = floats(part(out, "input_scale"))
        (scale,) = floats(part(want, "input_scale" if scheme == "FP8" else "input_global_scale"))
        equal((part(out, "input_scale")[:2], stored),
              (("F32", []), scale if scheme == "FP8" else cli.ROUND["F32"](1 / scale)), f"{scheme}: input_scale")
    equal({n.rsplit(".", 1)[1] for n in out if n.startswith(MODULE)}, names, f"{scheme}: names of tensors")


def test_modelopt():
    """Each scheme that Model-Optimizer has: names, shapes, dtypes and configuration are its own, numbers those of
    compressed-tensors."""
    halves = lambda name, count: b"".join(struct.pack("<e", (b - 128) / 97) for b in random_bytes(name, count))
    bf16 = lambda name, *shape: ("BF16", list(shape), b"".join(
        struct.pack("<f", (b - 128) / 97)[2:] for b in random_bytes(name, shape[0] * shape[1])))
    attention = "model.layers.0.self_attn"
    model = {f"{MODULE}.weight": bf16("down", 256, 512), "lm_head.weight": ("BF16", [64, 512], bytes(65536)),
             f"{attention}.k_proj.weight": bf16("k", 256, 512), f"{attention}.v_proj.weight": bf16("v", 256, 512)}
    layers = (MODULE, f"{attention}.k_proj", f"{attention}.v_proj")
    write("recorded.safetensors", cli.st_bytes(
        {f"{m}.input": ("F16", [4, 512], halves(m, 2048)) for m in layers} |
        {f"{attention}.{k}_states": ("F16", [1, 2, 4, 128], halves(k, 1024)) for k in "kv"}))
    for scheme, (algorithm, size, _, weights, inputs) in MODELOPT.items():
        make("in", model, torch_dtype="bfloat16")
        recorded = ["--activations", "recorded.safetensors"] if scheme in ("FP8", "NVFP4") else []
        for path, dialect in (("packed", "compressed-tensors"), ("out", "modelopt")):
            p = quantize("in", "-o", path, "--replace", "--dialect", dialect, *recorded, scheme=scheme)
            equal(p.returncode, 0, f"{scheme}, {dialect}: {p.stderr}")
        out, want = st_raw("out/model.safetensors"), st_raw("packed/model.safetensors")
        check_modelopt(scheme, out, want)
        config = modelopt_configuration(algorithm, size, weights, inputs, bool(recorded))
        equal(json.loads(cli.read("out/config.json"))["quantization_config"], config[0], f"{scheme}: config.json")
        equal(json.loads(cli.read("out/hf_quant_config.json")), config[1], f"{scheme}: hf_quant_config.json")
        for k in "kv" if recorded else "":
            stored, scale = out[f"{attention}.{k}_proj.{k}_scale"], want[f"{attention}.{k}_scale"]
            equal((stored[:2], floats(stored)), (("F32", []), floats(scale)), f"{scheme}: the scale of {k}")
        p = cli.run("audit", "out")
        check(p.returncode == 0 and " 0 findings" in p.stdout, f"{scheme}: the audit", p.stdout + p.stderr)
    for path in ("first", "second", "third"):
        shutil.rmtree(path, ignore_errors=True)
    make("in", model, torch_dtype="bfloat16")
    equal(quantize("in", "-o", "first", scheme="NVFP4A16").returncode, 0, "NVFP4A16")
    for source, path, dialect in (("first", "second", "modelopt"), ("second", "third", "compressed-tensors")):
        p = cli.run("convert", source, "--scheme", "NVFP4A16", "--dialect", dialect, "-o", path)
        check(p.returncode == 0 and "24576 of 24576 blocks lossless" in p.stdout, f"NVFP4 to {dialect}",
              p.stdout + p.stderr)
    check_modelopt("NVFP4A16", st_raw("second/model.safetensors"), st_raw("third/model.safetensors"))


def test_dialect_refusals():
    """Values that a dialect cannot store, and conversions that would change numbers, are refused."""
    m, other = Matrix("no"), {"model.layers.0.self_attn.q_proj.weight": tensor([128, 128], 1)}
    groups = [b % (COLUMNS // GROUP) for b in random_bytes("groups", COLUMNS)]
    plain = {MODULE + ".weight": tensor([64, 128], 1)}
    for what, tensors, config, command, options, words in (
            ("an unknown dialect", plain, None, "quantize", ("--scheme", "W4A16", "--dialect", "aqw"),
             ("dialect", "'aqw'", "compressed-tensors, awq, gptq, gptq-v2, fp8, modelopt", "did you mean 'awq'")),
            ("GGUF", plain, None, "quantize", ("--scheme", "W4A16", "--dialect", "gguf"),
             ("'gguf'", "convert_hf_to_gguf.py", "--scheme Q4_K_M")),
            ("FP8", plain, None, "quantize", ("--scheme", "FP8_DYNAMIC", "--dialect", "awq"), ("awq", "FP8_DYNAMIC")),
            ("activations", plain, None, "quantize", ("--scheme", "W4A8", "--dialect", "gptq"), ("gptq", "W4A8")),
            ("5 bits", plain, None, "quantize", ("--scheme", "W4A16", "--set", "num_bits=5", "--set", "group_size=32",
                                                 "--dialect", "gptq"), ("gptq", "2, 3, 4, 8")),
            ("per tensor", plain, None, "quantize", ("--scheme", "FP8_DYNAMIC", "--dialect", "fp8"),
             ("fp8 does not store FP8_DYNAMIC", "FP8_BLOCK")),
            ("integers", plain, None, "quantize", ("--scheme", "W4A16", "--dialect", "modelopt"),
             ("modelopt does not store W4A16", "FP8, FP8_DYNAMIC, FP8_BLOCK, NVFP4, NVFP4A16, MXFP8")),
            ("a release", plain, None, "quantize", ("--scheme", "W4A16", "--dialect", "awq", "--compat",
                                                    "llm-compressor"), ("awq", "llm-compressor")),
            ("uneven rows", {MODULE + ".weight": tensor([60, 128], 1)}, None, "quantize",
             ("--scheme", "W4A16", "--dialect", "awq"), ("60 rows of 4 bits", "32 bits", "--ignore")),
            ("a plain model", plain, None, "convert", ("--dialect", "awq"), ("not quantized", "--scheme")),
            ("a plain model with a scheme", plain, None, "convert", ("--dialect", "awq", "--scheme", "W4A16"),
             (MODULE, "is not quantized", "change its numbers")),
            ("a plain layer", {**m.awq(), **other}, AWQ, "convert", ("--scheme", "W4A16_ASYM", "--set",
                                                                     "group_size=32"), ("q_proj", "not quantized")),
            ("a scheme without zero points", m.awq(), AWQ, "convert", ("--scheme", "W4A16", "--set", "group_size=32"),
             (MODULE, "AWQ", "does not hold")),
            ("an order", m.gptq(groups=groups), {**GPTQ, "desc_act": True}, "convert", ("--dialect", "awq"),
             (MODULE, "g_idx", "desc_act", "vLLM 0.32", "actorder group"))):
        make("in", tensors, **({"quantization_config": config} if config else {}))
        shutil.rmtree("out", ignore_errors=True)
        refused(what, cli.run(command, "in", "-o", "out", *options), 2, *words)
        check(not os.path.exists("out"), f"{what}: nothing is written")
    part = {"model.layers.0.mlp.gate.weight": tensor([8, 128], 1),
            "model.layers.0.mlp.gate_proj.weight": tensor([64, 128], 1)}
    make("in", part)
    p = cli.run("quantize", "in", "-o", "out", "--scheme", "W4A16", "--dialect", "awq", "--ignore",
                "model.layers.0.mlp.gate")
    refused("a name within another", p, 2, "'model.layers.0.mlp.gate'", "'model.layers.0.mlp.gate_proj'")


def test_order_warning():
    """Columns in an order of their own lose their codes, and a warning names them."""
    groups = [b % (COLUMNS // GROUP) for b in random_bytes("groups", COLUMNS)]
    _, report, _ = run("desc_act", Matrix("order").gptq(groups=groups), {**GPTQ, "desc_act": True}, "W4A16_ASYM",
                       "--set", f"group_size={GROUP}")
    check(any("desc_act" in w and MODULE in w for w in report["warnings"]), "desc_act: a warning",
          str(report["warnings"]))


# ---- Audit -----------------------------------------------------------------------------------------------------------

def audit(tensors, config, *options):
    """Returns the exit status and what is printed."""
    make("in", tensors, quantization_config=config)
    p = cli.run("audit", "in", *options)
    return p.returncode, p.stdout + p.stderr


def test_audit_sound():
    """Nothing is found in what a quantizer writes, and the error against the original is that of the numbers."""
    for what, _, _, tensors, config, _ in sources():
        if "without g_idx" in what:
            config = {**config, "sym": True}
        status, text = audit(tensors, config)
        check(status == 0 and "1 quantized layers, 0 findings" in text, f"{what}: no finding", text)
    m = Matrix("against")
    make("original", {f"{MODULE}.weight": ("F16", [ROWS, COLUMNS], struct.pack(f"<{ROWS * COLUMNS}e", *m.values()))})
    for what, tensors, config in (("AWQ", m.awq(), AWQ), ("GPTQ", m.gptq(), GPTQ)):
        status, text = audit(tensors, config, "--against", "original", "--json")
        layer = json.loads(text)["layers"][0]
        equal((status, layer["format"], layer["relative_error"]), (0, what, 0), f"{what}: against its numbers")
    status, text = audit(Matrix("another").awq(), AWQ, "--against", "original")
    check(status == 3 and "its error against the original" in text, "the error of other codes", text)


def test_audit_faults():
    """Each fault is found, by name."""
    m, even = Matrix("faults"), Matrix("even", 4, 8)
    awq, gptq, q = m.awq(), m.gptq(), MODULE
    ordered = even.gptq(groups=[b % 4 for b in random_bytes("groups", COLUMNS)])
    flat = Matrix("flat")
    flat.codes = [[3] * COLUMNS] * ROWS
    small = Matrix("small", 8)
    small.codes = [[128 + code % 20 for code in row] for row in small.codes]
    scale = lambda bits: {f"{q}.scales": ("F16", [4, ROWS], bits + awq[f"{q}.scales"][2][2:])}
    sym, other = {**GPTQ, "sym": True}, q.replace("down", "gate")
    pair = {n.replace("down", "up"): t for n, t in awq.items()} | {f"{other}.weight": tensor([ROWS, COLUMNS], 3)}
    v2 = {**sym, "checkpoint_format": "gptq_v2"}
    for what, tensors, config, words in (
            ("bits of the configuration", awq, {**AWQ, "bits": 8}, ("4 bits", "says 8")),
            ("groups of the configuration", awq, {**AWQ, "group_size": 128}, ("groups of 32", "says 128")),
            ("an order without desc_act", ordered, sym, ("g_idx", "desc_act")),
            ("v1 read as v2", even.gptq(), v2, ("zero points are not 8", "is 7", "off by one")),
            ("v2 read as v1", even.gptq(0), sym, ("zero points are not 8", "is 9", "off by one")),
            ("zero points of 16", Matrix("16", 4, 16).gptq(), GPTQ, ("zero points are 16",)),
            ("zero points where none are", gptq, sym, ("zero points are not 8",)),
            ("a scale of 0", awq | scale(b"\0\0"), AWQ, ("other than 0", "the first, 0")),
            ("an infinite scale", awq | scale(b"\0\x7c"), AWQ, ("other than 0", "inf")),
            ("a scale that is NaN", gptq | scale(b"\0\x7e"), GPTQ, ("other than 0", "nan")),
            ("codes of one value", flat.awq(), AWQ, ("all codes are 3",)),
            ("half of the range", small.gptq(), {**GPTQ, "bits": 8}, ("largest magnitude of its codes", "of 127")),
            ("a layer that is left out", {**awq, "model.layers.0.mlp.up_proj.weight": tensor([ROWS, COLUMNS], 3)}, AWQ,
             ("not quantized", "claims it")),
            ("half a set", pair, {**AWQ, "modules_to_not_convert": [other]}, (other, "one matrix")),
            ("an exclusion of nothing", awq, {**AWQ, "modules_to_not_convert": ["visul"]}, ("'visul'", "no name")),
            ("a width that does not fit", awq | {f"{q}.qweight": ("I32", [COLUMNS, 7], bytes(28 * COLUMNS))}, AWQ,
             (f"{q}.qweight", "[128,7]")),
            ("zero points of other groups", gptq | {f"{q}.qzeros": ("I32", [2, 8], bytes(64))}, GPTQ,
             (f"{q}.qweight", "GPTQ")),
            ("no scales", {n: t for n, t in awq.items() if "scales" not in n}, AWQ, (f"{q}.qweight", "without scales")),
            ("a column of no group", m.gptq(groups=[4] * COLUMNS), GPTQ, (f"{q}.g_idx", "group 4 of 4")),
            ("nothing is quantized", {"model.norm.weight": tensor([128], 1)}, GPTQ, ("holds no codes",))):
        status, text = audit(tensors, config)
        check(status == 3 and all(w in text for w in words), f"{what}: {', '.join(words)}", f"{status} {text}")


if __name__ == "__main__":
    sys.exit(cli.main(globals()))
